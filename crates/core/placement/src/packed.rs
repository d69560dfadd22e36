//! Squishy packing from scratch, GPUs in order.

use symphony_packing::squishy_bin_packing;

use crate::{Demand, Placed, Placement};

/// Algorithm 1 of Nexus each epoch; the first node on the first GPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packed;

impl Placement for Packed {
    fn place(&self, demand: &Demand<'_>, previous: &Placed) -> Placed {
        let nodes = squishy_bin_packing(demand.sessions);
        Placed::put(demand, previous, nodes.into_iter().zip((0..).map(Some)))
    }
}
