//! What a command is answered with.

use rkyv::{Archive, Deserialize, Serialize};
use symphony_replicated::InvalidField;
use symphony_replicated::envelope::{self, CodecError, Enveloped};
use symphony_types::OperationId;

/// Largest encoded answer: a sentence with a few names in it.
const OUTCOME_BYTES_MAX: usize = 64 << 10;

/// A command's answer: what it gave, or why it was refused. A refused command changes nothing.
pub type Outcome = Result<Reply, Refusal>;

/// What a command gave.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Version of the plan after it.
    pub plan: u64,
}

/// Why a command changed nothing.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It makes no sense, whatever the state.
    #[error("{field}: {reason}")]
    Invalid {
        /// What is at fault.
        field: String,
        /// What was found and what was expected.
        reason: String,
    },
    /// The log repeats an index.
    #[error("index {index} after index {applied}: the log only goes forward")]
    IndexNotNew {
        /// Its index.
        index: u64,
        /// The last one.
        applied: u64,
    },
    /// A bound is reached.
    #[error("the federation has {max} {what} already, which is the most")]
    Limit {
        /// Of what.
        what: String,
        /// How many.
        max: u64,
    },
    /// There is no such cluster.
    #[error("no cluster is named `{cluster}` (see `symphony get clusters`)")]
    UnknownCluster {
        /// Its name.
        cluster: String,
    },
    /// There is no such model.
    #[error("no model of the federation is named `{model}`")]
    UnknownModel {
        /// Its name.
        model: String,
    },
    /// Another model has the name.
    #[error("a model of the federation is named `{model}` already, or its last copy is not gone yet")]
    NameTaken {
        /// The name.
        model: String,
    },
    /// No quorum of the cluster answers.
    #[error("cluster `{cluster}` does not answer")]
    Unreachable {
        /// Its name.
        cluster: String,
    },
    /// The model is there, or on its way, or its last copy there is not gone yet.
    #[error("model `{model}` {why}")]
    CannotMove {
        /// The model.
        model: String,
        /// Why not.
        why: String,
    },
    /// What the command speaks of is over.
    #[error("{what} is over: nothing was done")]
    Over {
        /// What.
        what: String,
    },
    /// The id stands for something else already.
    #[error(
        "operation id {id} stands for another command, or another operator's, at log index {index}: nothing was done"
    )]
    OperationReused {
        /// The id.
        id: OperationId,
        /// Where the log holds what it stands for.
        index: u64,
    },
    /// The answer itself could not be written.
    #[error("malformed answer: {reason}")]
    Malformed {
        /// Why.
        reason: String,
    },
}

#[derive(Archive, Serialize, Deserialize)]
struct Envelope(Outcome);

impl Enveloped for Envelope {
    const MAGIC: &'static str = crate::snapshot::MAGIC;
    const VERSION: u16 = crate::snapshot::VERSION;
    const KIND: u16 = 2;
    const WHAT: &'static str = "federation answer";
    const BYTES_MAX: usize = OUTCOME_BYTES_MAX;
}

/// The answer as bytes.
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
