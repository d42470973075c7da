//! What every runtime must do, run over the fake engine and over a real one, so that the fake cannot drift.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use orchestrate::observe::names;
use orchestrate::observe::{AttemptKey, ContainerDetail, ContainerState, InstanceId};
use orchestrate::runtime::{
    Bind, CreateRequest, ErrorKind, LogOptions, LogStream, Runtime, RuntimeError, RuntimeEvent,
};
use orchestrate::spec::{Resources, TaskId};

use crate::process_support;
use crate::support::engine::{self, IMAGE};
use crate::support::fake_runtime::{Behaviour, FakeRuntime};

/// Runs each scenario over the runtime without an engine: those that are about images, or about what a person does with
/// an engine's own tools, have nothing to be run over there.
macro_rules! process_conformance {
    ($($name:ident),+ $(,)?) => {
        mod process_runtime {
            use super::World;
            $(#[tokio::test]
            async fn $name() {
                super::$name(World::process()).await;
            })+
        }
    };
}

process_conformance!(
    probe,
    a_name_is_a_mutex,
    of_twenty_creates_at_once_one_wins,
    labels_lead_back,
    other_instances_are_not_seen,
    exit_codes_are_kept,
    a_command_that_is_not_there,
    a_file_that_is_no_program,
    a_file_mounted_over_a_folder,
    a_mount_that_is_not_there,
    a_container_that_is_not_there,
    starting_what_runs_is_no_error,
    stop_asks_first,
    stop_kills_what_does_not_listen,
    stopping_what_has_ended_is_no_error,
    what_lives_is_not_removed,
    logs_of_both_streams,
    the_end_of_a_log,
    a_followed_log_ends_with_its_container,
    a_silent_log,
    events_of_a_life,
    memory_that_ran_out,
);

/// Runs each scenario over both engines.
macro_rules! conformance {
    ($($name:ident),+ $(,)?) => {
        mod fake_engine {
            use super::World;
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(World::fake()).await;
            })+
        }
        mod docker_engine {
            use super::World;
            $(#[tokio::test]
            async fn $name() {
                if let Some(world) = World::docker() {
                    super::$name(world).await;
                }
            })+
        }
    };
}

conformance!(
    probe,
    a_name_is_a_mutex,
    of_twenty_creates_at_once_one_wins,
    labels_lead_back,
    other_instances_are_not_seen,
    exit_codes_are_kept,
    a_command_that_is_not_there,
    a_file_that_is_no_program,
    a_user_that_the_image_lacks,
    a_network_that_is_not_there,
    a_file_mounted_over_a_folder,
    a_mount_that_is_not_there,
    an_image_that_is_not_there,
    a_container_that_is_not_there,
    starting_what_has_run_runs_it_again,
    starting_what_runs_is_no_error,
    stop_asks_first,
    stop_kills_what_does_not_listen,
    stopping_what_has_ended_is_no_error,
    a_person_pauses_and_goes_on,
    a_renamed_container_is_still_ours,
    what_lives_is_not_removed,
    logs_of_both_streams,
    the_end_of_a_log,
    a_followed_log_ends_with_its_container,
    a_silent_log,
    events_of_a_life,
    events_of_images,
    memory_that_ran_out,
);

/// An engine with a name space of its own.
struct World {
    instance: InstanceId,
    engine: Engine,
}

enum Engine {
    Fake(FakeRuntime),
    Docker(Box<dyn Runtime>, String),
    Process(process_support::World),
}

impl World {
    fn fake() -> Self {
        Self { instance: InstanceId("0123abcd".into()), engine: Engine::Fake(FakeRuntime::new()) }
    }

    fn process() -> Self {
        let world = process_support::World::new();
        Self { instance: world.instance.clone(), engine: Engine::Process(world) }
    }

    fn docker() -> Option<Self> {
        let (runtime, host) = engine::engine()?;
        let unique = std::fs::read_to_string("/proc/sys/kernel/random/uuid").expect("a kernel's uuid");
        let instance = InstanceId(unique.trim().replace('-', "")[..12].into());
        Some(Self { instance, engine: Engine::Docker(Box::new(runtime), host) })
    }

    fn runtime(&self) -> &dyn Runtime {
        match &self.engine {
            Engine::Fake(fake) => fake,
            Engine::Docker(runtime, _) => &**runtime,
            Engine::Process(world) => &world.runtime,
        }
    }

    /// What a person does with the docker command line.
    fn human(&self, arguments: &[&str]) {
        match &self.engine {
            Engine::Docker(_, host) => {
                let output = engine::docker(host, arguments);
                assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            }
            Engine::Process(_) => panic!("there is no tool for {arguments:?}"),
            Engine::Fake(fake) => match *arguments {
                ["pause", name] => fake.human_pause(name),
                ["unpause", name] => fake.human_unpause(name),
                ["rename", name, new] => fake.human_rename(name, new),
                ["rm", "-f", name] => fake.human_remove(name),
                ["tag", _, new] => fake.add_image(new, ""),
                _ => panic!("the fake has no {arguments:?}"),
            },
        }
    }

    /// Without an engine it takes a control group, which not everybody may make.
    async fn limits_memory(&self) -> bool {
        let Engine::Process(world) = &self.engine else { return true };
        let confinement = world.runtime.confinement().await.expect("probed");
        confinement.limits.iter().any(|limit| limit == "memory")
    }

    /// Only root can run a process as somebody else.
    fn user(&self) -> Option<String> {
        let possible = !matches!(self.engine, Engine::Process(_)) || rustix::process::geteuid().is_root();
        possible.then(|| "1000:1000".to_owned())
    }

    fn request(&self, task: &str) -> CreateRequest {
        let key = AttemptKey { task: TaskId::new(task).expect("valid"), attempt: 1 };
        CreateRequest {
            name: names::container(&self.instance, &key),
            labels: names::labels(&self.instance, "plan", &key, "digest", "base"),
            key,
            image: Some(IMAGE.to_owned()),
            command: Some(vec!["true".to_owned()]),
            env: BTreeMap::new(),
            mounts: Vec::new(),
            workdir: "/project".to_owned(),
            user: self.user(),
            network: "none".to_owned(),
            resources: Resources { memory: 64 << 20, ..Resources::default() },
        }
    }

    /// Makes a container that does the same on both engines.
    async fn create(&self, task: &str, shell: &str, behaviour: Behaviour) -> String {
        if let Engine::Fake(fake) = &self.engine {
            fake.script(move |_| behaviour.clone());
        }
        let mut request = self.request(task);
        request.command = Some(["sh", "-c", shell].map(str::to_owned).to_vec());
        self.runtime().create(&request).await.expect("created")
    }

    async fn inspect(&self, id: &str) -> ContainerDetail {
        self.runtime().inspect(&self.instance, id).await.expect("answered").expect("there")
    }

    async fn state(&self, id: &str) -> ContainerState {
        self.inspect(id).await.container.state
    }

    /// Waits for the end of a container; its log ends with it.
    async fn ended(&self, id: &str) -> ContainerDetail {
        let log = self.runtime().logs(id, LogOptions { follow: true, ..LogOptions::default() });
        within(log.try_for_each(|_| async { Ok(()) })).await.expect("followed");
        let mut detail = self.inspect(id).await;
        // The end of the log comes a moment before the end of the container.
        for _ in 0..500 {
            if !detail.container.state.is_live() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            detail = self.inspect(id).await;
        }
        assert_eq!(detail.container.state, ContainerState::Exited);
        detail
    }

    async fn log(&self, id: &str, options: LogOptions) -> Vec<(LogStream, String)> {
        let chunks: Vec<_> = within(self.runtime().logs(id, options).try_collect()).await.expect("a log");
        let mut joined: Vec<(LogStream, String)> = Vec::new();
        for chunk in chunks {
            let text = String::from_utf8(chunk.bytes.to_vec()).expect("text");
            match joined.last_mut() {
                Some((stream, all)) if *stream == chunk.stream => all.push_str(&text),
                _ => joined.push((chunk.stream, text)),
            }
        }
        joined
    }

    async fn subscribe(&self) -> BoxStream<'static, Result<RuntimeEvent, RuntimeError>> {
        let mut events = self.runtime().events(&self.instance);
        assert_eq!(next(&mut events).await, RuntimeEvent::Subscribed);
        events
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Engine::Docker(_, host) = &self.engine {
            let filter = format!("label={}={}", names::label::INSTANCE, self.instance);
            let listed = engine::docker(host, &["ps", "-aq", "--filter", &filter]).stdout;
            let ids = String::from_utf8_lossy(&listed).into_owned();
            let ids: Vec<&str> = ids.split_whitespace().collect();
            if !ids.is_empty() {
                engine::docker(host, &[&["rm", "-f"], &ids[..]].concat());
            }
        }
    }
}

/// A hung engine fails its test.
async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_mins(1), future).await.expect("in time")
}

/// The next event of a container; images are everybody's, and other tests make some.
async fn next(events: &mut BoxStream<'static, Result<RuntimeEvent, RuntimeError>>) -> RuntimeEvent {
    loop {
        match within(events.next()).await.expect("goes on").expect("an event") {
            RuntimeEvent::ImageAvailable(_) => {}
            event => return event,
        }
    }
}

fn endless() -> (&'static str, Behaviour) {
    ("trap 'exit 7' TERM; sleep 1000 & wait", Behaviour { on_term: Some(7), ..Behaviour::endless() })
}

async fn probe(world: World) {
    let info = world.runtime().probe().await.expect("answers");
    assert!(!info.version.is_empty() && info.api_version.contains('.'), "{info:?}");
    assert!(!world.runtime().host().is_empty());
}

async fn a_name_is_a_mutex(world: World) {
    let request = world.request("a");
    let id = world.runtime().create(&request).await.expect("the first");
    let error = world.runtime().create(&request).await.expect_err("the second");
    assert_eq!(error.kind, ErrorKind::NameTaken, "{error}");
    // Whoever lost finds the winner by the name.
    assert_eq!(world.inspect(&request.name).await.container.id, id);
}

async fn of_twenty_creates_at_once_one_wins(world: World) {
    let request = world.request("a");
    let creates = (0..20).map(|_| world.runtime().create(&request));
    let results = within(futures::future::join_all(creates)).await;
    let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 1);
    for error in lost.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind, ErrorKind::NameTaken, "{error}");
    }
    assert_eq!(world.runtime().list(&world.instance).await.expect("listed").len(), 1);
}

async fn labels_lead_back(world: World) {
    let request = world.request("api.v2_x");
    let id = world.runtime().create(&request).await.expect("created");
    let listed = world.runtime().list(&world.instance).await.expect("listed");
    let [container] = &listed[..] else { panic!("one container: {listed:?}") };
    assert_eq!((&container.id, &container.name, &container.key), (&id, &request.name, &request.key));
    assert_eq!((container.plan.as_str(), container.state), ("plan", ContainerState::Created));
    let detail = world.inspect(&id).await;
    assert_eq!(detail.container, *container);
    assert_eq!((detail.started_at, detail.finished_at, detail.error.as_str()), (None, None, ""));
}

async fn other_instances_are_not_seen(world: World) {
    let name = world.request("a").name;
    world.runtime().create(&world.request("a")).await.expect("created");
    let other = InstanceId("fedc9876".into());
    assert_eq!(world.runtime().list(&other).await.expect("listed"), []);
    let error = world.runtime().inspect(&other, &name).await.expect_err("not theirs");
    assert_eq!(error.kind, ErrorKind::NotOurs);
}

async fn exit_codes_are_kept(world: World) {
    for (task, code) in [("zero", 0), ("three", 3), ("most", 255)] {
        let id = world.create(task, &format!("exit {code}"), Behaviour::exits(code, Duration::ZERO)).await;
        world.runtime().start(&id).await.expect("started");
        let detail = world.ended(&id).await;
        assert_eq!((detail.exit_code, detail.error.as_str(), detail.oom_killed), (code, "", false));
        // Whichever of the two is greater: an engine dates both by its own doings.
        assert!(detail.started_at.is_some() && detail.finished_at.is_some());
    }
}

async fn refused_start(world: &World, change: impl FnOnce(&mut CreateRequest), code: i64, text: &'static str) {
    if let Engine::Fake(fake) = &world.engine {
        fake.script(move |_| Behaviour { start_error: Some((code, text.to_owned())), ..Behaviour::default() });
    }
    let mut request = world.request("a");
    change(&mut request);
    let id = world.runtime().create(&request).await.expect("created");
    let error = world.runtime().start(&id).await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::StartRefused, "{error}");
    assert!(error.message.contains(text), "{error}");
    // Created does not mean that no start was tried.
    let detail = world.inspect(&id).await;
    assert_eq!((detail.container.state, detail.exit_code), (ContainerState::Created, code));
    assert!(detail.error.contains(text), "{}", detail.error);
    assert_eq!(detail.started_at, None);
}

async fn a_user_that_the_image_lacks(world: World) {
    refused_start(&world, |request| request.user = Some("bob".to_owned()), 128, "unable to find user bob").await;
}

async fn a_network_that_is_not_there(world: World) {
    refused_start(&world, |request| "nowhere".clone_into(&mut request.network), 128, "network nowhere not found").await;
}

async fn a_file_mounted_over_a_folder(world: World) {
    let bind = Bind { source: "/etc/passwd".into(), target: "/home".to_owned(), read_only: true };
    refused_start(&world, |request| request.mounts.push(bind), 127, "not a directory").await;
}

/// The init process is there, so the start succeeds; the command's absence is its exit.
async fn ends_at_once(world: &World, command: &str, code: i64) {
    if let Engine::Fake(fake) = &world.engine {
        let output = vec![(LogStream::Stderr, format!("exec {command} failed").into_bytes())];
        fake.script(move |_| Behaviour { output: output.clone(), ..Behaviour::exits(code, Duration::ZERO) });
    }
    let mut request = world.request("a");
    request.command = Some(vec![command.to_owned()]);
    let id = world.runtime().create(&request).await.expect("created");
    world.runtime().start(&id).await.expect("started");
    let detail = world.ended(&id).await;
    assert_eq!((detail.exit_code, detail.error.as_str()), (code, ""));
    let log = world.log(&id, LogOptions::default()).await;
    assert!(log.iter().any(|(_, text)| text.contains(&format!("exec {command} failed"))), "{log:?}");
}

async fn a_command_that_is_not_there(world: World) {
    ends_at_once(&world, "/nowhere", 127).await;
}

async fn a_file_that_is_no_program(world: World) {
    ends_at_once(&world, "/etc/passwd", 126).await;
}

async fn a_mount_that_is_not_there(world: World) {
    let mut request = world.request("a");
    request.mounts.push(Bind { source: "/nowhere/at/all".into(), target: "/x".to_owned(), read_only: true });
    let error = world.runtime().create(&request).await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    assert!(error.message.contains("/nowhere/at/all"), "{error}");
    assert_eq!(world.runtime().list(&world.instance).await.expect("listed"), []);
}

async fn an_image_that_is_not_there(world: World) {
    assert_eq!(world.runtime().image("orchestrate-test:nope").await.expect("answered"), None);
    assert!(world.runtime().image(IMAGE).await.expect("answered").is_some_and(|image| image.user.is_empty()));
    let mut request = world.request("a");
    request.image = Some("orchestrate-test:nope".to_owned());
    let error = world.runtime().create(&request).await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::ImageMissing, "{error}");
}

async fn a_container_that_is_not_there(world: World) {
    let name = world.request("a").name;
    let runtime = world.runtime();
    assert_eq!(runtime.inspect(&world.instance, &name).await.expect("answered"), None);
    assert_eq!(runtime.start(&name).await.expect_err("absent").kind, ErrorKind::NotFound);
    assert_eq!(runtime.stop(&name, Duration::ZERO).await.expect_err("absent").kind, ErrorKind::NotFound);
    assert_eq!(runtime.remove(&name).await.expect_err("absent").kind, ErrorKind::NotFound);
    let mut log = runtime.logs(&name, LogOptions::default());
    assert_eq!(within(log.next()).await.expect("an answer").expect_err("absent").kind, ErrorKind::NotFound);
    assert!(within(log.next()).await.is_none());
}

async fn starting_what_has_run_runs_it_again(world: World) {
    let behaviour = Behaviour { output: vec![(LogStream::Stdout, b"ran\n".to_vec())], ..Behaviour::default() };
    let id = world.create("a", "echo ran", behaviour).await;
    for _ in 0..2 {
        world.runtime().start(&id).await.expect("started");
        world.ended(&id).await;
    }
    let log = world.log(&id, LogOptions::default()).await;
    assert_eq!(log, [(LogStream::Stdout, "ran\nran\n".to_owned())]);
    if let Engine::Fake(fake) = &world.engine {
        assert_eq!(fake.violations().len(), 1, "which is why our code never may");
    }
}

async fn starting_what_runs_is_no_error(world: World) {
    let (shell, behaviour) = endless();
    let id = world.create("a", shell, behaviour).await;
    world.runtime().start(&id).await.expect("started");
    world.runtime().start(&id).await.expect("started already");
    assert_eq!(world.state(&id).await, ContainerState::Running);
}

async fn stop_asks_first(world: World) {
    let (shell, behaviour) = endless();
    let id = world
        .create(
            "a",
            &format!("echo up; {shell}"),
            Behaviour { output: vec![(LogStream::Stdout, b"up\n".to_vec())], ..behaviour },
        )
        .await;
    world.runtime().start(&id).await.expect("started");
    written(&world, &id).await;
    within(world.runtime().stop(&id, Duration::from_secs(30))).await.expect("stopped");
    let detail = world.inspect(&id).await;
    assert_eq!((detail.container.state, detail.exit_code), (ContainerState::Exited, 7));
}

/// Waits until the container has written something, and so set its trap.
async fn written(world: &World, id: &str) {
    for _ in 0..500 {
        if !world.log(id, LogOptions::default()).await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{id} wrote nothing");
}

async fn stop_kills_what_does_not_listen(world: World) {
    let output = vec![(LogStream::Stdout, b"up\n".to_vec())];
    let deaf = Behaviour { on_term: None, output, ..Behaviour::endless() };
    let id = world.create("a", "trap '' TERM; echo up; while :; do sleep 1; done", deaf).await;
    world.runtime().start(&id).await.expect("started");
    written(&world, &id).await;
    within(world.runtime().stop(&id, Duration::from_millis(500))).await.expect("stopped");
    let detail = world.inspect(&id).await;
    assert_eq!((detail.container.state, detail.exit_code, detail.oom_killed), (ContainerState::Exited, 137, false));
}

async fn stopping_what_has_ended_is_no_error(world: World) {
    let id = world.create("a", "exit 5", Behaviour::exits(5, Duration::ZERO)).await;
    world.runtime().stop(&id, Duration::ZERO).await.expect("never started");
    assert_eq!(world.state(&id).await, ContainerState::Created);
    world.runtime().start(&id).await.expect("started");
    world.ended(&id).await;
    world.runtime().stop(&id, Duration::ZERO).await.expect("ended");
    assert_eq!(world.inspect(&id).await.exit_code, 5);
}

async fn a_person_pauses_and_goes_on(world: World) {
    let (shell, behaviour) = endless();
    let id = world.create("a", shell, behaviour).await;
    world.runtime().start(&id).await.expect("started");
    let mut events = world.subscribe().await;
    world.human(&["pause", &id]);
    assert_eq!(world.state(&id).await, ContainerState::Paused);
    assert_eq!(world.runtime().list(&world.instance).await.expect("listed")[0].state, ContainerState::Paused);
    world.human(&["unpause", &id]);
    assert_eq!(world.state(&id).await, ContainerState::Running);
    assert!(matches!(next(&mut events).await, RuntimeEvent::Paused(container) if container.id == id));
    assert!(matches!(next(&mut events).await, RuntimeEvent::Unpaused(container) if container.id == id));
}

async fn a_renamed_container_is_still_ours(world: World) {
    let request = world.request("a");
    let id = world.runtime().create(&request).await.expect("created");
    let mut events = world.subscribe().await;
    let new = format!("mine-{}", world.instance);
    world.human(&["rename", &id, &new]);
    assert_eq!(next(&mut events).await, RuntimeEvent::Unclear);
    let listed = world.runtime().list(&world.instance).await.expect("listed");
    assert_eq!((listed[0].key.clone(), listed[0].name.as_str()), (request.key, new.as_str()));
}

async fn what_lives_is_not_removed(world: World) {
    let (shell, behaviour) = endless();
    let id = world.create("a", shell, behaviour).await;
    world.runtime().start(&id).await.expect("started");
    let error = world.runtime().remove(&id).await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    within(world.runtime().stop(&id, Duration::ZERO)).await.expect("stopped");
    world.runtime().remove(&id).await.expect("removed");
    assert_eq!(world.runtime().inspect(&world.instance, &id).await.expect("answered"), None);
}

async fn logs_of_both_streams(world: World) {
    let output = [(LogStream::Stdout, "a\n"), (LogStream::Stderr, "b\n"), (LogStream::Stdout, "c")];
    let behaviour = Behaviour {
        output: output.map(|(stream, text)| (stream, text.as_bytes().to_vec())).to_vec(),
        ..Behaviour::default()
    };
    // The engine reads the two streams apart: only a pause keeps their order.
    let id = world.create("a", "echo a; sleep 0.2; echo b >&2; sleep 0.2; printf c", behaviour).await;
    world.runtime().start(&id).await.expect("started");
    world.ended(&id).await;
    let log = world.log(&id, LogOptions::default()).await;
    assert_eq!(log, output.map(|(stream, text)| (stream, text.to_owned())));
}

async fn the_end_of_a_log(world: World) {
    let behaviour = Behaviour { output: vec![(LogStream::Stdout, b"1\n2\n3\n".to_vec())], ..Behaviour::default() };
    let id = world.create("a", "printf '1\\n2\\n3\\n'", behaviour).await;
    world.runtime().start(&id).await.expect("started");
    world.ended(&id).await;
    let log = world.log(&id, LogOptions { tail: Some(2), ..LogOptions::default() }).await;
    assert_eq!(log, [(LogStream::Stdout, "2\n3\n".to_owned())]);
    assert_eq!(world.log(&id, LogOptions { tail: Some(0), ..LogOptions::default() }).await, []);
}

async fn a_followed_log_ends_with_its_container(world: World) {
    let behaviour = Behaviour {
        output: vec![(LogStream::Stdout, b"begin\nend\n".to_vec())],
        ..Behaviour::exits(0, Duration::from_millis(500))
    };
    let id = world.create("a", "echo begin; sleep 0.5; echo end", behaviour).await;
    world.runtime().start(&id).await.expect("started");
    let follow = LogOptions { follow: true, ..LogOptions::default() };
    let log = world.log(&id, follow).await;
    // Engine 20.10 loses what is written right before the end to a follower, at times.
    assert!(matches!(&log[..], [(LogStream::Stdout, text)] if text.starts_with("begin\n")), "{log:?}");
    world.ended(&id).await;
    let whole = [(LogStream::Stdout, "begin\nend\n".to_owned())];
    assert_eq!(world.log(&id, LogOptions::default()).await, whole);
    assert_eq!(world.log(&id, follow).await, whole, "it ends at once where the container has ended");
}

async fn a_silent_log(world: World) {
    let id = world.create("a", "true", Behaviour::default()).await;
    assert_eq!(world.log(&id, LogOptions::default()).await, []);
    world.runtime().start(&id).await.expect("started");
    world.ended(&id).await;
    assert_eq!(world.log(&id, LogOptions::default()).await, []);
}

async fn events_of_a_life(world: World) {
    let mut events = world.subscribe().await;
    let id = world.create("a", "exit 3", Behaviour::exits(3, Duration::from_millis(10))).await;
    world.runtime().start(&id).await.expect("started");
    let mut states = Vec::new();
    for _ in 0..3 {
        let (RuntimeEvent::Created(container) | RuntimeEvent::Started(container) | RuntimeEvent::Exited(container)) =
            next(&mut events).await
        else {
            panic!("another event, after {states:?}")
        };
        assert_eq!((&container.id, &container.key), (&id, &world.request("a").key));
        assert_eq!((container.name, container.plan.as_str()), (world.request("a").name, "plan"));
        states.push(container.state);
    }
    assert_eq!(states, [ContainerState::Created, ContainerState::Running, ContainerState::Exited]);
    world.ended(&id).await;
    world.runtime().remove(&id).await.expect("removed");
    assert!(matches!(next(&mut events).await, RuntimeEvent::Removed(container) if container.id == id));
}

async fn events_of_images(world: World) {
    let mut events = world.subscribe().await;
    let name = format!("orchestrate-test:{}", world.instance);
    world.human(&["tag", IMAGE, &name]);
    while within(events.next()).await != Some(Ok(RuntimeEvent::ImageAvailable(name.clone()))) {}
    assert!(world.runtime().image(&name).await.expect("answered").is_some());
    if let Engine::Docker(..) = world.engine {
        world.human(&["rmi", &name]);
    }
}

async fn memory_that_ran_out(world: World) {
    if !world.limits_memory().await {
        return;
    }
    let behaviour = Behaviour { oom: true, ..Behaviour::exits(137, Duration::from_millis(10)) };
    // The shell gives way to the one process, so that the container ends with it.
    let id = world.create("a", "exec tail /dev/zero", behaviour).await;
    world.runtime().start(&id).await.expect("started");
    let detail = world.ended(&id).await;
    assert_eq!((detail.exit_code, detail.oom_killed), (137, true));
}
