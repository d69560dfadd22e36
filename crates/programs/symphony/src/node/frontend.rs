//! `symphony frontend`: the public surface.

use std::sync::Arc;
use std::time::Duration;

use symphony_config::{FederationConfig, FrontendConfig, NodeConfig, Role};
use symphony_frontend::oip::{GrpcServer, InferenceService, Limits, rest_router, serve_grpc, serve_rest};
use symphony_frontend::{ClusterAccess, Frontend, RepositoryAccess, Tenants, read_token};
use symphony_net::{Carriers, ClusterLevel, Net, PublicTls};
use symphony_protocol::federation::FederationView;
use symphony_repository::Repository;
use symphony_telemetry::{Registry, Surface, Traces};
use symphony_transport::{ControlClient, FederationClient};
use tokio_util::sync::CancellationToken;

use super::certificates::Certificates;
use super::{
    DRAIN_WITHIN, begin, bind, control_addrs, frames, fresh_boot, no_neighbour, page, security, until_told_to_stop,
};
use crate::cli::NodeArgs;
use crate::console::{Console, OwnRequests, ProcessInfo};
use crate::exit::bad_input;

/// The extra time for the last answers to reach their clients.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// The time that lines of the access log and traces have after them.
const RECORDED_WITHIN: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &NodeArgs) -> anyhow::Result<()> {
    let Some(config) = begin(args, Role::Frontend)? else { return Ok(()) };
    let NodeConfig { frontend: Some(own), .. } = &config else {
        return Err(bad_input("the configuration has no [frontend]"));
    };
    let grpc = bind("frontend.grpc", &own.grpc).await?;
    let rest = bind("frontend.rest", &own.rest).await?;
    let metrics = bind("frontend.metrics", &own.metrics).await?;
    let registry = Registry::new("frontend");
    let certificates = Certificates::shown_in(&registry);
    let carriers = frames::carriers(&config.frames, &registry)?;
    let (tls, tenants) = public_access(&config, own, &registry, &certificates)?;
    let (frontend, console, levels) = match &config.federation {
        None => {
            let data = bind("frontend.data", &own.data).await?;
            let net = security::net(&config, symphony_net::Role::Frontend, &own.name, &certificates)?;
            let net = net.carried(carriers.clone());
            let control = ControlClient::new(&net, &control_addrs(&config))?;
            let repository = repository(&config, own, &certificates)?;
            let (access, tenants, levels) = (net.clone(), tenants.clone(), vec![net.level().clone()]);
            let frontend =
                Frontend::start(own, fresh_boot(), data, access, &control, repository, tenants, &registry).await?;
            let console = console(own, (net, control), &frontend, None)?;
            (frontend, console, levels)
        }
        Some(federation) => {
            let shown = (&registry, &certificates);
            let (frontend, levels) = federated(&config, own, federation, &carriers, tenants.clone(), shown).await?;
            let console = federated_console(&config, own, federation, &carriers, &frontend)?;
            (frontend, console, levels)
        }
    };
    if let Some(collector) = config.telemetry.collector() {
        let traces = Traces::start(collector, config.telemetry.sample_ratio, "symphony-frontend", &own.name);
        frontend.trace_by(Arc::new(traces.map_err(bad_input)?), &registry);
    }

    let limits = Limits::of(own);
    let service = Arc::new(frontend.clone());
    let stop = CancellationToken::new();
    let server = GrpcServer::new(Arc::clone(&service), limits);
    let serving_grpc = tokio::spawn(serve_grpc(server, grpc, tls.clone(), limits, stop.clone().cancelled_owned()));
    let router = rest_router(service, limits, &own.cors_origins);
    let serving_rest = tokio::spawn(serve_rest(router, rest, tls.clone(), limits, stop.clone().cancelled_owned()));

    let (ready, shown, counted, name) = (frontend.clone(), frontend.clone(), frontend.clone(), own.name.clone());
    let explaining = frontend.clone();
    let mut surface = Surface::new(registry)
        .with_hosts(page_hosts(&config, own))
        .with_tls(tls)
        .with_readiness(move || match ready.server().ready {
            true => Ok(()),
            false => Err("the cluster's view has not arrived, or the frontend drains".into()),
        })
        .with_view(move || {
            let mut page = page::view_json(&shown.view(), "frontend", &name, &|model| shown.counts_json(model));
            let (counts, in_flight) = shown.ledger();
            if let Some(view) = shown.federation_view() {
                page["federation"] = federation_json(&view);
            }
            page["frames"] = frames::json(&carriers);
            page["ledger"] = crate::inspect::ledger::json(&counts, in_flight as u64);
            page
        })
        .with_history(move |model| counted.history_json(model))
        .with_explain(move |request| explaining.explain_json(request))
        .with_console(move |question| console.answer(question));
    if let Some(tenants) = &tenants {
        surface = surface.with_guard(tenants.page_guard(own.metrics_need_key));
    }
    let serving = tokio::spawn(symphony_telemetry::serve(metrics, surface, stop.clone().cancelled_owned()));

    let broken = tokio::select! {
        stopped = until_told_to_stop(Vec::new()) => stopped.map(|()| None)?,
        id = frontend.forgotten() => Some(anyhow::anyhow!(
            "the cluster has forgotten frontend {} ({id}): an operator removed it, or its place was needed while it was silent; start it \
             again if it shall serve",
            own.name
        )),
        error = no_neighbour(&levels) => Some(error),
    };
    frontend.leave(DRAIN_WITHIN).await;
    frontend.stop();
    stop.cancel();
    let _ = tokio::time::timeout(ANSWERED_WITHIN, async {
        let _ = tokio::join!(serving_grpc, serving_rest, serving);
    })
    .await;
    // After the last answers, which are written down, too.
    let records = tokio::task::spawn_blocking(move || frontend.finish_records());
    let _ = tokio::time::timeout(RECORDED_WITHIN, records).await;
    broken.map_or(Ok(()), Err)
}

/// The names of this frontend: where its `metrics` listens on all addresses, others ask at the host of its `data`.
fn page_hosts(config: &NodeConfig, own: &FrontendConfig) -> Vec<String> {
    let clusters = config.federation.iter().flat_map(|federation| &federation.clusters);
    let data = clusters.filter_map(|cluster| cluster.data.as_ref());
    super::page_hosts(config, [&own.metrics, &own.data].into_iter().chain(data))
}

/// The console, which shows the whole cluster that `control` asks.
fn console(
    own: &FrontendConfig,
    (net, control): (Net, ControlClient),
    frontend: &Frontend,
    note: Option<String>,
) -> anyhow::Result<Console> {
    let me = ProcessInfo { role: "frontend", name: own.name.clone(), note };
    let (shown, counted, explaining) = (frontend.clone(), frontend.clone(), frontend.clone());
    let own = OwnRequests {
        history: Box::new(move |model| counted.history_json(model)),
        explain: Box::new(move |request| explaining.explain_json(request)),
    };
    Console::of_frontend(me, net, control, move || shown.view(), own)
}

/// The console of a frontend of a federation, which shows the first cluster.
fn federated_console(
    config: &NodeConfig,
    own: &FrontendConfig,
    federation: &FederationConfig,
    carriers: &Carriers,
    frontend: &Frontend,
) -> anyhow::Result<Console> {
    let first = federation.clusters.first().ok_or_else(|| bad_input("federation.clusters: expected at least one"))?;
    let note = format!(
        "this frontend serves a federation: what follows is its cluster {}, and requests are those of all clusters",
        first.name
    );
    // They are shown as those of the cluster's data link.
    let certificates = Certificates::default();
    let net = security::net_in(config, first, symphony_net::Role::Frontend, &own.name, &certificates)?;
    let net = net.carried(carriers.clone());
    let control = ControlClient::new(&net, &super::federation_replica::control_addrs(first))?;
    console(own, (net, control), frontend, Some(note))
}

/// TLS and tenants of the public ports, each if it is configured.
type PublicAccess = (Option<Arc<PublicTls>>, Option<Arc<Tenants>>);

fn public_access(
    config: &NodeConfig,
    own: &FrontendConfig,
    registry: &Registry,
    certificates: &Certificates,
) -> anyhow::Result<PublicAccess> {
    let tls = security::public_tls(&own.tls, certificates)?;
    let tenants = Tenants::open(own, registry).map_err(bad_input)?;
    let beyond_loopback = own.public_ports().iter().any(|(_, address)| !address.is_loopback());
    match &tenants {
        Some(tenants) => {
            tokio::spawn(Arc::clone(tenants).keep_fresh());
            if tls.is_none() && beyond_loopback {
                tracing::warn!("frontend.tls is not set: keys travel readable, unless a proxy in front speaks TLS");
            }
        }
        None if beyond_loopback && config.security.insecure_public => {
            tracing::warn!("security.insecure_public: the public ports serve every client that reaches them");
        }
        None => {}
    }
    Ok((tls, tenants))
}

/// Loads and unloads models for clients, if there is a repository.
fn repository(
    config: &NodeConfig,
    own: &FrontendConfig,
    certificates: &Certificates,
) -> anyhow::Result<Option<RepositoryAccess>> {
    let Some(dir) = &own.repository.dir else { return Ok(None) };
    let access = RepositoryAccess::listing(Repository::open(dir).map_err(bad_input)?);
    let control = || -> anyhow::Result<ControlClient> {
        let net = security::net_as_operator(config, &own.repository, certificates)?;
        Ok(ControlClient::new(&net, &control_addrs(config))?)
    };
    let by_tenants = own.tenants.is_some() && (own.repository.cert.is_some() || config.security.insecure_dev);
    Ok(Some(match &own.repository.token_file {
        Some(file) => access.loading(control()?, &read_token(file).map_err(bad_input)?),
        None if by_tenants => access.loading_for_tenants(control()?),
        None => access,
    }))
}

/// Serves all clusters of a federation.
async fn federated(
    config: &NodeConfig,
    own: &FrontendConfig,
    federation: &FederationConfig,
    carriers: &Carriers,
    tenants: Option<Arc<Tenants>>,
    (registry, certificates): (&Registry, &Certificates),
) -> anyhow::Result<(Frontend, Vec<ClusterLevel>)> {
    let (mut clusters, mut levels) = (Vec::new(), Vec::new());
    for cluster in &federation.clusters {
        let addr = cluster.data.as_ref().ok_or_else(|| bad_input("federation.clusters: data must be given"))?;
        let data = bind("federation.clusters.data", addr).await?;
        let net = security::net_in(config, cluster, symphony_net::Role::Frontend, &own.name, certificates)?;
        let net = net.carried(carriers.clone());
        levels.push(net.level().clone());
        let control = ControlClient::new(&net, &super::federation_replica::control_addrs(cluster))?;
        let (name, data_addr) = (cluster.name.clone(), addr.to_string());
        clusters.push(ClusterAccess { name, data, data_addr, net, control });
    }
    let net = security::net(config, symphony_net::Role::Frontend, &own.name, certificates)?;
    let replicas: Vec<_> = federation.replica.iter().map(|replica| replica.control.to_string()).collect();
    let client = FederationClient::new(&net, &replicas)?;
    Ok((Frontend::start_federated(own, fresh_boot(), clusters, &client, tenants, registry)?, levels))
}

/// The view of the federation that this frontend routes by, as the console shows it.
fn federation_json(view: &FederationView) -> serde_json::Value {
    let models = view.models.iter().map(|(name, model)| {
        serde_json::json!({ "name": name, "home": model.home, "moves_to": model.moves_to, "leftovers": model.leftovers })
    });
    let clusters =
        view.clusters.iter().map(|(name, cluster)| serde_json::json!({ "name": name, "reachable": cluster.reachable }));
    serde_json::json!({ "federation": view.federation, "plan": view.plan, "applied_index": view.applied_index,
                        "clusters": clusters.collect::<Vec<_>>(), "models": models.collect::<Vec<_>>() })
}
