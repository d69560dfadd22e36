//! One beat on the wire: 40 bytes, all numbers little-endian.
//!
//! ```text
//! 0       4        6        8               16     24     32              40
//! | "SYBT" | version| 0      | cluster hash  | node | boot | applied index |
//! ```

use symphony_types::{BootId, NodeId};

const MAGIC: [u8; 4] = *b"SYBT";
const VERSION: u16 = 1;

/// Bytes of a beat.
pub(crate) const BEAT_BYTES: usize = 40;

/// A replica's sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beat {
    pub(crate) node: NodeId,
    pub(crate) boot: BootId,
    /// How far the replica has applied the log; for people who read dumps.
    pub(crate) applied: u64,
}

/// The cluster's name in eight bytes (FNV-1a): a beat that went astray is not taken for one of ours.
pub(crate) fn cluster_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

impl Beat {
    pub(crate) fn encode(self, cluster: u64) -> [u8; BEAT_BYTES] {
        let mut bytes = [0; BEAT_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        for (at, number) in [(8, cluster), (16, self.node.get()), (24, self.boot.get()), (32, self.applied)] {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// None if the bytes are no beat of this cluster and release.
    pub(crate) fn decode(bytes: &[u8; BEAT_BYTES], cluster: u64) -> Option<Self> {
        let number = |at: usize| bytes[at..at + 8].iter().rev().fold(0_u64, |n, &byte| n << 8 | u64::from(byte));
        let ours = bytes[..4] == MAGIC && bytes[4..6] == VERSION.to_le_bytes() && number(8) == cluster;
        ours.then(|| Self { node: NodeId::new(number(16)), boot: BootId::new(number(24)), applied: number(32) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_survives_the_wire_and_strangers_do_not_pass() {
        let beat = Beat { node: NodeId::new(3), boot: BootId::new(u64::MAX - 5), applied: 0x0102_0304_0506_0708 };
        let cluster = cluster_hash("blue");
        let bytes = beat.encode(cluster);
        assert_eq!(Beat::decode(&bytes, cluster), Some(beat));
        assert_eq!(Beat::decode(&bytes, cluster_hash("green")), None);
        for at in [0, 4, 8] {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(Beat::decode(&damaged, cluster), None, "byte {at}");
        }
    }
}
