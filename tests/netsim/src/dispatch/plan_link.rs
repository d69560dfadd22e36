//! Where the plans of a sealed GPU go.

use symphony_protocol::execute::{Execute, PlannedRequest, ToBackend};
use symphony_transport::{LinkSender, SendError};
use symphony_types::{BootId, GpuId, ModelId, Nanos, Token};

/// The link to a GPU that has promised a lead's token.
pub(super) struct PlanLink {
    pub(super) gpu: GpuId,
    pub(super) token: Token,
    /// Of its backend.
    pub(super) boot: BootId,
    /// Of the next plan.
    pub(super) sequence: u64,
    pub(super) sender: LinkSender<ToBackend>,
}

impl PlanLink {
    /// Sends the next plan.
    ///
    /// # Errors
    /// If the link has ended, or its queue is full.
    pub(super) fn send(
        &self,
        (start_in, latency): (Nanos, Nanos),
        requests: Vec<PlannedRequest>,
    ) -> Result<(), SendError> {
        let Self { gpu, token, boot: backend_boot, sequence, .. } = *self;
        let (start_in, latency, model) = (start_in.get(), latency.get(), ModelId::new(0));
        let plan = Execute { gpu, token, backend_boot, sequence, start_in, latency, model, requests };
        self.sender.send(ToBackend::Execute(plan))
    }
}
