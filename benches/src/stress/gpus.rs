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
    /// Plans that run or wait, by their end; the plan itself stands in `plans`, with how late it starts.
    ends: BinaryHeap<Reverse<(Time, usize)>>,
    plans: Vec<Option<(Execute, Nanos)>>,
    spare: Vec<usize>,
    /// The last plan of each GPU.
    last: Vec<u64>,
    /// Plans that were not the next one of their GPU: a backend ends the link of a leader that sends one.
    pub(crate) out_of_sequence: u64,
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
            last: vec![0; gpus as usize],
            out_of_sequence: 0,
            late: 0,
        }
    }

    /// When a plan that is taken now will end.
    pub(crate) fn end_of(&self, now: Time, plan: &Execute) -> Time {
        let planned = now + Nanos::new(plan.start_in);
        planned.max(self.free_at[plan.gpu.get() as usize]) + Nanos::new(plan.latency)
    }

    /// Takes a plan.
    pub(crate) fn take(&mut self, now: Time, plan: Execute) {
        let gpu = plan.gpu.get() as usize;
        let before = std::mem::replace(&mut self.last[gpu], plan.sequence);
        self.out_of_sequence += u64::from(plan.sequence != before + 1);
        let end = self.end_of(now, &plan);
        let start_late = (end - Nanos::new(plan.latency)).since(now + Nanos::new(plan.start_in));
        self.free_at[gpu] = end;
        self.late += u64::from(plan.start_in == 0);
        let slot = match self.spare.pop() {
            Some(slot) => {
                self.plans[slot] = Some((plan, start_late));
                slot
            }
            None => {
                self.plans.push(Some((plan, start_late)));
                self.plans.len() - 1
            }
        };
        self.ends.push(Reverse((end, slot)));
    }

    /// Reports everything that has ended.
    pub(crate) fn report(&mut self, now: Time, scheduler: &InProcess) {
        while let Some(&Reverse((end, slot))) = self.ends.peek()
            && end <= now
        {
            self.ends.pop();
            self.spare.push(slot);
            let Some((plan, start_late)) = self.plans[slot].take() else { continue };
            let free_at = self.free_at[plan.gpu.get() as usize].max(now);
            scheduler.done(&plan, start_late, Nanos::new(plan.latency), free_at);
        }
    }
}
