//! One cluster as a frontend sees it: its view, its models, the links to its leaders, and the requests that it has.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use symphony_config::Address;
use symphony_net::{Incoming, Net, Port, Role};
use symphony_protocol::control as pb;
use symphony_protocol::view::View;
use symphony_transport::{ControlClient, ControlError, SharedInputs, ViewReceiver};
use symphony_types::{BootId, FrontendId, Level, Member, SubclusterId};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clusters::live_pipeline::{LivePipeline, Pipelines, pipelines};
use crate::clusters::routing::{Route, Routes, routes};
use crate::counts::ledger::Ledger;
use crate::data_server::DataServer;
use crate::dispatch::control_plane_contact::ControlPlaneContact;
use crate::dispatch::leader_link::{LeaderCommand, LeaderLink};
use crate::dispatch::rerouter::Rerouter;
use crate::requests::request_table::RequestTable;

/// How long registration may take: a cluster that starts together elects its leader first.
pub(crate) const REGISTER_WITHIN: Duration = Duration::from_secs(30);

/// The port for backends, of which a cluster has 4096: one connection each, and one that is given up.
const DATA: Port = Port::new("frontend.data", &[Role::Backend], 2 * 4096);

/// How a frontend gets into a cluster.
#[derive(Debug)]
pub struct ClusterAccess {
    /// The cluster's name; empty for the only one.
    pub name: String,
    /// Where its backends pull inputs and push results.
    pub data: TcpListener,
    /// By which address they reach that.
    pub data_addr: String,
    /// The frontend's identity in the cluster.
    pub net: Net,
    /// Its control surface.
    pub control: ControlClient,
}

/// The frontend's identity, the same in all clusters.
#[derive(Clone, Debug)]
pub(crate) struct FrontendIdentity {
    pub(crate) name: String,
    pub(crate) boot: BootId,
    pub(crate) console_addr: String,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) ended: CancellationToken,
    /// Rings when a cluster's view has changed.
    pub(crate) news: watch::Sender<u64>,
    /// Its former id in a cluster that has forgotten it.
    pub(crate) forgotten: watch::Sender<Option<FrontendId>>,
}

/// The requests that are in one cluster, and their inputs.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    pub(crate) table: Arc<RequestTable>,
    /// Where backends of this host read inputs; none if none is shared.
    pub(crate) inputs: Option<Arc<SharedInputs>>,
}

/// One cluster that this frontend is registered with. Its requests: `requests/submission.rs`.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) id: FrontendId,
    control: ControlClient,
    pub(crate) view: ViewReceiver,
    pub(crate) table: Arc<RequestTable>,
    pub(crate) inputs: Option<Arc<SharedInputs>>,
    pub(crate) identity: FrontendIdentity,
    routes: RwLock<Arc<Routes>>,
    pipelines: RwLock<Arc<Pipelines>>,
    /// Log index of the view that the routes are of.
    routed_index: AtomicU64,
    links: Mutex<HashMap<SubclusterId, LeaderHandle>>,
    control_plane_contact: Arc<ControlPlaneContact>,
    /// Where links hand over requests that their leaders do not serve.
    misrouted: UnboundedSender<u64>,
    net: Net,
}

/// The way to the leader of a sub-cluster.
#[derive(Clone, Debug)]
pub(crate) struct LeaderHandle {
    commands: UnboundedSender<LeaderCommand>,
    /// The leader has stopped because it lost the control group, or is gone and no replica could name another one.
    pub(crate) suspended: Arc<AtomicBool>,
}

impl Cluster {
    /// Registers with the cluster, follows it, and serves its backends.
    ///
    /// # Errors
    /// If the cluster does not answer or refuses. The port for backends is then free to be tried with again.
    pub(crate) async fn join(
        access: ClusterAccess,
        identity: FrontendIdentity,
        Requests { table, inputs }: Requests,
    ) -> Result<Arc<Self>, (ControlError, ClusterAccess)> {
        let request = pb::RegisterFrontendRequest {
            name: identity.name.clone(),
            boot_id: identity.boot.get(),
            data_addr: access.data_addr.clone(),
            console_addr: reachable(&identity.console_addr, &access.data_addr),
            level: access.control.newest_level(),
        };
        let call = |mut client: pb::control_client::ControlClient<_>| {
            let request = request.clone();
            async move { client.register_frontend(request).await }
        };
        let reply = match access.control.call(REGISTER_WITHIN, call).await {
            Ok(reply) => reply,
            Err(error) => return Err((error, access)),
        };
        let ClusterAccess { name, data, net, control, .. } = access;
        control.update_level(Level::from_message(reply.level));
        let id = FrontendId::new(reply.frontend);
        let view = control.watch_as_frontend(&format!("frontend {}", identity.name), id, identity.boot);
        let (misrouted, misrouted_out) = mpsc::unbounded_channel();
        let (boot, ended) = (identity.boot, identity.ended.clone());
        let cluster = Arc::new(Self {
            id,
            control,
            view: view.clone(),
            table,
            inputs: inputs.clone(),
            identity,
            routes: RwLock::default(),
            pipelines: RwLock::default(),
            routed_index: AtomicU64::default(),
            links: Mutex::default(),
            control_plane_contact: Arc::default(),
            misrouted,
            net: net.clone(),
        });
        let (table, ledger) = (Arc::clone(&cluster.table), Arc::clone(&cluster.identity.ledger));
        let server = DataServer { boot, table: Arc::clone(&table), ledger, inputs, view: view.clone(), backend: None };
        tokio::spawn(server.accept(Incoming::new(data, net, DATA), ended.clone()));
        tokio::spawn(apply_views(Arc::clone(&cluster), view.clone()));
        let weak = Arc::downgrade(&cluster);
        let announce = move |subcluster, sequence| {
            if let Some(cluster) = weak.upgrade() {
                cluster.send_command(subcluster, LeaderCommand::Announce(sequence));
            }
        };
        let rerouter = Rerouter { table, view: view.clone(), announce };
        tokio::spawn(rerouter.run(misrouted_out, ended));
        tokio::spawn(report_drained(Arc::clone(&cluster), view));
        tracing::info!(cluster = name, frontend = %id, %boot, "registered");
        Ok(cluster)
    }

    /// A cluster with this view, and no links.
    #[cfg(test)]
    pub(crate) fn showing(id: FrontendId, identity: &FrontendIdentity, view: View) -> Arc<Self> {
        let routes = routes(&view);
        Arc::new(Self {
            id,
            control: ControlClient::new(&Net::plaintext(), &["127.0.0.1:1".to_owned()]).unwrap(),
            table: Arc::default(),
            inputs: None,
            identity: identity.clone(),
            pipelines: RwLock::new(Arc::new(pipelines(&view, &routes))),
            routes: RwLock::new(Arc::new(routes)),
            routed_index: AtomicU64::new(view.applied_index),
            links: Mutex::default(),
            control_plane_contact: Arc::default(),
            misrouted: mpsc::unbounded_channel().0,
            net: Net::plaintext(),
            view: watch::channel(Arc::new(view)).1,
        })
    }

    /// Replaces the view; [`Cluster::is_cordoned`] does not change.
    #[cfg(test)]
    pub(crate) fn show(&self, view: &View) {
        self.take_routes(view);
        self.routed_index.store(view.applied_index, Ordering::Release);
        self.identity.news.send_modify(|count| *count += 1);
    }

    /// Takes the routes from this view.
    fn take_routes(&self, view: &View) {
        let routes = Arc::new(routes(view));
        *self.routes.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&routes);
        // After that: requests for models do not wait until hundreds of pipelines are connected.
        *self.pipelines.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pipelines(view, &routes));
    }

    /// Every version of every pipeline of the cluster, by its name.
    pub(crate) fn pipelines(&self) -> Arc<Pipelines> {
        Arc::clone(&self.pipelines.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The version of a pipeline that is loaded under that name.
    pub(crate) fn pipeline(&self, loaded_as: &str) -> Option<Arc<LivePipeline>> {
        self.pipelines().get(loaded_as).cloned()
    }

    /// Tells the leader of the control group how often pipelines were asked here and how far their results fanned out.
    pub(crate) async fn report_pipelines(
        &self,
        pipelines: Vec<pb::PipelineCounts>,
        within: Duration,
    ) -> Result<(), ControlError> {
        let request = pb::ReportPipelinesRequest { frontend: self.id.get(), pipelines };
        let leader = self.control_leader();
        let call = |mut client: pb::control_client::ControlClient<_>| {
            let request = request.clone();
            async move { client.report_pipelines(request).await }
        };
        self.control.call_first(leader.as_deref(), within, call).await.map(|_| ())
    }

    /// The address of the leader of the control group, if the view has it.
    fn control_leader(&self) -> Option<String> {
        let view = self.view.borrow();
        view.control_leader.and_then(|leader| view.nodes.get(&leader)).map(|node| node.control_addr.clone())
    }

    /// Where requests for the model go, if the cluster has it.
    pub(crate) fn route(&self, model: &str) -> Option<Route> {
        self.routes().get(model).cloned()
    }

    /// Waits until the routes are those of a view of this log index or a later one.
    pub(crate) async fn routed(&self, index: u64) {
        let mut news = self.identity.news.subscribe();
        // Routes are made before the change is signalled.
        while self.routed_index.load(Ordering::Acquire) < index {
            if news.changed().await.is_err() {
                return;
            }
        }
    }

    /// Every model of the cluster.
    pub(crate) fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.routes.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether this frontend is cordoned: the cluster wants it to take no new requests.
    pub(crate) fn is_cordoned(&self) -> bool {
        let cordons = |view: &View| {
            view.frontends.get(&self.id).is_some_and(|f| f.boot == self.identity.boot && !f.duty.takes_work())
        };
        cordons(&self.view.borrow())
    }

    /// Makes the cluster agree that this boot ends: no process counts on it any more.
    pub(crate) async fn leave(&self, within: Duration) {
        let (member, boot_id) = (Some(Member::Frontend(self.id).into()), self.identity.boot.get());
        let call = |mut client: pb::control_client::ControlClient<_>| {
            let request = pb::LeaveRequest { member, boot_id };
            async move { client.leave(request).await }
        };
        if let Err(error) = self.control.call(within, call).await {
            tracing::warn!(%error, frontend = %self.id, "the cluster does not know that this frontend leaves");
        }
    }

    /// Tells the cluster that this frontend, which takes nothing new, has nothing left to answer.
    pub(crate) async fn report_drained(&self, within: Duration) {
        let (member, boot_id) = (Some(Member::Frontend(self.id).into()), self.identity.boot.get());
        let call = |mut client: pb::control_client::ControlClient<_>| {
            let request = pb::ReportDrainedRequest { member, boot_id };
            async move { client.report_drained(request).await }
        };
        if let Err(error) = self.control.call(within, call).await {
            tracing::debug!(%error, "not reported as drained");
        }
    }

    /// Tells the leader of the control group what tenants ask for here; it says what they may be given.
    pub(crate) async fn share_quotas(
        &self,
        tenants: Vec<pb::TenantDemand>,
        within: Duration,
    ) -> Result<Vec<pb::TenantShare>, ControlError> {
        let request = pb::ShareQuotasRequest { frontend: self.id.get(), tenants };
        let leader = self.control_leader();
        let call = |mut client: pb::control_client::ControlClient<_>| {
            let request = request.clone();
            async move { client.share_quotas(request).await }
        };
        // No other can answer, and a replica that hangs would take all the time there is.
        Ok(self.control.call_first(leader.as_deref(), within, call).await?.tenants)
    }

    /// The way to the sub-cluster's leader, opened when it is first asked for.
    pub(crate) fn link(self: &Arc<Self>, subcluster: SubclusterId) -> LeaderHandle {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let link = links.entry(subcluster).or_insert_with(|| {
            let (sender, commands) = mpsc::unbounded_channel();
            let suspended = Arc::new(AtomicBool::new(false));
            let link = LeaderLink {
                frontend: self.id,
                boot: self.identity.boot,
                subcluster,
                net: self.net.clone(),
                view: self.view.clone(),
                table: Arc::clone(&self.table),
                ledger: Arc::clone(&self.identity.ledger),
                commands,
                suspended: Arc::clone(&suspended),
                control_plane_contact: Arc::clone(&self.control_plane_contact),
                unlinked: None,
                misrouted: self.misrouted.clone(),
            };
            tokio::spawn(link.run(self.identity.ended.clone()));
            LeaderHandle { commands: sender, suspended }
        });
        link.clone()
    }

    /// Queues a command for the link to the leader of the sub-cluster.
    pub(crate) fn send_command(self: &Arc<Self>, subcluster: SubclusterId, command: LeaderCommand) {
        let _ = self.link(subcluster).commands.send(command);
    }

    /// Whether no leader decides for the sub-cluster, and none can be named.
    pub(crate) fn is_suspended(self: &Arc<Self>, subcluster: SubclusterId) -> bool {
        self.link(subcluster).suspended.load(Ordering::Acquire)
    }
}

/// Keeps the routes in step with the view, and opens links before the first request needs them.
async fn apply_views(cluster: Arc<Cluster>, mut view: ViewReceiver) {
    // A view may be older than the registration.
    let mut known = false;
    loop {
        let current = Arc::clone(&view.borrow_and_update());
        let is_known = current.frontends.get(&cluster.id).is_some_and(|known| known.boot == cluster.identity.boot);
        if known && !is_known {
            cluster.identity.forgotten.send_replace(Some(cluster.id));
        }
        known = is_known;
        cluster.take_routes(&current);
        cluster.routed_index.store(current.applied_index, Ordering::Release);
        for &subcluster in current.subclusters.keys() {
            cluster.link(subcluster);
        }
        cluster.identity.news.send_modify(|count| *count += 1);
        tokio::select! {
            () = cluster.identity.ended.cancelled() => return,
            changed = view.changed() => if changed.is_err() { return },
        }
    }
}

/// The address by which others reach the metrics port: one that listens on all addresses of its machine is reached by
/// the host of the data port, which backends dial.
fn reachable(metrics: &str, data: &str) -> String {
    match (metrics.parse::<Address>(), data.parse::<Address>()) {
        (Ok(metrics), Ok(data)) if metrics.is_wildcard() => data.with_port(metrics.port()).to_string(),
        _ => metrics.to_owned(),
    }
}

/// How often it is looked whether a frontend that takes nothing new has anything left.
const DRAINED_POLL: Duration = Duration::from_millis(50);
/// How long the report of that may take.
const REPORT_WITHIN: Duration = Duration::from_secs(5);

/// Tells the cluster, once for each time that this frontend is to take nothing new, that it has nothing left to answer.
async fn report_drained(cluster: Arc<Cluster>, mut view: ViewReceiver) {
    let boot = cluster.identity.boot;
    loop {
        let draining = {
            let view = view.borrow_and_update();
            view.frontends.get(&cluster.id).is_some_and(|f| f.boot == boot && !f.duty.takes_work() && !f.drained)
        };
        if draining && cluster.table.is_empty() {
            cluster.report_drained(REPORT_WITHIN).await;
        }
        tokio::select! {
            () = cluster.identity.ended.cancelled() => return,
            changed = view.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(DRAINED_POLL), if draining => {}
        }
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
