//! Problems for tests.

// Each test file takes what it needs.
#![allow(dead_code)]

use proptest::prelude::*;
use symphony_partitioner::{Budget, Gpu, GpuKind, KindNeed, Model, Part, PartKind, Pin, Problem, Steadiness};
use symphony_types::{LatencyProfile, Nanos};

pub(crate) const MB: u64 = 1 << 20;

/// Enough for a handful of models.
pub(crate) fn small() -> Budget<'static> {
    Budget { moves: 400_000, seed: 1, should_stop: None }
}

pub(crate) fn need(alpha_ms: f64, beta_ms: f64, static_mb: u64, dynamic_mb: u64) -> Option<KindNeed> {
    Some(KindNeed {
        profile: LatencyProfile::from_line(alpha_ms, beta_ms, 32).unwrap(),
        static_memory_bytes: static_mb * MB,
        dynamic_memory_bytes: dynamic_mb * MB,
    })
}

pub(crate) fn model(name: &str, rate_rps: f64, static_mb: u64, dynamic_mb: u64) -> Model {
    Model {
        name: name.to_owned(),
        rate_rps,
        slo: Nanos::from_millis(50),
        needs: vec![need(1.0, 5.0, static_mb, dynamic_mb)],
        move_cost: 1.0,
        pin: None,
    }
}

pub(crate) fn part(name: &str, rate_max_rps: f64, memory_mb: u64) -> Part {
    let kinds = vec![PartKind { kind: 0, memory_max_bytes: memory_mb * MB }];
    Part { name: name.to_owned(), rate_max_rps, share: 1.0, kinds }
}

/// Parts that are alike, of one kind of GPU, and this many GPUs to distribute.
pub(crate) fn alike(parts: usize, gpus: usize, rate_max_rps: f64, memory_mb: u64, models: Vec<Model>) -> Problem {
    Problem {
        kinds: vec![GpuKind { name: "a100".to_owned(), memory_bytes: 40_960 * MB }],
        models,
        parts: (0..parts).map(|at| part(&format!("s-{at}"), rate_max_rps, memory_mb)).collect(),
        gpus: (0..gpus).map(|at| Gpu { name: format!("g{at}"), kind: 0, part: None }).collect(),
        memory_weight: 1.0,
        disruption_max: None,
        steadiness: Steadiness::default(),
    }
}

/// Small problems of every sort: one or two kinds, parts of different size and with GPUs of their own, pins, limits
/// that bind.
pub(crate) fn any_small() -> impl Strategy<Value = Problem> {
    let numbers = (0.0_f64..500.0, 1_u64..400, 0_u64..400, 0_u8..10, 0.0_f64..5.0);
    let gpu = (0_usize..2, 0_u8..4);
    let shape = (1_usize..5, 0_u8..3, 0.0_f64..3.0, proptest::option::of(0.0_f64..10.0), 1.05_f64..3.0);
    (proptest::collection::vec(numbers, 1..9), proptest::collection::vec(gpu, 0..12), shape).prop_map(
        |(models, gpus, (parts, kinds, memory_weight, disruption_max, room))| {
            let two_kinds = kinds == 0;
            let rate: f64 = models.iter().map(|model| model.0).sum();
            let memory: u64 = models.iter().map(|model| model.1).sum();
            let memory_max = (memory as f64 * room / parts as f64) as u64 * MB + 400 * MB;
            let models: Vec<Model> = models
                .into_iter()
                .enumerate()
                .map(|(at, (rate_rps, static_mb, dynamic_mb, sort, move_cost))| {
                    let mut of = model(&format!("m{at}"), rate_rps, static_mb, dynamic_mb);
                    of.move_cost = move_cost;
                    if two_kinds {
                        of.needs.push(if sort == 0 { None } else { need(3.0, 9.0, static_mb + 5, dynamic_mb / 2) });
                    }
                    if sort == 1 {
                        of.pin = Some(Pin::Part(at % parts));
                    }
                    of
                })
                .collect();
            let mut problem = alike(parts, 0, rate * room / parts as f64 + 300.0, 0, models);
            if two_kinds {
                problem.kinds.push(GpuKind { name: "t4".to_owned(), memory_bytes: 16_384 * MB });
            }
            for (at, part) in problem.parts.iter_mut().enumerate() {
                let kinds = if two_kinds && at % 2 == 0 { vec![0, 1] } else { vec![0] };
                part.kinds = kinds.into_iter().map(|kind| PartKind { kind, memory_max_bytes: memory_max }).collect();
                part.share = 1.0 + (at % 2) as f64 * 0.5;
            }
            for (at, (kind, own)) in gpus.into_iter().enumerate() {
                let kind = if two_kinds { kind } else { 0 };
                let owner = (own as usize % parts) * usize::from(kind == 0);
                let part = (own == 0).then_some(owner);
                problem.gpus.push(Gpu { name: format!("g{at}"), kind, part });
            }
            problem.memory_weight = memory_weight;
            problem.disruption_max = disruption_max;
            problem
        },
    )
}
