//! One node of a deployment: configuration, log, ports, role and signals, in this order.

#[cfg(test)]
mod alert_rules_tests;
pub(crate) mod backend;
mod certificates;
mod control_runtime;
pub(crate) mod federation_replica;
mod frames;
pub(crate) mod frontend;
mod open_files;
mod page;
pub(crate) mod parent;
mod port_holder;
mod reload;
pub(crate) mod restore;
pub(crate) mod scheduler;
mod security;
mod service_manager;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use symphony_config::{Address, LogFormat, NodeConfig, Role};
use symphony_net::{ClusterLevel, Net};
use symphony_protocol::view::View;
use symphony_telemetry::{LogForm, LogOptions, PageGuard, Registry, Surface, init_logging};
use symphony_transport::ControlClient;
use symphony_types::{BootId, Level};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

pub(crate) use self::port_holder::port_holder;
use crate::cli::NodeArgs;
use crate::console::{Console, ProcessInfo};
use crate::exit::bad_input;

/// How long a process may take to hand over or finish its work before it stops. Service managers should wait a little
/// longer before they kill it.
pub(crate) const DRAIN_WITHIN: Duration = Duration::from_secs(5);

/// The configuration as file, environment and arguments give it now.
pub(crate) fn load(args: &NodeArgs, role: Role) -> anyhow::Result<NodeConfig> {
    let mut overrides = args.set.clone();
    if args.insecure_dev {
        overrides.push("security.insecure_dev=true".to_owned());
    }
    if args.insecure_public {
        overrides.push("security.insecure_public=true".to_owned());
    }
    NodeConfig::load(role, args.config.as_deref(), std::env::vars(), &overrides).map_err(bad_input)
}

/// Reads the configuration and starts the log. `None` if only the configuration was requested.
fn begin(args: &NodeArgs, role: Role) -> anyhow::Result<Option<NodeConfig>> {
    let config = load(args, role)?;
    if args.dump_config {
        print!("{}", config.to_toml());
        return Ok(None);
    }
    let form = match config.log.format {
        LogFormat::Text => LogForm::Text,
        LogFormat::Json => LogForm::Json,
    };
    let options = LogOptions { filter: &config.log.level, form, file: config.log.file.as_deref() };
    let filter = init_logging(&options).map_err(bad_input)?;
    parent::end_with_parent();
    reload::on_hangup(args.clone(), role, config.clone(), filter)?;
    let feature_level = Level::NEWEST.get();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), feature_level, %role, pid = std::process::id(), "symphony");
    open_files::allow_all_or_warn();
    Ok(Some(config))
}

/// Binds a port before any work starts, so that a port in use is reported at once.
async fn bind(key: &str, address: &Address) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address.to_string()).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            let by = port_holder(address).map(|holder| format!(" by {holder}")).unwrap_or_default();
            bad_input(format!(
                "{key}: {address} is in use{by}; stop what listens there, or set {key} to another address"
            ))
        }
        _ => anyhow::Error::new(error).context(format!("{key}: cannot listen on {address}")),
    })
}

/// The pages of a process that knows no keys: beyond loopback its status pages are for callers of its own host.
fn surface(registry: Registry, config: &NodeConfig, metrics: &Address) -> Surface {
    let surface = Surface::new(registry).with_hosts(page_hosts(config, [metrics]));
    match metrics.is_loopback() || config.security.insecure_public {
        true => surface,
        false => surface.with_guard(PageGuard::this_host()),
    }
}

/// The names by which browsers may ask this process for pages without a key: those of these addresses of its own, and
/// those that it is given.
fn page_hosts<'a>(config: &NodeConfig, own: impl IntoIterator<Item = &'a Address>) -> Vec<String> {
    let own = own.into_iter().map(|address| address.host().to_owned());
    own.chain(config.security.page_hosts.iter().cloned()).collect()
}

/// A fresh boot id for this process. Never zero, which means "none" on the wire.
pub(crate) fn fresh_boot() -> BootId {
    BootId::new(rand::random_range(1..=u64::MAX))
}

/// Tells the service manager that this process serves, and waits for SIGTERM or SIGINT. A second one ends the process
/// at once. `others` are the runtimes beside this one, whose hanging is the process's.
pub(crate) async fn until_told_to_stop(others: Vec<Handle>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    service_manager::ready(others);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    service_manager::stopping();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        std::process::exit(130);
    });
    Ok(())
}

/// The console of a scheduler or backend, which shows the whole cluster.
fn console(
    (role, name): (&'static str, &str),
    net: &Net,
    config: &NodeConfig,
    view: &watch::Receiver<Arc<View>>,
) -> anyhow::Result<Console> {
    let me = ProcessInfo { role, name: name.to_owned(), note: None };
    let (control, view) = (ControlClient::new(net, &control_addrs(config))?, view.clone());
    Console::new(me, net.clone(), control, move || Arc::clone(&view.borrow()))
}

/// Waits until one of the clusters is at a level that this process does not know: it could not read what the others
/// write. Returns what to do.
async fn no_neighbour(levels: &[ClusterLevel]) -> anyhow::Error {
    let unknown = levels.iter().map(|level| Box::pin(async move { (level.unknown().await, level.newest()) }));
    let ((level, newest), ..) = futures::future::select_all(unknown).await;
    let (level, newest) = (level.get(), newest.get());
    if level > newest {
        return anyhow::anyhow!(
            "the cluster's upgrade to level {level} is finished, and this program knows level {newest} at most: start a \
             newer release"
        );
    }
    let oldest = Level::OLDEST;
    anyhow::anyhow!(
        "the cluster is at level {level}, and this program needs level {oldest}: first upgrade to that release, and \
         finish it (symphony upgrade finish)"
    )
}

/// Control addresses of all replicas.
fn control_addrs(config: &NodeConfig) -> Vec<String> {
    config.cluster.scheduler.iter().map(|replica| replica.control.to_string()).collect()
}
