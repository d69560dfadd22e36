//! A request that was taken in.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use symphony_types::RequestValue;

use crate::oip::{ModelInfo, Receipt, RequestContext};
use crate::records::RequestSpan;

/// What stays the same from a request's acceptance to its outcome.
pub(super) struct AcceptedRequest {
    /// As it was when the inputs were checked.
    pub(super) model: Arc<ModelInfo>,
    pub(super) items: u32,
    pub(super) arrived: Instant,
    pub(super) deadline: Instant,
    /// What it is worth when some must be shed.
    pub(super) weight: RequestValue,
    pub(super) receipt: Receipt,
    pub(super) context: RequestContext,
    /// When it had been taken in.
    pub(super) admitted: Instant,
    /// Its span, if it is traced.
    pub(super) span: Option<RequestSpan>,
    pub(super) kind: RequestKind,
}

/// What a request is in the accounts.
pub(super) enum RequestKind {
    /// A client's, for a model.
    Model,
    /// A client's, for a pipeline: no batch is its own.
    Pipeline,
    /// Part of a pipeline's, which is counted: so many of its stage requests are open.
    Stage(Arc<AtomicUsize>),
}
