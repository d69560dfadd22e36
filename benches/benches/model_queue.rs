//! `ModelQueue::step`: nanoseconds per request.

mod measured;

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use symphony_benches::{CONFIG_SLO, queue_config, record};
use symphony_scheduler::{GrantWhy, ModelActions, ModelInput, ModelQueue, Request};
use symphony_types::{GpuClass, GpuId, Nanos, RequestId, Time};

/// The staggered batch of the Symphony paper, Table 4, ResNet-50.
const BATCH: u64 = 16;
/// Models, and a cluster that suits them: rate and GPUs per model stay near those of Table 4.
const SIZES: [(u32, u32); 3] = [(1, 8), (100, 512), (1000, 4096)];
/// 90 % of what Table 4 reports for one GPU: 5169 r/s on eight.
const RATE_PER_GPU: f64 = 580.0;
const RECORDED_REQUESTS_MIN: u64 = 20_000;
const RECORDED_REQUESTS_PER_MODEL: u64 = 200;

fn main() {
    measured::run(&[arrive, cycle, table4]);
}

fn arrival(now: Time, sequence: u64) -> ModelInput {
    let id = RequestId { sequence, ..RequestId::default() };
    ModelInput::Arrive(Request {
        id,
        deadline: now + CONFIG_SLO,
        items: 1,
        weight: symphony_types::RequestValue::ONE,
        variant: 0,
    })
}

/// A batch of arrivals that find an empty queue; per arrival.
fn arrive(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("model_queue/arrive");
    group.throughput(Throughput::Elements(BATCH));
    let (empty, mut actions) = (ModelQueue::new(queue_config(1)), ModelActions::default());
    group.bench_function("1", |bencher| {
        bencher.iter_batched_ref(
            || empty.clone(),
            |queue| {
                for sequence in 0..BATCH {
                    let now = Time::from_nanos(sequence * 100_000);
                    actions.clear();
                    queue.step(now, arrival(now, sequence), &mut actions);
                    black_box(&actions);
                }
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// A batch of arrivals and the grant that plans them, the models in turn; per request.
fn cycle(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("model_queue/cycle");
    group.throughput(Throughput::Elements(BATCH));
    for (models, _) in SIZES {
        let mut queues: Vec<_> = (0..models).map(|_| ModelQueue::new(queue_config(1))).collect();
        let (mut actions, mut now, mut sequence, mut turn) = (ModelActions::default(), Time::ZERO, 0, 0);
        group.bench_function(BenchmarkId::from_parameter(models), |bencher| {
            bencher.iter(|| {
                let queue = &mut queues[turn];
                turn = (turn + 1) % models as usize;
                for _ in 0..BATCH {
                    now += Nanos::from_micros(1);
                    sequence += 1;
                    actions.clear();
                    queue.step(now, arrival(now, sequence), &mut actions);
                    black_box(&actions);
                }
                actions.clear();
                queue.step(
                    now,
                    ModelInput::Grant {
                        gpu: GpuId::new(0),
                        class: GpuClass::FIRST,
                        free_at: now,
                        why: GrantWhy::default(),
                    },
                    &mut actions,
                );
                black_box(&actions);
            });
        });
    }
    group.finish();
}

/// The inputs of queues under the load of Table 4, replayed: wake-ups and unused grants included; per request.
fn table4(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("model_queue/table4");
    for ((models, gpus), classes) in SIZES.into_iter().flat_map(|size| [(size, 1), (size, 2)]) {
        let requests = RECORDED_REQUESTS_MIN.max(RECORDED_REQUESTS_PER_MODEL * u64::from(models));
        let tapes = record(models, gpus, classes, RATE_PER_GPU * f64::from(gpus), requests);
        let mut actions = ModelActions::default();
        eprintln!(
            "{models} models on {gpus} GPUs of {classes} classes: mean batch {:.1}, {:.2} steps per request",
            tapes.planned as f64 / tapes.batches as f64,
            tapes.model.steps() as f64 / requests as f64
        );
        group.throughput(Throughput::Elements(requests));
        let of_classes = if classes == 1 { String::new() } else { format!("_{classes}_classes") };
        group.bench_function(BenchmarkId::from_parameter(format!("{models}{of_classes}")), |bencher| {
            bencher.iter_batched_ref(
                || tapes.model.queues.clone(),
                |queues| tapes.model.replay(queues, &mut actions),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}
