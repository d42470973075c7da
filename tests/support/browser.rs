//! A headless Chromium over `chromedriver`'s HTTP API.

use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::engine;
use super::web::{Running, call, free_port, program, wait_for};

/// A browser with one window.
pub struct Browser {
    driver: String,
    session: String,
    // In this order: the driver ends before its folder goes.
    _process: Running,
    _profile: TempDir,
}

impl Browser {
    /// Starts one; `None` after the reason for skipping was told.
    pub fn start() -> Option<Self> {
        let (chromium, driver) = (program("chromium")?, program("chromedriver")?);
        let profile = tempfile::tempdir().expect("temp dir");
        let port = free_port();
        let process = Command::new(driver)
            .arg(format!("--port={port}"))
            .env("HOME", profile.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let process = Running(process);
        let driver = format!("127.0.0.1:{port}");
        wait_for("chromedriver", || call(&driver, "GET", "/status", None).ok().filter(|s| s["value"]["ready"] == true));
        let mut arguments: Vec<String> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
        ]
        .map(str::to_owned)
        .into();
        arguments.push(format!("--user-data-dir={}", profile.path().join("profile").display()));
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments, "binary": chromium },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let started = call(&driver, "POST", "/session", Some(&capabilities)).expect("answers");
        let session = started["value"]["sessionId"].as_str();
        let session = session.unwrap_or_else(|| panic!("no session: {started}")).to_owned();
        Some(Self { driver, session, _process: process, _profile: profile })
    }

    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = call(&self.driver, method, &format!("/session/{}{path}", self.session), body).expect("answers");
        assert!(answer["value"]["error"].is_null(), "{path}: {answer:#}");
        answer["value"].clone()
    }

    /// Loads a page.
    #[track_caller]
    pub fn open(&self, url: &str) {
        self.ask("POST", "/url", Some(&json!({ "url": url })));
    }

    /// Runs a script's body and gives what it returns.
    #[track_caller]
    pub fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", Some(&json!({ "script": script, "args": [] })))
    }

    /// Waits until a script's body returns true.
    #[track_caller]
    pub fn wait(&self, script: &str) {
        wait_for(script, || (self.run(script) == true).then_some(()));
    }

    /// One of the browser's own commands.
    #[track_caller]
    pub fn command(&self, name: &str, parameters: &Value) -> Value {
        self.ask("POST", "/goog/cdp/execute", Some(&json!({ "cmd": name, "params": parameters })))
    }

    /// A window of this size, as on a desktop or on a phone.
    pub fn resize(&self, width: u32, height: u32, is_phone: bool) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone });
        self.command("Emulation.setDeviceMetricsOverride", &size);
    }

    /// What the person likes.
    pub fn prefer(&self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.command("Emulation.setEmulatedMedia", &features);
    }

    /// What the console says since the last call, without mere notes.
    #[track_caller]
    pub fn complaints(&self) -> Vec<String> {
        let log = self.ask("POST", "/se/log", Some(&json!({ "type": "browser" })));
        let entries = log.as_array().cloned().unwrap_or_default();
        let bad = entries.iter().filter(|entry| entry["level"] == "SEVERE" || entry["level"] == "WARNING");
        bad.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Keeps a picture for people to look at, where `ORCHESTRATE_TEST_SCREENSHOTS` names a folder.
    pub fn picture(&self, name: &str) {
        let Some(folder) = engine::variable("ORCHESTRATE_TEST_SCREENSHOTS") else { return };
        let picture = self.ask("GET", "/screenshot", None);
        let bytes =
            base64::engine::general_purpose::STANDARD.decode(picture.as_str().expect("base64")).expect("base64");
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), bytes).expect("writes");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser is not the driver's child in every version; it ends with its session.
        drop(call(&self.driver, "DELETE", &format!("/session/{}", self.session), None));
    }
}
