//! The timeouts of a control group.

use std::time::Duration;

/// The timeouts of a control group. Use one of the profiles; their arithmetic is beside them.
///
/// A follower campaigns `election_max + U(election_min, election_max)` after it last heard its leader, so with fsyncs
/// and two network legs a dead leader is replaced after roughly `1.8` to `2.2` times `election_max`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// Interval of a leader's heartbeats.
    pub heartbeat: Duration,
    /// Shortest election timeout; at least ten times a typical append including its fsync.
    pub election_min: Duration,
    /// Longest election timeout, and how long a leader's lease lasts.
    pub election_max: Duration,
    /// Deadline of an RPC. Below `election_min`: a candidate must know its votes before it campaigns again.
    pub rpc_timeout: Duration,
    /// Deadline of a connection attempt. At most `rpc_timeout`: a dial must not outlast the call that waits for it.
    pub connect_timeout: Duration,
    /// A connection is probed this often.
    pub keep_alive_interval: Duration,
    /// A connection is given up when a probe stays unanswered for this long.
    pub keep_alive_timeout: Duration,
    /// A leader without a quorum is silent for this long, then probes for this long, and so on. At least two
    /// `election_max`: the followers' lease must run out and one of them must campaign meanwhile.
    pub quorum_loss_probe: Duration,
    /// Deadline for sending and installing a snapshot.
    pub snapshot_timeout: Duration,
    /// How long a proposal or a read waits for a quorum.
    pub proposal_timeout: Duration,
    /// A leader that waits longer than this for one write to its disk hands over. At least `election_max`: a shorter
    /// pause, which followers do not even notice, is no reason.
    pub disk_stall: Duration,
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Replicas in one data centre with a disk and a network of their own.
///
/// - heartbeat 20 ms: four may be lost within the shortest election timeout (80 / 20).
/// - election 80-120 ms: a dead leader is replaced in 120 + 80..120 ms plus two fsyncs, within 300 ms at p99; a typical
///   fsync of 4 ms leaves the factor of ten that an election timeout needs over an append.
/// - rpc and connect 60 ms: three quarters of the shortest election timeout.
/// - keep-alive 200 + 400 ms: a black-holed connection is replaced within 600 ms instead of TCP's minutes.
/// - quorum loss probe 240 ms: 2 x 120.
/// - disk stall 300 ms: twenty-five times the p99 of an fsync on a shared disk; a successor leads within 500 ms.
pub const LAN: Timing = Timing {
    heartbeat: ms(20),
    election_min: ms(80),
    election_max: ms(120),
    rpc_timeout: ms(60),
    connect_timeout: ms(60),
    keep_alive_interval: ms(200),
    keep_alive_timeout: ms(400),
    quorum_loss_probe: ms(240),
    snapshot_timeout: ms(10_000),
    proposal_timeout: ms(2_000),
    disk_stall: ms(300),
};

/// Noisy neighbours, shared disks, or replicas some tens of milliseconds apart.
///
/// - heartbeat 60 ms: four may be lost within 250 ms.
/// - election 250-400 ms: a dead leader is replaced in 400 + 250..400 ms.
/// - rpc and connect 180 ms: below three quarters of 250.
/// - quorum loss probe 800 ms: 2 x 400.
/// - disk stall 1 s: shared disks pause for hundreds of milliseconds when others flush.
pub const RELAXED: Timing = Timing {
    heartbeat: ms(60),
    election_min: ms(250),
    election_max: ms(400),
    rpc_timeout: ms(180),
    connect_timeout: ms(180),
    keep_alive_interval: ms(600),
    keep_alive_timeout: ms(1_200),
    quorum_loss_probe: ms(800),
    snapshot_timeout: ms(30_000),
    proposal_timeout: ms(5_000),
    disk_stall: ms(1_000),
};

impl Timing {
    /// The profile for one data centre, [`LAN`].
    #[must_use]
    pub const fn lan() -> Self {
        LAN
    }

    /// The profile for noisy machines and wider networks, [`RELAXED`].
    #[must_use]
    pub const fn relaxed() -> Self {
        RELAXED
    }

    /// Checks the relations that the fields' comments state.
    ///
    /// # Errors
    /// Names the relation that does not hold, with both values.
    pub fn validate(&self) -> Result<(), String> {
        let relations = [
            ("heartbeat", self.heartbeat * 2, "half of election_min", self.election_min),
            ("election_min", self.election_min + ms(1), "election_max", self.election_max),
            ("rpc_timeout", self.rpc_timeout + ms(1), "election_min", self.election_min),
            ("connect_timeout", self.connect_timeout, "rpc_timeout", self.rpc_timeout),
            ("twice election_max", self.election_max * 2, "quorum_loss_probe", self.quorum_loss_probe),
            ("election_max", self.election_max, "proposal_timeout", self.proposal_timeout),
            ("election_max", self.election_max, "disk_stall", self.disk_stall),
            ("one millisecond", ms(1), "heartbeat", self.heartbeat),
            ("one millisecond", ms(1), "connect_timeout", self.connect_timeout),
            ("rpc_timeout", self.rpc_timeout, "snapshot_timeout", self.snapshot_timeout),
        ];
        match relations.into_iter().find(|(_, small, _, large)| small > large) {
            None => Ok(()),
            Some((small_name, small, large_name, large)) => {
                Err(format!("{small_name} ({small:?}) must fit into {large_name} ({large:?})"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profiles_are_consistent() {
        assert_eq!(LAN.validate(), Ok(()));
        assert_eq!(RELAXED.validate(), Ok(()));
    }

    #[test]
    fn inconsistent_timings_are_explained() {
        let slow_rpc = Timing { rpc_timeout: ms(500), ..LAN };
        assert!(slow_rpc.validate().is_err_and(|reason| reason.starts_with("rpc_timeout")));
        let short_probe = Timing { quorum_loss_probe: ms(100), ..LAN };
        assert!(short_probe.validate().is_err_and(|reason| reason.starts_with("twice election_max")));
    }
}
