//! Several classes of GPUs in one sub-cluster: what a queue offers to each, and who gets what.

use symphony_scheduler::{
    Account, Candidate, ClassProfiles, Delays, GpuRanker, GrantWhy, ModelAction, ModelActions, ModelInput, ModelQueue,
    ModelQueueConfig, Plan, Policy, RankAction, RankInput, Request,
};
use symphony_types::{GpuClass, GpuClasses, GpuId, LatencyProfile, Nanos, RequestId, Time};

const FAST: GpuClass = GpuClass::FIRST;

fn slow() -> GpuClass {
    GpuClass::new(1).unwrap()
}

fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

/// b + 5 ms and 2b + 20 ms.
fn profiles() -> ClassProfiles {
    let line = |alpha, beta| LatencyProfile::from_line(alpha, beta, 16).unwrap();
    [(FAST, line(1.0, 5.0)), (slow(), line(2.0, 20.0))].into_iter().collect()
}

struct Queue(ModelQueue);

impl Queue {
    fn new(profiles: ClassProfiles) -> Self {
        Self(ModelQueue::new(ModelQueueConfig {
            profiles,
            slo: Nanos::from_millis(60),
            policy: Policy::SYMPHONY,
            delays: Delays::default(),
            requests_max: 100,
        }))
    }

    fn step(&mut self, at_ms: u64, input: ModelInput) -> ModelActions {
        let mut actions = ModelActions::default();
        self.0.step(ms(at_ms), input, &mut actions);
        actions
    }

    fn arrive(&mut self, at_ms: u64, sequence: u64, deadline_ms: u64) -> ModelActions {
        self.arrive_with(at_ms, sequence, deadline_ms, 1)
    }

    fn arrive_with(&mut self, at_ms: u64, sequence: u64, deadline_ms: u64, items: u32) -> ModelActions {
        let id = RequestId { sequence, ..RequestId::default() };
        self.step(
            at_ms,
            ModelInput::Arrive(Request {
                id,
                deadline: ms(deadline_ms),
                items,
                weight: symphony_types::RequestValue::ONE,
                variant: 0,
            }),
        )
    }

    fn grant(&mut self, at_ms: u64, gpu: u32, class: GpuClass) -> ModelActions {
        let (gpu, why) = (GpuId::new(gpu), GrantWhy::default());
        self.step(at_ms, ModelInput::Grant { gpu, class, free_at: ms(at_ms), why })
    }
}

/// Batch, frontrun and latest.
type Window = (u32, Time, Time);

/// Class, batch, frontrun and latest of each candidate offered; nothing but the class where one is taken back.
fn offers(actions: &ModelActions) -> Vec<(usize, Option<Window>)> {
    let offer = |action: &ModelAction| match *action {
        ModelAction::Offer { class, candidate, .. } => {
            Some((class.index(), candidate.map(|c| (c.batch, c.frontrun, c.latest))))
        }
        _ => None,
    };
    actions.list.iter().filter_map(offer).collect()
}

fn plan(actions: &ModelActions) -> Option<(Plan, Vec<u64>)> {
    let plan = actions.list.iter().find_map(|action| match action {
        ModelAction::Execute(plan) => Some(*plan),
        _ => None,
    })?;
    Some((plan, actions.requests_of(&plan).iter().map(|request| request.id.sequence).collect()))
}

fn dropped(actions: &ModelActions) -> Vec<u64> {
    let drop = |action: &ModelAction| match action {
        ModelAction::Drop { request, .. } => Some(request.id.sequence),
        _ => None,
    };
    actions.list.iter().filter_map(drop).collect()
}

#[test]
fn each_class_has_a_candidate_with_a_window_of_its_own() {
    let mut queue = Queue::new(profiles());
    let actions = queue.arrive(0, 1, 60);
    assert_eq!(offers(&actions), [(0, Some((1, ms(53), ms(54)))), (1, Some((1, ms(36), ms(38))))]);
    // The slower window ends first; then its candidate gives way, and the request stays for the faster class.
    assert_eq!(actions.list[2], ModelAction::WakeAt(ms(38) + Nanos::new(1)));
    let mut late = ModelActions::default();
    queue.0.step(ms(38) + Nanos::new(1), ModelInput::Wake, &mut late);
    assert_eq!((offers(&late), dropped(&late)), (vec![(1, None)], vec![]));
    assert_eq!(queue.0.len(), 1);
}

#[test]
fn a_slow_gpu_takes_what_it_can_meet_from_the_middle_and_leaves_the_urgent_ones() {
    let mut queue = Queue::new(profiles());
    queue.arrive(0, 1, 15);
    queue.arrive(0, 2, 16);
    queue.arrive(0, 3, 50);
    assert_eq!(offers(&queue.arrive(0, 4, 60)), [(0, Some((4, ms(5), ms(6)))), (1, Some((2, ms(24), ms(26))))]);
    let actions = queue.grant(1, 7, slow());
    let (plan_of_slow, sequences) = plan(&actions).unwrap();
    assert_eq!(sequences, [3, 4]);
    assert_eq!((plan_of_slow.start, plan_of_slow.end, plan_of_slow.must_end_by), (ms(24), ms(48), ms(50)));
    let why = plan_of_slow.why.unwrap();
    assert_eq!((why.skipped, why.left), (2, 2));
    assert_eq!(offers(&actions), [(0, Some((2, ms(7), ms(8)))), (1, None)]);
    let (plan_of_fast, sequences) = plan(&queue.grant(8, 0, FAST)).unwrap();
    assert_eq!((plan_of_fast.end, sequences), (ms(15), vec![1, 2]));
}

#[test]
fn a_request_is_given_up_only_when_no_class_can_meet_it() {
    let mut queue = Queue::new(profiles());
    assert!(dropped(&queue.arrive(0, 1, 21)).is_empty(), "the slow class needs 22 ms, the fast one 6");
    assert_eq!(dropped(&queue.arrive(0, 2, 5)), [2]);
    // The faster for single requests is not the faster for large ones: a request stays if any class can meet it.
    let line = |alpha, beta| LatencyProfile::from_line(alpha, beta, 16).unwrap();
    let mut queue = Queue::new([(FAST, line(0.1, 20.0)), (slow(), line(5.0, 1.0))].into_iter().collect());
    assert!(dropped(&queue.arrive(0, 1, 7)).is_empty());
    let (plan, sequences) = plan(&queue.grant(1, 0, slow())).unwrap();
    assert_eq!((plan.end, sequences), (ms(7), vec![1]));
}

/// Kinds of which each is the faster for some: 4b + 1 ms and b/2 + 20 ms.
fn crossing() -> ClassProfiles {
    let line = |alpha, beta| LatencyProfile::from_line(alpha, beta, 64).unwrap();
    [(FAST, line(4.0, 1.0)), (slow(), line(0.5, 20.0))].into_iter().collect()
}

#[test]
fn a_large_request_hides_no_small_one_before_it() {
    let mut queue = Queue::new(crossing());
    // 16 items end after 65 ms on the one class and 28 ms on the other; one item after 5 and 20.5 ms.
    queue.arrive_with(0, 1, 60, 16);
    let actions = queue.arrive_with(1, 2, 16, 1);
    assert!(dropped(&actions).is_empty());
    assert_eq!(plan(&queue.grant(2, 0, FAST)).unwrap().1, [2]);
    assert_eq!(plan(&queue.grant(2, 1, slow())).unwrap().1, [1]);
    // Behind a large one that does not fit, too.
    queue.arrive_with(3, 3, 40, 16);
    queue.arrive_with(3, 4, 50, 1);
    assert_eq!(plan(&queue.grant(4, 0, FAST)).unwrap().1, [4]);
    assert_eq!(plan(&queue.grant(4, 1, slow())).unwrap().1, [3]);
}

#[test]
fn what_was_left_to_a_class_that_is_gone_is_looked_at_again() {
    let mut queue = Queue::new(profiles());
    // Three in a millisecond, which no class can meet, make the targets large.
    (0..300).for_each(|n| drop(queue.arrive(n / 3, n, n / 3 + 1)));
    for (sequence, deadline) in (1..).zip([125, 126, 126, 160]) {
        queue.arrive(100, sequence, deadline);
    }
    // The slow class begins behind those that it cannot meet in such a batch, until it is the only one.
    let (half_later, mut actions) = (ms(100) + Nanos::from_micros(500), ModelActions::default());
    queue.0.step(half_later, ModelInput::Classes([slow()].into_iter().collect()), &mut actions);
    let given_up = dropped(&actions);
    let head = (1..=4).find(|sequence| !given_up.contains(sequence)).unwrap();
    let grant = ModelInput::Grant { gpu: GpuId::new(1), class: slow(), free_at: half_later, why: GrantWhy::default() };
    queue.0.step(half_later, grant, &mut actions);
    assert_eq!(plan(&actions).unwrap().1[0], head, "the head rides or is given up");
}

#[test]
fn a_profile_that_is_corrected_counts_at_once() {
    let mut queue = Queue::new(profiles());
    (1..200).for_each(|n| drop(queue.arrive(n, n, n + 60)));
    queue.0.set_profile(FAST, LatencyProfile::from_line(1.0, 5.0, 2).unwrap());
    queue.0.set_profile(slow(), LatencyProfile::from_line(2.0, 20.0, 2).unwrap());
    assert!(queue.0.target_batch() <= 2, "{}", queue.0.target_batch());
}

#[test]
fn demand_is_told_for_each_class_and_by_how_early_batches_start() {
    let slo = Nanos::from_millis(60);
    let (policy, delays) = (Policy::SYMPHONY, Delays::default());
    let mut queue =
        Queue(ModelQueue::new(ModelQueueConfig { profiles: profiles(), slo, policy, delays, requests_max: 100 }));
    for sequence in 0..400 {
        queue.arrive(5 * sequence, sequence, 5 * sequence + 60);
    }
    let demand = queue.0.take_account().demand;
    let [deferred, .., at_once] = demand.busy[FAST.index()];
    let line = LatencyProfile::from_line(1.0, 5.0, 16).unwrap();
    assert_eq!(at_once, line.latency(1).saturating_mul(400), "one by one");
    // 200 a second: b with ℓ(b) + (b − 1) · 5 ms = 60 ms is a dozen, less what the profile's largest batch cuts.
    assert!(deferred < at_once.saturating_mul(2).saturating_sub(at_once), "{deferred} of {at_once}");
    assert!(demand.busy[FAST.index()].is_sorted(), "the earlier batches start, the smaller they are");
    assert!(demand.busy[slow().index()][8] > at_once, "a slower class takes longer");
    // ℓ(1) is 6 and 22 ms of 60.
    for (class, alone_share) in [(FAST, 0.1), (slow(), 22.0 / 60.0)] {
        let (alone, deferred) = (demand.alone[class.index()], demand.busy[class.index()][0]);
        assert!((alone.as_secs_f64() / deferred.as_secs_f64() - alone_share).abs() < 1e-6, "{alone} of {deferred}");
    }
    assert_eq!(queue.0.take_account(), Account::default(), "nothing came since");
}

#[test]
fn classes_come_and_go_and_requests_stay() {
    let mut queue = Queue::new(profiles());
    let only = |class: GpuClass| ModelInput::Classes([class].into_iter().collect());
    queue.arrive(0, 1, 60);
    assert_eq!(offers(&queue.step(0, only(FAST))), [(1, None)]);
    assert_eq!(offers(&queue.arrive(0, 2, 60)), [(0, Some((2, ms(52), ms(53))))]);
    // A grant that was on its way comes back unused.
    let unused = queue.grant(0, 7, slow());
    assert_eq!(plan(&unused), None);
    assert!(unused.list.contains(&ModelAction::Release { gpu: GpuId::new(7), free_at: ms(0) }), "{unused:?}");
    // A class that was unknown is used once its profile is set, and not before.
    let third = GpuClass::new(5).unwrap();
    assert_eq!(offers(&queue.step(0, only(third))), [], "without a profile everything stays as it is");
    queue.0.set_profile(third, LatencyProfile::from_line(1.0, 9.0, 16).unwrap());
    assert_eq!(offers(&queue.step(0, only(third))), [(0, None), (5, Some((2, ms(48), ms(49))))]);
    assert_eq!(plan(&queue.grant(1, 9, third)).unwrap().1, [1, 2]);
    assert_eq!(queue.0.len(), 0);
    assert_eq!(offers(&queue.step(0, ModelInput::Classes(GpuClasses::NONE))), [], "no GPUs at all: as before");
}

fn candidate(start_ms: u64, latest_ms: u64) -> Option<Candidate> {
    let (start, latest) = (ms(start_ms), ms(latest_ms));
    let (frontrun, must_end_by, lead) = (latest, latest + Nanos::from_millis(9), Nanos::ZERO);
    Some(Candidate { batch: 1, start, latest, frontrun, must_end_by, lead, ..Candidate::default() })
}

#[derive(Clone)]
struct Ranker(GpuRanker);

impl Ranker {
    /// Model, GPU and class of each grant.
    fn step(&mut self, at_ms: u64, input: RankInput) -> Vec<(u32, u32, usize)> {
        let mut actions = Vec::new();
        self.0.step(ms(at_ms), input, &mut actions);
        let granted = |action: &RankAction| match *action {
            RankAction::Grant { model, gpu, class, .. } => Some((model, gpu.get(), class.index())),
            RankAction::WakeAt(_) => None,
        };
        actions.iter().filter_map(granted).collect()
    }

    fn offer(
        &mut self,
        at_ms: u64,
        answered: u64,
        class: GpuClass,
        candidate: Option<Candidate>,
    ) -> Vec<(u32, u32, usize)> {
        self.step(at_ms, RankInput::Offer { model: 0, answered, class, candidate })
    }

    fn add(&mut self, at_ms: u64, gpu: u32, class: GpuClass) -> Vec<(u32, u32, usize)> {
        self.step(at_ms, RankInput::Add { gpu: GpuId::new(gpu), class, free_at: ms(at_ms) })
    }
}

#[test]
fn a_candidate_gets_a_gpu_of_its_own_class_and_takes_the_others_back() {
    let mut ranker = Ranker(GpuRanker::new(0, 0));
    ranker.add(0, 0, FAST);
    assert_eq!(ranker.offer(1, 0, slow(), candidate(1, 9)), [], "GPU 0 is of another class");
    assert_eq!(ranker.add(2, 1, slow()), [(0, 1, 1)], "the one that is waited for");
    ranker.step(2, RankInput::Release { model: 0, gpu: GpuId::new(1), free_at: ms(40), report_due: false });
    // Both are offered; the one that is due first wins, and the other one is no candidate any more.
    ranker.offer(3, 1, FAST, candidate(8, 9));
    assert_eq!(ranker.offer(3, 1, slow(), candidate(50, 55)), []);
    assert_eq!(ranker.step(8, RankInput::Wake), [(0, 0, 0)]);
    ranker.step(8, RankInput::Release { model: 0, gpu: GpuId::new(0), free_at: ms(9), report_due: false });
    assert_eq!(ranker.step(50, RankInput::Wake), []);
    assert_eq!(ranker.offer(50, 1, slow(), candidate(50, 55)), [], "older than the grant");
}

#[test]
fn a_gpu_that_comes_back_as_another_kind_serves_the_other_class() {
    let mut ranker = Ranker(GpuRanker::new(1, 1));
    ranker.add(0, 0, FAST);
    ranker.step(0, RankInput::Remove(GpuId::new(0)));
    ranker.add(1, 0, slow());
    assert_eq!(ranker.0.free_at(GpuId::new(0)), ms(1));
    assert_eq!(ranker.offer(2, 0, FAST, candidate(2, 9)), []);
    assert_eq!(ranker.offer(2, 0, slow(), candidate(2, 9)), [(0, 0, 1)]);
    // While it is out, no other candidate takes its place.
    assert_eq!(ranker.add(3, 0, FAST), []);
    let release = RankInput::Release { model: 0, gpu: GpuId::new(0), free_at: ms(4), report_due: false };
    assert_eq!(ranker.step(3, release), []);
    assert_eq!(ranker.offer(4, 1, slow(), candidate(4, 9)), [(0, 0, 1)]);
}
