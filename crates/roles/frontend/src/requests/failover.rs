//! In a federation: a request that its cluster does not serve is tried in the others.

use std::time::Instant;

use symphony_types::FailReason;

use super::attempt_end::AttemptEnd;
use super::cluster_selection::Target;
use super::input::Input;
use super::request_guard::RequestGuard;
use super::request_table::Ending;
use crate::oip::ModelState;

impl RequestGuard<'_> {
    /// Tries cluster after cluster, each once, until one of them ends the request or its time is up.
    pub(super) async fn fail_over(&mut self, first: &Target, input: &mut Input) -> AttemptEnd {
        let model = &self.request.model;
        let mut tried = vec![first.slot];
        loop {
            if Instant::now() >= self.request.deadline {
                return AttemptEnd::Unanswered;
            }
            let next = self.inner.select_cluster(&model.loaded_as, Some(model), &tried);
            let Some(next) = next.filter(|next| next.route.info.state == ModelState::Ready) else {
                return AttemptEnd::Settled(Ending::NotHere);
            };
            // Nothing new in a cluster that drains the frontend.
            if next.cluster.is_cordoned() {
                return AttemptEnd::failed(FailReason::Draining);
            }
            let end = self.attempt(&next, input, &tried).await;
            if !end.may_run_elsewhere() {
                return end;
            }
            tried.push(next.slot);
        }
    }
}
