//! A batch size found by trial.

/// Additive increase, multiplicative decrease, as Clipper adapts its batches: one item more after each full batch that
/// met its deadline, a tenth less after each that could not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aimd {
    limit: f64,
}

/// The factor of a decrease.
const DECREASE: f64 = 0.9;

impl Aimd {
    pub(crate) const fn new() -> Self {
        Self { limit: 1.0 }
    }

    /// The present limit on the batch size.
    pub(crate) fn limit(self) -> u32 {
        self.limit as u32
    }

    /// Records a batch. `cut`: the earliest deadline kept it below the limit.
    pub(crate) fn formed(&mut self, batch: u32, cut: bool, batch_max: u32) {
        if batch >= self.limit() {
            self.limit = (self.limit + 1.0).min(f64::from(batch_max));
        } else if cut {
            self.limit = (self.limit * DECREASE).max(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_climbs_by_one_and_steps_back_by_a_tenth() {
        let mut aimd = Aimd::new();
        for batch in 1..20 {
            aimd.formed(batch, false, 18);
        }
        assert_eq!(aimd.limit(), 18);
        aimd.formed(3, false, 18);
        assert_eq!(aimd.limit(), 18, "a short queue says nothing");
        aimd.formed(3, true, 18);
        assert_eq!(aimd.limit(), 16);
        (0..100).for_each(|_| aimd.formed(0, true, 18));
        assert_eq!(aimd.limit(), 1);
    }
}
