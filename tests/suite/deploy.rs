//! The images in `deploy/`: what every one of them must and must not do.

use std::fs;
use std::path::{Path, PathBuf};

use orchestrate::spec::agents::{BUILT_IN, built_in};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/agents")
}

/// A Dockerfile's instructions: continued lines joined, comments left out.
fn instructions(text: &str) -> Vec<(String, String)> {
    let body: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let joined = body.join("\n").replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            (word.to_ascii_uppercase(), rest.split_whitespace().collect::<Vec<_>>().join(" "))
        })
        .collect()
}

/// What is wrong with a Dockerfile.
fn faults(text: &str) -> Vec<String> {
    let all = instructions(text);
    let mut faults = Vec::new();
    let mut fault = |what: &str, of: &str| faults.push(format!("{what}: {of}"));
    for (word, rest) in &all {
        let lower = rest.to_ascii_lowercase();
        match word.as_str() {
            "FROM" => {
                let tag = rest.rsplit('/').next().and_then(|name| name.split_once(':')).map(|(_, tag)| tag);
                if tag.is_none_or(|tag| tag.is_empty() || tag == "latest") {
                    fault("no tag", rest);
                }
            }
            "RUN" => {
                let fetches = ["curl", "wget"].iter().any(|tool| lower.contains(tool));
                if fetches && ["| sh", "| bash", "|sh", "|bash"].iter().any(|pipe| lower.contains(pipe)) {
                    fault("runs what it fetches", rest);
                }
                if lower.contains("apt-get install") && !lower.contains("rm -rf /var/lib/apt/lists") {
                    fault("keeps the package lists", rest);
                }
                if lower.contains("npm install") && !rest.contains('@') {
                    fault("no version", rest);
                }
            }
            "ENV" | "ARG" if ["token", "secret", "password", "api_key", "apikey"].iter().any(|s| lower.contains(s)) => {
                fault("a secret", rest);
            }
            "ADD" | "ENTRYPOINT" => fault("not wanted here", word),
            "ARG" if rest.ends_with("=latest") || !rest.contains('=') => fault("no version", rest),
            "FROM_" => {}
            _ => {}
        }
    }
    let user = all.iter().rev().find(|(word, _)| word == "USER").map(|(_, user)| user.as_str());
    if user.is_none_or(|user| user.split(':').any(|id| id.parse::<u32>().is_ok_and(|id| id == 0) || id == "root")) {
        fault("runs as root", user.unwrap_or("no USER"));
    }
    // A name would have to be looked up in the image before anything can be given to it.
    if user.is_some_and(|user| !user.split(':').all(|id| id.parse::<u32>().is_ok())) {
        fault("a user without a number", user.unwrap_or_default());
    }
    faults
}

#[test]
fn every_agent_has_an_image_without_faults() {
    for agent in BUILT_IN {
        let path = folder().join(agent).join("Dockerfile");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(faults(&text), Vec::<String>::new(), "{agent}");
        assert!(text.contains(&format!("docker build -t orchestrate/{agent}:latest deploy/agents/{agent}")), "{agent}");
        let image = built_in(agent).expect("listed").image;
        assert!(image.is_none_or(|image| image == format!("orchestrate/{agent}:latest")));
    }
}

#[test]
fn faults_are_found() {
    let bad = "FROM node\nARG VERSION=latest\nENV API_KEY=x\nRUN curl -s https://x.example/install \\\n  | bash\nADD a b\nUSER root\n";
    let found = faults(bad).join("; ");
    for what in
        ["no tag", "no version", "a secret", "runs what it fetches", "not wanted", "as root", "without a number"]
    {
        assert!(found.contains(what), "{what} is not in {found}");
    }
    assert!(faults("FROM a:1\n").join("").contains("as root"));
    assert!(faults("FROM r.example:5000/a\nUSER 1\n").join("").contains("no tag"));
}

#[test]
fn the_reference_tells_of_every_agent() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("specs/agents.md")).expect("there");
    for agent in BUILT_IN {
        let profile = built_in(agent).expect("listed");
        assert!(text.contains(&format!("`{agent}`")), "{agent}");
        for word in profile.command.iter().flatten() {
            assert!(text.contains(word.as_str()), "{agent}: {word}");
        }
        for secret in profile.secrets.iter().flatten() {
            assert!(text.contains(&format!("`{}`", secret.env)), "{agent}: {}", secret.env);
        }
    }
}
