//! `symphony load`: open-loop load on a running cluster.

use std::sync::Arc;
use std::time::Duration;

use symphony_load::{
    DescribeModel, DigitInputs, EmulatedInputs, GrpcTarget, InputSet, LagLimits, LoadPlan, ModelDescription, ModelLoad,
    NativeTarget, RandomInputs, Report, RestTarget, run as run_load,
};
use symphony_net::{Net, Role};
use symphony_protocol::view::{ModelSource, ModelView, View};
use symphony_repository::versions;
use symphony_transport::ControlClient;
use symphony_types::{Signature, VersionedName};
use tokio_util::sync::CancellationToken;

use super::load_pipeline::{self, pipeline_in};
use super::load_trace::{LoadedModel, models_of_trace};
use crate::cli::{ClusterArgs, LOAD_FRONTEND, LoadArgs, LoadInputs, LoadProtocol, Output, frontend_in};
use crate::contexts::Named;
use crate::exit::bad_input;
use crate::node::until_told_to_stop;

/// How long to look for a replica that answers.
const WITHIN: Duration = Duration::from_secs(5);
/// Where the frontend of `symphony up` is by default.
const GRPC_OF_UP: &str = "127.0.0.1:8001";
const REST_OF_UP: &str = "127.0.0.1:8000";
/// Seconds of a run before requests count, by default.
const WARMUP_S: f64 = 1.0;
const DURATION_S: f64 = 10.0;
/// How much longer than the longest SLO answers are waited for after the last request: a leader may die meanwhile.
const GRACE: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &LoadArgs) -> anyhow::Result<()> {
    let cluster = &args.cluster;
    // A context's key is not for a frontend that the command line names.
    let at_frontend = match args.frontend {
        Some(_) => cluster.clone().at_another_place(),
        None => cluster.clone(),
    };
    let frontend = frontend(args, cluster.context()?)?;
    let known = match args.as_client {
        true => None,
        false => Some(plan(args, &cluster.control()?.get(false, WITHIN).await?)?),
    };
    let stop = CancellationToken::new();
    let on_signal = stop.clone();
    tokio::spawn(async move {
        if until_told_to_stop(Vec::new()).await.is_ok() {
            on_signal.cancel();
        }
    });
    let access = args.public.access(&at_frontend)?;
    let report = match args.protocol {
        LoadProtocol::Grpc => {
            let target = GrpcTarget::connect_as(&frontend, args.connections, &access).await?;
            let plan = known_or_described(args, known, &target).await?;
            run_load(plan, Arc::new(target), stop).await
        }
        LoadProtocol::Rest => {
            let target = RestTarget::connect_as(&frontend, &access).await?;
            let plan = known_or_described(args, known, &target).await?;
            run_load(plan, Arc::new(target), stop).await
        }
        LoadProtocol::Native => {
            let plan = known.ok_or_else(|| {
                bad_input("--as-client: expected --protocol grpc or rest; with native this process is no client")
            })?;
            let net = native_net(cluster)?;
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
        LoadProtocol::Grpc => frontend_in(context, "frontend-grpc", GRPC_OF_UP, |context| context.frontend_grpc),
        LoadProtocol::Rest => frontend_in(context, "frontend-rest", REST_OF_UP, |context| context.frontend_rest),
        // It is one itself.
        LoadProtocol::Native => Ok(String::new()),
    }
}

/// The connections of a load generator to the cluster of which it is a frontend.
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

/// A model or pipeline, as requests are made for it.
struct LoadTarget {
    name: String,
    slo: Duration,
    inputs: Arc<dyn InputSet>,
}

/// The plan that was made of what schedulers know, or else one of what the frontend says.
async fn known_or_described(
    args: &LoadArgs,
    known: Option<LoadPlan>,
    frontend: &impl DescribeModel,
) -> anyhow::Result<LoadPlan> {
    if let Some(plan) = known {
        return Ok(plan);
    }
    let given = given(args)?;
    let mut described = Vec::with_capacity(given.len());
    for model in &given {
        let answer = frontend.describe(&model.name).await;
        described.push(answer.map_err(|error| bad_input(format!("{}: {error}", model.given)))?);
    }
    planned(args, given, |index, given, seed| target_as_described(args, given, &described[index], seed))
}

fn plan(args: &LoadArgs, view: &View) -> anyhow::Result<LoadPlan> {
    planned(args, given(args)?, |_, given, seed| target_in_view(args, given, view, seed))
}

fn given(args: &LoadArgs) -> anyhow::Result<Vec<LoadedModel>> {
    match &args.trace {
        Some(path) => models_of_trace(path, args.speed.unwrap_or(1.0), &args.map),
        None => models_of_rates(args),
    }
}

/// `target` makes the target of the model with that index, with inputs of a seed.
fn planned(
    args: &LoadArgs,
    given: Vec<LoadedModel>,
    target: impl Fn(usize, &LoadedModel, u64) -> anyhow::Result<LoadTarget>,
) -> anyhow::Result<LoadPlan> {
    let seconds = |key: &str, value: f64| {
        Duration::try_from_secs_f64(value)
            .map_err(|_| bad_input(format!("{key} {value}: expected seconds, not negative")))
    };
    let millis = |key: &str, value: f64| seconds(key, value / 1e3);
    let slack = millis("--slack-ms", args.slack_ms)?;
    let ends = given.iter().filter_map(LoadedModel::ends).max();
    let warmup_s = args.warmup_s.unwrap_or(if ends.is_some() { 0.0 } else { WARMUP_S });
    let warmup = seconds("--warmup-s", warmup_s)?;
    let duration = match (args.duration_s, ends) {
        (None, Some(ends)) if ends <= warmup => {
            let ends_s = ends.as_secs_f64();
            return Err(bad_input(format!("--warmup-s {warmup_s}: expected less than the {ends_s} s of the trace")));
        }
        (None, Some(ends)) => ends - warmup,
        (given, _) => seconds("--duration-s", given.unwrap_or(DURATION_S))?,
    };
    let models = given.into_iter().enumerate().map(|(index, given)| -> anyhow::Result<ModelLoad> {
        let LoadTarget { name, slo, inputs } = target(index, &given, args.seed.wrapping_add(index as u64))?;
        Ok(ModelLoad {
            model: name.into(),
            rate_rps: given.rate_rps,
            arrival: args.arrival,
            recorded: given.recorded,
            slo,
            slack,
            timeout: None,
            inputs,
        })
    });
    let models = models.collect::<anyhow::Result<Vec<_>>>()?;
    let slo_max = models.iter().map(|model| model.slo).max().unwrap_or_default();
    Ok(LoadPlan {
        seed: args.seed,
        models,
        warmup,
        duration,
        grace: slo_max + GRACE,
        lag: LagLimits { p99: millis("--lag-p99-ms", args.lag_p99_ms)?, max: millis("--lag-max-ms", args.lag_max_ms)? },
    })
}

fn models_of_rates(args: &LoadArgs) -> anyhow::Result<Vec<LoadedModel>> {
    let model = |text: &String| -> anyhow::Result<LoadedModel> {
        let (name, rate) =
            text.split_once('=').ok_or_else(|| bad_input(format!("--model {text}: expected NAME=RPS")))?;
        let rate_rps = rate.parse().map_err(|_| bad_input(format!("--model {text}: `{rate}` is no number")))?;
        let (given, name) = (format!("--model {text}"), name.to_owned());
        Ok(LoadedModel { given, name, rate_rps, recorded: None, items: [args.items].into() })
    };
    args.models.iter().map(model).collect()
}

/// The model that is loaded. Inputs are made for the latest version. The frontends choose for each request, as for any
/// client's; with frames no frontend chooses.
fn model_in<'a>(view: &'a View, given: &'a LoadedModel) -> anyhow::Result<&'a ModelView> {
    let latest = || versions(view, &given.name).max_by_key(|(name, _)| VersionedName::parse(name).version);
    let exact = view.model_named(&given.name).map(|(_, model)| model);
    exact.or_else(|| latest().map(|(_, model)| model)).ok_or_else(|| {
        let models = view.models.values().map(|m| m.spec.name.as_str());
        let known: Vec<_> = models.chain(view.pipelines.keys().map(String::as_str)).collect();
        bad_input(format!("{}: no such model; loaded are: {}", given.given, known.join(", ")))
    })
}

/// How it is asked, by what the schedulers know.
fn target_in_view(args: &LoadArgs, given: &LoadedModel, view: &View, seed: u64) -> anyhow::Result<LoadTarget> {
    if let Some(pipeline) = pipeline_in(view, &given.name) {
        return target_as_described(args, given, &load_pipeline::description(pipeline), seed);
    }
    let spec = &model_in(view, given)?.spec;
    let name = if args.protocol == LoadProtocol::Native { &spec.name } else { &given.name };
    let inputs = inputs(args, given, matches!(spec.source, ModelSource::Emulated), &spec.signature, seed)?;
    Ok(LoadTarget { name: name.clone(), slo: spec.slo.into(), inputs })
}

/// How it is asked, by what its clients may know.
fn target_as_described(
    args: &LoadArgs,
    given: &LoadedModel,
    described: &ModelDescription,
    seed: u64,
) -> anyhow::Result<LoadTarget> {
    let inputs = match (described.platform.as_str(), described.tensors()) {
        (ModelDescription::PIPELINE, _) => load_pipeline::inputs(args.inputs, given, described, seed)?,
        (platform, Some(signature)) => inputs(args, given, platform == ModelDescription::EMULATED, &signature, seed)?,
        (_, None) => {
            let (given, name) = (&given.given, &described.name);
            return Err(bad_input(format!("{given}: `{name}` takes pictures; expected a model that takes tensors")));
        }
    };
    Ok(LoadTarget { name: given.name.clone(), slo: described.slo, inputs })
}

fn inputs(
    args: &LoadArgs,
    given: &LoadedModel,
    is_emulated: bool,
    signature: &Signature,
    seed: u64,
) -> anyhow::Result<Arc<dyn InputSet>> {
    let named_digits = VersionedName::parse(&given.name).name == "digits";
    let several = given.recorded.is_some() && given.items.iter().any(|&items| items != 1);
    let items = || Arc::clone(&given.items);
    let inputs: Arc<dyn InputSet> = match (args.inputs, is_emulated) {
        (Some(LoadInputs::Digits), _) if several => {
            return Err(bad_input(format!(
                "{}: --inputs digits sends one item in each request, and it has more",
                given.given
            )));
        }
        (Some(LoadInputs::Digits), _) => Arc::new(DigitInputs::new()),
        (Some(LoadInputs::Canvases), _) => {
            let (given, name) = (&given.given, &given.name);
            return Err(bad_input(format!("{given}: --inputs canvases are for pipelines, and `{name}` is a model")));
        }
        (None, _) if named_digits && !several => Arc::new(DigitInputs::new()),
        (_, true) => Arc::new(EmulatedInputs::with_items(signature, items(), seed)),
        (_, false) => Arc::new(RandomInputs::with_items(signature, items(), seed)),
    };
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use symphony_executor::default_signature;
    use symphony_protocol::view::ModelSpec;
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
        ModelView { spec, subcluster: SubclusterId::new(1), holders: [].into(), moving: None, trunk: None }
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
