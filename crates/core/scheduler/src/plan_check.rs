//! Invariants S1 and S2, checked on every plan in the simulator, in tests and in production.

use symphony_types::{GpuId, Invariant, Time};

use crate::Plan;

/// A plan that violates an invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{invariant}: {detail}")]
pub struct Violation {
    /// The violated invariant.
    pub invariant: Invariant,
    /// The values that violate it.
    pub detail: String,
}

/// Remembers when the last plan of each GPU ends.
#[derive(Clone, Debug, Default)]
pub struct PlanCheck {
    busy_until: Vec<Time>,
}

impl PlanCheck {
    /// For `gpus` GPUs with ids from zero; grows for larger ids.
    #[must_use]
    pub fn new(gpus: u32) -> Self {
        Self { busy_until: vec![Time::ZERO; gpus as usize] }
    }

    /// Checks a plan that is made at `now`, and books it.
    ///
    /// # Errors
    /// If it overlaps the plan before it on its GPU (S1), misses its own earliest deadline, or starts in the past (S2).
    pub fn check(&mut self, now: Time, plan: &Plan) -> Result<(), Violation> {
        let slot = plan.gpu.get() as usize;
        if slot >= self.busy_until.len() {
            self.busy_until.resize(slot + 1, Time::ZERO);
        }
        if plan.start < self.busy_until[slot] {
            let detail = format!(
                "{} is busy until {}, a plan of {} starts at {}",
                plan.gpu, self.busy_until[slot], plan.batch, plan.start
            );
            return Err(Violation { invariant: Invariant::S1, detail });
        }
        if plan.start < now || plan.end > plan.must_end_by {
            let detail = format!(
                "a plan of {} made at {now} runs from {} to {}, and must end by {}",
                plan.batch, plan.start, plan.end, plan.must_end_by
            );
            return Err(Violation { invariant: Invariant::S2, detail });
        }
        self.busy_until[slot] = plan.end;
        Ok(())
    }

    /// The backend reports when the GPU is really free: after an early end the next plan may start earlier.
    pub fn busy_until(&mut self, gpu: GpuId, until: Time) {
        if let Some(slot) = self.busy_until.get_mut(gpu.get() as usize) {
            *slot = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(gpu: u32, start: u64, end: u64, must_end_by: u64) -> Plan {
        let at = Time::from_nanos;
        Plan {
            gpu: GpuId::new(gpu),
            start: at(start),
            end: at(end),
            batch: 1,
            must_end_by: at(must_end_by),
            first: 0,
            requests: 1,
            why: None,
        }
    }

    #[test]
    fn an_overlap_is_found() {
        let mut check = PlanCheck::new(1);
        check.check(Time::ZERO, &plan(0, 10, 20, 30)).unwrap();
        check.check(Time::ZERO, &plan(7, 15, 25, 30)).unwrap();
        let violation = check.check(Time::ZERO, &plan(0, 19, 29, 30)).unwrap_err();
        assert_eq!(violation.invariant, Invariant::S1);
        check.check(Time::ZERO, &plan(0, 20, 30, 30)).unwrap();
    }

    #[test]
    fn a_missed_deadline_and_a_start_in_the_past_are_found() {
        let mut check = PlanCheck::new(1);
        assert_eq!(check.check(Time::ZERO, &plan(0, 10, 31, 30)).unwrap_err().invariant, Invariant::S2);
        assert_eq!(check.check(Time::from_nanos(11), &plan(0, 10, 20, 30)).unwrap_err().invariant, Invariant::S2);
    }
}
