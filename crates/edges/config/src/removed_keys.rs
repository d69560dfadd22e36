//! Keys of former releases that are constants now.

/// A removed key, and the constant in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedKey {
    /// The key, dotted.
    pub key: &'static str,
    /// The constant's value.
    pub now: &'static str,
}

const fn removed(key: &'static str, now: &'static str) -> RemovedKey {
    RemovedKey { key, now }
}

/// All of them. They were gains of control loops, which there was no reason to change.
pub const REMOVED_KEYS: [RemovedKey; 22] = [
    removed("scheduler.epochs.distance_min_s", "60 s"),
    removed("scheduler.epochs.rate_change_min_percent", "20 %"),
    removed("scheduler.epochs.change_holds_s", "10 s"),
    removed("scheduler.epochs.rate_over_s", "30 s"),
    removed("scheduler.epochs.load_mb_per_s", "1024 MB"),
    removed("scheduler.epochs.solve_ms_max", "1000 ms"),
    removed("scheduler.autoscaling.up_window_s", "3 s"),
    removed("scheduler.autoscaling.down_window_s", "60 s"),
    removed("scheduler.autoscaling.down_after_up_s", "60 s"),
    removed("scheduler.autoscaling.up_after_down_s", "10 s"),
    removed("scheduler.autoscaling.down_period_s", "10 s"),
    removed("scheduler.autoscaling.down_step_percent_max", "10 %"),
    removed("scheduler.learning.profile_change_percent_min", "5 %"),
    removed("scheduler.learning.profile_period_s", "30 s"),
    removed("scheduler.learning.slow_percent", "20 %"),
    removed("scheduler.learning.quarantine_s_max", "3600 s"),
    removed("scheduler.learning.trial_batches", "50"),
    removed("backend.plans_queued_max", "2"),
    removed("federation.look_every_ms", "a tenth of unreachable_ms, at most 1000 ms"),
    removed("federation.balance.distance_min_s", "60 s"),
    removed("federation.balance.rate_change_min_percent", "20 %"),
    removed("federation.balance.change_holds_s", "10 s"),
];
