//! Times every call into a sink, for metrics.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::time::Instant;

use super::contract::{
    CreateRequest, EngineFacts, EngineInfo, ImageInfo, LogChunk, LogOptions, Operation, PullSink, Runtime,
    RuntimeError, RuntimeEvent, Shell, ShellOptions, ShellPlace,
};
use crate::observe::{ContainerDetail, InstanceId, ObservedContainer};

/// Told of each call. Must not block.
pub trait RequestSink: Send + Sync {
    /// A call was answered, well or not, after so long. Streams count until their first item.
    fn requested(&self, operation: Operation, took: Duration);
}

/// A runtime whose calls are timed.
pub struct Metered {
    inner: Arc<dyn Runtime>,
    sink: Arc<dyn RequestSink>,
}

impl Metered {
    /// Times `inner` into `sink`.
    pub fn new(inner: Arc<dyn Runtime>, sink: Arc<dyn RequestSink>) -> Self {
        Self { inner, sink }
    }

    async fn time<T>(&self, operation: Operation, call: impl Future<Output = T> + Send) -> T {
        let began = Instant::now();
        let answer = call.await;
        self.sink.requested(operation, began.elapsed());
        answer
    }

    fn time_first<T: 'static>(&self, operation: Operation, items: BoxStream<'static, T>) -> BoxStream<'static, T> {
        let sink = Arc::clone(&self.sink);
        let mut began = Some(Instant::now());
        let timed = items.inspect(move |_| {
            if let Some(began) = began.take() {
                sink.requested(operation, began.elapsed());
            }
        });
        timed.boxed()
    }
}

#[async_trait]
impl Runtime for Metered {
    fn host(&self) -> &str {
        self.inner.host()
    }

    async fn probe(&self) -> Result<EngineInfo, RuntimeError> {
        self.time(Operation::Probe, self.inner.probe()).await
    }

    async fn isolation(&self) -> Result<Option<String>, RuntimeError> {
        self.inner.isolation().await
    }

    async fn facts(&self) -> Result<EngineFacts, RuntimeError> {
        self.time(Operation::Probe, self.inner.facts()).await
    }

    async fn has_program(&self, image: Option<&str>, command: Option<&[String]>) -> Result<Option<bool>, RuntimeError> {
        self.inner.has_program(image, command).await
    }

    async fn list(&self, instance: &InstanceId) -> Result<Vec<ObservedContainer>, RuntimeError> {
        self.time(Operation::List, self.inner.list(instance)).await
    }

    async fn inspect(&self, instance: &InstanceId, id: &str) -> Result<Option<ContainerDetail>, RuntimeError> {
        self.time(Operation::Inspect, self.inner.inspect(instance, id)).await
    }

    async fn image(&self, reference: &str) -> Result<Option<ImageInfo>, RuntimeError> {
        self.time(Operation::Image, self.inner.image(reference)).await
    }

    async fn pull(&self, reference: &str, progress: &PullSink<'_>) -> Result<(), RuntimeError> {
        self.time(Operation::Pull, self.inner.pull(reference, progress)).await
    }

    async fn create(&self, request: &CreateRequest) -> Result<String, RuntimeError> {
        self.time(Operation::Create, self.inner.create(request)).await
    }

    async fn start(&self, id: &str) -> Result<(), RuntimeError> {
        self.time(Operation::Start, self.inner.start(id)).await
    }

    async fn stop(&self, id: &str, grace: Duration) -> Result<(), RuntimeError> {
        self.time(Operation::Stop, self.inner.stop(id, grace)).await
    }

    async fn remove(&self, id: &str) -> Result<(), RuntimeError> {
        self.time(Operation::Remove, self.inner.remove(id)).await
    }

    fn logs(&self, id: &str, options: LogOptions) -> BoxStream<'static, Result<LogChunk, RuntimeError>> {
        self.time_first(Operation::Logs, self.inner.logs(id, options))
    }

    async fn shell(&self, place: ShellPlace, options: &ShellOptions) -> Result<Shell, RuntimeError> {
        self.inner.shell(place, options).await
    }

    fn events(&self, instance: &InstanceId) -> BoxStream<'static, Result<RuntimeEvent, RuntimeError>> {
        self.time_first(Operation::Events, self.inner.events(instance))
    }
}
