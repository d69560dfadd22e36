//! Several local clusters under a top-level group, with one frontend for all of them.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use symphony_config::{
    Address, FederatedClusterConfig, FederationBalanceConfig, FederationConfig, FederationReplicaConfig,
    FrontendConfig, LogEngine, NodeConfig, SecurityConfig,
};
use symphony_net::Role;
use symphony_transport::{ControlError, FederationClient};
use symphony_types::NodeId;
use tokio::time::Instant;

use super::layout::Layout;
use super::local_cluster::LocalCluster;
use super::pki::Pki;
use super::process::{Process, ProcessLifetime};

/// Replicas of the top-level group: one may fail.
const REPLICAS: u16 = 3;
/// The first port of the top-level group; replicas are ten apart.
const CONTROL_PORT: u16 = 7501;
const METRICS_PORT: u16 = 7504;
/// Distance between the ports of two clusters: the frontend's public ports lie in between.
pub(crate) const PORTS_APART: u16 = 2000;
/// How long the top-level group may take until it knows all clusters.
const READY_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// What a local federation consists of.
#[derive(Clone, Debug)]
pub(crate) struct FederationLayout {
    pub(crate) name: String,
    /// Without frontends.
    pub(crate) clusters: Vec<Layout>,
    pub(crate) frontend: FrontendConfig,
    pub(crate) unreachable_ms: u64,
    /// A loopback address, on which all processes listen.
    pub(crate) host: Ipv4Addr,
}

impl FederationLayout {
    fn replicas(&self) -> Vec<FederationReplicaConfig> {
        let replica = |index: u16| FederationReplicaConfig {
            id: NodeId::new(u64::from(index) + 1),
            control: self.at(CONTROL_PORT + 10 * index),
        };
        (0..REPLICAS).map(replica).collect()
    }

    /// Where tools reach the top-level group.
    pub(crate) fn control(&self) -> String {
        let control: Vec<_> = self.replicas().iter().map(|replica| replica.control.to_string()).collect();
        control.join(",")
    }

    /// Where the backends of a cluster reach the frontend.
    fn data(&self, index: usize) -> Address {
        self.at(self.frontend.data.port().saturating_add(index as u16))
    }

    /// This port of the common address.
    fn at(&self, port: u16) -> Address {
        Address::at(self.host.into(), port)
    }

    /// Every address on which the federation's own processes listen, with its key.
    pub(crate) fn ports(&self) -> Vec<(String, Address)> {
        let replicas = self.replicas().into_iter().map(|r| ("federation.replica.control".to_owned(), r.control));
        let metrics = (0..REPLICAS).map(|i| ("federation.metrics".to_owned(), self.at(METRICS_PORT + 10 * i)));
        let data = (0..self.clusters.len()).map(|index| ("federation.clusters.data".to_owned(), self.data(index)));
        replicas.chain(metrics).chain(data).collect()
    }

    /// Where a cluster keeps its files.
    pub(crate) fn dir(dir: &Path, cluster: &Layout) -> PathBuf {
        dir.join(&cluster.cluster.name)
    }
}

/// A running local federation. Dropping it kills its processes.
#[derive(Debug)]
pub(crate) struct LocalFederation {
    pub(crate) client: FederationClient,
    clusters: Vec<LocalCluster>,
    others: Vec<Process>,
}

impl LocalFederation {
    /// Starts everything and waits until the top-level group knows every cluster.
    pub(crate) async fn start(layout: &FederationLayout, dir: &Path) -> anyhow::Result<Self> {
        let insecure = layout.clusters.iter().any(|cluster| cluster.security.insecure_dev);
        let who = (1..=REPLICAS).map(|id| (Role::Scheduler, id.to_string()));
        let who = who.chain([(Role::Frontend, layout.frontend.name.clone())]);
        let folder = dir.join("pki");
        let host = layout.host.to_string();
        let pki = Pki::make(&folder, &layout.name, insecure, who, std::iter::once(host.as_str()))?;
        std::fs::create_dir_all(dir.join("logs")).with_context(|| format!("cannot make {}", dir.display()))?;
        let addrs: Vec<_> = layout.replicas().iter().map(|replica| replica.control.to_string()).collect();
        let client = FederationClient::new(&pki.operator()?, &addrs)?;
        let mut all = Self { client, clusters: Vec::new(), others: Vec::new() };
        for cluster in &layout.clusters {
            let own = FederationLayout::dir(dir, cluster);
            all.clusters.push(LocalCluster::start(cluster, &own).await.with_context(|| cluster.cluster.name.clone())?);
        }
        for (index, replica) in (0_u16..).zip(layout.replicas()) {
            let name = format!("federation-{}", replica.id.get());
            let own = FederationConfig {
                id: replica.id,
                data_dir: dir.join(format!("raft-{}", replica.id.get())),
                metrics: layout.at(METRICS_PORT + 10 * index),
                clusters: seen_by(layout, dir, Role::Federation, &layout.name),
                ..federation(layout)
            };
            let security = pki.security(Role::Scheduler, &replica.id.get().to_string());
            let config = NodeConfig { federation: Some(own), ..base(layout, security) };
            all.others.push(Process::start_node("federation", &name, &config, dir, ProcessLifetime::EndsWithParent)?);
        }
        let mut clusters = seen_by(layout, dir, Role::Frontend, &layout.frontend.name);
        for (index, cluster) in clusters.iter_mut().enumerate() {
            cluster.data = Some(layout.data(index));
        }
        let own = FederationConfig { clusters, ..federation(layout) };
        let security = pki.security(Role::Frontend, &layout.frontend.name);
        let frontend = Some(layout.frontend.clone());
        let config = NodeConfig { federation: Some(own), frontend, ..base(layout, security) };
        all.others.push(Process::start_node(
            "frontend",
            &layout.frontend.name,
            &config,
            dir,
            ProcessLifetime::EndsWithParent,
        )?);
        all.wait(layout).await?;
        Ok(all)
    }

    async fn wait(&mut self, layout: &FederationLayout) -> anyhow::Result<()> {
        let give_up = Instant::now() + READY_WITHIN;
        loop {
            if let Some(end) = self.take_ended().into_iter().next() {
                anyhow::bail!("{end}");
            }
            let missing = match self.client.get(true, Duration::from_millis(500)).await {
                Ok(view) => layout
                    .clusters
                    .iter()
                    .map(|c| c.cluster.name.clone())
                    .find(|name| !view.clusters.get(name).is_some_and(|cluster| cluster.reachable)),
                Err(ControlError::Unreachable { .. }) => Some("a leader of the federation".to_owned()),
                Err(error) => return Err(error.into()),
            };
            let Some(missing) = missing else { return Ok(()) };
            if Instant::now() >= give_up {
                anyhow::bail!("the federation is not ready after {} s: {missing} is missing", READY_WITHIN.as_secs());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Forgets the processes that have ended by themselves; returns how each ended.
    pub(crate) fn take_ended(&mut self) -> Vec<String> {
        let mut ends: Vec<_> = self.clusters.iter_mut().flat_map(LocalCluster::take_ended).collect();
        self.others.retain_mut(|process| {
            let end = process.ended();
            let runs = end.is_none();
            ends.extend(end);
            runs
        });
        ends
    }

    /// Whether any process is left.
    pub(crate) fn runs(&self) -> bool {
        !self.others.is_empty() || self.clusters.iter().any(LocalCluster::runs)
    }

    /// Stops everything: the frontend first, then the top-level group, so that no stop is reported as a loss.
    pub(crate) fn stop(&mut self) {
        self.others.iter_mut().rev().for_each(Process::stop);
        self.clusters.iter_mut().for_each(LocalCluster::stop);
    }
}

/// Settings that are equal on all nodes.
fn federation(layout: &FederationLayout) -> FederationConfig {
    FederationConfig {
        id: NodeId::default(),
        data_dir: PathBuf::new(),
        log_engine: LogEngine::Sled,
        metrics: layout.at(METRICS_PORT),
        unreachable_ms: layout.unreachable_ms,
        balance: FederationBalanceConfig::default(),
        replica: layout.replicas(),
        clusters: Vec::new(),
    }
}

/// The clusters as reached by a client with a certificate in each of them.
fn seen_by(layout: &FederationLayout, dir: &Path, role: Role, name: &str) -> Vec<FederatedClusterConfig> {
    let cluster = |of: &Layout| {
        let folder = FederationLayout::dir(dir, of).join("pki");
        let SecurityConfig { ca, cert, key, .. } = Pki::known(&folder, of.security.insecure_dev).security(role, name);
        let control = of.cluster.scheduler.iter().map(|replica| replica.control.clone()).collect();
        FederatedClusterConfig { name: of.cluster.name.clone(), control, data: None, ca, cert, key }
    };
    layout.clusters.iter().map(cluster).collect()
}

fn base(layout: &FederationLayout, security: SecurityConfig) -> NodeConfig {
    let first = &layout.clusters[0];
    let cluster = symphony_config::ClusterConfig {
        name: layout.name.clone(),
        timing: first.cluster.timing,
        scheduler: Vec::new(),
    };
    NodeConfig {
        cluster,
        scheduler: None,
        frontend: None,
        backend: None,
        federation: None,
        network: first.network.clone(),
        frames: first.frames.clone(),
        log: first.log.clone(),
        telemetry: first.telemetry.clone(),
        security,
    }
}
