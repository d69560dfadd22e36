//! `symphony get`, `describe`, `explain`.

use clap::{Args, ValueEnum};

use super::{ClusterArgs, FederationArgs, Format, Output, PublicArgs};

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// What to show.
    #[arg(value_enum)]
    pub(crate) what: What,
    /// Only the object of this name or id; all versions of a model. Events and epochs have no names.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
    /// Show it again whenever it changes, until Ctrl-C; with -o json, one line each time.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Show the state of any one replica, even if it is cut off from the others.
    #[arg(long)]
    pub(crate) stale: bool,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    #[command(flatten)]
    pub(crate) public: PublicArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DescribeArgs {
    /// The kind of object.
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) what: Described,
    /// Its name or id.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
    #[command(flatten)]
    pub(crate) public: PublicArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// What `describe` knows about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Described {
    /// A model, with all its versions.
    #[value(alias = "models")]
    Model,
    /// A pipeline.
    #[value(alias = "pipelines")]
    Pipeline,
    /// A GPU, by its id.
    #[value(alias = "gpus")]
    Gpu,
    /// A sub-cluster.
    #[value(alias = "subclusters")]
    Subcluster,
    /// A scheduler, a backend or a frontend.
    #[value(aliases = ["members", "scheduler", "backend", "frontend"])]
    Member,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The request's id, as in f2/9a3f/17: the parameter `symphony_request_id` or the header `symphony-request-id` of
    /// its answer. May follow the word `request`.
    #[arg(value_name = "REQUEST", num_args = 1..=2, required_unless_present = "batch", conflicts_with_all = ["batch", "last"])]
    pub(crate) request: Vec<String>,
    /// The last batches of this model instead.
    #[arg(long, value_name = "MODEL")]
    pub(crate) batch: Option<String>,
    /// How many of them.
    #[arg(long, value_name = "COUNT", default_value_t = 5, requires = "batch",
          value_parser = clap::value_parser!(u32).range(1..=symphony_explain::LAST_BATCHES_MAX as i64))]
    pub(crate) last: u32,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) public: PublicArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// What `get` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Models and where they are ready.
    #[value(alias = "model")]
    Models,
    /// Pipelines, what each stage has of the budget, and whether they are ready.
    #[value(alias = "pipeline")]
    Pipelines,
    /// Clusters of a federation: health, GPUs, models at home there, and models moving in or out. Asks the federation
    /// at the standard ports unless --federation names another.
    #[value(alias = "cluster")]
    Clusters,
    /// GPUs, their backends and tokens.
    #[value(alias = "gpu")]
    Gpus,
    /// Sub-clusters, leaders, standbys, tokens.
    #[value(alias = "subcluster")]
    Subclusters,
    /// Scheduler replicas, backends and frontends, with their roles, and how far replicas have applied the log.
    #[value(alias = "member")]
    Members,
    /// Outcomes of requests, by frontend and in total.
    Ledger,
    /// The epoch and the last plans, with reason and progress; with --federation those of the federation.
    #[value(alias = "epoch")]
    Epochs,
    /// Operators' commands and recent changes: the last 1024 operations and the last 64 changes; with --federation
    /// those of the federation.
    #[value(alias = "event")]
    Events,
}
