//! The flight recorder: nanoseconds per batch of 16 with its end, and per drop. It stays on in production.

mod measured;

use criterion::{BenchmarkId, Criterion, Throughput};
use symphony_explain::{BatchEnd, BatchRecord, DropRecord, FlightRecorder, RecorderLimits};
use symphony_scheduler::{Plan, Request};
use symphony_types::{DropReason, GpuId, Nanos, RequestId, Time};

/// Requests in a batch: the staggered batch of the Symphony paper, Table 4, ResNet-50.
const BATCH: u32 = 16;

fn main() {
    measured::run(&[record]);
}

fn record(criterion: &mut Criterion) {
    let at = Time::from_nanos(1);
    let request = Request {
        id: RequestId::default(),
        deadline: at,
        items: 1,
        weight: symphony_types::RequestValue::ONE,
        variant: 0,
    };
    let mut group = criterion.benchmark_group("flight_recorder");
    group.throughput(Throughput::Elements(1));
    let mut recorder = FlightRecorder::new(RecorderLimits::WORKER);
    let plan = Plan {
        gpu: GpuId::new(0),
        start: at,
        end: at,
        batch: BATCH,
        must_end_by: at,
        first: 0,
        requests: BATCH,
        why: None,
    };
    let batch = BatchRecord { model: 0, decided: at, plan, end: BatchEnd::Running };
    let requests = [request; BATCH as usize];
    group.bench_function(BenchmarkId::new("batch", BATCH), |bencher| {
        bencher.iter(|| {
            let number = recorder.batch(batch, &requests);
            recorder.ended(number, BatchEnd::Done { start: at, at_latest: false, latency: Nanos::new(1) });
        });
    });
    let drop =
        DropRecord { model: 0, decided: at, request, reason: DropReason::ProtectBatch, cause: None, lost: false };
    group.bench_function("drop", |bencher| bencher.iter(|| recorder.dropped(drop)));
    group.finish();
}
