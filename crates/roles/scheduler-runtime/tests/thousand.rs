//! What it takes to lead a thousand sub-clusters at once. Prints figures and promises none: `cargo test --release -p
//! symphony-scheduler-runtime --test integration thousand -- --ignored --nocapture`, with more than 4096 open files
//! allowed.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use symphony_net::{Authority, Credentials, Identity, Incoming, Net, Port, Role};
use symphony_protocol::execute::{FromBackend, SealedGpu, ToBackend};
use symphony_protocol::view::{BackendView, GpuView, SubclusterView, View};
use symphony_scheduler::{DataDelaySettings, Delays};
use symphony_scheduler_runtime::{DecisionConfig, LeadConfig, Runtime};
use symphony_transport::link_over;
use symphony_types::{BackendId, BootId, GpuId, NodeId, SubclusterId, Token};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

const SUBCLUSTERS: u32 = 1000;
const ME: (NodeId, BootId) = (NodeId::new(1), BootId::new(7));
const BACKEND_BOOT: BootId = BootId::new(5);
/// How long nothing happens, to see what that costs.
const IDLE: Duration = Duration::from_secs(20);

/// All sub-clusters, each with a backend of one GPU at the same address, led by another node before and by this one
/// after.
fn view(exec_addr: &str, led: bool) -> View {
    let (leader, token) = if led { (Some(ME), 20) } else { (Some((NodeId::new(2), BootId::new(8))), 10) };
    let subcluster = |id: u32| {
        let standbys = vec![NodeId::new(3)];
        let subcluster =
            SubclusterView { name: format!("s{id}"), leader, token: Token::new(token), standbys, ..Default::default() };
        (SubclusterId::new(id), subcluster)
    };
    let backend = |id: u32| {
        let gpus = vec![GpuView { id: GpuId::new(id), kind: "gpu".into(), memory_bytes: 0, binding: Token::new(4) }];
        let subcluster = SubclusterId::new(id);
        let exec_addr = exec_addr.to_owned();
        // One certificate for all: what it costs to check does not depend on the name.
        let backend = BackendView {
            name: "b".into(),
            boot: BACKEND_BOOT,
            up: true,
            exec_addr,
            subcluster,
            gpus,
            ..Default::default()
        };
        (BackendId::new(id), backend)
    };
    View {
        applied_index: token,
        subclusters: (1..=SUBCLUSTERS).map(subcluster).collect(),
        backends: (1..=SUBCLUSTERS).map(backend).collect(),
        ..View::default()
    }
}

/// Answers every leader as a backend would.
async fn backends(listener: TcpListener, net: Net, seals: Arc<AtomicU32>) {
    // Half of the places are for one address, which all have here: a connection each, and those being given up.
    let mut incoming = Incoming::new(listener, net, Port::new("played", &[Role::Scheduler], 4 * SUBCLUSTERS as usize));
    while let Some(connection) = incoming.next().await {
        let (sender, mut receiver) = link_over::<FromBackend, ToBackend>(connection);
        let seals = Arc::clone(&seals);
        tokio::spawn(async move {
            while let Ok(frame) = receiver.receive().await {
                let ToBackend::Seal { gpus, .. } = frame.message else { continue };
                let sealed = |(gpu, promised)| SealedGpu { gpu, promised, free_in: 0, in_flight: vec![] };
                let gpus = gpus.into_iter().map(sealed).collect();
                sender.send(FromBackend::Sealed { boot: BACKEND_BOOT, gpus, finished: vec![], plans: vec![] }).unwrap();
                seals.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

/// Processor time of this process's threads by the first word of their names, in milliseconds.
fn cpu_ms() -> BTreeMap<String, u64> {
    const TICK_MS: u64 = 10;
    let mut all = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { continue };
        let (name, rest) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')).unwrap();
        let ticks: u64 = rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        *all.entry(name.split('-').next().unwrap_or_default().to_owned()).or_default() += ticks * TICK_MS;
    }
    all
}

fn memory_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    rss.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
}

fn runtime(name: &str) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name(name).enable_all().build().unwrap()
}

fn take_over(title: &str, leader: Net, backend: Net) {
    let (leading, played) = (runtime("leader"), runtime("played"));
    let listener = played.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let exec_addr = listener.local_addr().unwrap().to_string();
    let seals = Arc::new(AtomicU32::new(0));
    played.spawn(backends(listener, backend, Arc::clone(&seals)));

    let (view_sender, views) = watch::channel(Arc::new(view(&exec_addr, false)));
    let (_contact, in_contact) = watch::channel(true);
    let (reports, _reported) = mpsc::unbounded_channel();
    let config = LeadConfig {
        node: ME.0,
        boot: ME.1,
        net: leader,
        data_delays: DataDelaySettings::default(),
        delays: Delays::default(),
        decisions: DecisionConfig::default(),
        tapes: None,
        stuck_after: Duration::from_millis(100),
        consolidate: Vec::new(),
        policies: symphony_scheduler::PolicyRegistry::new(),
    };
    let runtime = leading.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Runtime::start(config, listener, views, in_contact, reports).unwrap()
    });
    let before = memory_mib();
    let begun = Instant::now();
    view_sender.send_replace(Arc::new(view(&exec_addr, true)));
    while seals.load(Ordering::Relaxed) < SUBCLUSTERS {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{} of {SUBCLUSTERS} are sealed",
            seals.load(Ordering::Relaxed)
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{title}: {SUBCLUSTERS} leads sealed after {:?}, {} MiB more", begun.elapsed(), memory_mib() - before);
    std::thread::sleep(Duration::from_secs(3));
    let (cpu, begun) = (cpu_ms(), Instant::now());
    std::thread::sleep(IDLE);
    let took = begun.elapsed().as_millis() as f64;
    for (threads, after) in cpu_ms() {
        let share = (after - cpu.get(&threads).copied().unwrap_or(0)) as f64 / took;
        println!("{title}: idle, threads {threads}: {:.1} % of a core", 100.0 * share);
    }
    runtime.stop();
    leading.shutdown_timeout(Duration::from_secs(1));
    played.shutdown_timeout(Duration::from_secs(1));
}

#[test]
#[ignore = "measures, and wants the machine for itself"]
fn a_thousand_subclusters_are_taken_over() {
    take_over("plaintext", Net::plaintext(), Net::plaintext());
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path(), "blue").unwrap();
    let net = |role, name| {
        let issued = authority.issue(&Identity::new("blue", role, name).unwrap(), 1).unwrap();
        Net::secured(Arc::new(Credentials::load(issued.files).unwrap()))
    };
    take_over("TLS", net(Role::Scheduler, "1"), net(Role::Backend, "b"));
}
