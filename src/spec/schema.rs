//! The JSON Schema of a plan file, made from the types that read it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

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
