//! Our partitioner.

use symphony_packing::{PackedNode, PackedSession, Session};
use symphony_partitioner::{
    Budget, Gpu, GpuKind, GpuNeed, KindNeed, Model, NO_LIMIT_BYTES, Part, PartKind, Plan, Problem, Steadiness, adopt,
    gpu_need, solve,
};
use symphony_types::Nanos;

use crate::{Demand, Placed, Placement};

/// Sub-clusters as the partitioner makes them: all GPUs of one run all of its models, whose batches are formed by
/// deferral, so that nodes have no duty cycle.
///
/// GPUs are divided evenly, in order. If they are too few, their occupancy is above one; only sessions whose SLO is out
/// of reach are left out.
#[derive(Clone, Copy, Debug)]
pub struct Divided {
    /// Number of sub-clusters; at least one, and at most as many as GPUs.
    pub parts: usize,
    /// Moves of the search.
    pub moves: u64,
}

/// More than any rank thread decides: sub-clusters are not limited by rate here.
const RATE_NO_LIMIT_RPS: f64 = 1e12;

impl Divided {
    /// Sub-clusters with so many GPUs: none is without.
    fn parts(self, gpus: usize) -> usize {
        self.parts.clamp(1, gpus.max(1))
    }

    /// The sub-cluster of a GPU.
    fn part_of(self, gpu: usize, gpus: usize) -> usize {
        gpu * self.parts(gpus) / gpus.max(1)
    }

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
        let gpu = |at: usize| Gpu { name: at.to_string(), kind: 0, part: Some(self.part_of(at, demand.gpus)) };
        Problem {
            kinds: vec![GpuKind { name: "gpu".to_owned(), memory_bytes: NO_LIMIT_BYTES }],
            models: demand.sessions.iter().enumerate().filter_map(model).collect(),
            parts: (0..self.parts(demand.gpus)).map(part).collect(),
            gpus: (0..demand.gpus).map(gpu).collect(),
            memory_weight: 0.0,
            disruption_max: None,
            steadiness: Steadiness::default(),
        }
    }

    /// The plan in force, if every session has a GPU.
    fn in_force(self, problem: &Problem, previous: &Placed) -> Option<Plan> {
        let gpus = problem.gpus.len();
        let home = |model: &Model| {
            let session = model.name.parse().ok()?;
            let runs = |gpu: &crate::PlacedGpu| gpu.node.as_ref().is_some_and(|node| node.runs(session));
            let gpu = previous.gpus.iter().take(gpus).position(runs)?;
            Some(self.part_of(gpu, gpus))
        };
        let division = problem.models.iter().map(home).collect::<Option<Vec<_>>>()?;
        adopt(problem, None, &division).ok()
    }
}

impl Placement for Divided {
    fn place(&self, demand: &Demand<'_>, previous: &Placed) -> Placed {
        let problem = self.problem(demand);
        let budget = Budget { moves: self.moves, seed: demand.seed, should_stop: None };
        // There is no plan if there is nothing to serve.
        let plan = solve(&problem, self.in_force(&problem, previous).as_ref(), &budget).unwrap_or_default();
        let mut sessions_of = vec![Vec::new(); problem.parts.len()];
        for (part, sessions) in plan.parts.iter().zip(&mut sessions_of) {
            *sessions = part.models.iter().filter_map(|name| name.parse::<usize>().ok()).collect();
        }
        let mut gpus_of = vec![0_usize; problem.parts.len()];
        (0..demand.gpus).for_each(|gpu| gpus_of[self.part_of(gpu, demand.gpus)] += 1);
        let nodes = (0..demand.gpus).map(|gpu| {
            let part = self.part_of(gpu, demand.gpus);
            (share(demand, &sessions_of[part], gpus_of[part]), Some(gpu))
        });
        Placed::put(demand, previous, nodes.filter(|(node, _)| !node.sessions.is_empty()))
    }
}

/// `None` if a session asks for nothing, or for what no GPU can do in time.
fn need(session: &Session<'_>) -> Option<GpuNeed> {
    let rate = Some(session.rate_per_second).filter(|rate| rate.is_finite() && *rate > 0.0)?;
    gpu_need(session.profile, rate, session.slo)
}

/// What one of so many GPUs does for these sessions.
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
