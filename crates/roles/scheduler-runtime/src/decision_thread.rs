//! A decision thread: runs crews turn by turn, and waits exactly as long as none of them has anything to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use core_affinity::CoreId;
use crossbeam::queue::SegQueue;
use nix::sys::prctl;
use symphony_types::Time;

use crate::clock::Clock;
use crate::counters::count;
use crate::crew::Crew;
use crate::crews::{Crews, Turn};
use crate::doorbell::{Bell, Doorbell, Idle, Pulse};
use crate::spin_stretch::SpinStretch;
use crate::worker::{ThreadPolicy, Worker};

/// Whose crews a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tenants {
    /// Those of any lead.
    Any,
    /// One crew of one lead: the thread ends with it.
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
    pub(crate) tenants: Tenants,
    pub(crate) core: Option<CoreId>,
    /// The system refused the core.
    core_refused: AtomicBool,
    door: Arc<Doorbell>,
    /// Crews that have not sat down yet.
    coming: SegQueue<Crew>,
    /// Crews that are over, until somebody else takes them apart: that closes links and frees queues, and takes longer than
    /// a turn.
    gone: SegQueue<Crew>,
    /// Seats that were used and are free.
    free_seats: SegQueue<usize>,
    seats_ever: AtomicUsize,
    crews: AtomicUsize,
    /// Nanoseconds of turns, summed. Written by the thread alone.
    busy: AtomicU64,
    /// A crew has panicked, and nobody has looked yet.
    failed: AtomicBool,
    /// Crews that have panicked, on all threads of the replica.
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
        (number, tenants): (u64, Tenants),
        clock: Clock,
        policy: ThreadPolicy,
        core: Option<CoreId>,
        panics: &Arc<AtomicU64>,
    ) -> std::io::Result<Arc<Self>> {
        let thread = Self::new(name.clone(), (number, tenants), clock, core, Arc::clone(panics));
        let running = Arc::clone(&thread);
        std::thread::Builder::new().name(name).spawn(move || {
            running.door.answered_by_this_thread();
            // A sleep ends within microseconds of its time instead of the usual 50; without the permission it is just later.
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
        (number, tenants): (u64, Tenants),
        clock: Clock,
        core: Option<CoreId>,
        panics: Arc<AtomicU64>,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            name,
            tenants,
            core,
            core_refused: AtomicBool::new(false),
            door: Arc::new(Doorbell::new(clock)),
            coming: SegQueue::new(),
            gone: SegQueue::new(),
            free_seats: SegQueue::new(),
            seats_ever: AtomicUsize::new(0),
            crews: AtomicUsize::new(0),
            busy: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            panics,
            stop: AtomicBool::new(false),
        })
    }

    fn run(&self, clock: Clock, mut idle: Idle) {
        let mut crews = Crews::default();
        let mut now = clock.now();
        while !self.stop.load(Ordering::Acquire) {
            now = match self.step(&mut crews, now, &|| clock.now()) {
                Step::Turn(ended) => {
                    self.door.beat(ended);
                    ended
                }
                Step::Wait(until) => self.door.wait(now, until, &mut idle),
            };
        }
    }

    /// Takes in who came and who was rung, and runs one turn.
    fn step(&self, crews: &mut Crews, now: Time, clock: &impl Fn() -> Time) -> Step {
        if self.door.answer() {
            while let Some(crew) = self.coming.pop() {
                crews.sit(crew, now);
            }
            crews.hear(&self.door, now);
        }
        match crews.turn(now, clock) {
            Turn::Nobody(until) => Step::Wait(until),
            Turn::Taken(ended) => {
                count(&self.busy, ended.since(now).get());
                Step::Turn(ended)
            }
            Turn::Over(crew) => self.let_go(crew, clock),
            Turn::Failed(crew) => {
                // Here, and not where somebody looks: a lead that is handed over is looked after by nobody.
                self.panics.fetch_add(1, Ordering::Relaxed);
                crew.bell().fail();
                let step = self.let_go(crew, clock);
                // Last: who sees it finds the crew among those that are gone.
                self.failed.store(true, Ordering::Release);
                step
            }
        }
    }

    fn let_go(&self, crew: Crew, clock: &impl Fn() -> Time) -> Step {
        self.free_seats.push(crew.bell().seat());
        self.crews.fetch_sub(1, Ordering::Relaxed);
        self.gone.push(crew);
        Step::Turn(clock())
    }

    /// Whether a crew has panicked since this was last asked.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.swap(false, Ordering::AcqRel)
    }

    /// A place for a crew, which is counted from now on.
    pub(crate) fn seat(self: &Arc<Self>) -> Seat {
        self.crews.fetch_add(1, Ordering::Relaxed);
        let seat = self.free_seats.pop().unwrap_or_else(|| self.seats_ever.fetch_add(1, Ordering::Relaxed));
        Seat { thread: Arc::clone(self), bell: Arc::new(Bell::new(Arc::clone(&self.door), seat)) }
    }

    /// Crews on it, those that are on their way included.
    pub(crate) fn crews(&self) -> usize {
        self.crews.load(Ordering::Relaxed)
    }

    /// Nanoseconds of turns so far.
    pub(crate) fn busy(&self) -> u64 {
        self.busy.load(Ordering::Relaxed)
    }

    pub(crate) fn pulse(&self) -> Pulse {
        self.door.pulse()
    }

    /// A crew that is over, to be taken apart.
    pub(crate) fn gone(&self) -> Option<Crew> {
        self.gone.pop()
    }

    /// Whether the system refused the core that it was to be bound to.
    pub(crate) fn core_refused(&self) -> bool {
        self.core_refused.load(Ordering::Relaxed)
    }

    /// Ends it with everything on it. One that hangs ends when it goes on.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.door.ring();
    }

    /// Whether it was told to end.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// A crew's place on a thread. The crew goes when it is dropped, if not before.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) thread: Arc<DecisionThread>,
    pub(crate) bell: Arc<Bell>,
}

impl Seat {
    /// Seats the crew, once.
    pub(crate) fn take(&self, workers: Vec<Box<dyn Worker>>) {
        self.thread.coming.push(Crew::new(Arc::clone(&self.bell), workers));
        self.thread.door.ring();
    }

    /// The crew has no more turns.
    pub(crate) fn leave(&self) {
        match self.thread.tenants {
            Tenants::Any => self.bell.end(),
            Tenants::One => self.thread.stop(),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests;
