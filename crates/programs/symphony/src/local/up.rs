//! `symphony up`: a local cluster that runs until it is stopped.

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use symphony_config::{Address, BackendConfig, ClusterConfig, ExecutorKind, NodeConfig, Role, SchedulerConfig};
use symphony_executor::load_runtime;
use symphony_types::Level;

use super::layout::Layout;
use super::local_cluster::LocalCluster;
use super::local_federation::{FederationLayout, LocalFederation, PORTS_APART};
use super::{demo_models, signalled, start_message};
use crate::cli::UpArgs;
use crate::contexts::{self, Contexts};
use crate::exit::bad_input;
use crate::node::port_holder;

/// The configuration when none is given: the standard ports.
const STANDARD: &str = include_str!("../../../../../deploy/config/dev.toml");
/// File with the repository's token, beside the logs.
const REPOSITORY_TOKEN: &str = "repository-token";
/// Lock file of the process that uses the folder.
const LOCK: &str = "up.lock";
/// How long the cluster may take to answer, and each model to load.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The default silence after which a cluster of a federation counts as down, in milliseconds.
const UNREACHABLE_MS: u64 = 10_000;
/// The period of the check that all processes live.
const WATCH_EVERY: Duration = Duration::from_millis(500);

pub(crate) async fn run(args: &UpArgs) -> anyhow::Result<()> {
    // Not by clap's `requires`, which does not apply if an option that excludes --clusters is given.
    if args.unreachable_ms.is_some() && args.clusters.is_none() {
        return Err(bad_input("--unreachable-ms is for the clusters of a federation: give --clusters with it"));
    }
    let layout = layout(args)?;
    let dir = std::path::absolute(&args.dir)?;
    let _alone = alone(&dir)?;
    if let Some(count) = args.clusters {
        let silent = args.unreachable_ms.unwrap_or(UNREACHABLE_MS);
        return federated(&federation(&layout, count, silent, federation_host(args)), &dir).await;
    }
    check_ports(ports(&layout))?;
    // A future that listens all the time: a signal between two would be lost.
    let mut stop = std::pin::pin!(signalled());
    // If it is stopped during the start, dropping the future kills the processes started so far.
    let mut cluster = tokio::select! {
        cluster = start(args, &layout, &dir) => cluster?,
        stopped = &mut stop => return stopped,
    };
    print!("{}{}", start_message::cluster(&layout, &dir), start_message::context(&contexts()));
    let result = loop {
        tokio::select! {
            stopped = &mut stop => break stopped,
            () = tokio::time::sleep(WATCH_EVERY) => {
                // The others continue: this is the purpose of a cluster.
                for end in cluster.take_ended() {
                    say(&format!("{end}\nthe cluster goes on without it"));
                }
                if !cluster.runs() {
                    break Err(anyhow::anyhow!("no process is left"));
                }
            }
        }
    };
    say("stopping");
    cluster.stop();
    result
}

/// Prints something on the terminal, unless that has been closed meanwhile.
fn say(words: &str) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

/// A lock on `dir` that is held while the value lives. Another `up` would overwrite the configurations and certificates
/// of the running processes.
fn alone(dir: &Path) -> anyhow::Result<File> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let path = dir.join(LOCK);
    let options = File::options().create(true).truncate(false).read(true).write(true).open(&path);
    let mut lock = options.with_context(|| format!("cannot write {}", path.display()))?;
    match lock.try_lock() {
        Ok(()) => {
            // Another process's error below names this one.
            let written = lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id()));
            written.with_context(|| format!("cannot write {}", path.display()))?;
            Ok(lock)
        }
        Err(TryLockError::WouldBlock) => {
            let holder: Option<u32> = std::fs::read_to_string(&path).ok().and_then(|pid| pid.parse().ok());
            let holder = holder.map(|pid| format!(" (process {pid})")).unwrap_or_default();
            let dir = dir.display();
            Err(bad_input(format!(
                "--dir {dir}: another `symphony up`{holder} keeps its files there; stop it, or give another folder, and with \
                 --host another address"
            )))
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Runs several clusters until it is stopped.
async fn federated(layout: &FederationLayout, dir: &Path) -> anyhow::Result<()> {
    let frontend =
        [("grpc", &layout.frontend.grpc), ("rest", &layout.frontend.rest), ("metrics", &layout.frontend.metrics)];
    let frontend = frontend.map(|(key, address)| (format!("frontend.{key}"), address.clone()));
    let clusters = layout.clusters.iter().flat_map(ports).filter(|(key, _)| !key.starts_with("frontend."));
    check_ports(clusters.chain(frontend).chain(layout.ports()).collect())?;
    let mut stop = std::pin::pin!(signalled());
    // If it is stopped during the start, dropping the future kills the processes started so far.
    let mut all = tokio::select! {
        all = LocalFederation::start(layout, dir) => all?,
        stopped = &mut stop => return stopped,
    };
    print!("{}{}", start_message::federation(layout, dir), start_message::context(&contexts()));
    let result = loop {
        tokio::select! {
            stopped = &mut stop => break stopped,
            () = tokio::time::sleep(WATCH_EVERY) => {
                for end in all.take_ended() {
                    say(&format!("{end}\nthe federation goes on without it"));
                }
                if !all.runs() {
                    break Err(anyhow::anyhow!("no process is left"));
                }
            }
        }
    };
    say("stopping");
    all.stop();
    result
}

/// Listen addresses of all processes of a federation: clusters differ by their ports, not by their configured hosts.
pub(super) fn federation_host(args: &UpArgs) -> Ipv4Addr {
    args.host.unwrap_or(Ipv4Addr::LOCALHOST)
}

/// The given number of clusters like the configured one, with emulated GPUs only and separate ports and names.
pub(super) fn federation(one: &Layout, count: u16, unreachable_ms: u64, host: Ipv4Addr) -> FederationLayout {
    let name = one.cluster.name.clone();
    let one = one.clone().moved(host, 0);
    let frontend = one.frontend.clone();
    let clusters = (0..count).map(|index| {
        let of = one.clone().moved(host, index * PORTS_APART);
        let own = format!("{name}-{}", index + 1);
        let in_own_dir = |path: &Path| {
            let (dir, file) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
            dir.join(&own).join(file)
        };
        let schedulers = of
            .schedulers
            .iter()
            .map(|scheduler| SchedulerConfig { data_dir: in_own_dir(&scheduler.data_dir), ..scheduler.clone() });
        Layout {
            cluster: ClusterConfig { name: own.clone(), ..of.cluster.clone() },
            schedulers: schedulers.collect(),
            backends: of.backends.iter().filter(|b| b.executor == ExecutorKind::Emulated).cloned().collect(),
            guests: Some(vec![
                (symphony_net::Role::Frontend, frontend.name.clone()),
                (symphony_net::Role::Federation, name.clone()),
            ]),
            ..of.clone()
        }
    });
    FederationLayout { clusters: clusters.collect(), name, frontend, unreachable_ms, host }
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
        let models = demo_models::prepare(layout, dir)?;
        let pipeline = demo_models::pipeline(&models)?;
        for model in models {
            // A restarted cluster knows its models. Their profiles are kept: new measurements would differ slightly.
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
        // A folder of the release before keeps its level until the operator raises it.
        if let Some(pipeline) = pipeline {
            let (needed, level) = (Level::WITH_PIPELINES, known.level);
            if level < needed {
                println!(
                    "pipeline {} needs level {needed}: run `symphony upgrade finish`, and then this again",
                    pipeline.name
                );
                return Ok(cluster);
            }
            // A restarted cluster has it, and maybe a version beside it that was never ready.
            if known.pipeline_versions(&pipeline.name).is_empty() {
                let operation = symphony_transport::fresh_operation_id();
                crate::tools::pipeline::ask(&cluster.control, &pipeline, operation).await?;
            }
            crate::tools::pipeline::until_ready(&cluster.control, &pipeline.name, READY_WITHIN).await?;
            println!("pipeline {} is ready", pipeline.name);
        }
    }
    Ok(cluster)
}

/// The fixed processes, and the backend that is scaled to demand.
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

pub(super) fn layout(args: &UpArgs) -> anyhow::Result<Layout> {
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
        frames,
        log,
        telemetry,
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
        // Tenants with that right need no token.
        if frontend.tenants.is_none() {
            frontend.repository.token_file.get_or_insert_with(|| dir.join(REPOSITORY_TOKEN));
        }
    }
    // One section describes all replicas: the settings that must differ are derived from the replica's id or position.
    let schedulers = cluster
        .scheduler
        .iter()
        .zip(0_u16..)
        .map(|(replica, index)| SchedulerConfig {
            id: replica.id,
            data_dir: dir.join(format!("raft-{}", replica.id.get())),
            metrics: ports_above(&scheduler.metrics, 10 * index),
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
    if let Some(noise) = args.noise {
        let emulated = |backend: &&mut BackendConfig| backend.executor == ExecutorKind::Emulated;
        let mut emulated = backends.iter_mut().filter(emulated).peekable();
        if emulated.peek().is_none() {
            return Err(bad_input("--noise needs a backend with executor = \"emulated\""));
        }
        emulated.for_each(|backend| backend.noise = noise);
    }
    let layout =
        Layout { cluster, schedulers, frontend, guests: None, backends, network, frames, log, telemetry, security };
    Ok(match args.host {
        Some(host) => layout.moved(host, 0),
        None => layout,
    })
}

/// This host, with the port increased.
fn ports_above(address: &Address, ports: u16) -> Address {
    address.with_port(address.port().saturating_add(ports))
}

/// Four emulated GPUs in a sub-cluster of their own.
fn emulated_beside(backend: &BackendConfig) -> BackendConfig {
    BackendConfig {
        name: "backend-emulated".into(),
        subcluster: "emulated".into(),
        exec: ports_above(&backend.exec, 10),
        metrics: ports_above(&backend.metrics, 10),
        executor: ExecutorKind::Emulated,
        gpus: vec![symphony_config::GpuConfig { kind: "emulated".into(), count: 4, memory_mb: 16_384 }],
        // Two processes that append to one file would interleave their lines.
        journal_file: backend.journal_file.as_ref().map(|path| path.with_extension("emulated")),
        ..backend.clone()
    }
}

/// Reports a port that is in use before any start: the log of a child is hard to find.
fn check_ports(ports: Vec<(String, Address)>) -> anyhow::Result<()> {
    for (key, address) in ports {
        if let Err(error) = std::net::TcpListener::bind(address.to_string()) {
            let by = port_holder(&address).map(|holder| format!(", by {holder}")).unwrap_or_default();
            return Err(bad_input(format!(
                "{key}: cannot listen on {address}: {error}{by}; stop what listens there, or have this one listen elsewhere, as with \
                 --host 127.0.0.2 --dir symphony-up-2"
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

/// The contexts that tools find; tools report errors in their file themselves.
fn contexts() -> Contexts {
    contexts::path().and_then(|path| Contexts::read(&path).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn metrics_of_replicas_are_where_the_configuration_says() {
        let set = "scheduler.metrics=127.0.0.9:6000";
        let cli = Cli::try_parse_from(["symphony", "up", "--set", set]).unwrap();
        let Command::Up(args) = cli.command else { panic!("another command was read") };
        let metrics: Vec<_> = layout(&args).unwrap().schedulers.iter().map(|s| s.metrics.to_string()).collect();
        assert_eq!(metrics, ["127.0.0.9:6000", "127.0.0.9:6010", "127.0.0.9:6020"]);
    }

    #[test]
    fn noise_is_for_emulated_gpus_only() {
        let layout_of = |words: &[&str]| {
            let cli = Cli::try_parse_from(["symphony", "up"].iter().chain(words)).unwrap();
            let Command::Up(args) = cli.command else { panic!("another command was read") };
            layout(&args)
        };
        for backend in layout_of(&["--noise", "0.05"]).unwrap().backends {
            let emulated = backend.executor == ExecutorKind::Emulated;
            assert_eq!(backend.noise, if emulated { 0.05 } else { 0.0 }, "{}", backend.name);
        }
        // Without one it has nothing to say.
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cpu.toml");
        std::fs::write(&file, STANDARD).unwrap();
        let refused = layout_of(&["--noise", "0.05", "--config", &file.display().to_string()]).unwrap_err();
        assert!(refused.to_string().contains("--noise needs a backend"), "{refused}");
    }

    #[test]
    fn a_folder_is_for_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = alone(dir.path()).unwrap();
        let second = alone(dir.path()).unwrap_err().to_string();
        assert!(second.contains(&dir.path().display().to_string()) && second.contains("another folder"), "{second}");
        assert!(second.contains(&format!("`symphony up` (process {})", std::process::id())), "{second}");
        drop(first);
        alone(dir.path()).unwrap();
    }
}
