//! `symphony load`: open-loop load on a running cluster.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use symphony_load::{
    ArrivalKind, DigitInputs, EmulatedInputs, GrpcTarget, InputSet, LagLimits, LoadPlan, ModelLoad, NativeTarget,
    RandomInputs, Report, RestTarget, run as run_load,
};
use symphony_net::{Net, Role};
use symphony_protocol::view::{ModelSource, View};
use symphony_repository::versions;
use symphony_transport::ControlClient;
use symphony_types::VersionedName;
use tokio_util::sync::CancellationToken;

use crate::cli::{ClusterArgs, LOAD_FRONTEND, Output, PublicArgs, frontend_in};
use crate::context::Named;
use crate::exit::bad_input;
use crate::node::until_told_to_stop;

/// How long to look for a replica that answers.
const WITHIN: Duration = Duration::from_secs(5);
/// Where the frontend of `symphony up` is if nothing else is said.
const GRPC_OF_UP: &str = "127.0.0.1:8001";
const REST_OF_UP: &str = "127.0.0.1:8000";

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Model and rate in requests per second, for example digits=50; repeatable. Of a model with versions the latest,
    /// or as in digits@2=50.
    #[arg(long = "model", value_name = "NAME=RPS", required = true)]
    models: Vec<String>,
    /// Seconds that count. Ctrl-C ends the run before: answers are waited for, and the report is of what was sent.
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
    /// Frontend for grpc or rest; that of the context, or of `symphony up` (ports 8001, 8000), if not given. Not needed
    /// for native.
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
    public: PublicArgs,
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
    let cluster = match args.frontend {
        Some(_) => args.cluster.clone().at_another_place(),
        None => args.cluster.clone(),
    };
    let frontend = frontend(args, cluster.context()?)?;
    let control = cluster.control()?;
    let view = control.get(false, WITHIN).await?;
    let plan = plan(args, &view)?;
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        if until_told_to_stop(Vec::new()).await.is_ok() {
            told.cancel();
        }
    });
    let access = args.public.access(&cluster)?;
    let report = match args.protocol {
        Protocol::Grpc => {
            let target = GrpcTarget::connect_as(&frontend, args.connections, &access).await?;
            run_load(plan, Arc::new(target), stop).await
        }
        Protocol::Rest => {
            let target = RestTarget::connect_as(&frontend, &access).await?;
            run_load(plan, Arc::new(target), stop).await
        }
        Protocol::Native => {
            let net = native_net(&cluster)?;
            let control = ControlClient::new(&net, &cluster.addresses()?).map_err(bad_input)?;
            let target = NativeTarget::join(&net, &control, crate::node::fresh_boot()).await?;
            let target = Arc::new(target);
            let report = run_load(plan, Arc::clone(&target), stop).await;
            target.leave().await;
            report
        }
    }
    .map_err(bad_input)?;
    show(&report, args.output)?;
    anyhow::ensure!(report.verdict.passed(), "{}", report.verdict);
    let wrong = report.total.lost + report.total.answered_twice + report.total.foreign;
    anyhow::ensure!(wrong == 0, "{wrong} requests were lost, answered twice, or answered with another's answer");
    Ok(())
}

/// Where requests go.
fn frontend(args: &LoadArgs, context: Option<Named>) -> anyhow::Result<String> {
    if let Some(given) = &args.frontend {
        return Ok(given.clone());
    }
    match args.protocol {
        Protocol::Grpc => frontend_in(context, "frontend-grpc", GRPC_OF_UP, |context| context.frontend_grpc),
        Protocol::Rest => frontend_in(context, "frontend-rest", REST_OF_UP, |context| context.frontend_rest),
        // It is one itself.
        Protocol::Native => Ok(String::new()),
    }
}

/// How a load generator talks to the cluster of which it is a frontend.
fn native_net(cluster: &ClusterArgs) -> anyhow::Result<Net> {
    let remedy = "symphony load --protocol native is a frontend of the cluster and needs a frontend's certificate: --identity frontend-load \
                  (`symphony up` makes that one, `symphony certs` makes others)";
    let net = cluster.net_as(LOAD_FRONTEND).map_err(|error| bad_input(format!("{error:#}; {remedy}")))?;
    match net.credentials().map(|credentials| credentials.facts().identity) {
        Some(identity) if identity.role != Role::Frontend => {
            Err(bad_input(format!("--identity: {} {} is no frontend; {remedy}", identity.role, identity.name)))
        }
        _ => Ok(net),
    }
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
        // Inputs are made for the latest version. The frontends choose for each request, as for any client's; with
        // frames there is nobody who would.
        let latest = || versions(view, name).max_by_key(|(name, _)| VersionedName::parse(name).version);
        let exact = view.model_named(name).map(|(_, model)| model);
        let model = exact.or_else(|| latest().map(|(_, model)| model)).ok_or_else(|| {
            let known: Vec<_> = view.models.values().map(|m| m.spec.name.as_str()).collect();
            bad_input(format!("--model {text}: no such model; loaded are: {}", known.join(", ")))
        })?;
        let named_digits = VersionedName::parse(name).name == "digits";
        let digits = args.inputs.map_or(named_digits, |inputs| inputs == Inputs::Digits);
        let seed = args.seed.wrapping_add(index as u64);
        let inputs: Arc<dyn InputSet> = match model.spec.source {
            _ if digits => Arc::new(DigitInputs::new()),
            ModelSource::Emulated => Arc::new(EmulatedInputs::new(&model.spec.signature, args.items, seed)),
            ModelSource::Onnx(_) => Arc::new(RandomInputs::new(&model.spec.signature, args.items, seed)),
        };
        models.push(ModelLoad {
            model: if args.protocol == Protocol::Native { model.spec.name.as_str() } else { name }.into(),
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use symphony_executor::default_signature;
    use symphony_protocol::view::{ModelSpec, ModelView};
    use symphony_types::{ModelId, Nanos, RequestValue, SubclusterId, Transforms};

    use super::*;
    use crate::cli::{Cli, Command};

    fn loaded(name: &str) -> ModelView {
        let spec = ModelSpec {
            name: name.into(),
            subcluster: "default".into(),
            slo: Nanos::from_millis_f64(50.0),
            source: ModelSource::Emulated,
            signature: default_signature(),
            transforms: Transforms::default(),
            profiles: [].into(),
            policy: Default::default(),
            value: RequestValue::default(),
        };
        ModelView { spec, subcluster: SubclusterId::new(1), holders: [].into(), moving: None }
    }

    #[test]
    fn of_a_model_with_versions_the_latest_is_loaded_or_the_one_that_is_named() {
        let names = ["m@2", "m@10", "m@9", "other"];
        let models = names.iter().zip(1..).map(|(name, id)| (ModelId::new(id), loaded(name))).collect();
        let view = View { models, ..View::default() };
        let by = |protocol: &str, model: &str| {
            let cli = Cli::try_parse_from(["symphony", "load", "--model", model, "--protocol", protocol]).unwrap();
            let Command::Load(args) = cli.command else { panic!("another command was read") };
            plan(&args, &view).map(|plan| plan.models[0].model.to_string())
        };
        let planned = |model: &str| by("native", model);
        assert_eq!(planned("m=5").unwrap(), "m@10");
        assert_eq!(by("grpc", "m=5").unwrap(), "m", "it follows a roll-out");
        assert_eq!(planned("m@2=5").unwrap(), "m@2");
        assert_eq!(planned("other=5").unwrap(), "other");
        assert!(planned("m@3=5").unwrap_err().to_string().contains("loaded are: m@2, m@10, m@9, other"));
    }
}
