//! Hosts the [`ModelQueue`]s of some models of one sub-cluster: carries requests to them, plans from them to backends,
//! and outcomes to frontends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam::queue::ArrayQueue;
use symphony_explain::{BatchEnd, BatchRecord, DropRecord};
use symphony_protocol::dispatch::{EndReason, RequestHeader, ToFrontend};
use symphony_protocol::execute::{Execute, PlannedRequest, ToBackend};
use symphony_scheduler::{
    Account, DataDelay, GrantWhy, MinTree, ModelAction, ModelActions, ModelInput, ModelQueue, ModelQueueConfig,
    PRESSURE_TICK, Plan, PlanCheck, PoolWord, Request, Shed,
};
use symphony_transport::LinkSender;
use symphony_types::{
    BootId, DropReason, FailReason, FrontendId, GpuClass, GpuClasses, GpuId, Invariant, LatencyProfile, ModelId, Nanos,
    RequestId, Time,
};

use crate::clock::Clock;
use crate::counters::count;
use crate::flight_log::FlightLog;
use crate::id_map::IdMap;
use crate::inbox::Inbox;
use crate::load::ModelCounts;
use crate::messages::{GpuRoute, ModelMessage, Peer, PlanId, RankMessage, Seal};
use crate::offer_board::{Offer, OfferBoard};
use crate::sent_plans::{SentPlan, SentPlans};
use crate::tape_recorder::TapeRecorder;
use crate::worker::{TURN_INPUTS_MAX, TURN_TIMERS_MAX, TurnEnd, TurnStart, Worker};
use crate::worker_metrics::WorkerMetrics;
use symphony_epochs::Run;

/// How long re-driven requests wait for backends that have not answered the seal: after that a second execution, which
/// only wastes time, is better than a lost deadline (DESIGN section 8; consensus protocol, step 6).
pub const REDRIVE_WAIT: Nanos = Nanos::from_millis(20);

struct ModelSlot {
    id: ModelId,
    ordinal: u32,
    queue: ModelQueue,
    counts: Arc<ModelCounts>,
    /// By class of GPUs: what the rank worker has not been told yet.
    offers: Vec<Option<Offer>>,
    /// The turn in which the timer was armed.
    armed_in: u64,
    /// Whether it gives up requests for other models.
    sheds: bool,
}

struct FrontendPeer {
    link: Peer,
    sender: LinkSender<ToFrontend>,
    ended: Vec<(u64, EndReason)>,
}

/// Requests announced again, until it is known which of them backends already have.
struct Recovery {
    until: Time,
    held: Vec<(ModelId, Request)>,
}

/// A grant as the rank worker made it.
#[derive(Clone, Copy)]
struct Granted {
    /// The place for a plan.
    plan: PlanId,
    class: GpuClass,
    free_at: Time,
}

/// A frame that is being taken in, in as many turns as it needs.
enum AtHand {
    Requests(Arriving),
    Cancels(Leaving),
}

/// A frame of requests.
struct Arriving {
    peer: Peer,
    received: Time,
    requests: std::vec::IntoIter<RequestHeader>,
    redriven: bool,
}

/// A frame of requests whose clients have gone, with their models.
struct Leaving {
    frontend: FrontendId,
    boot: BootId,
    requests: std::vec::IntoIter<(u64, u32)>,
}

/// Owner of some of the sub-cluster's models.
pub(crate) struct ModelWorker {
    inbox: Arc<Inbox<ModelMessage>>,
    rank: Arc<Inbox<RankMessage>>,
    offers: Arc<OfferBoard>,
    slots: Vec<Option<ModelSlot>>,
    /// The classes that the sub-cluster has GPUs of, once somebody has said.
    classes: GpuClasses,
    by_id: IdMap<ModelId, usize>,
    by_ordinal: IdMap<u32, usize>,
    wakes: MinTree,
    /// Slots and classes whose newest offer waits to be published: a burst of requests makes one.
    offering: Vec<(usize, GpuClass)>,
    /// The frame at hand. Messages behind it wait: they may be about its requests.
    at_hand: Option<AtHand>,
    frontends: IdMap<FrontendId, FrontendPeer>,
    /// Whether some frontend has outcomes to be sent.
    ended: bool,
    /// By ordinal of the GPU.
    routes: Vec<Option<GpuRoute>>,
    /// Plans of this turn: their place, when they start, and what the backend is told.
    outgoing: Vec<(PlanId, Time, Execute)>,
    sent: SentPlans,
    /// Where the ends of batches go, to be learnt from.
    runs: Option<Arc<ArrayQueue<Run>>>,
    log: FlightLog,
    /// What the rank worker is told once the plans of the turn are on their links: it may give a GPU to a model of another
    /// worker at once, whose plan must not overtake the one before it.
    answers: Vec<RankMessage>,
    /// When the rank worker is told the next account.
    account_at: Time,
    /// Whether models that shed saw something that it has not been told.
    untold: bool,
    /// Whether the rank worker has messages or offers that it has not been woken for.
    told_rank: bool,
    recovery: Option<Recovery>,
    /// Requests that a backend had when it was sealed. They are run again only if that backend is lost.
    known: HashMap<RequestId, Seal>,
    /// Those of them that were announced again, and so are still wanted.
    awaited: HashMap<Seal, Vec<(ModelId, Request)>>,
    actions: ModelActions,
    check: PlanCheck,
    tape: TapeRecorder,
    metrics: Arc<WorkerMetrics>,
    /// The turn at hand.
    turn: u64,
}

impl ModelWorker {
    pub(crate) fn new(
        clock: Clock,
        inbox: Arc<Inbox<ModelMessage>>,
        rank: Arc<Inbox<RankMessage>>,
        offers: Arc<OfferBoard>,
        metrics: Arc<WorkerMetrics>,
        log: FlightLog,
    ) -> Self {
        Self {
            inbox,
            rank,
            offers,
            slots: Vec::new(),
            classes: GpuClasses::NONE,
            by_id: IdMap::default(),
            by_ordinal: IdMap::default(),
            wakes: MinTree::new(0),
            offering: Vec::new(),
            at_hand: None,
            frontends: IdMap::default(),
            ended: false,
            routes: Vec::new(),
            outgoing: Vec::new(),
            sent: SentPlans::default(),
            runs: None,
            log,
            answers: Vec::new(),
            account_at: Time::ZERO,
            untold: false,
            told_rank: false,
            recovery: Some(Recovery { until: clock.now() + REDRIVE_WAIT, held: Vec::new() }),
            known: HashMap::new(),
            awaited: HashMap::new(),
            actions: ModelActions::with_room(),
            check: PlanCheck::default(),
            tape: TapeRecorder::default(),
            metrics,
            turn: 0,
        }
    }

    /// The same, recorded.
    pub(crate) fn with_tape(mut self, tape: TapeRecorder) -> Self {
        self.tape = tape;
        self
    }

    /// The same, in which re-driven requests wait for so long from now on.
    pub(crate) fn with_redrive_wait(mut self, now: Time, wait: Nanos) -> Self {
        self.recovery = Some(Recovery { until: now + wait, held: Vec::new() });
        self
    }

    /// The same, with somebody who learns from the ends of batches.
    pub(crate) fn with_runs(mut self, runs: Option<Arc<ArrayQueue<Run>>>) -> Self {
        self.runs = runs;
        self
    }

    fn receive(&mut self, now: Time, message: ModelMessage) {
        match message {
            ModelMessage::Add { model, ordinal, config, counts } => {
                self.add_model(now, (model, ordinal), *config, counts);
            }
            ModelMessage::Profile { model, class, profile } => self.set_profile(model, class, *profile),
            ModelMessage::DataDelay { model, data } => self.set_data_delay(now, model, data),
            ModelMessage::Classes { classes } => self.follow_classes(now, classes),
            ModelMessage::Remove { model } => self.remove_model(model),
            ModelMessage::Route { gpu, route } => {
                let slot = gpu as usize;
                if slot >= self.routes.len() {
                    self.routes.resize(slot + 1, None);
                }
                self.routes[slot] = Some(route);
            }
            ModelMessage::Unroute { gpu, seal } => {
                if let Some(route) = self.routes.get_mut(gpu as usize) {
                    route.take_if(|route| route.seal == seal);
                }
                while let Some(plan) = self.sent.take_oldest(gpu, seal) {
                    self.note_end(&plan, BatchEnd::Lost);
                    self.requeue(now, plan);
                }
                self.known.retain(|_, known_by| *known_by != seal);
                for (model, request) in self.awaited.remove(&seal).unwrap_or_default() {
                    count(&self.metrics.counters.requeued_requests, 1);
                    self.give_back(now, model, request);
                }
            }
            ModelMessage::Frontend { peer, sender } => self.link(now, peer, sender),
            ModelMessage::FrontendGone { peer } => {
                if self.is_linked(peer) {
                    self.frontends.remove(&peer.frontend);
                    self.withdraw(now, peer.frontend, peer.boot);
                }
            }
            ModelMessage::Submit { peer, received, requests, redriven } => {
                // What comes from a former link was, or will be, announced again on the new one.
                if self.is_linked(peer) {
                    let requests = requests.into_iter();
                    self.at_hand = Some(AtHand::Requests(Arriving { peer, received, requests, redriven }));
                }
            }
            ModelMessage::Cancel { frontend, boot, requests } => {
                self.at_hand = Some(AtHand::Cancels(Leaving { frontend, boot, requests: requests.into_iter() }));
            }
            ModelMessage::Grant { ordinal, class, free_at, plan, why } => {
                match self.by_ordinal.get(&ordinal).copied() {
                    Some(slot) => self.grant(now, slot, class, free_at, plan, why),
                    None => self.tell_rank(RankMessage::Release { ordinal, plan, free_at, used: false }),
                }
            }
            ModelMessage::Pool(word) => self.hear(now, word),
            ModelMessage::Done { plan, start_late, latency } => {
                let Some(sent) = self.sent.take(plan) else { return };
                self.metrics.execution_errors.record(sent.predicted, latency);
                self.note_end(&sent, BatchEnd::Done { start_late, latency });
                self.tell_run(plan.gpu, &sent, latency);
                if let Some(&slot) = self.by_id.get(&sent.model) {
                    if let Some(model) = &self.slots[slot] {
                        count(&model.counts.executed, sent.requests.len() as u64);
                    }
                    self.step(now, slot, ModelInput::Done { start_late, latency, predicted: sent.predicted });
                }
                self.sent.recycle(sent);
            }
            ModelMessage::Refused { plan } => {
                if let Some(plan) = self.sent.take(plan) {
                    self.note_end(&plan, BatchEnd::Refused);
                    self.requeue(now, plan);
                }
            }
            ModelMessage::Known { seal, requests } => self.known.extend(requests.iter().map(|&id| (id, seal))),
            ModelMessage::Recovered => self.recover(now),
            #[cfg(test)]
            ModelMessage::Hang(until) => {
                let _ = until.recv();
            }
            #[cfg(test)]
            // Without the words of a panic: to find those of a program that is not optimised can take longer than relapses are remembered.
            ModelMessage::Panic => std::panic::resume_unwind(Box::new("planted")),
        }
    }

    fn add_model(
        &mut self,
        now: Time,
        (id, ordinal): (ModelId, u32),
        config: ModelQueueConfig,
        counts: Arc<ModelCounts>,
    ) {
        if self.by_id.contains_key(&id) {
            return;
        }
        let index = match self.slots.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.slots.push(None);
                self.wakes.grow(self.slots.len());
                self.slots.len() - 1
            }
        };
        self.tape.model(index, id, ordinal, &config);
        let sheds = config.policy.shed != Shed::None;
        let queue = ModelQueue::new(config);
        self.slots[index] = Some(ModelSlot { id, ordinal, queue, counts, offers: Vec::new(), armed_in: 0, sheds });
        self.by_id.insert(id, index);
        self.by_ordinal.insert(ordinal, index);
        if self.classes != GpuClasses::NONE {
            self.step(now, index, ModelInput::Classes(self.classes));
        }
    }

    fn set_profile(&mut self, id: ModelId, class: GpuClass, profile: LatencyProfile) {
        let Some(&index) = self.by_id.get(&id) else { return };
        if let Some(slot) = &mut self.slots[index] {
            self.tape.profile(index, class, &profile);
            slot.queue.set_profile(class, profile);
        }
    }

    fn set_data_delay(&mut self, now: Time, id: ModelId, data: DataDelay) {
        let Some(&index) = self.by_id.get(&id) else { return };
        let Some(slot) = &mut self.slots[index] else { return };
        self.tape.data_delay(index, &data);
        slot.queue.set_data_delay(data);
        // A GPU that comes as the offer of before asks for it may come too late for what waits.
        self.step(now, index, ModelInput::Wake);
    }

    /// GPUs of a kind have come up, or the last one of a kind has gone.
    fn follow_classes(&mut self, now: Time, classes: GpuClasses) {
        self.classes = classes;
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some() {
                self.step(now, slot, ModelInput::Classes(classes));
            }
        }
    }

    fn remove_model(&mut self, id: ModelId) {
        let Some(index) = self.by_id.remove(&id) else { return };
        let Some(slot) = self.slots[index].take() else { return };
        self.tape.gone(index);
        self.by_ordinal.remove(&slot.ordinal);
        self.wakes.set(index, MinTree::EMPTY);
        // An offer that the rank worker has not read yet must not outlive the model.
        for class in GpuClass::all().take(slot.offers.len()) {
            self.offers.publish(slot.ordinal, class, (u64::MAX, None));
        }
        self.told_rank = true;
        self.tell_rank(RankMessage::Forget { ordinal: slot.ordinal });
        for request in slot.queue.into_requests() {
            self.end(request.id, EndReason::Failed(FailReason::ModelNotReady));
        }
    }

    fn is_linked(&self, peer: Peer) -> bool {
        self.frontends.get(&peer.frontend).is_some_and(|linked| linked.link == peer)
    }

    /// A frontend links, or links again: then its former link is over, whenever that is told.
    fn link(&mut self, now: Time, peer: Peer, sender: LinkSender<ToFrontend>) {
        let former = self.frontends.get(&peer.frontend).map(|linked| linked.link);
        if former.is_some_and(|former| former.link > peer.link) {
            return;
        }
        if let Some(former) = former {
            self.withdraw(now, former.frontend, former.boot);
        }
        self.frontends.insert(peer.frontend, FrontendPeer { link: peer, sender, ended: Vec::new() });
    }

    /// Takes in up to `limit` requests or cancels of the frame at hand, and returns how many.
    fn take_in(&mut self, now: Time, limit: usize) -> usize {
        match self.at_hand.take() {
            Some(AtHand::Requests(arriving)) => self.take_in_requests(now, arriving, limit),
            Some(AtHand::Cancels(leaving)) => self.take_in_cancels(now, leaving, limit),
            None => 0,
        }
    }

    fn take_in_requests(&mut self, now: Time, mut arriving: Arriving, limit: usize) -> usize {
        let Arriving { peer, received, redriven, .. } = arriving;
        let mut taken = 0;
        for header in arriving.requests.by_ref().take(limit) {
            self.submit(now, peer, received, header, redriven);
            taken += 1;
        }
        count(&self.metrics.counters.requests, taken as u64);
        if arriving.requests.len() > 0 {
            self.at_hand = Some(AtHand::Requests(arriving));
        }
        taken
    }

    /// Each model's queue is gone through once for all of its requests, and makes one candidate.
    fn take_in_cancels(&mut self, now: Time, mut leaving: Leaving, limit: usize) -> usize {
        let Leaving { frontend, boot, .. } = leaving;
        let mut gone: Vec<(u64, u32)> = leaving.requests.by_ref().take(limit).collect();
        if leaving.requests.len() > 0 {
            self.at_hand = Some(AtHand::Cancels(leaving));
        }
        gone.sort_unstable();
        self.let_go(|id| {
            let at = gone.partition_point(|&(sequence, _)| sequence < id.sequence);
            (id.frontend, id.boot) == (frontend, boot) && gone.get(at).is_some_and(|&(found, _)| found == id.sequence)
        });
        gone.sort_by_key(|&(_, model)| model);
        for of_model in gone.chunk_by(|(_, one), (_, other)| one == other) {
            let Some(&slot) = self.by_id.get(&ModelId::new(of_model[0].1)) else { continue };
            for (index, &(sequence, _)) in of_model.iter().enumerate() {
                let id = RequestId { frontend, boot, sequence };
                let is_last = index + 1 == of_model.len();
                let input = if is_last { ModelInput::Cancel(id) } else { ModelInput::CancelWithNext(id) };
                self.step(now, slot, input);
            }
        }
        gone.len()
    }

    #[inline]
    fn submit(&mut self, now: Time, peer: Peer, received: Time, header: RequestHeader, redriven: bool) {
        let Peer { frontend, boot, .. } = peer;
        let id = RequestId { frontend, boot, sequence: header.sequence };
        let request = Request { id, deadline: received + Nanos::new(header.budget), items: header.items };
        let model = ModelId::new(header.model);
        // With what is announced again comes what was never announced, while nobody led.
        if !redriven || header.attempt <= 1 {
            return self.wait(now, model, ModelInput::Arrive(request), id);
        }
        count(&self.metrics.counters.redriven_requests, 1);
        match &mut self.recovery {
            Some(recovery) => recovery.held.push((model, request)),
            None => self.redrive(now, model, request),
        }
    }

    /// A request announced again: waited for where a backend has it, queued again where none has.
    fn redrive(&mut self, now: Time, model: ModelId, request: Request) {
        let known_by = self.known.get(&request.id).copied();
        if known_by.is_none() && !self.sent.has(request.id) {
            return self.give_back(now, model, request);
        }
        count(&self.metrics.counters.redriven_known_requests, 1);
        if let Some(seal) = known_by {
            self.awaited.entry(seal).or_default().push((model, request));
        }
    }

    /// Queues a request that was an arrival before, when it came to this lead or the one before it. It was let in then, and is
    /// not shed now; and it did not come now, with all the others that come back: it says nothing about the load.
    fn give_back(&mut self, now: Time, model: ModelId, request: Request) {
        self.wait(now, model, ModelInput::Return(request), request.id);
    }

    #[inline]
    fn wait(&mut self, now: Time, model: ModelId, input: ModelInput, id: RequestId) {
        match self.by_id.get(&model) {
            Some(&slot) => self.step(now, slot, input),
            None => self.end(id, EndReason::Failed(FailReason::ModelNotReady)),
        }
    }

    /// Lets re-driven requests go: those that backends have are only waited for, the others are queued.
    fn recover(&mut self, now: Time) {
        let Some(recovery) = self.recovery.take() else { return };
        for (model, request) in recovery.held {
            self.redrive(now, model, request);
        }
    }

    /// Lets go of requests that are kept outside the queues.
    fn let_go(&mut self, leaves: impl Fn(RequestId) -> bool) {
        if let Some(recovery) = &mut self.recovery {
            recovery.held.retain(|(_, request)| !leaves(request.id));
        }
        for awaited in self.awaited.values_mut() {
            awaited.retain(|(_, request)| !leaves(request.id));
        }
    }

    /// A frontend has gone: what it queued it will announce again if it still wants it.
    fn withdraw(&mut self, now: Time, frontend: FrontendId, boot: BootId) {
        self.let_go(|id| id.frontend == frontend && id.boot == boot);
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some() {
                self.step(now, slot, ModelInput::Withdraw { frontend, boot });
            }
        }
    }

    fn grant(&mut self, now: Time, slot: usize, class: GpuClass, free_at: Time, plan: PlanId, why: GrantWhy) {
        let gpu = GpuId::new(plan.gpu);
        // The plan is checked against its grant, and the grant by the rank worker against the plan before it: together S1.
        self.check.busy_until(gpu, free_at);
        self.step_granted(
            now,
            slot,
            ModelInput::Grant { gpu, class, free_at, why },
            Some(Granted { plan, class, free_at }),
        );
    }

    #[inline]
    fn step(&mut self, now: Time, slot: usize, input: ModelInput) {
        self.step_granted(now, slot, input, None);
    }

    /// One decision of a queue, carried out; `granted` if the input is a grant.
    fn step_granted(&mut self, now: Time, slot: usize, input: ModelInput, granted: Option<Granted>) {
        let Some(model) = &mut self.slots[slot] else { return };
        let (id, ordinal, sheds) = (model.id, model.ordinal, model.sheds);
        let mut actions = std::mem::take(&mut self.actions);
        // Not at the end: put back right after it was written to, it would have to be waited for.
        actions.clear();
        model.queue.step(now, input, &mut actions);
        self.tape.model_step(slot, now, &input, &actions);
        // Accounts are of arrivals and drops.
        if let ModelInput::Arrive(request) = input {
            self.untold |= sheds;
            count(&model.counts.arrived_items, u64::from(request.items));
        }
        let mut dropped = 0;
        let mut used = false;
        let mut wake_at = None;
        let mut unsent = Vec::new();
        for action in &actions.list {
            match action {
                ModelAction::Offer { answered, class, candidate } => self.offer(slot, *class, (*answered, *candidate)),
                ModelAction::Execute(plan) => {
                    let requests = actions.requests_of(plan);
                    used = granted.is_some_and(|granted| self.plan(now, id, granted, plan, requests));
                    if !used {
                        unsent.extend_from_slice(requests);
                    }
                }
                ModelAction::Release { free_at, .. } => {
                    let Some(Granted { plan, free_at: was_free_at, .. }) = granted else { continue };
                    if !used {
                        count(&self.metrics.counters.grants_returned, 1);
                    }
                    self.tell_rank(if unsent.is_empty() {
                        let free_at = if used { *free_at } else { was_free_at };
                        RankMessage::Release { ordinal, plan, free_at, used }
                    } else {
                        // There is no way to the GPU: given back as it was it would be granted again at once, and so on
                        // until the end of its link is told.
                        RankMessage::Lost { gpu: plan.gpu, seal: plan.seal }
                    });
                }
                ModelAction::Drop { request, reason, cause } => {
                    self.untold |= sheds;
                    dropped += 1;
                    self.end(request.id, EndReason::Dropped(*reason));
                    let (request, cause) = (*request, Some(*cause));
                    let record = DropRecord { model: id.get(), decided: now, request, reason: *reason, cause };
                    if !self.log.dropped(record) {
                        count(&self.metrics.counters.unrecorded, 1);
                    }
                }
                ModelAction::WakeAt(time) => wake_at = Some(*time),
            }
        }
        self.actions = actions;
        if let Some(model) = &mut self.slots[slot] {
            count(&model.counts.dropped, dropped);
            model.counts.queued.store(model.queue.len() as u64, Ordering::Relaxed);
            if let Some(time) = wake_at {
                model.armed_in = self.turn;
                self.wakes.set(slot, time.as_nanos());
            }
        }
        for request in unsent {
            count(&self.metrics.counters.requeued_requests, 1);
            self.step(now, slot, ModelInput::Return(request));
        }
    }

    /// Keeps the newest candidate for a class until it is published.
    fn offer(&mut self, slot: usize, class: GpuClass, offer: Offer) {
        let Some(model) = &mut self.slots[slot] else { return };
        if class.index() >= model.offers.len() {
            model.offers.resize(class.index() + 1, None);
        }
        if model.offers[class.index()].replace(offer).is_none() {
            self.offering.push((slot, class));
        }
    }

    fn hear(&mut self, now: Time, word: PoolWord) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].as_ref().is_some_and(|model| model.sheds) {
                self.step(now, slot, ModelInput::Pool(word));
            }
        }
    }

    /// Tells what the models saw and gave up.
    fn tell_account(&mut self, now: Time) {
        self.untold = false;
        self.account_at = now + PRESSURE_TICK;
        let models = self.slots.iter_mut().flatten().filter(|model| model.sheds);
        let account = models.map(|model| model.queue.take_account()).fold(Account::default(), Account::and);
        self.tell_rank(RankMessage::Account(account));
    }

    fn tell_rank(&mut self, message: RankMessage) {
        self.answers.push(message);
    }

    /// Lets the rank worker see the answers to its grants, and then the newest candidate of every model that has a new
    /// one. Without ringing.
    fn answer_rank(&mut self) {
        self.told_rank |= !self.answers.is_empty();
        for answer in self.answers.drain(..) {
            self.rank.push_silently(answer);
        }
        for (slot, class) in self.offering.drain(..) {
            if let Some(model) = &mut self.slots[slot]
                && let Some(offer) = model.offers.get_mut(class.index()).and_then(Option::take)
            {
                self.offers.publish(model.ordinal, class, offer);
                self.told_rank = true;
            }
        }
    }

    /// Gets a plan ready for its backend. False if there is no way to it: the requests are the queue's again.
    fn plan(&mut self, now: Time, model: ModelId, granted: Granted, plan: &Plan, requests: &[Request]) -> bool {
        if let Err(violation) = self.check.check(now, plan) {
            count(&self.metrics.counters.violations, 1);
            symphony_telemetry::violated(violation.invariant, &violation.detail);
        }
        let Granted { plan: place, class, .. } = granted;
        // A grant from before the GPU was lost and sealed again is no place in the new count of plans.
        let route = self.routes.get(place.gpu as usize).and_then(Option::as_ref);
        let Some(route) = route.filter(|route| route.seal == place.seal && !route.sender.is_closed()) else {
            return false;
        };
        if route.class != class {
            let latency = plan.end.since(plan.start);
            count(&self.metrics.counters.violations, 1);
            symphony_telemetry::violated(
                Invariant::S2,
                format_args!("{} is of {}, its plan of {latency} was made for {class}", route.gpu, route.class),
            );
        }
        let order = Execute {
            gpu: route.gpu,
            token: route.token,
            backend_boot: route.backend_boot,
            sequence: place.sequence,
            // Counted from when it is handed over.
            start_in: 0,
            latency: plan.end.since(plan.start).get(),
            model,
            requests: requests.iter().map(|r| PlannedRequest { id: r.id, items: r.items }).collect(),
        };
        // The queue knows the GPU by its ordinal.
        let plan = Plan { gpu: route.gpu, ..*plan };
        let record = BatchRecord { model: model.get(), decided: now, plan, end: BatchEnd::Running };
        self.outgoing.push((place, plan.start, order));
        let counters = &self.metrics.counters;
        count(&counters.plans, 1);
        count(&counters.planned_requests, requests.len() as u64);
        count(&counters.predicted_nanoseconds, plan.end.since(plan.start).get());
        let record = self.log.batch(record, requests);
        if record.is_none() && self.log.is_on() {
            count(&counters.unrecorded, 1);
        }
        self.sent.insert(now, place, model, &plan, requests, record);
        true
    }

    /// Says how long a batch took, if somebody learns and has room.
    fn tell_run(&mut self, gpu: u32, plan: &SentPlan, took: Nanos) {
        let Some(runs) = &self.runs else { return };
        let items = plan.requests.iter().map(|request| request.items).sum();
        if runs.push(Run { gpu, model: plan.model, items, took }).is_err() {
            count(&self.metrics.counters.unlearnt, 1);
        }
    }

    fn note_end(&mut self, plan: &SentPlan, end: BatchEnd) {
        if !self.log.ended(plan.record, end) {
            count(&self.metrics.counters.unrecorded, 1);
        }
    }

    /// A plan will not run: its requests wait again, as long as their deadlines and their model allow.
    fn requeue(&mut self, now: Time, plan: SentPlan) {
        for request in plan.requests {
            count(&self.metrics.counters.requeued_requests, 1);
            self.give_back(now, plan.model, request);
        }
    }

    fn end(&mut self, id: RequestId, reason: EndReason) {
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

    fn send_plans(&mut self, now: Time) {
        for (place, start, order) in self.outgoing.drain(..) {
            let route = self.routes.get(place.gpu as usize).and_then(Option::as_ref);
            // A GPU that was lost later in the turn has given its plans back already.
            let Some(route) = route.filter(|route| route.seal == place.seal) else { continue };
            let order = Execute { start_in: start.since(now).get(), ..order };
            if let Err(error) = route.sender.send(ToBackend::Execute(order)) {
                // Without the link the GPU is lost, and with that the plan's requests wait again. A link that does not
                // take a plan is of no use: the next one would be out of sequence.
                tracing::warn!(backend = %route.backend, gpu = %route.gpu, %error, "plan not sent; the link ends");
                route.sender.close();
            }
        }
    }

    fn send_outcomes(&mut self) {
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

impl Worker for ModelWorker {
    fn turn(&mut self, turn: TurnStart) -> TurnEnd {
        let now = turn.now;
        self.turn = turn.number;
        let mut handled = 0;
        while handled < TURN_INPUTS_MAX {
            if self.at_hand.is_some() {
                handled += self.take_in(now, TURN_INPUTS_MAX - handled);
            } else if let Some(message) = self.inbox.pop() {
                self.receive(now, message);
                handled += 1;
            } else {
                break;
            }
        }
        let more = handled >= TURN_INPUTS_MAX;
        let handled_max = handled + TURN_TIMERS_MAX;
        while handled < handled_max
            && let Some((slot, wake_at)) = self.wakes.min().filter(|&(_, wake_at)| wake_at <= now.as_nanos())
        {
            let armed_in = self.slots[slot].as_ref().map_or(0, |model| model.armed_in);
            self.metrics.rang(turn, armed_in, Time::from_nanos(wake_at));
            self.wakes.set(slot, MinTree::EMPTY);
            self.step(now, slot, ModelInput::Wake);
            handled += 1;
        }
        if self.recovery.as_ref().is_some_and(|recovery| recovery.until <= now) {
            self.recover(now);
            handled += 1;
        }
        if self.untold && self.account_at <= now {
            self.tell_account(now);
            handled += 1;
        }
        // A turn without plans has nothing to wait for: on a shared thread its offers are ranked in the same turn.
        if self.outgoing.is_empty() {
            self.answer_rank();
        }
        if more {
            return TurnEnd { wake_at: Time::ZERO, handled };
        }
        let recovery = self.recovery.as_ref().map_or(Time::NEVER, |recovery| recovery.until);
        // Told with the next input, the account of a quiet worker would count as of then, however old it is.
        let account_at = if self.untold { self.account_at } else { Time::NEVER };
        TurnEnd { wake_at: recovery.min(account_at).min(Time::from_nanos(self.wakes.min_key())), handled }
    }

    fn hand_over(&mut self, now: Time) {
        self.send_plans(now);
        self.answer_rank();
        if std::mem::take(&mut self.told_rank) {
            self.rank.ring();
        }
        self.send_outcomes();
        self.log.hand_over();
    }

    fn metrics(&self) -> &WorkerMetrics {
        &self.metrics
    }
}

#[cfg(test)]
mod tests;
