//! One request: admitted, tried in a cluster, and given its outcome.

use std::sync::Arc;

use super::admission::Admission;
use super::request_guard::RequestGuard;
use crate::frontend::Inner;
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
