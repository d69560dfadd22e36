//! A liveness trap: an instant of virtual time that does not end.

use symphony_types::Time;

/// Steps that may happen in one instant, arrivals aside, before the run counts as spinning; 16 more per model and GPU.
/// An honest instant takes a few steps per model and GPU: a wake, a grant, an answer.
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

    /// An arrival: its consequences are counted anew.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.steps = 0;
    }

    /// Counts a step.
    ///
    /// # Errors
    /// If there were too many of them in this instant; says so.
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
