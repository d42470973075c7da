//! Replays the fuzz corpus through what the fuzz targets do.

use std::fs;
use std::path::Path;

#[path = "../../fuzz/exercise.rs"]
mod exercise;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the folder is there") {
        run(&fs::read(entry.expect("readable").path()).expect("readable"));
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn the_corpus_holds_no_finding() {
    replay("json", exercise::json);
    replay("yaml", exercise::yaml);
    replay("merge", exercise::merge);
}
