//! A cluster of real processes: three scheduler replicas, one backend of emulated GPUs, one frontend.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use symphony_config::{
    Address, BackendConfig, ExecutorKind, FrontendConfig, GpuConfig, NodeConfig, ReplicaConfig, Role, SchedulerConfig,
    Timing,
};
use symphony_net::Net;
use symphony_protocol::control as pb;
use symphony_protocol::view::{ModelSpec, View};
use symphony_testkit::{Child, ChildSpec, free_ports, wait_until_async};
use symphony_transport::{ControlClient, fresh_operation_id};
use symphony_types::NodeId;

use crate::scenario::ClusterShape;

/// The sub-cluster of the backend.
pub(crate) const SUBCLUSTER: &str = "emulated";
/// The kind of its GPUs.
pub(crate) const GPU_KIND: &str = "emulated";
/// Scheduler replicas: the fewest that survive a death.
const REPLICAS: u64 = 3;
/// How long processes may take to register, and models to load.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long one look at the cluster may take.
const LOOK_WITHIN: Duration = Duration::from_millis(500);
/// How long a process may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// The running cluster. Dropping it kills its processes.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) control: ControlClient,
    pub(crate) frontend: FrontendConfig,
    /// Metrics addresses of all processes.
    pages: Vec<Address>,
    schedulers: Vec<(NodeId, Child)>,
    others: Vec<Child>,
}

impl Cluster {
    /// Starts all processes and waits until they are registered and the sub-cluster has a leader and standbys.
    pub(crate) async fn start(binary: &Path, shape: ClusterShape, timing: Timing, dir: &Path) -> Result<Self> {
        let configs = Configs::new(shape, timing, dir)?;
        let addrs: Vec<_> = configs.base.cluster.scheduler.iter().map(|r| r.control.to_string()).collect();
        let mut pages: Vec<_> = configs.schedulers.iter().map(|s| s.metrics.clone()).collect();
        pages.extend([configs.backend.metrics.clone(), configs.frontend.metrics.clone()]);
        let start = |role: &str, name: &str, config: &NodeConfig| -> Result<Child> {
            let file = dir.join(format!("{name}.toml"));
            std::fs::write(&file, config.to_toml()).with_context(|| format!("cannot write {}", file.display()))?;
            ChildSpec::new(name, binary, [role, "--config", &file.to_string_lossy()], dir).spawn()
        };
        let mut cluster = Self {
            control: ControlClient::new(&Net::plaintext(), &addrs)?,
            frontend: configs.frontend.clone(),
            pages,
            schedulers: Vec::new(),
            others: Vec::new(),
        };
        for scheduler in configs.schedulers {
            let (id, name) = (scheduler.id, format!("scheduler-{}", scheduler.id.get()));
            let config = NodeConfig { scheduler: Some(scheduler), ..configs.base.clone() };
            cluster.schedulers.push((id, start("scheduler", &name, &config)?));
        }
        let config = NodeConfig { backend: Some(configs.backend), ..configs.base.clone() };
        cluster.others.push(start("backend", "backend", &config)?);
        let config = NodeConfig { frontend: Some(configs.frontend), ..configs.base };
        cluster.others.push(start("frontend", "frontend", &config)?);
        cluster.until("the whole cluster", whole).await?;
        Ok(cluster)
    }

    /// Waits until the cluster's view fulfils a condition, which says what is missing.
    pub(crate) async fn until(&mut self, what: &str, condition: impl Fn(&View) -> Result<(), String>) -> Result<View> {
        let control = self.control.clone();
        let waited = wait_until_async(what, READY_WITHIN, || async {
            let view = control.get(false, LOOK_WITHIN).await?;
            condition(&view).map_err(anyhow::Error::msg)?;
            Ok(view)
        });
        let view = waited.await;
        self.check()?;
        view
    }

    /// An error if a process has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        for child in self.schedulers.iter_mut().map(|(_, child)| child).chain(&mut self.others) {
            if let Some(status) = child.ended()? {
                bail!("{} ended by itself ({status}); its log ends:\n{}", child.name(), child.log_tail());
            }
        }
        Ok(())
    }

    /// Has the cluster load a model and waits until it is ready.
    pub(crate) async fn load(&mut self, spec: &ModelSpec) -> Result<()> {
        let operation_id = fresh_operation_id().to_string();
        let request = pb::LoadModelRequest { spec: Some(spec.into()), operation_id };
        let call = |mut client: pb::control_client::ControlClient<_>| {
            let request = request.clone();
            async move { client.load_model(request).await }
        };
        self.control.call(READY_WITHIN, call).await?;
        let ready = |view: &View| match view.model_named(&spec.name) {
            Some((_, model)) if model.is_ready(view) => Ok(()),
            _ => Err(format!("model {} is not ready", spec.name)),
        };
        self.until("the model", ready).await.map(drop)
    }

    /// `kill -9` of a replica. Returns when the operating system has confirmed its end.
    pub(crate) fn kill(&mut self, node: NodeId) -> Result<()> {
        let child = self.scheduler(node)?;
        ensure!(child.ended()?.is_none(), "{node} had ended before it was killed");
        child.kill().map(drop)
    }

    /// Starts a killed replica again, over its own data.
    pub(crate) fn restart(&mut self, node: NodeId) -> Result<()> {
        let child = self.scheduler(node)?;
        ensure!(child.ended()?.is_some(), "{node} still runs");
        *child = child.spec().clone().spawn()?;
        Ok(())
    }

    fn scheduler(&mut self, node: NodeId) -> Result<&mut Child> {
        let found = self.schedulers.iter_mut().find(|(id, _)| *id == node);
        found.map(|(_, child)| child).with_context(|| format!("no process of {node}"))
    }

    /// What every process says of itself, the frontend last.
    pub(crate) async fn pages(&self) -> Result<Vec<serde_json::Value>> {
        let mut pages = Vec::new();
        for address in &self.pages {
            let url = format!("http://{address}/api/view");
            pages.push(reqwest::get(&url).await?.error_for_status()?.json().await?);
        }
        Ok(pages)
    }

    /// Stops everything, frontend and backend first.
    pub(crate) fn stop(mut self) -> Result<()> {
        for child in self.others.iter_mut().rev().chain(self.schedulers.iter_mut().map(|(_, child)| child)) {
            child.stop(STOP_WITHIN)?;
        }
        Ok(())
    }
}

/// Registered, with a leader and every other replica as a standby.
pub(crate) fn whole(view: &View) -> Result<(), String> {
    let up = view.nodes.values().filter(|node| node.up && node.boot.is_some()).count() as u64;
    if up < REPLICAS {
        return Err(format!("{up} of {REPLICAS} schedulers are up"));
    }
    if !view.backends.values().any(|backend| backend.up) || view.frontends.is_empty() {
        return Err("the backend or the frontend is not registered".into());
    }
    let subcluster = view.subclusters.values().find(|s| s.name == SUBCLUSTER).ok_or("no sub-cluster yet")?;
    if subcluster.leader.is_none() || (subcluster.standbys.len() as u64) < REPLICAS - 1 {
        return Err(format!("leader {:?}, standbys {:?}", subcluster.leader, subcluster.standbys));
    }
    view.control_leader.map(drop).ok_or_else(|| "the control group has no leader".into())
}

/// The configurations of all processes, on free ports of loopback.
struct Configs {
    base: NodeConfig,
    schedulers: Vec<SchedulerConfig>,
    backend: BackendConfig,
    frontend: FrontendConfig,
}

impl Configs {
    fn new(shape: ClusterShape, timing: Timing, dir: &Path) -> Result<Self> {
        let mut ports = free_ports(4 * REPLICAS as usize + 4 + 2)?.into_iter().map(Address::loopback);
        let mut next = || ports.next().context("as many as were asked for");
        // Defaults come from the configuration's own; addresses are filled in below.
        let overrides = [
            "frontend.name=frontend",
            "backend.name=backend",
            "backend.gpus=[{ kind = \"cpu\", count = 1, memory_mb = 1024 }]",
            "scheduler.id=1",
            "scheduler.data_dir=unused",
            "cluster.name=chaos",
            "security.insecure_dev=true",
            "cluster.scheduler=[{ id = 1, control = \"127.0.0.1:1\", dispatch = \"127.0.0.1:2\", beat = \"127.0.0.1:3\" }]",
        ]
        .map(str::to_owned);
        let mut base = NodeConfig::load(Role::Up, None, [], &overrides)?;
        let (Some(scheduler), Some(frontend), Some(backend)) =
            (base.scheduler.take(), base.frontend.take(), base.backend.take())
        else {
            bail!("the defaults hold every section");
        };
        (base.cluster.timing, base.cluster.scheduler) = (timing, Vec::new());
        let mut schedulers = Vec::new();
        for id in (1..=REPLICAS).map(NodeId::new) {
            base.cluster.scheduler.push(ReplicaConfig { id, control: next()?, dispatch: next()?, beat: next()? });
            let data_dir = dir.join(format!("raft-{}", id.get()));
            schedulers.push(SchedulerConfig { id, data_dir, metrics: next()?, ..scheduler.clone() });
        }
        let frontend = FrontendConfig { grpc: next()?, rest: next()?, metrics: next()?, data: next()?, ..frontend };
        let backend = BackendConfig {
            subcluster: SUBCLUSTER.into(),
            exec: next()?,
            metrics: next()?,
            executor: ExecutorKind::Emulated,
            gpus: vec![GpuConfig { kind: GPU_KIND.into(), count: shape.gpus, memory_mb: 16_384 }],
            ..backend
        };
        Ok(Self { base, schedulers, backend, frontend })
    }
}
