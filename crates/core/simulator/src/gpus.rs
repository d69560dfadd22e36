//! The GPUs of the virtual cluster; each executes its plans one after another.

use std::collections::VecDeque;

use symphony_scheduler::{MinTree, Plan};
use symphony_types::{GpuId, Nanos, Time};

/// A plan on a GPU, with its real start and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) model: u32,
    pub(crate) plan: Plan,
    pub(crate) start: Time,
    pub(crate) end: Time,
}

#[derive(Debug, Default)]
struct Gpu {
    /// The running plan, if it has started, and the plans behind it.
    runs: VecDeque<Run>,
    /// Sequence numbers of their requests, in the same order.
    requests: VecDeque<u64>,
    /// The real end of the last plan.
    free_at: Time,
}

/// All GPUs, ordered by the end of their next plan.
#[derive(Debug)]
pub(crate) struct Gpus {
    gpus: Vec<Gpu>,
    ends: MinTree,
}

impl Gpus {
    pub(crate) fn new(gpus: u32) -> Self {
        Self { gpus: (0..gpus).map(|_| Gpu::default()).collect(), ends: MinTree::new(gpus as usize) }
    }

    /// When the next plan ends; [`Time::NEVER`] if none runs.
    #[inline]
    pub(crate) fn next_end(&self) -> Time {
        Time::from_nanos(self.ends.min_key())
    }

    /// The real start of a plan with this planned start: after the plans before it.
    #[inline]
    pub(crate) fn start_of(&self, gpu: GpuId, planned: Time) -> Time {
        planned.max(self.gpus[gpu.get() as usize].free_at)
    }

    /// Whether it has no plan.
    pub(crate) fn is_idle(&self, gpu: GpuId) -> bool {
        self.gpus[gpu.get() as usize].runs.is_empty()
    }

    /// When its running plan started; `None` if there is none.
    pub(crate) fn running_since(&self, gpu: GpuId, now: Time) -> Option<Time> {
        self.gpus[gpu.get() as usize].runs.front().map(|run| run.start).filter(|&start| start < now)
    }

    /// Queues a plan that will take `latency`. It starts as planned, or later if the plans before it are late. Its
    /// requests are added next.
    #[inline]
    pub(crate) fn execute(&mut self, model: u32, plan: &Plan, latency: Nanos) -> Run {
        let start = self.start_of(plan.gpu, plan.start);
        let slot = plan.gpu.get() as usize;
        let gpu = &mut self.gpus[slot];
        let run = Run { model, plan: *plan, start, end: start + latency };
        gpu.free_at = run.end;
        if gpu.runs.is_empty() {
            self.ends.set(slot, run.end.as_nanos());
        }
        gpu.runs.push_back(run);
        run
    }

    /// The requests of the last plan queued on this GPU.
    #[inline]
    pub(crate) fn add_requests(&mut self, gpu: GpuId, sequences: impl Iterator<Item = u64>) {
        self.gpus[gpu.get() as usize].requests.extend(sequences);
    }

    /// Removes the plan that ends next; its requests are passed to `answer`.
    #[inline]
    pub(crate) fn finish(&mut self, mut answer: impl FnMut(&Run, u64)) -> Option<Run> {
        let (slot, _) = self.ends.min()?;
        let gpu = &mut self.gpus[slot];
        let run = gpu.runs.pop_front()?;
        let next = gpu.runs.front().map_or(MinTree::EMPTY, |next| next.end.as_nanos());
        self.ends.set(slot, next);
        gpu.requests.drain(..run.plan.requests as usize).for_each(|sequence| answer(&run, sequence));
        Some(run)
    }

    /// Stops the running plan and discards those behind it. `give_back` gets every request with its model. Returns the
    /// stopped plan, ended now.
    pub(crate) fn stop(&mut self, now: Time, gpu: GpuId, mut give_back: impl FnMut(u32, u64)) -> Option<Run> {
        let slot = gpu.get() as usize;
        let gpu = self.gpus.get_mut(slot)?;
        self.ends.set(slot, MinTree::EMPTY);
        gpu.free_at = now;
        let running = gpu.runs.front().filter(|run| run.start < now).map(|run| Run { end: now, ..*run });
        for run in gpu.runs.drain(..) {
            gpu.requests.drain(..run.plan.requests as usize).for_each(|sequence| give_back(run.model, sequence));
        }
        running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execute(gpus: &mut Gpus, model: u32, plan: &Plan, latency: u64, first: u64) {
        gpus.execute(model, plan, Nanos::new(latency));
        gpus.add_requests(plan.gpu, first..first + u64::from(plan.requests));
    }

    const AT: fn(u64) -> Time = Time::from_nanos;

    fn plan(start: u64, end: u64, requests: u32) -> Plan {
        Plan {
            gpu: GpuId::new(0),
            start: AT(start),
            end: AT(end),
            batch: requests,
            must_end_by: Time::NEVER,
            first: 0,
            requests,
            why: None,
        }
    }

    fn finished(gpus: &mut Gpus) -> (u64, u64, u64, Vec<u64>) {
        let ends = gpus.next_end().as_nanos();
        let mut sequences = Vec::new();
        let run = gpus.finish(|_, sequence| sequences.push(sequence)).unwrap();
        (run.start.as_nanos(), run.end.as_nanos(), ends, sequences)
    }

    #[test]
    fn plans_run_one_after_another_and_a_late_one_delays_the_next() {
        let mut gpus = Gpus::new(2);
        execute(&mut gpus, 0, &plan(10, 20, 2), 15, 0);
        execute(&mut gpus, 1, &plan(20, 30, 1), 10, 2);
        execute(&mut gpus, 0, &plan(50, 60, 1), 5, 3);
        assert_eq!(finished(&mut gpus), (10, 25, 25, vec![0, 1]));
        assert_eq!(finished(&mut gpus), (25, 35, 35, vec![2]));
        assert_eq!(finished(&mut gpus), (50, 55, 55, vec![3]));
        assert_eq!(gpus.next_end(), Time::NEVER);
    }

    #[test]
    fn a_stop_gives_back_what_ran_and_what_waited_and_frees_the_gpu() {
        let mut gpus = Gpus::new(1);
        execute(&mut gpus, 0, &plan(10, 20, 2), 10, 0);
        execute(&mut gpus, 1, &plan(20, 30, 1), 10, 2);
        let mut back = Vec::new();
        let stopped = gpus.stop(AT(14), GpuId::new(0), |model, sequence| back.push((model, sequence))).unwrap();
        assert_eq!((stopped.start, stopped.end), (AT(10), AT(14)));
        assert_eq!(back, [(0, 0), (0, 1), (1, 2)]);
        assert_eq!(gpus.next_end(), Time::NEVER);
        execute(&mut gpus, 1, &plan(15, 25, 1), 10, 2);
        assert_eq!(finished(&mut gpus), (15, 25, 25, vec![2]));
        // A plan that has not started takes no time.
        execute(&mut gpus, 1, &plan(40, 50, 1), 10, 4);
        assert_eq!(gpus.stop(AT(30), GpuId::new(0), |_, _| {}), None);
    }
}
