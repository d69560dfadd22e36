//! Configurations of a cluster on free ports of this machine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use symphony_config::{
    Address, BackendConfig, ClusterConfig, ExecutorKind, FrontendConfig, GpuConfig, NodeConfig, ReplicaConfig,
    RepositoryConfig, Role, SchedulerConfig, SecurityConfig,
};
use symphony_net::{self as net, Authority, CredentialFiles, Identity};
use symphony_testkit::{Workspace, free_ports};
use symphony_types::NodeId;

use crate::cluster::{BackendShape, Shape};

/// Ports of a scheduler (control, dispatch, beat, metrics), of a frontend (gRPC, REST, metrics, data), of a backend
/// (execute, metrics).
const SCHEDULER_PORTS: usize = 4;
const FRONTEND_PORTS: usize = 4;
const BACKEND_PORTS: usize = 2;

/// The token with which clients load models of the repository.
pub const REPOSITORY_TOKEN: &str = "a-token-of-32-characters-0123456";

/// Folder of the certificates, in the workspace.
pub(crate) const PKI: &str = "pki";
/// Longer than any test.
const CERTIFICATE_DAYS: u32 = 2;

/// One process's role, configuration and addresses by key.
pub(crate) struct NodeFile {
    pub(crate) role: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) addresses: BTreeMap<&'static str, Address>,
}

/// Folder of a scheduler replica's disk, in the workspace.
pub(crate) fn data_dir(name: &str) -> String {
    format!("{name}-raft")
}

/// Writes the configurations of all processes; by name of the process.
pub(crate) fn write(workspace: &Workspace, shape: &Shape) -> Result<BTreeMap<String, NodeFile>> {
    let schedulers = usize::from(shape.schedulers);
    let frontends = usize::from(shape.frontends);
    let count = SCHEDULER_PORTS * schedulers + FRONTEND_PORTS * frontends + BACKEND_PORTS * shape.backends.len();
    let mut ports = free_ports(count)?.into_iter().map(Address::loopback);
    let mut next = || ports.next().context("as many ports as were asked for");

    let base = base(shape)?;
    let (Some(scheduler), Some(frontend), Some(backend)) = (&base.scheduler, &base.frontend, &base.backend) else {
        anyhow::bail!("the defaults of `up` hold every section");
    };
    let mut replicas = Vec::new();
    for id in 1..=schedulers {
        let id = NodeId::new(id as u64);
        replicas.push(ReplicaConfig { id, control: next()?, dispatch: next()?, beat: next()? });
    }
    let cluster = ClusterConfig { scheduler: replicas.clone(), ..base.cluster.clone() };
    let empty =
        NodeConfig { cluster, scheduler: None, frontend: None, backend: None, federation: None, ..base.clone() };

    let pki = workspace.file(PKI);
    let authority = Authority::create(&pki, &base.cluster.name)?;
    let issue = |role, name: &str| -> Result<SecurityConfig> {
        if base.security.insecure_dev {
            return Ok(base.security.clone());
        }
        let identity = Identity::new(&base.cluster.name, role, name)?;
        let issued = authority.issue_at(&identity, &["127.0.0.1".parse()?], CERTIFICATE_DAYS)?;
        let CredentialFiles { ca, cert, key } = issued.files;
        Ok(SecurityConfig { ca: Some(ca), cert: Some(cert), key: Some(key), ..SecurityConfig::default() })
    };
    issue(net::Role::Operator, "admin")?;
    issue(net::Role::Viewer, "guest")?;
    issue(net::Role::Frontend, "load")?;

    let mut files = BTreeMap::new();
    let mut add = |name: String, role, config: &NodeConfig, addresses: BTreeMap<&'static str, Address>| {
        let path = workspace.write(&format!("{name}.toml"), &config.to_toml())?;
        files.insert(name, NodeFile { role, path, addresses });
        Ok::<_, anyhow::Error>(())
    };
    for replica in &replicas {
        let name = format!("scheduler-{}", replica.id.get());
        let data_dir = workspace.file(&data_dir(&name));
        let own = SchedulerConfig { id: replica.id, data_dir, metrics: next()?, ..scheduler.clone() };
        let mut addresses = BTreeMap::from([("metrics", own.metrics.clone())]);
        addresses.extend(replica.addresses().map(|(key, address)| (key, address.clone())));
        let security = issue(net::Role::Scheduler, &replica.id.get().to_string())?;
        add(name, "scheduler", &NodeConfig { scheduler: Some(own), security, ..empty.clone() }, addresses)?;
    }
    for BackendShape { name, subcluster, executor, gpus } in &shape.backends {
        let own = BackendConfig {
            name: name.clone(),
            subcluster: subcluster.clone(),
            exec: next()?,
            metrics: next()?,
            executor: *executor,
            gpus: vec![GpuConfig { kind: kind_of(*executor).into(), count: *gpus, memory_mb: 4096 }],
            ..backend.clone()
        };
        let addresses = BTreeMap::from([("exec", own.exec.clone()), ("metrics", own.metrics.clone())]);
        let security = issue(net::Role::Backend, name)?;
        add(name.clone(), "backend", &NodeConfig { backend: Some(own), security, ..empty.clone() }, addresses)?;
    }
    let repository = if shape.repository { repository(workspace)? } else { frontend.repository.clone() };
    let frontend = &FrontendConfig { repository, ..frontend.clone() };
    for number in 1..=frontends {
        let name = if number == 1 { "frontend".to_owned() } else { format!("frontend-{number}") };
        let (grpc, rest, metrics, data) = (next()?, next()?, next()?, next()?);
        let own = FrontendConfig { name: name.clone(), grpc, rest, metrics, data, ..frontend.clone() };
        let addresses = [("grpc", &own.grpc), ("rest", &own.rest), ("metrics", &own.metrics), ("data", &own.data)];
        let addresses = addresses.into_iter().map(|(key, address)| (key, address.clone())).collect();
        let security = issue(net::Role::Frontend, &name)?;
        add(name, "frontend", &NodeConfig { frontend: Some(own), security, ..empty.clone() }, addresses)?;
    }
    Ok(files)
}

/// Writes the configuration of a replica that is to take another one's place in the cluster of `scheduler-1`, with a
/// certificate of its own. It names the cluster as it will be.
pub(crate) fn joining(workspace: &Workspace, id: NodeId, instead_of: NodeId) -> Result<NodeFile> {
    let first = workspace.file("scheduler-1.toml");
    let mut config = NodeConfig::load(Role::Scheduler, Some(&first), [], &[])?;
    let mut ports = free_ports(SCHEDULER_PORTS)?.into_iter().map(Address::loopback);
    let mut next = || ports.next().context("as many ports as were asked for");
    let replica = ReplicaConfig { id, control: next()?, dispatch: next()?, beat: next()? };
    let name = format!("scheduler-{}", id.get());
    let data_dir = workspace.file(&data_dir(&name));
    let scheduler = config.scheduler.take().context("a scheduler's configuration has its section")?;
    let own = SchedulerConfig { id, data_dir, metrics: next()?, join: true, ..scheduler };
    let mut addresses = BTreeMap::from([("metrics", own.metrics.clone())]);
    addresses.extend(replica.addresses().map(|(key, address)| (key, address.clone())));
    config.cluster.scheduler.retain(|replica| replica.id != instead_of);
    config.cluster.scheduler.push(replica);
    let issued = Authority::open(&workspace.file(PKI))?
        .issue(&Identity::new(&config.cluster.name, net::Role::Scheduler, &id.get().to_string())?, CERTIFICATE_DAYS)?;
    config.security = SecurityConfig { cert: Some(issued.files.cert), key: Some(issued.files.key), ..config.security };
    config.scheduler = Some(own);
    let path = workspace.write(&format!("{name}.toml"), &config.to_toml())?;
    Ok(NodeFile { role: "scheduler", path, addresses })
}

/// Writes the configuration of a backend that no process has yet, for the cluster of `scheduler-1`. Its certificates
/// are not made.
pub(crate) fn backend(workspace: &Workspace, shape: &BackendShape) -> Result<PathBuf> {
    let first = workspace.file("scheduler-1.toml");
    let mut config = NodeConfig::load(Role::Scheduler, Some(&first), [], &[])?;
    let like = base(&Shape { schedulers: 1, ..Shape::default() })?;
    let mut ports = free_ports(BACKEND_PORTS)?.into_iter().map(Address::loopback);
    let mut next = || ports.next().context("as many ports as were asked for");
    config.scheduler = None;
    config.backend = Some(BackendConfig {
        name: shape.name.clone(),
        subcluster: shape.subcluster.clone(),
        exec: next()?,
        metrics: next()?,
        executor: shape.executor,
        gpus: vec![GpuConfig { kind: kind_of(shape.executor).into(), count: shape.gpus, memory_mb: 4096 }],
        ..like.backend.context("the defaults of `up` hold every section")?
    });
    workspace.write(&format!("{}.toml", shape.name), &config.to_toml())
}

/// An empty model repository: the folder that backends load models from unless told otherwise. The operator's
/// certificate is made by now.
fn repository(workspace: &Workspace) -> Result<RepositoryConfig> {
    let dir = workspace.file("models");
    std::fs::create_dir_all(&dir)?;
    let token_file = workspace.write("repository-token", &format!("{REPOSITORY_TOKEN}\n"))?;
    let CredentialFiles { cert, key, .. } = CredentialFiles::in_dir(&workspace.file(PKI), net::Role::Operator, "admin");
    Ok(RepositoryConfig { dir: Some(dir), token_file: Some(token_file), cert: Some(cert), key: Some(key) })
}

/// The kind of GPU that an executor has in tests.
const fn kind_of(executor: ExecutorKind) -> &'static str {
    match executor {
        ExecutorKind::OrtCpu => "cpu",
        ExecutorKind::Emulated => "emulated",
        ExecutorKind::CudaGemm => "gpu",
    }
}

/// The defaults, with the patience that two busy cores need.
pub(crate) fn base(shape: &Shape) -> Result<NodeConfig> {
    let mut overrides: Vec<String> = [
        "frontend.name=frontend",
        "backend.name=backend",
        "backend.gpus=[{ kind = \"cpu\", count = 1, memory_mb = 1024 }]",
        "scheduler.id=1",
        "scheduler.data_dir=raft",
        "cluster.name=test",
        "cluster.timing=relaxed",
        "cluster.scheduler=[{ id = 1, control = \"127.0.0.1:1\", dispatch = \"127.0.0.1:2\", beat = \"127.0.0.1:3\" }]",
        // The worst pauses of a shared machine. Most of the guard is for the timer: a lone request waits until the last
        // moment, and a thread that wakes later than the guard drops it.
        "scheduler.delays.control_us=3000",
        "scheduler.delays.reply_us=40000",
        "scheduler.delays.guard_us=60000",
        "frontend.answer_grace_ms=2000",
    ]
    .map(str::to_owned)
    .into();
    overrides.extend(shape.overrides.iter().cloned());
    Ok(NodeConfig::from_layers(Role::Up, None, [], &overrides)?)
}
