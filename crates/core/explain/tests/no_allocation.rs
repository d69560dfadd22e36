//! Recording a decision must not allocate: it happens on decision threads.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use symphony_explain::{BatchEnd, BatchRecord, DropRecord, FlightRecorder, RecorderLimits};
use symphony_scheduler::{Plan, Request};
use symphony_types::{DropReason, GpuId, Nanos, RequestId, Time};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn recording_allocates_nothing_from_the_first_batch_on() {
    let mut recorder = FlightRecorder::new(RecorderLimits { batches: 100, requests: 1000, drops: 100 });
    let at = Time::from_nanos(1);
    let (gpu, start, end, must_end_by) = (GpuId::new(0), at, at, at);
    let plan = Plan { gpu, start, end, batch: 8, must_end_by, first: 0, requests: 8, why: None };
    let record = BatchRecord { model: 0, decided: at, plan, end: BatchEnd::Running };
    let request = Request {
        id: RequestId::default(),
        deadline: at,
        items: 1,
        weight: symphony_types::RequestValue::ONE,
        variant: 0,
    };
    let drop =
        DropRecord { model: 0, decided: at, request, reason: DropReason::ProtectBatch, cause: None, lost: false };
    // The harness's own thread may allocate meanwhile, once: a recorder that allocates does so each time.
    let least = (0..3).map(|_| {
        let region = Region::new(ALLOCATOR);
        for _ in 0..10_000 {
            let number = recorder.batch(record, &[request; 8]);
            recorder.ended(number, BatchEnd::Done { start: at, at_latest: false, latency: Nanos::new(5) });
            recorder.dropped(drop);
        }
        region.change().allocations
    });
    assert_eq!(least.min(), Some(0));
    assert_eq!(recorder.next_batch(), 30_000);
}
