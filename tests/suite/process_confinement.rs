//! What a command can and cannot do, tried by commands. `specs/process-runtime.md` lists the outcomes.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use orchestrate::runtime::process::Avoid;
use orchestrate::runtime::{Bind, CreateRequest, ErrorKind, Runtime};
use rstest::rstest;

use crate::process_support::{World, until};

const FULL: Avoid = Avoid { namespaces: false, landlock: false, cgroups: false };
const LANDLOCK_ALONE: Avoid = Avoid { namespaces: true, ..FULL };
const NAMESPACES_ALONE: Avoid = Avoid { landlock: true, ..FULL };

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a script in which each line is one attempt that must fail, and one that must succeed where it begins with `+`.
async fn tried(world: &World, request: CreateRequest, script: &str) {
    let mut shell = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (attempt, wanted) = line.strip_prefix('+').map_or((line, "1"), |attempt| (attempt, "0"));
        // In a shell of its own: a failed redirection ends some shells.
        let quoted = attempt.replace('\'', r"'\''");
        writeln!(
            shell,
            "sh -c '{quoted}' >/dev/null 2>&1 && r=0 || r=1; [ $r = {wanted} ] || {{ echo '{}'; bad=1; }}",
            attempt.replace('\'', "")
        )
        .expect("a string takes all");
    }
    shell.push_str("exit ${bad:-0}");
    let request = CreateRequest { command: Some(["sh", "-c", &shell].map(str::to_owned).to_vec()), ..request };
    let (code, log) = world.run(&request).await;
    assert_eq!(code, 0, "these went otherwise:\n{log}");
}

#[rstest]
#[case::full(FULL)]
#[case::landlock_alone(LANDLOCK_ALONE)]
#[case::namespaces_alone(NAMESPACES_ALONE)]
#[tokio::test]
async fn it_writes_nowhere_but_into_its_own(#[case] avoid: Avoid) {
    let world = World::avoiding(avoid);
    let outside = world.path().join("outside");
    std::fs::create_dir(&outside).expect("created");
    std::fs::write(outside.join("file"), "theirs").expect("written");
    std::os::unix::fs::symlink(&outside, world.tree().join("link")).expect("linked");
    let outside = outside.display();
    let script = format!(
        "+echo x >mine
         +mkdir -p a/b && mv mine a/b/mine && rm -r a
         +t=$(mktemp) && echo x >$t && rm $t
         +echo x >$HOME/x && printf '#!/bin/sh' >$HOME/tool && chmod +x $HOME/tool && $HOME/tool
         +echo x >/dev/null
         echo x >{outside}/file
         echo x >{outside}/new
         echo x >link/new
         rm {outside}/file
         mv {outside}/file ./file
         ln {outside}/file ./file && echo x >./file
         echo x >/etc/x
         echo x >>/etc/passwd
         echo x >/usr/bin/x
         echo x >/x
         mkdir /var/x"
    );
    tried(&world, world.request("a", ""), &script).await;
    assert_eq!(std::fs::read_to_string(world.path().join("outside/file")).expect("there"), "theirs");
    assert_eq!(std::fs::read_dir(world.path().join("outside")).expect("listed").count(), 1);
}

#[rstest]
#[case::full(FULL)]
#[case::namespaces_alone(NAMESPACES_ALONE)]
#[tokio::test]
async fn with_namespaces_the_machine_is_out_of_reach(#[case] avoid: Avoid) {
    let home = tempfile::tempdir_in("/var/tmp").expect("temp dir");
    let (private, token) = (home.path().join(".ssh"), home.path().join(".netrc"));
    std::fs::create_dir(&private).expect("created");
    std::fs::write(private.join("id"), "secret").expect("written");
    std::fs::write(&token, "secret").expect("written");
    std::fs::write(home.path().join("public"), "").expect("written");
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).expect("opened");
    let world = World::with(|settings| {
        settings.avoid = avoid;
        settings.hidden = vec![private.clone(), token.clone(), home.path().join("nowhere")];
    });
    let read_only = world.path().join("prompt");
    std::fs::write(&read_only, "do it").expect("written");
    let git = world.path().join("git");
    std::fs::write(&git, "gitdir: /nowhere").expect("written");
    std::fs::write(world.tree().join(".git"), "the real one").expect("written");
    let mut request = world.request("a", "");
    request.mounts.push(Bind { source: git, target: "/project/.git".to_owned(), read_only: true });
    request.mounts.push(Bind { source: read_only, target: "/run/orchestrate/prompt".to_owned(), read_only: true });
    let (me, home, root) = (std::process::id(), home.path().display(), world.root());
    let root = root.display();
    let script = format!(
        "+[ $(cat /run/orchestrate/prompt) = do ] || grep -q do /run/orchestrate/prompt
         +grep -q nowhere /project/.git
         +[ $(pwd) = /project ]
         +[ $HOME = /home/agent ]
         +[ -e {home}/public ]
         echo x >/run/orchestrate/prompt
         rm /project/.git
         mv /project/.git /project/x
         echo x >/project/.git
         ls {home}/.ssh/id
         grep secret {home}/.netrc
         ls {root}/*
         kill -0 {me}
         [ -e /proc/{me}/environ ] && grep -q . /proc/{me}/environ
         [ -e /dev/vda ]
         [ -e /dev/sda ]
         [ -e /dev/mem ]
         [ -e /run/docker.sock ]
         [ -e /var/run/docker.sock ]
         chmod 777 /etc/passwd
         chown 1 /etc/passwd
         touch /etc/passwd
         mount -t tmpfs tmpfs /mnt
         umount /project
         mount -o remount,rw /
         mount -o remount,rw /usr
         mknod /tmp/disk b 254 0
         chroot / true
         echo 1 >/proc/sys/kernel/panic
         echo x >/proc/sysrq-trigger
         find /sys/fs/cgroup -name cgroup.procs | while read f; do echo $$ >$f && echo x; done | grep -q x
         hostname evil"
    );
    tried(&world, request, &script).await;
    assert_eq!(std::fs::read_to_string(world.tree().join(".git")).expect("there"), "the real one");
}

#[tokio::test]
async fn landlock_alone_leaves_gaps_that_are_known() {
    let world = World::avoiding(LANDLOCK_ALONE);
    let file = world.path().join("file");
    std::fs::write(&file, "theirs").expect("written");
    let (me, file) = (std::process::id(), file.display());
    let scoped = world.runtime.confinement().await.expect("probed").landlock.is_some_and(|version| version >= 6);
    // The first line is a gap: modes are no writes.
    let script = format!(
        "+chmod 600 {file}
         mount -t tmpfs tmpfs /mnt
         mknod $TMPDIR/disk b 254 0
         chroot / true
         echo 1 >/proc/sys/kernel/panic
         find /sys/fs/cgroup -name cgroup.procs | while read f; do echo $$ >$f && echo x; done | grep -q x
         {} kill -0 {me}",
        if scoped { "" } else { "+" }
    );
    tried(&world, world.request("a", ""), &script).await;
}

#[tokio::test]
async fn landlock_alone_leaves_what_may_be_read() {
    let world = World::avoiding(LANDLOCK_ALONE);
    let private = world.path().join(".ssh");
    std::fs::create_dir(&private).expect("created");
    std::fs::write(private.join("id"), "secret").expect("written");
    // Stands for the engine's socket and for another attempt's supervisor's: a path that a program connects to.
    let socket = world.path().join("sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let other = world.create("other", "true").await;
    let control = world.folder(&other).join("ctl");
    let program = "use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un($ARGV[0])) or exit 1;";
    std::fs::write(world.tree().join("connect.pl"), program).expect("written");
    let landlock = world.runtime.confinement().await.expect("probed").landlock.expect("this is what is tried");
    // Later versions can refuse sockets by their path.
    let gap = if landlock <= 8 { "+" } else { "" };
    let script = format!(
        "+grep -q secret {}/id
         {gap}perl connect.pl {}
         {gap}perl connect.pl {}",
        private.display(),
        socket.display(),
        control.display()
    );
    tried(&world, world.request("a", ""), &script).await;
}

#[tokio::test]
async fn nothing_is_gained_and_nothing_is_inherited() {
    for avoid in [FULL, LANDLOCK_ALONE, NAMESPACES_ALONE] {
        let world = World::avoiding(avoid);
        // Descriptors of ours that are not closed on exec would be found inside.
        let script = "+grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status
             +grep -q '^CapPrm:[[:space:]]*0*$' /proc/self/status
             +grep -q '^NoNewPrivs:[[:space:]]*1$' /proc/self/status
             +[ $(ulimit -c) = 0 ]
             +[ \"$(echo /proc/self/fd/*)\" = '/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3' ]
             +env | grep -q ^PATH=
             [ -n \"$CARGO_MANIFEST_DIR\" ]
             env | grep -q ^CARGO_
             [ -t 0 ]
             read line";
        tried(&world, world.request("a", ""), script).await;
    }
}

#[tokio::test]
async fn another_user_is_another_user() {
    if !is_root() {
        return;
    }
    for avoid in [FULL, LANDLOCK_ALONE] {
        let world = World::avoiding(avoid);
        std::os::unix::fs::chown(world.tree(), Some(1234), Some(2345)).expect("given");
        std::fs::set_permissions(world.path(), std::fs::Permissions::from_mode(0o755)).expect("opened");
        let mut request = world.request("a", "");
        request.user = Some("1234:2345".to_owned());
        let script = "+[ $(id -u):$(id -g):$(id -G) = 1234:2345:2345 ]
             +echo x >$HOME/x && echo x >mine
             +[ $(stat -c %u:%g mine) = 1234:2345 ]
             cat /etc/shadow
             su -c true
             unshare -m true && mount";
        tried(&world, request, script).await;
    }
}

#[tokio::test]
async fn a_network_of_none_has_nobody_in_it() {
    let world = World::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let mut request = world.request("a", "");
    request.network = "none".to_owned();
    let connect = format!("bash -c 'echo >/dev/tcp/127.0.0.1/{port}'");
    tried(&world, request, &format!("{connect}\n[ $(grep -c : /proc/net/dev) -gt 1 ]")).await;
    tried(&world, world.request("b", ""), &format!("+{connect}")).await;
    let mut request = world.request("c", "");
    request.network = "mine".to_owned();
    assert_eq!(world.runtime.create(&request).await.expect_err("refused").kind, ErrorKind::Unsupported);
    let world = World::avoiding(LANDLOCK_ALONE);
    let mut request = world.request("a", "");
    request.network = "none".to_owned();
    assert_eq!(world.runtime.create(&request).await.expect_err("refused").kind, ErrorKind::Unsupported);
}

#[tokio::test]
async fn processes_are_limited_where_groups_can_be_made() {
    let world = World::new();
    if !world.runtime.confinement().await.expect("probed").limits.iter().any(|limit| limit == "pids") {
        return;
    }
    let mut request = world.request("a", "for i in $(seq 40); do sleep 100 & done; exit 0");
    request.resources.pids = 20;
    let (code, log) = world.run(&request).await;
    assert!(code != 0 && log.to_lowercase().contains("fork"), "{code} {log}");
    let groups = world.fact(&request.name, "started.json")["cgroups"].clone();
    let groups: Vec<String> = serde_json::from_value(groups).expect("paths");
    assert!(!groups.is_empty());
    until(|| groups.iter().all(|group| !std::path::Path::new(group).exists())).await;
}

#[tokio::test]
async fn where_nothing_can_be_mounted_all_is_at_its_real_place() {
    let world = World::avoiding(LANDLOCK_ALONE);
    let private = world.path().join("private.git");
    let init = std::process::Command::new("git").args(["init", "-q", "--bare"]).arg(&private).status().expect("git");
    assert!(init.success());
    let (prompt, file) = (world.path().join("prompt"), world.path().join("gitfile"));
    std::fs::write(&prompt, "do it").expect("written");
    std::fs::write(&file, "gitdir: /run/orchestrate/git\n").expect("written");
    let mut request = world.request("a", "");
    let bind = |source: &std::path::Path, target: &str, read_only| Bind {
        source: source.to_owned(),
        target: target.to_owned(),
        read_only,
    };
    request.mounts.push(bind(&private, "/run/orchestrate/git", false));
    request.mounts.push(bind(&file, "/project/.git", true));
    request.mounts.push(bind(&prompt, "/run/orchestrate/prompt", true));
    request.env.insert("PROMPT".to_owned(), "/run/orchestrate/prompt".to_owned());
    for (name, value) in [("AUTHOR", "a"), ("COMMITTER", "b")] {
        request.env.insert(format!("GIT_{name}_NAME"), value.to_owned());
        request.env.insert(format!("GIT_{name}_EMAIL"), value.to_owned());
    }
    let script = format!(
        "+[ $(pwd) = {} ]
         +grep -q do $PROMPT
         +case $HOME in /tmp/orchestrate-*) true;; *) false;; esac
         +echo x >file && git config core.bare false; git add file && git commit -qm x
         echo x >$PROMPT",
        world.tree().display()
    );
    tried(&world, request, &script).await;
    let id = world.runtime.list(&world.instance).await.expect("listed").remove(0).id;
    let scratch = format!("/tmp/orchestrate-{}", id.split_once('.').expect("an id").0);
    until(|| !std::path::Path::new(&scratch).exists()).await;
    assert!(world.fact(&id, "started.json")["confinement"]["mounts"] == false);
}

/// Every file under a folder that holds the text.
fn holding(folder: &std::path::Path, text: &[u8]) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("listed").map(|entry| entry.expect("read").path()) {
        if entry.is_dir() {
            found.extend(holding(&entry, text));
        } else if let Ok(content) = std::fs::read(&entry)
            && content.windows(text.len()).any(|window| window == text)
        {
            found.push(entry);
        }
    }
    found
}

#[tokio::test]
async fn an_environment_is_on_no_disk_and_in_no_argument() {
    let world = World::new();
    let canary = format!("canary-{}", std::process::id() * 7919);
    let mut request = world.request("a", "echo ${#TOKEN}; exec sleep 1000");
    request.env.insert("TOKEN".to_owned(), canary.clone());
    let id = world.runtime.create(&request).await.expect("created");
    let seen = || {
        assert_eq!(holding(&world.root(), canary.as_bytes()), Vec::<std::path::PathBuf>::new());
        assert_eq!(crate::process_support::command_lines(&canary), Vec::<String>::new());
    };
    seen();
    let supervisor = world.holder(&id);
    let environment = std::fs::read(format!("/proc/{}/environ", supervisor.as_raw_pid()));
    // Nobody but root may even look.
    assert!(!is_root() || environment.as_ref().is_ok_and(Vec::is_empty));
    assert!(is_root() || environment.is_err());
    world.runtime.start(&id).await.expect("started");
    world.written(&id).await;
    seen();
    world.runtime.stop(&id, std::time::Duration::ZERO).await.expect("stopped");
    seen();
    assert_eq!(world.output(&id).await, format!("{}\n", canary.len()));
}
