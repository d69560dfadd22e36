//! `symphony up`: a local cluster that stays.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use symphony_config::{
    Address, BackendConfig, ClusterConfig, ExecutorKind, FrontendConfig, NodeConfig, ReplicaConfig, Role,
    SchedulerConfig,
};
use symphony_executor::load_runtime;

use super::cluster::{Layout, LocalCluster};
use super::federation::{FederationLayout, LocalFederation, PORTS_APART};
use super::{demo_models, signalled};
use crate::cli::UpArgs;
use crate::exit::bad_input;

/// The configuration when none is given: the standard ports.
const STANDARD: &str = include_str!("../../../../deploy/config/dev.toml");
/// File with the token for its repository, beside the logs.
const REPOSITORY_TOKEN: &str = "repository-token";
/// How long the cluster may take to answer, and each model to load.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How often it is looked whether all processes live.
const WATCH_EVERY: Duration = Duration::from_millis(500);

pub(crate) async fn run(args: &UpArgs) -> anyhow::Result<()> {
    let layout = layout(args)?;
    let dir = std::path::absolute(&args.dir)?;
    if let Some(count) = args.clusters {
        return federated(&federation(&layout, count, args.unreachable_ms, args.host), &dir).await;
    }
    check_ports(ports(&layout))?;
    // Whoever stops it while it starts gets no cluster: what was started is killed with the future.
    let mut cluster = tokio::select! {
        cluster = start(args, &layout, &dir) => cluster?,
        stopped = signalled() => return stopped,
    };
    tell(&layout, &dir);
    let mut stop = std::pin::pin!(signalled());
    let result = loop {
        tokio::select! {
            stopped = &mut stop => break stopped,
            () = tokio::time::sleep(WATCH_EVERY) => {
                // The others go on: that is what a cluster is for.
                for end in cluster.take_ended() {
                    eprintln!("{end}\nthe cluster goes on without it");
                }
                if !cluster.runs() {
                    break Err(anyhow::anyhow!("no process is left"));
                }
            }
        }
    };
    println!("stopping");
    cluster.stop();
    result
}

/// Several clusters, until it is told to stop.
async fn federated(layout: &FederationLayout, dir: &Path) -> anyhow::Result<()> {
    let frontend =
        [("grpc", &layout.frontend.grpc), ("rest", &layout.frontend.rest), ("metrics", &layout.frontend.metrics)];
    let frontend = frontend.map(|(key, address)| (format!("frontend.{key}"), address.clone()));
    let clusters = layout.clusters.iter().flat_map(ports).filter(|(key, _)| !key.starts_with("frontend."));
    check_ports(clusters.chain(frontend).chain(layout.ports()).collect())?;
    // Whoever stops it while it starts gets none: what was started is killed with the future.
    let mut all = tokio::select! {
        all = LocalFederation::start(layout, dir) => all?,
        stopped = signalled() => return stopped,
    };
    tell_of_federation(layout, dir);
    let mut stop = std::pin::pin!(signalled());
    let result = loop {
        tokio::select! {
            stopped = &mut stop => break stopped,
            () = tokio::time::sleep(WATCH_EVERY) => {
                for end in all.take_ended() {
                    eprintln!("{end}\nthe federation goes on without it");
                }
                if !all.runs() {
                    break Err(anyhow::anyhow!("no process is left"));
                }
            }
        }
    };
    println!("stopping");
    all.stop();
    result
}

/// So many clusters like the one of the configuration, with emulated GPUs only: each other's ports and names apart.
fn federation(one: &Layout, count: u16, unreachable_ms: u64, host: Ipv4Addr) -> FederationLayout {
    let name = one.cluster.name.clone();
    let at = |address: &Address, above: u16| Address::at(host.into(), address.port().saturating_add(above));
    let frontend = &FrontendConfig {
        grpc: at(&one.frontend.grpc, 0),
        rest: at(&one.frontend.rest, 0),
        metrics: at(&one.frontend.metrics, 0),
        ..one.frontend.clone()
    };
    let clusters = (0..count).map(|index| {
        let moved = |address: &Address| at(address, index * PORTS_APART);
        let replicas = one.cluster.scheduler.iter().map(|replica| ReplicaConfig {
            id: replica.id,
            control: moved(&replica.control),
            dispatch: moved(&replica.dispatch),
            beat: moved(&replica.beat),
        });
        let own = format!("{name}-{}", index + 1);
        let in_own_dir = |path: &Path| {
            let (dir, file) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
            dir.join(&own).join(file)
        };
        let schedulers = one.schedulers.iter().map(|scheduler| SchedulerConfig {
            data_dir: in_own_dir(&scheduler.data_dir),
            metrics: moved(&scheduler.metrics),
            ..scheduler.clone()
        });
        let backends = one.backends.iter().filter(|backend| backend.executor == ExecutorKind::Emulated);
        let backends = backends.map(|backend| BackendConfig {
            exec: moved(&backend.exec),
            metrics: moved(&backend.metrics),
            ..backend.clone()
        });
        Layout {
            cluster: ClusterConfig { name: own.clone(), scheduler: replicas.collect(), ..one.cluster.clone() },
            schedulers: schedulers.collect(),
            backends: backends.collect(),
            guests: Some(vec![
                (symphony_net::Role::Frontend, frontend.name.clone()),
                (symphony_net::Role::Federation, name.clone()),
            ]),
            ..one.clone()
        }
    });
    FederationLayout {
        name: name.clone(),
        clusters: clusters.collect(),
        frontend: frontend.clone(),
        unreachable_ms,
        host,
    }
}

fn tell_of_federation(layout: &FederationLayout, dir: &Path) {
    let frontend = &layout.frontend;
    println!("federation {} of {} clusters is up", layout.name, layout.clusters.len());
    println!("  Open Inference Protocol: gRPC {}, REST http://{}/v2", frontend.grpc, frontend.rest);
    println!("  console: http://{}/   metrics: http://{}/metrics", frontend.metrics, frontend.metrics);
    println!("  logs: {}", dir.join("logs").display());
    for cluster in &layout.clusters {
        let control: Vec<_> = cluster.cluster.scheduler.iter().map(|replica| replica.control.to_string()).collect();
        let own = FederationLayout::dir(dir, cluster);
        println!(
            "  {}: --cluster {} --pki {}; logs: {}",
            cluster.cluster.name,
            control.join(","),
            own.join("pki").display(),
            own.join("logs").display()
        );
    }
    println!(
        "  certificates of the federation: {}, for tools run elsewhere: --pki or SYMPHONY_PKI",
        dir.join("pki").display()
    );
    println!(
        "  try: symphony get clusters; symphony model load resnet --federation --alpha-ms 1 --beta-ms 5 --slo-ms 100;"
    );
    println!("       symphony plan move --model resnet --federation --to-cluster {}", layout.clusters[1].cluster.name);
    println!("stop with Ctrl-C");
}

async fn start(args: &UpArgs, layout: &Layout, dir: &Path) -> anyhow::Result<LocalCluster> {
    let (fixed, scaled) = match args.autoscale {
        Some(bounds) => scaled(args, layout, bounds)?,
        None => (layout.clone(), None),
    };
    let mut cluster = LocalCluster::start(&fixed, dir).await?;
    if let Some((backend, bounds)) = scaled {
        cluster.provision(layout, backend, bounds, dir).await?;
    }
    if args.with_models {
        let known = cluster.control.get(true, READY_WITHIN).await?;
        for model in demo_models::prepare(layout, dir)? {
            // A cluster that comes back knows its models. Their profiles stay: measured anew they would differ a little.
            let model = known.model_named(&model.name).map_or(model, |(_, loaded)| loaded.spec.clone());
            crate::tools::model::load_and_wait(
                &cluster.control,
                &model,
                symphony_transport::fresh_operation_id(),
                READY_WITHIN,
            )
            .await?;
            println!("model {} is ready", model.name);
        }
    }
    Ok(cluster)
}

/// What is there in any case, and the backend of which there are as many as are wanted.
type Scaled = (Layout, Option<(BackendConfig, (u32, u32))>);

fn scaled(args: &UpArgs, layout: &Layout, bounds: (u32, u32)) -> anyhow::Result<Scaled> {
    let mut fixed = layout.clone();
    let place = fixed.backends.iter().position(|backend| backend.executor == ExecutorKind::Emulated);
    let place = place.ok_or_else(|| bad_input("--autoscale needs a backend with executor = \"emulated\""))?;
    let mut backend = fixed.backends.remove(place);
    if args.config.is_none() {
        backend.gpus.iter_mut().for_each(|gpus| gpus.count = 1);
    }
    Ok((fixed, Some((backend, bounds))))
}

fn layout(args: &UpArgs) -> anyhow::Result<Layout> {
    let config = match &args.config {
        Some(file) => NodeConfig::load(Role::Up, Some(file), std::env::vars(), &args.set),
        None => {
            let text = Some((Path::new("the standard configuration of `up`"), STANDARD));
            NodeConfig::from_layers(Role::Up, text, std::env::vars(), &args.set)
        }
    }
    .map_err(bad_input)?;
    let NodeConfig {
        cluster,
        scheduler: Some(scheduler),
        frontend: Some(frontend),
        backend: Some(backend),
        network,
        log,
        security,
        ..
    } = config
    else {
        return Err(bad_input("`up` needs [scheduler], [frontend] and [backend]"));
    };
    let dir = std::path::absolute(&args.dir)?;
    let (mut frontend, mut backend) = (frontend, backend);
    if let Some(repository) = &args.repository {
        let repository = std::path::absolute(repository)?;
        backend.model_dir.clone_from(&repository);
        frontend.repository.dir = Some(repository);
        frontend.repository.token_file.get_or_insert_with(|| dir.join(REPOSITORY_TOKEN));
    }
    // One section describes all replicas: what must differ is derived from the replica's id or place.
    let schedulers = cluster
        .scheduler
        .iter()
        .zip(0_u16..)
        .map(|(replica, index)| SchedulerConfig {
            id: replica.id,
            data_dir: dir.join(format!("raft-{}", replica.id.get())),
            metrics: symphony_config::Address::loopback(scheduler.metrics.port().saturating_add(10 * index)),
            ..scheduler.clone()
        })
        .collect();
    let mut backends = vec![backend.clone()];
    if args.config.is_none() {
        backends.push(emulated_beside(&backend));
        if let Err(error) = load_runtime(backend.onnxruntime.as_deref()) {
            eprintln!("no CPU backend: {error}");
            backends.remove(0);
        }
    }
    Ok(Layout { cluster, schedulers, frontend, guests: None, backends, network, log, security })
}

/// Four emulated GPUs in a sub-cluster of their own.
fn emulated_beside(backend: &BackendConfig) -> BackendConfig {
    BackendConfig {
        name: "backend-emulated".into(),
        subcluster: "emulated".into(),
        exec: symphony_config::Address::loopback(backend.exec.port().saturating_add(10)),
        metrics: symphony_config::Address::loopback(backend.metrics.port().saturating_add(10)),
        executor: ExecutorKind::Emulated,
        gpus: vec![symphony_config::GpuConfig { kind: "emulated".into(), count: 4, memory_mb: 16_384 }],
        // Two processes that append to one file would write into each other's lines.
        journal_file: backend.journal_file.as_ref().map(|path| path.with_extension("emulated")),
        ..backend.clone()
    }
}

/// Says which port is taken before anything is started: a child's log is a bad place to find that.
fn check_ports(ports: Vec<(String, Address)>) -> anyhow::Result<()> {
    for (key, address) in ports {
        if let Err(error) = std::net::TcpListener::bind(address.to_string()) {
            return Err(bad_input(format!(
                "{key}: cannot listen on {address}: {error}; stop what listens there, or give other ports with --config"
            )));
        }
    }
    Ok(())
}

/// Every address on which a process of the cluster listens, with its key.
fn ports(layout: &Layout) -> Vec<(String, Address)> {
    let mut ports = Vec::new();
    for replica in &layout.cluster.scheduler {
        ports.extend(replica.addresses().map(|(key, address)| (format!("cluster.scheduler.{key}"), address.clone())));
    }
    ports.extend(layout.schedulers.iter().map(|s| ("scheduler.metrics".to_owned(), s.metrics.clone())));
    let frontend = &layout.frontend;
    for (key, address) in
        [("grpc", &frontend.grpc), ("rest", &frontend.rest), ("metrics", &frontend.metrics), ("data", &frontend.data)]
    {
        ports.push((format!("frontend.{key}"), address.clone()));
    }
    for backend in &layout.backends {
        ports.push(("backend.exec".to_owned(), backend.exec.clone()));
        ports.push(("backend.metrics".to_owned(), backend.metrics.clone()));
    }
    ports
}

fn tell(layout: &Layout, dir: &Path) {
    let frontend = &layout.frontend;
    println!("cluster {} is up", layout.cluster.name);
    println!("  Open Inference Protocol: gRPC {}, REST http://{}/v2", frontend.grpc, frontend.rest);
    println!("  console: http://{}/   metrics: http://{}/metrics", frontend.metrics, frontend.metrics);
    println!("  logs: {}", dir.join("logs").display());
    if layout.security.insecure_dev {
        println!("  plaintext: tools need --insecure-dev");
    } else {
        println!("  certificates: {}, for tools run elsewhere: --pki or SYMPHONY_PKI", dir.join("pki").display());
    }
    if let (Some(repository), Some(token)) = (&layout.frontend.repository.dir, &layout.frontend.repository.token_file) {
        println!("  model repository: {}; token: {}", repository.display(), token.display());
    }
    println!(
        "  try: symphony get members; symphony model load resnet --emulated --alpha-ms 1 --beta-ms 5 --slo-ms 100 --subcluster emulated"
    );
    println!("stop with Ctrl-C");
}
