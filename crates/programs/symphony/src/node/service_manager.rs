//! Notifies a service manager (`Type=notify` of systemd): ready, alive, stopping. Does nothing where there is none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::runtime::Handle;

/// Pings per period of the watchdog, so that a late one is not taken for death.
const PINGS_PER_PERIOD: u32 = 3;

/// Whether the process serves: neither starting nor stopping.
static SERVES: AtomicBool = AtomicBool::new(false);

/// The process serves: its ports are open and its role has begun. With `WatchdogSec` it pings the watchdog from now
/// on, from this asynchronous runtime; the pings stop if it, or one of these `others`, hangs.
pub(super) fn ready(others: Vec<Handle>) {
    SERVES.store(true, Ordering::Relaxed);
    notify(&[NotifyState::Ready]);
    let Some(period) = sd_notify::watchdog_enabled().filter(|period| !period.is_zero()) else { return };
    tokio::spawn(ping_watchdog(period, others, || notify(&[NotifyState::Watchdog])));
}

/// Pings each time that all runtimes have run a task.
async fn ping_watchdog(period: Duration, others: Vec<Handle>, ping: impl Fn()) {
    let mut ticks = tokio::time::interval(period / PINGS_PER_PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for other in &others {
            // A runtime that has ended fails it at once: then the process stops, which is no hang.
            let _ = other.spawn(async {}).await;
        }
        ping();
    }
}

/// The process hands over or finishes its work, and ends.
pub(super) fn stopping() {
    SERVES.store(false, Ordering::Relaxed);
    notify(&[NotifyState::Stopping]);
}

/// The configuration is read again. A process that is starting or stopping does not report it, since the end of a
/// reload reads as ready.
pub(super) fn reloading() {
    if !SERVES.load(Ordering::Relaxed) {
        return;
    }
    // systemd 253 and later want to know when.
    let Ok(now) = NotifyState::monotonic_usec_now() else { return };
    notify(&[NotifyState::Reloading, now]);
}

/// The reload is done, and `status` says how.
pub(super) fn reloaded(status: &str) {
    if !SERVES.load(Ordering::Relaxed) {
        return;
    }
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be notified");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn pings_stop_while_another_runtime_stands_still_and_go_on_with_it() {
        let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (main, other) = (runtime(), runtime());
        let (ping, pings) = mpsc::channel();
        let period = Duration::from_millis(3);
        main.spawn(ping_watchdog(period, vec![other.handle().clone()], move || {
            let _ = ping.send(());
        }));
        let soon = Duration::from_secs(60);
        pings.recv_timeout(soon).unwrap();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let (hangs, hung) = mpsc::channel();
        other.spawn(async move {
            hangs.send(()).unwrap();
            let _ = may_go_on.recv();
        });
        hung.recv_timeout(soon).unwrap();
        // Earlier signals are handled first.
        let until = Instant::now() + soon;
        while pings.recv_timeout(Duration::from_millis(300)).is_ok() {
            assert!(Instant::now() < until, "signs of life, although it hangs");
        }
        drop(go_on);
        pings.recv_timeout(soon).unwrap();
        other.shutdown_background();
        (0..3).for_each(|_| pings.recv_timeout(soon).unwrap());
        main.shutdown_background();
    }
}
