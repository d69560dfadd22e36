//! GPUs that take exactly as long as predicted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use symphony_protocol::execute::Execute;
use symphony_scheduler_runtime::InProcess;
use symphony_types::{Nanos, Time};

/// The emulated GPUs of a run: they take plans, run them one after the other, and report their ends.
#[derive(Debug)]
pub(crate) struct Gpus {
    free_at: Vec<Time>,
    /// Plans that run or wait, by their end; the plan itself stands in `plans`.
    ends: BinaryHeap<Reverse<(Time, usize)>>,
    plans: Vec<Option<Execute>>,
    spare: Vec<usize>,
    /// Plans that came after the start they were planned for.
    pub(crate) late: u64,
}

impl Gpus {
    pub(crate) fn new(gpus: u32) -> Self {
        Self {
            free_at: vec![Time::ZERO; gpus as usize],
            ends: BinaryHeap::new(),
            plans: Vec::new(),
            spare: Vec::new(),
            late: 0,
        }
    }

    /// Takes a plan and returns when it will end.
    pub(crate) fn take(&mut self, now: Time, plan: Execute) -> Time {
        let free_at = &mut self.free_at[plan.gpu.get() as usize];
        let start = (now + Nanos::new(plan.start_in)).max(*free_at);
        let end = start + Nanos::new(plan.latency);
        *free_at = end;
        self.late += u64::from(plan.start_in == 0);
        let slot = match self.spare.pop() {
            Some(slot) => {
                self.plans[slot] = Some(plan);
                slot
            }
            None => {
                self.plans.push(Some(plan));
                self.plans.len() - 1
            }
        };
        self.ends.push(Reverse((end, slot)));
        end
    }

    /// Reports everything that has ended.
    pub(crate) fn report(&mut self, now: Time, scheduler: &InProcess) {
        while let Some(&Reverse((end, slot))) = self.ends.peek()
            && end <= now
        {
            self.ends.pop();
            self.spare.push(slot);
            let Some(plan) = self.plans[slot].take() else { continue };
            let free_at = self.free_at[plan.gpu.get() as usize].max(now);
            scheduler.done(&plan, Nanos::ZERO, Nanos::new(plan.latency), free_at);
        }
    }
}
