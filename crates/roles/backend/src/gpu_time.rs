//! Finds gaps between a GPU's plans for the batches of a load.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a batch of a load waits for a gap between plans; then it runs beside them, in separate lanes where the
/// device has lanes. A GPU that is 90 % busy usually has a gap within that time. The load of a model with 64 sizes
/// takes at most a few seconds more.
pub(crate) const GAP_WITHIN: Duration = Duration::from_millis(100);

/// Whether one GPU's thread has a plan, for loads on that GPU.
#[derive(Debug, Default)]
pub(crate) struct GpuTime {
    /// Also while a plan waits for its inputs: it begins as soon as they are there, which nobody knows before.
    has_plan: Mutex<bool>,
    changed: Condvar,
}

impl GpuTime {
    /// There is a plan.
    pub(crate) fn taken(&self) {
        self.set(true);
    }

    /// There is no plan.
    pub(crate) fn free(&self) {
        self.set(false);
    }

    /// Waits until there is no plan; false if there always was one within `timeout`.
    pub(crate) fn wait_for_gap(&self, timeout: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.has_plan(), timeout, |has_plan| *has_plan);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn set(&self, has_plan: bool) {
        *self.has_plan() = has_plan;
        self.changed.notify_all();
    }

    fn has_plan(&self) -> MutexGuard<'_, bool> {
        self.has_plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn there_is_a_gap_while_there_is_no_plan() {
        let time = GpuTime::default();
        assert!(time.wait_for_gap(LONG), "there was none yet");
        time.taken();
        assert!(!time.wait_for_gap(SHORT), "there is one");
        time.free();
        assert!(time.wait_for_gap(LONG), "it has ended");
    }

    #[test]
    fn whoever_waits_goes_on_when_the_plan_ends() {
        let time = Arc::new(GpuTime::default());
        time.taken();
        let waits = {
            let time = Arc::clone(&time);
            std::thread::spawn(move || time.wait_for_gap(LONG))
        };
        time.taken();
        time.free();
        assert!(waits.join().unwrap());
    }
}
