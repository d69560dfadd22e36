//! The parsers of the heartbeat protocol's two ends, as a function of arbitrary bytes: for the fuzz target.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::metrics::gauge::Gauge;
use symphony_consensus::{Leadership, RoundTrip};
use symphony_types::{BootId, Level, NodeId};
use tokio::sync::watch;

use crate::config::Liveness;
use crate::failure_detector::heartbeat_receiver::HeartbeatRecords;
use crate::failure_detector::heartbeat_state::{ContactState, HeartbeatSources, HeartbeatState};
use crate::failure_detector::message::{ACK_BYTES, Ack, HEARTBEAT_BYTES, Heartbeat, cluster_hash};
use crate::failure_detector::silence_switch::SilenceSwitch;
use crate::group::checkpoints::{Checkpoint, Checkpoints};

const CLUSTER: &str = "blue";

/// Parses a byte stream: after an even first byte as heartbeats, after an odd one as acknowledgements. Returns whether
/// all of it was valid.
///
/// # Panics
/// For a defect only.
#[must_use]
pub fn heartbeats(bytes: &[u8]) -> bool {
    let Some((which, bytes)) = bytes.split_first() else { return false };
    if which % 2 == 0 { read_heartbeats(bytes) } else { acknowledge(bytes) }
}

/// The Raft leader's end: reads until something is not a heartbeat.
fn read_heartbeats(bytes: &[u8]) -> bool {
    let (cluster, start, answer) = (cluster_hash(CLUSTER), Instant::now(), Liveness::LAN.answer());
    let leads = Leadership { is_leader: true, alone: true, ..Leadership::default() };
    let (_lead, leadership) = watch::channel(leads);
    let (_apply, applied) = watch::channel(0);
    let (checkpoints, progress) = (Checkpoints::default(), Arc::default());
    let (lease, not_applying) = (Duration::from_secs(1), Gauge::default());
    let records = HeartbeatRecords { leadership, lease, group: None, checkpoints, applied, progress, not_applying };
    let mut trip = RoundTrip::new(answer);
    let (arrived, rest) = bytes.as_chunks::<HEARTBEAT_BYTES>();
    for bytes in arrived {
        let Some(heartbeat) = Heartbeat::decode(bytes, cluster) else { return false };
        assert_eq!(Heartbeat::decode(&heartbeat.encode(cluster), cluster), Some(heartbeat));
        assert_eq!(Heartbeat::decode(bytes, cluster_hash("green")), None, "another cluster's");
        let _ = trip.is_recent(start, heartbeat.echoed);
        assert!(records.record(&heartbeat, start), "a leader that has applied nothing is owed nothing");
        let ack = records.answer(&heartbeat, start).expect("a leader that is its own quorum acknowledges");
        assert_eq!(ack, Ack { sequence: heartbeat.sequence, member: true });
        assert_eq!(Ack::decode(&ack.encode(cluster), cluster), Some(ack));
        trip.answered(start, heartbeat.sequence);
        let knows_all = trip.is_recent(start + 2 * answer, u64::MAX);
        assert!(knows_all, "who knows of every answer is never old");
    }
    rest.is_empty()
}

/// The sending replica's end: reads until something is not an acknowledgement.
fn acknowledge(bytes: &[u8]) -> bool {
    let (limits, now, cluster) = (Liveness::LAN, Instant::now(), cluster_hash(CLUSTER));
    let (_lead, leadership) = watch::channel(Leadership::default());
    let (_apply, applied) = watch::channel(7);
    let (contact_state, contact_receiver) =
        watch::channel(ContactState { in_contact: true, heard: false, member: true });
    let (me, boot, checkpoints, silence_switch) =
        (NodeId::new(2), BootId::new(20), Checkpoints::default(), SilenceSwitch::default());
    let level = Level::NEWEST;
    let sources =
        HeartbeatSources { cluster, me, boot, leadership, applied, checkpoints, contact_state, silence_switch, level };
    let mut heartbeat_state = HeartbeatState::new(sources, now, limits);
    let (arrived, rest) = bytes.as_chunks::<ACK_BYTES>();
    for bytes in arrived {
        let sent = heartbeat_state.heartbeat(now).expect("the line is new");
        assert!(
            Heartbeat::decode(&sent, cluster).is_some_and(|heartbeat| (heartbeat.node, heartbeat.boot) == (me, boot))
        );
        let ack = Ack::decode(bytes, cluster);
        assert_eq!(heartbeat_state.acknowledged(bytes).is_ok(), ack.is_some());
        let Some(ack) = ack else { return false };
        assert_eq!(contact_receiver.borrow().member, ack.member);
        heartbeat_state.end_turn(now);
    }
    rest.is_empty()
}

/// Valid streams.
#[must_use]
pub fn heartbeats_seeds() -> Vec<Vec<u8>> {
    let cluster = cluster_hash(CLUSTER);
    let heartbeat = |sequence, echoed| {
        let checkpoint = Checkpoint { index: 48, hash: 0xfeed_f00d };
        let (node, boot, level) = (NodeId::new(2), BootId::new(20), Level::NEWEST);
        Heartbeat { node, boot, applied: 50, sequence, checkpoint, echoed, level }.encode(cluster)
    };
    let ack = |sequence, member| Ack { sequence, member }.encode(cluster);
    vec![
        [&[0][..], &heartbeat(1, 0)].concat(),
        [&[0][..], &heartbeat(1, 0), &heartbeat(2, 1), &heartbeat(u64::MAX, u64::MAX)].concat(),
        [&[1][..], &ack(1, true)].concat(),
        [&[1][..], &ack(1, true), &ack(2, false), &ack(u64::MAX, true)].concat(),
    ]
}
