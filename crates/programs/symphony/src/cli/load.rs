//! The arguments of `symphony load`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use symphony_load::ArrivalKind;

use super::{ClusterArgs, Output, PublicArgs, renamed};

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Model or pipeline, and rate in requests per second, for example digits=50; repeatable. Of a model with versions
    /// the latest, or as in digits@2=50.
    #[arg(long = "model", value_name = "NAME=RPS", required_unless_present = "trace")]
    pub(crate) models: Vec<String>,
    /// Send recorded requests at their times instead: a CSV with time_s,model,items,slo_ms, as `symphony trace convert`
    /// and `symphony tape arrivals` write it. A request with an slo_ms has that deadline, or its model's SLO if that is
    /// less.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["models", "arrival", "items"])]
    pub(crate) trace: Option<PathBuf>,
    /// With --trace: speed factor.
    #[arg(long, value_name = "FACTOR", requires = "trace")]
    pub(crate) speed: Option<f64>,
    /// With --trace: send requests for NAME to MODEL; repeatable. Other names stay.
    #[arg(long, value_name = "NAME=MODEL", requires = "trace", value_parser = renamed)]
    pub(crate) map: Vec<(String, String)>,
    /// Seconds that count; default 10, with --trace until its end. Ctrl-C ends the run early: it waits for answers and
    /// reports on what was sent.
    #[arg(long)]
    pub(crate) duration_s: Option<f64>,
    /// Seconds before counting begins; 1 if not given, and with --trace 0.
    #[arg(long)]
    pub(crate) warmup_s: Option<f64>,
    /// poisson, uniform, or gamma:SHAPE (below 1 is burstier than Poisson).
    #[arg(long, default_value = "poisson", value_parser = parse_arrival)]
    pub(crate) arrival: ArrivalKind,
    /// Items per request.
    #[arg(long, default_value_t = 1)]
    pub(crate) items: u32,
    /// How requests travel.
    #[arg(long, value_enum, default_value_t = LoadProtocol::Grpc)]
    pub(crate) protocol: LoadProtocol,
    /// Frontend for grpc or rest. Default: that of the context, or of `symphony up` (ports 8001, 8000). Not needed for
    /// native.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) frontend: Option<String>,
    /// Ask the frontend what the models take, as any client can, and not the schedulers: no certificate of the cluster
    /// is needed. For grpc and rest.
    #[arg(long)]
    pub(crate) as_client: bool,
    /// Connections to the frontend.
    #[arg(long, default_value_t = 4)]
    pub(crate) connections: usize,
    /// Inputs to send: the digits test set or canvases of it (answers are judged), or random inputs (answers of
    /// emulated models are checked). Default: digits for a model of that name, canvases for the pipeline canvas, random
    /// for others.
    #[arg(long, value_enum)]
    pub(crate) inputs: Option<LoadInputs>,
    /// Milliseconds that the network round trip may add to the SLO, which the server counts from the first byte.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) slack_ms: f64,
    /// Largest lag of this program behind its own schedule at the 99th percentile, in milliseconds; beyond it the run
    /// fails.
    #[arg(long, default_value_t = 5.0)]
    pub(crate) lag_p99_ms: f64,
    /// Largest lag of this program behind its own schedule, in milliseconds.
    #[arg(long, default_value_t = 100.0)]
    pub(crate) lag_max_ms: f64,
    /// Seed of arrivals and inputs.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) public: PublicArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadProtocol {
    /// Open Inference Protocol over gRPC.
    Grpc,
    /// Open Inference Protocol over REST.
    Rest,
    /// Frames: this process is a frontend of the cluster itself.
    Native,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadInputs {
    /// The digits test set.
    Digits,
    /// Pictures of several digits each, for a pipeline that finds them.
    Canvases,
    /// Random numbers.
    Random,
}

fn parse_arrival(text: &str) -> Result<ArrivalKind, String> {
    match text.split_once(':') {
        None if text == "poisson" => Ok(ArrivalKind::Poisson),
        None if text == "uniform" => Ok(ArrivalKind::Uniform),
        Some(("gamma", shape)) => match shape.parse() {
            Ok(shape) if shape > 0.0 => Ok(ArrivalKind::Gamma(shape)),
            _ => Err(format!("gamma:{shape}: expected a positive number")),
        },
        _ => Err(format!("`{text}`: expected poisson, uniform or gamma:SHAPE")),
    }
}
