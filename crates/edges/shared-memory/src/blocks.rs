//! Allocates the units of a pool in blocks of powers of two, split and merged as buddies. A pure value.

use std::collections::BTreeSet;

/// An allocated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first unit.
    pub first: usize,
    /// It has 2^order units, and begins at a multiple of that.
    pub order: u32,
}

impl Block {
    /// How many units it has.
    #[must_use]
    pub const fn units(self) -> usize {
        1 << self.order
    }
}

/// The free blocks of some units.
#[derive(Debug)]
pub struct Blocks {
    /// First units of the free blocks, by order. The lowest is taken first: used memory is reused, and untouched pages
    /// stay untouched.
    free: Vec<BTreeSet<usize>>,
}

impl Blocks {
    /// An allocator with `units` free units.
    #[must_use]
    pub fn new(units: usize) -> Self {
        let orders = usize::BITS - units.leading_zeros();
        let mut free = vec![BTreeSet::new(); orders as usize];
        let mut first = 0;
        for order in (0..orders).rev().filter(|order| units >> order & 1 == 1) {
            free[order as usize].insert(first);
            first += 1 << order;
        }
        Self { free }
    }

    /// Allocates a block of at least `units` units; none if there is none left.
    pub fn take(&mut self, units: usize) -> Option<Block> {
        let order = units.max(1).checked_next_power_of_two()?.trailing_zeros();
        let found = (order..self.free.len() as u32).find(|&order| !self.free[order as usize].is_empty())?;
        let first = self.free[found as usize].pop_first()?;
        // The upper halves stay free.
        for order in order..found {
            self.free[order as usize].insert(first + (1 << order));
        }
        Some(Block { first, order })
    }

    /// Frees an allocated block.
    pub fn give_back(&mut self, block: Block) {
        let Block { mut first, mut order } = block;
        while (order as usize) + 1 < self.free.len() && self.free[order as usize].remove(&(first ^ (1 << order))) {
            first &= !(1 << order);
            order += 1;
        }
        self.free[order as usize].insert(first);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn free_units(blocks: &Blocks) -> usize {
        blocks.free.iter().enumerate().map(|(order, free)| free.len() << order).sum()
    }

    #[test]
    fn the_smallest_block_that_fits_is_given_and_the_lowest_first() {
        let mut blocks = Blocks::new(16);
        assert_eq!(blocks.take(3), Some(Block { first: 0, order: 2 }));
        assert_eq!(blocks.take(1), Some(Block { first: 4, order: 0 }));
        assert_eq!(blocks.take(8), Some(Block { first: 8, order: 3 }));
        assert_eq!(blocks.take(4), None, "three units are left, and no four in a row");
        assert_eq!(blocks.take(usize::MAX), None);
        assert_eq!(blocks.take(2), Some(Block { first: 6, order: 1 }));
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_whoever_gives_all_back_can_take_all(
            units in 1_usize..300,
            steps in prop::collection::vec((1_usize..40, any::<prop::sample::Index>(), any::<bool>()), 0..200),
        ) {
            let mut blocks = Blocks::new(units);
            let whole = free_units(&blocks);
            prop_assert_eq!(whole, units);
            let largest = blocks.free.len() - 1;
            let mut owned = vec![false; units];
            let mut taken = Vec::new();
            for (wanted, which, gives) in steps {
                if gives && !taken.is_empty() {
                    let block: Block = taken.swap_remove(which.index(taken.len()));
                    owned[block.first..block.first + block.units()].fill(false);
                    blocks.give_back(block);
                } else if let Some(block) = blocks.take(wanted) {
                    prop_assert!(block.units() >= wanted && block.first % block.units() == 0);
                    for unit in &mut owned[block.first..block.first + block.units()] {
                        prop_assert!(!std::mem::replace(unit, true), "given out twice");
                    }
                    taken.push(block);
                }
                prop_assert_eq!(free_units(&blocks), owned.iter().filter(|&&owned| !owned).count());
            }
            for block in taken {
                blocks.give_back(block);
            }
            prop_assert_eq!(blocks.take(1 << largest), Some(Block { first: 0, order: largest as u32 }));
        }
    }
}
