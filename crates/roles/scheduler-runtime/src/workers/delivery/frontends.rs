//! Linked frontends, and the outcomes sent to them.

use symphony_protocol::dispatch::{EndReason, ToFrontend};
use symphony_transport::LinkSender;
use symphony_types::{BootId, DropReason, FailReason, FrontendId, RequestId};

use super::Delivery;
use crate::workers::counters::count;
use crate::workers::messages::Peer;

pub(super) struct FrontendPeer {
    pub(super) link: Peer,
    pub(super) sender: LinkSender<ToFrontend>,
    pub(super) ended: Vec<(u64, EndReason)>,
}

impl Delivery {
    pub(super) fn is_linked(&self, peer: Peer) -> bool {
        self.frontends.get(&peer.frontend).is_some_and(|linked| linked.link == peer)
    }

    /// A frontend links or relinks. Its former link is over from here on, whenever its end is reported: returns whose
    /// requests are to be withdrawn.
    pub(super) fn link(&mut self, peer: Peer, sender: LinkSender<ToFrontend>) -> Option<(FrontendId, BootId)> {
        let former = self.frontends.get(&peer.frontend).map(|linked| linked.link);
        if former.is_some_and(|former| former.link > peer.link) {
            return None;
        }
        self.frontends.insert(peer.frontend, FrontendPeer { link: peer, sender, ended: Vec::new() });
        former.map(|former| (former.frontend, former.boot))
    }

    /// A link has ended. False if another one has taken its place.
    pub(super) fn unlink(&mut self, peer: Peer) -> bool {
        let linked = self.is_linked(peer);
        if linked {
            self.frontends.remove(&peer.frontend);
        }
        linked
    }

    pub(crate) fn end(&mut self, id: RequestId, reason: EndReason) {
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

    /// A request for a model that is not served here.
    pub(crate) fn end_unserved(&mut self, id: RequestId) {
        self.end(id, EndReason::Failed(FailReason::ModelNotReady));
    }

    pub(crate) fn send_outcomes(&mut self) {
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

/// The reason for a dropped request. If no GPU serves the model it is not overload, and a longer deadline would not
/// have helped.
pub(crate) const fn end_reason(reason: DropReason, lost: bool) -> EndReason {
    match reason {
        DropReason::SloUnreachable | DropReason::ProtectBatch | DropReason::QueueExpired | DropReason::Shed if lost => {
            EndReason::Failed(FailReason::NoGpu)
        }
        reason => EndReason::Dropped(reason),
    }
}
