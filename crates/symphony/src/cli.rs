//! The command line.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Parser, Subcommand, ValueEnum};
use symphony_net::{CredentialFiles, Credentials, Host, Net, Role};
use symphony_transport::ControlClient;
use symphony_types::OperationId;

use crate::exit::bad_input;

/// Serves many DNN models on GPU clusters under latency SLOs.
#[derive(Debug, Parser)]
#[command(name = "symphony", version, propagate_version = true)]
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
    Backend(NodeArgs),
    /// Start and stop backends on this machine, as many as the cluster's advice to autoscalers asks for.
    Provision(ProvisionArgs),
    /// Run one replica of the group above several clusters.
    Federation(NodeArgs),
    /// Make the certificates by which processes and people know each other.
    #[command(subcommand)]
    Certs(CertsCommand),
    /// Load, unload or generate models.
    #[command(subcommand)]
    Model(ModelCommand),
    /// Show the cluster.
    Get(GetArgs),
    /// Give a process nothing new, have what it has handed over or finished, and wait for that.
    Drain(DrainArgs),
    /// Give a process nothing new; what it has it keeps until it is done.
    Cordon(DutyArgs),
    /// Give a process work again.
    Uncordon(DutyArgs),
    /// Add, remove or replace scheduler replicas while the cluster serves.
    #[command(subcommand)]
    Members(MembersCommand),
    /// Plans: which models and GPUs form which sub-cluster; move them, and see how far that has come.
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Explain what became of a request, or the last batches of a model: window, rivals, why this GPU, predicted and actual.
    Explain(ExplainArgs),
    /// Measure the latency profile and memory of an ONNX model on this machine.
    Profile(ProfileArgs),
    /// Send open-loop load and report latencies; fails if it lags its own schedule.
    Load(Box<crate::tools::load::LoadArgs>),
    /// Simulate a scenario in virtual time with the scheduler's own decisions.
    Sim(SimArgs),
    /// Make a paper's table or figure again: CSV, SVG, and a page that compares.
    Paper(PaperArgs),
    /// Decide again what a scheduler recorded (scheduler.tape_dir), and say where the decisions differ.
    Replay(ReplayArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// Configuration file (TOML); every key has a default or says that it must be given.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Override a key, for example --set scheduler.id=2; repeatable. Stronger than file and environment.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Plaintext, on loopback only: short for --set security.insecure_dev=true.
    #[arg(long)]
    pub(crate) insecure_dev: bool,
    /// Print the whole configuration as it would be used, and exit.
    #[arg(long)]
    pub(crate) dump_config: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Configuration file with [cluster], [frontend] and [backend]; without one: three schedulers, a CPU backend and an
    /// emulated backend with four GPUs on the standard ports.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Override a key, for example --set scheduler.delays.reply_us=1000; repeatable.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Where configurations, logs and Raft data are kept; a cluster that comes back here knows its models.
    #[arg(long, value_name = "DIR", default_value = "symphony-up")]
    pub(crate) dir: PathBuf,
    /// Run so many clusters, each with its schedulers and four emulated GPUs, under a top-level group of three, with one frontend
    /// for all of them. Ports of a cluster are 2000 above those of the one before it.
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["config", "with_models", "autoscale", "repository"],
          value_parser = clap::value_parser!(u16).range(2..=4))]
    pub(crate) clusters: Option<u16>,
    /// With --clusters: how long a cluster may be silent until its models are served by the others, in milliseconds; 10000 if not
    /// given.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1_000..=3_600_000))]
    pub(crate) unreachable_ms: Option<u64>,
    /// A model repository, laid out as Triton's: the CPU backend loads from it, and clients that show the token in
    /// DIR/repository-token (of --dir) may load and unload its models.
    #[arg(long, value_name = "DIR")]
    pub(crate) repository: Option<PathBuf>,
    /// Where all processes listen: another address of loopback lets several clusters or federations run side by side, each in a --dir
    /// of its own. Ports stay as they are. The first words of a cluster that is up say what tools have to be told then.
    #[arg(long, value_name = "ADDRESS", value_parser = on_loopback)]
    pub(crate) host: Option<Ipv4Addr>,
    /// Load the demo's models when the cluster is up: digits and mlp on the CPU, resnet50 on emulated GPUs.
    #[arg(long)]
    pub(crate) with_models: bool,
    /// Keep as many backends like the emulated one as the cluster's advice asks for, within these bounds, for example 1..4; with
    /// one GPU each if no configuration is given.
    #[arg(long, value_name = "MIN..MAX", value_parser = replica_bounds)]
    pub(crate) autoscale: Option<(u32, u32)>,
}

fn replica_bounds(text: &str) -> Result<(u32, u32), String> {
    let bounds = text.split_once("..").and_then(|(min, max)| Some((min.parse().ok()?, max.parse().ok()?)));
    let sound = |&(min, max): &(u32, u32)| min >= 1 && min <= max && i64::from(max) <= REPLICAS_MAX;
    bounds.filter(sound).ok_or_else(|| format!("`{text}` gives no bounds; expected MIN..MAX from 1 to {REPLICAS_MAX}"))
}

#[derive(Debug, Args)]
pub(crate) struct ProvisionArgs {
    /// Configuration of a backend, which all replicas share: replica N is called backend.name-N, and listens on the first free
    /// ports from backend.exec and backend.metrics on.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Override a key, for example --set backend.subcluster=pool; repeatable.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Fewest replicas. At least one: a sub-cluster without GPUs measures nothing that could ask for one.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=REPLICAS_MAX))]
    pub(crate) min: u32,
    /// Most replicas.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=REPLICAS_MAX))]
    pub(crate) max: u32,
    /// How often the scaler is asked, in milliseconds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub(crate) every_ms: u64,
    /// A number of GPUs that is off by at most this share changes nothing. A horizontal autoscaler of Kubernetes has 0.1.
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    pub(crate) tolerance: f64,
    /// Go down only to the largest number that was wanted within so many seconds. A horizontal autoscaler of Kubernetes has 300;
    /// the advice has a window of its own.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub(crate) down_stabilization_s: u64,
    /// Where configurations and logs of the replicas are kept.
    #[arg(long, value_name = "DIR", default_value = "symphony-provision")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// Processes that one provisioner starts: more than a machine has cores for.
const REPLICAS_MAX: i64 = 256;

fn share(text: &str) -> Result<f64, String> {
    let expected = || format!("`{text}` is no share; expected 0 to 1");
    let share: f64 = text.parse().map_err(|_| expected())?;
    (0.0..=1.0).contains(&share).then_some(share).ok_or_else(expected)
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Seconds of load; the leader is killed in the middle.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(15..=600))]
    pub(crate) seconds: u32,
    /// Where configurations, models, logs and Raft data are kept; a fresh folder in the system's temporary directory if
    /// not given.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Seed of arrivals and random inputs.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print the report as JSON.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
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

/// The operator that `symphony up` makes a certificate for, and that tools are if nothing else is said.
pub(crate) const OPERATOR: (Role, &str) = (Role::Operator, "admin");

/// Where `symphony up` keeps certificates if nothing else is said.
pub(crate) const PKI_OF_UP: &str = "symphony-up/pki";

/// Where the replicas of `symphony up` are if nothing else is said.
pub(crate) const CLUSTER_OF_UP: &str = "127.0.0.1:7001,127.0.0.1:7011,127.0.0.1:7021";

#[derive(Debug, Subcommand)]
pub(crate) enum CertsCommand {
    /// Make a certificate authority: ca.pem and ca.key.
    Authority {
        /// Folder to write to; made if it is not there.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// The cluster's name, as in cluster.name.
        #[arg(long = "cluster-name", value_name = "NAME", default_value = "symphony")]
        cluster: String,
    },
    /// Make a key and a certificate: ROLE-NAME.key and ROLE-NAME.pem beside the authority's.
    Issue(CertsIssueArgs),
    /// Say whose a certificate is and when it expires, and check that the key is its own.
    Show {
        /// The certificate.
        #[arg(value_name = "CERT")]
        cert: PathBuf,
        /// Its key.
        #[arg(value_name = "KEY")]
        key: PathBuf,
        /// The authority's certificate.
        #[arg(value_name = "CA")]
        ca: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CertsIssueArgs {
    /// Folder of the authority.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The cluster's name, as in cluster.name.
    #[arg(long, value_name = "NAME", default_value = "symphony")]
    pub(crate) cluster_name: String,
    /// scheduler, backend or frontend for a node; operator or viewer for people and their programs; federation for the
    /// federation that the cluster belongs to, under its name.
    #[arg(long)]
    pub(crate) role: Role,
    /// The node's name; a scheduler's is its id, as in scheduler.id.
    #[arg(long)]
    pub(crate) name: String,
    /// A host name or an IP address by which it is reached, for clients that look for that in certificates, such as KEDA at a scheduler's
    /// control port; repeatable. The cluster's own processes and tools go by role and name.
    #[arg(long = "host", value_name = "HOST")]
    pub(crate) hosts: Vec<Host>,
    /// Days until it expires.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) days: u32,
}

/// Where the cluster is, and who asks.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Control addresses of the scheduler replicas; any that answers will do.
    #[arg(
        long = "cluster",
        env = "SYMPHONY_CLUSTER",
        value_name = "HOST:PORT,…",
        value_delimiter = ',',
        default_value = CLUSTER_OF_UP
    )]
    pub(crate) cluster: Vec<String>,
    /// Folder with ca.pem and the caller's certificate; symphony-up/pki, where `symphony up` makes them, if it is there.
    #[arg(long, env = "SYMPHONY_PKI", value_name = "DIR")]
    pub(crate) pki: Option<PathBuf>,
    /// Who asks: the name of the certificate's file, without .pem.
    #[arg(long, env = "SYMPHONY_IDENTITY", value_name = "ROLE-NAME", default_value = "operator-admin")]
    pub(crate) identity: String,
    /// Talk plaintext, to a cluster that does.
    #[arg(long, env = "SYMPHONY_INSECURE_DEV", conflicts_with = "pki")]
    pub(crate) insecure_dev: bool,
}

impl ClusterArgs {
    /// Where certificates are; none in plaintext.
    pub(crate) fn pki_dir(&self) -> anyhow::Result<Option<PathBuf>> {
        if self.insecure_dev {
            return Ok(None);
        }
        let up = Path::new(PKI_OF_UP);
        let dir = self.pki.as_deref().or_else(|| up.is_dir().then_some(up)).ok_or_else(|| {
            bad_input(
                "no certificates: give their folder with --pki or SYMPHONY_PKI (`symphony up` prints it, `symphony certs` \
                 makes them), or --insecure-dev for a cluster without any",
            )
        })?;
        Ok(Some(dir.to_owned()))
    }

    /// How to talk to the cluster.
    pub(crate) fn net(&self) -> anyhow::Result<Net> {
        let Some(dir) = self.pki_dir()? else { return Ok(Net::plaintext()) };
        let file = |extension: &str| dir.join(format!("{}.{extension}", self.identity));
        let files = CredentialFiles { ca: dir.join("ca.pem"), cert: file("pem"), key: file("key") };
        Ok(Net::secured(Arc::new(Credentials::load(files).map_err(bad_input)?)))
    }

    /// The cluster's control surface.
    pub(crate) fn control(&self) -> anyhow::Result<ControlClient> {
        ControlClient::new(&self.net()?, &self.cluster).map_err(bad_input)
    }
}

/// Where the federation of `symphony up --clusters` is.
pub(crate) const FEDERATION_OF_UP: &str = "127.0.0.1:7501,127.0.0.1:7511,127.0.0.1:7521";

fn on_loopback(text: &str) -> Result<Ipv4Addr, String> {
    let host: Ipv4Addr = text.parse().map_err(|_| "expected an IPv4 address".to_owned())?;
    if host.is_loopback() {
        Ok(host)
    } else {
        Err("expected an address of loopback, 127.0.0.1 to 127.255.255.254".into())
    }
}

/// Whether a federation is asked instead of one cluster.
#[derive(Debug, Args)]
pub(crate) struct FederationArgs {
    /// Ask the federation, at these addresses of its replicas; alone: where `symphony up --clusters` has it. The certificates in
    /// --pki are then those of the federation.
    #[arg(long, value_name = "HOST:PORT,…", num_args = 0..=1, require_equals = true,
          default_missing_value = FEDERATION_OF_UP)]
    pub(crate) federation: Option<String>,
}

/// Which command it is.
#[derive(Debug, Args)]
pub(crate) struct OperationArgs {
    /// Id of a command that was given before and had no answer: it is done once, if fewer than 1024 operations came since; 32
    /// hexadecimal digits, a fresh one if not given.
    #[arg(long, value_name = "ID")]
    pub(crate) operation_id: Option<OperationId>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Load a model and wait until it is ready.
    Load(Box<ModelLoadArgs>),
    /// Unload a model; what is queued for it fails, what runs is answered.
    Unload(ModelUnloadArgs),
    /// Write an ONNX model with random weights, for load: mlp, resnet50, mobilenet or bert.
    Generate(ModelGenerateArgs),
}

#[derive(Debug, Args)]
#[command(override_usage = "symphony model load <NAME> --onnx <FILE> --profile <FILE> --slo-ms <MS> [OPTIONS]
       symphony model load <NAME> --emulated --alpha-ms <MS> --beta-ms <MS> --slo-ms <MS> [OPTIONS]
       symphony model load <NAME> --repository <DIR> [OPTIONS]")]
pub(crate) struct ModelLoadArgs {
    /// The name that clients use.
    pub(crate) name: String,
    /// Load it from a model repository, laid out as Triton's: DIR/NAME/config.pbtxt says everything else. Backends see the same
    /// folder at backend.model_dir. Versions that the repository serves no more are unloaded when the new ones are ready.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["onnx", "emulated", "profile", "alpha_ms", "beta_ms", "batch_max", "gpu_kind",
          "transforms", "slo_ms", "subcluster", "policy", "value", "federation", "to_cluster", "wanted_rps", "operation_id"])]
    pub(crate) repository: Option<PathBuf>,
    /// ONNX file, as the backends see it; needs --profile.
    #[arg(long, value_name = "FILE", conflicts_with = "emulated")]
    pub(crate) onnx: Option<PathBuf>,
    /// No file: emulated GPUs take the profile's time and answer with a checksum of the input.
    #[arg(long)]
    pub(crate) emulated: bool,
    /// Profile written by `symphony profile`.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["alpha_ms", "repository"])]
    pub(crate) profile: Option<PathBuf>,
    /// Latency per item in milliseconds, instead of a profile: l(b) = alpha * b + beta.
    #[arg(long, requires = "beta_ms", conflicts_with = "profile")]
    pub(crate) alpha_ms: Option<f64>,
    /// Fixed latency in milliseconds.
    #[arg(long, requires = "alpha_ms", conflicts_with = "profile")]
    pub(crate) beta_ms: Option<f64>,
    /// Largest batch, with --alpha-ms.
    #[arg(long, default_value_t = 64)]
    pub(crate) batch_max: u32,
    /// GPU kind that --alpha-ms and --beta-ms speak of, see `symphony get gpus`.
    #[arg(long, default_value = "emulated")]
    pub(crate) gpu_kind: String,
    /// TOML file with what frontends do for clients: [image], the input that JPEG and PNG pictures become, and [labels].
    #[arg(long, value_name = "FILE")]
    pub(crate) transforms: Option<PathBuf>,
    /// Latency objective from arrival to answer, in milliseconds; not with --repository, which says it.
    #[arg(long, required_unless_present = "repository")]
    pub(crate) slo_ms: Option<f64>,
    /// Sub-cluster, see `symphony get subclusters`; needed if there are several, as with `symphony up`.
    #[arg(long, default_value = "")]
    pub(crate) subcluster: String,
    /// Scheduling policy: symphony, auto, eager, timeout (a quarter of the SLO) or clipper.
    #[arg(long, default_value = "symphony")]
    pub(crate) policy: String,
    /// What a request is worth against those of other models, with policy auto: in an overload a model of value 4 loses a quarter of
    /// the share that one of value 1 loses; 0.001 to 1000.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) value: f64,
    /// Seconds to wait until the model is ready; 0 does not wait.
    #[arg(long, default_value_t = 60)]
    pub(crate) wait_s: u64,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    /// With --federation: the cluster where it begins; wherever there is room if not given.
    #[arg(long, value_name = "CLUSTER", requires = "federation", default_value = "")]
    pub(crate) to_cluster: String,
    /// With --federation: requests per second that it will need; a place is looked for by these until more are measured.
    #[arg(long, value_name = "RPS", requires = "federation", default_value_t = 0.0)]
    pub(crate) wanted_rps: f64,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ModelUnloadArgs {
    /// The model's name; NAME@VERSION for one version of it, NAME for all.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ModelGenerateArgs {
    /// mlp, resnet50, mobilenet or bert.
    pub(crate) architecture: String,
    /// File to write.
    #[arg(value_name = "FILE.onnx")]
    pub(crate) out: PathBuf,
    /// Seed of the weights: the same seed gives the same bytes.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct DutyArgs {
    /// The process: a scheduler as n2 or scheduler-2, a backend or frontend by its name or as b1 or f1; see
    /// `symphony get members`.
    #[arg(value_name = "MEMBER")]
    pub(crate) member: String,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) duty: DutyArgs,
    /// Seconds to wait until nothing is left; 0 does not wait. It stays cordoned in any case.
    #[arg(long, default_value_t = 60)]
    pub(crate) wait_s: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MembersCommand {
    /// Add a scheduler replica that runs with scheduler.join = true: it catches up, and then it votes.
    Add(MemberAddArgs),
    /// Remove a scheduler replica: it hands over what it leads, and its id is never given again.
    Remove(MemberRemoveArgs),
    /// Have a new scheduler replica take the place of another one, dead or alive, in one change.
    Replace(MemberReplaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MemberAddArgs {
    /// Its id, which no replica ever had.
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) id: u64,
    /// Where it is reached: its cluster.scheduler.control.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) control: String,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MemberRemoveArgs {
    /// Its id.
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) id: u64,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MemberReplaceArgs {
    /// The id of the replica that goes.
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) id: u64,
    /// The id of the one that comes, which no replica ever had.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) with: u64,
    /// Where the one that comes is reached.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) control: String,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Divide the models of a problem file among its parts (sub-clusters, or clusters), and show what changes.
    Partition(PartitionArgs),
    /// Move models and backends to another sub-cluster. They are loaded there first, and nothing is interrupted.
    Move(PlanMoveArgs),
    /// Look for a better plan now, by the rates of the last half minute, and propose it.
    Now(PlanNowArgs),
    /// Show the moves of a plan and how far they have come.
    Show(PlanShowArgs),
    /// Show what a plan changes: the models and GPUs of each sub-cluster before and after.
    Diff(PlanShowArgs),
    /// Let a plan run that waits for approval.
    Approve(PlanJudgeArgs),
    /// Drop a plan that waits for approval.
    Refuse(PlanJudgeArgs),
}

#[derive(Debug, Args)]
#[command(override_usage = "symphony plan move --to <SUBCLUSTER> <--model <NAME> | --backend <NAME>>... [OPTIONS]
       symphony plan move --to-cluster <CLUSTER> <--model <NAME>>... [--federation=<HOST:PORT,…>] [OPTIONS]")]
pub(crate) struct PlanMoveArgs {
    /// A model that shall move, by its name; repeatable.
    #[arg(long = "model", value_name = "NAME", required_unless_present = "backends")]
    pub(crate) models: Vec<String>,
    /// A backend that shall move with its GPUs, by its name; repeatable.
    #[arg(long = "backend", value_name = "NAME")]
    pub(crate) backends: Vec<String>,
    /// The sub-cluster to which they shall move; see `symphony get subclusters`.
    #[arg(long, value_name = "SUBCLUSTER", required_unless_present = "to_cluster", conflicts_with = "federation")]
    pub(crate) to: Option<String>,
    /// The cluster of the federation to which models shall move, at once; see `symphony get clusters`.
    #[arg(long, value_name = "CLUSTER", conflicts_with_all = ["to", "backends", "propose"])]
    pub(crate) to_cluster: Option<String>,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    /// Only propose it; `symphony plan approve` lets it run.
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
    /// Let it run at once.
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
    /// The plan's number, see `symphony get epochs`; the last one if not given.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: Option<u64>,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PlanJudgeArgs {
    /// The plan's number, see `symphony get epochs`.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: u64,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// What to show.
    #[arg(value_enum)]
    pub(crate) what: What,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// Answer as one replica has applied it, even if it is cut off from the others.
    #[arg(long)]
    pub(crate) stale: bool,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The request's id, as in f2/9a3f/17: the parameter `symphony_request_id` or the header `symphony-request-id` of its
    /// answer. May stand behind the word `request`.
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
    pub(crate) cluster: ClusterArgs,
}

/// What `get` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Models and where they are ready.
    Models,
    /// Clusters of a federation: health, GPUs, the models that are at home there, come or go. Of the federation at the standard
    /// ports unless --federation names another.
    Clusters,
    /// GPUs, their backends and tokens.
    Gpus,
    /// Sub-clusters, leaders, standbys, tokens.
    Subclusters,
    /// Scheduler replicas, backends and frontends; what they are there for, and how far replicas are with the log.
    Members,
    /// What became of the requests, of each frontend and of all together.
    Ledger,
    /// The epoch, and the last plans: why they were made and how far they have come.
    Epochs,
    /// What operators asked for and what changed lately: the last 1024 operations and the last 64 changes.
    Events,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ProfileCommand>,
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// Show what changed from one profile to another, and fail if the newer one is slower than allowed.
    Compare(ProfileCompareArgs),
    /// Find products of matrices that keep a GPU busy for as long as a profile says, measure them, and write what was measured: a
    /// profile for backends with executor = "cuda-gemm".
    Gemm(ProfileGemmArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ProfileGemmArgs {
    /// Latency per item in milliseconds: l(b) = alpha * b + beta.
    #[arg(long, value_name = "MS", value_parser = positive_ms)]
    pub(crate) alpha_ms: f64,
    /// Fixed latency in milliseconds.
    #[arg(long, value_name = "MS", value_parser = positive_ms)]
    pub(crate) beta_ms: f64,
    /// Largest batch.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) batch_max: u32,
    /// Bytes of an item's input, which is copied to the GPU and back: a multiple of 4. A picture of 224 x 224 has 150528.
    #[arg(long, default_value_t = 150_528, value_parser = clap::value_parser!(u32).range(4..=64 << 20))]
    pub(crate) item_bytes: u32,
    /// Batches of each size that are measured after the calibration.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: u32,
    /// The GPU: cuda:0, cuda:1, ...
    #[arg(long, default_value = "cuda:0", value_parser = profiled_device)]
    pub(crate) device: ProfiledDevice,
    /// GPU kind that this device stands for.
    #[arg(long)]
    pub(crate) gpu_kind: String,
    /// File to write; none is written if not given.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// The model's name in the profile.
    #[arg(long, default_value = "gemm")]
    pub(crate) name: String,
    /// Write when batches that follow each other were copied in, computed and copied out: FILE.json for Perfetto and
    /// chrome://tracing.
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// What a model is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProfiledDevice {
    Cpu,
    /// A GPU by its number.
    Cuda(u32),
}

fn profiled_device(text: &str) -> Result<ProfiledDevice, String> {
    match (text, text.strip_prefix("cuda:").map(str::parse)) {
        ("cpu", _) => Ok(ProfiledDevice::Cpu),
        (_, Some(Ok(ordinal))) => Ok(ProfiledDevice::Cuda(ordinal)),
        _ => Err("expected cpu, or cuda:0, cuda:1, ... for a GPU".into()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct ProfileCompareArgs {
    /// The profile before.
    #[arg(value_name = "BEFORE.toml")]
    pub(crate) before: PathBuf,
    /// The profile now.
    #[arg(value_name = "NOW.toml")]
    pub(crate) now: PathBuf,
    /// Exit with code 1 if any batch size takes longer than before by more than so many per cent.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32))]
    pub(crate) fail_above: Option<u32>,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// Which of many runs of one batch size counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LatencyOf {
    /// The shortest: on a shared machine all others measure the neighbours.
    #[default]
    Best,
    /// The median.
    Median,
    /// The 99th percentile.
    P99,
}

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// The model.
    #[arg(value_name = "MODEL.onnx", required = true)]
    pub(crate) model: Option<PathBuf>,
    /// File to write; the model's path with `.profile.toml` if not given.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// The model's name in the profile; the file's name if not given.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// What to measure on: cpu, or cuda:0, cuda:1, ... for a GPU, with a CUDA build of ONNX Runtime.
    #[arg(long, default_value = "cpu", value_parser = profiled_device)]
    pub(crate) device: ProfiledDevice,
    /// GPU kind that this device stands for; must be that of the GPUs which will run the model. Not cpu for a GPU.
    #[arg(long, default_value = "cpu")]
    pub(crate) gpu_kind: String,
    /// On a GPU: write when batches that follow each other were copied in, computed and copied out, FILE.json for Perfetto and
    /// chrome://tracing.
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,
    /// Largest batch to measure.
    #[arg(long, default_value_t = 32)]
    pub(crate) batch_max: u32,
    /// End at the largest batch that takes no longer, in milliseconds: the SLO, or what of it is left for execution.
    #[arg(long, value_name = "MS", value_parser = positive_ms)]
    pub(crate) slo_ms: Option<f64>,
    /// End at the largest batch with which this process has grown by no more, in MiB.
    #[arg(long, value_name = "MB")]
    pub(crate) memory_mb: Option<u64>,
    /// What ℓ(b) is made of.
    #[arg(long, value_enum, default_value_t = LatencyOf::Best)]
    pub(crate) latency: LatencyOf,
    /// Threads that one batch may use.
    #[arg(long, default_value_t = 1)]
    pub(crate) intra_threads: usize,
    /// Write the profile although the model's answers depend on who else is in the batch.
    #[arg(long)]
    pub(crate) allow_dependent: bool,
    /// ONNX Runtime library; searched where `make setup` puts it if not given.
    #[arg(long, env = "SYMPHONY_ONNXRUNTIME", value_name = "FILE")]
    pub(crate) onnxruntime: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Tapes; each worker of each lead has its own.
    #[arg(value_name = "TAPE", required = true)]
    pub(crate) tapes: Vec<PathBuf>,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// The scenario (TOML); its format is in docs/scenarios.md.
    #[arg(value_name = "SCENARIO.toml")]
    pub(crate) scenario: PathBuf,
    /// Policy instead of the scenario's: symphony, auto, eager, timeout, clipper, clockwork, nexus or shepherd, or a table
    /// such as '{ name = "nexus", frontends = 8 }'.
    #[arg(long)]
    pub(crate) policy: Option<String>,
    /// Find the highest rate at which every model's p99 meets its SLO, within 1 %.
    #[arg(long)]
    pub(crate) find_goodput: bool,
    /// Override a key, for example --set workload.rate_rps=5000; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Runs at the same time; the number of cores if not given.
    #[arg(long)]
    pub(crate) threads: Option<usize>,
    /// Write what GPUs and queues did in the first seed's run: FILE.json for Perfetto and chrome://tracing, FILE.svg as a
    /// picture.
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,
    /// Where the timeline begins, in seconds; after the warm-up if not given.
    #[arg(long, value_name = "SECONDS", requires = "timeline")]
    pub(crate) timeline_from_s: Option<f64>,
    /// How long it is, in seconds; if not given, 5 for a trace and 0.25 for a picture.
    #[arg(long, value_name = "SECONDS", requires = "timeline")]
    pub(crate) timeline_for_s: Option<f64>,
    /// Explain what became of a request of the first seed's run, and why: its sequence number (arrivals count from 0), or its
    /// id as in f0/1/17; repeatable.
    #[arg(long, value_name = "REQUEST")]
    pub(crate) explain: Vec<String>,
    /// Explain so many of the requests that were dropped or late after the warm-up, the worst first.
    #[arg(long, value_name = "COUNT", conflicts_with = "explain",
          value_parser = clap::value_parser!(u16).range(1..=symphony_simulator::EXPLAINED_MAX as i64))]
    pub(crate) explain_worst: Option<u16>,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// Who divides.
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
    /// The problem (TOML); docs/partitioning.md describes it.
    #[arg(value_name = "PROBLEM.toml")]
    pub(crate) problem: PathBuf,
    /// The plan in force, as -o json printed it: what it has right stays, and what moves is shown.
    #[arg(long, value_name = "PLAN.json")]
    pub(crate) previous: Option<PathBuf>,
    /// Who divides.
    #[arg(long, value_enum, default_value_t = Solver::Local)]
    pub(crate) solver: Solver,
    /// Moves that the local search tries; by the number of models if not given. Equal budgets give equal plans.
    #[arg(long, value_name = "MOVES", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(crate) budget: Option<u64>,
    /// Seed of the search.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seconds after which the search ends with what it has; 10 for highs, no limit for local if not given.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) time_limit_s: Option<f64>,
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

#[derive(Debug, Args)]
pub(crate) struct PaperArgs {
    /// A name from the list, `list`, or `all`.
    #[arg(value_name = "LIST|NAME|all")]
    pub(crate) name: String,
    /// Where the files go; made if it is not there. The repository keeps them in docs/papers.
    #[arg(long, value_name = "DIR", default_value = "papers")]
    pub(crate) out: PathBuf,
    /// Short runs, one seed, few points: about a minute for all.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Runs at the same time; the number of cores if not given.
    #[arg(long)]
    pub(crate) threads: Option<usize>,
}

/// Milliseconds, more than none.
fn positive_ms(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if ms.is_finite() && ms > 0.0 => Ok(ms),
        _ => Err("expected milliseconds, more than 0".into()),
    }
}
