//! Several clusters of real processes, the group above them, and frontends of them all.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::Signal;
use symphony_config::{
    Address, ClusterConfig, FederatedClusterConfig, FederationBalanceConfig, FederationConfig, FederationReplicaConfig,
    FrontendConfig, LogEngine, NodeConfig,
};
use symphony_net::{CredentialFiles, Role};
use symphony_protocol::federation::FederationView;
use symphony_testkit::{Child, ChildSpec, wait_until_async};
use symphony_transport::FederationClient;
use symphony_types::NodeId;

use super::fault::How;
use super::scenario::FederationShape;
use crate::cluster::{Cluster, ClusterSetup, Defaults, Pki, Process};
use crate::network::own_loopback;
use crate::run_failure::chaos_failed;
use crate::scenario::{ClusterShape, Links};

/// The federation's name.
pub(super) const FEDERATION: &str = "world";
/// Who works on it.
const OPERATOR: &str = "chaos";
/// How long anything may take that is waited for.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(90);
/// How long one poll may take.
pub(super) const VIEW_WITHIN: Duration = Duration::from_millis(500);

/// A process that belongs to no cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FederationProcess {
    /// A replica of the group above the clusters, by its id.
    Top(u64),
    /// A frontend of all clusters.
    Frontend(u32),
}

impl fmt::Display for FederationProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top(id) => write!(f, "federation-{id}"),
            Self::Frontend(number) => write!(f, "frontend-{number}"),
        }
    }
}

/// The running federation. Dropping it kills its processes.
#[derive(Debug)]
pub(super) struct Federation {
    /// By name, in the order of their groups.
    pub(super) clusters: Vec<(String, Cluster)>,
    /// Asks whichever replica of the group above the clusters answers.
    pub(super) client: FederationClient,
    /// One client for each of its replicas.
    pub(super) replicas: BTreeMap<u64, FederationClient>,
    pub(super) frontends: Vec<FrontendConfig>,
    /// Addresses of its own processes' health and metrics pages.
    pages: BTreeMap<FederationProcess, Address>,
    running: BTreeMap<FederationProcess, Child>,
    not_running: BTreeMap<FederationProcess, ChildSpec>,
}

impl Federation {
    /// Starts everything and waits until the federation knows its clusters.
    pub(super) async fn start(shape: &FederationShape, place: ClusterSetup<'_>) -> Result<Self> {
        let mut clusters = Vec::new();
        for number in 1..=shape.clusters {
            let name = format!("cluster-{number}");
            let dir = place.dir.join(&name);
            std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
            let place = ClusterSetup { name: &name, dir: &dir, ..place };
            let own = ClusterShape {
                timing: place.timing,
                links: Links::Direct,
                replicas: shape.replicas,
                subclusters: 1,
                backends: 1,
                gpus: shape.gpus,
                noise: place.noise,
                frontends: 0,
                decision_threads: 0,
            };
            let cluster = Cluster::start(&own, place).await.with_context(|| name.clone())?;
            clusters.push((name, cluster));
        }
        let pki = Pki::create(place.dir, FEDERATION)?;
        let operator = pki.net(Role::Operator, OPERATOR)?;
        let Defaults { base, frontend, .. } = Defaults::of(FEDERATION, place.timing)?;
        let bare = NodeConfig {
            cluster: ClusterConfig { scheduler: Vec::new(), ..base.cluster.clone() },
            scheduler: None,
            frontend: None,
            backend: None,
            federation: None,
            ..base
        };
        let replica =
            |id| Ok::<_, anyhow::Error>(FederationReplicaConfig { id: NodeId::new(id), control: own_loopback()? });
        let replicas = (1..=u64::from(shape.top)).map(replica).collect::<Result<Vec<_>>>()?;
        let common = FederationConfig {
            id: NodeId::default(),
            data_dir: Default::default(),
            log_engine: LogEngine::Sled,
            metrics: Address::loopback(0),
            unreachable_ms: shape.unreachable_ms,
            // It would say that moves are wanted, and begin none.
            balance: FederationBalanceConfig::default(),
            replica: replicas.clone(),
            clusters: Vec::new(),
        };
        let (mut pages, mut not_running, mut frontends) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for replica in &replicas {
            let (id, own) = (replica.id, FederationProcess::Top(replica.id.get()));
            let metrics = own_loopback()?;
            pages.insert(own, metrics.clone());
            let data_dir = place.dir.join(format!("{own}-raft"));
            let clusters = seen_by(&clusters, Role::Federation, FEDERATION, false)?;
            let section = FederationConfig { id, data_dir, metrics, clusters, ..common.clone() };
            let security = pki.security(Role::Scheduler, &id.get().to_string())?;
            let config = NodeConfig { federation: Some(section), security, ..bare.clone() };
            not_running.insert(own, spec_of(own, &config, &place)?);
        }
        for number in 1..=shape.frontends {
            let own = FederationProcess::Frontend(number);
            let name = own.to_string();
            let config = FrontendConfig {
                name: name.clone(),
                grpc: own_loopback()?,
                rest: own_loopback()?,
                metrics: own_loopback()?,
                ..frontend.clone()
            };
            pages.insert(own, config.metrics.clone());
            frontends.push(config.clone());
            let clusters = seen_by(&clusters, Role::Frontend, &name, true)?;
            let federation = Some(FederationConfig { clusters, ..common.clone() });
            let security = pki.security(Role::Frontend, &name)?;
            let config = NodeConfig { frontend: Some(config), federation, security, ..bare.clone() };
            not_running.insert(own, spec_of(own, &config, &place)?);
        }
        let each = replicas.iter().map(|replica| {
            let client = FederationClient::new(&operator, &[replica.control.to_string()])?;
            Ok((replica.id.get(), client))
        });
        let addrs: Vec<_> = replicas.iter().map(|replica| replica.control.to_string()).collect();
        let mut this = Self {
            client: FederationClient::new(&operator, &addrs)?,
            replicas: each.collect::<Result<_>>()?,
            clusters,
            frontends,
            pages,
            running: BTreeMap::new(),
            not_running,
        };
        let all: Vec<_> = this.not_running.keys().copied().collect();
        all.into_iter().try_for_each(|own| this.start_again(own))?;
        let names: Vec<_> = this.clusters.iter().map(|(name, _)| name.clone()).collect();
        let known = |view: &FederationView| {
            let missing = names.iter().find(|name| {
                let cluster = view.clusters.get(*name);
                !cluster.is_some_and(|cluster| cluster.reachable && cluster.kinds.values().any(|(gpus, _)| *gpus > 0))
            });
            missing.map_or(Ok(()), |name| Err(format!("{name} is not known, or has no GPU")))
        };
        this.until("all clusters to be known", known).await?;
        Ok(this)
    }

    /// Waits until the federation's view fulfils a condition, which says what is missing.
    pub(super) async fn until(
        &mut self,
        what: &str,
        condition: impl Fn(&FederationView) -> Result<(), String>,
    ) -> Result<FederationView> {
        self.check()?;
        let client = self.client.clone();
        let waited = wait_until_async(what, READY_WITHIN, || async {
            let view = client.get(true, VIEW_WITHIN).await?;
            condition(&view).map_err(anyhow::Error::msg)?;
            Ok(view)
        });
        let view = waited.await;
        self.check()?;
        view
    }

    /// An error if a process has ended by itself.
    pub(super) fn check(&mut self) -> Result<()> {
        for child in self.running.values_mut() {
            if let Some(status) = child.ended()? {
                bail!("{} ended by itself ({status}); its log ends:\n{}", child.name(), child.log_tail());
            }
        }
        self.clusters.iter_mut().try_for_each(|(name, cluster)| cluster.check().with_context(|| name.clone()))
    }

    /// Starts a process that does not run, over its own data.
    pub(super) fn start_again(&mut self, own: FederationProcess) -> Result<()> {
        let spec = self.not_running.remove(&own).with_context(|| format!("{own} runs already"))?;
        self.running.insert(own, spec.spawn().map_err(chaos_failed)?);
        Ok(())
    }

    fn child(&mut self, own: FederationProcess) -> Result<&mut Child> {
        self.running.get_mut(&own).with_context(|| format!("{own} does not run"))
    }

    /// Strikes a process of its own.
    pub(super) fn strike(&mut self, own: FederationProcess, how: How) -> Result<()> {
        let child = self.child(own)?;
        ensure!(child.ended()?.is_none(), "{own} had ended before it was struck");
        match how {
            How::Pause => child.signal(Signal::SIGSTOP).map_err(chaos_failed),
            How::Kill => {
                child.kill().map_err(chaos_failed)?;
                let child = self.running.remove(&own).with_context(|| format!("{own} does not run"))?;
                self.not_running.insert(own, child.spec().clone());
                Ok(())
            }
        }
    }

    /// Takes that back.
    pub(super) fn relieve(&mut self, own: FederationProcess, how: How) -> Result<()> {
        match how {
            How::Pause => {
                let child = self.child(own)?;
                ensure!(child.ended()?.is_none(), "{own} had ended before it got SIGCONT");
                child.signal(Signal::SIGCONT).map_err(chaos_failed)
            }
            How::Kill => self.start_again(own),
        }
    }

    /// Strikes all processes of a cluster, and returns them.
    pub(super) fn strike_cluster(&mut self, group: usize, how: How) -> Result<Vec<Process>> {
        let (_, cluster) = &mut self.clusters[group];
        let all = cluster.running();
        for &process in &all {
            match how {
                How::Pause => cluster.signal(process, Signal::SIGSTOP)?,
                How::Kill => cluster.kill(process)?,
            }
        }
        Ok(all)
    }

    /// Takes that back.
    pub(super) fn relieve_cluster(&mut self, group: usize, how: How, struck: &[Process]) -> Result<()> {
        let (_, cluster) = &mut self.clusters[group];
        struck.iter().try_for_each(|&process| match how {
            How::Pause => cluster.signal(process, Signal::SIGCONT),
            How::Kill => cluster.start_again(process),
        })
    }

    /// The replicas of the group above the clusters.
    pub(super) fn top(&self) -> Vec<FederationProcess> {
        self.replicas.keys().map(|&id| FederationProcess::Top(id)).collect()
    }

    /// Addresses of the frontends' health and metrics pages.
    pub(super) fn frontend_pages(&self) -> Vec<Address> {
        self.frontends.iter().map(|frontend| frontend.metrics.clone()).collect()
    }

    /// Addresses of all processes' health and metrics pages.
    pub(super) fn pages(&self) -> Vec<Address> {
        let own = self.pages.values().cloned();
        own.chain(self.clusters.iter().flat_map(|(_, cluster)| cluster.pages())).collect()
    }

    /// Stops everything: frontends and the group above the clusters first, so that nothing is taken for a loss.
    pub(super) async fn stop_all(mut self) -> Result<()> {
        for (own, mut child) in std::mem::take(&mut self.running).into_iter().rev() {
            child.signal(Signal::SIGTERM)?;
            wait_ended(own, &mut child).await?;
        }
        for (_, cluster) in self.clusters {
            cluster.stop_all().await?;
        }
        Ok(())
    }
}

/// How long a process may take to stop, and how often it is looked whether it has.
const STOP_WITHIN: Duration = Duration::from_secs(20);
const STOP_POLL: Duration = Duration::from_millis(10);

async fn wait_ended(own: FederationProcess, child: &mut Child) -> Result<()> {
    let give_up = tokio::time::Instant::now() + STOP_WITHIN;
    while child.ended()?.is_none() {
        ensure!(tokio::time::Instant::now() < give_up, "{own} has not ended {STOP_WITHIN:?} after SIGTERM");
        tokio::time::sleep(STOP_POLL).await;
    }
    Ok(())
}

/// The clusters as a process with a certificate in each reaches them; frontends also have a data port for each.
fn seen_by(
    clusters: &[(String, Cluster)],
    role: Role,
    who: &str,
    takes_data: bool,
) -> Result<Vec<FederatedClusterConfig>> {
    let one = |(name, cluster): &(String, Cluster)| {
        let CredentialFiles { ca, cert, key } = cluster.issue(role, who)?;
        Ok(FederatedClusterConfig {
            name: name.clone(),
            control: cluster.controls(),
            data: if takes_data { Some(own_loopback()?) } else { None },
            ca: Some(ca),
            cert: Some(cert),
            key: Some(key),
        })
    };
    clusters.iter().map(one).collect()
}

/// Writes a process's configuration and returns how to start it.
fn spec_of(own: FederationProcess, config: &NodeConfig, place: &ClusterSetup<'_>) -> Result<ChildSpec> {
    let role = match own {
        FederationProcess::Top(_) => "federation",
        FederationProcess::Frontend(_) => "frontend",
    };
    crate::cluster::node_spec(&own.to_string(), role, config, place.binary, place.dir)
}
