//! Translates the federation into a problem for the partitioner. The parts are the sub-clusters of all reachable
//! clusters: so the memory of each GPU is exact, and a plan names the sub-cluster of a model.

use std::collections::{BTreeMap, BTreeSet};

use symphony_cluster_state::ModelSpec;
use symphony_federation_state::{FederationState, HomeMove, MODELS_MAX, Model as Federated};
use symphony_partitioner::{
    Gpu, GpuKind, KindNeed, MOVE_BYTES_LEAST, Model, NO_LIMIT_BYTES, Part, PartGpus, PartKind, PartPlan, PartitionPlan,
    Pin, Problem, Steadiness,
};
use symphony_protocol::view::{BackendView, View};
use symphony_types::{LatencyProfile, Nanos, SubclusterId};

use crate::copies::{Copy, copy_in};
use crate::rates::WANTED_RPS_MAX;

/// Rank workers are the cluster's business; the load of its GPUs is bounded by equations 2 and 3. Twice the largest
/// demand of all models together, so that no part reaches this limit.
const RATE_MAX_RPS: f64 = 2.0 * MODELS_MAX as f64 * WANTED_RPS_MAX;

/// A sub-cluster of some cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubclusterRef {
    pub(crate) cluster: String,
    pub(crate) subcluster: String,
}

/// The federation as a problem.
#[derive(Clone, Debug)]
pub(crate) struct FederationProblem {
    pub(crate) problem: Problem,
    /// The current part of every placed model.
    pub(crate) in_force: PartitionPlan,
    /// The parts.
    pub(crate) places: Vec<SubclusterRef>,
}

/// Known rates, and the reachable clusters.
pub(crate) struct Known<'a> {
    pub(crate) state: &'a FederationState,
    pub(crate) views: &'a BTreeMap<String, std::sync::Arc<View>>,
    pub(crate) rates: &'a BTreeMap<String, f64>,
}

impl FederationProblem {
    /// The part that is the destination of a move.
    pub(crate) fn part_of(&self, wanted: &HomeMove) -> Option<usize> {
        self.places.iter().position(|at| at.cluster == wanted.to && at.subcluster == wanted.subcluster)
    }
}

impl Known<'_> {
    /// The larger of a model's declared and measured rates.
    pub(crate) fn rate_rps(&self, model: &Federated) -> f64 {
        let measured = self.rates.get(&model.spec.name).copied().unwrap_or(0.0);
        measured.max(model.wanted_mrps as f64 / 1000.0)
    }

    /// Poses the problem without the models that have no place. None if no cluster has a GPU that takes work.
    pub(crate) fn pose(&self) -> Option<FederationProblem> {
        let working = |b: &&BackendView| b.up && b.duty.takes_work() && b.moving.is_none();
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        let limit = |bytes: u64| if bytes == 0 { NO_LIMIT_BYTES } else { bytes };
        for gpu in self.views.values().flat_map(|view| view.backends.values().filter(working)).flat_map(|b| &b.gpus) {
            // The largest: the limit of each part states exactly what smaller GPUs can hold.
            let most = kinds.entry(&gpu.kind).or_insert(0);
            *most = (*most).max(limit(gpu.memory_bytes));
        }
        let names: Vec<&str> = kinds.keys().copied().collect();
        let (mut places, mut parts, mut gpus, mut in_force) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut at = BTreeMap::new();
        for (cluster, view) in self.views {
            for (&id, subcluster) in &view.subclusters {
                let here = view.backends.values().filter(|b| b.subcluster == id).filter(working);
                let mut memory: BTreeMap<usize, u64> = BTreeMap::new();
                let mut own_gpus: BTreeMap<usize, Vec<String>> = BTreeMap::new();
                for gpu in here.flat_map(|b| &b.gpus) {
                    let Some(kind) = names.iter().position(|name| *name == gpu.kind) else { continue };
                    let least = memory.entry(kind).or_insert(u64::MAX);
                    *least = (*least).min(limit(gpu.memory_bytes));
                    own_gpus.entry(kind).or_default().push(format!("{cluster}/{}", gpu.id));
                }
                if memory.is_empty() {
                    continue;
                }
                let part = parts.len();
                let own_kinds: Vec<&str> = memory.keys().map(|&kind| names[kind]).collect();
                let own = memory.iter().map(|(&kind, &bytes)| {
                    let taken = self.taken_by_others(view, id, names[kind], &own_kinds);
                    PartKind { kind, memory_max_bytes: bytes.saturating_sub(taken) }
                });
                let name = format!("{cluster}/{}", subcluster.name);
                let share = own_gpus.values().map(Vec::len).sum::<usize>() as f64;
                parts.push(Part { name: name.clone(), rate_max_rps: RATE_MAX_RPS, share, kinds: own.collect() });
                let of_kind = |(&kind, names_of): (&usize, &Vec<String>)| PartGpus {
                    kind: names[kind].to_owned(),
                    names: names_of.clone(),
                    ..PartGpus::default()
                };
                in_force.push(PartPlan { name, gpus: own_gpus.iter().map(of_kind).collect(), ..PartPlan::default() });
                for (&kind, names) in &own_gpus {
                    gpus.extend(names.iter().map(|name| Gpu { name: name.clone(), kind, part: Some(part) }));
                }
                at.insert((cluster.clone(), subcluster.name.clone()), part);
                places.push(SubclusterRef { cluster: cluster.clone(), subcluster: subcluster.name.clone() });
            }
        }
        if parts.is_empty() {
            return None;
        }
        let of_kind = |(name, &memory_bytes): (&&str, &u64)| GpuKind { name: (*name).to_owned(), memory_bytes };
        let mut problem = Problem {
            kinds: kinds.iter().map(of_kind).collect(),
            models: Vec::new(),
            parts,
            gpus,
            memory_weight: 1.0,
            disruption_max: None,
            steadiness: Steadiness::default(),
        };
        for (name, model) in self.state.models() {
            let Some(&part) = self.place_of(model).and_then(|place| at.get(&place)) else { continue };
            let own_kinds: Vec<&str> = problem.parts[part].kinds.iter().map(|own| names[own.kind]).collect();
            let Some(posed) = self.posed(&problem, model, Some(part)).filter(|_| runs_on(&model.spec, &own_kinds))
            else {
                continue;
            };
            in_force[part].models.push(name.clone());
            problem.models.push(posed);
        }
        make_room(&mut problem);
        Some(FederationProblem {
            problem,
            in_force: PartitionPlan { parts: in_force, ..PartitionPlan::default() },
            places,
        })
    }

    /// A model in the partitioner's form; none if it has no profile for any existing GPU.
    pub(crate) fn posed(&self, problem: &Problem, model: &Federated, pin: Option<usize>) -> Option<Model> {
        let need = |kind: &GpuKind| {
            let profile = model.spec.profiles.get(&kind.name)?;
            let table: Vec<_> = profile.latency_ns.iter().map(|&ns| Nanos::new(ns)).collect();
            Some(KindNeed {
                profile: LatencyProfile::from_table(&table).ok()?,
                static_memory_bytes: profile.static_memory_bytes,
                dynamic_memory_bytes: profile.dynamic_memory_bytes,
            })
        };
        let needs: Vec<_> = problem.kinds.iter().map(need).collect();
        let bytes = needs.iter().flatten().map(|need| need.static_memory_bytes).max()?;
        Some(Model {
            name: model.spec.name.clone(),
            rate_rps: self.rate_rps(model),
            slo: model.spec.slo(),
            needs,
            move_cost: bytes.max(MOVE_BYTES_LEAST) as f64,
            pin: pin.map(Pin::Part),
        })
    }

    /// The cluster and sub-cluster where a model takes memory, according to its cluster.
    fn place_of(&self, model: &Federated) -> Option<(String, String)> {
        if let Some(moving) = &model.moving {
            return Some((moving.to.clone(), moving.subcluster.clone()));
        }
        let home = model.home.as_ref()?;
        let view = self.views.get(&home.cluster)?;
        let subcluster = match copy_in(view, &model.spec) {
            Copy::Ready(id) => view.subclusters.get(&id).map(|s| s.name.clone()),
            _ => None,
        };
        Some((home.cluster.clone(), subcluster.unwrap_or_else(|| home.subcluster.clone())))
    }

    /// Memory on a GPU of the sub-cluster that is taken by models not counted in the problem: those of the cluster's
    /// own operators, copies about to be dropped, and models that can no longer run on all of its GPUs. Batches run
    /// one at a time, so of their dynamic memory only the excess over the counted models' is added.
    fn taken_by_others(&self, view: &View, subcluster: SubclusterId, kind: &str, kinds: &[&str]) -> u64 {
        let cluster = &view.cluster;
        let counted: BTreeSet<&str> = self
            .state
            .models()
            .iter()
            .filter(|(_, model)| model.belongs_to(cluster) && is_of(view, &model.spec) && runs_on(&model.spec, kinds))
            .map(|(name, _)| name.as_str())
            .collect();
        let here = view.models.values().filter(|model| model.is_held_by(subcluster));
        let (mut static_bytes, mut dynamic, mut counted_dynamic) = (0_u64, 0_u64, 0_u64);
        for model in here {
            let Some(profile) = model.spec.profiles.get(kind) else { continue };
            if counted.contains(model.spec.name.as_str()) {
                counted_dynamic = counted_dynamic.max(profile.dynamic_memory_bytes);
            } else {
                static_bytes = static_bytes.saturating_add(profile.static_memory_bytes);
                dynamic = dynamic.max(profile.dynamic_memory_bytes);
            }
        }
        static_bytes.saturating_add(dynamic.saturating_sub(counted_dynamic))
    }
}

/// Served models exist, even beyond the limits: limits are raised to what the models of each part need, so that one
/// model beyond a limit does not keep all others from being placed.
fn make_room(problem: &mut Problem) {
    let Problem { kinds, models, parts, .. } = problem;
    for (part, own) in parts.iter_mut().enumerate() {
        for PartKind { kind, memory_max_bytes } in &mut own.kinds {
            let here = models.iter().filter(|model| model.pin == Some(Pin::Part(part)));
            let (mut static_bytes, mut dynamic) = (0_u64, 0_u64);
            for need in here.filter_map(|model| model.needs[*kind].as_ref()) {
                static_bytes = static_bytes.saturating_add(need.static_memory_bytes);
                dynamic = dynamic.max(need.dynamic_memory_bytes);
                let alone = need.static_memory_bytes.saturating_add(need.dynamic_memory_bytes);
                kinds[*kind].memory_bytes = kinds[*kind].memory_bytes.max(alone);
            }
            *memory_max_bytes = (*memory_max_bytes).max(static_bytes.saturating_add(dynamic));
        }
    }
}

/// Whether the model has a profile for each kind, and can meet its SLO there.
fn runs_on(spec: &ModelSpec, kinds: &[&str]) -> bool {
    kinds.iter().all(|kind| {
        let first = spec.profiles.get(*kind).and_then(|profile| profile.latency_ns.first());
        first.is_some_and(|&alone_ns| Nanos::new(alone_ns) <= spec.slo())
    })
}

fn is_of(view: &View, spec: &ModelSpec) -> bool {
    !matches!(copy_in(view, spec), Copy::None | Copy::Foreign)
}
