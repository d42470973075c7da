//! Many attempts at once, in a process of their own whose descriptors and children nobody else changes.

use std::process::Command;

use futures::{StreamExt, stream};
use orchestrate::runtime::Runtime;

use crate::process_support::{World, until};

const MANY: usize = 200;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("listed").count()
}

fn zombies() -> usize {
    let me = std::process::id().to_string();
    let is_zombie = |pid: &std::ffi::OsStr| {
        let stat = std::fs::read_to_string(std::path::Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
        let rest = stat.rsplit(')').next().unwrap_or_default();
        let mut fields = rest.split_whitespace();
        fields.next() == Some("Z") && fields.next() == Some(&me)
    };
    std::fs::read_dir("/proc").expect("listed").flatten().filter(|entry| is_zombie(&entry.file_name())).count()
}

#[tokio::test]
#[ignore = "run by the next test in a process of its own"]
async fn many_alone() {
    let world = World::new();
    world.ended(&world.launch("first", "true").await).await;
    let before = descriptors();
    let runs = (0..MANY).map(|n| {
        let world = &world;
        async move {
            let id = world.launch(&format!("t{n}"), "true").await;
            world.ended(&id).await.exit_code
        }
    });
    let codes: Vec<i64> = stream::iter(runs).buffer_unordered(16).collect().await;
    assert_eq!(codes, vec![0; MANY]);
    assert_eq!(world.runtime.list(&world.instance).await.expect("listed").len(), MANY + 1);
    until(|| descriptors() <= before).await;
    until(|| zombies() == 0).await;
}

#[test]
fn many_leave_no_zombie_and_no_descriptor() {
    let status = Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "process_load::many_alone", "--ignored"])
        .status()
        .expect("ran");
    assert!(status.success());
}
