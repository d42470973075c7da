//! The JSON Schema of a plan file, made from the types that read it, for editors and other tools.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::fields::Settings;
use super::id::MAX_LEN;
use super::model::{RuntimeKind, SecretSpec};
use crate::status::TaskStatus;

/// A duration as people write it.
pub(crate) struct DurationText;

impl JsonSchema for DurationText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "examples": ["90s", "30m", "1h30m", "PT1H30M"]})
    }
}

/// A size as people write it.
pub(crate) struct SizeText;

impl JsonSchema for SizeText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "integer"], "minimum": 1, "examples": ["512m", "4GiB"]})
    }
}

pub(super) fn example_command() -> [&'static str; 2] {
    ["make", "test"]
}

pub(super) fn example_env() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([("CI", "1")])
}

/// The fields that only a task has.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "read through its schema")]
struct TaskText {
    /// One line for people.
    #[schemars(example = &"Add login")]
    title: Option<String>,
    /// Longer text for people; the prompt where there is none.
    description: Option<String>,
    /// What the agent is told.
    #[schemars(example = &"Implement login with sessions. Add tests.")]
    prompt: Option<String>,
    /// Ids of tasks that must be completed first. Their work is merged into the base of this one.
    dependencies: Option<Vec<String>>,
    /// Another name of `dependencies`.
    depends_on: Option<Vec<String>>,
}

/// The fields at the top of a file, but the tasks.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "read through its schema")]
struct PlanText {
    /// Where this schema is, for editors.
    #[schemars(rename = "$schema")]
    schema: Option<String>,
    /// Version of the format.
    #[schemars(range(min = 1, max = 1), extend("default" = 1))]
    version: Option<u32>,
    /// Name for people and metrics. Absent: the repository folder's name.
    project: Option<String>,
    /// How many attempts may be live at once.
    #[schemars(range(min = 1), extend("default" = 3))]
    max_concurrent: Option<u32>,
    /// Launch nothing new; what runs goes on.
    #[schemars(extend("default" = false))]
    suspend: Option<bool>,
    /// Where attempts run: `docker`, containers of a Docker-compatible engine, or `process`, local child processes.
    #[schemars(extend("default" = "docker"))]
    runtime: Option<RuntimeKind>,
    /// Named profiles for `agent`. One that is called like a built-in profile, or names one under `agent`, lies over it.
    agents: Option<BTreeMap<String, Settings>>,
    /// Settings of every task that says nothing else.
    defaults: Option<Settings>,
    /// Secrets of every task.
    secrets: Option<Vec<SecretSpec>>,
    /// Written by orchestrate: identifies the plan.
    plan_id: Option<String>,
}

/// Drops what only the types of this program care about, and opens objects to fields of one's own.
#[derive(Debug, Clone)]
struct Tidy;

impl Transform for Tidy {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let numeric = |f: &Value| f.as_str().is_some_and(|f| f.contains("int") || f == "double");
        if schema.get("format").is_some_and(numeric) {
            schema.remove("format");
        }
        if schema.get("properties").is_some() {
            schema.insert("additionalProperties".into(), json!(false));
            schema.insert("patternProperties".into(), json!({OWN: {}}));
        }
    }
}

/// Keys that are people's own.
const OWN: &str = "^(x-|_)";

/// The schema, draft 7, which editors know best.
pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft07().with_transform(Tidy).into_generator();
    let mut root = generator.root_schema_for::<PlanText>().to_value();
    let settings = properties_of::<Settings>();
    let task = [properties_of::<TaskText>(), settings, properties_of::<TaskStatus>()];
    let id = json!({
        "type": "string",
        "description": "Names the task, its branch `agent/<id>`, its worktree and its containers. Unique without regard to case.",
        "pattern": format!("^[A-Za-z0-9][A-Za-z0-9._-]{{0,{}}}$", MAX_LEN - 1),
        "examples": ["add-login"],
    });
    let task = |required: &[&str]| {
        let mut properties = Map::new();
        properties.insert("id".to_owned(), id.clone());
        for more in &task {
            properties.extend(more.clone());
        }
        let mut task = json!({
            "type": "object",
            "properties": properties,
            "patternProperties": {OWN: {}},
            "additionalProperties": false,
        });
        if !required.is_empty() {
            task["required"] = json!(required);
        }
        task
    };
    let definitions = &mut root["definitions"];
    for ty in [properties_and_definitions::<Settings>(), properties_and_definitions::<TaskStatus>()] {
        for (name, definition) in ty.get("definitions").and_then(Value::as_object).into_iter().flatten() {
            definitions[name] = definition.clone();
        }
    }
    definitions["ListedTask"] = task(&["id"]);
    definitions["KeyedTask"] = task(&[]);
    root["properties"]["tasks"] = json!({
        "description": "The tasks: a list of objects with an `id`, or an object keyed by id.",
        "anyOf": [
            {"type": "array", "items": {"$ref": "#/definitions/ListedTask"}},
            {"type": "object", "additionalProperties": {"$ref": "#/definitions/KeyedTask"}},
        ],
    });
    root["title"] = json!("Plan file of orchestrate");
    root["description"] =
        json!("`.agent-tasks.json`, and `agent-tasks.yaml` beside it: tasks for coding agents, and their status.");
    root["required"] = json!(["tasks"]);
    root
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn properties_and_definitions<T: JsonSchema>() -> Map<String, Value> {
    object(SchemaSettings::draft07().with_transform(Tidy).into_generator().root_schema_for::<T>().to_value())
}

fn properties_of<T: JsonSchema>() -> Map<String, Value> {
    properties_and_definitions::<T>().remove("properties").map(object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::fields::{PLAN_FIELDS, TASK_FIELDS};
    use super::super::read::{ReadOptions, read};
    use super::*;

    fn names(value: &Value) -> Vec<&str> {
        let mut names: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_schema_and_the_reader_know_the_same_fields() {
        let schema = schema();
        let mut plan = PLAN_FIELDS.to_vec();
        plan.sort_unstable();
        assert_eq!(names(&schema["properties"]), plan);
        let mut task: Vec<&str> = TASK_FIELDS.into_iter().chain(Settings::FIELDS).chain(TaskStatus::FIELDS).collect();
        task.sort_unstable();
        for kind in ["ListedTask", "KeyedTask"] {
            assert_eq!(names(&schema["definitions"][kind]["properties"]), task);
        }
        let mut settings = Settings::FIELDS.to_vec();
        settings.sort_unstable();
        assert_eq!(names(&schema["definitions"]["Settings"]["properties"]), settings);
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn walk(value: &Value, root: &Value) {
            if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
                let pointer = reference.strip_prefix('#').expect("a local one");
                assert!(root.pointer(pointer).is_some(), "{reference}");
            }
            match value {
                Value::Object(map) => map.values().for_each(|v| walk(v, root)),
                Value::Array(list) => list.iter().for_each(|v| walk(v, root)),
                _ => {}
            }
        }
        let schema = schema();
        walk(&schema, &schema);
    }

    #[test]
    fn every_field_is_read() {
        // `[[7]]` is wrong for all of them, so a field that accepts it is a field that nobody reads.
        let task_only = ["title", "description", "prompt", "dependencies", "depends_on"];
        for name in Settings::FIELDS.into_iter().chain(task_only) {
            let text = format!("{{\"tasks\": [{{\"id\": \"a\", \"{name}\": [[7]]}}]}}");
            let refused = read(text.as_bytes(), ReadOptions::default()).expect_err(name);
            assert!(refused.diagnostics.iter().all(|d| d.code.as_str() != "W0001"), "{name}");
        }
        for name in PLAN_FIELDS.into_iter().filter(|n| *n != "$schema") {
            let text = format!("{{\"{name}\": [[7]]}}");
            let refused = read(text.as_bytes(), ReadOptions::default()).expect_err(name);
            assert!(refused.diagnostics.iter().any(|d| d.code.as_str() == "E0011"), "{name}: {refused:?}");
        }
    }
}
