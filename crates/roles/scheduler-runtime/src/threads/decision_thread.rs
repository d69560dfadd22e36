//! A decision thread: runs worker groups turn by turn, and waits exactly while none of them has anything to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use core_affinity::CoreId;
use crossbeam::queue::SegQueue;
use nix::sys::prctl;
use symphony_types::Time;

use crate::threads::clock::Clock;
use crate::threads::spin_stretch::SpinStretch;
use crate::threads::waker::{GroupWaker, Idle, Pulse, ThreadWaker};
use crate::threads::worker::{ThreadPolicy, Worker};
use crate::threads::worker_group::WorkerGroup;
use crate::threads::worker_groups::{Turn, WorkerGroups};
use crate::workers::counters::count;

/// Which groups a thread accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadSharing {
    /// Groups of any lead.
    Any,
    /// One group of one lead: the thread ends with it.
    One,
}

/// The result of one step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It ran a turn, which ended at this time.
    Turn(Time),
    /// There is nothing to do before this time.
    Wait(Time),
}

/// A decision thread as seen by other threads.
#[derive(Debug)]
pub(crate) struct DecisionThread {
    /// Its number, unique among all threads of the replica so far.
    pub(crate) number: u64,
    /// Its name; the operating system shows the first 15 bytes.
    pub(crate) name: String,
    pub(crate) sharing: ThreadSharing,
    pub(crate) core: Option<CoreId>,
    /// The system refused to bind it to its core.
    core_refused: AtomicBool,
    thread_waker: Arc<ThreadWaker>,
    /// Worker groups that have not been installed yet.
    new_groups: SegQueue<WorkerGroup>,
    /// Worker groups that have ended, until another thread drops them: that closes links and frees queues, and takes
    /// longer than a turn.
    gone: SegQueue<WorkerGroup>,
    /// Slots that are free again.
    free_slots: SegQueue<usize>,
    slots_ever: AtomicUsize,
    groups: AtomicUsize,
    /// Sum of turn durations in nanoseconds. Written by the thread alone.
    busy: AtomicU64,
    /// A group has panicked since the last check.
    failed: AtomicBool,
    /// Worker groups that have panicked, on all threads of the replica.
    panics: Arc<AtomicU64>,
    stop: AtomicBool,
}

impl DecisionThread {
    /// Starts a thread, on `core` if there is one.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(crate) fn start(
        name: String,
        (number, sharing): (u64, ThreadSharing),
        clock: Clock,
        policy: ThreadPolicy,
        core: Option<CoreId>,
        panics: &Arc<AtomicU64>,
    ) -> std::io::Result<Arc<Self>> {
        let thread = Self::new(name.clone(), (number, sharing), clock, core, Arc::clone(panics));
        let running = Arc::clone(&thread);
        std::thread::Builder::new().name(name).spawn(move || {
            running.thread_waker.answered_by_this_thread();
            // With this slack a sleep ends within microseconds of its time, instead of the usual 50. Without the
            // permission sleeps just end later.
            let _ = prctl::set_timerslack(1);
            if let Some(core) = core
                && !core_affinity::set_for_current(core)
            {
                running.core_refused.store(true, Ordering::Relaxed);
                tracing::warn!(
                    thread = running.name,
                    core = core.id,
                    "scheduler.pin_cores: the system refuses the core; the thread runs wherever there is room"
                );
            }
            running.run(clock, if policy.spin { Idle::Spin } else { Idle::Sleep(SpinStretch::default()) });
        })?;
        Ok(thread)
    }

    /// A thread whose steps are run by the caller.
    fn new(
        name: String,
        (number, sharing): (u64, ThreadSharing),
        clock: Clock,
        core: Option<CoreId>,
        panics: Arc<AtomicU64>,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            name,
            sharing,
            core,
            core_refused: AtomicBool::new(false),
            thread_waker: Arc::new(ThreadWaker::new(clock)),
            new_groups: SegQueue::new(),
            gone: SegQueue::new(),
            free_slots: SegQueue::new(),
            slots_ever: AtomicUsize::new(0),
            groups: AtomicUsize::new(0),
            busy: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            panics,
            stop: AtomicBool::new(false),
        })
    }

    fn run(&self, clock: Clock, mut idle: Idle) {
        let mut groups = WorkerGroups::default();
        let mut now = clock.now();
        while !self.stop.load(Ordering::Acquire) {
            now = match self.step(&mut groups, now, &|| clock.now()) {
                Step::Turn(ended) => {
                    self.thread_waker.next_turn(ended);
                    ended
                }
                Step::Wait(until) => self.thread_waker.wait(now, until, &mut idle),
            };
        }
    }

    /// Takes in new groups and wake-ups, and runs one turn.
    fn step(&self, groups: &mut WorkerGroups, now: Time, clock: &impl Fn() -> Time) -> Step {
        if self.thread_waker.answer() {
            while let Some(group) = self.new_groups.pop() {
                groups.install(group, now);
            }
            groups.queue_woken(&self.thread_waker, now);
        }
        match groups.run_next(now, clock) {
            Turn::Idle(until) => Step::Wait(until),
            Turn::Done(ended) => {
                count(&self.busy, ended.since(now).get());
                Step::Turn(ended)
            }
            Turn::Ended(group) => self.end_group(group, clock),
            Turn::Failed(group) => {
                // Counted here and not by the watchdog, which does not cover leads that were handed over.
                self.panics.fetch_add(1, Ordering::Relaxed);
                group.waker().fail();
                let step = self.end_group(group, clock);
                // Last: a reader that sees the flag finds the group in `gone`.
                self.failed.store(true, Ordering::Release);
                step
            }
        }
    }

    fn end_group(&self, group: WorkerGroup, clock: &impl Fn() -> Time) -> Step {
        self.free_slots.push(group.waker().slot());
        self.groups.fetch_sub(1, Ordering::Relaxed);
        self.gone.push(group);
        Step::Turn(clock())
    }

    /// Whether a group has panicked since this was last asked.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.swap(false, Ordering::AcqRel)
    }

    /// Reserves a place for a group, which counts from now on.
    pub(crate) fn slot(self: &Arc<Self>) -> Slot {
        self.groups.fetch_add(1, Ordering::Relaxed);
        let slot = self.free_slots.pop().unwrap_or_else(|| self.slots_ever.fetch_add(1, Ordering::Relaxed));
        Slot { thread: Arc::clone(self), waker: Arc::new(GroupWaker::new(Arc::clone(&self.thread_waker), slot)) }
    }

    /// Worker groups on it, including those not yet installed.
    pub(crate) fn groups(&self) -> usize {
        self.groups.load(Ordering::Relaxed)
    }

    /// Nanoseconds of turns so far.
    pub(crate) fn busy(&self) -> u64 {
        self.busy.load(Ordering::Relaxed)
    }

    pub(crate) fn pulse(&self) -> Pulse {
        self.thread_waker.pulse()
    }

    /// A group that has ended, for the caller to drop.
    pub(crate) fn gone(&self) -> Option<WorkerGroup> {
        self.gone.pop()
    }

    /// Whether the system refused to bind it to its core.
    pub(crate) fn core_refused(&self) -> bool {
        self.core_refused.load(Ordering::Relaxed)
    }

    /// Ends it with all its groups. A hung thread ends when it runs again.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.thread_waker.wake();
    }

    /// Whether it was asked to end.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// A group's place on a thread. Dropping it ends the group.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) thread: Arc<DecisionThread>,
    pub(crate) waker: Arc<GroupWaker>,
}

impl Slot {
    /// Installs the group; to be called once.
    pub(crate) fn install(&self, workers: Vec<Box<dyn Worker>>) {
        self.thread.new_groups.push(WorkerGroup::new(Arc::clone(&self.waker), workers));
        self.thread.thread_waker.wake();
    }

    /// Ends the group: it gets no more turns.
    pub(crate) fn leave(&self) {
        match self.thread.sharing {
            ThreadSharing::Any => self.waker.end(),
            ThreadSharing::One => self.thread.stop(),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests;
