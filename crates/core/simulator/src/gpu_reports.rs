//! The state of a GPU at the ranker's host when executions differ from their plans.

use std::collections::VecDeque;

use symphony_types::{GPU_PLANS_MAX, Nanos, Time};

/// The plans of one GPU that have not been reported as ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuReports {
    /// Planned duration and items of each.
    predicted: VecDeque<(Nanos, u32)>,
    /// Predicted end of all of them.
    free_at: Time,
    /// Set aside as too slow.
    quarantined: bool,
}

impl GpuReports {
    /// Adds a plan of `items` items with this duration and end.
    pub(crate) fn sent(&mut self, (predicted, items): (Nanos, u32), end: Time) {
        self.predicted.push_back((predicted, items));
        self.free_at = end;
    }

    /// The oldest plan has ended. Returns its planned duration and items, if there was one.
    pub(crate) fn ended(&mut self, now: Time) -> Option<(Nanos, u32)> {
        let predicted = self.predicted.pop_front();
        self.free_at = match self.predicted.front() {
            None => now,
            // The next one starts now, unless it is planned to start later.
            Some(&(next, _)) => self.free_at.max(now + next),
        };
        predicted
    }

    /// The GPU was lost with all its plans, or is back.
    pub(crate) fn reset(&mut self, free_at: Time) {
        self.predicted.clear();
        self.free_at = free_at;
    }

    /// The GPU is set aside, or used again.
    pub(crate) fn quarantine(&mut self, out: bool) {
        self.quarantined = out;
    }

    /// Whether the end of a plan has not been reported yet.
    pub(crate) fn report_due(&self) -> bool {
        !self.predicted.is_empty()
    }

    /// When the GPU may be granted; [`Time::NEVER`] while it has the most plans allowed, or is set aside or lost.
    pub(crate) fn usable_at(&self) -> Time {
        if self.predicted.len() < GPU_PLANS_MAX as usize && !self.quarantined { self.free_at } else { Time::NEVER }
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
