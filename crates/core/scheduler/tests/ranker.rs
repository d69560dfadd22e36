//! Which model gets which GPU when, action by action.

use symphony_scheduler::{
    Candidate, GpuChoice, GpuRanker, GrantWhy, Matched, RankAction, RankInput, ReadyOrder, Rival,
};
use symphony_types::{GpuClass, GpuId, Nanos, Time};

const CLASS: GpuClass = GpuClass::FIRST;

fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn candidate(start_ms: u64, latest_ms: u64) -> Option<Candidate> {
    ahead(start_ms, latest_ms, 0)
}

/// One item that takes 10 ms, two take 12.
fn ahead(start_ms: u64, latest_ms: u64, lead_ms: u64) -> Option<Candidate> {
    Some(Candidate {
        batch: 1,
        start: ms(start_ms),
        latest: ms(latest_ms),
        frontrun: ms(latest_ms) - Nanos::from_millis(2),
        must_end_by: ms(latest_ms + 10),
        lead: Nanos::from_millis(lead_ms),
        ..Candidate::default()
    })
}

fn grant(model: u32, gpu: u32, free_at: Time) -> RankAction {
    RankAction::Grant { model, gpu: GpuId::new(gpu), class: CLASS, free_at, why: GrantWhy::default() }
}

struct Host(GpuRanker);

impl Host {
    fn new(models: u32, free_at: &[Time]) -> Self {
        let mut host = Self(GpuRanker::new(models, free_at.len() as u32));
        for (gpu, &free_at) in (0..).zip(free_at) {
            assert_eq!(
                host.step(Time::ZERO, RankInput::BusyUntil { gpu: GpuId::new(gpu), free_at, report_due: false }),
                []
            );
        }
        host
    }

    /// The actions, without the reasons of grants.
    fn step(&mut self, now: Time, input: RankInput) -> Vec<RankAction> {
        let mut out = self.step_why(now, input);
        for action in &mut out {
            if let RankAction::Grant { why, .. } = action {
                *why = GrantWhy::default();
            }
        }
        out
    }

    fn step_why(&mut self, now: Time, input: RankInput) -> Vec<RankAction> {
        let mut out = Vec::new();
        self.0.step(now, input, &mut out);
        out
    }

    fn offer(&mut self, now: Time, model: u32, answered: u64, candidate: Option<Candidate>) -> Vec<RankAction> {
        self.step(now, RankInput::Offer { model, answered, class: CLASS, candidate })
    }
}

#[test]
fn a_candidate_gets_the_lowest_free_gpu_at_its_start() {
    let mut host = Host::new(2, &[ms(50), ms(0), ms(0)]);
    assert_eq!(host.offer(ms(1), 0, 0, candidate(10, 12)), [RankAction::WakeAt(ms(10))]);
    assert_eq!(host.step(ms(10), RankInput::Wake), [grant(0, 1, ms(0))]);
    // The next one gets the next; the first is granted and answers later.
    assert_eq!(host.offer(ms(10), 1, 0, candidate(10, 12)), [grant(1, 2, ms(0))]);
}

#[test]
fn the_other_choice_spreads_load() {
    let mut host = Host::new(2, &[ms(5), ms(3), ms(4)]);
    let spread = |candidate: Candidate| Candidate { gpu_choice: GpuChoice::EarliestFree, ..candidate };
    assert_eq!(host.offer(ms(10), 0, 0, candidate(10, 12).map(spread)), [grant(0, 1, ms(3))]);
    // It is each model's own choice, also where it is told.
    let mut out =
        host.step_why(ms(10), RankInput::Offer { model: 1, answered: 0, class: CLASS, candidate: candidate(10, 12) });
    let RankAction::Grant { gpu, why, .. } = out.remove(0) else { panic!("no grant: {out:?}") };
    assert_eq!((gpu, why.choice), (GpuId::new(0), GpuChoice::LowestId));
}

#[test]
fn without_a_free_gpu_candidates_wait_and_the_most_urgent_is_served_first() {
    let mut host = Host::new(3, &[ms(20)]);
    assert_eq!(host.offer(ms(10), 0, 0, candidate(10, 40)), [RankAction::WakeAt(ms(20))]);
    assert_eq!(host.offer(ms(10), 1, 0, candidate(10, 30)), []);
    assert_eq!(host.offer(ms(10), 2, 0, candidate(10, 15)), [], "its window passes before the GPU is free");
    assert!(host.0.has_ready());
    assert_eq!(host.step(ms(20), RankInput::Wake), [grant(1, 0, ms(20))]);
    // The plan occupies the GPU until 26; then it finds the other model.
    let release = RankInput::Release { model: 1, gpu: GpuId::new(0), free_at: ms(26), report_due: false };
    assert_eq!(host.step(ms(20), release), [RankAction::WakeAt(ms(26))]);
    assert_eq!(host.step(ms(26), RankInput::Wake), [grant(0, 0, ms(26))]);
}

#[test]
fn the_order_of_those_that_wait_can_be_chosen() {
    let candidate = |start, frontrun, latest, must_end_by| {
        let (start, frontrun, latest, must_end_by) = (ms(start), ms(frontrun), ms(latest), ms(must_end_by));
        Candidate { batch: 1, start, latest, frontrun, must_end_by, ..Candidate::default() }
    };
    // Each is first by one measure.
    let waiting =
        [candidate(14, 32, 40, 72), candidate(13, 31, 41, 73), candidate(12, 34, 42, 71), candidate(11, 33, 43, 74)];
    let orders =
        [(ReadyOrder::Latest, 0), (ReadyOrder::Frontrun, 1), (ReadyOrder::Deadline, 2), (ReadyOrder::Start, 3)];
    for (order, first) in orders {
        let mut host = Host::new(4, &[ms(20)]);
        for (model, candidate) in (0..).zip(waiting) {
            host.offer(ms(15), model, 0, Some(Candidate { ready_order: order, ..candidate }));
        }
        assert_eq!(host.step(ms(20), RankInput::Wake), [grant(first, 0, ms(20))], "{order:?}");
    }
    // Models of different orders stand in one line: 40, 31, 12 and 74.
    let mut host = Host::new(4, &[ms(20)]);
    let mixed = [ReadyOrder::Latest, ReadyOrder::Frontrun, ReadyOrder::Start, ReadyOrder::Deadline];
    for (model, (candidate, ready_order)) in (0..).zip(waiting.into_iter().zip(mixed)) {
        host.offer(ms(15), model, 0, Some(Candidate { ready_order, ..candidate }));
    }
    let mut served = Vec::new();
    for at in [20, 22, 24, 26] {
        for action in host.step(ms(at), RankInput::Wake) {
            let RankAction::Grant { model, gpu, .. } = action else { continue };
            served.push(model);
            host.step(ms(at), RankInput::Release { model, gpu, free_at: ms(at + 2), report_due: false });
        }
    }
    assert_eq!(served, [2, 1, 0, 3]);
}

#[test]
fn whoever_is_put_ahead_is_served_first_among_those_that_wait() {
    let mut host = Host::new(2, &[ms(20)]);
    host.offer(ms(10), 0, 0, candidate(10, 30));
    let behind = candidate(10, 40).map(|candidate| Candidate { ahead: Nanos::from_millis(25), ..candidate });
    host.offer(ms(10), 1, 0, behind);
    assert_eq!(host.step(ms(20), RankInput::Wake), [grant(1, 0, ms(20))]);
}

#[test]
fn offers_older_than_the_last_grant_are_ignored() {
    let mut host = Host::new(1, &[ms(0), ms(0)]);
    assert_eq!(host.offer(ms(1), 0, 0, candidate(1, 9)), [grant(0, 0, ms(0))]);
    assert_eq!(host.offer(ms(2), 0, 0, candidate(1, 9)), [], "written before the grant was read");
    assert_eq!(host.offer(ms(2), 0, 1, candidate(2, 9)), [grant(0, 1, ms(0))]);
}

#[test]
fn a_returned_gpu_is_given_to_the_next_and_reports_do_not_touch_a_granted_one() {
    let mut host = Host::new(2, &[ms(0)]);
    host.offer(ms(1), 0, 0, candidate(1, 9));
    assert_eq!(host.step(ms(1), RankInput::BusyUntil { gpu: GpuId::new(0), free_at: ms(0), report_due: false }), []);
    assert_eq!(host.0.free_at(GpuId::new(0)), Time::NEVER);
    assert_eq!(host.offer(ms(1), 1, 0, candidate(1, 9)), []);
    let unused = RankInput::Release { model: 0, gpu: GpuId::new(0), free_at: ms(0), report_due: false };
    assert_eq!(host.step(ms(2), unused), [grant(1, 0, ms(0))]);
}

#[test]
fn a_removed_gpu_stays_away_even_if_its_release_comes_later() {
    let mut host = Host::new(2, &[ms(0)]);
    host.offer(ms(1), 0, 0, candidate(1, 9));
    host.step(ms(1), RankInput::Remove(GpuId::new(0)));
    host.step(ms(2), RankInput::Release { model: 0, gpu: GpuId::new(0), free_at: ms(2), report_due: false });
    assert_eq!(host.offer(ms(3), 1, 0, candidate(3, 9)), []);
    // It comes back under a new token, busy for a while.
    assert_eq!(
        host.step(ms(4), RankInput::BusyUntil { gpu: GpuId::new(0), free_at: ms(6), report_due: false }),
        [RankAction::WakeAt(ms(6))]
    );
    assert_eq!(host.step(ms(6), RankInput::Wake), [grant(1, 0, ms(6))]);
}

#[test]
fn plans_are_sent_ahead_by_their_lead() {
    let mut host = Host::new(2, &[ms(30)]);
    assert_eq!(host.offer(ms(1), 0, 0, ahead(30, 40, 3)), [RankAction::WakeAt(ms(27))]);
    assert_eq!(host.step(ms(27), RankInput::Wake), [grant(0, 0, ms(30))], "free by the start is free enough");
    host.step(ms(27), RankInput::Release { model: 0, gpu: GpuId::new(0), free_at: ms(50), report_due: false });
    // Two wait for the same GPU; it looks again in time for the longer lead.
    host.offer(ms(28), 0, 1, ahead(28, 90, 1));
    assert_eq!(host.offer(ms(28), 1, 0, ahead(28, 80, 5)), [RankAction::WakeAt(ms(45))]);
    assert_eq!(host.step(ms(45), RankInput::Wake)[0], grant(1, 0, ms(50)));
}

#[test]
fn a_forgotten_model_gets_nothing_and_new_ordinals_grow_the_tables() {
    let mut host = Host::new(1, &[]);
    host.offer(ms(1), 40, 0, candidate(1, 90));
    host.offer(ms(1), 41, 0, candidate(1, 95));
    host.step(ms(1), RankInput::Forget(40));
    assert_eq!(
        host.step(ms(2), RankInput::BusyUntil { gpu: GpuId::new(9), free_at: ms(0), report_due: false }),
        [grant(41, 9, ms(0))]
    );
}

#[test]
fn a_gpu_that_is_not_reported_is_busy_and_an_idle_one_goes_first() {
    // GPU 0 should be free at 30 ms and will be reported, GPU 1 is idle.
    let mut host = Host::new(4, &[ms(30), ms(0)]);
    let busy = |free_at, report_due| RankInput::BusyUntil { gpu: GpuId::new(0), free_at, report_due };
    host.step(ms(1), busy(ms(30), true));
    // Both could start it at 30 ms: the one that is idle is sure.
    assert_eq!(host.offer(ms(29), 0, 0, ahead(30, 40, 1))[0], grant(0, 1, ms(0)));
    // As planned it is free in time for the next one.
    let mut planned = Host(host.0.clone());
    assert_eq!(planned.offer(ms(29), 1, 0, ahead(30, 60, 1))[0], grant(1, 0, ms(30)));
    // At 31 ms it is overdue, and out of the game until it is reported.
    assert_eq!(host.offer(ms(31), 1, 0, candidate(31, 60)), []);
    assert_eq!(host.step(ms(44), busy(ms(44), false))[0], grant(1, 0, ms(44)));
}

#[test]
fn an_overdue_gpu_that_a_model_gives_back_is_still_overdue() {
    let mut host = Host::new(2, &[Time::NEVER]);
    let busy = |free_at, report_due| RankInput::BusyUntil { gpu: GpuId::new(0), free_at, report_due };
    host.step(ms(1), busy(ms(30), true));
    assert_eq!(host.offer(ms(29), 0, 0, ahead(30, 40, 1))[0], grant(0, 0, ms(30)));
    // No batch could use it; meanwhile its plan should have ended.
    let back = RankInput::Release { model: 0, gpu: GpuId::new(0), free_at: ms(30), report_due: true };
    host.step(ms(33), back);
    assert_eq!(host.offer(ms(33), 1, 0, candidate(33, 50)), []);
    assert_eq!(host.step(ms(35), busy(ms(35), false))[0], grant(1, 0, ms(35)));
}

fn whys(actions: &[RankAction]) -> Vec<(u32, GrantWhy)> {
    let grants = actions.iter().filter_map(|action| match *action {
        RankAction::Grant { model, why, .. } => Some((model, why)),
        RankAction::WakeAt(_) => None,
    });
    grants.collect()
}

#[test]
fn a_grant_says_who_found_whom_and_what_else_there_was() {
    let mut host = Host::new(4, &[ms(0), ms(0), ms(0), ms(90)]);
    let mut at = |now, model, candidate| {
        whys(&host.step_why(now, RankInput::Offer { model, answered: 0, class: CLASS, candidate }))
    };
    let choice = GpuChoice::LowestId;
    let alone = GrantWhy { matched: Matched::AtItsStart, choice, others_idle: 2, rivals: 0, next_rival: None };
    assert_eq!(at(ms(10), 0, candidate(10, 12)), [(0, alone)]);
    assert_eq!(at(ms(10), 1, candidate(10, 12)), [(1, GrantWhy { others_idle: 1, ..alone })]);
    assert_eq!(at(ms(10), 2, candidate(10, 12)), [(2, GrantWhy { others_idle: 0, ..alone })]);
    // Three are due and nothing is free: the GPU that comes back takes the most urgent, and knows who is next.
    assert_eq!(at(ms(10), 3, candidate(10, 70)), []);
    let answered =
        |model, latest_ms| RankInput::Offer { model, answered: 1, class: CLASS, candidate: candidate(10, latest_ms) };
    assert_eq!(whys(&host.step_why(ms(11), answered(0, 60))), []);
    assert_eq!(whys(&host.step_why(ms(11), answered(1, 50))), []);
    let release = RankInput::Release { model: 2, gpu: GpuId::new(2), free_at: ms(11), report_due: false };
    let next_rival = Some(Rival { model: 0, latest: ms(60) });
    let urgent = GrantWhy { matched: Matched::FirstInLine, choice, others_idle: 0, rivals: 2, next_rival };
    assert_eq!(whys(&host.step_why(ms(11), release)), [(1, urgent)]);
}
