//! Packing between epochs: few moves, hardly more GPUs, and every promise kept.

mod random;

use random::Random;
use symphony_packing::{PackedNode, RepackedNode, Session, moves, repack, squishy_bin_packing};
use symphony_types::{LatencyProfile, Nanos};

const MODELS: usize = 25;
const EPOCHS: usize = 30;
const RUNS: u64 = 20;

/// Models with their SLO, and a rate that fills a part of a GPU or more than one.
struct Workload {
    profiles: Vec<LatencyProfile>,
    slos: Vec<Nanos>,
    usual: Vec<f64>,
    rates: Vec<f64>,
}

impl Workload {
    fn new(random: &mut Random) -> Self {
        let mut workload = Self { profiles: vec![], slos: vec![], usual: vec![], rates: vec![] };
        for _ in 0..MODELS {
            let line = (random.between(0.2, 3.0), random.between(1.0, 15.0));
            let profile = LatencyProfile::from_line(line.0, line.1, 32).unwrap();
            let slo = Nanos::from_millis_f64(random.between(40.0, 250.0));
            let fits = |batch: &u32| profile.latency(*batch).saturating_mul(2) <= slo;
            let batch = (1..=32).rev().find(fits).unwrap_or(1);
            let alone = f64::from(batch) / profile.latency(batch).as_secs_f64();
            workload.usual.push(random.between(0.05, 1.5) * alone);
            workload.profiles.push(profile);
            workload.slos.push(slo);
        }
        workload.rates = workload.usual.clone();
        workload
    }

    /// Each rate becomes up to `most` times as large, or as small, within a fifth and five times the usual one.
    fn drift(&mut self, random: &mut Random, most: f64) {
        for (rate, usual) in self.rates.iter_mut().zip(&self.usual) {
            let factor = random.between(-most.ln(), most.ln()).exp();
            *rate = (*rate * factor).clamp(usual / 5.0, usual * 5.0);
        }
    }

    fn sessions(&self) -> Vec<Session<'_>> {
        let session =
            |at: usize| Session { profile: &self.profiles[at], slo: self.slos[at], rate_per_second: self.rates[at] };
        (0..MODELS).map(session).collect()
    }
}

fn nodes(repacked: Vec<RepackedNode>) -> Vec<PackedNode> {
    repacked.into_iter().map(|repacked| repacked.node).collect()
}

/// Each session has its rate, no node is overloaded, none breaks an SLO.
fn check(sessions: &[Session<'_>], nodes: &[PackedNode]) {
    let mut rates = vec![0.0; sessions.len()];
    for node in nodes {
        let mut busy = Nanos::ZERO;
        for packed in &node.sessions {
            let session = &sessions[packed.session];
            let latency = session.profile.latency(packed.batch);
            busy += latency;
            rates[packed.session] += packed.rate_per_second;
            assert!(node.duty + latency <= session.slo + Nanos::new(2), "{node:?}");
            // Duty cycles are rounded to the nanosecond.
            let gathered = (node.duty.as_secs_f64() - 1e-9) * packed.rate_per_second;
            assert!(gathered <= f64::from(packed.batch) + 1e-6, "{node:?}");
        }
        assert!(busy <= node.duty + Nanos::new(2), "{node:?}");
    }
    for (session, rate) in sessions.iter().zip(rates) {
        assert!((session.rate_per_second - rate).abs() < 1e-6 * rate.max(1.0), "{session:?} has {rate}");
    }
}

#[test]
fn sixty_percent_fewer_moves_for_five_percent_more_gpus_at_most() {
    let (mut moved, mut moved_from_scratch, mut gpus, mut gpus_from_scratch) = (0, 0, 0, 0);
    for seed in 0..RUNS {
        let mut random = Random::new(seed);
        let mut workload = Workload::new(&mut random);
        let mut kept = squishy_bin_packing(&workload.sessions());
        let mut scratch = kept.clone();
        for _ in 0..EPOCHS {
            workload.drift(&mut random, 1.3);
            let sessions = workload.sessions();
            let repacked = repack(&sessions, &kept);
            moved += moves(&kept, &repacked);
            kept = nodes(repacked);
            check(&sessions, &kept);
            // From scratch, nodes take the GPUs in their order.
            let packed = squishy_bin_packing(&sessions);
            let in_order: Vec<_> = packed
                .iter()
                .enumerate()
                .map(|(at, node)| RepackedNode { node: node.clone(), from: (at < scratch.len()).then_some(at) })
                .collect();
            moved_from_scratch += moves(&scratch, &in_order);
            scratch = packed;
            gpus += kept.len();
            gpus_from_scratch += scratch.len();
        }
    }
    let ratio = |incremental: usize, from_scratch: usize| incremental as f64 / from_scratch as f64;
    let (of_moves, of_gpus) = (ratio(moved, moved_from_scratch), ratio(gpus, gpus_from_scratch));
    eprintln!("over packing from scratch: {of_moves:.3} of the moves, {of_gpus:.3} of the GPUs");
    assert!(moved * 10 <= moved_from_scratch * 4, "{moved} moves, {moved_from_scratch} from scratch");
    assert!(gpus * 100 <= gpus_from_scratch * 105, "{gpus} GPU epochs, {gpus_from_scratch} from scratch");
}

#[test]
fn what_does_not_change_does_not_move() {
    let workload = Workload::new(&mut Random::new(3));
    let sessions = workload.sessions();
    let mut kept = nodes(repack(&sessions, &squishy_bin_packing(&sessions)));
    for _ in 0..3 {
        let again = repack(&sessions, &kept);
        assert_eq!(moves(&kept, &again), 0);
        let again = nodes(again);
        assert_eq!(again.len(), kept.len());
        kept = again;
    }
}

#[test]
fn nothing_in_force_is_packing_from_scratch_but_for_what_can_be_emptied() {
    let workload = Workload::new(&mut Random::new(4));
    let sessions = workload.sessions();
    let repacked = repack(&sessions, &[]);
    assert!(repacked.iter().all(|node| node.from.is_none()));
    let scratch = squishy_bin_packing(&sessions);
    assert!(repacked.len() <= scratch.len());
    let places: usize = scratch.iter().map(|node| node.sessions.len()).sum();
    assert_eq!(moves(&[], &repacked), places);
}

/// 50 ms for 4 items and 100 ms for 16, like model A of the paper's Table 2, and a line between.
fn line() -> LatencyProfile {
    LatencyProfile::from_line(50.0 / 12.0, 100.0 / 3.0, 16).unwrap()
}

#[test]
fn an_overloaded_node_evicts_the_cheapest_session_that_is_enough() {
    let profile = line();
    let session = |rate_per_second| Session { profile: &profile, slo: Nanos::from_millis(400), rate_per_second };
    let before = [session(20.0), session(14.0), session(2.0)];
    let kept = squishy_bin_packing(&before);
    assert_eq!(kept.len(), 1, "{kept:?}");
    // The first grows until all three do not fit; the others stay as they are.
    let mut grown = (20..200).map(|rate| [session(f64::from(rate)), before[1], before[2]]);
    let after = grown.find(|after| squishy_bin_packing(after).len() > 1).unwrap();
    let repacked = repack(&after, &kept);
    let nodes: Vec<_> = repacked.iter().map(|repacked| &repacked.node).collect();
    assert_eq!(repacked[0].from, Some(0));
    assert!(nodes[0].runs(0), "the largest stays");
    assert_eq!(moves(&kept, &repacked), 1, "one goes: {repacked:?}");
}

#[test]
fn light_nodes_are_emptied_and_sessions_without_a_rate_leave() {
    let profile = line();
    let session = |rate_per_second| Session { profile: &profile, slo: Nanos::from_millis(400), rate_per_second };
    let kept = squishy_bin_packing(&[session(90.0), session(90.0), session(90.0)]);
    assert_eq!(kept.len(), 3);
    let after = [session(5.0), session(5.0), session(0.0)];
    let repacked = repack(&after, &kept);
    assert_eq!(repacked.len(), 1, "{repacked:?}");
    assert_eq!(moves(&kept, &repacked), 1);
    assert!(repack(&[], &kept).is_empty());
}
