//! How often batches fail, and how much evidence a failure is against its GPU.

/// The weight of one batch in the usual failure share: about the last hundred batches count.
const STEP: f64 = 1.0 / 64.0;
/// Lower bound of the usual failure share.
const USUAL_MIN: f64 = 0.01;
/// The failure share of an unusable GPU.
const BROKEN: f64 = 0.9;
/// The evidence that suffices: a GPU that fails as often as its peers reaches it once in 10⁸ batches (Wald, 1947).
pub(crate) const ENOUGH: f64 = 18.4;
/// However rarely others fail, at least five failures in a row are needed.
const COUNTS_MAX: f64 = ENOUGH / 5.0;

/// The share of batches that fail, over all GPUs of a kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UsualFailures(f64);

impl UsualFailures {
    /// Records a batch and returns its evidence that the GPU is unusable: the log-likelihood ratio of an unusable GPU
    /// to a usual one.
    pub(crate) fn ended(&mut self, failed: bool) -> f64 {
        let usual = self.0.clamp(USUAL_MIN, 1.0 - USUAL_MIN);
        self.0 += STEP * (f64::from(u8::from(failed)) - self.0);
        let likelier = if failed { BROKEN / usual } else { (1.0 - BROKEN) / (1.0 - usual) };
        likelier.ln().min(COUNTS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_the_less_the_more_usual_failures_are() {
        let mut usual = UsualFailures::default();
        assert!(usual.ended(false) < -2.0, "a GPU that cannot be used seldom succeeds");
        let first = usual.ended(true);
        assert!((first - COUNTS_MAX).abs() < 1e-9);
        let scores: Vec<f64> = (0..200).map(|_| usual.ended(true)).collect();
        assert!(scores.windows(2).all(|pair| pair[0] >= pair[1]), "{scores:?}");
        assert!(scores[199] < 0.0, "where all fail, one that fails is as sound as any");
    }
}
