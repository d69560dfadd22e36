//! The command line.

mod access;
mod apply;
mod backup;
mod certs;
mod context;
mod health;
mod keys;
mod load;
mod members;
mod model;
mod pipeline;
mod plan;
mod processes;
mod profile;
mod queries;
#[cfg(test)]
mod reference_page;
mod shell;
mod simulate;
mod subcluster;
mod top;
mod trace;
mod upgrade;

use std::sync::OnceLock;

use clap::{Parser, Subcommand, ValueEnum};
use symphony_types::Level;

pub(crate) use access::{
    CLUSTER_OF_UP, ClusterArgs, FEDERATION_OF_UP, FederationArgs, LOAD_FRONTEND, OPERATOR, OperationArgs, PKI_OF_UP,
    PublicArgs, PublicFiles, frontend_in,
};
pub(crate) use apply::ApplyArgs;
pub(crate) use backup::{BackupArgs, RestoreArgs};
pub(crate) use certs::{CertsCommand, CertsIssueArgs};
pub(crate) use context::{ContextCommand, ContextKey, ContextSetArgs};
pub(crate) use health::HealthArgs;
pub(crate) use keys::KeysCommand;
pub(crate) use load::{LoadArgs, LoadInputs, LoadProtocol};
pub(crate) use members::{
    DrainArgs, DutyArgs, MemberAddArgs, MemberRemoveArgs, MemberReplaceArgs, MembersCommand, replica_id,
};
pub(crate) use model::{
    CanaryArgs, ModelCommand, ModelGenerateArgs, ModelLoadArgs, ModelSetArgs, ModelTrafficArgs, ModelUnloadArgs,
};
pub(crate) use pipeline::{PipelineCommand, PipelineLoadArgs, PipelineUnloadArgs};
pub(crate) use plan::{
    FleetArgs, FleetBound, PackArgs, PartitionArgs, PlanCommand, PlanMoveArgs, PlanNowArgs, PlanReviewArgs,
    PlanShowArgs, Solver, SplitArgs, SplitCost,
};
pub(crate) use processes::{BackendArgs, DemoArgs, NodeArgs, ProvisionArgs, UpArgs};
pub(crate) use profile::{
    LatencyOf, MeasureArgs, ProfileArgs, ProfileCommand, ProfileCompareArgs, ProfileGemmArgs, ProfiledDevice,
};
pub(crate) use queries::{DescribeArgs, Described, ExplainArgs, GetArgs, What};
pub(crate) use shell::{CompletionsArgs, ManArgs};
pub(crate) use simulate::{PaperArgs, ReplayArgs, SimArgs};
pub(crate) use subcluster::{SubclusterCommand, SubclusterPolicyArgs};
pub(crate) use top::TopArgs;
pub(crate) use trace::{
    CompareArgs, SpreadName, TapeArrivalsArgs, TapeCommand, TraceCommand, TraceConvertArgs, TraceFormat, TracePartArgs,
    renamed,
};
pub(crate) use upgrade::{UpgradeCommand, UpgradeFinishArgs, UpgradeShowArgs};

/// The release, and the newest level that it knows.
fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| format!("{} (level {})", env!("CARGO_PKG_VERSION"), Level::NEWEST.get()))
}

/// Serves many DNN models on GPU clusters under latency SLOs.
#[derive(Debug, Parser)]
#[command(name = "symphony", version = version(), propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the whole system on this machine on real input, kill a leader, and report.
    Demo(DemoArgs),
    /// Run a local cluster that stays: schedulers, frontend, backends, console.
    Up(UpArgs),
    /// Run one scheduler replica.
    Scheduler(NodeArgs),
    /// Run one frontend.
    Frontend(NodeArgs),
    /// Run one backend.
    Backend(BackendArgs),
    /// Start and stop backends on this machine, following the cluster's advice to autoscalers.
    Provision(ProvisionArgs),
    /// Run one replica of a federation's group, above several clusters.
    Federation(NodeArgs),
    /// Ask a process of this machine whether it is ready; for health checks of containers and scripts.
    Health(HealthArgs),
    /// Make the certificates by which processes and people know each other.
    #[command(subcommand)]
    Certs(CertsCommand),
    /// Make keys by which clients of the public ports are known.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Manage contexts: where a cluster is and which credentials to use, under a name.
    #[command(subcommand)]
    Context(ContextCommand),
    /// Load, change, unload or generate models, and split requests among their versions.
    #[command(subcommand)]
    Model(ModelCommand),
    /// Load and unload pipelines: models that feed each other, under one latency budget.
    #[command(subcommand)]
    Pipeline(PipelineCommand),
    /// Change how a sub-cluster is scheduled.
    #[command(subcommand)]
    Subcluster(SubclusterCommand),
    /// Make the cluster serve models as files declare them, changing only what differs.
    Apply(ApplyArgs),
    /// List the objects of a kind, or show the named one.
    Get(GetArgs),
    /// Show all details of a model, a pipeline, a GPU, a sub-cluster or a process, with its events.
    Describe(DescribeArgs),
    /// Show the load of sub-clusters, models and GPUs, and keep it up to date.
    Top(TopArgs),
    /// Give a process no new work, hand over or finish what it has, and wait until it has nothing left.
    Drain(DrainArgs),
    /// Give a process no new work; it keeps what it has until that is done.
    Cordon(DutyArgs),
    /// Give a process work again.
    Uncordon(DutyArgs),
    /// Add, remove or replace scheduler replicas while the cluster serves.
    #[command(subcommand)]
    Members(MembersCommand),
    /// Back up the cluster's replicated state to a file: models, members, operations.
    Backup(BackupArgs),
    /// Found the cluster anew with the state of a backup, after most disks of its schedulers are lost. All schedulers
    /// must be stopped; backends and frontends go on.
    Restore(RestoreArgs),
    /// Follow and finish the upgrade of a cluster to a new release.
    #[command(subcommand)]
    Upgrade(UpgradeCommand),
    /// Make, review and follow plans: which models and GPUs form which sub-cluster.
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Explain what became of a request, or the last batches of a model: window, rivals, why this GPU, predicted and
    /// actual.
    Explain(ExplainArgs),
    /// Measure the latency profile and memory of an ONNX model on this machine.
    Profile(ProfileArgs),
    /// Send open-loop load and report latencies; fails if it lags its own schedule.
    Load(Box<LoadArgs>),
    /// Simulate a scenario in virtual time with the scheduler's own decisions.
    Sim(SimArgs),
    /// Reproduce a paper's table or figure: CSV, SVG, and a page that compares.
    Paper(PaperArgs),
    /// Replay recorded decisions of a scheduler (scheduler.tape_dir), and report where they differ.
    Replay(ReplayArgs),
    /// Export data from tapes for other tools.
    #[command(subcommand)]
    Tape(TapeCommand),
    /// Convert arrivals recorded by other systems into a CSV that scenarios and `symphony load` play.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Simulate a recorded load (scheduler.tape_dir) under other policies and numbers of GPUs, side by side.
    Compare(CompareArgs),
    /// Print a script with which a shell completes commands, options and their values.
    Completions(CompletionsArgs),
    /// Write manual pages.
    Man(ManArgs),
}

/// How a view of the cluster is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For people with a wide terminal.
    Wide,
    /// For programs.
    Json,
    /// The same value as YAML.
    Yaml,
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}
