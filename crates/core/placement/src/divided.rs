//! Our partitioner.

use symphony_packing::{PackedNode, PackedSession, Session};
use symphony_partitioner::{
    Budget, Gpu, GpuKind, GpuNeed, KindNeed, Model, NO_LIMIT_BYTES, Part, PartGpus, PartKind, PartPlan, PartitionPlan,
    Problem, Steadiness, gpu_need, solve,
};
use symphony_types::Nanos;

use crate::{Demand, Placed, Placement};

/// Sub-clusters as the partitioner makes them: all GPUs of one run all of its models, whose batches are formed by
/// deferral, so that nodes have no duty cycle.
///
/// GPUs are distributed by need. If they are too few, their occupancy is above one; only sessions whose SLO is out of
/// reach are left out.
#[derive(Clone, Copy, Debug)]
pub struct Divided {
    /// Number of sub-clusters; at least one, and at most as many as GPUs.
    pub parts: usize,
    /// Moves of the search.
    pub moves: u64,
}

/// More than any rank worker decides: sub-clusters are not limited by rate here.
const RATE_NO_LIMIT_RPS: f64 = 1e12;
/// All GPUs are alike.
const KIND: &str = "gpu";

impl Divided {
    /// One model per session that can be served, one part per sub-cluster. Memory has no limit.
    fn problem(self, demand: &Demand<'_>) -> Problem {
        let model = |(at, session): (usize, &Session<'_>)| {
            need(session)?;
            let profile = session.profile.clone();
            let need = KindNeed { profile, static_memory_bytes: 0, dynamic_memory_bytes: 0 };
            Some(Model {
                name: at.to_string(),
                rate_rps: session.rate_per_second,
                slo: session.slo,
                needs: vec![Some(need)],
                move_cost: 1.0,
                pin: None,
            })
        };
        let part = |at: usize| Part {
            name: at.to_string(),
            rate_max_rps: RATE_NO_LIMIT_RPS,
            share: 1.0,
            kinds: vec![PartKind { kind: 0, memory_max_bytes: NO_LIMIT_BYTES }],
        };
        let gpu = |at: usize| Gpu { name: at.to_string(), kind: 0, part: None };
        Problem {
            kinds: vec![GpuKind { name: KIND.to_owned(), memory_bytes: NO_LIMIT_BYTES }],
            models: demand.sessions.iter().enumerate().filter_map(model).collect(),
            // A sub-cluster without a GPU would serve nothing.
            parts: (0..self.parts.clamp(1, demand.gpus.max(1))).map(part).collect(),
            gpus: (0..demand.gpus).map(gpu).collect(),
            memory_weight: 0.0,
            disruption_max: None,
            steadiness: Steadiness::default(),
        }
    }
}

impl Placement for Divided {
    fn place(&self, demand: &Demand<'_>, previous: &Placed) -> Placed {
        let problem = self.problem(demand);
        let budget = Budget { moves: self.moves, seed: demand.seed, should_stop: None };
        // There is no plan if there is nothing to serve.
        let plan = solve(&problem, in_force(&problem, previous).as_ref(), &budget).unwrap_or_default();
        let mut nodes = Vec::new();
        for part in &plan.parts {
            let sessions: Vec<usize> = part.models.iter().filter_map(|name| name.parse().ok()).collect();
            let gpus = part.gpus.iter().flat_map(|gpus| &gpus.names).filter_map(|name| name.parse().ok());
            let mut gpus: Vec<Option<usize>> = gpus.map(Some).collect();
            if gpus.is_empty() {
                gpus.push(None);
            }
            let node = share(demand, &sessions, gpus.len());
            if !sessions.is_empty() {
                nodes.extend(gpus.into_iter().map(|gpu| (node.clone(), gpu)));
            }
        }
        Placed::put(demand, previous, nodes)
    }
}

/// The plan in force: GPUs that run the same sessions are a part.
fn in_force(problem: &Problem, previous: &Placed) -> Option<PartitionPlan> {
    let part = |part: &Part| PartPlan { name: part.name.clone(), ..PartPlan::default() };
    let mut plan = PartitionPlan { parts: problem.parts.iter().map(part).collect(), ..PartitionPlan::default() };
    let mut known: Vec<Vec<String>> = Vec::new();
    for (at, gpu) in previous.gpus.iter().enumerate().take(problem.gpus.len()) {
        let Some(node) = &gpu.node else { continue };
        let models: Vec<String> = node.sessions.iter().map(|packed| packed.session.to_string()).collect();
        let index = known.iter().position(|known| *known == models).unwrap_or(known.len());
        // There may be fewer parts than before.
        let Some(part) = plan.parts.get_mut(index) else { continue };
        if index == known.len() {
            part.models.clone_from(&models);
            part.gpus.push(PartGpus { kind: KIND.to_owned(), ..PartGpus::default() });
            known.push(models);
        }
        part.gpus[0].names.push(at.to_string());
    }
    (!known.is_empty()).then_some(plan)
}

/// `None` if a session asks for nothing, or for what no GPU can do in time.
fn need(session: &Session<'_>) -> Option<GpuNeed> {
    let rate = Some(session.rate_per_second).filter(|rate| rate.is_finite() && *rate > 0.0)?;
    gpu_need(session.profile, rate, session.slo)
}

/// What one of this many GPUs does for these sessions.
fn share(demand: &Demand<'_>, sessions: &[usize], gpus: usize) -> PackedNode {
    let mut node = PackedNode { duty: Nanos::ZERO, sessions: Vec::new(), occupancy: 0.0 };
    for &index in sessions {
        let session = &demand.sessions[index];
        if let Some(need) = need(session) {
            let rate_per_second = session.rate_per_second / gpus as f64;
            node.occupancy += need.gpus / gpus as f64;
            node.sessions.push(PackedSession { session: index, batch: need.batch, rate_per_second });
        }
    }
    node
}
