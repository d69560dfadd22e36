//! `symphony subcluster`.

use clap::{Args, Subcommand};

use super::{ClusterArgs, OperationArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum SubclusterCommand {
    /// Let one policy decide for a whole sub-cluster, in place of its models' own policies; queued requests stay
    /// queued.
    Policy(SubclusterPolicyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SubclusterPolicyArgs {
    /// The sub-cluster's name, see `symphony get subclusters`.
    pub(crate) name: String,
    /// clockwork, nexus, shepherd, kairos, ribbon, drs, clkwrk or one that the schedulers' program adds, or a table of
    /// the name and its options as in scenarios: '{ name = "nexus", frontends = 2 }'; auto lets each model have its own
    /// policy again.
    pub(crate) policy: String,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}
