//! What the ranker's host knows of a GPU whose executions do not take what was planned.

use std::collections::VecDeque;

use symphony_scheduler::PLANS_AHEAD_MAX;
use symphony_types::{Nanos, Time};

/// The plans of one GPU that have not been reported as ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuReports {
    /// How long each should take, and its items.
    predicted: VecDeque<(Nanos, u32)>,
    /// When all of them will be done, as far as is known.
    free_at: Time,
    /// It is too slow, and given to nobody.
    quarantined: bool,
}

impl GpuReports {
    /// Another plan of so many items was sent that should take this long and end then.
    pub(crate) fn sent(&mut self, (predicted, items): (Nanos, u32), end: Time) {
        self.predicted.push_back((predicted, items));
        self.free_at = end;
    }

    /// The oldest plan has ended. Returns how long it should have taken, and its items; none if there was none.
    pub(crate) fn ended(&mut self, now: Time) -> Option<(Nanos, u32)> {
        let predicted = self.predicted.pop_front();
        self.free_at = match self.predicted.front() {
            None => now,
            // It starts now, if it is not to start later by itself.
            Some(&(next, _)) => self.free_at.max(now + next),
        };
        predicted
    }

    /// The GPU was lost, and with it all plans; or it comes back.
    pub(crate) fn reset(&mut self, free_at: Time) {
        self.predicted.clear();
        self.free_at = free_at;
    }

    /// It is given to nobody from now on, or to everybody again.
    pub(crate) fn quarantine(&mut self, out: bool) {
        self.quarantined = out;
    }

    /// Whether the end of a plan is still to be reported.
    pub(crate) fn report_due(&self) -> bool {
        !self.predicted.is_empty()
    }

    /// When the GPU may be granted; [`Time::NEVER`] while it has all the plans that it may have, or is out of use.
    pub(crate) fn usable_at(&self) -> Time {
        if self.predicted.len() < PLANS_AHEAD_MAX && !self.quarantined { self.free_at } else { Time::NEVER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_with_two_plans_waits_for_its_report_and_a_late_one_puts_the_next_off() {
        let at = Time::from_nanos;
        let mut gpu = GpuReports::default();
        gpu.sent((Nanos::new(10), 1), at(10));
        assert_eq!(gpu.usable_at(), at(10));
        gpu.sent((Nanos::new(5), 2), at(15));
        assert_eq!(gpu.usable_at(), Time::NEVER);
        assert_eq!(gpu.ended(at(12)), Some((Nanos::new(10), 1)));
        assert_eq!(gpu.usable_at(), at(17));
        assert_eq!(gpu.ended(at(14)), Some((Nanos::new(5), 2)));
        assert_eq!(gpu.usable_at(), at(14), "an early end makes room");
        assert_eq!(gpu.ended(at(20)), None);
        gpu.sent((Nanos::new(10), 1), at(40));
        gpu.reset(at(25));
        assert_eq!(gpu.usable_at(), at(25));
        gpu.quarantine(true);
        assert_eq!(gpu.usable_at(), Time::NEVER);
        gpu.quarantine(false);
        assert_eq!(gpu.usable_at(), at(25));
    }
}
