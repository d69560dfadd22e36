//! The policy of a sub-cluster as data: which one is wanted, and what became of it. The rules are in `policies.rs`.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::NodeId;

/// The word for a sub-cluster without a policy of its own: each of its models is scheduled by the model's policy.
pub const POLICY_OF_MODELS: &str = "auto";

/// A policy that decides for a whole sub-cluster.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct SubclusterPolicy {
    /// Its canonical text: a name, or a table with options.
    pub text: String,
    /// Its name, if it is one that a program adds; empty if every program has it.
    pub added: String,
    /// How it failed. Then each model is scheduled by its own policy, until a policy is set again.
    pub failed: Option<FailedPolicy>,
}

/// What became of a policy that failed.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedPolicy {
    /// The replica whose lead it ended.
    pub node: NodeId,
    /// What it did.
    pub why: PolicyFailure,
}

/// What a policy did wrong; the log of the replica has the details.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyFailure {
    /// Its code panicked.
    Panicked,
    /// A step did not stop ordering.
    TooManyOrders,
    /// An order broke a rule.
    BrokeRule,
    /// A step took so long that its thread was given up.
    Hung,
}

impl PolicyFailure {
    /// What it did, as the end of a sentence about the policy.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Panicked => "panicked",
            Self::TooManyOrders => "gave orders without end",
            Self::BrokeRule => "gave an order that breaks a rule",
            Self::Hung => "hung",
        }
    }
}

impl fmt::Display for FailedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.why.words(), self.node)
    }
}
