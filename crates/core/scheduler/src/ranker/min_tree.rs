//! A tournament tree: the minimum of many keys that change often.

/// Keys in dense slots `0..len`: setting a key costs O(log len), reading the minimum O(1).
///
/// The scheduler's only search structure: GPU free times, ready candidates, timers. It does not allocate after
/// construction. Ties go to the lowest slot, which makes every decision deterministic. A slot with the key
/// [`MinTree::EMPTY`] counts as empty.
#[derive(Clone, Debug)]
pub struct MinTree {
    /// `keys[leaves + slot]` is the slot's key, `keys[i]` the smaller of its two children; `keys[1]` is the root.
    keys: Box<[u64]>,
    leaves: usize,
    len: usize,
}

impl MinTree {
    /// The key of an empty slot, larger than all others.
    pub const EMPTY: u64 = u64::MAX;

    /// A tree of `len` empty slots.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let leaves = len.next_power_of_two().max(1);
        Self { keys: vec![Self::EMPTY; 2 * leaves].into(), leaves, len }
    }

    /// Number of slots.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether all slots are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys[1] == Self::EMPTY
    }

    /// The key of `slot`.
    ///
    /// # Panics
    /// If there is no such slot: an error of the caller.
    #[must_use]
    pub fn key(&self, slot: usize) -> u64 {
        assert!(slot < self.len, "slot {slot} of {}", self.len);
        self.keys[self.leaves + slot]
    }

    /// Sets the key of `slot`. Inlined: usually one or two steps, cheaper than a call.
    ///
    /// # Panics
    /// If there is no such slot: an error of the caller.
    #[inline(always)]
    pub fn set(&mut self, slot: usize, key: u64) {
        assert!(slot < self.len, "slot {slot} of {}", self.len);
        let mut node = self.leaves + slot;
        self.keys[node] = key;
        while node > 1 {
            node /= 2;
            let smaller = self.keys[2 * node].min(self.keys[2 * node + 1]);
            // The walk ends at the first ancestor that does not change, usually after one or two steps.
            if self.keys[node] == smaller {
                break;
            }
            self.keys[node] = smaller;
        }
    }

    /// Makes room for slots up to `len`; keeps all keys.
    pub fn grow(&mut self, len: usize) {
        if len > self.leaves {
            let mut larger = Self::new(len);
            for slot in 0..self.len {
                larger.set(slot, self.key(slot));
            }
            *self = larger;
        }
        self.len = self.len.max(len);
    }

    /// The smallest key, [`MinTree::EMPTY`] if all slots are empty.
    #[inline]
    #[must_use]
    pub fn min_key(&self) -> u64 {
        self.keys[1]
    }

    /// The lowest slot with the smallest key, and that key; none if all slots are empty.
    #[must_use]
    pub fn min(&self) -> Option<(usize, u64)> {
        let key = self.keys[1];
        (key != Self::EMPTY).then(|| (self.descend(key), key))
    }

    /// The lowest slot with a key of at most `key`; none if only empty slots qualify.
    #[must_use]
    pub fn first_at_most(&self, key: u64) -> Option<usize> {
        let smallest = self.keys[1];
        (smallest <= key && smallest != Self::EMPTY).then(|| self.descend(key.min(Self::EMPTY - 1)))
    }

    /// The number of slots with a key of at most `key`, counted up to `limit`. Costs O(limit · log len), whatever the
    /// result.
    #[must_use]
    pub fn count_at_most(&self, key: u64, limit: usize) -> usize {
        let key = key.min(Self::EMPTY - 1);
        let (mut node, mut count) = (1, 0);
        while count < limit {
            if self.keys[node] <= key {
                if node < self.leaves {
                    node *= 2;
                    continue;
                }
                count += 1;
            }
            // Next subtree to the right: up while this is a right child (odd index), then to the sibling.
            while node % 2 == 1 {
                if node == 1 {
                    return count;
                }
                node /= 2;
            }
            node += 1;
        }
        count
    }

    /// The lowest slot with a key of at most `key`; one must exist.
    fn descend(&self, key: u64) -> usize {
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            if self.keys[node] > key {
                node += 1;
            }
        }
        node - self.leaves
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ties_go_to_the_lowest_slot() {
        let mut tree = MinTree::new(5);
        assert_eq!(tree.min(), None);
        tree.set(4, 7);
        tree.set(2, 7);
        assert_eq!(tree.min(), Some((2, 7)));
        assert_eq!(tree.first_at_most(6), None);
        assert_eq!(tree.first_at_most(100), Some(2));
        tree.set(2, MinTree::EMPTY);
        assert_eq!(tree.first_at_most(u64::MAX), Some(4));
    }

    proptest! {
        #[test]
        fn agrees_with_a_scan(len in 1_usize..40, sets in proptest::collection::vec((0_usize..40, 0_u64..50), 0..200), bound in 0_u64..60) {
            let mut tree = MinTree::new(1);
            tree.grow(len);
            let mut keys = vec![MinTree::EMPTY; len];
            for (slot, key) in sets {
                let key = if key > 45 { MinTree::EMPTY } else { key };
                tree.set(slot % len, key);
                keys[slot % len] = key;
                let min = (0..len).filter(|&s| keys[s] != MinTree::EMPTY).min_by_key(|&s| (keys[s], s));
                prop_assert_eq!(tree.min(), min.map(|s| (s, keys[s])));
                let first = (0..len).find(|&s| keys[s] <= bound);
                prop_assert_eq!(tree.first_at_most(bound), first);
                for (limit, key) in [(usize::MAX, bound), (3, bound), (usize::MAX, u64::MAX)] {
                    let count = keys.iter().filter(|&&k| k <= key && k != MinTree::EMPTY).count();
                    prop_assert_eq!(tree.count_at_most(key, limit), count.min(limit));
                }
            }
        }
    }
}
