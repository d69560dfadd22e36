//! A decision thread: runs its workers turn by turn, and waits exactly as long as none of them has anything to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::prctl;
use symphony_types::Time;

use crate::clock::Clock;
use crate::inbox::Doorbell;

/// One owner of decision objects.
pub(crate) trait Worker: Send {
    /// Handles everything that has arrived or is due, and returns when it must be called again at the latest.
    fn turn(&mut self) -> Time;
}

/// How a decision thread waits, and where it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadPolicy {
    /// Spins instead of sleeping: the shortest reaction, a whole core each.
    pub spin: bool,
    /// Bind the thread to a core.
    pub pin: bool,
}

/// Starts a thread that runs `workers` until `stop` is set and the bell rings.
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
    core: usize,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(move || {
        bell.answered_by_this_thread();
        // A sleep ends within microseconds of its time instead of the usual 50; without the permission it is just later.
        let _ = prctl::set_timerslack(1);
        if policy.pin
            && let Some(cores) = core_affinity::get_core_ids()
            && !cores.is_empty()
        {
            core_affinity::set_for_current(cores[core % cores.len()]);
        }
        while !stop.load(Ordering::Acquire) {
            let mut next = Time::NEVER;
            for worker in &mut workers {
                next = next.min(worker.turn());
            }
            bell.wait(clock, next, policy.spin);
        }
    })
}
