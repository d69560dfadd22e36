//! `symphony model`: load, unload, generate.

use std::path::Path;
use std::time::Duration;

use symphony_protocol::control as pb;
use symphony_protocol::view::{ModelSpec, NoGpu, Readiness, Shadow, Traffic};
use symphony_repository::{Repository, Rollout, change_model, set_traffic, versions};
use symphony_transport::{AGREE_WITHIN, ControlClient};
use symphony_types::{Nanos, OperationId, RequestValue, VersionedName};
use symphony_zoo::{Architecture, Mlp};

use super::operation::{not_done, query_error};
use super::requested_model::{RequestedModel, Spelling};
use super::roll_out::{roll_out, tried_out, warn_no_gpu};
use crate::cli::{ModelCommand, ModelGenerateArgs, ModelLoadArgs, ModelSetArgs, ModelTrafficArgs, ModelUnloadArgs};
use crate::exit::bad_input;
use crate::inspect::models::decides;

pub(crate) async fn run(command: ModelCommand) -> anyhow::Result<()> {
    match command {
        ModelCommand::Load(args) => load(&args).await,
        ModelCommand::Unload(args) => unload(&args).await,
        ModelCommand::Set(args) => set(&args).await,
        ModelCommand::Traffic(args) => traffic(&args).await,
        ModelCommand::Generate(args) => generate(&args),
    }
}

async fn load(args: &ModelLoadArgs) -> anyhow::Result<()> {
    if let Some(dir) = &args.repository {
        return load_from(dir, args).await;
    }
    let spec = spec(args)?;
    if let Some(federation) = args.federation.client(&args.cluster)? {
        let (where_to, wait) = ((args.wanted_rps, args.to_cluster.as_str()), Duration::from_secs(args.wait_s));
        return super::federation::load(&federation, &spec, where_to, args.operation.id(), wait).await;
    }
    let control = args.cluster.control()?;
    if args.wait_s == 0 {
        ask(&control, &spec, args.operation.id()).await?;
        println!("model {} is to be served; see `symphony get models`", spec.name);
        return Ok(());
    }
    load_and_wait(&control, &spec, args.operation.id(), Duration::from_secs(args.wait_s)).await?;
    println!("model {} is ready", spec.name);
    Ok(())
}

/// Adds a model to the cluster as its folder in a repository describes it.
async fn load_from(dir: &Path, args: &ModelLoadArgs) -> anyhow::Result<()> {
    if args.wait_s == 0 {
        return Err(bad_input(
            "--wait-s 0: this command has to wait until new versions are ready to unload old ones; expected 1 or more",
        ));
    }
    let model = Repository::open(dir).and_then(|repository| repository.model(&args.name)).map_err(bad_input)?;
    for note in &model.notes {
        eprintln!("note: {note}");
    }
    if let Some(federation) = args.federation.client(&args.cluster)? {
        let refused = "a federation loads models one by one and rolls no folder out: `symphony model load NAME@VERSION --federation \
                       --to-cluster CLUSTER`, or each cluster for itself, which are then its own models";
        return Err(super::federation::left_to_clusters(&federation, &args.name, refused, "model load").await);
    }
    let control = args.cluster.control()?;
    let rollout = tried_out(Rollout::to(&model), &args.canary)?;
    let newest = model.versions.last_key_value().map(|(version, _)| *version);
    let within = Duration::from_secs(args.wait_s);
    roll_out(&control, ("model", &model.name), rollout, (dir, newest), within).await?;
    for spec in model.versions.values() {
        println!("model {} is ready", spec.name);
    }
    Ok(())
}

/// Adds a model to the cluster and waits for the confirmation.
async fn ask(control: &ControlClient, spec: &ModelSpec, operation: OperationId) -> anyhow::Result<()> {
    let request = pb::LoadModelRequest { spec: Some(spec.into()), operation_id: operation.to_string() };
    let call = |mut client: pb::control_client::ControlClient<_>| {
        let request = request.clone();
        async move { client.load_model(request).await }
    };
    let reply = control.call(AGREE_WITHIN, call).await.map_err(|error| not_done(operation, error))?;
    if !reply.warning.is_empty() {
        eprintln!("warning: model {}: {}", spec.name, reply.warning);
    }
    Ok(())
}

/// Adds a model and waits until a backend is ready or reports a failure.
pub(crate) async fn load_and_wait(
    control: &ControlClient,
    spec: &ModelSpec,
    operation: OperationId,
    wait: Duration,
) -> anyhow::Result<()> {
    ask(control, spec, operation).await?;
    until_ready(control, &spec.name, wait).await?.map_err(|reason| {
        bad_input(format!(
            "model `{}` was not loaded: {reason}; `symphony model unload {}` removes it",
            spec.name, spec.name
        ))
    })
}

/// Waits until a backend has loaded the model, or could not load it; the error says why.
pub(crate) async fn until_ready(
    control: &ControlClient,
    name: &str,
    wait: Duration,
) -> anyhow::Result<Result<(), String>> {
    let mut view = control.watch(&format!("model load {name}"));
    let mut no_gpu = None;
    let ready = async {
        loop {
            let current = std::sync::Arc::clone(&view.borrow_and_update());
            match current.model_named(name).map(|(_, model)| model.readiness(&current)) {
                Some(Readiness::Ready) => return anyhow::Ok(Ok(())),
                Some(Readiness::Failed(reason)) => return Ok(Err(reason)),
                Some(Readiness::NoGpu(why)) => {
                    if no_gpu.replace(why) != Some(why) {
                        warn_no_gpu(name, why);
                    }
                }
                Some(Readiness::Loading) | None => no_gpu = None,
            }
            view.changed().await?;
        }
    };
    tokio::time::timeout(wait, ready).await.map_err(|_| {
        let why = no_gpu.map_or("no backend of its sub-cluster has reported", NoGpu::words);
        anyhow::anyhow!("model `{name}` is not ready after {} s: {why}; see `symphony get members`", wait.as_secs())
    })?
}

fn spec(args: &ModelLoadArgs) -> anyhow::Result<ModelSpec> {
    let requested = RequestedModel {
        spelling: Spelling::Options,
        name: &args.name,
        onnx: args.onnx.as_deref(),
        emulated: args.emulated,
        own_trunk: args.own_trunk,
        profile: args.profile.as_deref(),
        line_ms: (args.alpha_ms, args.beta_ms),
        batch_max: args.batch_max,
        gpu_kind: &args.gpu_kind,
        transforms: args.transforms.as_deref(),
        slo_ms: args.slo_ms.unwrap_or_default(),
        subcluster: &args.subcluster,
        policy: args.policy,
        value: args.value,
        values_count_anyway: args.federation.federation.is_some(),
    };
    requested.spec()
}

async fn unload(args: &ModelUnloadArgs) -> anyhow::Result<()> {
    if let Some(federation) = args.federation.client(&args.cluster)? {
        return super::federation::unload(&federation, &args.name, args.operation.id()).await;
    }
    let control = args.cluster.control()?;
    let view = control.get(true, AGREE_WITHIN).await.map_err(query_error)?;
    let mut all: Vec<_> = versions(&view, &args.name).map(|(loaded_as, _)| loaded_as.to_owned()).collect();
    all.sort_unstable();
    if all.is_empty() {
        // The cluster reports that there is none.
        all = vec![args.name.clone()];
    } else if all.len() > 1 && args.operation.operation_id.is_some() {
        let all = all.join(", ");
        return Err(bad_input(format!("--operation-id names one command; unload the versions one by one: {all}")));
    }
    for name in all {
        let operation = args.operation.id();
        let call = |mut client: pb::control_client::ControlClient<_>| {
            let request = pb::UnloadModelRequest { name: name.clone(), operation_id: operation.to_string() };
            async move { client.unload_model(request).await }
        };
        control.call(AGREE_WITHIN, call).await.map_err(|error| not_done(operation, error))?;
        println!("model {name} is unloaded");
    }
    Ok(())
}

async fn set(args: &ModelSetArgs) -> anyhow::Result<()> {
    if let Some(federation) = args.federation.client(&args.cluster)? {
        let refused = "a federation keeps what a model was loaded with, and a copy begins with that wherever the model moves: unload it and \
                       load it anew, or change its copy for as long as it stays in its cluster";
        return Err(super::federation::left_to_clusters(&federation, &args.name, refused, "model set").await);
    }
    let (control, operation) = (args.cluster.control()?, args.operation.id());
    let view = control.get(true, AGREE_WITHIN).await.map_err(query_error)?;
    let known: Vec<_> = versions(&view, &args.name).map(|(loaded_as, _)| loaded_as).collect();
    if !known.is_empty() && !known.contains(&args.name.as_str()) {
        return Err(bad_input(format!("`{}`: expected one of its versions: {}", args.name, known.join(", "))));
    }
    let request = pb::ChangeModelRequest {
        name: args.name.clone(),
        slo_ns: args.slo_ms.map(|slo_ms| Spelling::Options.slo(slo_ms)).transpose()?.map(Nanos::get),
        policy: args.policy.map(|policy| policy.to_string()),
        value_thousandths: args
            .value
            .map(|value| Spelling::Options.value(value))
            .transpose()?
            .map(RequestValue::thousandths),
        operation_id: operation.to_string(),
    };
    let changed = change_model(&control, request, AGREE_WITHIN).await;
    let warning = changed.map_err(|error| not_done(operation, error))?;
    if !warning.is_empty() {
        eprintln!("warning: model {}: {warning}", args.name);
    }
    let decides = view.model_named(&args.name).and_then(|(_, model)| decides(&view, model));
    if let Some(decides) = decides.filter(|_| args.policy.is_some()) {
        eprintln!("note: {decides} decides for its sub-cluster, and its own policy only when that ends");
    }
    println!("model {} is changed", args.name);
    Ok(())
}

async fn traffic(args: &ModelTrafficArgs) -> anyhow::Result<()> {
    if let Some(federation) = args.federation.client(&args.cluster)? {
        let refused = "a federation splits no requests: each cluster splits those for what it serves, and a canary is that of one cluster";
        return Err(super::federation::left_to_clusters(&federation, &args.name, refused, "model traffic").await);
    }
    let control = args.cluster.control()?;
    let traffic = Traffic {
        weights: args.weights.iter().copied().collect(),
        shadow: args.shadow.map(|(version, percent)| Shadow { version, percent }),
    };
    if !VersionedName::is_base_name(&args.name) {
        return Err(bad_input(format!("`{}`: expected the name of a model or pipeline without a version", args.name)));
    }
    if traffic.weights.len() < args.weights.len() {
        return Err(bad_input("a version is named twice; expected one weight for each"));
    }
    if traffic.is_empty() && !args.clear {
        let view = control.get(true, AGREE_WITHIN).await.map_err(query_error)?;
        if versions(&view, &args.name).next().is_none() && view.pipeline_versions(&args.name).is_empty() {
            return Err(bad_input(format!(
                "no model or pipeline is named `{}`; see `symphony get models` and `symphony get pipelines`",
                args.name
            )));
        }
        println!("{}", view.traffic.get(&args.name).cloned().unwrap_or_default());
        return Ok(());
    }
    let operation = args.operation.id();
    let set = set_traffic(&control, &args.name, &traffic, operation.to_string(), AGREE_WITHIN).await;
    set.map_err(|error| not_done(operation, error))?;
    println!("traffic of {}: {traffic}", args.name);
    Ok(())
}

fn generate(args: &ModelGenerateArgs) -> anyhow::Result<()> {
    let architecture = Architecture::by_name(&args.architecture).ok_or_else(|| {
        let known: Vec<_> = Architecture::all().iter().map(|a| a.name()).collect();
        bad_input(format!("unknown architecture `{}`; expected one of {}", args.architecture, known.join(", ")))
    })?;
    let architecture = match (args.hidden, architecture) {
        (None, architecture) => architecture,
        (Some(hidden), Architecture::Mlp(shape)) => Architecture::Mlp(Mlp { hidden, ..shape }),
        (Some(_), other) => {
            return Err(bad_input(format!("--hidden with {}; expected it with mlp only", other.name())));
        }
    };
    let model = match (args.head, architecture) {
        (None, architecture) => architecture.build(args.seed),
        (Some(head), Architecture::Mlp(shape)) => Architecture::mlp_head(shape, args.seed, head),
        (Some(_), other) => {
            return Err(bad_input(format!("--head with {}; expected it with mlp only", other.name())));
        }
    };
    let model = model.map_err(bad_input)?;
    model.write(&args.out)?;
    let megabytes = model.bytes().len() as f64 / 1e6;
    println!("{}: {} parameters, {megabytes:.1} MB", args.out.display(), model.parameters());
    Ok(())
}
