//! Finds gaps between a GPU's plans for the batches of a load.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a batch of a load waits for a gap between plans; then it runs beside them, in separate lanes where the
/// device has lanes. A GPU that is 90 % busy has such a gap more often than that. The load of a model with 64 sizes
/// takes at most a few seconds more.
pub(crate) const GAP_WITHIN: Duration = Duration::from_millis(100);

/// What one GPU's thread does next, for loads on that GPU.
#[derive(Debug, Default)]
pub(crate) struct GpuTime {
    /// Planned start of the next plan, or some time before now while one runs; none without a plan.
    plan: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl GpuTime {
    /// There is a plan with this start.
    pub(crate) fn taken_from(&self, start: Instant) {
        self.set(Some(start));
    }

    /// There is no plan.
    pub(crate) fn free(&self) {
        self.set(None);
    }

    /// Waits until a batch of this duration would end before the next plan begins; false if there was no such gap
    /// within `timeout`.
    pub(crate) fn wait_for(&self, takes: Duration, timeout: Duration) -> bool {
        let has_no_room = |plan: &mut Option<Instant>| plan.is_some_and(|start| start < Instant::now() + takes);
        let waited = self.changed.wait_timeout_while(self.plan(), timeout, has_no_room);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn set(&self, plan: Option<Instant>) {
        *self.plan() = plan;
        self.changed.notify_all();
    }

    fn plan(&self) -> MutexGuard<'_, Option<Instant>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const TAKES: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn a_gap_is_as_long_as_what_it_is_for() {
        let time = GpuTime::default();
        assert!(time.wait_for(TAKES, LONG), "nothing is planned");
        time.taken_from(Instant::now() + LONG);
        assert!(time.wait_for(TAKES, LONG), "the next plan is far");
        assert!(!time.wait_for(2 * LONG, SHORT), "the plan would begin in the middle of it");
        time.taken_from(Instant::now());
        assert!(!time.wait_for(TAKES, SHORT), "a plan runs");
        time.free();
        assert!(time.wait_for(TAKES, LONG));
    }

    #[test]
    fn whoever_waits_goes_on_when_the_plan_ends() {
        let time = Arc::new(GpuTime::default());
        time.taken_from(Instant::now());
        let waits = {
            let time = Arc::clone(&time);
            std::thread::spawn(move || time.wait_for(TAKES, LONG))
        };
        time.taken_from(Instant::now());
        time.free();
        assert!(waits.join().unwrap());
    }
}
