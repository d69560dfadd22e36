//! `symphony sim`, `paper`, `replay`.

use std::path::PathBuf;

use clap::Args;

use super::Output;

#[cfg(feature = "simulation")]
const EXPLAINED_MAX: i64 = symphony_simulator::EXPLAINED_MAX as i64;
/// As many as there are: the command is refused.
#[cfg(not(feature = "simulation"))]
const EXPLAINED_MAX: i64 = u16::MAX as i64;

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
    /// The scenario (TOML); its format is in docs/reference/scenarios.md.
    #[arg(value_name = "SCENARIO.toml")]
    pub(crate) scenario: PathBuf,
    /// Policy, in place of the scenario's: symphony, auto, eager, timeout, clipper, clockwork, nexus, shepherd, kairos,
    /// ribbon, drs, clkwrk or one that the program adds; or a table such as '{ name = "nexus", frontends = 8 }'.
    #[arg(long)]
    pub(crate) policy: Option<String>,
    /// Find the highest rate at which every model's p99 meets its SLO, within 1 %.
    #[arg(long)]
    pub(crate) find_goodput: bool,
    /// Override a key, for example --set workload.rate_rps=5000; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Parallel runs; by default the number of cores.
    #[arg(long, value_parser = threads)]
    pub(crate) threads: Option<usize>,
    /// Write a timeline of GPUs and queues of the first seed's run: FILE.json for Perfetto and chrome://tracing,
    /// FILE.svg as a picture.
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,
    /// Start of the timeline, in seconds; by default the end of the warm-up.
    #[arg(long, value_name = "SECONDS", requires = "timeline")]
    pub(crate) timeline_from_s: Option<f64>,
    /// Length of the timeline, in seconds. Default: 5 for a trace, 0.25 for a picture.
    #[arg(long, value_name = "SECONDS", requires = "timeline")]
    pub(crate) timeline_for_s: Option<f64>,
    /// Explain what became of a request of the first seed's run, and why: its sequence number (arrivals count from 0),
    /// or its id as in f0/1/17; repeatable.
    #[arg(long, value_name = "REQUEST")]
    pub(crate) explain: Vec<String>,
    /// Explain this many of the requests that were dropped or late after the warm-up, the worst first.
    #[arg(long, value_name = "COUNT", conflicts_with = "explain",
          value_parser = clap::value_parser!(u16).range(1..=EXPLAINED_MAX))]
    pub(crate) explain_worst: Option<u16>,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct PaperArgs {
    /// A name from the list, `list`, `all`, or a paper: `symphony`, `nexus`, `kairos` or `blox`.
    #[arg(value_name = "LIST|NAME|PAPER|all")]
    pub(crate) name: String,
    /// Folder to write to; created if missing. The repository keeps them in docs/papers.
    #[arg(long, value_name = "DIR", default_value = "papers")]
    pub(crate) out: PathBuf,
    /// Folder with measurements of others, for the papers that need them; they are not part of the repository.
    #[arg(long, value_name = "DIR", env = "SYMPHONY_DATA")]
    pub(crate) data: Option<PathBuf>,
    /// Short runs, one seed, few points: about a minute for all.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Parallel runs; by default the number of cores.
    #[arg(long, value_parser = threads)]
    pub(crate) threads: Option<usize>,
}

/// Threads: at least one, and no more than any machine has cores.
pub(super) fn threads(text: &str) -> Result<usize, String> {
    const THREADS_MAX: usize = 4096;
    let expected = || format!("expected 1 to {THREADS_MAX} threads");
    text.parse().ok().filter(|threads| (1..=THREADS_MAX).contains(threads)).ok_or_else(expected)
}
