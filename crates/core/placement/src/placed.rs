//! What is placed.

use symphony_packing::PackedNode;

use crate::demand::Demand;

/// A placement: what each GPU runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placed {
    /// What each GPU runs, in the order of the GPUs given.
    pub gpus: Vec<PlacedGpu>,
    /// Nodes for which there is no GPU.
    pub unplaced: Vec<PackedNode>,
}

/// A GPU's part of a placement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacedGpu {
    /// What it runs; `None` if it is idle.
    pub node: Option<PackedNode>,
    /// The models that it has loaded, in ascending order: those of its node, or of the last one that it had.
    pub loaded: Vec<usize>,
}

impl Placed {
    /// Nodes on the GPUs named for them, one each; those without one are left over.
    pub(crate) fn put(
        demand: &Demand<'_>,
        previous: &Self,
        nodes: impl IntoIterator<Item = (PackedNode, Option<usize>)>,
    ) -> Self {
        let held = |gpu: usize| previous.gpus.get(gpu).map(|gpu| gpu.loaded.clone()).unwrap_or_default();
        let idle = |gpu| PlacedGpu { node: None, loaded: held(gpu) };
        let mut placed = Self { gpus: (0..demand.gpus).map(idle).collect(), unplaced: Vec::new() };
        for (node, gpu) in nodes {
            match gpu.and_then(|gpu| placed.gpus.get_mut(gpu)) {
                Some(gpu) => {
                    gpu.loaded = models_of(demand, &node);
                    gpu.node = Some(node);
                }
                None => placed.unplaced.push(node),
            }
        }
        placed
    }
}

/// The models of a node, in ascending order, each once.
pub(crate) fn models_of(demand: &Demand<'_>, node: &PackedNode) -> Vec<usize> {
    let mut models: Vec<_> = node.sessions.iter().map(|packed| demand.models[packed.session]).collect();
    models.sort_unstable();
    models.dedup();
    models
}
