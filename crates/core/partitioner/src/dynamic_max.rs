//! The largest dynamic memory in each part, while models come and go.

/// A set of models per part with fast access to the largest dynamic memory.
///
/// Models are numbered by rank, the largest first, and a part is a row of bits: the first set bit is the answer. A part
/// with m/l models has it among the first l ranks or so, in the first word or two.
#[derive(Clone, Debug)]
pub(crate) struct DynamicMax {
    words_per_part: usize,
    bits: Vec<u64>,
    rank_of: Vec<u32>,
    /// By rank, in bytes.
    dynamic: Vec<f64>,
}

impl DynamicMax {
    /// For models with these dynamic memories, none of them in a part yet.
    pub(crate) fn new(dynamic: &[f64], parts: usize) -> Self {
        let mut model_at: Vec<u32> = (0..dynamic.len() as u32).collect();
        model_at.sort_by(|&a, &b| dynamic[b as usize].total_cmp(&dynamic[a as usize]).then(a.cmp(&b)));
        let mut rank_of = vec![0; dynamic.len()];
        for (rank, &model) in (0..).zip(&model_at) {
            rank_of[model as usize] = rank;
        }
        let words_per_part = dynamic.len().div_ceil(64);
        let dynamic = model_at.iter().map(|&model| dynamic[model as usize]).collect();
        Self { words_per_part, bits: vec![0; words_per_part * parts], rank_of, dynamic }
    }

    /// The largest of all models, in any part.
    pub(crate) fn most(&self) -> f64 {
        self.dynamic.first().copied().unwrap_or(0.0)
    }

    pub(crate) fn put(&mut self, part: usize, model: usize) {
        self.flip(part, model);
    }

    pub(crate) fn take(&mut self, part: usize, model: usize) {
        self.flip(part, model);
    }

    fn flip(&mut self, part: usize, model: usize) {
        let rank = self.rank_of[model] as usize;
        self.bits[part * self.words_per_part + rank / 64] ^= 1 << (rank % 64);
    }

    /// The part's largest if `without` were removed and `with` added.
    pub(crate) fn largest(&self, part: usize, without: Option<usize>, with: Option<usize>) -> f64 {
        let there = self.first(part, without).map_or(0.0, |rank| self.dynamic[rank]);
        with.map_or(there, |model| there.max(self.dynamic[self.rank_of[model] as usize]))
    }

    fn first(&self, part: usize, without: Option<usize>) -> Option<usize> {
        let skip = without.map(|model| self.rank_of[model] as usize);
        let words = &self.bits[part * self.words_per_part..][..self.words_per_part];
        for (index, &word) in words.iter().enumerate() {
            let word = match skip {
                Some(rank) if rank / 64 == index => word & !(1 << (rank % 64)),
                _ => word,
            };
            if word != 0 {
                return Some(64 * index + word.trailing_zeros() as usize);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_maximum_of_who_is_there(
            dynamic in proptest::collection::vec(0_u32..50, 1..200),
            flips in proptest::collection::vec((0_usize..3, 0_usize..200), 0..300),
            without in 0_usize..200,
        ) {
            let dynamic: Vec<f64> = dynamic.into_iter().map(f64::from).collect();
            let mut max = DynamicMax::new(&dynamic, 3);
            let mut members = vec![std::collections::BTreeSet::new(); 3];
            for (part, model) in flips {
                let model = model % dynamic.len();
                if members[part].insert(model) { max.put(part, model) } else { members[part].remove(&model); max.take(part, model) }
            }
            let without = without % dynamic.len();
            for (part, members) in members.iter().enumerate() {
                let of = |set: &mut dyn Iterator<Item = &usize>| set.map(|&m| dynamic[m]).fold(0.0, f64::max);
                prop_assert_eq!(max.largest(part, None, None), of(&mut members.iter()));
                prop_assert_eq!(max.largest(part, None, Some(0)), of(&mut members.iter().chain([&0])));
                prop_assert_eq!(max.largest(part, Some(without), None), of(&mut members.iter().filter(|&&m| m != without)));
            }
        }
    }
}
