//! Faults as scenarios write them down, and their targets.

mod burners;
mod held_thread;
mod injector;
mod mover;
mod older_copy;
mod target;

use serde::Deserialize;

pub(crate) use burners::Burners;
use held_thread::HeldThread;
pub(crate) use injector::{InjectedFault, Injector, boot};
pub(crate) use mover::Mover;
pub(crate) use target::{FaultTarget, Peers};

/// One fault. Times count from the beginning of the round's trouble.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum FaultSpec {
    /// `kill -9`; at the end it is started again.
    Kill(OnProcess),
    /// SIGTERM; when it has ended, and the time is over, it is started again.
    Stop(OnProcess),
    /// SIGSTOP; at the end SIGCONT.
    Pause(OnProcess),
    /// One of the decision threads with which a replica leads stands still, the rest of the process runs; at the end it
    /// goes on.
    Hang(OnProcess),
    /// Nothing gets through between a process and others.
    Isolate(Isolation),
    /// Links between a process and others misbehave.
    Trouble(LinkTrouble),
    /// Busy processes take the cores.
    Starve(Starvation),
    /// A replica's disk hangs, is full, or fails.
    Disk(DiskTrouble),
    /// A replica's clocks are wrong.
    Clock(ClockTrouble),
    /// One process after the other is stopped and started again; each must be back before the next one goes.
    RestartEach(Rolling),
    /// An operator changes the control group.
    Members(MemberChange),
    /// A replica comes back over an older copy of its disk; it has to find out and end, and a new one takes its place.
    RollBack(OnProcess),
    /// A replica is killed, its disk is emptied, and it is started again; it has to end by itself, and a new one takes
    /// its place.
    Wipe(OnProcess),
    /// An operator moves models and backends between sub-clusters all the time, and home again at the end.
    Moves(Moving),
}

/// A fault of one process.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OnProcess {
    /// Its targets.
    pub(crate) who: FaultTarget,
    /// When it begins.
    #[serde(default)]
    pub(crate) at_ms: u64,
    /// How long it lasts.
    pub(crate) for_ms: u64,
}

/// Which way nothing gets through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Direction {
    /// Neither.
    #[default]
    Both,
    /// What others send to it.
    Inbound,
    /// What it sends to others.
    Outbound,
    /// One of the two one-way directions, drawn again each time.
    Either,
}

/// A partition.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Isolation {
    /// Who is cut off.
    pub(crate) who: FaultTarget,
    /// The processes that it is cut off from.
    pub(crate) from: Vec<Peers>,
    /// Which way.
    #[serde(default)]
    pub(crate) direction: Direction,
    /// When it begins.
    #[serde(default)]
    pub(crate) at_ms: u64,
    /// How long it lasts.
    pub(crate) for_ms: u64,
}

/// What links do to bytes, both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LinkEffect {
    /// Every byte arrives so much later.
    pub(crate) latency_ms: u64,
    /// And up to so much later again.
    pub(crate) jitter_ms: u64,
    /// No more than so many bytes per second; 0 is no limit.
    pub(crate) bytes_per_s: u64,
    /// Every connection is reset so often; 0 is never.
    pub(crate) reset_every_ms: u64,
    /// One bit is flipped in every so many bytes; 0 is never.
    pub(crate) corrupt_every_bytes: u64,
    /// When one end closes, the other does not learn of it.
    pub(crate) half_open: bool,
}

/// Links that misbehave.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkTrouble {
    /// Whose links.
    pub(crate) who: FaultTarget,
    /// The processes at the other end.
    pub(crate) from: Vec<Peers>,
    /// What they do.
    pub(crate) effect: LinkEffect,
    /// When it begins.
    #[serde(default)]
    pub(crate) at_ms: u64,
    /// How long it lasts.
    pub(crate) for_ms: u64,
}

/// Too little processor time for all processes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Starvation {
    /// Busy processes for each core.
    pub(crate) per_core: u32,
    /// When it begins.
    #[serde(default)]
    pub(crate) at_ms: u64,
    /// How long it lasts.
    pub(crate) for_ms: u64,
}

/// What a disk does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DiskEffect {
    /// Syncs hang until the fault ends.
    Stall,
    /// No file may grow, or all of them together only by `room_kb`.
    Full,
    /// Writes and syncs fail.
    Fail,
}

/// A disk in trouble.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiskTrouble {
    /// Whose; replicas only.
    pub(crate) who: FaultTarget,
    /// What it does.
    pub(crate) effect: DiskEffect,
    /// What is left on one that becomes full.
    #[serde(default)]
    pub(crate) room_kb: u64,
    /// When it begins.
    #[serde(default)]
    pub(crate) at_ms: u64,
    /// How long it lasts.
    pub(crate) for_ms: u64,
}

/// Clocks in trouble.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClockTrouble {
    /// Whose; replicas only.
    pub(crate) who: FaultTarget,
    /// The wall clock jumps by so much, and back at the end.
    #[serde(default)]
    pub(crate) jump_s: i64,
    /// The clock that timeouts are reckoned by runs so much faster, or slower if negative.
    #[serde(default)]
    pub(crate) rate_percent: i64,
    /// When it begins.
    #[serde(default)]
    pub(crate) at_ms: u64,
    /// How long it lasts.
    pub(crate) for_ms: u64,
}

/// How a process is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StopMode {
    /// SIGTERM: it drains by itself.
    #[default]
    Told,
    /// `symphony drain`, then SIGTERM; when it is back, `symphony uncordon`.
    Drained,
}

/// The change that `symphony members` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Change {
    /// A new replica comes.
    Add,
    /// A replica goes for good.
    Remove,
    /// A new one takes the place of another.
    Replace,
}

/// A change of the control group.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemberChange {
    /// What is asked for.
    pub(crate) change: Change,
    /// The replica that leaves, if any; chosen when it begins.
    pub(crate) who: FaultTarget,
    /// When it begins: changes that overlap come one after the other.
    #[serde(default)]
    pub(crate) at_ms: u64,
}

/// What moves between sub-clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MovedKind {
    /// Models with load.
    Models,
    /// Backends, with their GPUs; the last one of a sub-cluster stays.
    Backends,
}

/// Plans, one after the other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Moving {
    /// What moves.
    pub(crate) what: Vec<MovedKind>,
    /// When it begins.
    #[serde(default)]
    pub(crate) at_ms: u64,
    /// How long it goes on.
    pub(crate) for_ms: u64,
}

/// A rolling restart.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rolling {
    /// Kinds of processes, in this order.
    pub(crate) who: Vec<FaultTarget>,
    /// How each is stopped.
    #[serde(default)]
    pub(crate) how: StopMode,
    /// When it begins.
    #[serde(default)]
    pub(crate) at_ms: u64,
}

impl FaultSpec {
    /// Whether it takes a library between processes and the operating system.
    #[must_use]
    pub(crate) const fn interposes(&self) -> bool {
        matches!(self, Self::Disk(_) | Self::Clock(_))
    }

    /// Its name in reports, which is the one in files.
    #[must_use]
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Kill(_) => "kill",
            Self::Stop(_) => "stop",
            Self::Pause(_) => "pause",
            Self::Hang(_) => "hang",
            Self::Isolate(_) => "isolate",
            Self::Trouble(_) => "trouble",
            Self::Starve(_) => "starve",
            Self::Disk(_) => "disk",
            Self::Clock(_) => "clock",
            Self::RestartEach(_) => "restart-each",
            Self::Members(_) => "members",
            Self::RollBack(_) => "roll-back",
            Self::Wipe(_) => "wipe",
            Self::Moves(_) => "moves",
        }
    }

    /// When it begins and how long it lasts; a rolling restart lasts as long as it takes.
    #[must_use]
    pub(crate) const fn times_ms(&self) -> (u64, u64) {
        match self {
            Self::Kill(f) | Self::Stop(f) | Self::Pause(f) | Self::Hang(f) => (f.at_ms, f.for_ms),
            Self::Isolate(f) => (f.at_ms, f.for_ms),
            Self::Trouble(f) => (f.at_ms, f.for_ms),
            Self::Starve(f) => (f.at_ms, f.for_ms),
            Self::Disk(f) => (f.at_ms, f.for_ms),
            Self::Clock(f) => (f.at_ms, f.for_ms),
            // Done when it has ended, like a rolling restart.
            Self::RollBack(f) | Self::Wipe(f) => (f.at_ms, 0),
            Self::RestartEach(f) => (f.at_ms, 0),
            Self::Members(f) => (f.at_ms, 0),
            Self::Moves(f) => (f.at_ms, f.for_ms),
        }
    }
}
