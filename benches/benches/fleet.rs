//! `fleet::rank`: all fleets within a budget, about a thousand of four kinds, by each bound.

mod measured;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use symphony_fleet::{Bound, FleetModel, FleetProblem, Kind, LatencyTable, rank};

const KINDS: [(&str, f64, f64); 4] = [("a", 0.5, 0.25), ("b", 0.4, 0.39), ("c", 0.15, 0.41), ("d", 0.16, 0.88)];
/// Sizes of requests, ten items apart.
const SIZES: u32 = 100;

fn main() {
    measured::run(&[ranking]);
}

/// One model, whose largest requests only the first kind answers in time.
fn problem(budget_per_hour: f64) -> FleetProblem {
    let kind = |&(name, price_per_hour, _): &(&str, f64, f64)| {
        let count_max = (budget_per_hour / price_per_hour) as u32;
        Kind { name: name.to_owned(), price_per_hour, count_max }
    };
    let latency = |&(_, _, ms_per_item): &(&str, f64, f64)| {
        let points: Vec<_> = (1..=SIZES).map(|size| (10 * size, 5.0 + ms_per_item * 10.0 * f64::from(size))).collect();
        LatencyTable::from_points(&points).expect("rising latencies")
    };
    let model = FleetModel {
        name: "m".to_owned(),
        slo_ms: 350.0,
        share: 1.0,
        sizes: (1..=SIZES).map(|size| (10 * size, 1.0 / f64::from(SIZES))).collect(),
        latencies: KINDS.iter().map(latency).collect(),
    };
    FleetProblem { budget_per_hour, kinds: KINDS.iter().map(kind).collect(), models: vec![model] }
}

fn ranking(criterion: &mut Criterion) {
    let problem = problem(3.1);
    let fleets = rank(&problem, Bound::Kairos).expect("a budget that buys the first kind").fleets.len();
    let mut group = criterion.benchmark_group("fleet/rank");
    group.throughput(Throughput::Elements(fleets as u64));
    for (name, bound) in [("kairos", Bound::Kairos), ("alone", Bound::Alone), ("together", Bound::Together)] {
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| black_box(rank(black_box(&problem), bound)));
        });
    }
    group.finish();
}
