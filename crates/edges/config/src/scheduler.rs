//! `[scheduler]`: the settings of one scheduler replica.

use std::path::PathBuf;

use symphony_types::{Nanos, NodeId};

use crate::{Address, AutoscalingConfig, LearningConfig};

/// One scheduler replica.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerConfig {
    /// Which of `cluster.scheduler` it is.
    pub id: NodeId,
    /// Where its log, votes and snapshots live. It has no default: a replica that restarts over an empty directory
    /// has forgotten its votes.
    pub data_dir: PathBuf,
    /// Whether it joins an existing cluster (`symphony members add`), and so founds none.
    pub join: bool,
    /// The storage engine of the log; a directory keeps its first engine.
    pub log_engine: LogEngine,
    /// Where it serves metrics, health and the console.
    pub metrics: Address,
    /// Decision threads that all led sub-clusters share; 0 for one per core, at most eight.
    pub decision_threads: u32,
    /// Model threads of each led sub-cluster, beside one for its rank worker; 0 lets it share `decision_threads`.
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
    /// How many times shorter control loops average, wait and hold, for tests.
    pub loop_speedup: u32,
    /// Names of sub-clusters that keep whole GPUs idle, for power or other work: with policy `auto` their batches
    /// start late even if GPUs are idle.
    pub consolidate: Vec<String>,
    /// Delays that are subtracted from every deadline.
    pub delays: DelaysConfig,
    /// How and when better plans are looked for, while this replica leads the control group.
    pub epochs: EpochsConfig,
    /// How many GPUs sub-clusters are advised to have, while this replica leads the control group.
    pub autoscaling: AutoscalingConfig,
    /// What this replica learns while it leads sub-clusters.
    pub learning: LearningConfig,
}

/// How and when better plans are looked for: which models and GPUs form which sub-cluster.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EpochsConfig {
    /// What to do with a better plan.
    pub mode: EpochMode,
    /// From one epoch to the next when nothing happens, in seconds.
    pub period_s: u64,
    /// Requests per second that one sub-cluster can decide.
    pub subcluster_rate_max_rps: u64,
    /// MB of models that one plan may move, of 2^20 bytes; 0 for any.
    pub moved_mb_max: u64,
}

/// What to do with a better plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EpochMode {
    /// No plan is looked for, unless an operator asks.
    Off,
    /// It waits for an operator's approval.
    Propose,
    /// It runs.
    Adopt,
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

/// Delays that are subtracted from every deadline: the time that a decision needs to take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelaysConfig {
    /// From a decision to its backend, in microseconds.
    pub control_us: u64,
    /// The backend's pull of one item's input, in microseconds; 0 for what backends measure.
    pub data_us_per_item: u64,
    /// The least measured pull of a batch's inputs, in microseconds: smaller measurements count as this.
    pub data_us_min: u64,
    /// The largest one, in microseconds.
    pub data_us_max: u64,
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

    /// The backend's pull of one item's input; none if it is what backends measure.
    #[must_use]
    pub const fn data_per_item(&self) -> Option<Nanos> {
        match self.data_us_per_item {
            0 => None,
            set => Some(Nanos::from_micros(set)),
        }
    }

    /// The least measured pull of a batch's inputs.
    #[must_use]
    pub const fn data_min(&self) -> Nanos {
        Nanos::from_micros(self.data_us_min)
    }

    /// The largest one.
    #[must_use]
    pub const fn data_max(&self) -> Nanos {
        Nanos::from_micros(self.data_us_max)
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

    /// All delays with their keys, in microseconds.
    pub(crate) fn each(&self) -> [(&'static str, u64); 6] {
        [
            ("control_us", self.control_us),
            ("data_us_per_item", self.data_us_per_item),
            ("data_us_min", self.data_us_min),
            ("data_us_max", self.data_us_max),
            ("reply_us", self.reply_us),
            ("guard_us", self.guard_us),
        ]
    }
}
