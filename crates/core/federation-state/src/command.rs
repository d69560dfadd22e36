//! What can be proposed to the federation's group.

use std::collections::BTreeMap;
use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};
use symphony_replicated::ModelSpec;
use symphony_replicated::envelope::{self, CodecError, Enveloped};
use symphony_types::OperationId;

use crate::limits::COMMAND_BYTES_MAX;
use crate::refusal::Refusal;
use crate::state::KindCapacity;

/// One entry of the log. Everything in it is validated when it is applied, whatever the proposer did.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// There is such a cluster, or it has other GPUs by now.
    SeeCluster {
        /// Its name.
        name: String,
        /// Its control addresses.
        control: Vec<String>,
        /// What it has.
        kinds: BTreeMap<String, KindCapacity>,
    },
    /// No quorum of it has answered for the named time.
    ClusterLost {
        /// Its name.
        name: String,
        /// The standing that ends, by its index; another one is not touched.
        since: u64,
    },
    /// A quorum of it answers again.
    ClusterBack {
        /// Its name.
        name: String,
        /// The standing that ends, by its index; another one is not touched.
        since: u64,
    },
    /// Models shall be elsewhere.
    BeginMoves {
        /// Which and where. Those that are out of date by now are left out.
        moves: Vec<HomeMove>,
        /// Why.
        cause: Cause,
    },
    /// There is no place for a model.
    Unplaced {
        /// The model.
        model: String,
        /// Which of that name.
        loaded_at: u64,
        /// Why, in words.
        reason: String,
    },
    /// A move's target serves the model: new requests go there from here on.
    Loaded {
        /// The model.
        model: String,
        /// Where its move began.
        since: u64,
    },
    /// A move that does not come to its end is given up; the model stays where it is.
    GiveUp {
        /// The model.
        model: String,
        /// Where its move began.
        since: u64,
        /// Why.
        reason: String,
    },
    /// A cluster does not hold a copy of the model any more: it was let go of there, or somebody else unloaded it.
    CopyGone {
        /// The model.
        model: String,
        /// The cluster.
        cluster: String,
        /// Since when it was home or leftover there.
        since: u64,
    },
    /// An operator asks for something.
    Operate(Operation),
}

/// A model that shall be elsewhere.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct HomeMove {
    /// The model.
    pub model: String,
    /// Which of that name.
    pub loaded_at: u64,
    /// Where it is expected at home; one that is elsewhere by now stays there.
    pub from: Option<String>,
    /// The cluster it shall go to.
    pub to: String,
    /// The sub-cluster that loads it.
    pub subcluster: String,
}

/// Why models move.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It had no home.
    Place,
    /// Its home does not answer.
    Loss,
    /// An operator wanted it.
    Operator,
    /// Another division of the models is more even.
    Balance,
}

impl Cause {
    /// The stable label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Place => "place",
            Self::Loss => "loss",
            Self::Operator => "operator",
            Self::Balance => "balance",
        }
    }
}

/// An operator's command. It is done once, however often it is in the log.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Names it; made by whoever gives the command.
    pub id: OperationId,
    /// Who gave it, by the certificate that the replica saw: `operator/admin`.
    pub actor: String,
    /// When that replica took it, in milliseconds since 1970. For people; nothing is decided by it.
    pub at_unix_ms: u64,
    /// What shall be done.
    pub action: Action,
}

/// What an operator asks for.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Some cluster shall serve a model.
    LoadModel {
        /// What it is.
        spec: ModelSpec,
        /// Requests per second that it needs, in thousandths.
        wanted_mrps: u64,
        /// Where it shall begin; empty: anywhere.
        cluster: String,
    },
    /// A model shall no longer be served.
    UnloadModel {
        /// Its name.
        name: String,
    },
    /// Models shall be elsewhere.
    Move {
        /// Which and where.
        moves: Vec<HomeMove>,
        /// Whether the operator named the moves, or asked for a more even division.
        cause: Cause,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoadModel { spec, cluster, .. } if cluster.is_empty() => write!(f, "load model {}", spec.name),
            Self::LoadModel { spec, cluster, .. } => write!(f, "load model {} in cluster {cluster}", spec.name),
            Self::UnloadModel { name } => write!(f, "unload model {name}"),
            Self::Move { moves, .. } => {
                const SHOWN_MAX: usize = 3;
                let shown: Vec<_> =
                    moves.iter().take(SHOWN_MAX).map(|wanted| format!("{} to {}", wanted.model, wanted.to)).collect();
                let more = if moves.len() > SHOWN_MAX { ", …" } else { "" };
                write!(f, "move {}{more}", shown.join(", "))
            }
        }
    }
}

impl Enveloped for Command {
    const MAGIC: &'static str = crate::snapshot::MAGIC;
    const VERSION: u16 = crate::snapshot::VERSION;
    const KIND: u16 = 1;
    const WHAT: &'static str = "federation command";
    const BYTES_MAX: usize = COMMAND_BYTES_MAX;
}

impl Command {
    /// The command as bytes for the log.
    ///
    /// # Errors
    /// If it takes more than [`COMMAND_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        envelope::encode(self)
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// If the bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        envelope::decode(bytes)
    }

    /// Checks a command before it enters the log: everything that applying it will check without the state, and limits
    /// that earlier releases did not have.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] with the field, what was found and what was expected.
    pub fn validate(&self) -> Result<(), Refusal> {
        Ok(crate::validate::new_command(self)?)
    }

    /// The stable label of the kind of command, for logs and metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::SeeCluster { .. } => "see_cluster",
            Self::ClusterLost { .. } => "cluster_lost",
            Self::ClusterBack { .. } => "cluster_back",
            Self::BeginMoves { .. } => "begin_moves",
            Self::Unplaced { .. } => "unplaced",
            Self::Loaded { .. } => "loaded",
            Self::GiveUp { .. } => "give_up",
            Self::CopyGone { .. } => "copy_gone",
            Self::Operate(Operation { action, .. }) => match action {
                Action::LoadModel { .. } => "load_model",
                Action::UnloadModel { .. } => "unload_model",
                Action::Move { .. } => "move",
            },
        }
    }
}
