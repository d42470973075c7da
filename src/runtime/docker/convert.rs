//! Reads the engine's answers and events. Pure.

use std::collections::HashMap;

use bollard::models::{
    ContainerInspectResponse, ContainerStateStatusEnum, ContainerSummary, ContainerSummaryStateEnum, EventMessage,
    EventMessageTypeEnum,
};
use jiff::Timestamp;

use crate::observe::names::{self, label};
use crate::observe::{ContainerDetail, ContainerState, InstanceId, ObservedContainer};
use crate::runtime::RuntimeEvent;

/// Something that every answer has is not in this one, which is then no proof of anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the engine's answer lacks {0}")]
pub(super) struct Incomplete(&'static str);

/// A line of the list; `None` for a container whose labels name no attempt of this instance.
pub(super) fn listed(
    instance: &InstanceId,
    summary: &ContainerSummary,
) -> Result<Option<ObservedContainer>, Incomplete> {
    let state = match summary.state.ok_or(Incomplete("a state"))? {
        ContainerSummaryStateEnum::CREATED => ContainerState::Created,
        // One that is being restarted or stopped has or may have living processes.
        ContainerSummaryStateEnum::RUNNING
        | ContainerSummaryStateEnum::RESTARTING
        | ContainerSummaryStateEnum::STOPPING => ContainerState::Running,
        ContainerSummaryStateEnum::PAUSED => ContainerState::Paused,
        ContainerSummaryStateEnum::EXITED => ContainerState::Exited,
        ContainerSummaryStateEnum::REMOVING | ContainerSummaryStateEnum::DEAD => ContainerState::Dead,
        ContainerSummaryStateEnum::EMPTY => return Err(Incomplete("a state")),
    };
    let id = summary.id.as_deref().filter(|id| !id.is_empty()).ok_or(Incomplete("an id"))?;
    // Links give a container further names, with a path.
    let name = summary
        .names
        .iter()
        .flatten()
        .map(|name| name.strip_prefix('/').unwrap_or(name))
        .find(|name| !name.contains('/'))
        .unwrap_or_default();
    Ok(observed(instance, id, name, summary.labels.as_ref(), state))
}

/// What an inspection found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Inspected {
    Ours(ContainerDetail),
    NotOurs,
}

pub(super) fn inspected(instance: &InstanceId, answer: &ContainerInspectResponse) -> Result<Inspected, Incomplete> {
    let state = answer.state.as_ref().ok_or(Incomplete("a state"))?;
    let status = match state.status.ok_or(Incomplete("a status"))? {
        ContainerStateStatusEnum::CREATED => ContainerState::Created,
        ContainerStateStatusEnum::RUNNING
        | ContainerStateStatusEnum::RESTARTING
        | ContainerStateStatusEnum::STOPPING => ContainerState::Running,
        ContainerStateStatusEnum::PAUSED => ContainerState::Paused,
        ContainerStateStatusEnum::EXITED => ContainerState::Exited,
        ContainerStateStatusEnum::REMOVING | ContainerStateStatusEnum::DEAD => ContainerState::Dead,
        ContainerStateStatusEnum::EMPTY => return Err(Incomplete("a status")),
    };
    let id = answer.id.as_deref().filter(|id| !id.is_empty()).ok_or(Incomplete("an id"))?;
    let name = answer.name.as_deref().unwrap_or_default();
    let name = name.strip_prefix('/').unwrap_or(name);
    let labels = answer.config.as_ref().and_then(|config| config.labels.as_ref());
    let Some(container) = observed(instance, id, name, labels, status) else { return Ok(Inspected::NotOurs) };
    Ok(Inspected::Ours(ContainerDetail {
        container,
        exit_code: state.exit_code.ok_or(Incomplete("an exit code"))?,
        error: state.error.clone().unwrap_or_default(),
        oom_killed: state.oom_killed.unwrap_or(false),
        // An engine does not say so; see `plan::interruption`.
        interrupted: false,
        started_at: state.started_at.as_deref().and_then(moment),
        finished_at: state.finished_at.as_deref().and_then(moment),
    }))
}

fn observed(
    instance: &InstanceId,
    id: &str,
    name: &str,
    labels: Option<&HashMap<String, String>>,
    state: ContainerState,
) -> Option<ObservedContainer> {
    let get = |key: &str| labels?.get(key).map(String::as_str);
    Some(ObservedContainer {
        id: id.to_owned(),
        name: name.to_owned(),
        key: names::attempt_of(instance, get)?,
        plan: get(label::PLAN).unwrap_or_default().to_owned(),
        role: names::role_of(get),
        state,
    })
}

/// The engine writes the year 1 for "never".
fn moment(text: &str) -> Option<Timestamp> {
    let at: Timestamp = text.parse().ok()?;
    (at > Timestamp::UNIX_EPOCH).then_some(at)
}

/// Actions of containers and images that [`event`] reads; the engine is asked for no others, since health checks and
/// exec sessions of other containers make far more events than all containers' lives.
pub(super) const ACTIONS: &[&str] = &[
    "create", "start", "restart", "die", "died", "destroy", "remove", "pause", "unpause", "rename", "pull", "import",
    "load", "tag",
];

/// What an event means; `None`: nothing to us.
pub(super) fn event(instance: &InstanceId, message: &EventMessage) -> Option<RuntimeEvent> {
    let action = message.action.as_deref()?;
    let actor = message.actor.as_ref()?;
    let id = actor.id.as_deref().unwrap_or_default();
    let attribute = |key: &str| actor.attributes.as_ref()?.get(key).map(String::as_str);
    match message.typ? {
        EventMessageTypeEnum::CONTAINER => {
            if attribute(label::INSTANCE) != Some(&*instance.0) {
                return None;
            }
            let name = attribute("name").unwrap_or_default();
            let container = |state| observed(instance, id, name, actor.attributes.as_ref(), state);
            let (made, state): (fn(ObservedContainer) -> RuntimeEvent, _) = match action {
                "create" => (RuntimeEvent::Created, ContainerState::Created),
                "start" => (RuntimeEvent::Started, ContainerState::Running),
                "die" | "died" => (RuntimeEvent::Exited, ContainerState::Exited),
                "destroy" | "remove" => (RuntimeEvent::Removed, ContainerState::Dead),
                "pause" => (RuntimeEvent::Paused, ContainerState::Paused),
                "unpause" => (RuntimeEvent::Unpaused, ContainerState::Running),
                // A person's doing, of which the events say less than a list.
                _ => return Some(RuntimeEvent::Unclear),
            };
            container(state).filter(|container| !container.id.is_empty()).map(made)
        }
        // A pull is of the name, all others are of the content and name it beside.
        EventMessageTypeEnum::IMAGE => match action {
            "pull" => Some(RuntimeEvent::ImageAvailable(id.to_owned())),
            "import" | "load" | "tag" => Some(RuntimeEvent::ImageAvailable(attribute("name").unwrap_or(id).to_owned())),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::observe::{AttemptKey, Role};
    use crate::spec::TaskId;

    fn instance() -> InstanceId {
        InstanceId("i1".into())
    }

    fn labels() -> serde_json::Value {
        json!({
            "dev.orchestrate.instance": "i1", "dev.orchestrate.plan": "p", "dev.orchestrate.task": "api",
            "dev.orchestrate.attempt": "2",
        })
    }

    fn container(state: ContainerState) -> ObservedContainer {
        ObservedContainer {
            id: "c0ffee".to_owned(),
            name: "orch-i1-api-2".to_owned(),
            key: AttemptKey { task: TaskId::new("api").expect("valid"), attempt: 2 },
            plan: "p".to_owned(),
            role: Role::Agent,
            state,
        }
    }

    #[rstest]
    #[case("created", ContainerState::Created)]
    #[case("running", ContainerState::Running)]
    #[case("restarting", ContainerState::Running)]
    #[case("stopping", ContainerState::Running)]
    #[case("paused", ContainerState::Paused)]
    #[case("exited", ContainerState::Exited)]
    #[case("removing", ContainerState::Dead)]
    #[case("dead", ContainerState::Dead)]
    fn states(#[case] word: &str, #[case] state: ContainerState) {
        let summary = json!({
            "Id": "c0ffee", "Names": ["/other/alias", "/orch-i1-api-2"], "State": word, "Labels": labels(),
        });
        let summary: ContainerSummary = serde_json::from_value(summary).expect("model");
        assert_eq!(listed(&instance(), &summary), Ok(Some(container(state))));
        assert_eq!(listed(&InstanceId("i2".into()), &summary), Ok(None));
        let answer = json!({
            "Id": "c0ffee", "Name": "/orch-i1-api-2", "Config": {"Labels": labels()},
            "State": {"Status": word, "ExitCode": 0},
        });
        let answer: ContainerInspectResponse = serde_json::from_value(answer).expect("model");
        match inspected(&instance(), &answer).expect("complete") {
            Inspected::Ours(detail) => assert_eq!(detail.container, container(state)),
            Inspected::NotOurs => panic!("ours by its labels"),
        }
        assert_eq!(inspected(&InstanceId("i2".into()), &answer), Ok(Inspected::NotOurs));
    }

    #[test]
    fn an_answer_that_lacks_something_is_an_error() {
        for answer in [
            json!({"Names": ["/x"], "State": "running", "Labels": labels()}),
            json!({"Id": "", "State": "running", "Labels": labels()}),
            json!({"Id": "1", "Labels": labels()}),
            json!({"Id": "1", "State": "", "Labels": labels()}),
        ] {
            let summary: ContainerSummary = serde_json::from_value(answer.clone()).expect("model");
            assert!(listed(&instance(), &summary).is_err(), "{answer}");
        }
    }

    #[test]
    fn the_year_one_is_never() {
        let answer = json!({
            "Id": "c0ffee", "Name": "/orch-i1-api-2", "Config": {"Labels": labels()},
            "State": {
                "Status": "exited", "ExitCode": 137, "OOMKilled": true, "Error": "text",
                "StartedAt": "2026-12-01T04:07:11.699419835Z", "FinishedAt": "0001-01-01T00:00:00Z",
            },
        });
        let answer: ContainerInspectResponse = serde_json::from_value(answer).expect("model");
        let Ok(Inspected::Ours(detail)) = inspected(&instance(), &answer) else { panic!("ours") };
        assert_eq!(detail.started_at, "2026-12-01T04:07:11.699419835Z".parse().ok());
        assert_eq!(detail.finished_at, None);
        assert_eq!((detail.exit_code, detail.oom_killed, detail.error.as_str()), (137, true, "text"));
    }

    fn message(typ: &str, action: &str) -> EventMessage {
        let mut attributes = labels();
        attributes["name"] = "orch-i1-api-2".into();
        attributes["exitCode"] = "0".into();
        let message = json!({"Type": typ, "Action": action, "Actor": {"ID": "c0ffee", "Attributes": attributes}});
        serde_json::from_value(message).expect("model")
    }

    #[rstest]
    #[case("create", RuntimeEvent::Created(container(ContainerState::Created)))]
    #[case("start", RuntimeEvent::Started(container(ContainerState::Running)))]
    #[case("die", RuntimeEvent::Exited(container(ContainerState::Exited)))]
    #[case("died", RuntimeEvent::Exited(container(ContainerState::Exited)))]
    #[case("destroy", RuntimeEvent::Removed(container(ContainerState::Dead)))]
    #[case("pause", RuntimeEvent::Paused(container(ContainerState::Paused)))]
    #[case("unpause", RuntimeEvent::Unpaused(container(ContainerState::Running)))]
    #[case("rename", RuntimeEvent::Unclear)]
    #[case("restart", RuntimeEvent::Unclear)]
    fn container_events(#[case] action: &str, #[case] expected: RuntimeEvent) {
        assert!(ACTIONS.contains(&action), "{action} is not asked for");
        assert_eq!(event(&instance(), &message("container", action)), Some(expected));
        assert_eq!(event(&InstanceId("i2".into()), &message("container", action)), None);
        assert_eq!(event(&instance(), &message("network", action)), None);
    }

    #[rstest]
    #[case("pull", "c0ffee")]
    #[case("import", "orch-i1-api-2")]
    #[case("load", "orch-i1-api-2")]
    #[case("tag", "orch-i1-api-2")]
    fn image_events(#[case] action: &str, #[case] name: &str) {
        assert!(ACTIONS.contains(&action), "{action} is not asked for");
        let expected = Some(RuntimeEvent::ImageAvailable(name.to_owned()));
        assert_eq!(event(&InstanceId("any".into()), &message("image", action)), expected);
    }

    #[test]
    fn an_event_whose_labels_name_no_attempt_is_nothing() {
        let mut message = message("container", "die");
        let attributes = message.actor.as_mut().and_then(|actor| actor.attributes.as_mut()).expect("set");
        attributes.insert(label::ATTEMPT.to_owned(), "x".to_owned());
        assert_eq!(event(&instance(), &message), None);
    }
}
