//! Linked frontends, and the outcomes sent to them.

use symphony_protocol::dispatch::{EndReason, ToFrontend};
use symphony_scheduler::ModelInput;
use symphony_transport::LinkSender;
use symphony_types::{BootId, DropReason, FrontendId, RequestId, Time};

use super::ModelWorker;
use crate::workers::counters::count;
use crate::workers::messages::Peer;

pub(super) struct FrontendPeer {
    pub(super) link: Peer,
    pub(super) sender: LinkSender<ToFrontend>,
    pub(super) ended: Vec<(u64, EndReason)>,
}

impl ModelWorker {
    pub(super) fn is_linked(&self, peer: Peer) -> bool {
        self.frontends.get(&peer.frontend).is_some_and(|linked| linked.link == peer)
    }

    /// A frontend links or relinks. Its former link is over from here on, whenever its end is reported.
    pub(super) fn link(&mut self, now: Time, peer: Peer, sender: LinkSender<ToFrontend>) {
        let former = self.frontends.get(&peer.frontend).map(|linked| linked.link);
        if former.is_some_and(|former| former.link > peer.link) {
            return;
        }
        if let Some(former) = former {
            self.withdraw(now, former.frontend, former.boot);
        }
        self.frontends.insert(peer.frontend, FrontendPeer { link: peer, sender, ended: Vec::new() });
    }

    /// A frontend has left: its queued requests are removed, and it announces again those that it still wants.
    pub(super) fn withdraw(&mut self, now: Time, frontend: FrontendId, boot: BootId) {
        self.drop_waiting(|id| id.frontend == frontend && id.boot == boot);
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some() {
                self.step(now, slot, ModelInput::Withdraw { frontend, boot });
            }
        }
    }

    pub(super) fn end(&mut self, id: RequestId, reason: EndReason) {
        match reason {
            EndReason::Dropped(reason) => {
                count(&self.metrics.counters.dropped_requests, 1);
                count(&self.metrics.counters.shed_requests, u64::from(reason == DropReason::Shed));
            }
            EndReason::Failed(_) => count(&self.metrics.counters.failed_requests, 1),
        }
        if let Some(peer) = self.frontends.get_mut(&id.frontend).filter(|peer| peer.link.boot == id.boot) {
            peer.ended.push((id.sequence, reason));
            self.ended = true;
        }
    }

    pub(super) fn send_outcomes(&mut self) {
        if !std::mem::take(&mut self.ended) {
            return;
        }
        for (frontend, peer) in &mut self.frontends {
            if peer.ended.is_empty() {
                continue;
            }
            let requests = std::mem::take(&mut peer.ended);
            if let Err(error) = peer.sender.send(ToFrontend::Ended { requests }) {
                tracing::debug!(%frontend, %error, "outcomes not sent; the frontend ends these requests by itself");
            }
        }
    }
}
