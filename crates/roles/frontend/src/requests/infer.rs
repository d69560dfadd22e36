//! One request: admitted, tried in a cluster, and given its outcome.

use std::sync::Arc;

use super::admission::Admission;
use super::attempt::Attempt;
use super::attempt_end::AttemptEnd;
use super::cluster_selection::Target;
use super::input::Input;
use super::pending_input::run_until_ready;
use super::request_guard::RequestGuard;
use crate::inner::Inner;
use crate::oip::{InferAnswer, InferError, InferRequest};

impl Inner {
    pub(crate) async fn infer(self: &Arc<Self>, request: InferRequest) -> Result<InferAnswer, InferError> {
        if request.model.pipeline.is_some() {
            return Box::pin(self.infer_by_stages(request)).await;
        }
        let Admission { request, target, mut input } = self.admit(request)?;
        let mut guard = RequestGuard::accept(self, &request);
        let mut end = guard.attempt(&target, &mut input, &[]).await;
        if end.may_run_elsewhere() {
            // Rare, and not to make the future of every request larger.
            end = Box::pin(guard.fail_over(&target, &mut input)).await;
        }
        guard.end(end)
    }
}

impl RequestGuard<'_> {
    /// Tries the request in one cluster, after those in the slots `tried`.
    pub(super) async fn attempt(&mut self, target: &Target, input: &mut Input, tried: &[usize]) -> AttemptEnd {
        let mut attempt = Attempt::submit(self, target, input, tried);
        if input.is_pending() {
            // Few requests have pictures: the future of every other one does not grow for them.
            if let Some(end) = Box::pin(run_until_ready(&mut attempt, input)).await {
                return end;
            }
        }
        attempt.end().await
    }
}
