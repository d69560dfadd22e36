//! A problem as dense numbers, for the search.

use crate::gpu_need::gpu_need;
use crate::problem::{Pin, Problem};

/// The share of a part's own GPUs that its models may keep busy: equation 3 ignores random arrivals and control delays,
/// and the autoscaler keeps the same reserve.
pub const LOAD_MAX: f64 = 0.95;

/// A model without a part.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// The numbers of a problem.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) models: usize,
    pub(crate) parts: usize,
    pub(crate) memory_weight: f64,
    /// r_i.
    pub(crate) rate: Vec<f64>,
    /// s_i, the largest over the kinds, in bytes.
    pub(crate) memory: Vec<f64>,
    /// 1 / (each part's target rate); 0 if there is no rate at all.
    pub(crate) rate_scale: Vec<f64>,
    /// 1 / (each part's target static memory); 0 if there is none at all.
    pub(crate) memory_scale: Vec<f64>,
    /// R_max by part.
    pub(crate) rate_max: Vec<f64>,
    /// S_max by part: kind and bytes.
    pub(crate) memory_max: Vec<Vec<(usize, f64)>>,
    /// Static memory by kind and model, in bytes; 0 where there is no profile.
    pub(crate) held: Vec<Vec<f64>>,
    /// Dynamic memory by kind and model.
    pub(crate) dynamic: Vec<Vec<f64>>,
    /// GPUs that each model needs, by kind and model (equations 2 and 3); infinite if it cannot run there.
    pub(crate) gpus: Vec<Vec<f64>>,
    /// For parts with their own GPUs: the share of the allowed load, [`LOAD_MAX`], that each model causes.
    pub(crate) load: Vec<Option<Vec<f64>>>,
    /// By model and part.
    pub(crate) allowed: Vec<bool>,
    /// The cost of moving each model.
    pub(crate) cost: Vec<f64>,
}

/// Why a model cannot be in a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Barred {
    PinnedElsewhere,
    OtherKinds { only: usize },
    NoProfile { kind: usize },
    SloOutOfReach { kind: usize },
    LargerThanGpu { kind: usize },
    LargerThanPart { kind: usize },
    RateAbovePart,
}

impl Instance {
    pub(crate) fn new(problem: &Problem) -> Self {
        let (models, parts, kinds) = (problem.models.len(), problem.parts.len(), problem.kinds.len());
        let rate: Vec<f64> = problem.models.iter().map(|model| model.rate_rps).collect();
        let memory: Vec<f64> = problem.models.iter().map(|model| model.static_memory_bytes() as f64).collect();
        let scale = |of: &[f64]| -> Vec<f64> {
            let total: f64 = of.iter().sum();
            let per_share = if total > 0.0 { problem.shares() / total } else { 0.0 };
            problem.parts.iter().map(|part| per_share / part.share).collect()
        };
        let by_kind = |what: &dyn Fn(&crate::KindNeed) -> u64| -> Vec<Vec<f64>> {
            let of = |kind: usize| {
                problem.models.iter().map(move |model| model.needs[kind].as_ref().map_or(0.0, |need| what(need) as f64))
            };
            (0..kinds).map(|kind| of(kind).collect()).collect()
        };
        let gpus: Vec<Vec<f64>> = (0..kinds)
            .map(|kind| {
                let need = |model: &crate::Model| {
                    let own = model.needs[kind].as_ref()?;
                    gpu_need(&own.profile, model.rate_rps, model.slo).map(|need| need.gpus)
                };
                problem.models.iter().map(|model| need(model).unwrap_or(f64::INFINITY)).collect()
            })
            .collect();
        let own: Vec<Vec<u32>> = own_gpus(problem);
        let load = (0..parts)
            .map(|part| {
                let owned = &own[part];
                owned.iter().any(|&count| count > 0).then(|| {
                    let of = |model: usize| load_of(owned.iter().copied(), |kind| gpus[kind][model]) / LOAD_MAX;
                    (0..models).map(of).collect()
                })
            })
            .collect();
        let mut instance = Self {
            models,
            parts,
            memory_weight: problem.memory_weight,
            rate_scale: scale(&rate),
            memory_scale: scale(&memory),
            rate,
            memory,
            rate_max: problem.parts.iter().map(|part| part.rate_max_rps).collect(),
            memory_max: problem
                .parts
                .iter()
                .map(|part| part.kinds.iter().map(|own| (own.kind, own.memory_max_bytes as f64)).collect())
                .collect(),
            held: by_kind(&|need| need.static_memory_bytes),
            dynamic: by_kind(&|need| need.dynamic_memory_bytes),
            gpus,
            load,
            allowed: Vec::new(),
            cost: problem.models.iter().map(|model| model.move_cost).collect(),
        };
        instance.allowed = (0..models)
            .flat_map(|model| (0..parts).map(move |part| (model, part)))
            .map(|(model, part)| barred(problem, model, part).is_none())
            .collect();
        instance
    }

    #[inline]
    pub(crate) fn allows(&self, model: usize, part: usize) -> bool {
        self.allowed[model * self.parts + part]
    }
}

/// Why the model cannot be in the part even alone; `None` if it can.
pub(crate) fn barred(problem: &Problem, model: usize, part: usize) -> Option<Barred> {
    let (of, place) = (&problem.models[model], &problem.parts[part]);
    match of.pin {
        Some(Pin::Part(only)) if only != part => return Some(Barred::PinnedElsewhere),
        Some(Pin::Kind(only)) if place.kinds.iter().any(|own| own.kind != only) => {
            return Some(Barred::OtherKinds { only });
        }
        _ => {}
    }
    if of.rate_rps > place.rate_max_rps {
        return Some(Barred::RateAbovePart);
    }
    for own in &place.kinds {
        let kind = own.kind;
        let Some(need) = &of.needs[kind] else { return Some(Barred::NoProfile { kind }) };
        if need.profile.latency(1) > of.slo {
            return Some(Barred::SloOutOfReach { kind });
        }
        let bytes = need.static_memory_bytes + need.dynamic_memory_bytes;
        if bytes > problem.kinds[kind].memory_bytes {
            return Some(Barred::LargerThanGpu { kind });
        }
        if bytes > own.memory_max_bytes {
            return Some(Barred::LargerThanPart { kind });
        }
    }
    None
}

/// GPUs that belong to each part, by kind.
pub(crate) fn own_gpus(problem: &Problem) -> Vec<Vec<u32>> {
    let mut own = vec![vec![0; problem.kinds.len()]; problem.parts.len()];
    for gpu in &problem.gpus {
        if let Some(part) = gpu.part {
            own[part][gpu.kind] += 1;
        }
    }
    own
}

/// The load of these GPUs by kind at this need by kind. With several kinds, each takes the share of requests that makes
/// all equally busy.
pub(crate) fn load_of(counts: impl Iterator<Item = u32>, need: impl Fn(usize) -> f64) -> f64 {
    let (mut served, mut is_needed) = (0.0, false);
    for (kind, count) in counts.enumerate() {
        if count > 0 {
            let need = need(kind);
            if need <= 0.0 {
                return 0.0;
            }
            served += f64::from(count) / need;
        }
        is_needed |= need(kind) > 0.0;
    }
    if served > 0.0 {
        1.0 / served
    } else if is_needed {
        f64::INFINITY
    } else {
        0.0
    }
}
