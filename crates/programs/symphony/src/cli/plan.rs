//! `symphony plan`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{ClusterArgs, FederationArgs, OperationArgs, Output};

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Divide the models of a problem file among its parts (sub-clusters, or clusters), and show what changes.
    Partition(PartitionArgs),
    /// Choose how many GPUs of which kind to rent within a budget, by bounds of their throughput.
    Fleet(FleetArgs),
    /// Pack the sessions of a file onto as few GPUs as possible: squishy bin packing.
    Pack(PackArgs),
    /// Split the latency budget of a pipeline among its stages, so that all together need fewest GPUs.
    Split(SplitArgs),
    /// Move models and backends to another sub-cluster. They are loaded there first, and nothing is interrupted.
    Move(PlanMoveArgs),
    /// Search for a better plan now, by the rates of the last half minute, and propose it.
    Now(PlanNowArgs),
    /// Show the moves of a plan and how far they have come.
    Show(PlanShowArgs),
    /// Show what a plan changes: the models and GPUs of each sub-cluster before and after.
    Diff(PlanShowArgs),
    /// Approve a plan that waits for approval.
    Approve(PlanReviewArgs),
    /// Drop a plan that waits for approval.
    Refuse(PlanReviewArgs),
}

#[derive(Debug, Args)]
#[command(override_usage = "symphony plan move --to <SUBCLUSTER> <--model <NAME> | --backend <NAME>>... [OPTIONS]
       symphony plan move --to-cluster <CLUSTER> <--model <NAME>>... [--federation=<HOST:PORT,…>] [OPTIONS]")]
pub(crate) struct PlanMoveArgs {
    /// Name of a model to move; repeatable.
    #[arg(long = "model", value_name = "NAME", required_unless_present = "backends")]
    pub(crate) models: Vec<String>,
    /// Name of a backend to move with its GPUs; repeatable.
    #[arg(long = "backend", value_name = "NAME")]
    pub(crate) backends: Vec<String>,
    /// The sub-cluster to move them to; see `symphony get subclusters`.
    #[arg(long, value_name = "SUBCLUSTER", required_unless_present = "to_cluster", conflicts_with = "federation")]
    pub(crate) to: Option<String>,
    /// The cluster of the federation to move models to, at once; see `symphony get clusters`.
    #[arg(long, value_name = "CLUSTER", conflicts_with_all = ["to", "backends", "propose"])]
    pub(crate) to_cluster: Option<String>,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    /// Only propose it; `symphony plan approve` starts it.
    #[arg(long)]
    pub(crate) propose: bool,
    /// Seconds to wait until every move has ended; 0 does not wait.
    #[arg(long, default_value_t = 120)]
    pub(crate) wait_s: u64,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PlanNowArgs {
    /// Start it at once, without approval.
    #[arg(long)]
    pub(crate) adopt: bool,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PlanShowArgs {
    /// The plan's number, see `symphony get epochs`; by default the last one.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: Option<u64>,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PlanReviewArgs {
    /// The plan's number, see `symphony get epochs`.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: u64,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// The solver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Solver {
    /// Greedy start, annealing, polishing: what clusters use.
    #[default]
    Local,
    /// The exact program on HiGHS, which proves how good the answer is; only in builds with the feature `highs`.
    Highs,
}

#[derive(Debug, Args)]
pub(crate) struct PartitionArgs {
    /// The problem (TOML); docs/reference/partitioning.md describes it.
    #[arg(value_name = "PROBLEM.toml")]
    pub(crate) problem: PathBuf,
    /// The plan in force, as -o json printed it: the new plan stays close to it, and moves are shown.
    #[arg(long, value_name = "PLAN.json")]
    pub(crate) previous: Option<PathBuf>,
    /// The solver.
    #[arg(long, value_enum, default_value_t = Solver::Local)]
    pub(crate) solver: Solver,
    /// Moves that the local search tries; by default, by the number of models. Equal budgets give equal plans.
    #[arg(long, value_name = "MOVES", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(crate) budget: Option<u64>,
    /// Seed of the search.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seconds after which the search returns its best plan so far. Default: 10 for highs, no limit for local.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) time_limit_s: Option<f64>,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// By what fleets are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FleetBound {
    /// The bound of Kairos, for one model whose requests run alone.
    Kairos,
    /// Upper bound of schedules that run each request alone.
    Alone,
    /// Upper bound of all schedules, including those that batch requests.
    Together,
}

#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    /// The problem (TOML): budget, kinds with prices, latencies, sizes of requests; docs/reference/fleets.md describes
    /// it.
    #[arg(value_name = "FLEET.toml")]
    pub(crate) problem: PathBuf,
    /// Bound to rank fleets by. Default: kairos for one model; together for several, or to evaluate a policy that
    /// batches requests.
    #[arg(long, value_enum)]
    pub(crate) bound: Option<FleetBound>,
    /// Find the best fleet by simulating those with the highest bounds until no other can be better (Kairos+).
    #[arg(long)]
    pub(crate) evaluate: bool,
    /// The policy to simulate, as for `symphony sim`: a name, including those that the program adds, or a table such as
    /// '{ name = "nexus", frontends = 8 }'.
    #[arg(long, requires = "evaluate", default_value = "auto")]
    pub(crate) policy: String,
    /// The most fleets to simulate.
    #[arg(long, requires = "evaluate", value_name = "COUNT", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) evaluations_max: u32,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct PackArgs {
    /// The sessions (TOML); docs/reference/packing.md describes them.
    #[arg(value_name = "SESSIONS.toml")]
    pub(crate) sessions: PathBuf,
    /// The packing in force, as -o json printed it: sessions stay where they are if possible, and moves are counted.
    #[arg(long, value_name = "PACK.json")]
    pub(crate) previous: Option<PathBuf>,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// What a batch takes of its stage's budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SplitCost {
    /// The time in which it runs, ℓ(b), as in the Nexus paper, section 6.2.
    #[default]
    Execution,
    /// Twice that: a request that misses a batch runs with the next one, as in section 4.1.
    Waiting,
    /// The time in which it gathers and runs, ℓ(b) + b/rate: what deferred batches need.
    Deferred,
}

#[derive(Debug, Args)]
pub(crate) struct SplitArgs {
    /// The pipeline (TOML); docs/reference/pipelines.md describes it.
    #[arg(value_name = "PIPELINE.toml")]
    pub(crate) pipeline: PathBuf,
    /// What a batch takes of its stage's budget.
    #[arg(long, value_enum, default_value_t = SplitCost::Execution)]
    pub(crate) cost: SplitCost,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// A time limit: above zero, at most a day.
fn seconds(text: &str) -> Result<f64, String> {
    const SECONDS_MAX: f64 = 86_400.0;
    let refused = || format!("expected seconds above 0, at most {SECONDS_MAX}");
    text.parse().ok().filter(|&seconds| seconds > 0.0 && seconds <= SECONDS_MAX).ok_or_else(refused)
}
