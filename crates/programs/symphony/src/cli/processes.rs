//! What runs: nodes, local clusters, the provisioner, the demo.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::Args;
use symphony_config::limits::{NOISE_MAX, PRICE_MAX};

use super::{ClusterArgs, Output};

#[derive(Clone, Debug, Args)]
pub(crate) struct NodeArgs {
    /// Configuration file (TOML); each key without a default is required.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Override a key, for example --set scheduler.id=2; repeatable. Stronger than file and environment.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Plaintext, on loopback only: short for --set security.insecure_dev=true.
    #[arg(long)]
    pub(crate) insecure_dev: bool,
    /// Serve public ports beyond loopback without authentication: short for --set security.insecure_public=true.
    #[arg(long)]
    pub(crate) insecure_public: bool,
    /// Print the whole effective configuration, and exit.
    #[arg(long)]
    pub(crate) dump_config: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackendArgs {
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    /// Noise of emulated GPUs: short for --set backend.noise=SIGMA.
    #[arg(long, value_name = "SIGMA", allow_negative_numbers = true, value_parser = noise)]
    pub(crate) noise: Option<f64>,
}

/// As `backend.noise`, which this sets.
fn noise(text: &str) -> Result<f64, String> {
    let sigma = text.parse().ok().filter(|sigma| (0.0..=NOISE_MAX).contains(sigma));
    sigma.ok_or_else(|| format!("expected 0 to {NOISE_MAX}"))
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Configuration file with `[cluster]`, `[frontend]` and `[backend]`; without one: three schedulers, a CPU backend
    /// and an emulated backend with four GPUs on the standard ports.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Override a key, for example --set scheduler.delays.reply_us=1000; repeatable.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Folder for configurations, logs and Raft data; a cluster that is started here again knows its models.
    #[arg(long, value_name = "DIR", default_value = "symphony-up")]
    pub(crate) dir: PathBuf,
    /// Run this many clusters, each with its schedulers and four emulated GPUs, as a federation with a group of three
    /// replicas and one frontend for all clusters. Ports of each cluster are 2000 above those of the one before.
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["config", "with_models", "autoscale", "repository"],
          value_parser = clap::value_parser!(u16).range(2..=4))]
    pub(crate) clusters: Option<u16>,
    /// With --clusters: milliseconds of silence after which a cluster's models are served by the others; default 10000.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1_000..=3_600_000))]
    pub(crate) unreachable_ms: Option<u64>,
    /// A model repository in Triton's layout: the CPU backend loads from it, and clients with the token in
    /// DIR/repository-token (of --dir) may load and unload its models.
    #[arg(long, value_name = "DIR")]
    pub(crate) repository: Option<PathBuf>,
    /// Address on which all processes listen: with different loopback addresses several clusters or federations run
    /// side by side, each with its own --dir. Ports stay the same. When the cluster is up, it prints which options its
    /// tools need.
    #[arg(long, value_name = "ADDRESS", value_parser = on_loopback)]
    pub(crate) host: Option<Ipv4Addr>,
    /// Noise of the emulated GPUs: their batches take a lognormal multiple, of mean one and with this standard
    /// deviation of the logarithm, of what profiles say.
    #[arg(long, value_name = "SIGMA", allow_negative_numbers = true, value_parser = noise)]
    pub(crate) noise: Option<f64>,
    /// Load the demo's models when the cluster is up: digits, detect and mlp on the CPU, resnet50 on emulated GPUs, and
    /// the pipeline canvas of the first two.
    #[arg(long)]
    pub(crate) with_models: bool,
    /// Scale backends like the emulated one by the cluster's advice, within these bounds, for example 1..4; with one
    /// GPU each if no configuration is given.
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
    /// Configuration of a backend, shared by all replicas: replica N is named backend.name-N, and listens on the first
    /// free ports from backend.exec and backend.metrics on. Repeatable: one for each kind of GPU.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Vec<PathBuf>,
    /// Budget of all replicas per hour; no more are started, even if advised.
    #[arg(long, value_name = "PRICE", requires = "price_per_hour", value_parser = price)]
    pub(crate) budget_per_hour: Option<f64>,
    /// Price of one replica per hour, for each --config in order.
    #[arg(long, value_name = "PRICE", requires = "budget_per_hour", value_parser = price)]
    pub(crate) price_per_hour: Vec<f64>,
    /// Override a key, for example --set backend.subcluster=pool; repeatable.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Fewest replicas of each configuration; at least one, since a sub-cluster without GPUs measures no demand.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=REPLICAS_MAX))]
    pub(crate) min: u32,
    /// Most replicas of each configuration.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=REPLICAS_MAX))]
    pub(crate) max: u32,
    /// Interval between queries to the scaler, in milliseconds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub(crate) every_ms: u64,
    /// Relative deviation of the number of GPUs that is tolerated without scaling. Kubernetes' horizontal autoscaler
    /// has 0.1.
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    pub(crate) tolerance: f64,
    /// Scale down only to the largest number desired within this many seconds. Kubernetes' horizontal autoscaler has
    /// 300; the advice has a window of its own.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub(crate) down_stabilization_s: u64,
    /// Folder for configurations and logs of the replicas.
    #[arg(long, value_name = "DIR", default_value = "symphony-provision")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// Processes that one provisioner starts: more than a machine has cores for.
const REPLICAS_MAX: i64 = 256;

/// A price or a budget: above zero.
fn price(text: &str) -> Result<f64, String> {
    let expected = || format!("expected a number above 0, at most {PRICE_MAX}");
    text.parse().ok().filter(|&price| price > 0.0 && price <= PRICE_MAX).ok_or_else(expected)
}

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
    /// Folder for configurations, models, logs and Raft data. Default: a fresh folder in the system's temporary
    /// directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Seed of arrivals and random inputs.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Noise of the emulated GPUs: their batches take a lognormal multiple, of mean one and with this standard
    /// deviation of the logarithm, of what profiles say.
    #[arg(long, value_name = "SIGMA", allow_negative_numbers = true, default_value_t = 0.0, value_parser = noise)]
    pub(crate) noise: f64,
    /// Print the report as JSON.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

fn on_loopback(text: &str) -> Result<Ipv4Addr, String> {
    let host: Ipv4Addr = text.parse().map_err(|_| "expected an IPv4 address".to_owned())?;
    if host.is_loopback() {
        Ok(host)
    } else {
        Err("expected an address of loopback, 127.0.0.1 to 127.255.255.254".into())
    }
}
