//! Replies to commands.

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{BackendId, Epoch, FrontendId, GpuId, Level, ModelId, SubclusterId, Token};

use crate::refusal::Refusal;
use symphony_replicated::envelope::{self, CodecError, Enveloped};

/// Largest encoded reply in bytes: 64 GPU ids, or a refusal with a few names.
const OUTCOME_BYTES_MAX: usize = 64 << 10;

/// A command's reply, or why it was refused. A refused command changes nothing.
pub type Outcome = Result<Reply, Refusal>;

/// The reply to a successful command.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done, now or before.
    Done,
    /// A backend is registered.
    Backend {
        /// The id by which commands and GPUs' plans name it from now on; kept over restarts.
        backend: BackendId,
        /// Its sub-cluster.
        subcluster: SubclusterId,
        /// Its GPUs, in the order of the offers.
        gpus: Vec<GpuId>,
        /// The binding index of its GPUs: the first token that the backend promises.
        token: Token,
    },
    /// A frontend is registered.
    Frontend {
        /// The id by which requests and commands name it from now on; kept over restarts.
        frontend: FrontendId,
    },
    /// A model was added.
    Model {
        /// The id by which requests and plans name it; no later model gets it.
        model: ModelId,
        /// The first epoch that contains it.
        epoch: Epoch,
    },
    /// A model was removed.
    Unloaded {
        /// The first epoch without it.
        epoch: Epoch,
    },
    /// A plan was recorded.
    Plan {
        /// Its number.
        plan: u64,
    },
    /// A pipeline was added.
    Pipeline {
        /// The first epoch that contains it.
        epoch: Epoch,
    },
}

#[derive(Archive, Serialize, Deserialize)]
struct Envelope(Outcome);

impl Enveloped for Envelope {
    const MAGIC: &'static str = crate::format::MAGIC;
    const VERSION: u16 = crate::format::VERSION;
    const OLDEST: u16 = crate::format::OLDEST;
    const KIND: u16 = 2;
    const WHAT: &'static str = "answer";
    const BYTES_MAX: usize = OUTCOME_BYTES_MAX;
}

/// Encodes the reply, in the format of a cluster at that level.
#[must_use]
pub fn encode_outcome(outcome: &Outcome, level: Level) -> Vec<u8> {
    let version = level.formats().state;
    let bytes = envelope::encode_in(&Envelope(outcome.clone()), version);
    // Names and sentences in a reply are bounded, so only a defect here could exceed the limit; it yields an error text
    // instead of crashing every replica.
    bytes.unwrap_or_else(|error| {
        let refusal = Refusal::Malformed { reason: error.to_string() };
        envelope::encode_in(&Envelope(Err(refusal)), version).unwrap_or_default()
    })
}

/// Reads what [`encode_outcome`] wrote.
///
/// # Errors
/// If the bytes are anything else.
pub fn decode_outcome(bytes: &[u8]) -> Result<Outcome, CodecError> {
    envelope::decode::<Envelope>(bytes).map(|envelope| envelope.0)
}
