//! Pauses between attempts to reach a frontend that does not answer.

use std::time::Duration;

/// The first pause: a restarted process is back within some tens of milliseconds.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause: how late a frontend that is back may be noticed.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Pauses that double with each failure up to [`PAUSE_MAX`], spread over their second half: clients that lost a
/// frontend in the same moment do not come back in the same moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after one more failure; `random` is from 0 to 1.
    pub(crate) fn next(&mut self, random: f64) -> Duration {
        let whole = PAUSE_MIN.saturating_mul(2_u32.saturating_pow(self.failures)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        whole.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }

    /// It works again.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit_and_begin_anew() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..8).map(|_| backoff.next(1.0).as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        for _ in 0..100 {
            assert_eq!(backoff.next(0.0), PAUSE_MAX / 2);
        }
        backoff.reset();
        assert_eq!(backoff.next(1.0), PAUSE_MIN);
    }
}
