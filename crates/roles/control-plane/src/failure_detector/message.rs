//! Heartbeats and their acknowledgements on the wire; all numbers little-endian.
//!
//! ```text
//! 0       4        6       8               16     24     32              40         48            56          64       72
//! | "SYBT" | version| level | cluster hash  | node | boot | applied index | sequence | checkpoint  | its hash  | echoed |
//! | "SYBA" | version| flags | cluster hash  | sequence |
//! ```
//!
//! Releases that know no levels send 0 in place of one, and do not look there: version 3 is theirs, too.

use symphony_types::{BootId, Level, NodeId};

use crate::group::checkpoints::Checkpoint;

const HEARTBEAT_MAGIC: [u8; 4] = *b"SYBT";
const ACK_MAGIC: [u8; 4] = *b"SYBA";
const VERSION: u16 = 3;

pub(crate) const HEARTBEAT_BYTES: usize = 72;

/// Bytes of an acknowledgement.
pub(crate) const ACK_BYTES: usize = 24;

/// A replica's sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    pub(crate) node: NodeId,
    pub(crate) boot: BootId,
    /// How far the replica has applied the log.
    pub(crate) applied: u64,
    /// Counts the heartbeats of its boot.
    pub(crate) sequence: u64,
    /// The newest checkpoint hash of its state.
    pub(crate) checkpoint: Checkpoint,
    /// The newest of its heartbeats whose acknowledgement has arrived; 0: none.
    pub(crate) echoed: u64,
    /// The newest level that it knows.
    pub(crate) level: Level,
}

/// The acknowledgement of a heartbeat by a Raft leader with a quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) sequence: u64,
    /// Whether the replica belongs to the control group, as far as the leader knows.
    pub(crate) member: bool,
}

/// The cluster's name in eight bytes (FNV-1a): a misdirected heartbeat of another cluster is recognized.
pub(crate) fn cluster_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0_u64, |n, &byte| n << 8 | u64::from(byte))
}

impl Heartbeat {
    pub(crate) fn encode(self, cluster: u64) -> [u8; HEARTBEAT_BYTES] {
        let mut bytes = [0; HEARTBEAT_BYTES];
        bytes[..4].copy_from_slice(&HEARTBEAT_MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        let Self { node, boot, applied, sequence, checkpoint, echoed, level } = self;
        bytes[6..8].copy_from_slice(&level.get().to_le_bytes());
        let numbers = [cluster, node.get(), boot.get(), applied, sequence, checkpoint.index, checkpoint.hash, echoed];
        for (place, number) in bytes[8..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// None if the bytes are not a heartbeat of this cluster and release.
    pub(crate) fn decode(bytes: &[u8; HEARTBEAT_BYTES], cluster: u64) -> Option<Self> {
        let ours = bytes[..4] == HEARTBEAT_MAGIC && bytes[4..6] == VERSION.to_le_bytes() && number(bytes, 8) == cluster;
        ours.then(|| Self {
            node: NodeId::new(number(bytes, 16)),
            boot: BootId::new(number(bytes, 24)),
            applied: number(bytes, 32),
            sequence: number(bytes, 40),
            checkpoint: Checkpoint { index: number(bytes, 48), hash: number(bytes, 56) },
            echoed: number(bytes, 64),
            level: Level::from_message(u16::from_le_bytes([bytes[6], bytes[7]]).into()),
        })
    }
}

impl Ack {
    pub(crate) fn encode(self, cluster: u64) -> [u8; ACK_BYTES] {
        let mut bytes = [0; ACK_BYTES];
        bytes[..4].copy_from_slice(&ACK_MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6] = u8::from(self.member);
        bytes[8..16].copy_from_slice(&cluster.to_le_bytes());
        bytes[16..].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }

    /// None if the bytes are not an acknowledgement of this cluster and release.
    pub(crate) fn decode(bytes: &[u8; ACK_BYTES], cluster: u64) -> Option<Self> {
        let ours = bytes[..4] == ACK_MAGIC && bytes[4..6] == VERSION.to_le_bytes() && number(bytes, 8) == cluster;
        ours.then(|| Self { sequence: number(bytes, 16), member: bytes[6] & 1 == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of version 3 as they always were, the first of a release that knows no levels.
    #[test]
    fn the_bytes_of_a_version_do_not_change() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let checkpoint = Checkpoint { index: 48, hash: 0xfeed_f00d };
        let (node, boot, level) = (NodeId::new(3), BootId::new(20), Level::new(2));
        let beat = Heartbeat { node, boot, applied: 50, sequence: 9, checkpoint, echoed: 8, level };
        let number = |n: u64| hex(&n.to_le_bytes());
        let rest = [7, 3, 20, 50, 9, 48, 0xfeed_f00d, 8].map(number).concat();
        let written = ["0000", "0200"].map(|level| format!("535942540300{level}{rest}"));
        let read = written.map(|text| {
            let bytes: Vec<_> =
                (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect();
            Heartbeat::decode(bytes.first_chunk().unwrap(), 7).unwrap()
        });
        assert_eq!(read, [Heartbeat { level: Level::new(1), ..beat }, beat]);
        assert_eq!(hex(&beat.encode(7)), format!("5359425403000200{rest}"));
        assert_eq!(
            hex(&Ack { sequence: 9, member: true }.encode(7)),
            "535942410300010007000000000000000900000000000000"
        );
    }

    #[test]
    fn a_heartbeat_and_its_acknowledgement_survive_the_wire_and_strangers_do_not_pass() {
        let checkpoint = Checkpoint { index: 48, hash: 0xfeed_f00d };
        let (node, boot, applied) = (NodeId::new(3), BootId::new(u64::MAX - 5), 0x0102_0304_0506_0708);
        let (echoed, level) = (u64::MAX - 2, Level::NEWEST);
        let heartbeat = Heartbeat { node, boot, applied, sequence: 9, checkpoint, echoed, level };
        let cluster = cluster_hash("blue");
        let bytes = heartbeat.encode(cluster);
        assert_eq!(Heartbeat::decode(&bytes, cluster), Some(heartbeat));
        assert_eq!(Heartbeat::decode(&bytes, cluster_hash("green")), None);
        for at in [0, 4, 8] {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(Heartbeat::decode(&damaged, cluster), None, "byte {at}");
        }
        for member in [true, false] {
            let ack = Ack { sequence: u64::MAX - 1, member };
            let mut bytes = ack.encode(cluster);
            assert_eq!(Ack::decode(&bytes, cluster), Some(ack));
            bytes[0] ^= 1;
            assert_eq!(Ack::decode(&bytes, cluster), None);
        }
    }
}
