//! A person's request as an edit of the file: a status word, or `suspend`. Pure.

use std::collections::{HashMap, HashSet};

use super::edit::{Field, Output, Scalar, edit_object};
use super::layout::{Layout, indent_before};
use super::splice::{SpliceError, TASKS, tasks_of, unique};
use crate::spec::TaskId;
use crate::spec::tree::{Member, Tree};
use crate::status::Status;

/// What a person asks for by a command instead of an editor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// The `status` word of a task, and the `attempt` that it is meant for: a block of another attempt would be taken for
    /// a rollback.
    pub tasks: HashMap<TaskId, (Status, Option<u32>)>,
    /// `suspend` of the plan.
    pub suspend: Option<bool>,
}

/// Sets what a person asks for in the text of `newest`, and nothing else: `None` where it says so already. Tasks that are
/// not in the file are passed over.
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
        for task in tasks_of(tasks) {
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
        Ok(())
    })?;
    Ok(out.finish())
}
