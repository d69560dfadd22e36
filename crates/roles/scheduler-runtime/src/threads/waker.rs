//! Waking of decision threads: a waker for the thread, and one for each group on it that also names the group.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use crossbeam::queue::SegQueue;
use symphony_types::{Nanos, Time};

use crate::threads::clock::Clock;
use crate::threads::spin_stretch::SpinStretch;

/// How a thread waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Idle {
    /// It always spins.
    Spin,
    /// It sleeps, and spins during the last stretch before a timer.
    Sleep(SpinStretch),
}

/// Wakes one decision thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadWaker {
    clock: Clock,
    woken: AtomicBool,
    /// The first wake-up since the last answer, in nanoseconds.
    woken_at: AtomicU64,
    thread: OnceLock<Thread>,
    /// Counts the beginnings and ends of turns: odd within a turn.
    pulse: AtomicU64,
    /// When the last turn began, in nanoseconds; 0 before the second turn.
    began: AtomicU64,
    /// Slots of the woken groups, in the order of their wake-ups.
    slots: SegQueue<usize>,
}

/// The progress of a decision thread as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pulse {
    /// Changes whenever a turn begins or ends.
    pub(crate) count: u64,
    /// The thread is in a turn, or was woken and does not run yet.
    pub(crate) busy: bool,
    /// When the current turn began, or when the thread that does not run yet was woken.
    pub(crate) since: Option<Time>,
}

impl ThreadWaker {
    /// A waker for a thread with this clock.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, ..Self::default() }
    }

    /// To be called once, by the thread that this waker wakes.
    pub(crate) fn answered_by_this_thread(&self) {
        let _ = self.thread.set(std::thread::current());
        self.pulse.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn pulse(&self) -> Pulse {
        let count = self.pulse.load(Ordering::Acquire);
        let in_turn = count % 2 == 1;
        // A thread that has not begun yet waits for a core.
        let woken = count > 0 && self.woken.load(Ordering::Acquire);
        let since = match in_turn {
            true => self.began.load(Ordering::Relaxed),
            false if woken => self.woken_at.load(Ordering::Relaxed),
            false => 0,
        };
        Pulse { count, busy: in_turn || woken, since: (since > 0).then(|| Time::from_nanos(since)) }
    }

    /// One turn is over, and the next one begins without a wait.
    pub(crate) fn next_turn(&self, now: Time) {
        self.began.store(now.as_nanos(), Ordering::Relaxed);
        self.pulse.fetch_add(2, Ordering::Release);
    }

    /// There is something to do.
    pub(crate) fn wake(&self) {
        // Only the first wake-up since the last answer pays for reading the clock and waking. Concurrent wake-ups have
        // nearly the same time. A waking thread that was delayed in between stores too early a time, which the
        // watchdog tolerates (`watchdog.rs`).
        if !self.woken.load(Ordering::Relaxed) {
            self.woken_at.store(self.clock.now().as_nanos(), Ordering::Relaxed);
        }
        if !self.woken.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Whether it was woken since the last answer. Everything sent before the wake-up is visible after this.
    pub(crate) fn answer(&self) -> bool {
        // Threads poll this between any two turns; only the reset needs to be atomic.
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::AcqRel)
    }

    /// The next slot whose group was woken.
    pub(crate) fn next_woken(&self) -> Option<usize> {
        self.slots.pop()
    }

    /// Waits for a wake-up or until `until`, and returns the time; returns at once if it was woken since the last
    /// answer. `now` must be a fresh reading of the clock.
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
            if self.woken.load(Ordering::Relaxed) || left == Nanos::ZERO {
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
                // A sleep that a wake-up ended has no overshoot.
                if let Idle::Sleep(stretch) = idle
                    && now >= wake_at
                    && !self.woken.load(Ordering::Relaxed)
                {
                    stretch.record_overshoot(now.since(wake_at));
                }
            }
        }
    }
}

/// Wakes the thread of one group, and names the group.
#[derive(Debug, Default)]
pub(crate) struct GroupWaker {
    thread_waker: Arc<ThreadWaker>,
    slot: usize,
    woken: AtomicBool,
    /// Its group is in a turn.
    in_turn: AtomicBool,
    over: AtomicBool,
    failed: AtomicBool,
}

impl GroupWaker {
    pub(crate) fn new(thread_waker: Arc<ThreadWaker>, slot: usize) -> Self {
        Self { thread_waker, slot, ..Self::default() }
    }

    /// The group's place on its thread.
    pub(crate) const fn slot(&self) -> usize {
        self.slot
    }

    /// There is something to do for the group.
    pub(crate) fn wake(&self) {
        // Only the first wake-up since the group's last turn queues the slot.
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.thread_waker.slots.push(self.slot);
            self.thread_waker.wake();
        }
    }

    /// Whether it was woken since the last answer. For a slot from [`ThreadWaker::next_woken`] this is current: the
    /// slot was queued after the wake-up.
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Relaxed)
    }

    /// The group's turn begins: it sees everything sent before a wake-up until now.
    pub(crate) fn answer(&self) {
        if self.is_woken() {
            self.woken.swap(false, Ordering::AcqRel);
        }
    }

    /// Whether the group is in a turn: if the thread hangs now, this group's decision hangs.
    pub(crate) fn is_in_turn(&self) -> bool {
        self.in_turn.load(Ordering::Relaxed)
    }

    /// The group's turn begins, or ends.
    pub(crate) fn set_in_turn(&self, under_way: bool) {
        self.in_turn.store(under_way, Ordering::Relaxed);
    }

    /// Ends the group: its thread drops it.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.wake();
    }

    /// The group has panicked and is dropped.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Whether it has panicked.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Whether the group must leave its thread.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_before_the_wait_is_not_lost_and_one_during_it_wakes() {
        let clock = Clock::start();
        let waker = Arc::new(ThreadWaker::new(clock));
        waker.answered_by_this_thread();
        let mut idle = Idle::Sleep(SpinStretch::default());
        waker.wake();
        waker.wait(clock.now(), Time::NEVER, &mut idle);
        assert!(waker.answer());
        assert!(!waker.answer(), "answered");
        let other = Arc::clone(&waker);
        let other_thread = std::thread::spawn(move || other.wake());
        waker.wait(clock.now(), Time::NEVER, &mut idle);
        assert!(waker.answer());
        other_thread.join().unwrap();
    }

    #[test]
    fn a_slot_is_named_once_until_its_turn_and_again_after_it() {
        let thread_waker = Arc::new(ThreadWaker::default());
        let (one, other) =
            (GroupWaker::new(Arc::clone(&thread_waker), 1), GroupWaker::new(Arc::clone(&thread_waker), 2));
        for waker in [&other, &one, &other, &one] {
            waker.wake();
        }
        assert!(thread_waker.answer());
        assert_eq!(
            [thread_waker.next_woken(), thread_waker.next_woken(), thread_waker.next_woken()],
            [Some(2), Some(1), None]
        );
        other.wake();
        assert!(!thread_waker.answer(), "its turn has not begun: whatever came is seen in it");
        other.answer();
        assert!(!other.is_woken() && one.is_woken());
        other.wake();
        assert!(thread_waker.answer());
        assert_eq!([thread_waker.next_woken(), thread_waker.next_woken()], [Some(2), None]);
    }

    #[test]
    fn a_thread_is_busy_in_a_turn_and_when_it_is_woken_but_not_before_it_has_begun() {
        let clock = Clock::start();
        let waker = ThreadWaker::new(clock);
        waker.wake();
        assert!(!waker.pulse().busy, "it has not begun");
        waker.answered_by_this_thread();
        assert!(waker.pulse().busy, "in its first turn");
        let began = waker.wait(clock.now(), Time::NEVER, &mut Idle::Spin);
        let before = waker.pulse();
        assert_eq!((before.busy, before.since), (true, Some(began)), "in the next one");
        waker.next_turn(clock.now());
        assert!(waker.pulse().busy && waker.pulse() != before, "in the turn of the next group");
        // As in the middle of a wait.
        assert!(waker.answer());
        waker.pulse.fetch_add(1, Ordering::Relaxed);
        assert!(!waker.pulse().busy, "asleep");
        let before = clock.now();
        waker.wake();
        let after = clock.now();
        let woken = waker.pulse();
        assert!(
            woken.busy && woken.since.is_some_and(|since| (before..=after).contains(&since)),
            "woken and not awake: {woken:?}"
        );
        waker.wake();
        assert_eq!(waker.pulse(), woken, "the first wake-up counts");
    }

    #[test]
    fn a_timer_is_never_early() {
        let clock = Clock::start();
        let waker = ThreadWaker::new(clock);
        waker.answered_by_this_thread();
        for mut idle in [Idle::Spin, Idle::Sleep(SpinStretch::default())] {
            for micros in [0, 10, 200, 3000] {
                let until = clock.now() + Nanos::from_micros(micros);
                assert!(waker.wait(clock.now(), until, &mut idle) >= until);
            }
        }
    }
}
