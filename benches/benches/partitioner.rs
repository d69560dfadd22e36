//! `partitioner::solve`: seconds per plan, at the sizes of the Symphony paper, Appendix A, from nothing, from a plan in
//! force, and after a change of rates within C_max; and `partitioner::arrange`, with processes of four GPUs, and as the
//! epoch loop runs it in the largest cluster that there may be.

mod measured;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use symphony_partitioner::{
    Budget, GpuKind, KindNeed, Model, Part, PartKind, PartitionPlan, Problem, Steadiness, Unit, UnitGpu, arrange, solve,
};
use symphony_types::{LatencyProfile, Nanos};

const SIZES: [(usize, usize); 3] = [(400, 4), (800, 20), (10_000, 100)];

fn main() {
    measured::run(&[from_nothing, in_force, bounded, with_units, at_the_limits]);
}

/// Sizes and rates by a fixed rule, in parts that are alike.
fn problem(models: usize, parts: usize) -> Problem {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1.0 + (state >> 40) as f64 / f64::from(1 << 14)
    };
    let profile = LatencyProfile::from_line(1.0, 5.0, 32).expect("a line with positive latencies");
    let model = |at: usize| {
        let need = KindNeed {
            profile: profile.clone(),
            static_memory_bytes: (next() * 1e6) as u64,
            dynamic_memory_bytes: 2_000_000_000,
        };
        Model {
            name: format!("m{at}"),
            rate_rps: next() * next() / 1000.0,
            slo: Nanos::from_millis(50),
            needs: vec![Some(need)],
            move_cost: 1.0,
            pin: None,
        }
    };
    let kinds = vec![PartKind { kind: 0, memory_max_bytes: 1 << 40 }];
    let part = |at: usize| Part { name: format!("s{at}"), rate_max_rps: 1e12, share: 1.0, kinds: kinds.clone() };
    Problem {
        kinds: vec![GpuKind { name: "a100".to_owned(), memory_bytes: 1 << 40 }],
        models: (0..models).map(model).collect(),
        parts: (0..parts).map(part).collect(),
        gpus: Vec::new(),
        memory_weight: 1.0,
        disruption_max: None,
        steadiness: Steadiness::default(),
    }
}

fn from_nothing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("partitioner/from_nothing");
    group.sample_size(10);
    for (models, parts) in SIZES {
        let (problem, budget) = (problem(models, parts), Budget::for_models(models));
        group.bench_function(BenchmarkId::from_parameter(format!("{models}x{parts}")), |bencher| {
            bencher.iter(|| black_box(solve(&problem, None, &budget)));
        });
    }
    group.finish();
}

/// Rates as they were: the plan stays, and no search is made.
fn in_force(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("partitioner/in_force");
    group.sample_size(10);
    for (models, parts) in SIZES {
        let (problem, budget) = (problem(models, parts), Budget::for_models(models));
        let plan = solve(&problem, None, &budget).expect("nothing is limited");
        group.bench_function(BenchmarkId::from_parameter(format!("{models}x{parts}")), |bencher| {
            bencher.iter(|| black_box(solve(&problem, Some(&plan), &budget)));
        });
    }
    group.finish();
}

/// The problem after its rates have changed by up to a fifth.
fn drifted(problem: &Problem) -> Problem {
    let mut problem = problem.clone();
    for (at, model) in problem.models.iter_mut().enumerate() {
        model.rate_rps *= 0.8 + 0.4 * (((at * 7919) % 1000) as f64 / 1000.0);
    }
    problem
}

/// Rates have changed, and a tenth of the models may move.
fn bounded(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("partitioner/bounded");
    group.sample_size(10);
    for (models, parts) in SIZES {
        let (problem, budget) = (problem(models, parts), Budget::for_models(models));
        let plan = solve(&problem, None, &budget).expect("nothing is limited");
        let next = Problem { disruption_max: Some(0.1 * models as f64), ..drifted(&problem) };
        group.bench_function(BenchmarkId::from_parameter(format!("{models}x{parts}")), |bencher| {
            bencher.iter(|| black_box(solve(&next, Some(&plan), &budget)));
        });
    }
    group.finish();
}

/// What an epoch costs after a change of rates: models and processes, four of these in every part.
fn with_units(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("partitioner/with_units");
    group.sample_size(10);
    for (models, parts) in SIZES {
        let (problem, budget) = (problem(models, parts), Budget::for_models(models));
        let gpu = |unit: usize, at: usize| UnitGpu { name: format!("g{unit}-{at}"), kind: 0, memory_bytes: 1 << 40 };
        let unit =
            |at: usize| Unit { part: at % parts, works: true, gpus: (0..4).map(|gpu_at| gpu(at, gpu_at)).collect() };
        let units: Vec<Unit> = (0..4 * parts).map(unit).collect();
        let first = arrange(&problem, &units, &PartitionPlan::default(), &budget).expect("nothing is limited").plan;
        let next = drifted(&problem);
        group.bench_function(BenchmarkId::from_parameter(format!("{models}x{parts}")), |bencher| {
            bencher.iter(|| black_box(arrange(&next, &units, &first, &budget)));
        });
    }
    group.finish();
}

/// Models, sub-clusters and backends of the largest cluster that the control group holds, and how long its epoch loop
/// lets a search run.
const LIMITS: (usize, usize, usize) = (4096, 1024, 4096);
const SOLVE_WITHIN: Duration = Duration::from_secs(1);

/// An epoch of the largest cluster, ended by its time limit as in the epoch loop: what it takes beyond that.
fn at_the_limits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("partitioner/at_the_limits");
    group.sample_size(10);
    let (models, parts, units) = LIMITS;
    let problem = problem(models, parts);
    let unit = |at: usize| {
        let gpu = UnitGpu { name: format!("g{at}"), kind: 0, memory_bytes: 1 << 40 };
        Unit { part: at % parts, works: true, gpus: vec![gpu] }
    };
    let units: Vec<Unit> = (0..units).map(unit).collect();
    let within = |problem: &Problem, in_force: &PartitionPlan| {
        let give_up = Instant::now() + SOLVE_WITHIN;
        let should_stop = move || Instant::now() >= give_up;
        let budget = Budget { should_stop: Some(&should_stop), ..Budget::for_models(models) };
        arrange(problem, &units, in_force, &budget)
    };
    let first = within(&problem, &PartitionPlan::default()).expect("nothing is limited").plan;
    let next = drifted(&problem);
    group.bench_function(BenchmarkId::from_parameter(format!("{models}x{parts}")), |bencher| {
        bencher.iter(|| black_box(within(&next, &first)));
    });
    group.finish();
}
