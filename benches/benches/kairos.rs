//! `Kairos`: a request comes and goes again, two decisions, while as many wait as there are GPUs. One GPU is idle, so
//! that each decision matches; it serves no model, so that nothing is sent and all stays as it is.

mod measured;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion};
use symphony_scheduler::rivals::{Kairos, KairosSettings};
use symphony_scheduler::{
    ClassProfiles, ClusterActions, ClusterFacts, ClusterInput, ClusterModel, ClusterPolicy, Request,
};
use symphony_types::{GpuClass, GpuId, LatencyProfile, Nanos, RequestId, RequestValue, Time};

const SIDES: [u32; 2] = [20, 200];

fn main() {
    measured::run(&[come_and_go]);
}

fn request(sequence: u64) -> Request {
    let id = RequestId { sequence, ..RequestId::default() };
    // No two are alike.
    let items = 1 + (sequence * 37 % 500) as u32;
    let deadline = Time::ZERO + Nanos::from_millis(2_000) + Nanos::from_micros(sequence);
    Request { id, deadline, items, weight: RequestValue::ONE, variant: 0 }
}

/// As many GPUs and waiting requests; GPUs of three kinds are busy for a second and a little.
fn busy(side: u32) -> (Kairos, ClusterActions) {
    let mut policy = Kairos::new(&ClusterFacts::default(), KairosSettings::default());
    let mut out = ClusterActions::with_room();
    let profile = |alpha_ms| LatencyProfile::from_line(alpha_ms, 2.0, 500).expect("a line");
    let profiles: ClassProfiles = GpuClass::all().zip([0.2, 0.5, 0.9].map(profile)).collect();
    let known = Arc::new(ClusterModel::new(profiles, Nanos::from_millis(2_000)));
    policy.step(Time::ZERO, ClusterInput::Model { model: 0, known }, &mut out);
    for gpu in 0..side {
        let class = GpuClass::new(gpu as usize % 3).expect("a class");
        let free_at = Time::ZERO + Nanos::from_millis(1_000) + Nanos::from_micros(u64::from(gpu));
        policy.step(Time::ZERO, ClusterInput::GpuUp { gpu: GpuId::new(gpu), class, free_at }, &mut out);
    }
    for sequence in 0..u64::from(side) {
        policy.step(Time::ZERO, ClusterInput::Arrive { model: 0, request: request(sequence) }, &mut out);
    }
    let idle =
        ClusterInput::GpuUp { gpu: GpuId::new(side), class: GpuClass::new(3).expect("a class"), free_at: Time::ZERO };
    policy.step(Time::ZERO, idle, &mut out);
    (policy, out)
}

fn come_and_go(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("kairos/come_and_go");
    for side in SIDES {
        let (mut policy, mut out) = busy(side);
        let mut sequences = u64::from(side)..;
        group.bench_function(BenchmarkId::from_parameter(side), |bencher| {
            bencher.iter(|| {
                let request = request(sequences.next().unwrap_or_default());
                policy.step(Time::ZERO, ClusterInput::Arrive { model: 0, request }, &mut out);
                policy.step(Time::ZERO, ClusterInput::Cancel { model: 0, request }, &mut out);
                out.clear();
                black_box(policy.waiting())
            });
        });
    }
    group.finish();
}
