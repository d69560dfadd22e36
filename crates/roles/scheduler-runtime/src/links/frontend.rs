//! The leader's side of the dispatch link: each frontend connects for one sub-cluster under one token.

use std::sync::Arc;

use symphony_net::{Connection, Incoming, PeerInfo, Role};
use symphony_protocol::dispatch::{ANNOUNCED_REQUESTS_MAX, EndReason, RequestHeader, ToFrontend, ToLeader};
use symphony_protocol::view::View;
use symphony_transport::{HELLO_WITHIN, LinkReceiver, LinkSender, link_over};
use symphony_types::{DropReason, FrontendId, Token};
use tokio_util::sync::CancellationToken;

use crate::lead::leads::{HelloAnswer, Leads};
use crate::lead::subcluster::Lead;
use crate::workers::messages::{ModelMessage, Peer};

/// Accepts frontends until cancelled.
pub(crate) async fn accept_frontends(mut incoming: Incoming, leads: Arc<Leads>, ended: CancellationToken) {
    loop {
        tokio::select! {
            () = ended.cancelled() => return,
            accepted = incoming.next() => match accepted {
                Some(frontend) => drop(tokio::spawn(serve(frontend, Arc::clone(&leads)))),
                None => return,
            },
        }
    }
}

/// Whether the peer is the frontend that it claims to be. A frontend that this replica does not know yet retries
/// shortly.
fn is(peer: &PeerInfo, view: &View, frontend: FrontendId) -> bool {
    let name = view.frontends.get(&frontend).map_or("", |frontend| frontend.name.as_str());
    peer.may_be(Role::Frontend, name)
}

async fn serve(connection: Connection, leads: Arc<Leads>) {
    let peer = connection.peer().clone();
    let (sender, mut receiver) = link_over::<ToFrontend, ToLeader>(connection);
    let hello = match tokio::time::timeout(HELLO_WITHIN, receiver.receive()).await {
        Ok(Ok(frame)) => frame.message,
        Ok(Err(error)) => return tracing::debug!(%error, "dispatch link refused"),
        Err(_) => return tracing::debug!(%peer, "dispatch link said no hello"),
    };
    let ToLeader::Hello { frontend, boot, subcluster, token } = hello else {
        return tracing::debug!(%peer, "dispatch link did not begin with hello");
    };
    if !is(&peer, &leads.view.borrow(), frontend) {
        return tracing::warn!(%peer, %frontend, "a frontend presents another one's id, or an unknown one");
    }
    let refusal = match leads.answer_hello(subcluster, token).await {
        HelloAnswer::Leads(lead) => Ok(lead),
        HelloAnswer::NotLeader(token) => Err(ToFrontend::NotLeader { token }),
        HelloAnswer::Suspended => Err(ToFrontend::Suspended),
    };
    let lead = match refusal {
        Ok(lead) => lead,
        Err(refusal) => {
            let _ = sender.send(refusal);
            return;
        }
    };
    if sender.send(ToFrontend::Welcome { token }).is_err() {
        return;
    }
    let peer = Peer { frontend, boot, link: lead.workers.number() };
    lead.workers.send_to_all(|| ModelMessage::Frontend { peer, sender: sender.clone() });
    tracing::debug!(%frontend, %subcluster, "frontend linked");
    let watched = receiver.watch(lead.echo);
    let link = FrontendLink { peer, token, lead: Arc::clone(&lead), sender };
    tokio::select! {
        // Copies of the sender may remain in the inbox of a stopped worker; the frontend must learn of the end anyway.
        () = lead.ended.cancelled() => {
            if lead.workers.have_failed() {
                let _ = link.sender.send(ToFrontend::Panicked);
            }
            link.sender.close();
        }
        never = lead.stuck_links.track(watched) => match never {},
        () = link.receive(&mut receiver) => lead.workers.send_to_all(|| ModelMessage::FrontendGone { peer }),
    }
}

struct FrontendLink {
    peer: Peer,
    token: Token,
    lead: Arc<Lead>,
    sender: LinkSender<ToFrontend>,
}

impl FrontendLink {
    async fn receive(&self, receiver: &mut LinkReceiver<ToLeader>) {
        loop {
            let message = match receiver.receive().await {
                Ok(frame) => frame.message,
                Err(error) => return tracing::debug!(%error, frontend = %self.peer.frontend, "dispatch link ended"),
            };
            match message {
                ToLeader::Announce { requests, .. } | ToLeader::Redrive { requests, .. }
                    if requests.len() > ANNOUNCED_REQUESTS_MAX =>
                {
                    return self.end_too_long(requests.len());
                }
                ToLeader::Cancel { requests } if requests.len() > ANNOUNCED_REQUESTS_MAX => {
                    return self.end_too_long(requests.len());
                }
                ToLeader::Announce { token, requests } if token == self.token => self.announce(requests, false),
                ToLeader::Redrive { token, requests, .. } if token == self.token => self.announce(requests, true),
                ToLeader::Cancel { requests } => {
                    // The end of the link withdraws everything of this frontend, the cancelled requests included; it
                    // announces the rest again.
                    if !self.cancel(requests) {
                        return tracing::warn!(frontend = %self.peer.frontend, "cancels come faster than they are taken");
                    }
                }
                ToLeader::Announce { token, .. } | ToLeader::Redrive { token, .. } => {
                    return tracing::warn!(frontend = %self.peer.frontend, %token, mine = %self.token, "foreign token");
                }
                ToLeader::Hello { .. } => return tracing::warn!(frontend = %self.peer.frontend, "second hello"),
            }
        }
    }

    /// Hands requests to their workers; one clock reading serves the whole frame.
    fn announce(&self, requests: Vec<RequestHeader>, redriven: bool) {
        let received = self.lead.workers.clock.now();
        let workers = &self.lead.workers;
        for (requests, inbox) in shares(requests, workers.models.len(), |r| r.model).zip(workers.models.iter()) {
            if requests.is_empty() {
                continue;
            }
            let message = ModelMessage::Announce { peer: self.peer, received, requests, redriven };
            if let Err(ModelMessage::Announce { requests, .. }) = inbox.try_push(message) {
                let full = EndReason::Dropped(DropReason::QueueFull);
                let requests = requests.into_iter().map(|r| (r.sequence, full)).collect();
                let _ = self.sender.send(ToFrontend::Ended { requests });
            }
        }
    }

    fn end_too_long(&self, length: usize) {
        let max = ANNOUNCED_REQUESTS_MAX;
        tracing::warn!(frontend = %self.peer.frontend, length, max, "a frame of too many requests");
    }

    /// False if the workers do not keep up.
    fn cancel(&self, requests: Vec<(u64, u32)>) -> bool {
        let Peer { frontend, boot, .. } = self.peer;
        let workers = &self.lead.workers;
        shares(requests, workers.models.len(), |&(_, model)| model).zip(workers.models.iter()).all(
            |(requests, inbox)| {
                requests.is_empty() || inbox.try_push(ModelMessage::Cancel { frontend, boot, requests }).is_ok()
            },
        )
    }
}

/// Divides a frame's entries among `workers` workers by model. With one worker nothing is moved.
fn shares<T>(all: Vec<T>, workers: usize, model: impl Fn(&T) -> u32) -> impl Iterator<Item = Vec<T>> {
    let mut shares: Vec<Vec<T>> = Vec::with_capacity(workers);
    if workers == 1 {
        shares.push(all);
        return shares.into_iter();
    }
    shares.resize_with(workers, Vec::new);
    for one in all {
        let share = model(&one) as usize % workers;
        shares[share].push(one);
    }
    shares.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_gets_what_is_about_its_models_in_order() {
        let of = |workers| shares(vec![3, 1, 4, 1, 5], workers, |&model| model).collect::<Vec<_>>();
        assert_eq!(of(1), [[3, 1, 4, 1, 5]]);
        assert_eq!(of(2), [vec![4], vec![3, 1, 1, 5]]);
        assert_eq!(of(4), [vec![4], vec![1, 1, 5], vec![], vec![3]]);
    }
}
