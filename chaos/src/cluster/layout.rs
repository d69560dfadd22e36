//! The configurations of all processes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use symphony_config::{
    Address, BackendConfig, ExecutorKind, FrontendConfig, GpuConfig, NodeConfig, ReplicaConfig, Role, RouteConfig,
    SchedulerConfig, SecurityConfig, Timing,
};
use symphony_net::{self as net, Authority, CredentialFiles, Credentials, Identity, Net};
use symphony_types::NodeId;

use super::joining::Joining;
use super::{ClusterSetup, Process, Processes};
use crate::network::Network;
use crate::scenario::ClusterShape;

/// The name of a cluster that is the only one.
pub(crate) const CLUSTER: &str = "chaos";
/// Longer than any run, and than clocks jump ahead.
pub(crate) const CERTIFICATE_DAYS: u32 = 800;
/// The folder of the certificates.
pub(crate) const PKI: &str = "pki";
/// Who works on the cluster.
pub(super) const OPERATOR: &str = "chaos";
/// The kind of the GPUs.
pub(crate) const GPU_KIND: &str = "emulated";

/// The directory of a replica's log.
pub(super) fn data_dir(dir: &Path, replica: Process) -> PathBuf {
    dir.join(format!("{replica}-raft"))
}

pub(super) struct Layout {
    pub(super) configs: BTreeMap<Process, NodeConfig>,
    pub(super) controls: Vec<(Process, Address)>,
    pub(super) frontends: Vec<FrontendConfig>,
    /// What backends have in common.
    pub(super) backend: BackendConfig,
    /// Addresses of the processes' health and metrics pages.
    pub(super) pages: BTreeMap<Process, Address>,
    pub(super) journals: BTreeMap<Process, PathBuf>,
    /// How operators talk to the cluster.
    pub(super) operator: Net,
    /// For processes that join later.
    pub(super) joining: Joining,
}

/// Makes certificates of one cluster, or of a federation.
#[derive(Debug)]
pub(crate) struct Pki {
    authority: Authority,
    name: String,
}

impl Pki {
    /// A new authority, with its files in `dir`.
    pub(crate) fn create(dir: &Path, name: &str) -> Result<Self> {
        Ok(Self { authority: Authority::create(&dir.join(PKI), name)?, name: name.to_owned() })
    }

    pub(crate) fn issue(&self, role: net::Role, name: &str) -> Result<CredentialFiles> {
        Ok(self.authority.issue(&Identity::new(&self.name, role, name)?, CERTIFICATE_DAYS)?.files)
    }

    pub(crate) fn security(&self, role: net::Role, name: &str) -> Result<SecurityConfig> {
        let CredentialFiles { ca, cert, key } = self.issue(role, name)?;
        // Processes in namespaces of their own are not on loopback, and nobody else is in there.
        let insecure_public = true;
        Ok(SecurityConfig {
            ca: Some(ca),
            cert: Some(cert),
            key: Some(key),
            insecure_public,
            ..SecurityConfig::default()
        })
    }

    pub(super) fn of(&self, process: Process) -> Result<SecurityConfig> {
        match process {
            Process::Replica(id) => self.security(net::Role::Scheduler, &id.to_string()),
            Process::Backend(_) => self.security(net::Role::Backend, &process.to_string()),
            Process::Frontend(_) => self.security(net::Role::Frontend, &process.to_string()),
        }
    }

    pub(crate) fn net(&self, role: net::Role, name: &str) -> Result<Net> {
        Ok(Net::secured(Arc::new(Credentials::load(self.issue(role, name)?)?)))
    }
}

/// What nodes have in common, and each role's own section. Addresses are to be filled in.
pub(crate) struct Defaults {
    pub(crate) base: NodeConfig,
    pub(crate) scheduler: SchedulerConfig,
    pub(crate) frontend: FrontendConfig,
    pub(crate) backend: BackendConfig,
}

impl Defaults {
    /// The configuration's own.
    pub(crate) fn of(cluster: &str, timing: Timing) -> Result<Self> {
        let overrides = [
            "frontend.name=frontend",
            "backend.name=backend",
            "backend.gpus=[{ kind = \"cpu\", count = 1, memory_mb = 1024 }]",
            "scheduler.id=1",
            "scheduler.data_dir=unused",
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
        base.cluster.name = cluster.into();
        Ok(Self { base, scheduler, frontend, backend })
    }
}

impl Layout {
    pub(super) async fn new(
        shape: &ClusterShape,
        processes: &Processes,
        network: &mut Network,
        place: ClusterSetup<'_>,
    ) -> Result<Self> {
        let dir = place.dir;
        let Defaults { mut base, scheduler, frontend, backend } = Defaults::of(place.name, place.timing)?;
        let scheduler = SchedulerConfig { decision_threads: shape.decision_threads, ..scheduler };
        let gpus = vec![GpuConfig { kind: GPU_KIND.into(), count: shape.gpus, memory_mb: 16_384 }];
        let backend = BackendConfig { executor: ExecutorKind::Emulated, gpus, noise: place.noise, ..backend };
        let pki = Arc::new(Pki::create(dir, place.name)?);
        let operator = pki.net(net::Role::Operator, OPERATOR)?;

        let mut layout = Self {
            configs: BTreeMap::new(),
            controls: Vec::new(),
            frontends: Vec::new(),
            backend: backend.clone(),
            pages: BTreeMap::new(),
            journals: BTreeMap::new(),
            operator,
            joining: Joining { base: base.clone(), scheduler: scheduler.clone(), pki, dir: dir.to_owned() },
        };
        // Addresses that others dial.
        let mut dialled = Vec::new();
        let mut own = Vec::new();
        for process in processes.replicas() {
            let Process::Replica(id) = process else { continue };
            let id = NodeId::new(id);
            let mut next = || network.address(process);
            let replica = ReplicaConfig { id, control: next()?, dispatch: next()?, beat: next()? };
            let metrics = next()?;
            dialled.extend(replica.addresses().map(|(_, address)| (process, address.clone())));
            layout.controls.push((process, replica.control.clone()));
            layout.pages.insert(process, metrics.clone());
            base.cluster.scheduler.push(replica);
            let data_dir = data_dir(dir, process);
            own.push((process, SchedulerConfig { id, data_dir, metrics, ..scheduler.clone() }));
        }
        layout.joining.base = base.clone();
        for (process, config) in own {
            let security = layout.joining.pki.of(process)?;
            layout.configs.insert(process, NodeConfig { scheduler: Some(config), security, ..base.clone() });
        }
        for process in processes.backends() {
            let journal = dir.join(format!("{process}.journal"));
            let config = BackendConfig {
                name: process.to_string(),
                subcluster: processes.subcluster_of(process),
                exec: network.address(process)?,
                metrics: network.address(process)?,
                journal_file: Some(journal.clone()),
                ..backend.clone()
            };
            dialled.push((process, config.exec.clone()));
            layout.pages.insert(process, config.metrics.clone());
            layout.journals.insert(process, journal);
            let security = layout.joining.pki.of(process)?;
            layout.configs.insert(process, NodeConfig { backend: Some(config), security, ..base.clone() });
        }
        for process in processes.frontends() {
            let mut next = || network.address(process);
            let config = FrontendConfig {
                name: process.to_string(),
                grpc: next()?,
                rest: next()?,
                metrics: next()?,
                data: next()?,
                ..frontend.clone()
            };
            dialled.push((process, config.data.clone()));
            layout.pages.insert(process, config.metrics.clone());
            layout.frontends.push(config.clone());
            let security = layout.joining.pki.of(process)?;
            layout.configs.insert(process, NodeConfig { frontend: Some(config), security, ..base.clone() });
        }
        for (owner, to) in dialled {
            for (dialler, via) in network.stand_before(owner, &to).await? {
                if let Some(config) = layout.configs.get_mut(&dialler) {
                    config.network.routes.push(RouteConfig { to: to.clone(), via });
                }
            }
        }
        Ok(layout)
    }
}
