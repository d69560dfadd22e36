//! Squishy packing between epochs.

use symphony_packing::{PackedNode, repack};

use crate::sticky::fewest_loads;
use crate::{Demand, Placed, Placement};

/// The incremental form of Algorithm 1 of Nexus (its section 6.1, last paragraph): nodes stay on their GPUs, and new
/// ones go where their models are loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Incremental;

impl Placement for Incremental {
    fn place(&self, demand: &Demand<'_>, previous: &Placed) -> Placed {
        let in_force = previous.gpus.iter().take(demand.gpus).enumerate();
        let in_force = in_force.filter_map(|(gpu, placed)| Some((gpu, placed.node.clone()?)));
        // Sessions without a GPU have no place to keep.
        let (gpus, nodes): (Vec<usize>, Vec<PackedNode>) = in_force.unzip();
        let mut free: Vec<_> = (0..demand.gpus).filter(|gpu| gpus.binary_search(gpu).is_err()).collect();
        let (mut kept, mut new) = (Vec::new(), Vec::new());
        let mut stay = vec![false; nodes.len()];
        for repacked in repack(demand.sessions, &nodes) {
            match repacked.from {
                Some(from) => {
                    stay[from] = true;
                    kept.push((repacked.node, Some(gpus[from])));
                }
                None => new.push(repacked.node),
            }
        }
        free.extend(gpus.iter().zip(&stay).filter(|&(_, stay)| !stay).map(|(&gpu, _)| gpu));
        let chosen = fewest_loads(demand, previous, &new, &free);
        Placed::put(demand, previous, kept.into_iter().chain(new.into_iter().zip(chosen)))
    }
}
