//! `[scheduler]`: what one scheduler replica is told about itself.

use std::path::PathBuf;

use symphony_types::{Nanos, NodeId};

use crate::Address;

/// One scheduler replica.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerConfig {
    /// Which of `cluster.scheduler` it is.
    pub id: NodeId,
    /// Where its log, votes and snapshots live. It has no default: a replica that restarts over an empty directory
    /// has forgotten its votes.
    pub data_dir: PathBuf,
    /// Whether it comes to a cluster that exists already (`symphony members add`), and so founds none.
    pub join: bool,
    /// What keeps the log there; a directory stays with the engine that first had it.
    pub log_engine: LogEngine,
    /// Where it serves metrics, health and the console.
    pub metrics: Address,
    /// Model threads; 0 multiplexes every decision on one thread.
    pub model_threads: u32,
    /// Whether decision threads are bound to a core each.
    pub pin_cores: bool,
    /// What a decision thread does while nothing is due.
    pub idle: Idle,
    /// Where every decision is recorded; none (an empty string) records nothing.
    #[serde(with = "crate::empty_is_none")]
    pub tape_dir: Option<PathBuf>,
    /// The largest tape, in MB of 2^20 bytes; each worker of each lead has its own.
    pub tape_mb_max: u64,
    /// What comes off every deadline.
    pub delays: DelaysConfig,
}

/// What keeps a replica's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogEngine {
    /// sled 0.34 with measures that make it durable (docs/adr/0002).
    Sled,
    /// redb 4 (docs/adr/0012).
    Redb,
}

/// What a decision thread does while nothing is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// Sleeps until the next timer or message, then spins the last stretch.
    Park,
    /// Spins: the shortest reaction, a whole core each.
    Spin,
}

/// What comes off every deadline (DESIGN section 6): the time a decision needs to take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelaysConfig {
    /// From a decision to its backend, in microseconds.
    pub control_us: u64,
    /// The backend's pull of one item's input, in microseconds.
    pub data_us_per_item: u64,
    /// From the end of a batch to the frontend, in microseconds.
    pub reply_us: u64,
    /// How late timers fire, in microseconds.
    pub guard_us: u64,
}

impl DelaysConfig {
    /// From a decision to its backend.
    #[must_use]
    pub const fn control(&self) -> Nanos {
        Nanos::from_micros(self.control_us)
    }

    /// The backend's pull of one item's input.
    #[must_use]
    pub const fn data_per_item(&self) -> Nanos {
        Nanos::from_micros(self.data_us_per_item)
    }

    /// From the end of a batch to the frontend.
    #[must_use]
    pub const fn reply(&self) -> Nanos {
        Nanos::from_micros(self.reply_us)
    }

    /// How late timers fire.
    #[must_use]
    pub const fn guard(&self) -> Nanos {
        Nanos::from_micros(self.guard_us)
    }

    /// The four with their keys, in microseconds.
    pub(crate) fn each(&self) -> [(&'static str, u64); 4] {
        [
            ("control_us", self.control_us),
            ("data_us_per_item", self.data_us_per_item),
            ("reply_us", self.reply_us),
            ("guard_us", self.guard_us),
        ]
    }
}
