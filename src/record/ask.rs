//! Sets what a person asks for by a command in the text of a plan file, as an editor would. Pure.

use std::collections::{HashMap, HashSet};

use super::edit::{Field, Output, Scalar, edit_object};
use super::layout::{Layout, indent_before};
use super::splice::{SpliceError, TASKS, Walked, add_blocks, tasks_of, unique};
use crate::spec::TaskId;
use crate::spec::tree::{Member, Tree};
use crate::status::{Status, TaskStatus};

/// What a person asks for by a command instead of an editor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// The `status` word of a task, and the `attempt` that it is meant for: a block of another attempt would be taken for
    /// a rollback.
    pub tasks: HashMap<TaskId, (Status, Option<u32>)>,
    /// Those of them that the YAML spec describes: they get a block where they have none.
    pub described: HashSet<TaskId>,
    /// `suspend` of the plan.
    pub suspend: Option<bool>,
}

/// Sets what is asked and nothing else; `None` where the text says so already. Tasks that are neither in it nor in the YAML
/// spec are passed over.
///
/// # Errors
/// Where an ambiguous file would make a guess of it; nothing is to be written then.
pub(super) fn ask(newest: &Tree<'_>, asked: &Asked) -> Result<Option<String>, SpliceError> {
    let top: Vec<Member<'_>> = newest.root().members().collect();
    let tasks = unique(&top, TASKS)?.ok_or(SpliceError::NoTasks)?;
    let layout = Layout::of(newest, &top);
    let mut out = Output::of(newest.text());
    let suspend = [Field { name: "suspend", value: asked.suspend.map(Scalar::Bool) }];
    let top_fields = if asked.suspend.is_some() { &suspend[..] } else { &[] };
    edit_object(&mut out, newest.root(), &top, top_fields, &layout, None, |out, member| {
        if member.key != TASKS {
            return Ok(());
        }
        let mut ids = HashSet::new();
        let mut walked = Walked::default();
        let mut list = tasks_of(tasks).peekable();
        while let Some(task) = list.next() {
            walked.keep(newest.text(), &task, list.peek());
            let members: Vec<Member<'_>> = task.value.members().collect();
            let Some(id) = task.id(&members)? else { continue };
            let Some((status, attempt)) = asked.tasks.get(&*id) else { continue };
            if !ids.insert(id.clone()) {
                return Err(SpliceError::DuplicateId { id: id.into_owned() });
            }
            let fields = [
                Field { name: "status", value: Some(Scalar::Text(status.as_str())) },
                Field { name: "attempt", value: attempt.map(|attempt| Scalar::Integer(attempt.into())) },
            ];
            let indent = indent_before(newest.text(), task.start);
            edit_object(out, task.value, &members, &fields, &layout, indent, |_, _| Ok(()))?;
        }
        let missing = asked.described.iter().filter(|id| !ids.contains(id.as_str()));
        let mut missing: Vec<(&TaskId, TaskStatus)> = missing
            .filter_map(|id| {
                let &(status, attempt) = asked.tasks.get(id)?;
                Some((id, TaskStatus { attempt, ..TaskStatus::new(status) }))
            })
            .collect();
        missing.sort_by_key(|(id, _)| *id);
        if !missing.is_empty() {
            let missing: Vec<_> = missing.iter().map(|(id, status)| (*id, status)).collect();
            add_blocks(out, member, &walked, &layout, &missing);
        }
        Ok(())
    })?;
    Ok(out.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::json;

    fn asked(text: &str, asked: &Asked) -> Result<Option<String>, SpliceError> {
        ask(&json::parse(text).expect("JSON"), asked)
    }

    fn task(id: &str, status: Status, attempt: Option<u32>) -> Asked {
        let id = TaskId::new(id).expect("valid");
        Asked { tasks: HashMap::from([(id, (status, attempt))]), ..Asked::default() }
    }

    #[test]
    fn a_word_and_its_attempt_are_set_and_every_other_byte_stays() {
        let text = "{\"x\": 1.0,\n \"tasks\": [\n  {\"id\": \"a\", \"status\": \"failed\", \"attempt\": 1, \"exit_code\": 3},\n  {\"id\": \"b\"}\n ]}\n";
        let written = asked(text, &task("a", Status::Pending, Some(2))).expect("unambiguous").expect("changed");
        assert_eq!(written, text.replace("failed", "pending").replace("\"attempt\": 1", "\"attempt\": 2"));
        let written = asked(text, &task("b", Status::Cancelled, None)).expect("unambiguous").expect("changed");
        assert_eq!(written, text.replace("{\"id\": \"b\"}", "{\"id\": \"b\", \"status\": \"cancelled\"}"));
    }

    #[test]
    fn suspend_is_set_wherever_it_stands_and_what_is_so_already_is_not_written() {
        let suspend = |suspend| Asked { suspend: Some(suspend), ..Asked::default() };
        let text = "{\n  \"suspend\": false,\n  \"tasks\": []\n}\n";
        let written = asked(text, &suspend(true)).expect("unambiguous").expect("changed");
        assert_eq!(written, text.replace("false", "true"));
        assert_eq!(asked(text, &suspend(false)), Ok(None));
        let written = asked("{\n  \"tasks\": []\n}\n", &suspend(true)).expect("unambiguous").expect("changed");
        assert_eq!(written, "{\n  \"tasks\": [],\n  \"suspend\": true\n}\n");
        assert_eq!(asked(text, &Asked::default()), Ok(None));
    }

    #[test]
    fn a_task_of_the_yaml_spec_gets_a_block_and_one_of_nobody_does_not() {
        let of = |described: &[&str]| Asked {
            described: described.iter().map(|id| TaskId::new(id).expect("valid")).collect(),
            ..task("b", Status::Cancelled, None)
        };
        let text = "{\"tasks\": [\n  {\"id\": \"a\"}\n]}\n";
        assert_eq!(asked(text, &of(&[])), Ok(None));
        let written = asked(text, &of(&["a", "b"])).expect("unambiguous").expect("changed");
        assert_eq!(written, "{\"tasks\": [\n  {\"id\": \"a\"},\n  {\"id\": \"b\", \"status\": \"cancelled\"}\n]}\n");
        assert_eq!(asked(&written, &of(&["b"])), Ok(None));
    }

    #[test]
    fn an_ambiguous_file_is_not_written() {
        let twice = "{\"tasks\": [{\"id\": \"a\"}, {\"id\": \"a\"}]}";
        let error = asked(twice, &task("a", Status::Pending, None)).expect_err("ambiguous");
        assert_eq!(error, SpliceError::DuplicateId { id: "a".to_owned() });
        let double = "{\"tasks\": {\"a\": {\"status\": \"failed\", \"status\": \"failed\"}}}";
        assert!(asked(double, &task("a", Status::Pending, None)).is_err());
    }
}
