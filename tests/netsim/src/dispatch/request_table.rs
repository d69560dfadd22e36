//! The requests of a frontend that wait for their answers, and the links to the leaders that they are announced to.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use symphony_pipeline::AskId;
use symphony_protocol::dispatch::{RequestHeader, ToLeader};
use symphony_protocol::view::View;
use symphony_transport::LinkSender;
use symphony_types::{BootId, FrontendId, Nanos, RequestId, SubclusterId, Token};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::plant::Plant;

/// A stage request: of which run, and which one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) run: u64,
    pub(super) ask: AskId,
}

/// A request that waits for its answer.
pub(super) struct Waiting {
    pub(super) subcluster: SubclusterId,
    pub(super) until: Instant,
    pub(super) in_peace: bool,
    /// What it is of a request for the pipeline.
    pub(super) part: Option<Part>,
}

/// The requests of a frontend without an answer, and its links.
pub(super) struct RequestTable {
    cluster: Cluster,
    me: (FrontendId, BootId),
    views: watch::Receiver<Arc<View>>,
    requests: RefCell<BTreeMap<u64, Waiting>>,
    links: RefCell<BTreeMap<SubclusterId, (Token, LinkSender<ToLeader>)>>,
    /// Of the last request.
    sequence: Cell<u64>,
}

impl RequestTable {
    pub(super) fn new(cluster: Cluster, me: (FrontendId, BootId), views: watch::Receiver<Arc<View>>) -> Self {
        Self { cluster, me, views, requests: RefCell::default(), links: RefCell::default(), sequence: Cell::new(0) }
    }

    pub(super) fn subclusters(&self) -> Vec<SubclusterId> {
        self.views.borrow().subclusters.keys().copied().collect()
    }

    /// A leader hears of requests from now on, beginning with all of its sub-cluster.
    pub(super) fn linked(&self, subcluster: SubclusterId, token: Token, link: LinkSender<ToLeader>) {
        let again = ToLeader::Redrive { token, requests: self.unanswered(subcluster), last: true };
        // A link that has ended is noticed by the task that reads it.
        let _ = link.send(again);
        self.links.borrow_mut().insert(subcluster, (token, link));
    }

    pub(super) fn unlinked(&self, subcluster: SubclusterId) {
        self.links.borrow_mut().remove(&subcluster);
    }

    fn unanswered(&self, subcluster: SubclusterId) -> Vec<RequestHeader> {
        let requests = self.requests.borrow();
        let of_it = requests.iter().filter(|(_, waiting)| waiting.subcluster == subcluster);
        of_it.map(|(&sequence, waiting)| header(sequence, waiting.until, 2)).collect()
    }

    /// Its number.
    pub(super) fn submit(&self, waiting: Waiting) -> u64 {
        let sequence = self.sequence.get() + 1;
        self.sequence.set(sequence);
        let Waiting { subcluster, until, .. } = waiting;
        self.requests.borrow_mut().insert(sequence, waiting);
        if let Some((token, link)) = self.links.borrow().get(&subcluster) {
            // A link that has ended is replaced by one on which everything is asked again.
            let _ = link.send(ToLeader::Announce { token: *token, requests: vec![header(sequence, until, 1)] });
        }
        sequence
    }

    /// Asks a stage of the pipeline; each is in a sub-cluster of its own.
    pub(super) fn submit_stage(&self, stage: usize, until: Instant, part: Part) -> u64 {
        let known = self.subclusters();
        // Without any it waits in vain.
        let subcluster = known.get(stage % known.len().max(1)).copied().unwrap_or_default();
        self.submit(Waiting { subcluster, until, in_peace: false, part: Some(part) })
    }

    /// The request if it has no end, which it has from now on.
    pub(super) fn take(&self, sequence: u64) -> Option<Waiting> {
        self.requests.borrow_mut().remove(&sequence)
    }

    /// Takes a request back from its leader, too.
    pub(super) fn withdraw(&self, sequence: u64) {
        let Some(waiting) = self.take(sequence) else { return };
        let (frontend, boot) = self.me;
        let request = RequestId { frontend, boot, sequence };
        self.cluster.withdrawn.borrow_mut().insert(request, self.sequence.get());
        if self.cluster.plants.has(Plant::CancelsUnsent) {
            return;
        }
        if let Some((_, link)) = self.links.borrow().get(&waiting.subcluster) {
            let _ = link.send(ToLeader::Cancel { requests: vec![(sequence, 0)] });
        }
    }

    /// The requests whose deadline has passed.
    pub(super) fn expired(&self, now: Instant) -> Vec<u64> {
        let requests = self.requests.borrow();
        requests.iter().filter(|(_, waiting)| now > waiting.until).map(|(&sequence, _)| sequence).collect()
    }

    /// Stage requests of a run that wait.
    pub(super) fn open_of(&self, run: u64) -> usize {
        self.requests.borrow().values().filter(|waiting| waiting.part.is_some_and(|part| part.run == run)).count()
    }
}

fn header(sequence: u64, until: Instant, attempt: u32) -> RequestHeader {
    let budget = Nanos::from(until.saturating_duration_since(Instant::now())).get();
    RequestHeader { sequence, model: 0, items: 1, budget, attempt, weight: 1000 }
}
