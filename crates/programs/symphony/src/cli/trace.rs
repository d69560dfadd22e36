//! `symphony trace`, `tape`, `compare`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Output;

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Convert traces of other systems into one CSV of arrivals (time_s,model,items,slo_ms), which scenarios, `symphony
    /// load --trace` and `symphony trace convert --from arrivals` read.
    Convert(TraceConvertArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum TapeCommand {
    /// Write the requests that arrived at a lead as a CSV (time_s,model,items,slo_ms). The first one is at 0.
    Arrivals(TapeArrivalsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TapeArrivalsArgs {
    /// Tapes of one lead (scheduler.tape_dir); each of its workers has its own.
    #[arg(value_name = "TAPE", required = true)]
    pub(crate) tapes: Vec<PathBuf>,
    /// The CSV.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct TraceConvertArgs {
    /// The format of the files.
    #[arg(long, value_enum)]
    pub(crate) from: TraceFormat,
    /// The files. With azure2019 each file is one day after the one before; in other formats all begin at 0.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The CSV.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) part: TracePartArgs,
    /// Map a function or model NAME of the trace to MODEL; repeatable. Other names stay, unless --models or
    /// --only-mapped is given.
    #[arg(long, value_name = "NAME=MODEL", value_parser = renamed)]
    pub(crate) map: Vec<(String, String)>,
    /// Models for sources that --map does not name, by rank as in papers: the most invoked function is the first model;
    /// after the last model it starts again with the first.
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',')]
    pub(crate) models: Vec<String>,
    /// Leave out sources that --map does not name.
    #[arg(long, requires = "map", conflicts_with = "models")]
    pub(crate) only_mapped: bool,
    /// How to spread arrivals of which only the number per interval is known (azure2019, blox): at random, or evenly;
    /// default poisson.
    #[arg(long, value_enum)]
    pub(crate) spread: Option<SpreadName>,
    /// The seed of that; default 1.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Seconds for which a job of blox keeps its rate; default 30, an epoch of Nexus.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) job_s: Option<f64>,
}

/// Which part of a trace, and how fast.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TracePartArgs {
    /// Start of the part to take, in seconds of the trace.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub(crate) from_s: f64,
    /// Length of the part, in seconds of the trace; by default to its end.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) for_s: Option<f64>,
    /// Speed factor: at 2 it takes half of its time.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub(crate) speed: f64,
}

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceFormat {
    /// Azure Functions 2019: HashOwner,HashApp,HashFunction,Trigger,1,2,…: invocations of each minute.
    #[value(name = "azure2019")]
    Azure2019,
    /// Azure Functions 2021: app,func,end_timestamp,duration; the name is app/func.
    #[value(name = "azure2021")]
    Azure2021,
    /// Azure LLM inference 2023: TIMESTAMP,ContextTokens,GeneratedTokens; the name is that of the file.
    #[value(name = "azurellm")]
    AzureLlm,
    /// Replay logs of Nexus on Blox: job, model, slo in ms, requests per second, arrival in s.
    Blox,
    /// Our own: time_s,model,items,slo_ms.
    Arrivals,
}

impl TraceFormat {
    /// Its word on the command line.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Azure2019 => "azure2019",
            Self::Azure2021 => "azure2021",
            Self::AzureLlm => "azurellm",
            Self::Blox => "blox",
            Self::Arrivals => "arrivals",
        }
    }
}

/// How arrivals lie in a time of which only their number is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpreadName {
    /// Each anywhere in it.
    Poisson,
    /// At equal distances.
    Uniform,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Tapes of one lead (scheduler.tape_dir), of all its workers: model-0, … and rank, or policy.
    #[arg(value_name = "TAPE", required = true)]
    pub(crate) tapes: Vec<PathBuf>,
    /// The policies, as `symphony sim` takes them; also repeatable.
    #[arg(long = "policy", value_name = "POLICY,…", required = true)]
    pub(crate) policies: Vec<String>,
    /// Numbers of GPUs; by default as recorded. Several kinds keep their proportions.
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(symphony_workload::SCENARIO_GPUS_MAX)))]
    pub(crate) gpus: Vec<u32>,
    #[command(flatten)]
    pub(crate) part: TracePartArgs,
    /// Override a key of the scenario made from the tapes, for example --set network.ctrl_us=50; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Parallel runs; by default the number of cores.
    #[arg(long, value_parser = super::simulate::threads)]
    pub(crate) threads: Option<usize>,
    /// Also write a page with plots.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// `NAME=MODEL`.
pub(crate) fn renamed(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, model)) if !name.is_empty() && !model.is_empty() => Ok((name.to_owned(), model.to_owned())),
        _ => Err("expected NAME=MODEL".to_owned()),
    }
}
