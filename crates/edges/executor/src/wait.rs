//! Waiting until a point in time, to within a microsecond where the machine has a core to spare.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The last stretch of a wait is spun, the rest slept. With the smallest timer slack a sleep overshoots by about
/// 10 µs and rarely by 25 µs; spinning longer would cost a machine with hundreds of emulated GPUs its cores.
const SPIN_STRETCH: Duration = Duration::from_micros(30);

/// Blocks the calling thread until `deadline`, and never returns before it.
///
/// For threads that run batches: it spins for the last 30 µs, and lowers the thread's timer slack for good.
pub fn wait_until(deadline: Instant) {
    use_smallest_timer_slack();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if left > SPIN_STRETCH {
            std::thread::sleep(left - SPIN_STRETCH);
        } else {
            std::hint::spin_loop();
        }
    }
}

/// The kernel groups wake-ups within a thread's timer slack, 50 µs by default; this asks for 1 ns, once per thread.
pub fn use_smallest_timer_slack() {
    thread_local!(static ASKED: Cell<bool> = const { Cell::new(false) });
    if !ASKED.replace(true) {
        #[cfg(target_os = "linux")]
        if let Err(error) = nix::sys::prctl::set_timerslack(1) {
            tracing::warn!(%error, "timer slack stays at its default; waits of GPU threads may end 50 µs late");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_never_ends_early_and_the_slack_is_the_smallest() {
        for span in [Duration::ZERO, Duration::from_micros(5), Duration::from_micros(200), Duration::from_millis(2)] {
            let deadline = Instant::now() + span;
            wait_until(deadline);
            assert!(Instant::now() >= deadline);
        }
        #[cfg(target_os = "linux")]
        assert_eq!(nix::sys::prctl::get_timerslack(), Ok(1));
    }
}
