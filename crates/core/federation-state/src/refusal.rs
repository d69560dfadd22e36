//! Replies to commands.

use rkyv::{Archive, Deserialize, Serialize};
use symphony_replicated::InvalidField;
use symphony_replicated::envelope::{self, CodecError, Enveloped};
use symphony_types::OperationId;

/// Largest encoded reply in bytes: a sentence with a few names.
const OUTCOME_BYTES_MAX: usize = 64 << 10;

/// A command's reply, or why it was refused. A refused command changes nothing.
pub type Outcome = Result<Reply, Refusal>;

/// The reply to a successful command.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The plan version after it.
    pub plan: u64,
}

/// Why a command was refused.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A field has an invalid value.
    #[error("{field}: {reason}")]
    Invalid {
        /// Path of the field in the command.
        field: String,
        /// What was found and what was expected.
        reason: String,
    },
    /// The log repeats an index.
    #[error("index {index} after index {applied}: the log only goes forward")]
    IndexNotNew {
        /// Index of the refused entry.
        index: u64,
        /// The last applied index.
        applied: u64,
    },
    /// A limit is reached.
    #[error("the federation has {max} {what} already, which is the most")]
    Limit {
        /// What is limited.
        what: String,
        /// The limit.
        max: u64,
    },
    /// No cluster of the federation has the name.
    #[error("no cluster is named `{cluster}` (see `symphony get clusters`)")]
    UnknownCluster {
        /// Its name.
        cluster: String,
    },
    /// No model of the federation has the name.
    #[error("no model of the federation is named `{model}`")]
    UnknownModel {
        /// Its name.
        model: String,
    },
    /// The name is used by another model.
    #[error("a model of the federation is named `{model}` already, or its last copy is not gone yet")]
    NameTaken {
        /// The name.
        model: String,
    },
    /// A quorum of the cluster does not answer.
    #[error("cluster `{cluster}` does not answer")]
    Unreachable {
        /// Its name.
        cluster: String,
    },
    /// The model exists already, is moving, or has a copy there that is not unloaded yet.
    #[error("model `{model}` {why}")]
    CannotMove {
        /// Name of the model.
        model: String,
        /// Which of these.
        why: String,
    },
    /// The subject of the command no longer exists.
    #[error("{what} is over: nothing was done")]
    Over {
        /// The subject.
        what: String,
    },
    /// The id was used for another operation.
    #[error(
        "operation id {id} stands for another command, or another operator's, at log index {index}: nothing was done"
    )]
    OperationReused {
        /// The id that both operations have.
        id: OperationId,
        /// Log index of that operation.
        index: u64,
    },
    /// The reply itself could not be encoded.
    #[error("malformed answer: {reason}")]
    Malformed {
        /// What is wrong with it, for display.
        reason: String,
    },
}

#[derive(Archive, Serialize, Deserialize)]
struct Envelope(Outcome);

impl Enveloped for Envelope {
    const MAGIC: &'static str = crate::format::MAGIC;
    const VERSION: u16 = crate::format::VERSION;
    const KIND: u16 = 2;
    const WHAT: &'static str = "federation answer";
    const BYTES_MAX: usize = OUTCOME_BYTES_MAX;
}

/// Encodes the reply.
#[must_use]
pub fn encode_outcome(outcome: &Outcome) -> Vec<u8> {
    envelope::encode(&Envelope(outcome.clone())).unwrap_or_else(|error| {
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

impl From<InvalidField> for Refusal {
    fn from(InvalidField { field, reason }: InvalidField) -> Self {
        Self::Invalid { field, reason }
    }
}
