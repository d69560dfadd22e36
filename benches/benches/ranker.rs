//! `GpuRanker::step`: nanoseconds per offer, per batch, and per request.

mod measured;

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use symphony_benches::record;
use symphony_scheduler::{Candidate, GpuRanker, RankAction, RankActions, RankInput};
use symphony_types::{GpuClass, GpuId, Nanos, Time};

const MODELS: [u32; 3] = [1, 100, 1000];
const GPUS: [u32; 3] = [8, 512, 4096];
/// Time between two offers.
const GAP: Nanos = Nanos::new(100);
/// How long a candidate's start lies ahead when it is only refreshed, and how long its window is.
const AHEAD: Nanos = Nanos::from_millis(5);
const WINDOW: Nanos = Nanos::from_millis(1);
/// See the benchmark of the model queue.
const RATE_PER_GPU: f64 = 580.0;
const RECORDED_REQUESTS_MIN: u64 = 20_000;
const RECORDED_REQUESTS_PER_MODEL: u64 = 200;

fn main() {
    measured::run(&[offer, cycle, table4]);
}

fn idle(models: u32, gpus: u32) -> (GpuRanker, RankActions) {
    let (mut ranker, mut actions) = (GpuRanker::new(models, gpus), RankActions::new());
    for gpu in 0..gpus {
        ranker.step(
            Time::ZERO,
            RankInput::BusyUntil { gpu: GpuId::new(gpu), free_at: Time::ZERO, report_due: false },
            &mut actions,
        );
    }
    (ranker, actions)
}

fn candidate(start: Time) -> Option<Candidate> {
    let latest = start + WINDOW;
    let (frontrun, must_end_by) = (start, latest);
    Some(Candidate { batch: 8, start, latest, frontrun, must_end_by, ..Candidate::default() })
}

/// A model, each in turn, refreshes a candidate that is not due yet: what most arrivals cause; per offer.
fn offer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ranker/offer");
    group.throughput(Throughput::Elements(1));
    for (models, gpus) in grid() {
        let ((mut ranker, mut actions), mut now, mut model) = (idle(models, gpus), Time::ZERO, 0);
        let class = GpuClass::FIRST;
        group.bench_function(BenchmarkId::from_parameter(format!("{models}x{gpus}")), |bencher| {
            bencher.iter(|| {
                now += GAP;
                model = (model + 1) % models;
                actions.clear();
                ranker.step(
                    now,
                    RankInput::Offer { model, answered: 0, class, candidate: candidate(now + AHEAD) },
                    &mut actions,
                );
                black_box(&actions);
            });
        });
    }
    group.finish();
}

/// A model, each in turn, offers a candidate that is due, is granted a GPU and releases it; four of five GPUs are busy
/// at any time; per batch.
fn cycle(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ranker/cycle");
    group.throughput(Throughput::Elements(1));
    for (models, gpus) in grid() {
        let ((mut ranker, mut actions), mut now, mut model) = (idle(models, gpus), Time::ZERO, 0);
        let class = GpuClass::FIRST;
        let mut answered = vec![0; models as usize];
        let busy = GAP.saturating_mul(u64::from(gpus) * 4 / 5);
        group.bench_function(BenchmarkId::from_parameter(format!("{models}x{gpus}")), |bencher| {
            bencher.iter(|| {
                now += GAP;
                model = (model + 1) % models;
                actions.clear();
                let answered = &mut answered[model as usize];
                let offer = RankInput::Offer { model, answered: *answered, class, candidate: candidate(now) };
                ranker.step(now, offer, &mut actions);
                let granted = actions.iter().find_map(|action| match *action {
                    RankAction::Grant { gpu, .. } => Some(gpu),
                    RankAction::WakeAt(_) => None,
                });
                let gpu = granted.expect("one of five GPUs is free");
                *answered += 1;
                ranker.step(
                    now,
                    RankInput::Release { model, gpu, free_at: now + busy, report_due: false },
                    &mut actions,
                );
                black_box(&actions);
            });
        });
    }
    group.finish();
}

/// The inputs of the ranker under the load of Table 4, replayed; per request.
fn table4(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ranker/table4");
    for ((models, gpus), classes) in MODELS.into_iter().zip(GPUS).flat_map(|size| [(size, 1), (size, 2)]) {
        let requests = RECORDED_REQUESTS_MIN.max(RECORDED_REQUESTS_PER_MODEL * u64::from(models));
        let tapes = record(models, gpus, classes, RATE_PER_GPU * f64::from(gpus), requests);
        let mut actions = RankActions::new();
        eprintln!(
            "{models} models on {gpus} GPUs of {classes} classes: {:.2} steps per request",
            tapes.rank.steps() as f64 / requests as f64
        );
        group.throughput(Throughput::Elements(requests));
        let of_classes = if classes == 1 { String::new() } else { format!("_{classes}_classes") };
        group.bench_function(BenchmarkId::from_parameter(format!("{models}x{gpus}{of_classes}")), |bencher| {
            bencher.iter_batched_ref(
                || tapes.rank.ranker.clone(),
                |ranker| tapes.rank.replay(ranker, &mut actions),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn grid() -> impl Iterator<Item = (u32, u32)> {
    MODELS.into_iter().flat_map(|models| GPUS.into_iter().map(move |gpus| (models, gpus)))
}
