//! What a command is answered with.

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{BackendId, Epoch, FrontendId, GpuId, ModelId, SubclusterId, Token};

use crate::refusal::Refusal;
use symphony_replicated::envelope::{self, CodecError, Enveloped};

/// Largest encoded answer: 64 GPU ids, or a refusal with a few names in it.
const OUTCOME_BYTES_MAX: usize = 64 << 10;

/// A command's answer: what it gave, or why it was refused. A refused command changes nothing.
pub type Outcome = Result<Reply, Refusal>;

/// What a command gave.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is so now, or was so already.
    Done,
    /// A backend is registered.
    Backend {
        /// Its id.
        backend: BackendId,
        /// Its sub-cluster.
        subcluster: SubclusterId,
        /// Its GPUs, in the order of the offers.
        gpus: Vec<GpuId>,
        /// The binding of its GPUs: the first token the backend promises.
        token: Token,
    },
    /// A frontend is registered.
    Frontend {
        /// Its id.
        frontend: FrontendId,
    },
    /// A model is to be served.
    Model {
        /// Its id.
        model: ModelId,
        /// The epoch that holds it first.
        epoch: Epoch,
    },
    /// A model is no longer to be served.
    Unloaded {
        /// The epoch that does not hold it any more.
        epoch: Epoch,
    },
    /// A plan is known.
    Plan {
        /// Its number.
        plan: u64,
    },
}

#[derive(Archive, Serialize, Deserialize)]
struct Envelope(Outcome);

impl Enveloped for Envelope {
    const MAGIC: &'static str = crate::snapshot::MAGIC;
    const VERSION: u16 = crate::snapshot::VERSION;
    const KIND: u16 = 2;
    const WHAT: &'static str = "answer";
    const BYTES_MAX: usize = OUTCOME_BYTES_MAX;
}

/// The answer as bytes.
#[must_use]
pub fn encode_outcome(outcome: &Outcome) -> Vec<u8> {
    let bytes = envelope::encode(&Envelope(outcome.clone()));
    // Names and sentences in an answer are bounded, so only a defect here could exceed the limit; it is answered in
    // words rather than by taking every replica down.
    bytes.unwrap_or_else(|error| {
        let refusal = Refusal::Malformed { reason: error.to_string() };
        envelope::encode(&Envelope(Err(refusal))).unwrap_or_default()
    })
}

/// Reads what [`encode_outcome`] wrote.
///
/// # Errors
/// If the bytes are anything else.
pub fn decode_outcome(bytes: &[u8]) -> Result<Outcome, CodecError> {
    envelope::decode::<Envelope>(bytes).map(|envelope| envelope.0)
}
