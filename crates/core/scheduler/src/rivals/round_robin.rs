//! A frontend's round robin: which replica gets the next request.

/// A small generator for repeatable random choices (splitmix64: a counter and a mix).
#[derive(Clone, Debug)]
pub(crate) struct Mixer(u64);

impl Mixer {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number in `0..below`; zero if that is empty.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * below as u128) >> 64) as usize
    }
}

/// Smooth weighted round robin: each turn adds every replica's weight to its credit, and the chosen one, with the
/// largest credit, pays the sum of all weights.
#[derive(Clone, Debug)]
pub(super) struct RoundRobin {
    weights: Vec<f64>,
    credits: Vec<f64>,
    sum: f64,
}

impl RoundRobin {
    pub(super) fn new(weights: Vec<f64>) -> Self {
        let (sum, credits) = (weights.iter().sum(), vec![0.0; weights.len()]);
        Self { weights, credits, sum }
    }

    /// The index of the next replica; zero if there is none.
    pub(super) fn next_replica(&mut self) -> usize {
        let mut richest = 0;
        for place in 0..self.weights.len() {
            self.credits[place] += self.weights[place];
            if self.credits[place] > self.credits[richest] {
                richest = place;
            }
        }
        if let Some(credit) = self.credits.get_mut(richest) {
            *credit -= self.sum;
        }
        richest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_follow_the_weights_and_are_spread_out() {
        let mut even = RoundRobin::new(vec![1.0; 3]);
        assert_eq!((0..6).map(|_| even.next_replica()).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2]);
        let mut uneven = RoundRobin::new(vec![2.0, 1.0]);
        assert_eq!((0..6).map(|_| uneven.next_replica()).collect::<Vec<_>>(), [0, 1, 0, 0, 1, 0]);
        assert_eq!(RoundRobin::new(vec![]).next_replica(), 0);
    }

    #[test]
    fn choices_repeat_with_their_seed_and_cover_the_range() {
        let mut mixer = Mixer::new(7);
        let draws: Vec<_> = (0..1000).map(|_| mixer.below(5)).collect();
        let mut again = Mixer::new(7);
        assert!(draws.iter().all(|&draw| draw == again.below(5)));
        assert!((0..5).all(|value| draws.iter().filter(|&&draw| draw == value).count() > 150));
        assert_eq!(mixer.below(0), 0);
    }
}
