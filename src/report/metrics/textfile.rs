//! The file for node exporter's textfile collector.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::encode::Format;
use super::families::Metrics;
use crate::record::{FileError, Files};

/// Replaces the file at once, so that a collector never reads a part of it. Readable by all: the collector is another
/// user. The collector takes only names that end in `.prom`, which the temporary file's does not.
pub fn write(files: &dyn Files, path: &Path, metrics: &Metrics) -> Result<(), FileError> {
    write_text(files, path, &metrics.text(Format::Text))
}

/// The same with a text that was made already.
pub fn write_text(files: &dyn Files, path: &Path, text: &str) -> Result<(), FileError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temp = files.write_temp(dir, &format!(".{name}."), text.as_bytes(), None)?;
    let replaced = fs::set_permissions(&temp, fs::Permissions::from_mode(0o644))
        .map_err(|error| FileError::new("set the mode of", &temp, error))
        .and_then(|()| files.rename(&temp, path));
    if replaced.is_err() {
        // The first error is the one to tell.
        drop(files.remove(&temp));
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::OsFiles;

    #[test]
    fn the_file_is_replaced_whole_readable_by_all_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("orchestrate.prom");
        let metrics = Metrics::new("1", "p");
        for _ in 0..2 {
            write(&OsFiles, &path, &metrics).expect("writes");
        }
        assert_eq!(fs::read_to_string(&path).expect("reads"), metrics.text(Format::Text));
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(dir.path()).expect("lists").count(), 1);
        fs::create_dir(dir.path().join("folder")).expect("makes");
        write(&OsFiles, &dir.path().join("folder"), &metrics).expect_err("a folder is in the way");
        assert_eq!(fs::read_dir(dir.path()).expect("lists").count(), 2);
    }
}
