//! What a service manager is told (`Type=notify` of systemd): ready, alive, stopping. Nothing where there is none.

use std::sync::atomic::{AtomicBool, Ordering};

use sd_notify::NotifyState;

/// Signs of life per period of the watchdog, so that one that comes late is not taken for death.
const SIGNS_PER_PERIOD: u32 = 3;

/// Whether the process serves: neither starting nor stopping.
static SERVES: AtomicBool = AtomicBool::new(false);

/// The process serves: its ports are open and its role has begun. With `WatchdogSec` it gives signs of life from now
/// on. They come from the asynchronous runtime, and stop if that hangs.
pub(super) fn ready() {
    SERVES.store(true, Ordering::Relaxed);
    tell(&[NotifyState::Ready]);
    let Some(period) = sd_notify::watchdog_enabled() else { return };
    tokio::spawn(async move {
        let mut signs = tokio::time::interval(period / SIGNS_PER_PERIOD);
        signs.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            signs.tick().await;
            tell(&[NotifyState::Watchdog]);
        }
    });
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
