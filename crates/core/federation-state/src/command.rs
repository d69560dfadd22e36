//! Commands: what can be proposed to the federation's group.

use std::collections::BTreeMap;
use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};
use symphony_replicated::envelope::{self, CodecError, Enveloped};
use symphony_replicated::{ModelSpec, command_bytes_max};
use symphony_types::OperationId;

use crate::limits::COMMAND_BYTES_MAX;
use crate::state::{Cause, KindCapacity};

/// One log entry. It is validated completely when it is applied, even if the proposer did so before.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "few exist at a time, and most of them carry a model")]
pub enum Command {
    /// Registers a cluster or updates its GPUs.
    SeeCluster {
        /// The name by which it is configured in the federation.
        name: String,
        /// Its control addresses.
        control: Vec<String>,
        /// Its GPUs by kind.
        kinds: BTreeMap<String, KindCapacity>,
    },
    /// A quorum of the cluster has not answered for the configured time.
    ClusterLost {
        /// Name of the silent cluster.
        name: String,
        /// Log index of the standing to be ended; others are not affected.
        since: u64,
    },
    /// A quorum of the cluster answers again.
    ClusterBack {
        /// Name of the cluster that is back.
        name: String,
        /// Log index of the standing to be ended; others are not affected.
        since: u64,
    },
    /// Move models.
    BeginMoves {
        /// The moves. Outdated ones are skipped.
        moves: Vec<HomeMove>,
        /// The reason.
        cause: Cause,
    },
    /// A model fits into no cluster.
    Unplaced {
        /// Name of the model.
        model: String,
        /// Log index at which it was loaded, to tell models of the same name apart.
        loaded_at: u64,
        /// Why, for display.
        reason: String,
    },
    /// The target of a move serves the model: new requests go there from here on.
    Loaded {
        /// Name of the model that has moved.
        model: String,
        /// Log index at which its move began.
        since: u64,
    },
    /// A move that does not complete is cancelled; the model stays where it is.
    GiveUp {
        /// Name of the model that stays.
        model: String,
        /// Log index at which its move began.
        since: u64,
        /// Why it did not complete, for display.
        reason: String,
    },
    /// A cluster no longer holds a copy of the model; it may have been unloaded there by an operator.
    CopyGone {
        /// Name of the model.
        model: String,
        /// Name of the cluster that held it.
        cluster: String,
        /// Log index since which it was home or leftover there.
        since: u64,
    },
    /// An operator's command.
    Operate(Operation),
    /// A replica of the group holds an entry of its log. If it ever returns with an empty disk, it has forgotten.
    SeeReplica {
        /// The replica's id in the group.
        replica: u64,
    },
}

/// A move of a model.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct HomeMove {
    /// Name of the model that moves.
    pub model: String,
    /// Log index at which it was loaded, to tell models of the same name apart.
    pub loaded_at: u64,
    /// Its expected home; a model that has another one by now stays there.
    pub from: Option<String>,
    /// The target cluster.
    pub to: String,
    /// The target sub-cluster.
    pub subcluster: String,
}

/// An operator's command. It is executed once, however often it is in the log.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its id, chosen by the sender.
    pub id: OperationId,
    /// The operator, by the client certificate that the replica saw: `operator/admin`.
    pub actor: String,
    /// When that replica received it, in milliseconds since 1970. For display only; no decision reads it.
    pub at_unix_ms: u64,
    /// What the operator wants done.
    pub action: Action,
}

/// The action of an operation.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "few exist at a time, and most of them carry a model")]
pub enum Action {
    /// Serve a model somewhere in the federation.
    LoadModel {
        /// Its specification.
        spec: ModelSpec,
        /// The request rate that it needs, in thousandths per second.
        wanted_mrps: u64,
        /// The initial cluster; empty for any.
        cluster: String,
    },
    /// Serve a model no longer; every cluster unloads its copy.
    UnloadModel {
        /// The name under which it was loaded.
        name: String,
    },
    /// Move models.
    Move {
        /// Which models go where. Outdated moves are skipped.
        moves: Vec<HomeMove>,
        /// Whether the operator named the moves or asked for a more even distribution.
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

/// A command as it is in the log.
pub type LogEntry = symphony_replicated::LogEntry<Command>;

impl Enveloped for Command {
    const MAGIC: &'static str = crate::format::MAGIC;
    const VERSION: u16 = crate::format::VERSION;
    const KIND: u16 = 1;
    const WHAT: &'static str = "federation command";
    const BYTES_MAX: usize = command_bytes_max(COMMAND_BYTES_MAX);
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
            Self::SeeReplica { .. } => "see_replica",
            Self::Operate(Operation { action, .. }) => match action {
                Action::LoadModel { .. } => "load_model",
                Action::UnloadModel { .. } => "unload_model",
                Action::Move { .. } => "move",
            },
        }
    }
}
