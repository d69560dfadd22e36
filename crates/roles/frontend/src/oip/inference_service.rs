//! The port: what the Open Inference Protocol needs from the rest of the frontend.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use symphony_config::Right;
use symphony_protocol::view::NoGpu;
use symphony_telemetry::TraceContext;
use symphony_types::{Nanos, RequestValue, Signature, Transforms};

use super::{AccessError, Caller, InFlightPermit, InferError, Receipt, RepositoryError, SharedRegions, Shown, shorten};

/// Answers what the protocol asks. One implementation serves gRPC and REST alike.
///
/// Everything but [`infer`](Self::infer) and the repository calls is answered from memory, without waiting.
pub trait InferenceService: Send + Sync + 'static {
    /// The answering server, and whether it should get traffic.
    fn server(&self) -> ServerInfo;

    /// Every version of every model that is known, ready or not, in the order of names and versions.
    fn models(&self) -> Vec<Arc<ModelInfo>>;

    /// One version of a model; without a version the latest that is ready, or else the latest.
    fn model(&self, name: &str, version: Option<u64>) -> Option<Arc<ModelInfo>>;

    /// The versions of a model that are known, ready or not, ascending; empty if there is no such model.
    fn versions(&self, name: &str) -> Vec<u64>;

    /// Counters of one version, of all versions of a model, or of all models; empty if there is no such model.
    fn statistics(&self, of: Option<(&str, Option<u64>)>) -> Vec<ModelStatistics>;

    /// The caller, if it shows what one of these rights takes; asked before anything else of the call is read.
    ///
    /// # Errors
    /// If it is not known, or may not.
    fn authenticate(&self, shown: &Shown<'_>, rights: &'static [Right]) -> Result<Caller, AccessError>;

    /// A caller that was known when its stream began, as it is known by now; asked for each request of the stream.
    ///
    /// # Errors
    /// If it is known no longer, or may not ask models.
    fn reauthenticate(&self, caller: &Caller) -> Result<Caller, AccessError>;

    /// Begins one request of the caller, before it is read; it is in flight until the permit is dropped.
    ///
    /// # Errors
    /// If as many requests as may are in flight, or the caller has used up a quota.
    fn begin_request(&self, caller: &Caller) -> Result<InFlightPermit, InferError>;

    /// The model that gets the next request which names no version: as [`model`](Self::model), unless the requests are
    /// split among versions.
    fn model_for_request(&self, name: &str) -> Option<Arc<ModelInfo>> {
        self.model(name, None)
    }

    /// The shared memory that clients have registered; none where they may not.
    fn shared_regions(&self) -> Option<&SharedRegions> {
        None
    }

    /// Takes notice of a call that was refused before it was given to [`infer`](Self::infer).
    fn refused(&self, call: &RefusedCall<'_>);

    /// Runs one request that was admitted to its outcome, which always comes: by the deadline and the grace that
    /// follows it.
    ///
    /// Dropping the future means that the client has gone, or that its deadline has passed: the request is then
    /// cancelled, or has failed.
    fn infer(&self, request: InferRequest) -> impl Future<Output = Result<InferAnswer, InferError>> + Send;

    /// The models that could be asked for: those known, and those of a repository that are not loaded. The reason why
    /// one cannot be served is shown only to callers that may load models.
    fn index(&self, caller: &Caller) -> impl Future<Output = Result<Vec<IndexEntry>, RepositoryError>> + Send;

    /// Loads a model, if the caller may; answers once the versions that the repository serves are ready.
    fn load_model(
        &self,
        model: &str,
        parameters: BTreeMap<String, Parameter>,
        caller: Caller,
    ) -> impl Future<Output = Result<(), RepositoryError>> + Send;

    /// Unloads all versions of a model, if the caller may; answers once no new request is accepted for it.
    fn unload_model(&self, model: &str, caller: Caller) -> impl Future<Output = Result<(), RepositoryError>> + Send;
}

/// The answering server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Name of the product.
    pub name: String,
    /// Version of the release that runs.
    pub version: String,
    /// The process works; it stays live while it drains.
    pub live: bool,
    /// New requests are welcome.
    pub ready: bool,
}

/// What clients may know about a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Its name, which all its versions share.
    pub name: String,
    /// The version of the model that is served.
    pub version: u64,
    /// This version's name in the cluster.
    pub loaded_as: String,
    /// Inputs and outputs. At least one of each; names are unique.
    pub signature: Signature,
    /// Which input may be given as pictures, and the names of classes.
    pub transforms: Transforms,
    /// Most items in one request, at least 1.
    pub batch_max: u32,
    /// What executes it, for example `onnxruntime_onnx` or `emulated`.
    pub platform: String,
    /// Latency objective.
    pub slo: Nanos,
    /// Under overload it sheds requests by their value.
    pub sheds: bool,
    /// Ready, or why not.
    pub state: ModelState,
    /// What it is besides, if it is a pipeline of models.
    pub pipeline: Option<Arc<PipelineInfo>>,
}

/// What clients may know about a pipeline besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineInfo {
    /// The input that is an encoded picture and nothing else.
    pub picture: Option<String>,
    /// By output: whether an item has any number of its rows, rather than one.
    pub any_rows: Vec<bool>,
    /// The stages, as Triton lists the steps of an ensemble.
    pub steps: Vec<PipelineStep>,
}

/// A stage of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineStep {
    /// The model that it asks.
    pub model: String,
    /// Which version of it; whichever answers requests that name none, if not given.
    pub version: Option<u64>,
    /// Which tensor of the pipeline each input of the model takes.
    pub inputs: BTreeMap<String, String>,
    /// As which tensor of the pipeline each output of the model is known.
    pub outputs: BTreeMap<String, String>,
}

impl ModelInfo {
    /// Whether an input is an encoded picture and nothing else.
    pub(crate) fn takes_only_pictures(&self, input: &str) -> bool {
        self.pipeline.as_ref().is_some_and(|pipeline| pipeline.picture.as_deref() == Some(input))
    }

    /// Whether an item has any number of rows of the output with this place, rather than one.
    pub(crate) fn has_any_rows(&self, output: usize) -> bool {
        self.pipeline.as_ref().is_some_and(|pipeline| pipeline.any_rows.get(output) == Some(&true))
    }

    /// Whether an input that was made for `other` is one for this model, and what it answers is read in the same way. A
    /// name alone says neither: a model may be loaded again under it, and clusters may mean different models by it.
    #[must_use]
    pub fn reads_and_answers_as(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || (self.signature == other.signature && self.transforms == other.transforms)
    }
}

/// Whether a model can be asked, in the words of the repository index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelState {
    /// Requests are accepted.
    Ready,
    /// Backends are loading it.
    Loading,
    /// It is on its way out.
    Unloading,
    /// It could be loaded and is not.
    NotLoaded,
    /// There is no backend to load or run it.
    NoGpu(NoGpu),
    /// It cannot be asked, for this reason.
    Unavailable(String),
}

impl ModelState {
    /// Shown in place of the reason of [`Self::Unavailable`] to callers without the right to know it: it names folders,
    /// and quotes files.
    pub(crate) const KEPT: &str = "cannot be served; the frontend's log says why, or `symphony get models`";

    /// The protocol's word.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Ready => "READY",
            Self::Loading => "LOADING",
            Self::Unloading => "UNLOADING",
            Self::NotLoaded | Self::NoGpu(_) | Self::Unavailable(_) => "UNAVAILABLE",
        }
    }

    /// Why the model cannot be asked; empty if it can or is about to.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Unavailable(reason) => reason,
            Self::NoGpu(why) => why.words(),
            Self::NotLoaded => "not loaded",
            Self::Ready | Self::Loading | Self::Unloading => "",
        }
    }
}

/// A line of the repository's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The model.
    pub name: String,
    /// Its version; none if it cannot be said which it would have.
    pub version: Option<u64>,
    /// Whether it can be asked.
    pub state: ModelState,
}

impl IndexEntry {
    /// The version as the protocol spells it.
    #[must_use]
    pub fn version_text(&self) -> String {
        self.version.map_or_else(String::new, |version| version.to_string())
    }
}

/// A request whose tensors have been checked against the signature of its model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferRequest {
    /// The model as it was when the tensors were checked.
    pub model: Arc<ModelInfo>,
    /// Items, from 1 to the model's `batch_max`.
    pub items: u32,
    /// Inputs in the order of the signature, `items × item_shape` elements each, little-endian, without gaps; without
    /// the one that is given as pictures.
    pub payload: Bytes,
    /// Encoded pictures, one for each item; none if no input is given so.
    pub pictures: Option<Pictures>,
    /// The client's wish about time.
    pub deadline: RequestedDeadline,
    /// Where to report the id under which it was accepted.
    pub receipt: Receipt,
    /// The caller, and its name for the request.
    pub context: RequestContext,
    /// Its value when requests must be shed: the caller's weight, reduced by the parameter `priority`.
    pub weight: RequestValue,
}

/// The caller, and what it sends beside the request itself, for logs and traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestContext {
    /// The caller.
    pub caller: Caller,
    /// Its own id of the request, as far as it is shown; empty if it gave none.
    pub id: String,
    /// The trace that the request belongs to.
    pub trace: Option<TraceContext>,
    /// It is a copy for a shadow: no client waits for its answer, and it is no demand.
    pub is_copy: bool,
}

impl RequestContext {
    /// Of a request that its client calls `id`.
    #[must_use]
    pub fn of(caller: Caller, id: &str, trace: Option<TraceContext>) -> Self {
        Self { caller, id: shorten(id), trace, is_copy: false }
    }
}

/// A call for inference that never became a request: too many are in flight, or it does not fit the protocol or the
/// model.
#[derive(Clone, Copy, Debug)]
pub struct RefusedCall<'a> {
    /// The model, if it is known.
    pub model: Option<&'a ModelInfo>,
    /// What its client calls it.
    pub context: &'a RequestContext,
    /// When it arrived.
    pub arrived: Instant,
    /// Why it is refused.
    pub error: &'a InferError,
}

/// An input that is given as encoded pictures: their headers have been checked, the rest of them has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pictures {
    /// One for each item.
    pub encoded: Vec<Bytes>,
    /// Where in the payload what they become has its place.
    pub at: usize,
    /// Whether each of them takes no more than some milliseconds, by their headers.
    pub quick: bool,
}

/// A client's wish about time. The deadline is the shortest of its words and the model's SLO, counted from `arrived`,
/// unless the request may exceed the SLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedDeadline {
    /// When the first byte of the request had been read. Reading and checking the tensors counts as waiting.
    pub arrived: Instant,
    /// Parameter `timeout`.
    pub timeout: Option<Nanos>,
    /// The gRPC deadline.
    pub grpc: Option<Nanos>,
    /// Header or metadata `x-slo-ms`.
    pub slo: Option<Nanos>,
    /// Parameter `symphony_exceed_slo`: the client's words replace the model's SLO, if it may do that.
    pub exceed_slo: bool,
}

impl RequestedDeadline {
    /// A request that states no deadline.
    #[must_use]
    pub const fn unstated(arrived: Instant) -> Self {
        Self { arrived, timeout: None, grpc: None, slo: None, exceed_slo: false }
    }

    /// The shortest time that the client named, counted from `arrived`.
    #[must_use]
    pub fn shortest(&self) -> Option<Nanos> {
        [self.timeout, self.grpc, self.slo].into_iter().flatten().min()
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferAnswer {
    /// Outputs in the order of the signature, `items × item_shape` elements each, little-endian, without gaps; of a
    /// pipeline as many rows as it says.
    pub payload: Bytes,
    /// Items of the whole batch it ran in.
    pub batch: u32,
    /// Execution time of that batch.
    pub execution: Nanos,
    /// Whether it came by its deadline.
    pub timeliness: Timeliness,
    /// A pipeline's additional answer.
    pub pipeline: Option<PipelineAnswer>,
}

/// What the answer of a pipeline has besides its outputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipelineAnswer {
    /// By output of the signature.
    pub outputs: Vec<OutputRows>,
    /// Rows are missing, since their stage requests were lost or there were too many of them.
    pub is_partial: bool,
    /// What `symphony explain` knows the stage requests as, `STAGE=ID` each: the first ones.
    pub stages: String,
}

/// The rows of an output of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputRows {
    /// How many there are.
    pub count: u32,
    /// Where an item has any number of them: of which item and which rows of the stages before it each one is,
    /// `0.2,0.5,1.0`.
    pub places: Option<String>,
}

/// Whether an answer came by its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeliness {
    /// It did.
    InTime,
    /// It did not, but within the grace that follows.
    Late,
}

/// A parameter of a request, a tensor or a repository call.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(untagged)]
pub enum Parameter {
    /// A truth value.
    Bool(bool),
    /// A whole number that fits 64 bits with a sign.
    Int(i64),
    /// A whole number beyond that.
    Uint(u64),
    /// Any other number.
    Double(f64),
    /// A string.
    Text(String),
}

/// Counters of a model since the process began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelStatistics {
    /// Name of the model, without its version.
    pub model: String,
    /// Its version, from 1.
    pub version: u64,
    /// When the last answer was given, in milliseconds since 1970; 0 if there was none.
    pub last_inference_ms: u64,
    /// Items answered.
    pub inference_count: u64,
    /// Batches run.
    pub execution_count: u64,
    /// Requests answered, from arrival to answer.
    pub success: Span,
    /// Requests that ended otherwise, from arrival to end.
    pub fail: Span,
    /// Waiting before execution.
    pub queue: Span,
    /// Execution.
    pub compute: Span,
    /// Execution by size of batch, ascending.
    pub batches: Vec<(u32, Span)>,
}

/// How often something happened and how long it took in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// How often.
    pub count: u64,
    /// How long in all.
    pub total: Nanos,
}

impl Span {
    /// Of what happens as often beside an execution and takes none of its time: inputs are fetched while another batch
    /// runs, and outputs go out after it. Load generators want as many of either as of executions.
    pub(crate) const fn beside(self) -> Self {
        Self { count: self.count, total: Nanos::ZERO }
    }
}
