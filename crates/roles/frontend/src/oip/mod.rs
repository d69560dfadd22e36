//! The public surface: the Open Inference Protocol v2 over gRPC and REST, with Triton's extensions for raw tensors,
//! repositories, configurations, statistics and shared memory.
//!
//! ```text
//! client ── gRPC ──▶ grpc ─┐ check against        ┌──────────────────┐
//!                          ├─ the signature ────▶ │ InferenceService │  the rest of the frontend
//! client ── HTTP ──▶ rest ─┘ ◀── cut outputs ──── └──────────────────┘
//! ```
//!
//! Owns translation and nothing else: what a request means, whether it fits the model's signature, and which status
//! its end has. It does not schedule, queue, retry, or know where a model runs. It succeeds when clients that were
//! written for other servers notice no difference, and when nothing they send can hurt.
//!
//! **Deadlines.** A request is due at the earliest of the model's SLO, the parameter `timeout` (microseconds), the gRPC
//! deadline and `x-slo-ms`, counted from when its first byte was read. The parameter `symphony_exceed_slo` asks that
//! the client's words replace the SLO. An answer that comes after the deadline is refused like one that never came
//! (504, DEADLINE_EXCEEDED, reason `late`): the deadline is a contract, and the client may have turned to another
//! server. A client that would rather have it sets `symphony_accept_late` and finds `symphony_late` in the answer.
//!
//! **Errors.** [`InferError::error_status`] is the only place that knows status codes. Bodies are
//! `{"error": "…", "reason": "slo_unreachable"}`; over gRPC the reason is in the trailer `symphony-reason`.
//!
//! **Versions.** A request names one, or gets the latest that is ready. Each version is a separate model to the rest of
//! the system, [`ModelInfo::loaded_as`].
//!
//! **Callers.** Every call but for health is made by a [`Caller`], found by the key or the certificate that it shows
//! before its body is read. Where there are no tenants, every caller is served.
//!
//! **Repository.** Loading and unloading, and why a model cannot be served, is for tenants with that right; where there
//! are no tenants, for callers that show the [`Credential`] of the repository.
//!
//! **Shared memory.** Where the configuration allows it, clients of this host may register shared memory of theirs, and
//! have tensors read from it and written to it: Triton's extension `system_shared_memory`.
//!
//! **Pictures and classes.** An input that the model declares as an image may be given as BYTES, one encoded picture
//! for each item; here only their headers are read. An output asked for with `classification` comes as BYTES,
//! `value:index:label`.
//!
//! **Names.** A request that was accepted has an id, whatever becomes of it: `symphony explain` takes it. Answers carry
//! it as the parameter `symphony_request_id`, and answers and errors as the header `symphony-request-id` (metadata of
//! gRPC; an error in a stream as the parameter).

mod access_error;
mod byte_strings;
mod call;
mod caller;
mod classes;
mod credential;
mod error;
mod error_status;
mod grpc;
mod in_flight;
mod inference_service;
mod inputs;
mod json_data;
pub mod limits;
mod outputs;
mod parameters;
mod receipt;
mod refusal_text;
mod rest;
mod serve;
mod shared_memory_calls;
mod shared_regions;
mod typed_data;

pub use access_error::AccessError;
pub use call::CheckedCall;
pub(crate) use caller::{ANY_RIGHT, KnownBy};
pub use caller::{Caller, Shown};
pub use credential::Credential;
pub use error::{InferError, QuotaKind, RepositoryError};
pub use error_status::{ErrorStatus, Fault, Retry};
pub use grpc::{GrpcServer, check_grpc_infer};
pub use in_flight::{InFlightLimit, InFlightPermit};
pub use inference_service::{
    IndexEntry, InferAnswer, InferRequest, InferenceService, ModelInfo, ModelState, ModelStatistics, OutputRows,
    Parameter, Pictures, PipelineAnswer, PipelineInfo, PipelineStep, RefusedCall, RequestContext, RequestedDeadline,
    ServerInfo, Span, Timeliness,
};
pub use limits::Limits;
pub use parameters::{LateAnswer, SLO_HEADER, parse_grpc_timeout, parse_slo_ms};
pub use receipt::Receipt;
pub(crate) use refusal_text::shorten;
pub use rest::{check_rest_infer, rest_router};
pub use serve::{serve_grpc, serve_rest};
pub use shared_regions::{REGIONS_MAX, REGIONS_PER_TENANT_MAX, SharedRegions};
pub(crate) use typed_data::elements;

/// Extensions of the protocol that are always served here, as server metadata names them.
pub const EXTENSIONS: &[&str] =
    &["binary_tensor_data", "classification", "model_configuration", "model_repository", "parameters", "statistics"];

/// The one that is served where the configuration allows it.
pub const SHARED_MEMORY_EXTENSION: &str = "system_shared_memory";

/// The extensions that are served here.
pub(crate) fn extensions<S: InferenceService>(service: &S) -> Vec<&'static str> {
    let shared_memory = service.shared_regions().map(|_| SHARED_MEMORY_EXTENSION);
    EXTENSIONS.iter().copied().chain(shared_memory).collect()
}

/// Parameter of a model's configuration that states its latency objective in milliseconds.
pub const SLO_PARAMETER: &str = symphony_protocol::parameters::SLO_MS;
/// Parameter of a model's configuration that names the input which may be given as pictures: BYTES, JPEG or PNG.
pub const IMAGE_PARAMETER: &str = "image_input";
