//! A decision thread: runs groups turn by turn, and waits exactly as long as none of them has anything to do.

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

/// Whose groups a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadSharing {
    /// Those of any lead.
    Any,
    /// One group of one lead: the thread ends with it.
    One,
}

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It ran a turn, which ended at this time.
    Turn(Time),
    /// There is nothing to do before this time.
    Wait(Time),
}

/// What everybody else has of a decision thread.
#[derive(Debug)]
pub(crate) struct DecisionThread {
    /// Names it among the threads of its replica, also those that have ended.
    pub(crate) number: u64,
    /// Its name, of which the operating system shows the first 15 bytes.
    pub(crate) name: String,
    pub(crate) sharing: ThreadSharing,
    pub(crate) core: Option<CoreId>,
    /// The system refused the core.
    core_refused: AtomicBool,
    thread_waker: Arc<ThreadWaker>,
    /// WorkerGroups that have not sat down yet.
    coming: SegQueue<WorkerGroup>,
    /// WorkerGroups that are over, until somebody else takes them apart: that closes links and frees queues, and takes
    /// longer than a turn.
    gone: SegQueue<WorkerGroup>,
    /// Slots that were used and are free.
    free_slots: SegQueue<usize>,
    slots_ever: AtomicUsize,
    groups: AtomicUsize,
    /// Nanoseconds of turns, summed. Written by the thread alone.
    busy: AtomicU64,
    /// A group has panicked, and nobody has looked yet.
    failed: AtomicBool,
    /// WorkerGroups that have panicked, on all threads of the replica.
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
            // A sleep ends within microseconds of its time instead of the usual 50; without the permission it is just
            // later.
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

    /// A thread whose turns somebody else runs.
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
            coming: SegQueue::new(),
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
                    self.thread_waker.beat(ended);
                    ended
                }
                Step::Wait(until) => self.thread_waker.wait(now, until, &mut idle),
            };
        }
    }

    /// Takes in who came and who was rung, and runs one turn.
    fn step(&self, groups: &mut WorkerGroups, now: Time, clock: &impl Fn() -> Time) -> Step {
        if self.thread_waker.answer() {
            while let Some(group) = self.coming.pop() {
                groups.install(group, now);
            }
            groups.hear(&self.thread_waker, now);
        }
        match groups.turn(now, clock) {
            Turn::Nobody(until) => Step::Wait(until),
            Turn::Taken(ended) => {
                count(&self.busy, ended.since(now).get());
                Step::Turn(ended)
            }
            Turn::Over(group) => self.let_go(group, clock),
            Turn::Failed(group) => {
                // Here, and not where somebody looks: a lead that is handed over is looked after by nobody.
                self.panics.fetch_add(1, Ordering::Relaxed);
                group.waker().fail();
                let step = self.let_go(group, clock);
                // Last: who sees it finds the group among those that are gone.
                self.failed.store(true, Ordering::Release);
                step
            }
        }
    }

    fn let_go(&self, group: WorkerGroup, clock: &impl Fn() -> Time) -> Step {
        self.free_slots.push(group.waker().slot());
        self.groups.fetch_sub(1, Ordering::Relaxed);
        self.gone.push(group);
        Step::Turn(clock())
    }

    /// Whether a group has panicked since this was last asked.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.swap(false, Ordering::AcqRel)
    }

    /// A place for a group, which is counted from now on.
    pub(crate) fn slot(self: &Arc<Self>) -> Slot {
        self.groups.fetch_add(1, Ordering::Relaxed);
        let slot = self.free_slots.pop().unwrap_or_else(|| self.slots_ever.fetch_add(1, Ordering::Relaxed));
        Slot { thread: Arc::clone(self), waker: Arc::new(GroupWaker::new(Arc::clone(&self.thread_waker), slot)) }
    }

    /// WorkerGroups on it, those that are on their way included.
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

    /// A group that is over, to be taken apart.
    pub(crate) fn gone(&self) -> Option<WorkerGroup> {
        self.gone.pop()
    }

    /// Whether the system refused the core that it was to be bound to.
    pub(crate) fn core_refused(&self) -> bool {
        self.core_refused.load(Ordering::Relaxed)
    }

    /// Ends it with everything on it. One that hangs ends when it goes on.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.thread_waker.wake();
    }

    /// Whether it was told to end.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// A group's place on a thread. The group goes when it is dropped, if not before.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) thread: Arc<DecisionThread>,
    pub(crate) waker: Arc<GroupWaker>,
}

impl Slot {
    /// Puts the group there, once.
    pub(crate) fn install(&self, workers: Vec<Box<dyn Worker>>) {
        self.thread.coming.push(WorkerGroup::new(Arc::clone(&self.waker), workers));
        self.thread.thread_waker.wake();
    }

    /// The group has no more turns.
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
