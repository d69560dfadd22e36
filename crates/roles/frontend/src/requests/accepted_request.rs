//! A request that was taken in.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use symphony_types::RequestValue;

use crate::clusters::live_pipeline::LivePipeline;
use crate::counts::hop::Hop;
use crate::oip::{ModelInfo, Receipt, RequestContext};
use crate::records::pipeline_memory::StageLog;
use crate::records::{RecordKind, RequestSpan};

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

/// What a request is in the counts.
pub(super) enum RequestKind {
    /// A client's, for a model.
    Model,
    /// A client's, for a pipeline: no batch is its own, but its stage requests'.
    Pipeline(StageLog),
    /// Part of a pipeline's, which is counted.
    Stage(StagePart),
}

/// Of which request a stage request is a part, and which one.
pub(super) struct StagePart {
    pub(super) pipeline: Arc<LivePipeline>,
    pub(super) stage: usize,
    /// Since the result that led here; none for the source.
    pub(super) hop: Option<Hop>,
    /// Stage requests of the same request that are open.
    pub(super) open: Arc<AtomicUsize>,
}

impl RequestKind {
    pub(super) fn recorded(&self) -> RecordKind<'_> {
        match self {
            Self::Model => RecordKind::Model,
            Self::Pipeline(_) => RecordKind::Pipeline,
            Self::Stage(part) => RecordKind::Stage(part.pipeline.stage_name(part.stage)),
        }
    }
}
