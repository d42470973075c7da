//! Images are fetched from a real registry (Debian's `docker-registry`), which listens inside the engine's own network.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::support::engine;
use crate::support::project::{Project, committing};

struct Registry {
    process: Child,
    host: String,
    folder: PathBuf,
    _temp: tempfile::TempDir,
}

impl Registry {
    /// Starts one on a port of the engine's loopback, which an engine takes without encryption. `None` after the reason
    /// was told.
    fn start(project: &Project, port: u16, users: Option<&str>) -> Option<Self> {
        if engine::variable("ORCHESTRATE_TEST_ENGINE_HOST").is_some() {
            engine::skip("an engine was given, whose network is not ours");
            return None;
        }
        let temp = tempfile::tempdir().expect("temp dir");
        let folder = temp.path().to_owned();
        let mut config = format!(
            "version: 0.1\nlog: {{level: info, accesslog: {{disabled: false}}}}\nstorage: {{filesystem: \
             {{rootdirectory: {}}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n",
            folder.join("data").display()
        );
        if let Some(users) = users {
            fs::write(folder.join("users"), users).expect("written");
            writeln!(config, "auth: {{htpasswd: {{realm: r, path: {}}}}}", folder.join("users").display())
                .expect("a text");
        }
        fs::write(folder.join("config.yml"), config).expect("written");
        let socket = PathBuf::from(project.host().trim_start_matches("unix://"));
        let pid = fs::read_to_string(socket.with_file_name("pid")).expect("the engine's pid");
        let log = fs::File::create(folder.join("log")).expect("made");
        let process = Command::new("nsenter")
            .args(["--target", pid.trim(), "--net", "docker-registry", "serve"])
            .arg(folder.join("config.yml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("cloned"))
            .stderr(log)
            .spawn()
            .expect("nsenter runs");
        let mut registry = Self { process, host: format!("127.0.0.1:{port}"), folder, _temp: temp };
        let mut looks = 0;
        while !registry.log().contains("listening on") {
            if let Some(status) = registry.process.try_wait().expect("waits") {
                // Another failure than its absence is one of the test.
                assert_eq!(status.code(), Some(127), "{}", registry.log());
                let is_required = engine::variable("ORCHESTRATE_TEST_DOCKER").as_deref() == Some("require");
                assert!(!is_required, "docker-registry is not on this machine; `tests/engine/tools` installs it");
                engine::skip("no docker-registry on this machine (Debian's package of that name)");
                return None;
            }
            looks += 1;
            assert!(looks < 1_200, "the registry does not listen: {}", registry.log());
            #[expect(clippy::disallowed_methods, reason = "a real process takes real time")]
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(registry)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Puts the tests' image there, and nowhere else; gives its name and digest.
    fn publish(&self, project: &Project, name: &str) -> (String, String) {
        let image = format!("{}/{name}", self.host);
        let _ran = project.docker(&["tag", engine::IMAGE, &image]).expect(0);
        let pushed = project.docker(&["push", &image]).expect(0);
        let digest = pushed.stdout.split("digest: ").nth(1).and_then(|rest| rest.split(' ').next());
        let digest = digest.expect("docker tells the digest").to_owned();
        let _ran = project.docker(&["rmi", &image]).expect(0);
        (image, digest)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn message(project: &Project, task: &str) -> String {
    project.task(task)["message"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_missing_image_is_pulled_once_for_all_its_tasks_and_its_digest_is_kept() {
    let Some(project) = Project::on_engine() else { return };
    let Some(registry) = Registry::start(&project, 5101, None) else { return };
    let (image, digest) = registry.publish(&project, "team/agent:1");
    project.plan(json!([
        { "id": "a", "image": image, "command": committing("") },
        { "id": "b", "image": image, "command": committing("") },
        { "id": "c", "command": committing("") },
    ]));
    let ran = project.run(&["run", "--until-done"]).expect(0);
    assert_eq!(ran.stderr.matches(&format!("pulling image {image}\n")).count(), 1, "{}", ran.stderr);
    assert_eq!(ran.stderr.matches(&format!("pulled image {image} in")).count(), 1, "{}", ran.stderr);
    let status: serde_json::Value =
        serde_json::from_str(&project.run(&["status", "-o", "json"]).expect(0).stdout).expect("JSON");
    let tasks = status["tasks"].as_array().expect("tasks");
    let of = |id: &str| tasks.iter().find(|task| task["id"] == id).expect("there")["image_digest"].clone();
    assert_eq!((of("a"), of("b")), (json!(digest), json!(digest)));
    // An image that was built here is known by what the engine calls it.
    let built = project.docker(&["image", "inspect", "-f", "{{.Id}}", engine::IMAGE]).expect(0);
    assert_eq!(of("c"), json!(built.stdout.trim()));
    assert!(project.run(&["describe", "a"]).expect(0).stdout.contains(&digest));
    let _ran = project.docker(&["rmi", "-f", &image]);
}

#[test]
fn always_asks_the_registry_and_takes_what_is_new_and_never_does_not() {
    let Some(project) = Project::on_engine() else { return };
    let Some(registry) = Registry::start(&project, 5102, None) else { return };
    let (image, old) = registry.publish(&project, "team/agent:1");
    let _ran = project.docker(&["pull", &image]).expect(0);
    // Somebody publishes another under the same tag, from elsewhere.
    let _ran = project.docker(&["tag", engine::USER_IMAGE, &format!("{image}-new")]).expect(0);
    let _ran = project.docker(&["tag", engine::USER_IMAGE, &image]).expect(0);
    let pushed = project.docker(&["push", &image]).expect(0).stdout;
    assert!(!pushed.contains(&old), "it is another image");
    let _ran = project.docker(&["rmi", &image, &format!("{image}-new")]).expect(0);
    let _ran = project.docker(&["pull", &format!("{}@{old}", image.trim_end_matches(":1"))]).expect(0);
    let _ran = project.docker(&["tag", engine::IMAGE, &image]).expect(0);
    project.plan(json!([
        { "id": "stays", "image": image, "command": committing("") },
        { "id": "fresh", "image": image, "pull": "always", "dependencies": ["stays"], "command": committing("") },
        { "id": "never", "image": format!("{image}-absent"), "pull": "never", "command": committing("") },
    ]));
    let asked = || registry.log().matches("/manifests/1").count();
    let before = asked();
    let ran = project.run(&["run", "--until-done"]).expect(1);
    assert_eq!(ran.stderr.matches("pulling image").count(), 1, "{}", ran.stderr);
    assert!(asked() > before);
    assert_eq!(project.stands("fresh"), "completed/Succeeded");
    let id = |name: &str| project.docker(&["image", "inspect", "-f", "{{.Id}}", name]).expect(0).stdout;
    assert_eq!(id(&image), id(engine::USER_IMAGE), "the tag stands for the newer image");
    assert_eq!(project.stands("never"), "blocked/ImageMissing");
    assert!(message(&project, "never").contains("docker pull"), "{}", message(&project, "never"));
    assert!(!registry.log().contains("1-absent"), "its registry was not asked");
    let _ran = project.docker(&["rmi", "-f", &image]);
}

#[test]
fn what_a_registry_refuses_is_told_with_what_to_do_and_an_account_is_found_where_docker_keeps_it() {
    let Some(project) = Project::on_engine() else { return };
    // me:pass
    let users = "me:$2y$05$abcdefghijklmnopqrstuuZFBUbfXoM8LFiPx8LYlO/sXZB/Cwk3K\n";
    let Some(registry) = Registry::start(&project, 5103, Some(users)) else { return };
    let config = tempfile::tempdir().expect("temp dir");
    let folder = config.path().to_str().expect("UTF-8");
    let account = json!({ "auths": { &registry.host: { "auth": "bWU6cGFzcw==" } } });
    fs::write(config.path().join("config.json"), account.to_string()).expect("written");
    let image = format!("{}/team/private:1", registry.host);
    let _ran = project.docker(&["tag", engine::IMAGE, &image]).expect(0);
    let _ran = project.docker(&["--config", folder, "push", &image]).expect(0);
    let _ran = project.docker(&["rmi", &image]).expect(0);
    project.plan(json!([
        { "id": "private", "image": image, "command": committing("") },
        { "id": "unknown", "image": format!("{image}-unknown"), "command": committing("") },
        { "id": "nowhere", "image": "127.0.0.1:5199/x:1", "command": committing("") },
        { "id": "built-in", "image": "orchestrate/claude:none", "command": committing("") },
        { "id": "other", "command": committing("") },
    ]));
    let ran = project.run(&["run", "--until-done"]).expect(1);
    for task in ["private", "unknown", "nowhere", "built-in"] {
        assert_eq!(project.stands(task), "blocked/ImageMissing", "{task}");
    }
    assert_eq!(project.stands("other"), "completed/Succeeded");
    assert!(message(&project, "private").contains("`docker login`"), "{}", message(&project, "private"));
    let nowhere = message(&project, "nowhere");
    assert!(nowhere.contains("cannot be reached") && nowhere.contains("connection refused"), "{nowhere}");
    assert!(nowhere.contains("docker build") && nowhere.contains("docker pull"), "{nowhere}");
    // Whoever takes that name in a public registry would be handed a token.
    assert!(!ran.stderr.contains("pulling image orchestrate/"), "{}", ran.stderr);
    let with_account = || {
        let mut command = project.command(&["retry", "private", "unknown"]);
        assert!(command.env("DOCKER_CONFIG", folder).status().expect("runs").success());
        let mut command = project.command(&["run", "--until-done"]);
        command.env("DOCKER_CONFIG", folder).output().expect("runs")
    };
    let output = with_account();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(project.stands("private"), "completed/Succeeded", "{told}");
    assert_eq!(project.stands("unknown"), "blocked/ImageMissing");
    assert!(message(&project, "unknown").contains("does not have it"), "{}", message(&project, "unknown"));
    assert!(!told.contains("bWU6cGFzcw") && !told.contains("me:pass"), "no account is shown");
    let _ran = project.docker(&["rmi", "-f", &image]);
}
