//! What every placement keeps.

mod workload;

use symphony_packing::{SESSIONS_MAX, Session};
use symphony_placement::{
    Demand, Divided, Fifo, GPUS_MAX, Incremental, Packed, Placed, Placement, Random, Refused, Sticky,
};
use symphony_types::{LatencyProfile, Nanos};
use workload::Workload;

const MODELS: usize = 12;

fn all() -> [(&'static str, Box<dyn Placement>); 6] {
    [
        ("fifo", Box::new(Fifo)),
        ("packed", Box::new(Packed)),
        ("random", Box::new(Random)),
        ("sticky", Box::new(Sticky)),
        ("incremental", Box::new(Incremental)),
        ("divided", Box::new(Divided { parts: 3, moves: 20_000 })),
    ]
}

fn rates(placed: &Placed, sessions: usize) -> Vec<f64> {
    let mut rates = vec![0.0; sessions];
    for packed in placed.gpus.iter().filter_map(|gpu| gpu.node.as_ref()).flat_map(|node| &node.sessions) {
        rates[packed.session] += packed.rate_per_second;
    }
    rates
}

#[test]
fn every_session_has_its_rate_epoch_after_epoch_and_equal_inputs_give_equal_placements() {
    for (name, placement) in all() {
        let mut random = workload::Random::new(9);
        let mut workload = Workload::new(&mut random, MODELS);
        let models: Vec<_> = (0..MODELS).collect();
        let mut placed = Placed::default();
        for epoch in 0..8 {
            workload.drift(&mut random);
            let sessions = workload.sessions();
            let demand = Demand::new(&sessions, &models, 60, epoch).unwrap();
            let next = placement.place(&demand, &placed);
            assert_eq!(next, placement.place(&demand, &placed), "{name}");
            assert!(next.unplaced.is_empty(), "{name}");
            for (session, rate) in sessions.iter().zip(rates(&next, MODELS)) {
                assert!((session.rate_per_second - rate).abs() < 1e-6 * rate.max(1.0), "{name}: {rate}");
            }
            for gpu in &next.gpus {
                let runs = gpu.node.iter().flat_map(|node| &node.sessions).map(|packed| packed.session);
                assert!(runs.clone().all(|session| gpu.loaded.contains(&session)), "{name}: {gpu:?}");
                assert!(gpu.node.is_none() || runs.count() == gpu.loaded.len(), "{name}: {gpu:?}");
            }
            placed = next;
        }
    }
}

#[test]
fn without_enough_gpus_the_rest_is_told() {
    let workload = Workload::new(&mut workload::Random::new(3), MODELS);
    let (sessions, models) = (workload.sessions(), (0..MODELS).collect::<Vec<_>>());
    for (name, placement) in all() {
        let whole = placement.place(&Demand::new(&sessions, &models, 60, 0).unwrap(), &Placed::default());
        for gpus in [0, 1, 3] {
            let placed = placement.place(&Demand::new(&sessions, &models, gpus, 0).unwrap(), &whole);
            assert_eq!(placed.gpus.len(), gpus, "{name}");
            assert!(placed.gpus.iter().all(|gpu| gpu.node.is_some()), "{name}");
            // A division overloads what there is.
            assert!(name == "divided" || !placed.unplaced.is_empty(), "{name}");
        }
    }
}

#[test]
fn first_come_first_served_shares_no_gpu() {
    let workload = Workload::new(&mut workload::Random::new(4), MODELS);
    let (sessions, models) = (workload.sessions(), (0..MODELS).collect::<Vec<_>>());
    let demand = Demand::new(&sessions, &models, 60, 0).unwrap();
    let used = |placed: &Placed| placed.gpus.iter().filter(|gpu| gpu.node.is_some()).count();
    let (fifo, packed) = (Fifo.place(&demand, &Placed::default()), Packed.place(&demand, &Placed::default()));
    assert!(fifo.gpus.iter().filter_map(|gpu| gpu.node.as_ref()).all(|node| node.sessions.len() == 1));
    let order: Vec<_> =
        fifo.gpus.iter().filter_map(|gpu| gpu.node.as_ref()).map(|node| node.sessions[0].session).collect();
    assert!(order.is_sorted(), "{order:?}");
    assert!(used(&packed) < used(&fifo), "{} {}", used(&packed), used(&fifo));
}

#[test]
fn divided_keeps_its_division_while_it_is_even_and_leaves_out_what_nobody_can_do() {
    let profile = LatencyProfile::from_line(1.0, 5.0, 16).unwrap();
    let session = |slo_ms| Session { profile: &profile, slo: Nanos::from_millis(slo_ms), rate_per_second: 100.0 };
    let sessions = [session(50), session(50), session(50), session(50), session(2)];
    let demand = Demand::new(&sessions, &[0, 1, 2, 3, 4], 4, 1).unwrap();
    let divided = Divided { parts: 2, moves: 20_000 };
    let first = divided.place(&demand, &Placed::default());
    assert_eq!(rates(&first, 5)[4], 0.0);
    assert!(first.gpus.iter().all(|gpu| gpu.loaded.len() == 2), "{first:?}");
    assert_eq!(divided.place(&Demand::new(&sessions, &[0, 1, 2, 3, 4], 4, 77).unwrap(), &first), first);
    let nothing = Demand::new(&sessions[4..], &[4], 4, 1).unwrap();
    assert!(divided.place(&nothing, &Placed::default()).gpus.iter().all(|gpu| gpu.node.is_none()));
}

#[test]
fn demands_beyond_the_limits_are_refused() {
    let profile = LatencyProfile::from_line(1.0, 5.0, 16).unwrap();
    let session = |rate_per_second| Session { profile: &profile, slo: Nanos::from_millis(50), rate_per_second };
    let refused =
        |sessions: &[Session<'_>], models: &[usize], gpus| Demand::new(sessions, models, gpus, 0).unwrap_err();
    assert_eq!(refused(&[session(1.0)], &[], 1), Refused::Sessions { sessions: 1, models: 0 });
    let many = vec![session(1.0); SESSIONS_MAX + 1];
    assert!(matches!(refused(&many, &[0; SESSIONS_MAX + 1], 1), Refused::Sessions { .. }));
    assert_eq!(refused(&[], &[], GPUS_MAX + 1), Refused::Gpus(GPUS_MAX + 1));
    for rate in [1e12, f64::INFINITY] {
        assert!(matches!(refused(&[session(rate)], &[0], 1), Refused::Nodes(_)), "{rate}");
    }
    assert!(Demand::new(&[session(f64::NAN), session(-1.0)], &[0, 1], 1, 0).is_ok(), "no rate");
}
