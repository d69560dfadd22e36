//! The data link: backend ⇄ frontend. The backend READs inputs and returns results; payload bytes travel in the tail
//! of the frame. Two processes of one host may agree here to share memory; then inputs, and large results, are read
//! from there without a message. Two processes with RDMA between them may agree to use it; then inputs are READ over
//! the network, and all other frames go over the RDMA connection.
//!
//! The payload of a request is its inputs in the order of the model's signature, each `items × item_shape` elements,
//! little-endian, without gaps; a result is the outputs in the same form. Both sides know the signature, so no names
//! travel. A request's sequence number is unique within a boot of the frontend, so it also serves as the generation of
//! its slot.

#![allow(missing_docs, reason = "the derive writes archived twins of the enums without documentation")]

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{BackendId, BootId, FailReason, GpuId, PROFILE_BATCH_MAX, Token};

use crate::Message;
use crate::frame::{FRAME_BYTES_MAX, PAYLOAD_BYTES_MAX};

/// Backend → frontend.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum ToDataServer {
    /// First on every connection.
    Hello {
        /// The backend that connects, by its registered id.
        backend: BackendId,
        /// The backend's boot, which registered under that id.
        boot: BootId,
        /// The boot id of the frontend that the backend means; in another boot its requests are gone, and the frontend
        /// refuses.
        frontend_boot: BootId,
        /// Whether the backend would read inputs from shared memory.
        shares: bool,
        /// The backend's end of an RDMA connection; none if it wants none. Otherwise frames of both directions go
        /// there once the frontend has joined, and this link only shows that the peer lives.
        rdma: Option<RdmaEndpoint>,
    },
    /// What became of an offer to share memory, or to read by RDMA; first after it, and only then.
    Joined {
        /// Whether the two have it now.
        shares: bool,
    },
    /// Send the inputs of these requests.
    Read {
        /// Comes back with the answer.
        read: u64,
        /// The requests.
        sequences: Vec<u64>,
    },
    /// Results; the tail holds their bytes one after the other.
    Results {
        /// One for each request.
        results: Vec<RequestResult>,
    },
}

/// The end of one request at a backend.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestResult {
    /// The request.
    pub sequence: u64,
    /// Bytes of its outputs in the tail, or why there are none.
    pub outcome: ResultBytes,
    /// Items of the whole batch it ran in.
    pub batch: u32,
    /// Execution time of that batch in nanoseconds.
    pub execution: u64,
    /// Which batch that was, and when.
    pub run: BatchRun,
}

// The results of the largest batch go beside the largest payload.
const _: () = assert!(
    PROFILE_BATCH_MAX as usize * size_of::<ArchivedRequestResult>() < FRAME_BYTES_MAX - PAYLOAD_BYTES_MAX,
    "the results of a batch do not fit beside the largest payload"
);

/// A batch at its backend. Times are microseconds before the result was sent, since clocks of hosts differ.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchRun {
    /// The GPU that ran it.
    pub gpu: GpuId,
    /// The token under which it was planned.
    pub token: Token,
    /// Number of the plan under that token on that GPU.
    pub plan: u64,
    /// When the plan came.
    pub planned_us: u32,
    /// When the last of its inputs had come.
    pub inputs_us: u32,
    /// When it began to run.
    pub started_us: u32,
    /// When it had run.
    pub ended_us: u32,
}

/// Bytes of a result, or the reason that there are none.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultBytes {
    /// This many bytes of the tail.
    Answer(u32),
    /// In the shared memory of the backend, under the request's number.
    Shared,
    /// None.
    Failed(FailReason),
}

/// Frontend → backend.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum FromDataServer {
    /// The answer to a hello: accepted if the boot id is the one that was meant; otherwise those requests are gone.
    Welcome {
        /// The frontend's boot id.
        boot: BootId,
        /// How to come to the frontend's shared memory; none if it shares none, or the backend does not want it.
        sharing: Option<SharingOffer>,
        /// How to read the frontend's memory by RDMA; none if it is not to be, or the backend does not want it.
        rdma: Option<RdmaOffer>,
    },
    /// The connection is refused: this frontend requires shared memory, and the two do not share any.
    MustShare,
    /// The connection is refused: this frontend requires RDMA, and the two have none.
    MustUseRdma,
    /// Results were taken out of the backend's shared memory, or could not be; their places are free again.
    Taken {
        /// The requests.
        sequences: Vec<u64>,
    },
    /// Inputs; the tail holds their bytes one after the other. A read that is too large for one frame continues in the
    /// next frame with the same read number.
    Payloads {
        /// Number of the read.
        read: u64,
        /// In the order asked: bytes of each payload, or none if the request has its outcome already, or its input
        /// would fit into no frame.
        lengths: Vec<Option<u32>>,
        /// How many nanoseconds the frontend waited for inputs that were still being made: no transport brings those
        /// sooner.
        waited: u64,
    },
}

/// Where a frontend hands out its shared memory, and what lets a backend in.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct SharingOffer {
    /// Name of its socket, which exists on the frontend's host only.
    pub name: String,
    /// Good for one use.
    pub secret: SharingSecret,
}

/// What a backend shows at the frontend's socket. Not shown in logs.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq)]
pub struct SharingSecret(pub [u8; 32]);

impl std::fmt::Debug for SharingSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharingSecret(…)")
    }
}

/// One end of an RDMA connection.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaEndpoint {
    /// Number of its queue pair at its device.
    pub queue_pair: u32,
    /// Number of the first packet that it sends.
    pub first_packet: u32,
    /// Largest packet, as a code of the verbs.
    pub mtu: u8,
    /// Its port on an InfiniBand network; 0 on Ethernet.
    pub lid: u16,
    /// Its port's global name.
    pub gid: [u8; 16],
}

/// The frontend's end of an RDMA connection, and its memory with inputs, which can be read there.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct RdmaOffer {
    /// Its end.
    pub endpoint: RdmaEndpoint,
    /// Opens the memory, on this connection only.
    pub key: RdmaKey,
    /// Where the memory begins.
    pub address: u64,
    /// How long it is.
    pub bytes: u64,
    /// How many entries it begins with.
    pub entries: u64,
}

/// What opens memory to a reader. Not shown in logs.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq)]
pub struct RdmaKey(pub u32);

impl std::fmt::Debug for RdmaKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RdmaKey(…)")
    }
}

impl Message for ToDataServer {
    const LINK: u16 = 5;
    const NAME: &str = "data";
}

impl Message for FromDataServer {
    const LINK: u16 = 6;
    const NAME: &str = "data";
}
