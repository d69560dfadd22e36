//! How a decision thread is woken: one doorbell for the thread, and for each crew on it a bell that says who is meant.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use crossbeam::queue::SegQueue;
use symphony_types::{Nanos, Time};

use crate::clock::Clock;
use crate::spin_stretch::SpinStretch;

/// How a thread waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Idle {
    /// It spins, always.
    Spin,
    /// It sleeps, and spins the last stretch before a timer.
    Sleep(SpinStretch),
}

/// Wakes one decision thread.
#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    clock: Clock,
    rung: AtomicBool,
    /// When it was rung for the first time since the last answer, in nanoseconds.
    rung_at: AtomicU64,
    thread: OnceLock<Thread>,
    /// Counts the beginnings and ends of turns: odd within one.
    pulse: AtomicU64,
    /// When the last turn began, in nanoseconds; 0 before the second one.
    began: AtomicU64,
    /// Seats whose bells were rung, in that order.
    seats: SegQueue<usize>,
}

/// What can be seen of a decision thread from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pulse {
    /// Changes whenever a turn begins or ends.
    pub(crate) count: u64,
    /// Within a turn, or rung and not awake yet.
    pub(crate) busy: bool,
    /// When the turn began that is under way, or the thread was rung that is not awake yet.
    pub(crate) since: Option<Time>,
}

impl Doorbell {
    /// One for a thread that goes by this clock.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, ..Self::default() }
    }

    /// Called once, by the thread that answers.
    pub(crate) fn answered_by_this_thread(&self) {
        let _ = self.thread.set(std::thread::current());
        self.pulse.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn pulse(&self) -> Pulse {
        let count = self.pulse.load(Ordering::Acquire);
        let in_turn = count % 2 == 1;
        // A thread that has not begun yet waits for a core.
        let rung = count > 0 && self.rung.load(Ordering::Acquire);
        let since = match in_turn {
            true => self.began.load(Ordering::Relaxed),
            false if rung => self.rung_at.load(Ordering::Relaxed),
            false => 0,
        };
        Pulse { count, busy: in_turn || rung, since: (since > 0).then(|| Time::from_nanos(since)) }
    }

    /// One turn is over, and the thread begins the next one without waiting.
    pub(crate) fn beat(&self, now: Time) {
        self.began.store(now.as_nanos(), Ordering::Relaxed);
        self.pulse.fetch_add(2, Ordering::Release);
    }

    /// There is something to do.
    pub(crate) fn ring(&self) {
        // Only the first ring since the last answer pays for a look at the clock and a wake-up. Of several at a time each says about the
        // same; one that was held up in between says too early a time, which whoever looks holds against nobody (`watchdog.rs`).
        if !self.rung.load(Ordering::Relaxed) {
            self.rung_at.store(self.clock.now().as_nanos(), Ordering::Relaxed);
        }
        if !self.rung.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Whether it has rung since the last answer. Whatever was handed over before a ring can be seen after this.
    pub(crate) fn answer(&self) -> bool {
        // Threads look at the bell between any two turns; only taking it down has to be exclusive.
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::AcqRel)
    }

    /// The next seat whose bell was rung.
    pub(crate) fn next_rung(&self) -> Option<usize> {
        self.seats.pop()
    }

    /// Waits until the bell rings or `until` has come, and returns the time; returns at once if it has rung since the
    /// last answer. `now` is a fresh reading of the clock.
    pub(crate) fn wait(&self, now: Time, until: Time, idle: &mut Idle) -> Time {
        self.pulse.fetch_add(1, Ordering::Relaxed);
        let now = self.sleep(now, until, idle);
        self.began.store(now.as_nanos(), Ordering::Relaxed);
        self.pulse.fetch_add(1, Ordering::Release);
        now
    }

    fn sleep(&self, mut now: Time, until: Time, idle: &mut Idle) -> Time {
        loop {
            let left = until.since(now);
            if self.rung.load(Ordering::Relaxed) || left == Nanos::ZERO {
                return now;
            }
            let stretch = match idle {
                Idle::Spin => Nanos::MAX,
                Idle::Sleep(stretch) => stretch.get(),
            };
            if left <= stretch {
                std::hint::spin_loop();
                now = self.clock.now();
            } else if until == Time::NEVER {
                std::thread::park();
                now = self.clock.now();
            } else {
                let wake_at = until - stretch;
                std::thread::park_timeout(Duration::from(left - stretch));
                now = self.clock.now();
                // One that was rung ended when it should.
                if let Idle::Sleep(stretch) = idle
                    && now >= wake_at
                    && !self.rung.load(Ordering::Relaxed)
                {
                    stretch.learn(now.since(wake_at));
                }
            }
        }
    }
}

/// Wakes the thread of one crew, and says that this crew is meant.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    door: Arc<Doorbell>,
    seat: usize,
    rung: AtomicBool,
    /// Its crew has the turn.
    in_turn: AtomicBool,
    over: AtomicBool,
    failed: AtomicBool,
}

impl Bell {
    pub(crate) fn new(door: Arc<Doorbell>, seat: usize) -> Self {
        Self { door, seat, ..Self::default() }
    }

    /// The crew's place on its thread.
    pub(crate) const fn seat(&self) -> usize {
        self.seat
    }

    /// There is something to do for the crew.
    pub(crate) fn ring(&self) {
        // Only the first ring since the crew's last turn began names the seat again.
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.door.seats.push(self.seat);
            self.door.ring();
        }
    }

    /// Whether it has rung since the last answer. Said of a seat from [`Doorbell::next_rung`] it is the newest word: the
    /// seat was named after the ring.
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed)
    }

    /// The crew's turn begins: what was handed over before a ring until now is seen in it.
    pub(crate) fn answer(&self) {
        if self.is_rung() {
            self.rung.swap(false, Ordering::AcqRel);
        }
    }

    /// Whether the crew has the turn: a thread that hangs meanwhile hangs in what this crew decides.
    pub(crate) fn is_in_turn(&self) -> bool {
        self.in_turn.load(Ordering::Relaxed)
    }

    /// The crew's turn begins, or is over.
    pub(crate) fn turn(&self, under_way: bool) {
        self.in_turn.store(under_way, Ordering::Relaxed);
    }

    /// The crew has no more turns: its thread lets go of it.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.ring();
    }

    /// The crew has panicked, and is let go of.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Whether it has panicked.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Whether the crew is to go.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_wait_is_not_lost_and_one_during_it_wakes() {
        let clock = Clock::start();
        let bell = Arc::new(Doorbell::new(clock));
        bell.answered_by_this_thread();
        let mut idle = Idle::Sleep(SpinStretch::default());
        bell.ring();
        bell.wait(clock.now(), Time::NEVER, &mut idle);
        assert!(bell.answer());
        assert!(!bell.answer(), "answered");
        let other = Arc::clone(&bell);
        let ringer = std::thread::spawn(move || other.ring());
        bell.wait(clock.now(), Time::NEVER, &mut idle);
        assert!(bell.answer());
        ringer.join().unwrap();
    }

    #[test]
    fn a_seat_is_named_once_until_its_turn_and_again_after_it() {
        let door = Arc::new(Doorbell::default());
        let (one, other) = (Bell::new(Arc::clone(&door), 1), Bell::new(Arc::clone(&door), 2));
        for bell in [&other, &one, &other, &one] {
            bell.ring();
        }
        assert!(door.answer());
        assert_eq!([door.next_rung(), door.next_rung(), door.next_rung()], [Some(2), Some(1), None]);
        other.ring();
        assert!(!door.answer(), "its turn has not begun: whatever came is seen in it");
        other.answer();
        assert!(!other.is_rung() && one.is_rung());
        other.ring();
        assert!(door.answer());
        assert_eq!([door.next_rung(), door.next_rung()], [Some(2), None]);
    }

    #[test]
    fn a_thread_is_busy_in_a_turn_and_when_it_is_rung_but_not_before_it_has_begun() {
        let clock = Clock::start();
        let bell = Doorbell::new(clock);
        bell.ring();
        assert!(!bell.pulse().busy, "it has not begun");
        bell.answered_by_this_thread();
        assert!(bell.pulse().busy, "in its first turn");
        let began = bell.wait(clock.now(), Time::NEVER, &mut Idle::Spin);
        let before = bell.pulse();
        assert_eq!((before.busy, before.since), (true, Some(began)), "in the next one");
        bell.beat(clock.now());
        assert!(bell.pulse().busy && bell.pulse() != before, "in the turn of the next crew");
        // As in the middle of a wait.
        assert!(bell.answer());
        bell.pulse.fetch_add(1, Ordering::Relaxed);
        assert!(!bell.pulse().busy, "asleep");
        let before = clock.now();
        bell.ring();
        let after = clock.now();
        let rung = bell.pulse();
        assert!(
            rung.busy && rung.since.is_some_and(|since| (before..=after).contains(&since)),
            "rung and not awake: {rung:?}"
        );
        bell.ring();
        assert_eq!(bell.pulse(), rung, "the first ring counts");
    }

    #[test]
    fn a_timer_is_never_early() {
        let clock = Clock::start();
        let bell = Doorbell::new(clock);
        bell.answered_by_this_thread();
        for mut idle in [Idle::Spin, Idle::Sleep(SpinStretch::default())] {
            for micros in [0, 10, 200, 3000] {
                let until = clock.now() + Nanos::from_micros(micros);
                assert!(bell.wait(clock.now(), until, &mut idle) >= until);
            }
        }
    }
}
