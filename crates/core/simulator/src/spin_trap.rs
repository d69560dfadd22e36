//! A liveness check: an instant of virtual time that does not end.

use symphony_types::Time;

/// The most steps at one instant, arrivals aside, plus 16 per model and GPU; more count as spinning. A correct policy
/// takes a few steps per model and GPU: a wake-up, a grant, an answer.
pub const SPIN_STEPS_MIN: u64 = 10_000;

#[derive(Debug)]
pub(crate) struct SpinTrap {
    since: Time,
    steps: u64,
    steps_max: u64,
}

impl SpinTrap {
    pub(crate) fn new(models: usize, gpus: u32) -> Self {
        let steps_max = SPIN_STEPS_MIN + 16 * (models as u64 + u64::from(gpus));
        Self { since: Time::ZERO, steps: 0, steps_max }
    }

    /// An arrival: the count of its consequences starts at zero.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.steps = 0;
    }

    /// Counts a step.
    ///
    /// # Errors
    /// If there were too many at this instant.
    #[inline]
    pub(crate) fn count(&mut self, now: Time) -> Result<(), String> {
        if now != self.since {
            (self.since, self.steps) = (now, 0);
        }
        self.steps += 1;
        if self.steps > self.steps_max {
            return Err(format!("more than {} steps without an arrival or the passing of time", self.steps_max));
        }
        Ok(())
    }
}
