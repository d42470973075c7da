//! The life of an attempt under the process runtime.

use std::time::Duration;

use futures::TryStreamExt;
use orchestrate::observe::{ContainerState, InstanceId};
use orchestrate::runtime::{Bind, ErrorKind, LogOptions, LogStream, Runtime, RuntimeEvent};

use crate::process_support::{World, next, within};

#[tokio::test]
async fn a_whole_life() {
    let world = World::new();
    println!("{}", world.runtime.confinement().await.expect("probed"));
    let (code, log) = world.run(&world.request("a", "id; pwd; echo $HOME; ls -la / /dev /run; echo hi >/project/f; cat /proc/self/status | grep -E 'Cap|NoNew'; ps ax 2>&1 | head; touch /etc/x; touch /root/x; env; exit 3")).await;
    println!("{log}");
    println!("{}", world.fact(&world.request("a", "").name, "started.json"));
    assert_eq!(code, 3);
}
