//! What a service manager is told (`Type=notify` of systemd): ready, alive, stopping. Nothing where there is none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::runtime::Handle;

/// Signs of life per period of the watchdog, so that one that comes late is not taken for death.
const SIGNS_PER_PERIOD: u32 = 3;

/// Whether the process serves: neither starting nor stopping.
static SERVES: AtomicBool = AtomicBool::new(false);

/// The process serves: its ports are open and its role has begun. With `WatchdogSec` it gives signs of life from now
/// on. They come from this asynchronous runtime, and stop if it, or one of these `others`, hangs.
pub(super) fn ready(others: Vec<Handle>) {
    SERVES.store(true, Ordering::Relaxed);
    tell(&[NotifyState::Ready]);
    let Some(period) = sd_notify::watchdog_enabled().filter(|period| !period.is_zero()) else { return };
    tokio::spawn(give_signs(period, others, || tell(&[NotifyState::Watchdog])));
}

/// A sign each time that all runtimes have run what they were given.
async fn give_signs(period: Duration, others: Vec<Handle>, sign: impl Fn()) {
    let mut signs = tokio::time::interval(period / SIGNS_PER_PERIOD);
    signs.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        signs.tick().await;
        for other in &others {
            // One that has ended says so at once: then the process stops, which is no hang.
            let _ = other.spawn(async {}).await;
        }
        sign();
    }
}

/// The process hands over or finishes its work, and ends.
pub(super) fn stopping() {
    SERVES.store(false, Ordering::Relaxed);
    tell(&[NotifyState::Stopping]);
}

/// The configuration is read again. Of a process that is starting or stopping nothing is told: the end of a reload
/// reads as ready.
pub(super) fn reloading() {
    if !SERVES.load(Ordering::Relaxed) {
        return;
    }
    // systemd 253 and later want to know when.
    let Ok(now) = NotifyState::monotonic_usec_now() else { return };
    tell(&[NotifyState::Reloading, now]);
}

/// That is done, and `status` says how.
pub(super) fn reloaded(status: &str) {
    if !SERVES.load(Ordering::Relaxed) {
        return;
    }
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn signs_stop_while_another_runtime_stands_still_and_go_on_with_it() {
        let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (main, other) = (runtime(), runtime());
        let (sign, signs) = mpsc::channel();
        let period = Duration::from_millis(3);
        main.spawn(give_signs(period, vec![other.handle().clone()], move || {
            let _ = sign.send(());
        }));
        let soon = Duration::from_secs(60);
        signs.recv_timeout(soon).unwrap();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let (hangs, hung) = mpsc::channel();
        other.spawn(async move {
            hangs.send(()).unwrap();
            let _ = may_go_on.recv();
        });
        hung.recv_timeout(soon).unwrap();
        // Those given before are heard first.
        let until = Instant::now() + soon;
        while signs.recv_timeout(Duration::from_millis(300)).is_ok() {
            assert!(Instant::now() < until, "signs of life, although it hangs");
        }
        drop(go_on);
        signs.recv_timeout(soon).unwrap();
        other.shutdown_background();
        (0..3).for_each(|_| signs.recv_timeout(soon).unwrap());
        main.shutdown_background();
    }
}
