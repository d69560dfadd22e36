//! Squishy packing from scratch, where its models are loaded.

use symphony_assignment::{Assigner, Costs};
use symphony_packing::{PackedNode, squishy_bin_packing};

use crate::placed::models_of;
use crate::{Demand, Placed, Placement};

/// Algorithm 1 of Nexus each epoch, its nodes on GPUs such that as few models as possible have to be loaded. The paper
/// on Blox, section 4.4.3, looks for each model in turn; this is the least over all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sticky;

impl Placement for Sticky {
    fn place(&self, demand: &Demand<'_>, previous: &Placed) -> Placed {
        let nodes = squishy_bin_packing(demand.sessions);
        let gpus: Vec<_> = (0..demand.gpus).collect();
        let chosen = fewest_loads(demand, previous, &nodes, &gpus);
        Placed::put(demand, previous, nodes.into_iter().zip(chosen))
    }
}

/// The GPU of each node, of those given; the first nodes have one if there are not enough.
pub(crate) fn fewest_loads(
    demand: &Demand<'_>,
    previous: &Placed,
    nodes: &[PackedNode],
    gpus: &[usize],
) -> Vec<Option<usize>> {
    let placed = &nodes[..nodes.len().min(gpus.len())];
    let mut costs = Vec::with_capacity(placed.len() * gpus.len());
    for node in placed {
        let models = models_of(demand, node);
        costs.extend(gpus.iter().map(|&gpu| {
            let loaded = previous.gpus.get(gpu).map(|gpu| gpu.loaded.as_slice()).unwrap_or_default();
            models.iter().filter(|model| loaded.binary_search(model).is_err()).count() as f64
        }));
    }
    let mut chosen = vec![None; nodes.len()];
    // `Demand` has limits, so that there are not too many rows or columns.
    if let Ok(costs) = Costs::new(placed.len(), gpus.len(), &costs) {
        let mut assigner = Assigner::new();
        for (chosen, column) in chosen.iter_mut().zip(assigner.solve(costs).column_of) {
            *chosen = column.map(|column| gpus[column]);
        }
    }
    chosen
}
