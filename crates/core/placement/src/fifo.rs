//! First come, first served.

use symphony_packing::squishy_bin_packing;

use crate::{Demand, Placed, Placement};

/// Each session in turn has its whole GPUs, and one more for its residue: nothing is shared. Sessions for which no GPU
/// is left get none. From *Implementing Inference scheduler in Blox*, section 5.2.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

impl Placement for Fifo {
    fn place(&self, demand: &Demand<'_>, previous: &Placed) -> Placed {
        let alone = |at: usize| {
            let mut nodes = squishy_bin_packing(&demand.sessions[at..=at]);
            nodes.iter_mut().flat_map(|node| &mut node.sessions).for_each(|packed| packed.session = at);
            nodes
        };
        let nodes = (0..demand.sessions.len()).flat_map(alone);
        Placed::put(demand, previous, nodes.zip((0..).map(Some)))
    }
}
