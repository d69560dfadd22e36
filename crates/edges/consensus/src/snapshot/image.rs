//! The bytes of a snapshot, on disk and on the wire alike.
//!
//! ```text
//! 0..8 magic  8..12 version  12..16 zero  16..24 body length  24..56 BLAKE3 of the body  56.. body (rkyv)
//! ```
//!
//! The body is parsed only after its hash was checked, and then only by a validating reader.

use bytes::Bytes;
use rkyv::rancor;
use rkyv::util::AlignedVec;

use crate::limits::{ADDRESS_BYTES_MAX, NODES_MAX, SNAPSHOT_BYTES_MAX, SNAPSHOT_IMAGE_BYTES_MAX};
use crate::record::{Members, Position};

const MAGIC: [u8; 8] = *b"SYMPHSNP";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 56;
const LENGTH_AT: usize = 16;
const HASH_AT: usize = 24;

/// A decoded snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    /// Everything up to here is in the state.
    pub(crate) at: Option<Position>,
    /// The members, and the entry that made them so.
    pub(crate) members_at: Option<Position>,
    pub(crate) members: Members,
    pub(crate) state: Vec<u8>,
}

/// Why an image is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImageError {
    #[error("snapshot has {got} bytes, expected at least {HEADER_BYTES}")]
    Short { got: usize },
    #[error("snapshot does not start like one")]
    Magic,
    #[error("snapshot has version {got}, this build reads {VERSION}")]
    Version { got: u32 },
    #[error("snapshot announces {announced} bytes, {got} follow")]
    Length { announced: u64, got: usize },
    #[error("snapshot bytes do not match their hash")]
    Hash,
    #[error("snapshot body does not parse: {0}")]
    Body(String),
    #[error("snapshot belongs to cluster \"{found}\", this is \"{expected}\"")]
    Foreign { found: String, expected: String },
    #[error("{what} is {got}, expected at most {max}")]
    TooLarge { what: &'static str, got: usize, max: usize },
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct SavedLogId {
    term: u64,
    node: u64,
    index: u64,
}

/// Plain vectors only: they are what rkyv validates without exceptions.
#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct Body {
    cluster: String,
    at: Option<SavedLogId>,
    members_at: Option<SavedLogId>,
    configs: Vec<Vec<u64>>,
    addresses: Vec<(u64, String)>,
    state: Vec<u8>,
}

impl From<Position> for SavedLogId {
    fn from(at: Position) -> Self {
        Self { term: at.term, node: at.node, index: at.index }
    }
}

impl From<SavedLogId> for Position {
    fn from(place: SavedLogId) -> Self {
        Self { term: place.term, node: place.node, index: place.index }
    }
}

fn at_most(what: &'static str, got: usize, max: usize) -> Result<(), ImageError> {
    if got > max { Err(ImageError::TooLarge { what, got, max }) } else { Ok(()) }
}

/// Encodes a snapshot of `cluster`.
pub(crate) fn encode(image: Image, cluster: &str) -> Result<Bytes, ImageError> {
    at_most("length of the state", image.state.len(), SNAPSHOT_BYTES_MAX)?;
    let body = Body {
        cluster: cluster.to_owned(),
        at: image.at.map(Into::into),
        members_at: image.members_at.map(Into::into),
        configs: image.members.configs.into_iter().map(|voters| voters.into_iter().collect()).collect(),
        addresses: image.members.addresses.into_iter().collect(),
        state: image.state,
    };
    let body = rkyv::to_bytes::<rancor::Error>(&body).map_err(|error| ImageError::Body(error.to_string()))?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(blake3::hash(&body).as_bytes());
    bytes.extend_from_slice(&body);
    Ok(bytes.into())
}

/// Verifies and decodes a snapshot of `cluster`.
pub(crate) fn decode(bytes: &[u8], cluster: &str) -> Result<Image, ImageError> {
    at_most("length of a snapshot", bytes.len(), SNAPSHOT_IMAGE_BYTES_MAX)?;
    if bytes.len() < HEADER_BYTES {
        return Err(ImageError::Short { got: bytes.len() });
    }
    let (header, body) = bytes.split_at(HEADER_BYTES);
    if header[..8] != MAGIC {
        return Err(ImageError::Magic);
    }
    let mut version = [0; 4];
    version.copy_from_slice(&header[8..12]);
    let version = u32::from_le_bytes(version);
    if version != VERSION || header[12..16] != [0; 4] {
        return Err(ImageError::Version { got: version });
    }
    let mut announced = [0; 8];
    announced.copy_from_slice(&header[LENGTH_AT..HASH_AT]);
    let announced = u64::from_le_bytes(announced);
    if announced != body.len() as u64 {
        return Err(ImageError::Length { announced, got: body.len() });
    }
    if header[HASH_AT..] != *blake3::hash(body).as_bytes() {
        return Err(ImageError::Hash);
    }
    let mut aligned = AlignedVec::<16>::with_capacity(body.len());
    aligned.extend_from_slice(body);
    let body: Body = rkyv::from_bytes::<Body, rancor::Error>(&aligned).map_err(|e| ImageError::Body(e.to_string()))?;
    if body.cluster != cluster {
        return Err(ImageError::Foreign { found: body.cluster, expected: cluster.to_owned() });
    }
    at_most("length of the state", body.state.len(), SNAPSHOT_BYTES_MAX)?;
    at_most("number of members", body.addresses.len(), NODES_MAX)?;
    for (_, address) in &body.addresses {
        at_most("length of a member's address", address.len(), ADDRESS_BYTES_MAX)?;
    }
    Ok(Image {
        at: body.at.map(Into::into),
        members_at: body.members_at.map(Into::into),
        members: Members {
            configs: body.configs.into_iter().map(|voters| voters.into_iter().collect()).collect(),
            addresses: body.addresses.into_iter().collect(),
        },
        state: body.state,
    })
}

/// Corrects length and hash in the header, so that the test reaches the body.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn with_own_hash(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some((header, body)) = bytes.split_first_chunk_mut::<HEADER_BYTES>() {
        header[LENGTH_AT..HASH_AT].copy_from_slice(&(body.len() as u64).to_le_bytes());
        header[HASH_AT..].copy_from_slice(blake3::hash(body).as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn image(state: Vec<u8>) -> Image {
        let at = Some(Position { term: 3, node: 1, index: 99 });
        let members = Members {
            configs: vec![BTreeSet::from([1, 2, 3])],
            addresses: (1..=3).map(|id| (id, format!("node-{id}:7000"))).collect::<BTreeMap<_, _>>(),
        };
        Image { at, members_at: at, members, state }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(state in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let image = image(state);
            let bytes = encode(image.clone(), "blue").expect("encodes");
            prop_assert_eq!(decode(&bytes, "blue"), Ok(image));
        }

        #[test]
        fn a_flipped_bit_is_seen(at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = encode(image(vec![7; 100]), "blue").expect("encodes").to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(decode(&bytes, "blue").is_err());
        }

        #[test]
        fn a_torn_image_is_seen(keep in any::<prop::sample::Index>()) {
            let bytes = encode(image(vec![7; 100]), "blue").expect("encodes");
            let keep = keep.index(bytes.len());
            prop_assert!(decode(&bytes[..keep], "blue").is_err());
        }
    }

    /// These bytes are on the disks of all users of this version. A change of layout needs a new version.
    #[test]
    fn what_version_1_wrote_is_written_so_and_read() {
        assert_eq!(VERSION, 1, "the bytes below are of version 1");
        let bytes = encode(image(b"state".to_vec()), "blue").expect("encodes");
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = concat!(
            "53594d5048534e500100000000000000e0000000000000006550bb25ec355e84161ae9839ada697df1334545",
            "ae2c99059c87f6940c5de4cb010000000000000002000000000000000300000000000000e8ffffff03000000",
            "6e6f64652d313a373030306e6f64652d323a373030306e6f64652d333a373030300000000000000001000000",
            "000000008b000000d0ffffff02000000000000008b000000cbffffff03000000000000008b000000c6ffffff",
            "7374617465000000626c7565ffffffff01000000000000000300000000000000010000000000000063000000",
            "00000000010000000000000003000000000000000100000000000000630000000000000050ffffff01000000",
            "78ffffff03000000a0ffffff05000000",
        );
        assert_eq!(hex, golden);
        assert_eq!(decode(&bytes, "blue"), Ok(image(b"state".to_vec())));
    }

    #[test]
    fn a_foreign_snapshot_is_refused() {
        let bytes = encode(image(Vec::new()), "blue").expect("encodes");
        assert!(matches!(decode(&bytes, "green"), Err(ImageError::Foreign { .. })));
    }

    #[test]
    fn a_body_that_only_hashes_right_is_refused() {
        let rubbish = [0xffu8; 64];
        let mut bytes = encode(image(Vec::new()), "blue").expect("encodes").to_vec();
        bytes.truncate(HEADER_BYTES);
        bytes.extend_from_slice(&rubbish);
        assert!(matches!(decode(&with_own_hash(bytes), "blue"), Err(ImageError::Body(_))));
    }
}
