//! The interface for observers of events in the virtual cluster.

use symphony_scheduler::{DropCause, Plan, Request};
use symphony_types::{DropReason, GpuId, Time};

use crate::gpus::Run;
use crate::pipelines::StageSpan;

/// Sees events as they happen. The world is compiled for each watcher, so one that ignores everything costs nothing.
pub(crate) trait Watch {
    /// A request arrived, or came back from a GPU.
    #[inline]
    fn queued(&mut self, _now: Time, _model: u32) {}
    /// The policy dropped a request.
    #[inline]
    fn dropped(
        &mut self,
        _now: Time,
        _model: u32,
        _request: &Request,
        _reason: DropReason,
        _cause: Option<&DropCause>,
    ) {
    }
    /// A pipeline withdrew a request that the policy held.
    #[inline]
    fn withdrawn(&mut self, _now: Time, _model: u32) {}
    /// A stage request of a pipeline, or a whole request, has ended.
    #[inline]
    fn stage(&mut self, _span: StageSpan) {}
    /// The policy sent a plan.
    #[inline]
    fn planned(&mut self, _now: Time, _model: u32, _plan: &Plan, _requests: &[Request]) {}
    /// A plan has ended; `cut` if it was stopped early. `late` of its requests were answered too late.
    #[inline]
    fn ran(&mut self, _run: &Run, _late: u32, _cut: bool) {}
    /// A GPU failed or recovered.
    #[inline]
    fn gpu(&mut self, _now: Time, _gpu: GpuId, _up: bool) {}
}

/// Ignores all events.
impl Watch for () {}
