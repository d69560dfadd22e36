//! Pictures become inputs on threads of their own, up to a limit, while their requests are queued.
//!
//! ```text
//! request ─ begin: room, memory? ─▶ wait for a thread, each ─▶ decode … ─▶ Progress::Made: the whole payload
//!               refused if not       the last one has one: Progress::Begun, if none of them takes long
//! ```

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use symphony_config::ImagesConfig;
use symphony_images::{Header, ImageLimits, Pipeline, inspect};
use symphony_telemetry::Registry;
use symphony_telemetry::buckets::STEP_SECONDS;
use symphony_types::FailReason;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::metrics;
use crate::oip::{InferError, ModelInfo, Pictures};

/// Decodes for all models of a frontend.
#[derive(Debug)]
pub(crate) struct Decoders {
    /// A permit for each thread.
    pub(crate) threads: Arc<Semaphore>,
    /// A permit for each picture that waits or is decoded.
    room: Arc<Semaphore>,
    waiting_max: usize,
    /// A permit for each [`MEMORY_UNIT_BYTES`] of what pictures become.
    memory: Arc<Semaphore>,
    decoded_bytes_max: u64,
    limits: ImageLimits,
    counts: Arc<Counts>,
}

/// Pixels of a picture and bytes of the items that are cut out of it, so few that this takes less than a thread takes
/// to wake for it.
const SHORT_WORK_MAX: u64 = 1 << 13;

/// In such pieces the memory for decoded pictures is given out.
const MEMORY_UNIT_BYTES: u64 = 1 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Debug)]
struct Counts {
    outcomes: Family<OutcomeLabels, Counter>,
    decode: Histogram,
    wait: Histogram,
    decoded_bytes: Gauge,
}

impl Counts {
    fn count(&self, outcome: &'static str) {
        self.outcomes.get_or_create(&OutcomeLabels { outcome }).inc();
    }
}

/// Memory for what the pictures of one request become, until nothing can hold them any more: also a READ's answer that
/// waits for a slow backend, when the request has long had its outcome.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes: i64,
    counts: Arc<Counts>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.counts.decoded_bytes.dec_by(self.bytes);
    }
}

/// A payload that is counted as long as any part of it is referenced.
struct Counted {
    payload: Vec<u8>,
    _memory: Arc<Memory>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.payload
    }
}

/// The pictures of one request on their way. Pictures that have not begun are given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Decoding {
    task: JoinHandle<Result<Bytes, InferError>>,
    begun: Option<oneshot::Receiver<()>>,
    /// Nothing was reported of it yet.
    waiting: bool,
}

/// How far the pictures of a request have come.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The input is ready within milliseconds: the request may be announced to schedulers.
    Begun,
    /// The whole payload, or why there is none. Nothing comes after it. The decoded pictures are counted until the last
    /// clone is gone.
    Made(Result<Bytes, InferError>),
}

impl Decoders {
    pub(crate) fn new(config: &ImagesConfig, limits: ImageLimits, registry: &Registry) -> Self {
        let histogram = || symphony_telemetry::native_histogram(&STEP_SECONDS);
        let counts = Counts {
            outcomes: registry.register(&metrics::PICTURES, Family::default()),
            decode: registry.register(&metrics::PICTURE_DECODE, histogram()),
            wait: registry.register(&metrics::PICTURE_WAIT, histogram()),
            decoded_bytes: registry.register(&metrics::PICTURES_DECODED, Gauge::default()),
        };
        let waiting_max = config.waiting_max as usize;
        let decoded_bytes_max = config.decoded_bytes_max();
        let units = usize::try_from(decoded_bytes_max / MEMORY_UNIT_BYTES).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            threads: Arc::new(Semaphore::new(config.threads())),
            room: Arc::new(Semaphore::new(waiting_max)),
            waiting_max,
            memory: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))),
            decoded_bytes_max,
            limits,
            counts: Arc::new(counts),
        }
    }

    /// Memory for tensors of this many bytes, until nothing holds it any more.
    ///
    /// # Errors
    /// If others have as much as there may be.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<Arc<Memory>, InferError> {
        let full = InferError::DecodedFull { bytes_max: self.decoded_bytes_max };
        let units = u32::try_from((bytes as u64).div_ceil(MEMORY_UNIT_BYTES)).map_err(|_| full.clone())?;
        let permit = Arc::clone(&self.memory).try_acquire_many_owned(units).map_err(|_| full)?;
        // Not more than u32::MAX units.
        let bytes = bytes as i64;
        self.counts.decoded_bytes.inc_by(bytes);
        Ok(Arc::new(Memory { bytes, counts: Arc::clone(&self.counts), _permit: permit }))
    }

    /// Begins to make the payload of a request. Refused if too many pictures wait already, or what others have become
    /// takes too much memory.
    pub(crate) fn begin(
        &self,
        model: &ModelInfo,
        payload: Bytes,
        Pictures { encoded, at, quick }: Pictures,
    ) -> Result<Decoding, InferError> {
        let (input, pipeline) = declared(model)?;
        let count = u32::try_from(encoded.len()).unwrap_or(u32::MAX);
        if encoded.len() > self.waiting_max {
            let (pictures, max) = (encoded.len(), self.waiting_max);
            let message =
                format!("{pictures} pictures; this frontend takes {max} at a time (frontend.images.waiting_max)");
            return Err(InferError::InvalidRequest(message));
        }
        let room = Arc::clone(&self.room).try_acquire_many_owned(count);
        let room = room.map_err(|_| InferError::DecodersBusy { waiting_max: self.waiting_max })?;
        let memory = self.reserve(encoded.len().saturating_mul(pipeline.item_bytes()))?;
        let (tell, begun) = oneshot::channel();
        let work = Work {
            threads: Arc::clone(&self.threads),
            room,
            memory,
            pipeline: Arc::new(pipeline),
            limits: self.limits,
            counts: Arc::clone(&self.counts),
            input,
        };
        // A batch would wait for a picture that takes long, and the GPU's next batches with it.
        let tell = quick.then_some(tell);
        let task = tokio::spawn(work.run(payload, encoded, at, tell));
        Ok(Decoding { task, begun: Some(begun), waiting: true })
    }

    /// Cuts regions out of a picture, which is decoded once; what it gives are the items of the model's input, in the
    /// order of the boxes. Given up when it is dropped before it has a thread. Refused as by [`Self::begin`].
    pub(crate) fn crop(
        &self,
        Crops { picture, seen_by, model, boxes }: Crops<'_>,
    ) -> Result<impl Future<Output = Result<Vec<Bytes>, InferError>> + Send + use<>, InferError> {
        let ((_, seen_by), (input, pipeline)) = (declared(seen_by)?, declared(model)?);
        let room = Arc::clone(&self.room).try_acquire_owned();
        let room = room.map_err(|_| InferError::DecodersBusy { waiting_max: self.waiting_max })?;
        let memory = self.reserve(boxes.len().saturating_mul(pipeline.item_bytes()))?;
        let (threads, limits, counts) = (Arc::clone(&self.threads), self.limits, Arc::clone(&self.counts));
        Ok(async move {
            let queued_at = Instant::now();
            // Nobody closes it.
            let thread = threads.acquire_owned().await.map_err(|_| InferError::Failed(FailReason::Draining))?;
            counts.wait.observe(queued_at.elapsed().as_secs_f64());
            let (item_bytes, count) = (pipeline.item_bytes(), boxes.len());
            let held = Arc::clone(&memory);
            let is_short = is_short(&picture, limits, count * item_bytes);
            let work = move || {
                let _held = (room, thread, held);
                let (began, mut items) = (Instant::now(), Vec::with_capacity(count * item_bytes));
                let cut = pipeline.append_boxes(&seen_by, &boxes, &picture, limits, &mut items);
                counts.decode.observe(began.elapsed().as_secs_f64());
                counts.count(if cut.is_ok() { "decoded" } else { "undecodable" });
                cut.map(|()| items)
            };
            let failed = |reason: String| InferError::BadPicture(format!("input `{input}`: {reason}"));
            // A decoder that panics has met bytes that it was not made for.
            let items = on_thread(is_short, work).await.ok_or_else(|| failed("the decoder gave up".to_owned()))?;
            let items = items.map_err(|error| failed(error.to_string()))?;
            let whole = Bytes::from_owner(Counted { payload: items, _memory: memory });
            let items = (0..count).map(|at| whole.slice(at * item_bytes..(at + 1) * item_bytes));
            Ok::<Vec<Bytes>, InferError>(items.collect())
        })
    }
}

/// Regions of a picture that are to become items.
#[derive(Debug)]
pub(crate) struct Crops<'a> {
    pub(crate) picture: Bytes,
    /// The model that has found them on what it sees of the picture.
    pub(crate) seen_by: &'a ModelInfo,
    /// The model that takes them.
    pub(crate) model: &'a ModelInfo,
    /// Left, top, right and bottom of each, in shares of what the first model sees.
    pub(crate) boxes: Vec<[f64; 4]>,
}

/// The input of a model that takes pictures, and how they become its items.
fn declared(model: &ModelInfo) -> Result<(String, Pipeline), InferError> {
    let declared = model.transforms.image.as_ref().and_then(|image| {
        let input = model.signature.inputs.iter().find(|input| input.name == image.input)?;
        Some((input.name.clone(), Pipeline::new(image, input)))
    });
    let Some((input, pipeline)) = declared else {
        return Err(InferError::InvalidRequest(format!("model `{}` declares no pictures any more", model.name)));
    };
    Ok((input, pipeline.map_err(InferError::InvalidRequest)?))
}

/// Whether items of so many bytes are cut out of a picture sooner than a thread wakes for it.
fn is_short(picture: &[u8], limits: ImageLimits, item_bytes: usize) -> bool {
    let pixels = |header: Header| u64::from(header.width) * u64::from(header.height);
    inspect(picture, limits)
        .is_ok_and(|header| header.is_quick() && pixels(header) + item_bytes as u64 <= SHORT_WORK_MAX)
}

/// Does work on a thread of its own: what is short on this one, while another one takes over what this one had to do,
/// since a hostile picture may take long all the same. None if it panicked.
async fn on_thread<T: Send + 'static>(is_short: bool, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if is_short && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
        return catch_unwind(AssertUnwindSafe(|| tokio::task::block_in_place(work))).ok();
    }
    tokio::task::spawn_blocking(work).await.ok()
}

impl Decoding {
    /// Whether the request must not be announced to schedulers yet.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// What happens next. Not to be asked again once the payload was made; may be given up and asked again before.
    pub(crate) async fn next(&mut self) -> Progress {
        if let Some(begun) = &mut self.begun {
            let result = begun.await;
            self.begun = None;
            // Pictures that take long are not announced, nor is one that has failed: then comes the payload, or why
            // there is none.
            if result.is_ok() {
                self.waiting = false;
                return Progress::Begun;
            }
        }
        // The task is given up only when the runtime shuts down.
        let made = (&mut self.task).await.unwrap_or(Err(InferError::Failed(FailReason::Draining)));
        self.waiting = false;
        Progress::Made(made)
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
    memory: Arc<Memory>,
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
        begun: Option<oneshot::Sender<()>>,
    ) -> Result<Bytes, InferError> {
        let count = encoded.len();
        let mut under_way = VecDeque::with_capacity(count);
        for picture in encoded {
            let queued_at = Instant::now();
            let thread = Arc::clone(&self.threads).acquire_owned().await;
            // Nobody closes it.
            let thread = thread.map_err(|_| InferError::Failed(FailReason::Draining))?;
            self.counts.wait.observe(queued_at.elapsed().as_secs_f64());
            under_way.push_back(self.decode(picture, thread));
        }
        if let Some(begun) = begun {
            let _ = begun.send(());
        }
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
        Ok(Bytes::from_owner(Counted { payload: whole, _memory: Arc::clone(&self.memory) }))
    }

    /// One picture, on a thread that is free.
    fn decode(
        &mut self,
        picture: Bytes,
        thread: OwnedSemaphorePermit,
    ) -> JoinHandle<Result<Vec<u8>, symphony_images::ImageError>> {
        // It keeps its room until it is done, even if no request waits for it any more.
        let room = self.room.split(1);
        let (pipeline, limits, counts) = (Arc::clone(&self.pipeline), self.limits, Arc::clone(&self.counts));
        let memory = Arc::clone(&self.memory);
        tokio::task::spawn_blocking(move || {
            let _held = (room, thread, memory);
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
