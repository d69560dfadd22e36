//! The requests that this frontend owns: input, deadline, and the one place where each gets its outcome.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use symphony_protocol::data::BatchRun;
use symphony_protocol::dispatch::EndReason;
use symphony_transport::{PlacedInput, SharedInputs};
use symphony_types::{BackendId, FailReason, Invariant, ModelId, RequestValue, SubclusterId, Token};
use tokio::sync::oneshot;

use crate::counts::hop::Hop;

/// Parts of the table that are locked apart: enough that a few worker threads rarely meet.
const SHARDS: usize = 16;

/// How a request ended, as sent to its waiter.
#[derive(Debug)]
pub(crate) enum Ending {
    /// A result.
    Answer {
        payload: Bytes,
        batch: u32,
        execution_ns: u64,
        /// When it arrived; decides whether it is late.
        at: Instant,
        /// Which batch that was, and when.
        run: BatchRun,
        /// Where it ran.
        backend: Option<BackendId>,
    },
    /// No result: the scheduler or a backend dropped or failed it.
    NoResult(EndReason),
    /// The cluster does not serve its model, or not any more. No backend there was given its input and none will be: it
    /// has not run, and may go to another cluster (invariant F1).
    NotHere,
}

/// An accepted request without an outcome.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    pub(crate) model: ModelId,
    pub(crate) subcluster: SubclusterId,
    pub(crate) items: u32,
    pub(crate) weight: RequestValue,
    pub(crate) payload: Payload,
    /// The input once more, where backends of this host read it; gone with this.
    pub(crate) shared: Option<PlacedInput>,
    pub(crate) deadline: Instant,
    /// It must not be announced before [`RequestTable::end_withholding`]: its pictures wait for a thread.
    pub(crate) withheld: bool,
    /// The leader's token under which it was announced last; zero before.
    pub(crate) announced: Token,
    pub(crate) attempt: u32,
    /// Leads that had it and panicked.
    pub(crate) panics: u32,
    /// A backend was given its input, so it may have run.
    pub(crate) read: bool,
    /// It is a stage request of a pipeline's request, which is counted and has the outcome.
    pub(crate) is_stage: bool,
    /// Ends when it is first announced to a leader; none of what no result led to.
    pub(crate) hop: Option<Hop>,
    pub(crate) waiter: oneshot::Sender<Ending>,
}

/// A request's input.
#[derive(Debug)]
pub(crate) enum Payload {
    Here(Bytes),
    /// It is being made, and these wait for it. They are dropped with the request at its end.
    Pending(Vec<oneshot::Sender<Bytes>>),
}

/// Reads of one input that wait for it: a plan reads it once, and few plans are made for one request.
const WAITING_MAX: usize = 16;

/// A request that was with this many leads which panicked is announced to no further one. The first may have panicked
/// for any reason; if the second one does too, it may well be the request.
const PANICS_MAX: u32 = 2;

/// A request's header, for a leader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announcement {
    pub(crate) sequence: u64,
    pub(crate) model: ModelId,
    pub(crate) items: u32,
    pub(crate) weight: RequestValue,
    pub(crate) deadline: Instant,
    pub(crate) attempt: u32,
}

#[derive(Debug, Default)]
pub(crate) struct RequestTable {
    shards: [Mutex<HashMap<u64, OpenRequest>>; SHARDS],
    next: AtomicU64,
    len: AtomicUsize,
    stages: AtomicUsize,
}

impl RequestTable {
    fn shard(&self, sequence: u64) -> std::sync::MutexGuard<'_, HashMap<u64, OpenRequest>> {
        self.shards[sequence as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests without an outcome. Requests for a pipeline count once, whatever stages they ask.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Stage requests without an end.
    pub(crate) fn stages(&self) -> usize {
        self.stages.load(Ordering::Relaxed)
    }

    /// Whether nothing is open, stage requests of pipelines that other clusters have included.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0 && self.stages() == 0
    }

    fn count(&self, pending: &OpenRequest) -> &AtomicUsize {
        if pending.is_stage { &self.stages } else { &self.len }
    }

    /// Takes a request in and numbers it. Numbers are never used again.
    pub(crate) fn insert(&self, pending: OpenRequest) -> u64 {
        let sequence = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.count(&pending).fetch_add(1, Ordering::Relaxed);
        self.shard(sequence).insert(sequence, pending);
        sequence
    }

    /// Ends a request. False if it has its outcome already: only the first one counts.
    pub(crate) fn end(&self, sequence: u64, ending: Ending) -> bool {
        let Some(pending) = self.remove(sequence) else { return false };
        let ending = match ending {
            Ending::NoResult(EndReason::Failed(FailReason::ModelNotReady)) if !pending.read => leaves(&pending),
            ending => ending,
        };
        // The waiter may have given up in this moment; then its own end counts, and there is no one to notify.
        let _ = pending.waiter.send(ending);
        true
    }

    pub(crate) fn remove(&self, sequence: u64) -> Option<OpenRequest> {
        let removed = self.shard(sequence).remove(&sequence);
        if let Some(pending) = &removed {
            self.count(pending).fetch_sub(1, Ordering::Relaxed);
        }
        removed
    }

    /// The input, for a backend that is about to run the request.
    pub(crate) fn payload(&self, sequence: u64) -> Option<Bytes> {
        let mut shard = self.shard(sequence);
        let pending = shard.get_mut(&sequence)?;
        pending.read = true;
        match &pending.payload {
            Payload::Here(payload) => Some(payload.clone()),
            Payload::Pending(_) => None,
        }
    }

    /// What gives the input of a request once it is made. None if the request has its outcome.
    pub(crate) fn pending_input(&self, sequence: u64) -> Option<oneshot::Receiver<Bytes>> {
        let mut shard = self.shard(sequence);
        let pending = shard.get_mut(&sequence)?;
        let (sender, receiver) = oneshot::channel();
        match &mut pending.payload {
            // It was made between two questions.
            Payload::Here(payload) => drop(sender.send(payload.clone())),
            Payload::Pending(waiting) if waiting.len() < WAITING_MAX => waiting.push(sender),
            Payload::Pending(_) => return None,
        }
        Some(receiver)
    }

    /// The input of a request has been made, and is given to all that wait for it. The request may have its outcome.
    /// True if it has not been asked for yet.
    pub(crate) fn supply(&self, sequence: u64, payload: &Bytes) -> bool {
        let mut shard = self.shard(sequence);
        let Some(pending) = shard.get_mut(&sequence) else { return false };
        pending.supply(payload);
        !pending.read
    }

    /// Ends those requests for the model whose input was not given to a backend, as [`Ending::NotHere`]: with them the
    /// input is gone, so none of them can run here any more. The others stay, since they may have run. Returns the
    /// numbers of those that go, and the sub-cluster whose leader may know of each; none of what was withheld.
    pub(crate) fn withdraw_unread(&self, model: ModelId) -> Vec<(u64, Option<SubclusterId>)> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let here = shard.extract_if(|_, pending| pending.model == model && !pending.read);
            taken.extend(here);
        }
        let end = |(sequence, pending): (u64, OpenRequest)| {
            self.count(&pending).fetch_sub(1, Ordering::Relaxed);
            let ending = leaves(&pending);
            let _ = pending.waiter.send(ending);
            (sequence, (!pending.withheld).then_some(pending.subcluster))
        };
        taken.into_iter().map(end).collect()
    }

    /// Puts the input where backends of this host read it, if any do; from then on it counts as read, since they do not
    /// ask for it (invariant F1). The request may end meanwhile.
    pub(crate) fn share(&self, sequence: u64, inputs: &SharedInputs) {
        if inputs.readers() == 0 || self.is_coming(sequence) {
            return;
        }
        // The copy is made while the table is not locked.
        let placed = self.payload(sequence).and_then(|payload| inputs.put(sequence, &payload));
        if let Some(pending) = self.shard(sequence).get_mut(&sequence) {
            pending.shared = placed;
        }
    }

    fn is_coming(&self, sequence: u64) -> bool {
        self.shard(sequence).get(&sequence).is_some_and(|pending| matches!(pending.payload, Payload::Pending(_)))
    }

    /// A request that was withheld may be announced, to where its model is now. Its input, if it has been made by now,
    /// is stored before any process learns of the request. False if it has its outcome.
    pub(crate) fn end_withholding(
        &self,
        sequence: u64,
        model: ModelId,
        subcluster: SubclusterId,
        made: Option<&Bytes>,
    ) -> bool {
        let mut shard = self.shard(sequence);
        let Some(pending) = shard.get_mut(&sequence) else { return false };
        (pending.model, pending.subcluster, pending.withheld) = (model, subcluster, false);
        if let Some(payload) = made {
            pending.supply(payload);
        }
        true
    }

    /// Marks a request as announced under `token`. None if it has its outcome, was announced under it before, or is
    /// withheld.
    pub(crate) fn announce(&self, sequence: u64, token: Token) -> Option<Announcement> {
        let mut shard = self.shard(sequence);
        let pending = shard.get_mut(&sequence).filter(|pending| !pending.withheld && pending.announced != token)?;
        Some(pending.announce(sequence, token))
    }

    /// A leader does not serve the request's model: it is to be announced elsewhere, or again. None if it has its
    /// outcome; else its model, its deadline, and how often it was announced.
    pub(crate) fn begin_reroute(&self, sequence: u64) -> Option<(ModelId, Instant, u32)> {
        let mut shard = self.shard(sequence);
        let pending = shard.get_mut(&sequence)?;
        pending.announced = Token::default();
        Some((pending.model, pending.deadline, pending.attempt))
    }

    /// Sends the request to another sub-cluster, chosen by where it was. None if it has its outcome.
    pub(crate) fn redirect(
        &self,
        sequence: u64,
        choose: impl FnOnce(SubclusterId) -> SubclusterId,
    ) -> Option<SubclusterId> {
        let mut shard = self.shard(sequence);
        let pending = shard.get_mut(&sequence)?;
        pending.subcluster = choose(pending.subcluster);
        Some(pending.subcluster)
    }

    /// The lead under `token` has panicked. Ends those of its requests that were with another one before which did:
    /// each time around would cost all others in the sub-cluster a hand-over. Returns how many.
    pub(crate) fn panicked(&self, subcluster: SubclusterId, token: Token) -> usize {
        let mut blamed = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let was_announced = |pending: &OpenRequest| pending.is_for(subcluster) && pending.announced == token;
            for (&sequence, pending) in shard.iter_mut().filter(|(_, pending)| was_announced(pending)) {
                pending.panics += 1;
                if pending.panics >= PANICS_MAX {
                    blamed.push(sequence);
                }
            }
        }
        let failed = || Ending::NoResult(EndReason::Failed(FailReason::SchedulerPanicked));
        blamed.into_iter().filter(|&sequence| self.end(sequence, failed())).count()
    }

    /// Whether some request was or is to be announced to the leader of the sub-cluster.
    pub(crate) fn waits_for(&self, subcluster: SubclusterId) -> bool {
        (0..SHARDS as u64).any(|shard| self.shard(shard).values().any(|pending| pending.is_for(subcluster)))
    }

    /// Marks every request of the sub-cluster that is not withheld as announced under `token`, whether it was before or
    /// not: earliest deadline first.
    pub(crate) fn announce_all(&self, subcluster: SubclusterId, token: Token) -> Vec<Announcement> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (&sequence, pending) in shard.iter_mut().filter(|(_, p)| p.is_for(subcluster)) {
                all.push(pending.announce(sequence, token));
            }
        }
        all.sort_by_key(|announcement| (announcement.deadline, announcement.sequence));
        all
    }
}

/// How a request leaves the cluster that had it, for another one: the last look at invariant F1.
fn leaves(pending: &OpenRequest) -> Ending {
    if pending.read {
        symphony_telemetry::violated(
            Invariant::F1,
            "a request is about to leave the cluster whose backends have its input",
        );
        return Ending::NoResult(EndReason::Failed(FailReason::ModelNotReady));
    }
    Ending::NotHere
}

impl OpenRequest {
    /// The input has been made, and is given to all that wait for it.
    fn supply(&mut self, payload: &Bytes) {
        if let Payload::Pending(waiting) = std::mem::replace(&mut self.payload, Payload::Here(payload.clone())) {
            waiting.into_iter().for_each(|waiter| drop(waiter.send(payload.clone())));
        }
    }

    fn is_for(&self, subcluster: SubclusterId) -> bool {
        !self.withheld && self.subcluster == subcluster
    }

    fn announce(&mut self, sequence: u64, token: Token) -> Announcement {
        self.announced = token;
        self.attempt += 1;
        if let Some(hop) = self.hop.take() {
            hop.announced();
        }
        let Self { model, items, weight, deadline, attempt, .. } = *self;
        Announcement { sequence, model, items, weight, deadline, attempt }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pending(subcluster: u32, deadline: Instant) -> (OpenRequest, oneshot::Receiver<Ending>) {
        let (waiter, receiver) = oneshot::channel();
        let pending = OpenRequest {
            model: ModelId::new(1),
            subcluster: SubclusterId::new(subcluster),
            items: 1,
            weight: symphony_types::RequestValue::ONE,
            payload: Payload::Here(Bytes::from_static(b"input")),
            shared: None,
            deadline,
            withheld: false,
            announced: Token::default(),
            attempt: 0,
            panics: 0,
            read: false,
            is_stage: false,
            hop: None,
            waiter,
        };
        (pending, receiver)
    }

    #[test]
    fn what_is_withheld_counts_and_no_leader_hears_of_it_before_it_is_released() {
        let (table, token) = (RequestTable::default(), Token::new(7));
        let (mut request, _receiver) = pending(1, Instant::now());
        request.withheld = true;
        let sequence = table.insert(request);
        assert_eq!(table.len(), 1);
        assert!(
            table.announce(sequence, token).is_none() && table.announce_all(SubclusterId::new(1), token).is_empty()
        );
        assert!(!table.waits_for(SubclusterId::new(1)));
        // Its model has moved meanwhile.
        assert!(table.end_withholding(sequence, ModelId::new(2), SubclusterId::new(3), None));
        assert!(table.announce_all(SubclusterId::new(1), token).is_empty());
        let announced = table.announce(sequence, token).unwrap();
        assert_eq!((announced.model, announced.attempt), (ModelId::new(2), 1));
        assert!(table.waits_for(SubclusterId::new(3)));
        table.remove(sequence);
        assert!(!table.end_withholding(sequence, ModelId::new(2), SubclusterId::new(3), None));
    }

    #[test]
    fn a_hop_ends_when_a_leader_first_hears_of_it() {
        let registry = symphony_telemetry::Registry::new("frontend");
        let durations = symphony_telemetry::native_histogram(&symphony_telemetry::buckets::STEP_SECONDS);
        let durations = registry.register(&crate::metrics::PIPELINE_HOP, durations);
        let hops = |count: u64| {
            let shown = registry.encode();
            assert!(shown.contains(&format!("symphony_frontend_pipeline_hop_seconds_count {count}\n")), "{shown}");
        };
        let table = RequestTable::default();
        let (mut request, _receiver) = pending(1, Instant::now());
        request.hop = Some(Hop::since(Instant::now(), durations));
        let sequence = table.insert(request);
        hops(0);
        assert!(table.announce(sequence, Token::new(7)).is_some());
        hops(1);
        // It is announced to the next leader, too.
        assert_eq!(table.announce_all(SubclusterId::new(1), Token::new(8)).len(), 1);
        hops(1);
    }

    #[test]
    fn a_stage_request_is_no_request_by_itself_and_is_open_all_the_same() {
        let table = RequestTable::default();
        let stage = || {
            let (mut request, receiver) = pending(1, Instant::now());
            request.is_stage = true;
            (table.insert(request), receiver)
        };
        let ((first, _first), (second, _second)) = (stage(), stage());
        assert_eq!((table.len(), table.stages(), table.is_empty()), (0, 2, false));
        table.remove(first);
        assert_eq!(table.withdraw_unread(ModelId::new(1)), [(second, Some(SubclusterId::new(1)))]);
        assert!(table.is_empty());
    }

    #[test]
    fn the_first_ending_counts_and_the_input_is_gone_with_it() {
        let table = RequestTable::default();
        let (request, mut receiver) = pending(1, Instant::now());
        let sequence = table.insert(request);
        assert_eq!(table.payload(sequence).unwrap(), "input");
        let failed = || Ending::NoResult(EndReason::Failed(FailReason::NoGpu));
        assert!(table.end(sequence, failed()));
        assert!(!table.end(sequence, failed()), "a second ending is discarded");
        assert!(receiver.try_recv().is_ok());
        assert_eq!(table.payload(sequence), None);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn an_input_that_is_being_made_reaches_all_who_wait_and_none_after_the_end() {
        let table = RequestTable::default();
        let accept = || {
            let (mut request, receiver) = pending(1, Instant::now());
            request.payload = Payload::Pending(Vec::new());
            (table.insert(request), receiver)
        };
        let ((made, _made), (ended, _ended)) = (accept(), accept());
        assert_eq!(table.payload(made), None);
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| table.pending_input(made).unwrap()).collect();
        assert!(table.pending_input(made).is_none(), "no more than so many");
        assert!(!table.supply(made, &Bytes::from_static(b"made")), "it was asked for");
        assert!(waiting.iter_mut().all(|waiter| waiter.try_recv().unwrap() == "made"));
        assert_eq!(table.pending_input(made).unwrap().try_recv().unwrap(), "made", "it was made between two questions");
        assert_eq!(table.payload(made).unwrap(), "made");

        let mut waits = table.pending_input(ended).unwrap();
        table.remove(ended);
        assert!(matches!(waits.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(!table.supply(ended, &Bytes::from_static(b"late")));
        assert!(table.pending_input(ended).is_none() && table.payload(ended).is_none());
        assert!(table.withdraw_unread(ModelId::new(1)).is_empty(), "who asked for it may have run it");
    }

    #[test]
    fn a_request_whose_input_is_out_does_not_leave() {
        let before = symphony_telemetry::violations(Invariant::F1);
        let (mut request, _receiver) = pending(1, Instant::now());
        assert!(matches!(leaves(&request), Ending::NotHere));
        assert_eq!(symphony_telemetry::violations(Invariant::F1), before);
        // F1, planted: a frontend sends away what a backend has.
        request.read = true;
        assert!(matches!(leaves(&request), Ending::NoResult(_)));
        assert_eq!(symphony_telemetry::violations(Invariant::F1), before + 1);
    }

    /// What a backend was given may have run, so neither a move nor the loss of its cluster sends it elsewhere.
    #[test]
    fn only_what_no_backend_was_given_may_go_to_another_cluster() {
        let table = RequestTable::default();
        let accept = || {
            let (request, receiver) = pending(1, Instant::now());
            (table.insert(request), receiver)
        };
        let ((given, mut at_work), (kept, mut waiting), (refused, mut elsewhere)) = (accept(), accept(), accept());
        assert!(table.payload(given).is_some());
        let not_ready = || Ending::NoResult(EndReason::Failed(FailReason::ModelNotReady));
        table.end(refused, not_ready());
        assert!(matches!(elsewhere.try_recv(), Ok(Ending::NotHere)));
        assert_eq!(table.withdraw_unread(ModelId::new(2)), [], "of another model");
        assert_eq!(table.withdraw_unread(ModelId::new(1)), [(kept, Some(SubclusterId::new(1)))]);
        assert!(matches!(waiting.try_recv(), Ok(Ending::NotHere)));
        assert!(table.payload(kept).is_none(), "its input is gone with it");
        assert!(at_work.try_recv().is_err(), "it is still waited for");
        table.end(given, not_ready());
        assert!(matches!(at_work.try_recv(), Ok(Ending::NoResult(_))), "it may have run, and fails");
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_misrouted_request_is_announced_to_the_leader_it_is_sent_to() {
        let table = RequestTable::default();
        let deadline = Instant::now();
        let (request, _receiver) = pending(1, deadline);
        let sequence = table.insert(request);
        let token = Token::new(5);
        table.announce(sequence, token).unwrap();
        assert_eq!(table.begin_reroute(sequence), Some((ModelId::new(1), deadline, 1)));
        assert_eq!(table.announce(sequence, token).unwrap().attempt, 2, "the same leader may serve it by now");
        table.begin_reroute(sequence);
        assert_eq!(table.redirect(sequence, |_| SubclusterId::new(2)), Some(SubclusterId::new(2)));
        let waits = || [1, 2].map(|id| table.waits_for(SubclusterId::new(id)));
        assert_eq!(waits(), [false, true]);
        assert!(table.announce_all(SubclusterId::new(1), Token::new(9)).is_empty());
        assert_eq!(table.announce_all(SubclusterId::new(2), Token::new(7)).len(), 1);
        table.remove(sequence);
        assert_eq!(waits(), [false, false]);
        assert_eq!(table.redirect(sequence, |was| was), None);
        assert_eq!(table.begin_reroute(sequence), None);
    }

    #[test]
    fn what_two_leads_had_that_panicked_is_told_to_no_third_one() {
        let (table, subcluster) = (RequestTable::default(), SubclusterId::new(1));
        let [first, second, third] = [5, 6, 7].map(Token::new);
        let accept = |of| {
            let (request, receiver) = pending(of, Instant::now());
            (table.insert(request), receiver)
        };
        let ((twice, mut ending), (untold, _untold), (elsewhere, _elsewhere)) = (accept(1), accept(1), accept(2));
        table.announce(twice, first).unwrap();
        table.announce(elsewhere, first).unwrap();
        assert_eq!(table.panicked(subcluster, first), 0, "the first time it may have been anything");
        assert_eq!(table.panicked(subcluster, second), 0, "that one has not heard of anything");
        assert_eq!(table.announce_all(subcluster, second).len(), 2);
        let (once, _once) = accept(1);
        table.announce(once, second).unwrap();
        assert_eq!(table.panicked(subcluster, second), 1);
        assert!(matches!(ending.try_recv(), Ok(Ending::NoResult(EndReason::Failed(FailReason::SchedulerPanicked)))));
        assert!(!table.end(twice, Ending::NotHere), "it has its one outcome");
        let again: Vec<_> = table.announce_all(subcluster, third).iter().map(|a| a.sequence).collect();
        assert_eq!(again, [untold, once]);
        assert_eq!(table.len(), 3, "and who leads another sub-cluster is not meant: {elsewhere}");
    }

    #[test]
    fn a_new_leader_hears_of_everything_once_and_the_most_urgent_first() {
        let table = RequestTable::default();
        let now = Instant::now();
        let mut receivers = Vec::new();
        for (subcluster, after) in [(1, 30), (1, 10), (2, 5), (1, 20)] {
            let (request, receiver) = pending(subcluster, now + Duration::from_millis(after));
            table.insert(request);
            receivers.push(receiver);
        }
        let (old, new) = (Token::new(5), Token::new(9));
        assert_eq!(table.announce(1, old).unwrap().attempt, 1);
        assert!(table.announce(1, old).is_none(), "announced under this token already");
        let again = table.announce_all(SubclusterId::new(1), new);
        assert_eq!(again.iter().map(|a| (a.sequence, a.attempt)).collect::<Vec<_>>(), [(2, 1), (4, 1), (1, 2)]);
        assert!(table.announce(2, new).is_none(), "what was redriven is not announced as well");
    }
}
