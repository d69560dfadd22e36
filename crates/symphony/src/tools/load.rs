//! `symphony load`: open-loop load on a running cluster.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use symphony::load::{
    ArrivalKind, DigitInputs, EmulatedInputs, GrpcTarget, InputSet, LagLimits, LoadPlan, ModelLoad, NativeTarget,
    RandomInputs, Report, RestTarget, run as run_load,
};
use symphony_protocol::view::{ModelSource, View};
use tokio_util::sync::CancellationToken;

use crate::cli::{ClusterArgs, Output};
use crate::exit::bad_input;

/// How long to look for a replica that answers.
const WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Model and rate in requests per second, for example digits=50; repeatable.
    #[arg(long = "model", value_name = "NAME=RPS", required = true)]
    models: Vec<String>,
    /// Seconds that count.
    #[arg(long, default_value_t = 10.0)]
    duration_s: f64,
    /// Seconds before counting begins.
    #[arg(long, default_value_t = 1.0)]
    warmup_s: f64,
    /// poisson, uniform, or gamma:SHAPE (below 1 is burstier than Poisson).
    #[arg(long, default_value = "poisson", value_parser = parse_arrival)]
    arrival: ArrivalKind,
    /// Items per request.
    #[arg(long, default_value_t = 1)]
    items: u32,
    /// How requests travel.
    #[arg(long, value_enum, default_value_t = Protocol::Grpc)]
    protocol: Protocol,
    /// Frontend for grpc (port 8001) or rest (port 8000); not needed for native.
    #[arg(long, value_name = "HOST:PORT")]
    frontend: Option<String>,
    /// Connections to the frontend.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// What is sent: the digits test set (answers are judged), or random inputs (answers of emulated models are
    /// checked). By default digits for a model of that name, random for others.
    #[arg(long, value_enum)]
    inputs: Option<Inputs>,
    /// Milliseconds that the way there and back may add to the SLO, which the server counts from its first byte.
    #[arg(long, default_value_t = 0.0)]
    slack_ms: f64,
    /// Largest lag of this program itself at the 99th percentile, in milliseconds; beyond it the run fails.
    #[arg(long, default_value_t = 5.0)]
    lag_p99_ms: f64,
    /// Largest lag of this program itself, in milliseconds.
    #[arg(long, default_value_t = 100.0)]
    lag_max_ms: f64,
    /// Seed of arrivals and inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// Open Inference Protocol over gRPC.
    Grpc,
    /// Open Inference Protocol over REST.
    Rest,
    /// Frames: this process is a frontend of the cluster itself.
    Native,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Inputs {
    /// The digits test set.
    Digits,
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

pub(crate) async fn run(args: &LoadArgs) -> anyhow::Result<()> {
    let control = args.cluster.control()?;
    let view = control.get(false, WITHIN).await?;
    let plan = plan(args, &view)?;
    let address = |port| args.frontend.clone().unwrap_or_else(|| format!("127.0.0.1:{port}"));
    let stop = CancellationToken::new();
    let report = match args.protocol {
        Protocol::Grpc => {
            let target = GrpcTarget::connect(&address(8001), args.connections).await?;
            run_load(plan, Arc::new(target), stop).await
        }
        Protocol::Rest => {
            let target = RestTarget::connect(&address(8000)).await?;
            run_load(plan, Arc::new(target), stop).await
        }
        Protocol::Native => {
            let target = NativeTarget::join(&args.cluster.net()?, &control, crate::node::fresh_boot()).await?;
            run_load(plan, Arc::new(target), stop).await
        }
    }
    .map_err(bad_input)?;
    show(&report, args.output)?;
    anyhow::ensure!(report.verdict.passed(), "{}", report.verdict);
    let wrong = report.total.lost + report.total.answered_twice + report.total.foreign;
    anyhow::ensure!(wrong == 0, "{wrong} requests were lost, answered twice, or answered with another's answer");
    Ok(())
}

fn show(report: &Report, output: Output) -> anyhow::Result<()> {
    match output {
        Output::Table => print!("{}", report.table()),
        Output::Json => println!("{}", serde_json::to_string_pretty(report)?),
    }
    Ok(())
}

fn plan(args: &LoadArgs, view: &View) -> anyhow::Result<LoadPlan> {
    let seconds = |key: &str, value: f64| {
        Duration::try_from_secs_f64(value)
            .map_err(|_| bad_input(format!("{key} {value}: expected seconds, not negative")))
    };
    let millis = |key: &str, value: f64| seconds(key, value / 1e3);
    let slack = millis("--slack-ms", args.slack_ms)?;
    let mut models = Vec::new();
    for (index, text) in args.models.iter().enumerate() {
        let (name, rate) =
            text.split_once('=').ok_or_else(|| bad_input(format!("--model {text}: expected NAME=RPS")))?;
        let rate_rps = rate.parse().map_err(|_| bad_input(format!("--model {text}: `{rate}` is no number")))?;
        let (_, model) = view.model_named(name).ok_or_else(|| {
            let known: Vec<_> = view.models.values().map(|m| m.spec.name.as_str()).collect();
            bad_input(format!("--model {text}: no such model; loaded are: {}", known.join(", ")))
        })?;
        let digits = args.inputs.map_or(name == "digits", |inputs| inputs == Inputs::Digits);
        let seed = args.seed.wrapping_add(index as u64);
        let inputs: Arc<dyn InputSet> = match model.spec.source {
            _ if digits => Arc::new(DigitInputs::new()),
            ModelSource::Emulated => Arc::new(EmulatedInputs::new(&model.spec.signature, args.items, seed)),
            ModelSource::Onnx(_) => Arc::new(RandomInputs::new(&model.spec.signature, args.items, seed)),
        };
        models.push(ModelLoad {
            model: name.into(),
            rate_rps,
            arrival: args.arrival,
            slo: model.spec.slo.into(),
            slack,
            timeout: None,
            inputs,
        });
    }
    Ok(LoadPlan {
        seed: args.seed,
        warmup: seconds("--warmup-s", args.warmup_s)?,
        duration: seconds("--duration-s", args.duration_s)?,
        grace: Duration::from_secs(5),
        lag: LagLimits { p99: millis("--lag-p99-ms", args.lag_p99_ms)?, max: millis("--lag-max-ms", args.lag_max_ms)? },
        models,
    })
}
