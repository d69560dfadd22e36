//! Squishy packing from scratch, on any GPUs.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use symphony_packing::squishy_bin_packing;

use crate::{Demand, Placed, Placement};

/// Algorithm 1 of Nexus each epoch, its nodes on GPUs that are drawn by the demand's seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random;

impl Placement for Random {
    fn place(&self, demand: &Demand<'_>, previous: &Placed) -> Placed {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(demand.seed);
        let mut gpus: Vec<_> = (0..demand.gpus).collect();
        // Fisher and Yates.
        for left in (1..gpus.len()).rev() {
            let other = random.next_u64() % (left as u64 + 1);
            gpus.swap(left, other as usize);
        }
        let gpus = gpus.into_iter().map(Some).chain(std::iter::repeat(None));
        Placed::put(demand, previous, squishy_bin_packing(demand.sessions).into_iter().zip(gpus))
    }
}
