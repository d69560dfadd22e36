//! A decision thread: runs its workers turn by turn, and waits exactly as long as none of them has anything to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use core_affinity::CoreId;
use nix::sys::prctl;
use symphony_types::{Nanos, Time};

use crate::clock::Clock;
use crate::inbox::{Doorbell, Idle};
use crate::spin_stretch::SpinStretch;
use crate::worker_metrics::WorkerMetrics;

/// Inputs (requests, cancels, reports, offers) that one turn takes in before it looks at the clock and its timers again. At
/// 0.1 to 0.2 µs each a turn stays within tens of microseconds, however much has gathered. Rare inputs cost more: a turn of
/// cancels goes once through the queues of their models, and the loss of a GPU or a frontend moves all that it had.
pub(crate) const TURN_INPUTS_MAX: usize = 256;

/// One owner of decision objects.
pub(crate) trait Worker: Send {
    /// Handles what has arrived, up to [`TURN_INPUTS_MAX`], and everything that is due.
    fn turn(&mut self, turn: TurnStart) -> TurnEnd;

    /// Hands over what the turn decided, at `now`, as far as others have not seen it yet: plans before the answers that
    /// make their GPUs free for others, then offers, and bells at the end. It comes after the turns of all workers of the
    /// thread: whoever is woken by it may take this thread's core away, and by then nothing is left to decide.
    fn hand_over(&mut self, now: Time);

    /// What it counts.
    fn metrics(&self) -> &WorkerMetrics;
}

/// What a worker is told at the beginning of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnStart {
    /// Counts the thread's turns.
    pub(crate) number: u64,
    /// The time of every decision in this turn.
    pub(crate) now: Time,
    /// When the thread's last turn ended: a timer that was armed in it for a time before this was past from the
    /// beginning.
    pub(crate) last_ended: Time,
}

/// What a worker says at the end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnEnd {
    /// When it must be called again at the latest; [`Time::ZERO`] if there is more to do already.
    pub(crate) wake_at: Time,
    /// Inputs and timers handled; if there were none, there is nothing to hand over.
    pub(crate) handled: usize,
}

/// How a decision thread waits, and where it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadPolicy {
    /// Spins instead of sleeping: the shortest reaction, a whole core each.
    pub spin: bool,
    /// Bind the thread to a core.
    pub pin: bool,
}

/// Starts a thread, on `core` if there is one, that runs `workers` until `stop` is set and the bell rings.
///
/// # Errors
/// If the system refuses a thread.
pub(crate) fn start_thread(
    name: String,
    mut workers: Vec<Box<dyn Worker>>,
    bell: Arc<Doorbell>,
    stop: Arc<AtomicBool>,
    clock: Clock,
    policy: ThreadPolicy,
    core: Option<CoreId>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(move || {
        bell.answered_by_this_thread();
        // A sleep ends within microseconds of its time instead of the usual 50; without the permission it is just later.
        let _ = prctl::set_timerslack(1);
        if let Some(core) = core {
            core_affinity::set_for_current(core);
        }
        let mut turn = TurnStart { number: 0, now: clock.now(), last_ended: Time::ZERO };
        let mut idle = if policy.spin { Idle::Spin } else { Idle::Sleep(SpinStretch::default()) };
        // What each worker's turn has taken so far; nothing if there was nothing to do.
        let mut spent: Vec<Option<Nanos>> = vec![None; workers.len()];
        while !stop.load(Ordering::Acquire) {
            let mut wake_at = Time::NEVER;
            turn.number += 1;
            for (worker, spent) in workers.iter_mut().zip(&mut spent) {
                let end = worker.turn(turn);
                wake_at = wake_at.min(end.wake_at);
                // The end of one worker's turn is the beginning of the next one's: one reading of the clock serves both.
                let now = clock.now();
                *spent = (end.handled > 0).then(|| now.since(turn.now));
                turn.now = now;
            }
            turn.last_ended = turn.now;
            for (worker, spent) in workers.iter_mut().zip(&spent) {
                let Some(decided_in) = *spent else { continue };
                worker.hand_over(turn.now);
                let now = clock.now();
                worker.metrics().turns.record(decided_in + now.since(turn.now));
                turn.now = now;
            }
            turn.now = bell.wait(clock, turn.now, wake_at, &mut idle);
        }
    })
}
