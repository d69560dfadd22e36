//! Replicas in one process on loopback, each with its own directory, and the steps of the tests' stories.
#![allow(dead_code, unreachable_pub)] // Each test takes what it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use symphony_control_plane::{
    ControlPlane, ControlPlaneConfig, Engine, Environment, Listeners, Liveness, OnDiskError, ReplicaAddrs, Timing,
    unix_ms,
};
use symphony_net::{ClusterLevel, Net};
use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient;
use symphony_protocol::view::View;
use symphony_types::{BootId, Level, NodeId};
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic::{Code, Status};

pub const CLUSTER: &str = "test";

/// Everything awaited here takes a second or two; a machine that compiles at the same time needs more.
const SOON: Duration = Duration::from_secs(60);

/// No replica is taken for dead because the machine is slow: for stories in which only stopped replicas die.
pub fn steady() -> Timing {
    let ms = Duration::from_millis;
    let group = symphony_consensus::Timing {
        heartbeat: ms(100),
        election_min: ms(1_000),
        election_max: ms(1_500),
        rpc_timeout: ms(700),
        connect_timeout: ms(500),
        keep_alive_interval: ms(2_000),
        keep_alive_timeout: ms(4_000),
        quorum_loss_probe: ms(3_000),
        snapshot_timeout: ms(30_000),
        proposal_timeout: ms(10_000),
        disk_stall: Duration::from_secs(60),
    };
    let liveness = Liveness {
        heartbeat: ms(20),
        suspicion: ms(5_000),
        late: ms(1_000),
        old_leader_grace: ms(3_000),
        dial: ms(500),
        unconfirmed_max: ms(6_000),
    };
    Timing { group, liveness }
}

/// A cluster of replicas, some of them running.
pub struct Cluster {
    dir: TempDir,
    timing: Timing,
    addrs: BTreeMap<NodeId, ReplicaAddrs>,
    founders: BTreeSet<u64>,
    /// What the next boot of a replica knows.
    pub newest: Level,
    pub running: BTreeMap<u64, ControlPlane>,
}

impl Cluster {
    /// Starts replicas 1..=count; the boot id of each is ten times its number.
    pub async fn start(count: u64, timing: Timing) -> Self {
        Self::start_of(Level::NEWEST, count, timing).await
    }

    /// The same, of a release that knows no level above this one.
    pub async fn start_of(newest: Level, count: u64, timing: Timing) -> Self {
        Self::start_behind(newest, count, timing, |port| port).await
    }

    /// The same; the others find a replica's heartbeat port where `in_place_of` says.
    pub async fn start_behind(
        newest: Level,
        count: u64,
        timing: Timing,
        in_place_of: impl Fn(SocketAddr) -> SocketAddr,
    ) -> Self {
        let mut bound = Vec::new();
        let mut addrs = BTreeMap::new();
        for id in 1..=count {
            let control = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let heartbeat = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = ReplicaAddrs {
                control: control.local_addr().unwrap().to_string(),
                heartbeat: in_place_of(heartbeat.local_addr().unwrap()).to_string(),
            };
            addrs.insert(NodeId::new(id), address);
            bound.push((id, Listeners { control: control.into(), heartbeat: heartbeat.into() }));
        }
        let dir = tempfile::tempdir().unwrap();
        let founders = (1..=count).collect();
        let mut cluster = Self { dir, timing, addrs, founders, newest, running: BTreeMap::new() };
        for (id, listeners) in bound {
            cluster.start_with(id, id * 10, listeners).await;
        }
        cluster
    }

    /// Starts a replica that is not (yet) a member, and returns its address.
    pub async fn start_joining(&mut self, id: u64) -> String {
        let control = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let heartbeat = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = control.local_addr().unwrap().to_string();
        let address = ReplicaAddrs { control: addr.clone(), heartbeat: heartbeat.local_addr().unwrap().to_string() };
        self.addrs.insert(NodeId::new(id), address);
        self.start_with(id, id * 10, Listeners { control: control.into(), heartbeat: heartbeat.into() }).await;
        addr
    }

    /// Empties a stopped replica's disk.
    pub fn wipe(&self, id: u64) {
        std::fs::remove_dir_all(self.dir.path().join(format!("node-{id}"))).unwrap();
    }

    /// Waits until a replica ends by itself, and returns the reason.
    pub async fn ends(&self, id: u64) -> String {
        let mut ends = self.running[&id].ends();
        let ended = tokio::time::timeout(SOON, ends.wait_for(Option::is_some)).await;
        ended.expect("the replica must find out").unwrap().as_ref().unwrap().to_string()
    }

    /// Starts a replica again, at its addresses and on its disk.
    pub async fn restart(&mut self, id: u64, boot: u64) {
        let addrs = self.addrs[&NodeId::new(id)].clone();
        let listeners = Listeners {
            control: tokio::net::TcpListener::bind(&addrs.control).await.unwrap().into(),
            heartbeat: std::net::TcpListener::bind(&addrs.heartbeat).unwrap().into(),
        };
        self.start_with(id, boot, listeners).await;
    }

    async fn start_with(&mut self, id: u64, boot: u64, listeners: Listeners) {
        let config = ControlPlaneConfig {
            cluster: CLUSTER.to_owned(),
            node: NodeId::new(id),
            boot: BootId::new(boot),
            replicas: self.addrs.clone(),
            dispatch_addr: format!("127.0.0.1:{}", 20_000 + id),
            data_dir: self.dir.path().join(format!("node-{id}")),
            timing: self.timing.clone(),
            engine: Engine::Sled,
            on_disk_error: OnDiskError::Stop,
            environment: Environment::Machine,
            net: Net::plaintext().levelled(ClusterLevel::up_to(self.newest)),
            join: !self.founders.contains(&id),
            epochs: symphony_control_plane::EpochSettings::default(),
            request_delays: symphony_types::Nanos::ZERO,
            wall_clock: unix_ms,
            policies: symphony_scheduler::PolicyRegistry::new(),
        };
        self.running.insert(id, ControlPlane::start(config, listeners).await.unwrap());
    }

    /// Stops a replica like a crash, without any goodbye.
    pub async fn stop(&mut self, id: u64) {
        self.running.remove(&id).unwrap().shutdown().await;
    }

    pub async fn stop_all(mut self) {
        while let Some((_, plane)) = self.running.pop_first() {
            plane.shutdown().await;
        }
    }

    /// Waits until the view of a replica is as described.
    #[track_caller]
    pub fn sees(&self, id: u64, what: &str, is_so: impl Fn(&View) -> bool) -> impl Future<Output = Arc<View>> {
        let mut views = self.running[&id].view();
        let what = format!("replica {id} sees {what}");
        async move {
            let waited = tokio::time::timeout(SOON, views.wait_for(|view| is_so(view))).await;
            let waited = waited.map(|view| view.unwrap().clone());
            match waited {
                Ok(view) => view,
                Err(_) => panic!("not within {SOON:?}: {what}; it sees {:#?}", *views.borrow()),
            }
        }
    }

    /// Waits until the condition holds in the view of every running replica.
    pub async fn all_see(&self, what: &str, is_so: impl Fn(&View) -> bool) {
        for &id in self.running.keys() {
            self.sees(id, what, &is_so).await;
        }
    }

    /// Waits until all replicas are registered and follow the same leader; returns the leader.
    pub async fn settled(&self) -> u64 {
        let count = self.running.len();
        self.all_see("all running replicas up under one leader", |view| {
            view.nodes.values().filter(|n| n.up).count() == count && view.control_leader.is_some()
        })
        .await;
        let first = *self.running.keys().next().unwrap();
        let leader = self.running[&first].view().borrow().control_leader.unwrap().get();
        self.all_see("the same leader", |view| view.control_leader == Some(NodeId::new(leader))).await;
        leader
    }

    /// A running replica that is not among these.
    pub fn other_than(&self, not: &[u64]) -> u64 {
        *self.running.keys().find(|id| !not.contains(id)).unwrap()
    }

    pub async fn client(&self, id: u64) -> ControlClient<Channel> {
        ControlClient::connect(format!("http://{}", self.running[&id].control_addr())).await.unwrap()
    }
}

/// Repeats a call until a leader accepts it.
pub async fn patiently<T>(call: impl AsyncFn() -> Result<tonic::Response<T>, Status>) -> T {
    let give_up = tokio::time::Instant::now() + SOON;
    loop {
        match call().await {
            Ok(reply) => return reply.into_inner(),
            Err(status) if status.code() == Code::Unavailable && tokio::time::Instant::now() < give_up => {
                eprintln!("again, because {}", status.message());
            }
            Err(status) => panic!("{status}"),
        }
    }
}

pub fn backend(name: &str, boot_id: u64, subcluster: &str) -> pb::RegisterBackendRequest {
    pb::RegisterBackendRequest {
        name: name.into(),
        boot_id,
        exec_addr: "127.0.0.1:30000".into(),
        subcluster: subcluster.into(),
        executor: "emulated".into(),
        gpus: vec![pb::GpuOffer { kind: "cpu".into(), memory_bytes: 1 << 30 }],
        level: Level::NEWEST.get().into(),
    }
}

pub fn model(name: &str, subcluster: &str) -> pb::ModelSpec {
    let tensor = pb::TensorSpec { name: "x".into(), data_type: "FP32".into(), item_shape: vec![8, 8] };
    let profile = pb::Profile {
        gpu_kind: "cpu".into(),
        latency_ns: vec![1_000_000, 1_500_000],
        static_memory_bytes: 1 << 20,
        dynamic_memory_bytes: 1 << 20,
    };
    pb::ModelSpec {
        name: name.into(),
        subcluster: subcluster.into(),
        slo_ns: 50_000_000,
        source: Some(pb::model_spec::Source::Emulated(true)),
        inputs: vec![tensor.clone()],
        outputs: vec![tensor],
        profiles: vec![profile],
        policy: Default::default(),
        value_thousandths: 0,
        own_trunk: false,
        transforms: None,
    }
}

/// Leader, its boot, and token of the sub-cluster with that name.
pub fn leadership(view: &View, name: &str) -> Option<(u64, u64, u64)> {
    let subcluster = view.subclusters.values().find(|s| s.name == name)?;
    let (node, boot) = subcluster.leader?;
    Some((node.get(), boot.get(), subcluster.token.get()))
}
