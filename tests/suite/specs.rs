//! What stands in `specs/` for people and other tools is what the program does.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use orchestrate::spec::fields::Settings;
use orchestrate::spec::{Code, ReadOptions, read_both, schema};
use orchestrate::status::{Status, TaskStatus};

fn specs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("specs")
}

fn read(name: &str) -> String {
    fs::read_to_string(specs().join(name)).unwrap_or_default()
}

fn schema_text() -> String {
    let mut text = serde_json::to_string_pretty(&schema::schema()).expect("plain data");
    text.push('\n');
    text
}

fn codes_text() -> String {
    let mut text = String::from(
        "# Diagnostics\n\nMade from `src/spec/codes.rs`; do not edit. `orchestrate validate --explain E0007` prints one entry. A code \
         never gets a second meaning.\n\n`E`: the file is refused, and nothing of it is acted on. `W`: it is accepted, and probably \
         not what was meant.\n\n| code | fault |\n| --- | --- |\n",
    );
    for code in Code::ALL {
        let _ = writeln!(text, "| [{code}](#{}) | {} |", code.as_str().to_ascii_lowercase(), code.title());
    }
    for code in Code::ALL {
        let _ = write!(text, "\n## {code}\n\n**{}**\n\n{}\n", code.title(), code.explanation());
    }
    text
}

#[test]
fn the_schema_is_that_of_the_types() {
    assert!(read("agent-tasks.schema.json") == schema_text(), "run `cargo test --test suite regenerate -- --ignored`");
}

#[test]
fn the_list_of_codes_is_that_of_the_code() {
    assert!(read("diagnostics.md") == codes_text(), "run `cargo test --test suite regenerate -- --ignored`");
}

#[test]
#[ignore = "writes specs/"]
fn regenerate() {
    fs::write(specs().join("agent-tasks.schema.json"), schema_text()).expect("writable");
    fs::write(specs().join("diagnostics.md"), codes_text()).expect("writable");
}

#[test]
fn the_reference_names_every_field() {
    let reference = read("plan-file.md");
    let properties = schema::schema()["properties"].clone();
    let top = properties.as_object().expect("an object").keys().map(String::as_str);
    let own = ["id", "title", "description", "prompt", "dependencies", "depends_on"];
    for field in top.chain(own).chain(Settings::FIELDS).chain(TaskStatus::FIELDS) {
        assert!(reference.contains(&format!("`{field}`")), "{field}");
    }
    for status in Status::ALL {
        assert!(reference.contains(&format!("`{status}`")), "{status}");
    }
}

/// Every test that a table of cases names in code after its last bar.
#[test]
fn the_tests_that_the_cases_name_exist() {
    let mut code = String::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("src"), root.join("tests")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                code.push_str(&fs::read_to_string(path).expect("UTF-8"));
            }
        }
    }
    let text = read("plan-file.md");
    let (_, cases) = text.split_once("## Cases, and the tests that hold them").expect("the table");
    let rows = cases.lines().filter(|line| line.starts_with("| ")).filter_map(|row| row.rsplit('|').nth(1));
    let names: Vec<&str> = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        assert!(code.contains(&format!("fn {name}(")), "no test is called {name}");
    }
}

#[test]
fn every_example_is_accepted_without_a_word() {
    let mut count = 0;
    for entry in fs::read_dir(specs().join("examples")).expect("the folder is there") {
        let path = entry.expect("readable").path();
        let bytes = fs::read(&path).expect("readable");
        let yaml = path.extension().is_some_and(|e| e == "yaml");
        let (plan, spec) = if yaml { (None, Some(bytes.as_slice())) } else { (Some(bytes.as_slice()), None) };
        let accepted = read_both(plan, spec, ReadOptions::default());
        assert!(accepted.as_ref().is_ok_and(|a| a.warnings.is_empty()), "{}: {accepted:?}", path.display());
        count += 1;
    }
    assert!(count > 0);
}
