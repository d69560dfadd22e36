//! How a decision thread is told things: an unbounded inbox for what must not be lost, with a limit for what may be
//! refused, and a doorbell that wakes the thread only when it sleeps.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use crossbeam::queue::SegQueue;
use symphony_types::{Nanos, Time};

use crate::clock::Clock;
use crate::spin_stretch::SpinStretch;

/// Messages in an inbox beyond which requests are refused. Grants, releases and reports, which are as many as there are
/// GPUs and backends, are never refused.
pub(crate) const INBOX_REQUEST_FRAMES_MAX: usize = 4096;

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
    rung: AtomicBool,
    thread: OnceLock<Thread>,
    /// Counts the beginnings and ends of turns: odd within one.
    pulse: AtomicU64,
}

/// What can be seen of a decision thread from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pulse {
    /// Changes whenever a turn begins or ends.
    pub(crate) count: u64,
    /// Within a turn, or rung and not awake yet.
    pub(crate) busy: bool,
}

impl Doorbell {
    /// Called once, by the thread that answers.
    pub(crate) fn answered_by_this_thread(&self) {
        let _ = self.thread.set(std::thread::current());
        self.pulse.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn pulse(&self) -> Pulse {
        let count = self.pulse.load(Ordering::Relaxed);
        // A thread that has not begun yet waits for a core, as many do where a thousand begin at once.
        Pulse { count, busy: count % 2 == 1 || (count > 0 && self.rung.load(Ordering::Relaxed)) }
    }

    /// There is something to do.
    pub(crate) fn ring(&self) {
        // Only the first ring since the last answer pays for a wake-up.
        if !self.rung.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Waits until the bell rings or `until` has come, and returns the time; returns at once if it has rung since the
    /// last answer. `now` is a fresh reading of the clock.
    pub(crate) fn wait(&self, clock: Clock, now: Time, until: Time, idle: &mut Idle) -> Time {
        self.pulse.fetch_add(1, Ordering::Relaxed);
        let now = self.sleep(clock, now, until, idle);
        self.pulse.fetch_add(1, Ordering::Relaxed);
        now
    }

    fn sleep(&self, clock: Clock, mut now: Time, until: Time, idle: &mut Idle) -> Time {
        loop {
            // Spinning threads look at the bell all the time; only taking it down has to be exclusive.
            if self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::AcqRel) {
                return now;
            }
            let left = until.since(now);
            if left == Nanos::ZERO {
                return now;
            }
            let stretch = match idle {
                Idle::Spin => Nanos::MAX,
                Idle::Sleep(stretch) => stretch.get(),
            };
            if left <= stretch {
                std::hint::spin_loop();
                now = clock.now();
            } else if until == Time::NEVER {
                std::thread::park();
                now = clock.now();
            } else {
                let wake_at = until - stretch;
                std::thread::park_timeout(Duration::from(left - stretch));
                now = clock.now();
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

/// Messages for one worker, and the bell of the thread that runs it.
#[derive(Debug)]
pub(crate) struct Inbox<M> {
    messages: SegQueue<M>,
    bell: Arc<Doorbell>,
}

impl<M> Inbox<M> {
    pub(crate) fn new(bell: Arc<Doorbell>) -> Self {
        Self { messages: SegQueue::new(), bell }
    }

    /// Hands over what must not be lost.
    pub(crate) fn push(&self, message: M) {
        self.messages.push(message);
        self.bell.ring();
    }

    /// Hands over without ringing: the caller rings later, once for everything.
    pub(crate) fn push_silently(&self, message: M) {
        self.messages.push(message);
    }

    /// Hands over what may be refused; gives it back when the inbox is at its limit.
    pub(crate) fn try_push(&self, message: M) -> Result<(), M> {
        if self.messages.len() >= INBOX_REQUEST_FRAMES_MAX {
            return Err(message);
        }
        self.push(message);
        Ok(())
    }

    pub(crate) fn pop(&self) -> Option<M> {
        self.messages.pop()
    }

    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// The pulse of the thread that runs the worker.
    pub(crate) fn pulse(&self) -> Pulse {
        self.bell.pulse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_wait_is_not_lost_and_one_during_it_wakes() {
        let bell = Arc::new(Doorbell::default());
        let clock = Clock::start();
        bell.answered_by_this_thread();
        let mut idle = Idle::Sleep(SpinStretch::default());
        bell.ring();
        bell.wait(clock, clock.now(), Time::NEVER, &mut idle);
        let other = Arc::clone(&bell);
        let ringer = std::thread::spawn(move || other.ring());
        bell.wait(clock, clock.now(), Time::NEVER, &mut idle);
        ringer.join().unwrap();
    }

    #[test]
    fn a_thread_is_busy_in_a_turn_and_when_it_is_rung_but_not_before_it_has_begun() {
        let (bell, clock) = (Doorbell::default(), Clock::start());
        bell.ring();
        assert!(!bell.pulse().busy, "it has not begun");
        bell.answered_by_this_thread();
        assert!(bell.pulse().busy, "in its first turn");
        bell.wait(clock, clock.now(), Time::NEVER, &mut Idle::Spin);
        assert!(bell.pulse().busy, "in the next one");
        // As in the middle of a wait.
        bell.pulse.fetch_add(1, Ordering::Relaxed);
        assert!(!bell.pulse().busy, "asleep");
        bell.ring();
        assert!(bell.pulse().busy, "rung and not awake");
    }

    #[test]
    fn a_timer_is_never_early() {
        let bell = Doorbell::default();
        bell.answered_by_this_thread();
        let clock = Clock::start();
        for mut idle in [Idle::Spin, Idle::Sleep(SpinStretch::default())] {
            for micros in [0, 10, 200, 3000] {
                let until = clock.now() + Nanos::from_micros(micros);
                assert!(bell.wait(clock, clock.now(), until, &mut idle) >= until);
            }
        }
    }

    #[test]
    fn requests_are_refused_at_the_limit_and_orders_are_not() {
        let inbox = Inbox::new(Arc::new(Doorbell::default()));
        for i in 0..INBOX_REQUEST_FRAMES_MAX {
            inbox.try_push(i).unwrap();
        }
        assert_eq!(inbox.try_push(7), Err(7));
        inbox.push(8);
        assert_eq!(inbox.pop(), Some(0));
    }
}
