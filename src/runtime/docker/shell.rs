//! A person's command in a container: `exec` in one that runs, or a container made for it that the engine removes when it
//! ends.

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, ResizeContainerTTYOptions, ResizeExecOptions,
    StartContainerOptions, WaitContainerOptionsBuilder,
};
use futures::StreamExt as _;
use futures::future::FutureExt as _;

use super::body::create_body;
use super::classify::Failure;
use super::client::{CHANGE_LIMIT, DockerRuntime, READ_LIMIT, check};
use crate::runtime::{CreateRequest, LogChunk, LogStream, Operation, RuntimeError, Shell, ShellOptions, ShellPlace};

/// An engine's own keys would hold Ctrl-P back, which is the command's.
const DETACH: &str = "ctrl-@";

/// Runs it.
pub(super) async fn run(
    runtime: &DockerRuntime,
    place: ShellPlace,
    options: &ShellOptions,
) -> Result<Shell, RuntimeError> {
    let target = place.name().to_owned();
    check(&target).map_err(|failure| failure.into_error(Operation::Start, Some(&target)))?;
    match place {
        ShellPlace::Running(id) => exec(runtime, &id, options).await,
        ShellPlace::Fresh(request) => fresh(runtime, &request, options).await,
    }
}

async fn exec(runtime: &DockerRuntime, id: &str, options: &ShellOptions) -> Result<Shell, RuntimeError> {
    let has_terminal = options.terminal.is_some();
    let settings = CreateExecOptions {
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(has_terminal),
        detach_keys: Some(DETACH.to_owned()),
        env: options.term.as_ref().map(|term| vec![format!("TERM={term}")]),
        cmd: Some(options.command.clone()),
        ..CreateExecOptions::default()
    };
    let start = StartExecOptions { detach: false, tty: has_terminal, output_capacity: None };
    let (docker, exec, attached) = runtime
        .call(Operation::Start, Some(id), CHANGE_LIMIT, |docker| async move {
            let exec = docker.create_exec(id, settings).await?.id;
            let attached = docker.start_exec(&exec, Some(start)).await?;
            Ok((docker, exec, attached))
        })
        .await?;
    let StartExecResults::Attached { output, input } = attached else {
        return Err(Failure::Answer("the engine did not attach to the command".to_owned())
            .into_error(Operation::Start, Some(id)));
    };
    let resize = {
        let (docker, exec) = (docker.clone(), exec.clone());
        move |columns: u16, rows: u16| {
            let (docker, exec) = (docker.clone(), exec.clone());
            let size = ResizeExecOptions { w: i32::from(columns), h: i32::from(rows) };
            async move { drop(docker.resize_exec(&exec, size).await) }.boxed()
        }
    };
    if let Some((columns, rows)) = options.terminal {
        resize(columns, rows).await;
    }
    let (runtime, target) = (runtime.clone(), id.to_owned());
    let exit = async move {
        let asked = runtime.call(Operation::Inspect, Some(&target), READ_LIMIT, |docker| async move {
            docker.inspect_exec(&exec).await
        });
        asked.await.map(|answer| answer.exit_code.unwrap_or(0))
    };
    Ok(Shell { input, output: chunks(output, id), resize: Box::new(resize), exit: exit.boxed() })
}

async fn fresh(
    runtime: &DockerRuntime,
    request: &CreateRequest,
    options: &ShellOptions,
) -> Result<Shell, RuntimeError> {
    let failed = |failure: Failure| failure.into_error(Operation::Create, Some(&request.name));
    let body =
        create_body(request, runtime.cpus().await).map_err(|error| failed(Failure::Request(error.to_string())))?;
    let body = Box::new(for_a_person(body, options));
    let name = request.name.as_str();
    let create = CreateContainerOptionsBuilder::new().name(name).build();
    let id = runtime
        .call(Operation::Create, Some(name), CHANGE_LIMIT, |docker| {
            Box::pin(async move { docker.create_container(Some(create), *body).await })
        })
        .await?
        .id;
    match attach(runtime, &id, options).await {
        Ok(shell) => Ok(shell),
        Err(error) => {
            // One that never started does not go away by itself.
            drop(crate::runtime::Runtime::remove(runtime, &id).await);
            Err(error)
        }
    }
}

async fn attach(runtime: &DockerRuntime, id: &str, options: &ShellOptions) -> Result<Shell, RuntimeError> {
    // Before the start, so that nothing it writes is missed, and its end neither.
    let attach = AttachContainerOptionsBuilder::new().stream(true).stdin(true).stdout(true).stderr(true);
    let attach = attach.detach_keys(DETACH).build();
    let (docker, attached) = runtime
        .call(Operation::Start, Some(id), CHANGE_LIMIT, |docker| async move {
            let attached = docker.attach_container(id, Some(attach)).await?;
            Ok((docker, attached))
        })
        .await?;
    let exit = wait(docker.clone(), id.to_owned());
    let resize = {
        let (docker, id) = (docker.clone(), id.to_owned());
        move |columns: u16, rows: u16| {
            let (docker, id) = (docker.clone(), id.clone());
            let size = ResizeContainerTTYOptions { w: i32::from(columns), h: i32::from(rows) };
            async move { drop(docker.resize_container_tty(&id, size).await) }.boxed()
        }
    };
    runtime
        .call(Operation::Start, Some(id), CHANGE_LIMIT, |docker| async move {
            docker.start_container(id, None::<StartContainerOptions>).await
        })
        .await?;
    if let Some((columns, rows)) = options.terminal {
        resize(columns, rows).await;
    }
    let target = id.to_owned();
    let exit = async move { exit.await.map_err(|failure| failure.into_error(Operation::Inspect, Some(&target))) };
    Ok(Shell {
        input: attached.input,
        output: chunks(attached.output, id),
        resize: Box::new(resize),
        exit: exit.boxed(),
    })
}

/// Waits in the background from now on, since a container that removes itself can be asked nothing afterwards.
fn wait(docker: Docker, id: String) -> impl Future<Output = Result<i64, Failure>> {
    let (send, receive) = tokio::sync::oneshot::channel();
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn(async move {
        let options = WaitContainerOptionsBuilder::new().condition("next-exit").build();
        let mut answers = Box::pin(docker.wait_container(&id, Some(options)));
        let code = match answers.next().await {
            Some(Ok(answer)) => Ok(answer.status_code),
            Some(Err(bollard::errors::Error::DockerContainerWaitError { code, .. })) => Ok(code),
            Some(Err(error)) => Err(Failure::from(error)),
            None => Err(Failure::Broken("the engine did not tell how it ended".to_owned())),
        };
        drop(send.send(code));
    });
    async move {
        let code = receive.await;
        drop(waiting);
        code.unwrap_or_else(|_| Err(Failure::Broken("the engine did not tell how it ended".to_owned())))
    }
}

/// The same rules as an attempt's, but for the terminal, the input, and that it goes away with whoever asked for it.
fn for_a_person(body: ContainerCreateBody, options: &ShellOptions) -> ContainerCreateBody {
    let has_terminal = options.terminal.is_some();
    let mut env = body.env.unwrap_or_default();
    env.extend(options.term.iter().filter(|_| has_terminal).map(|term| format!("TERM={term}")));
    let host_config = body.host_config.map(|host| HostConfig { auto_remove: Some(true), ..host });
    ContainerCreateBody {
        // The image's own would swallow the command.
        entrypoint: Some(Vec::new()),
        cmd: Some(options.command.clone()),
        env: Some(env),
        tty: Some(has_terminal),
        open_stdin: Some(true),
        stdin_once: Some(true),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        host_config,
        ..body
    }
}

fn chunks(
    output: impl futures::Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send + 'static,
    target: &str,
) -> futures::stream::BoxStream<'static, Result<LogChunk, RuntimeError>> {
    let target = target.to_owned();
    let chunk = move |item: Result<LogOutput, bollard::errors::Error>| match item {
        Ok(LogOutput::StdErr { message }) => Ok(LogChunk { stream: LogStream::Stderr, bytes: message }),
        Ok(LogOutput::StdOut { message } | LogOutput::StdIn { message } | LogOutput::Console { message }) => {
            Ok(LogChunk { stream: LogStream::Stdout, bytes: message })
        }
        Err(error) => Err(Failure::from(error).into_error(Operation::Logs, Some(&target))),
    };
    output.map(chunk).boxed()
}
