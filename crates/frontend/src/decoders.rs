//! Pictures become inputs on threads for such work, so many at once, while their requests are queued.
//!
//! ```text
//! request ─ begin: room for its pictures? ─▶ wait for a thread, each ─▶ decode … ─▶ Decoding::input: the whole payload
//!                     refused if not          the last one has one: Decoding::begun, the request is announced
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use symphony_config::ImagesConfig;
use symphony_images::{ImageLimits, Pipeline};
use symphony_telemetry::Registry;
use symphony_types::FailReason;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::names;
use crate::oip::{InferError, ModelInfo, Pictures};

/// Decodes for all models of a frontend.
#[derive(Debug)]
pub(crate) struct Decoders {
    /// A permit for each thread.
    pub(crate) threads: Arc<Semaphore>,
    /// A permit for each picture that waits or is decoded.
    room: Arc<Semaphore>,
    waiting_max: usize,
    limits: ImageLimits,
    counts: Arc<Counts>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Debug)]
struct Counts {
    outcomes: Family<OutcomeLabels, Counter>,
    decode: Histogram,
    wait: Histogram,
}

impl Counts {
    fn count(&self, outcome: &'static str) {
        self.outcomes.get_or_create(&OutcomeLabels { outcome }).inc();
    }
}

/// The pictures of one request on their way. Those that have not begun are given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Decoding {
    task: JoinHandle<Result<Bytes, InferError>>,
    begun: Option<oneshot::Receiver<()>>,
}

impl Decoders {
    pub(crate) fn new(config: &ImagesConfig, limits: ImageLimits, registry: &Registry) -> Self {
        // 0.1 ms to 1.6 s, in steps of a factor of 2.
        let histogram = || Histogram::new(exponential_buckets(0.0001, 2.0, 15));
        let counts = Counts {
            outcomes: registry.register(&names::PICTURES, Family::default()),
            decode: registry.register(&names::PICTURE_DECODE, histogram()),
            wait: registry.register(&names::PICTURE_WAIT, histogram()),
        };
        let waiting_max = config.waiting_max as usize;
        Self {
            threads: Arc::new(Semaphore::new(config.threads())),
            room: Arc::new(Semaphore::new(waiting_max)),
            waiting_max,
            limits,
            counts: Arc::new(counts),
        }
    }

    /// Begins to make the payload of a request. Refused if too many pictures wait already.
    pub(crate) fn begin(
        &self,
        model: &ModelInfo,
        payload: Bytes,
        Pictures { encoded, at }: Pictures,
    ) -> Result<Decoding, InferError> {
        let declared = model.transforms.image.as_ref().and_then(|image| {
            let input = model.signature.inputs.iter().find(|input| input.name == image.input)?;
            Some((input.name.clone(), Pipeline::new(image, input)))
        });
        let Some((input, pipeline)) = declared else {
            return Err(InferError::InvalidRequest(format!("model `{}` declares no pictures any more", model.name)));
        };
        let pipeline = pipeline.map_err(InferError::InvalidRequest)?;
        let count = u32::try_from(encoded.len()).unwrap_or(u32::MAX);
        if encoded.len() > self.waiting_max {
            let (pictures, max) = (encoded.len(), self.waiting_max);
            let told =
                format!("{pictures} pictures; this frontend takes {max} at a time (frontend.images.waiting_max)");
            return Err(InferError::InvalidRequest(told));
        }
        let room = Arc::clone(&self.room).try_acquire_many_owned(count);
        let room = room.map_err(|_| InferError::DecodersBusy { waiting_max: self.waiting_max })?;
        let (tell, begun) = oneshot::channel();
        let work = Work {
            threads: Arc::clone(&self.threads),
            room,
            pipeline: Arc::new(pipeline),
            limits: self.limits,
            counts: Arc::clone(&self.counts),
            input,
        };
        Ok(Decoding { task: tokio::spawn(work.run(payload, encoded, at, tell)), begun: Some(begun) })
    }
}

impl Decoding {
    /// Resolves when the last picture is being decoded: the input is there as soon as that is done.
    pub(crate) async fn begun(&mut self) {
        if let Some(begun) = &mut self.begun {
            // It fails where a picture has failed before that; the input then says why.
            let _ = begun.await;
            self.begun = None;
        }
    }

    /// The whole payload. Not to be asked for again once it has come.
    pub(crate) async fn input(&mut self) -> Result<Bytes, InferError> {
        // The task is given up only when the runtime shuts down.
        (&mut self.task).await.unwrap_or(Err(InferError::Failed(FailReason::Draining)))
    }
}

impl Drop for Decoding {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the pictures of one request need.
struct Work {
    threads: Arc<Semaphore>,
    room: OwnedSemaphorePermit,
    pipeline: Arc<Pipeline>,
    limits: ImageLimits,
    counts: Arc<Counts>,
    /// The input that they become, for messages.
    input: String,
}

impl Work {
    async fn run(
        mut self,
        payload: Bytes,
        encoded: Vec<Bytes>,
        at: usize,
        begun: oneshot::Sender<()>,
    ) -> Result<Bytes, InferError> {
        let count = encoded.len();
        let mut under_way = VecDeque::with_capacity(count);
        for picture in encoded {
            let asked = Instant::now();
            let thread = Arc::clone(&self.threads).acquire_owned().await;
            // Nobody closes it.
            let thread = thread.map_err(|_| InferError::Failed(FailReason::Draining))?;
            self.counts.wait.observe(asked.elapsed().as_secs_f64());
            under_way.push_back(self.decode(picture, thread));
        }
        let _ = begun.send(());
        let mut whole = Vec::with_capacity(payload.len() + count * self.pipeline.item_bytes());
        whole.extend_from_slice(&payload[..at]);
        for (index, item) in under_way.into_iter().enumerate() {
            let failed =
                |reason: String| InferError::BadPicture(format!("input `{}`, picture {index}: {reason}", self.input));
            // A decoder that panics has met bytes that it was not made for.
            let item = item.await.map_err(|_| failed("the decoder gave up".to_owned()))?;
            whole.extend_from_slice(&item.map_err(|error| failed(error.to_string()))?);
        }
        whole.extend_from_slice(&payload[at..]);
        Ok(whole.into())
    }

    /// One picture, on a thread that is free.
    fn decode(
        &mut self,
        picture: Bytes,
        thread: OwnedSemaphorePermit,
    ) -> JoinHandle<Result<Vec<u8>, symphony_images::ImageError>> {
        // It keeps its room until it is done, also if nobody waits for it any more.
        let room = self.room.split(1);
        let (pipeline, limits, counts) = (Arc::clone(&self.pipeline), self.limits, Arc::clone(&self.counts));
        tokio::task::spawn_blocking(move || {
            let _held = (room, thread);
            let (began, mut item) = (Instant::now(), Vec::with_capacity(pipeline.item_bytes()));
            let decoded = pipeline.append(&picture, limits, &mut item);
            counts.decode.observe(began.elapsed().as_secs_f64());
            counts.count(if decoded.is_ok() { "decoded" } else { "undecodable" });
            decoded.map(|()| item)
        })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // What has not begun by now never will.
        for _ in 0..self.room.num_permits() {
            self.counts.count("abandoned");
        }
    }
}

#[cfg(test)]
#[path = "decoders_tests.rs"]
mod tests;
