//! `symphony demo`: the whole system on this machine with real input, a killed leader, and a report.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use indicatif::ProgressBar;
use symphony_config::{
    Address, BackendConfig, ClusterConfig, ExecutorKind, GpuConfig, NodeConfig, ReplicaConfig, Role, SchedulerConfig,
};
use symphony_executor::load_runtime;
use symphony_load::{
    ArrivalKind, CanvasInputs, DigitInputs, EmulatedInputs, GrpcTarget, InputSet, LagLimits, LoadPlan, ModelLoad,
    RandomInputs, RestTarget, run as run_load,
};
use symphony_pipeline::PipelineDeclaration;
use symphony_protocol::view::{ModelSource, ModelSpec, View};
use symphony_types::{Nanos, NodeId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::demo_models::{self, CANVAS, DIGITS, MLP, RESNET};
use super::demo_report::{DemoReport, DemoTarget, Takeover};
use super::layout::Layout;
use super::local_cluster::LocalCluster;
use super::signalled;
use crate::cli::{DemoArgs, Output};

/// Requests per second of each model and of the pipeline: well within the capacity of two busy cores.
const RATES: [(&str, f64); 4] = [(DIGITS, 60.0), (MLP, 40.0), (RESNET, 200.0), (CANVAS, 15.0)];
/// Load before counting begins.
const WARMUP: Duration = Duration::from_secs(2);
/// How long to wait for answers at the end.
const GRACE: Duration = Duration::from_secs(5);
/// How long a model or the pipeline may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long the cluster may take to appoint another leader.
const TAKEOVER_WITHIN: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: &DemoArgs) -> anyhow::Result<()> {
    tokio::select! {
        result = demo(args) => result,
        stopped = signalled() => {
            stopped?;
            anyhow::bail!("stopped by a signal")
        }
    }
}

async fn demo(args: &DemoArgs) -> anyhow::Result<()> {
    // Printed first, since everything else is useless without it.
    load_runtime(None)?;
    let dir = folder(args)?;
    let layout = layout(&dir, args.noise)?;
    eprintln!("folder: {}", dir.display());
    let models = demo_models::prepare(&layout, &dir)?;
    let mut cluster = LocalCluster::start(&layout, &dir).await?;
    eprintln!(
        "cluster is up: 3 schedulers, 2 backends, 1 frontend; console http://{}/ while it runs",
        layout.frontend.metrics
    );
    for model in &models {
        crate::tools::model::load_and_wait(
            &cluster.control,
            model,
            symphony_transport::fresh_operation_id(),
            READY_WITHIN,
        )
        .await?;
        eprintln!("model {} is ready in sub-cluster {}", model.name, model.subcluster);
    }
    let pipeline = demo_models::pipeline(&models)?.context("a backend runs the models of its stages")?;
    crate::tools::pipeline::ask(&cluster.control, &pipeline, symphony_transport::fresh_operation_id()).await?;
    crate::tools::pipeline::until_ready(&cluster.control, &pipeline.name, READY_WITHIN).await?;
    eprintln!("pipeline {} of detect and digits is ready", pipeline.name);
    let targets = DemoTarget::all(models.as_slice(), &pipeline);
    let report = load_and_kill(args, &layout, (models.as_slice(), &pipeline), &mut cluster).await;
    let ledger = ledger(&layout).await;
    cluster.stop();
    let (reports, takeover) = report?;
    let report = DemoReport::new(reports, takeover, ledger?, &targets, WARMUP, &dir);
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        Output::Table => print!("{report}"),
    }
    let failures = report.failures();
    anyhow::ensure!(failures.is_empty(), "the demo failed: {}", failures.join("; "));
    Ok(())
}

fn folder(args: &DemoArgs) -> anyhow::Result<PathBuf> {
    let dir = match &args.dir {
        Some(dir) => std::path::absolute(dir)?,
        None => std::env::temp_dir().join(format!("symphony-demo-{}", std::process::id())),
    };
    anyhow::ensure!(
        !dir.join("logs").exists(),
        "{} holds an earlier run; give another --dir or remove it",
        dir.display()
    );
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

/// Free ports on loopback, so that the demo does not conflict with other programs: below those that Linux gives to
/// clients, any of which could take one before its process has started.
fn free_addresses(count: usize) -> anyhow::Result<Vec<Address>> {
    const FIRST: u32 = 10_000;
    const PORTS: u32 = 22_000;
    // Demos at the same time begin elsewhere.
    let start = std::process::id() % PORTS * 64;
    let free = (0..PORTS).filter_map(|nth| {
        let port = u16::try_from(FIRST + (start + nth) % PORTS).ok()?;
        std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, port)).ok()
    });
    let listeners: Vec<_> = free.take(count).collect();
    anyhow::ensure!(listeners.len() == count, "got {} free ports on 127.0.0.1; expected {count}", listeners.len());
    listeners.iter().map(|l| Ok(Address::loopback(l.local_addr()?.port()))).collect()
}

fn layout(dir: &Path, noise: f64) -> anyhow::Result<Layout> {
    let mut free = free_addresses(3 * 4 + 4 + 2 * 2)?.into_iter();
    let mut next = || free.next().context("as many as were asked for");
    let mut replicas = Vec::new();
    for id in 1..=3 {
        replicas.push(ReplicaConfig { id: NodeId::new(id), control: next()?, dispatch: next()?, beat: next()? });
    }
    // Defaults come from the configuration; the demo only sets addresses and paths.
    let overrides = [
        "frontend.name=frontend".to_owned(),
        "backend.name=backend".to_owned(),
        "backend.gpus=[{ kind = \"cpu\", count = 1, memory_mb = 2048 }]".to_owned(),
        "scheduler.id=1".to_owned(),
        format!("scheduler.data_dir={}", dir.display()),
        "cluster.name=demo".to_owned(),
        "cluster.timing=relaxed".to_owned(),
        "cluster.scheduler=[{ id = 1, control = \"127.0.0.1:1\", dispatch = \"127.0.0.1:2\", beat = \"127.0.0.1:3\" }]"
            .to_owned(),
        // The worst delays of a shared machine, in both directions.
        "scheduler.delays.control_us=3000".to_owned(),
        "scheduler.delays.reply_us=120000".to_owned(),
        "scheduler.delays.guard_us=2000".to_owned(),
        "frontend.answer_grace_ms=2000".to_owned(),
    ];
    let config = NodeConfig::load(Role::Up, None, [], &overrides)?;
    let (Some(scheduler), Some(frontend), Some(backend)) = (config.scheduler, config.frontend, config.backend) else {
        anyhow::bail!("the defaults hold every section");
    };
    let mut schedulers = Vec::new();
    for replica in &replicas {
        let data_dir = dir.join(format!("raft-{}", replica.id.get()));
        schedulers.push(SchedulerConfig { id: replica.id, data_dir, metrics: next()?, ..scheduler.clone() });
    }
    let frontend =
        symphony_config::FrontendConfig { grpc: next()?, rest: next()?, metrics: next()?, data: next()?, ..frontend };
    let cpu = BackendConfig {
        name: "backend-cpu".into(),
        subcluster: "cpu".into(),
        exec: next()?,
        metrics: next()?,
        ..backend.clone()
    };
    let emulated = BackendConfig {
        name: "backend-emulated".into(),
        subcluster: "emulated".into(),
        exec: next()?,
        metrics: next()?,
        executor: ExecutorKind::Emulated,
        gpus: vec![GpuConfig { kind: "1080ti".into(), count: 4, memory_mb: 11_264 }],
        noise,
        ..backend
    };
    let cluster = ClusterConfig { scheduler: replicas, ..config.cluster };
    Ok(Layout {
        cluster,
        schedulers,
        frontend,
        guests: None,
        backends: vec![cpu, emulated],
        network: config.network,
        frames: config.frames,
        log: config.log,
        telemetry: config.telemetry,
        security: config.security,
    })
}

/// Load over both public protocols, and `kill -9` of the leader of the pipeline's stages in the middle.
async fn load_and_kill(
    args: &DemoArgs,
    layout: &Layout,
    (models, pipeline): (&[ModelSpec], &PipelineDeclaration),
    cluster: &mut LocalCluster,
) -> anyhow::Result<(Vec<symphony_load::Report>, Takeover)> {
    let duration = Duration::from_secs(args.seconds.into());
    let plan = |names: &[&str]| LoadPlan {
        seed: args.seed,
        warmup: WARMUP,
        duration,
        grace: GRACE,
        lag: LagLimits { p99: Duration::from_millis(50), max: Duration::from_millis(1000) },
        models: models.iter().filter(|m| names.contains(&m.name.as_str())).map(|m| model_load(m, args.seed)).collect(),
    };
    let grpc = Arc::new(GrpcTarget::connect(&layout.frontend.grpc.to_string(), 4).await?);
    let rest = Arc::new(RestTarget::connect(&layout.frontend.rest.to_string()).await?);
    let mut grpc_plan = plan(&[DIGITS, RESNET]);
    grpc_plan.models.push(load_of(&pipeline.name, pipeline.slo(), Arc::new(CanvasInputs::new()?)));
    let stop = CancellationToken::new();
    let began = Instant::now();
    let over_grpc = tokio::spawn(run_load(grpc_plan, grpc, stop.clone()));
    let over_rest = tokio::spawn(run_load(plan(&[MLP]), rest, stop.clone()));

    let bar = ProgressBar::new((WARMUP + duration).as_secs());
    bar.set_message("load");
    let ticks = bar.clone();
    let ticking = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            ticks.inc(1);
        }
    });
    tokio::time::sleep(WARMUP + duration / 2).await;
    let stages = models.iter().find(|model| model.name == DIGITS).context("a backend runs the digits")?;
    let takeover = kill_leader(cluster, &stages.subcluster, began).await;
    let (over_grpc, over_rest) = (over_grpc.await, over_rest.await);
    ticking.abort();
    bar.finish_and_clear();
    Ok((vec![over_grpc??, over_rest??], takeover?))
}

fn model_load(model: &ModelSpec, seed: u64) -> ModelLoad {
    let inputs: Arc<dyn InputSet> = match model.source {
        _ if model.name == DIGITS => Arc::new(DigitInputs::new()),
        ModelSource::Emulated => Arc::new(EmulatedInputs::new(&model.signature, 1, seed)),
        ModelSource::Onnx(_) | ModelSource::OnnxUnshared(_) => Arc::new(RandomInputs::new(&model.signature, 1, seed)),
    };
    load_of(&model.name, model.slo, inputs)
}

fn load_of(name: &str, slo: Nanos, inputs: Arc<dyn InputSet>) -> ModelLoad {
    ModelLoad {
        model: name.into(),
        rate_rps: RATES.iter().find(|(known, _)| *known == name).map_or(1.0, |(_, rate)| *rate),
        arrival: ArrivalKind::Poisson,
        recorded: None,
        slo: slo.into(),
        slack: Duration::from_millis(20),
        timeout: None,
        inputs,
    }
}

/// Kills the process that leads the sub-cluster of this name, and waits until another leads it.
async fn kill_leader(cluster: &mut LocalCluster, name: &str, began: Instant) -> anyhow::Result<Takeover> {
    let leader_in = |view: &View| {
        let (_, subcluster) = view.subclusters.iter().find(|(_, s)| s.name == name)?;
        Some((subcluster.leader?.0, subcluster.token))
    };
    let view = cluster.control.get(true, TAKEOVER_WITHIN).await?;
    let (victim, token) = leader_in(&view).with_context(|| format!("sub-cluster {name} has no leader"))?;
    let led: Vec<_> = view
        .subclusters
        .values()
        .filter(|s| s.leader.is_some_and(|(node, _)| node == victim))
        .map(|s| s.name.clone())
        .collect();
    let was_control_leader = view.control_leader == Some(victim);
    let mut views = cluster.control.watch("demo");
    let killed_at = began.elapsed();
    let killed = Instant::now();
    let pid = cluster.kill_scheduler(victim)?;
    eprintln!("killed {victim} (process {pid}) with signal 9; it led sub-cluster {}", led.join(", "));
    let renamed = async {
        loop {
            let newer = leader_in(&views.borrow_and_update()).filter(|&(_, newer)| newer > token);
            match newer {
                Some((leader, _)) => return Ok::<_, anyhow::Error>(leader),
                None => views.changed().await?,
            }
        }
    };
    let leader = tokio::time::timeout(TAKEOVER_WITHIN, renamed)
        .await
        .with_context(|| format!("no other leader within {} s", TAKEOVER_WITHIN.as_secs()))??;
    let assigned_after = killed.elapsed();
    eprintln!("{leader} leads {} after {:.0} ms", led.join(", "), assigned_after.as_secs_f64() * 1e3);
    Ok(Takeover { victim, leader, subclusters: led, was_control_leader, killed_at, assigned_after })
}

/// The frontend's counts of the requests' outcomes.
async fn ledger(layout: &Layout) -> anyhow::Result<serde_json::Value> {
    let url = format!("http://{}/api/view", layout.frontend.metrics);
    let page: serde_json::Value = reqwest::get(&url).await?.error_for_status()?.json().await?;
    Ok(page["ledger"].clone())
}
