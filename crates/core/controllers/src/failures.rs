//! How often batches fail, and what it says of a GPU that one of its batches did.

/// How far one batch moves what is usual: the last hundred or so count.
const STEP: f64 = 1.0 / 64.0;
/// Less is not told apart from it.
const USUAL_MIN: f64 = 0.01;
/// The share that a GPU fails which cannot be used.
const BROKEN: f64 = 0.9;
/// Evidence that is enough: what fails as often as its peers has so much once in 10⁸ batches (Wald, 1947).
pub(crate) const ENOUGH: f64 = 18.4;
/// However seldom others fail, five batches in a row are needed.
const COUNTS_MAX: f64 = ENOUGH / 5.0;

/// The share of batches that fail, of all GPUs of a kind together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UsualFailures(f64);

impl UsualFailures {
    /// A batch has ended. The evidence that it is of a GPU that cannot be used: the logarithm of how much likelier such
    /// a GPU makes it.
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
        let said: Vec<f64> = (0..200).map(|_| usual.ended(true)).collect();
        assert!(said.windows(2).all(|pair| pair[0] >= pair[1]), "{said:?}");
        assert!(said[199] < 0.0, "where all fail, one that fails is as sound as any");
    }
}
