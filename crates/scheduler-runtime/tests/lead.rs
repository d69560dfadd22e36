//! A led sub-cluster over real links, between a frontend and a backend that the test plays.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use symphony_net::{Net, Role};
use symphony_protocol::dispatch::{EndReason, RequestHeader, SUBMIT_REQUESTS_MAX, ToFrontend, ToLeader};
use symphony_protocol::execute::{Done, Execute, FromBackend, Refusal, SealedGpu, ToBackend};
use symphony_protocol::view::{
    BackendView, GpuView, KindProfile, ModelSource, ModelSpec, ModelView, NodeView, ReplicaView, SubclusterView,
    SuccessorView, View,
};
use symphony_scheduler::{DataDelaySettings, Delays, PAYLOAD_DELAY_FORGOTTEN_AFTER};
use symphony_scheduler_runtime::{LeadConfig, LearningSettings, Report, Runtime, ThreadPolicy};
use symphony_transport::{LinkReceiver, LinkSender, connect_link, link_over};
use symphony_types::{
    BackendId, BootId, Duty, FailReason, FrontendId, GpuId, LatencyProfile, ModelId, Nanos, NodeId, RequestId,
    RequestValue, Signature, SubclusterId, Token,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

const NODE: NodeId = NodeId::new(1);
const NODE_BOOT: BootId = BootId::new(7);
const SUBCLUSTER: SubclusterId = SubclusterId::new(1);
const TOKEN: Token = Token::new(10);
const BACKEND: BackendId = BackendId::new(3);
const BACKEND_BOOT: BootId = BootId::new(5);
const GPU: GpuId = GpuId::new(9);
const FRONTEND: FrontendId = FrontendId::new(2);
const FRONTEND_BOOT: BootId = BootId::new(6);
/// Whatever is waited for comes within this.
const PATIENCE: Duration = Duration::from_secs(60);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("no {what} within {PATIENCE:?}"))
}

struct Scene {
    runtime: Runtime,
    view: watch::Sender<Arc<View>>,
    backends: TcpListener,
    dispatch: String,
    contact: watch::Sender<bool>,
    reports: mpsc::UnboundedReceiver<Report>,
}

struct Backend {
    sender: LinkSender<FromBackend>,
    receiver: LinkReceiver<ToBackend>,
}

struct Frontend {
    sender: LinkSender<ToLeader>,
    receiver: LinkReceiver<ToFrontend>,
}

/// The most that inputs are given.
const DATA_MAX: Nanos = Nanos::from_millis(2_000);

fn model(name: &str, policy: &str) -> ModelView {
    // Deferred batches start within a window as wide as α: wide enough for a busy machine's timers.
    let alpha_ms = if policy.is_empty() { 100.0 } else { 1.0 };
    let profile = |slower: f64| {
        let latency = LatencyProfile::from_line(alpha_ms * slower, slower, 8).unwrap();
        KindProfile { latency, static_memory_bytes: 1, dynamic_memory_bytes: 1 }
    };
    let spec = ModelSpec {
        name: name.into(),
        subcluster: String::new(),
        slo: Nanos::from_millis(10_000),
        source: ModelSource::Emulated,
        signature: Signature::default(),
        transforms: Default::default(),
        profiles: BTreeMap::from([("kind".to_owned(), profile(1.0)), ("slow".to_owned(), profile(3.0))]),
        policy: if policy.is_empty() { Default::default() } else { policy.parse().unwrap() },
        value: RequestValue::ONE,
    };
    let replicas = BTreeMap::from([(BACKEND, ReplicaView { boot: BACKEND_BOOT, state: Ok(()) })]);
    ModelView { spec, subcluster: SUBCLUSTER, moving: None, replicas }
}

impl Scene {
    /// Model 1 runs at once, model 2 waits for company.
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// The same in a view that is changed first.
    async fn with(change: impl FnOnce(&mut View)) -> Self {
        Self::configured(change, |_| {}).await
    }

    /// The same, where what does nothing for so long is stuck.
    async fn impatient(stuck_after: Duration, change: impl FnOnce(&mut View)) -> Self {
        Self::configured(change, |config| config.stuck_after = stuck_after).await
    }

    /// The same, where re-driven requests wait for every backend to answer, however long this machine is busy with other things.
    async fn patient() -> Self {
        Self::configured(|_| {}, |config| config.redrive_wait = PATIENCE.into()).await
    }

    /// The same, where what a backend has measured is forgotten after so long.
    async fn forgetful(forgotten_after: Nanos) -> Self {
        Self::configured(|_| {}, |config| config.data_delays.forgotten_after = forgotten_after).await
    }

    async fn configured(change: impl FnOnce(&mut View), configure: impl FnOnce(&mut LeadConfig)) -> Self {
        let backends = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dispatch = listener.local_addr().unwrap().to_string();
        let (boot, dispatch_addr) = (Some(NODE_BOOT), dispatch.clone());
        let node = NodeView { boot, up: true, dispatch_addr, ..NodeView::default() };
        let leader = Some((NODE, NODE_BOOT));
        let subcluster = SubclusterView { name: "s".into(), leader, token: TOKEN, ..SubclusterView::default() };
        let backend = BackendView {
            name: "b".into(),
            boot: BACKEND_BOOT,
            up: true,
            exec_addr: backends.local_addr().unwrap().to_string(),
            subcluster: SUBCLUSTER,
            executor: "emulated".into(),
            gpus: vec![GpuView { id: GPU, kind: "kind".into(), memory_bytes: 1, binding: Token::new(4) }],
            ..BackendView::default()
        };
        let mut view = View {
            applied_index: 10,
            nodes: BTreeMap::from([(NODE, node)]),
            subclusters: BTreeMap::from([(SUBCLUSTER, subcluster)]),
            backends: BTreeMap::from([(BACKEND, backend)]),
            models: [(1, model("at-once", "eager")), (2, model("patient", ""))]
                .map(|(id, model)| (ModelId::new(id), model))
                .into(),
            ..View::default()
        };
        change(&mut view);
        let (view, view_receiver) = watch::channel(Arc::new(view));
        let (contact, in_contact) = watch::channel(true);
        let (told, reports) = mpsc::unbounded_channel();
        let mut config = LeadConfig {
            node: NODE,
            boot: NODE_BOOT,
            net: Net::plaintext(),
            data_delays: DataDelaySettings {
                per_item: None,
                min: Nanos::ZERO,
                max: DATA_MAX,
                forgotten_after: PAYLOAD_DELAY_FORGOTTEN_AFTER,
            },
            delays: Delays::default(),
            model_threads: 1,
            decision_threads: 0,
            threads: ThreadPolicy::default(),
            tapes: None,
            // These tests run on machines that do other things as well.
            stuck_after: Duration::from_secs(30),
            learning: LearningSettings::default(),
            redrive_wait: symphony_scheduler_runtime::REDRIVE_WAIT,
        };
        configure(&mut config);
        let runtime = Runtime::start(config, listener, view_receiver, in_contact, told).unwrap();
        Self { runtime, view, backends, dispatch, contact, reports }
    }

    fn change(&self, change: impl FnOnce(&mut View)) {
        self.view.send_modify(|view| {
            let mut next = View::clone(view);
            next.applied_index += 1;
            change(&mut next);
            *view = Arc::new(next);
        });
    }

    /// The leader's next link to the backend, with the seal asked for and not answered.
    async fn asked_to_seal(&self) -> Backend {
        let mut backend = self.dialled().await;
        backend.asked_to_seal(TOKEN).await;
        backend
    }

    /// The leader's next link to the backend.
    async fn dialled(&self) -> Backend {
        let (stream, _) = soon("link of the leader", self.backends.accept()).await.unwrap();
        let (sender, receiver) = link_over(Net::plaintext().accept(stream, &[]).await.unwrap());
        Backend { sender, receiver }
    }

    async fn sealed(&self) -> Backend {
        let backend = self.asked_to_seal().await;
        backend.seal(TOKEN, vec![], vec![]);
        backend
    }

    async fn frontend(&self) -> Frontend {
        // The lead begins a moment after the view says so: a leader is asked until it welcomes.
        soon("welcome", async {
            loop {
                let (sender, mut receiver) =
                    connect_link::<ToLeader, ToFrontend>(&Net::plaintext(), &self.dispatch, &Role::Scheduler.into())
                        .await
                        .unwrap();
                let (frontend, boot, subcluster) = (FRONTEND, FRONTEND_BOOT, SUBCLUSTER);
                sender.send(ToLeader::Hello { frontend, boot, subcluster, token: TOKEN }).unwrap();
                match receiver.receive().await.unwrap().message {
                    ToFrontend::Welcome { token: TOKEN } => return Frontend { sender, receiver },
                    ToFrontend::NotLeader { .. } => tokio::task::yield_now().await,
                    other => panic!("{other:?} instead of a welcome"),
                }
            }
        })
        .await
    }

    fn counter(&self, name: &str) -> u64 {
        let status = self.runtime.status();
        let read = |status: &symphony_scheduler_runtime::LeadStatus| {
            status.counters.iter().find(|(counter, _)| *counter == name).unwrap().1
        };
        status.iter().map(read).sum()
    }

    async fn until(&self, what: &str, reached: impl Fn(&Self) -> bool) {
        soon(what, async {
            while !reached(self) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    /// Model 1 is served when a request for it is not refused: the view and the links are followed by different tasks.
    async fn served(&self, model: u32) {
        let mut probe = self.frontend().await;
        soon("service", async {
            for sequence in 1_000_000.. {
                // Too late to run: the queue says so, if there is a queue.
                probe.submit(&[RequestHeader { budget: 0, ..header(sequence, model) }]);
                if !matches!(probe.next_end().await, (_, EndReason::Failed(FailReason::ModelNotReady))) {
                    return;
                }
            }
        })
        .await;
    }
}

impl Backend {
    async fn next(&mut self) -> ToBackend {
        soon("word of the leader", self.receiver.receive()).await.unwrap().message
    }

    async fn asked_to_seal(&mut self, token: Token) {
        assert_eq!(self.first_seal().await, [(GPU, token)]);
    }

    async fn asked_to_seal_again(&mut self, token: Token) {
        assert_eq!(self.seals().await, [(GPU, token)]);
    }

    async fn first_seal(&mut self) -> Vec<(GpuId, Token)> {
        assert!(matches!(self.next().await, ToBackend::Hello { node: NODE, boot: NODE_BOOT }));
        self.seals().await
    }

    async fn seals(&mut self) -> Vec<(GpuId, Token)> {
        let ToBackend::Seal { subcluster: SUBCLUSTER, gpus } = self.next().await else { panic!("no seal") };
        gpus
    }

    async fn says_nothing(&mut self) {
        let word = tokio::time::timeout(Duration::from_millis(50), self.receiver.receive()).await;
        assert!(word.is_err(), "{word:?}");
    }

    fn seal(&self, promised: Token, in_flight: Vec<RequestId>, finished: Vec<RequestId>) {
        let gpus = vec![SealedGpu { gpu: GPU, promised, free_in: 0, in_flight }];
        self.sender.send(FromBackend::Sealed { boot: BACKEND_BOOT, gpus, finished }).unwrap();
    }

    async fn plan(&mut self) -> Execute {
        match self.next().await {
            ToBackend::Execute(plan) => plan,
            other => panic!("{other:?} instead of a plan"),
        }
    }

    fn done(&self, plan: &Execute) {
        let Execute { gpu, token, sequence, model, latency, .. } = *plan;
        let done = Done { gpu, token, sequence, model, start_late: 0, latency, free_in: 0, failed: vec![] };
        self.sender.send(FromBackend::Done(done)).unwrap();
    }
}

impl Frontend {
    fn submit(&self, requests: &[RequestHeader]) {
        self.sender.send(ToLeader::Submit { token: TOKEN, requests: requests.to_vec() }).unwrap();
    }

    fn redrive(&self, requests: &[RequestHeader]) {
        let requests = requests.iter().map(|&request| RequestHeader { attempt: 2, ..request }).collect();
        self.sender.send(ToLeader::Redrive { token: TOKEN, requests, last: true }).unwrap();
    }

    async fn next_end(&mut self) -> (u64, EndReason) {
        match soon("outcome", self.receiver.receive()).await.unwrap().message {
            ToFrontend::Ended { requests } => requests[0],
            other => panic!("{other:?} instead of an outcome"),
        }
    }

    async fn closed(&mut self) {
        soon("end of the link", async { while self.receiver.receive().await.is_ok() {} }).await;
    }
}

fn header(sequence: u64, model: u32) -> RequestHeader {
    RequestHeader { sequence, model, items: 1, budget: Nanos::from_millis(10_000).get(), attempt: 1 }
}

fn id(sequence: u64) -> RequestId {
    RequestId { frontend: FRONTEND, boot: FRONTEND_BOOT, sequence }
}

fn sequences(plan: &Execute) -> Vec<u64> {
    plan.requests.iter().map(|r| r.id.sequence).collect()
}

#[tokio::test]
async fn a_request_becomes_a_plan_under_token_boot_and_sequence() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    for sequence in 1..4 {
        frontend.submit(&[header(sequence, 1)]);
        let plan = backend.plan().await;
        assert_eq!((plan.gpu, plan.token, plan.backend_boot), (GPU, TOKEN, BACKEND_BOOT));
        assert_eq!((plan.sequence, plan.model, sequences(&plan)), (sequence, ModelId::new(1), vec![sequence]));
        backend.done(&plan);
    }
}

/// Model 1 runs at once: its plans start when their inputs are there.
#[tokio::test]
async fn what_a_backend_has_measured_is_planned_for_until_it_is_gone() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    let mut sequence = 0;
    // How long the leader gives the input of the next plan.
    let mut given = async |backend: &mut Backend| {
        sequence += 1;
        frontend.submit(&[header(sequence, 1)]);
        let plan = backend.plan().await;
        backend.done(&plan);
        Nanos::new(plan.start_in)
    };
    let second = Nanos::from_millis(1_000);
    assert!(given(&mut backend).await < second, "nothing is known yet");
    let says = |backend: &Backend, fixed: Nanos| {
        backend.sender.send(FromBackend::PayloadDelay { fixed: fixed.get(), per_mib: 0 }).unwrap();
    };
    says(&backend, second);
    let (mut long, mut longest) = (Nanos::ZERO, Nanos::ZERO);
    while long < Nanos::from_millis(900) {
        long = given(&mut backend).await;
    }
    let measured = scene.runtime.status()[0].payload_delay.expect("it was measured");
    assert_eq!((measured.fixed, measured.per_mib), (second, Nanos::ZERO));
    // What it says is bounded.
    says(&backend, Nanos::MAX);
    while longest < Nanos::from_millis(1_900) {
        longest = given(&mut backend).await;
    }
    assert!(longest <= DATA_MAX, "{longest}");
    scene.change(|view| view.backends.get_mut(&BACKEND).unwrap().up = false);
    scene.until("its word to be forgotten", |scene| scene.runtime.status()[0].payload_delay.is_none()).await;
}

#[tokio::test]
async fn a_backend_that_says_nothing_more_of_its_inputs_is_not_planned_for_for_ever() {
    let scene = Scene::forgetful(Nanos::from_millis(300)).await;
    let backend = scene.sealed().await;
    scene.served(1).await;
    backend.sender.send(FromBackend::PayloadDelay { fixed: 7_000_000, per_mib: 77_000_000 }).unwrap();
    scene.until("its word", |scene| scene.runtime.status()[0].payload_delay.is_some()).await;
    scene.until("it to be forgotten", |scene| scene.runtime.status()[0].payload_delay.is_none()).await;
}

#[tokio::test]
async fn after_a_take_over_only_what_no_backend_has_is_run_again() {
    let scene = Scene::patient().await;
    let mut backend = scene.asked_to_seal().await;
    let frontend = scene.frontend().await;
    frontend.redrive(&[1, 2, 3].map(|sequence| header(sequence, 1)));
    // In flight and finished, under the leader before this one.
    backend.seal(TOKEN, vec![id(1)], vec![id(2)]);
    assert_eq!(sequences(&backend.plan().await), [3]);
    scene.until("count of known requests", |scene| scene.counter("redriven_known_requests") == 2).await;
}

#[tokio::test]
async fn a_lead_whose_links_move_no_more_is_offered_to_the_others_and_goes_on() {
    let standbys = |view: &mut View| {
        view.subclusters.entry(SUBCLUSTER).and_modify(|s| s.standbys = vec![NodeId::new(2)]);
    };
    let mut scene = Scene::impatient(Duration::from_secs(1), standbys).await;
    let (backend, frontend) = (scene.sealed().await, scene.frontend().await);
    let (Backend { sender: to_leader, mut receiver }, Frontend { sender, receiver: mut outcomes }) =
        (backend, frontend);
    let both = tokio::spawn(async move { tokio::join!(receiver.receive(), outcomes.receive()) });
    // Both are asked a few times and answer; nothing else shows that. Then nobody reads any more, and both links stay up.
    tokio::time::sleep(Duration::from_secs(1)).await;
    both.abort();
    let report = tokio::time::timeout(Duration::from_secs(60), scene.reports.recv()).await.expect("a report");
    assert_eq!(report, Some(Report::CutOff { subcluster: SUBCLUSTER, token: TOKEN }));
    assert_eq!(scene.runtime.status().len(), 1, "it leads until somebody else does");
    drop((to_leader, sender));
}

#[tokio::test]
async fn a_frontend_that_sends_frames_of_too_many_requests_loses_its_link() {
    let scene = Scene::new().await;
    let _backend = scene.sealed().await;
    let many = SUBMIT_REQUESTS_MAX as u64;
    let mut frontend = scene.frontend().await;
    frontend.sender.send(ToLeader::Cancel { requests: (0..many).map(|sequence| (sequence, 1)).collect() }).unwrap();
    frontend.submit(&(0..=many).map(|sequence| header(sequence, 1)).collect::<Vec<_>>());
    frontend.closed().await;
    let mut frontend = scene.frontend().await;
    frontend.sender.send(ToLeader::Cancel { requests: (0..=many).map(|sequence| (sequence, 1)).collect() }).unwrap();
    frontend.closed().await;
}

#[tokio::test]
async fn what_a_lost_backend_had_runs_again_under_the_next_seal() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    frontend.submit(&[header(1, 1)]);
    assert_eq!(backend.plan().await.sequence, 1);
    drop(backend);
    let mut backend = scene.sealed().await;
    let plan = backend.plan().await;
    assert_eq!((plan.sequence, sequences(&plan)), (1, vec![1]), "plans count anew");
    backend.done(&plan);
    frontend.submit(&[header(2, 1)]);
    assert_eq!(backend.plan().await.sequence, 2);
}

#[tokio::test]
async fn what_a_backend_had_from_the_former_leader_runs_again_when_it_is_lost() {
    let scene = Scene::patient().await;
    let backend = scene.asked_to_seal().await;
    let frontend = scene.frontend().await;
    frontend.redrive(&[header(1, 1)]);
    backend.seal(TOKEN, vec![id(1)], vec![]);
    scene.until("request known", |scene| scene.counter("redriven_known_requests") == 1).await;
    drop(backend);
    assert_eq!(sequences(&scene.sealed().await.plan().await), [1]);
}

#[tokio::test]
async fn a_refused_plan_is_made_again_and_the_count_goes_on() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    frontend.submit(&[header(1, 1)]);
    let Execute { gpu, token, sequence, model, .. } = backend.plan().await;
    let refusal = Refusal::ModelNotReady;
    backend.sender.send(FromBackend::Refused { gpu, sequence, token, model, refusal }).unwrap();
    let plan = backend.plan().await;
    assert_eq!((plan.sequence, sequences(&plan)), (2, vec![1]));
}

#[tokio::test]
async fn a_gpu_that_runs_over_its_prediction_gets_no_third_plan_before_it_reports() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    let mut plans = Vec::new();
    for sequence in 1..3 {
        frontend.submit(&[header(sequence, 1)]);
        plans.push(backend.plan().await);
    }
    // Far more than a plan's 2 ms pass without a report: the third request has to wait, and then there is one place.
    frontend.submit(&[header(3, 1)]);
    let early = tokio::time::timeout(Duration::from_millis(50), backend.receiver.receive()).await;
    assert!(early.is_err(), "a third plan while two are out: {early:?}");
    backend.done(&plans[0]);
    assert_eq!(backend.plan().await.sequence, 3);
}

#[tokio::test]
async fn a_fenced_leader_ends_and_lets_its_frontends_go() {
    let scene = Scene::new().await;
    let mut frontend = scene.frontend().await;
    let backend = scene.asked_to_seal().await;
    backend.seal(Token::new(TOKEN.get() + 1), vec![], vec![]);
    frontend.closed().await;
    scene.until("end of the lead", |scene| scene.runtime.status().is_empty()).await;
}

#[tokio::test]
async fn a_runtime_that_stops_lets_its_frontends_go() {
    let scene = Scene::new().await;
    let mut frontend = scene.frontend().await;
    scene.runtime.stop();
    frontend.closed().await;
}

#[tokio::test]
async fn an_unloaded_model_fails_what_waits_and_the_next_model_is_served() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(2).await;
    let mut frontend = scene.frontend().await;
    frontend.submit(&[header(1, 2)]);
    scene.until("request in the queue", |scene| scene.counter("requests") >= 2).await;
    scene.change(|view| {
        view.models.remove(&ModelId::new(2));
    });
    assert_eq!(frontend.next_end().await, (1, EndReason::Failed(FailReason::ModelNotReady)));
    scene.change(|view| {
        view.models.insert(ModelId::new(3), model("next", "eager"));
    });
    scene.served(3).await;
    let frontend = scene.frontend().await;
    frontend.submit(&[header(2, 3)]);
    assert_eq!(sequences(&backend.plan().await), [2]);
}

#[tokio::test]
async fn a_frontend_that_links_again_announces_again_and_nothing_runs_twice() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(2).await;
    let first = scene.frontend().await;
    first.submit(&[header(1, 2)]);
    // The second link comes while the first one stands: its end, told later, must not take the second's requests along.
    let second = scene.frontend().await;
    second.redrive(&[RequestHeader { budget: Nanos::from_millis(2_000).get(), ..header(1, 2) }]);
    drop(first);
    assert_eq!(sequences(&backend.plan().await), [1]);
}

#[tokio::test]
async fn a_backend_that_stays_away_is_reported_again_and_again() {
    let mut scene = Scene::new().await;
    drop(std::mem::replace(&mut scene.backends, TcpListener::bind("127.0.0.1:0").await.unwrap()));
    for _ in 0..2 {
        let report = soon("report", scene.reports.recv()).await;
        assert_eq!(report, Some(Report::BackendDown(BACKEND, BACKEND_BOOT)));
    }
}

#[tokio::test]
async fn a_gpu_of_a_kind_never_seen_joins_while_requests_wait_and_runs_them_by_its_own_profile() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    let mut latencies = Vec::new();
    for sequence in 1..3 {
        frontend.submit(&[header(sequence, 1)]);
        latencies.push(backend.plan().await.latency);
    }
    assert_eq!(latencies, [Nanos::from_millis(2).get(); 2]);
    // Two plans are out on the only GPU: this one waits.
    frontend.submit(&[header(3, 1)]);
    scene.until("request in the queue", |scene| scene.counter("requests") >= 4).await;

    let (id, boot, gpu) = (BackendId::new(4), BootId::new(8), GpuId::new(17));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    scene.change(|view| {
        let slow = GpuView { id: gpu, kind: "slow".into(), memory_bytes: 1, binding: Token::new(4) };
        let former = view.backends[&BACKEND].clone();
        view.backends.insert(id, BackendView { boot, exec_addr: addr, gpus: vec![slow], ..former });
        for model in view.models.values_mut() {
            model.replicas.insert(id, ReplicaView { boot, state: Ok(()) });
        }
    });
    let (stream, _) = soon("link to the second backend", listener.accept()).await.unwrap();
    let (sender, receiver) = link_over(Net::plaintext().accept(stream, &[]).await.unwrap());
    let mut second = Backend { sender, receiver };
    assert!(matches!(second.next().await, ToBackend::Hello { .. }));
    assert!(matches!(second.next().await, ToBackend::Seal { .. }));
    let gpus = vec![SealedGpu { gpu, promised: TOKEN, free_in: 0, in_flight: vec![] }];
    second.sender.send(FromBackend::Sealed { boot, gpus, finished: vec![] }).unwrap();
    let plan = second.plan().await;
    assert_eq!((plan.gpu, sequences(&plan), plan.latency), (gpu, vec![3], Nanos::from_millis(6).get()));

    // Without the first backend the slow kind serves alone, what the lost GPU had first of all.
    scene.change(|view| {
        view.backends.remove(&BACKEND);
    });
    let Execute { token, sequence, model, latency, .. } = plan;
    let done = Done { gpu, token, sequence, model, start_late: 0, latency, free_in: 0, failed: vec![] };
    second.sender.send(FromBackend::Done(done)).unwrap();
    let mut again = Vec::new();
    while again.len() < 2 {
        again.extend(sequences(&second.plan().await));
    }
    again.sort_unstable();
    assert_eq!(again, [1, 2]);
    assert_eq!(scene.counter("violations"), 0);
}

const OTHER: (NodeId, BootId) = (NodeId::new(2), BootId::new(70));
const LATER: Token = Token::new(20);

#[tokio::test]
async fn a_successor_dials_in_advance_and_seals_the_moment_it_leads() {
    let next = SuccessorView { node: NODE, boot: NODE_BOOT, since: 15 };
    let mut scene = Scene::with(|view| {
        let subcluster = view.subclusters.get_mut(&SUBCLUSTER).unwrap();
        (subcluster.leader, subcluster.successor) = (Some(OTHER), Some(next));
    })
    .await;
    let mut backend = scene.dialled().await;
    let ready = Report::Ready { subcluster: SUBCLUSTER, since: 15 };
    assert_eq!(soon("report", scene.reports.recv()).await, Some(ready));
    backend.says_nothing().await;
    assert!(scene.runtime.status().is_empty(), "another one leads");

    scene.change(|view| {
        let subcluster = view.subclusters.get_mut(&SUBCLUSTER).unwrap();
        (subcluster.leader, subcluster.successor, subcluster.token) = (Some((NODE, NODE_BOOT)), None, LATER);
    });
    backend.asked_to_seal(LATER).await;
}

#[tokio::test]
async fn a_handover_that_is_given_up_lets_the_connections_go() {
    let next = SuccessorView { node: NODE, boot: NODE_BOOT, since: 15 };
    let scene = Scene::with(|view| {
        let subcluster = view.subclusters.get_mut(&SUBCLUSTER).unwrap();
        (subcluster.leader, subcluster.successor) = (Some(OTHER), Some(next));
    })
    .await;
    let mut backend = scene.dialled().await;
    scene.change(|view| view.subclusters.get_mut(&SUBCLUSTER).unwrap().successor = None);
    assert!(soon("end of the link", backend.receiver.receive()).await.is_err());
}

#[tokio::test]
async fn a_leader_that_was_replaced_serves_until_it_is_fenced() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let mut frontend = scene.frontend().await;
    scene.change(|view| {
        let subcluster = view.subclusters.get_mut(&SUBCLUSTER).unwrap();
        (subcluster.leader, subcluster.token) = (Some(OTHER), LATER);
    });
    scene.until("end of the lead for others", |scene| scene.runtime.status().is_empty()).await;
    // The frontend has not heard of it yet, and the successor has not sealed.
    frontend.submit(&[header(1, 1)]);
    let plan = backend.plan().await;
    assert_eq!((plan.token, sequences(&plan)), (TOKEN, vec![1]), "under its own token, never under the new one");
    backend.done(&plan);
    frontend.submit(&[header(2, 1)]);
    let Execute { gpu, token, sequence, model, .. } = backend.plan().await;
    let refusal = Refusal::Fenced { promised: LATER };
    backend.sender.send(FromBackend::Refused { gpu, sequence, token, model, refusal }).unwrap();
    frontend.closed().await;
}

#[tokio::test]
async fn out_of_contact_nothing_is_led_and_in_contact_again_the_same_assignment_is() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    let mut frontend = scene.frontend().await;
    scene.contact.send_replace(false);
    frontend.closed().await;
    assert!(soon("end of the link", backend.receiver.receive()).await.is_err());

    let expected = Role::Scheduler.into();
    let link = connect_link::<ToLeader, ToFrontend>(&Net::plaintext(), &scene.dispatch, &expected).await;
    let (sender, mut receiver) = link.unwrap();
    let (frontend, boot, subcluster) = (FRONTEND, FRONTEND_BOOT, SUBCLUSTER);
    sender.send(ToLeader::Hello { frontend, boot, subcluster, token: TOKEN }).unwrap();
    assert_eq!(soon("refusal", receiver.receive()).await.unwrap().message, ToFrontend::Suspended);

    scene.contact.send_replace(true);
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    frontend.submit(&[header(1, 1)]);
    assert_eq!(backend.plan().await.token, TOKEN);
}

#[tokio::test]
async fn a_draining_backend_is_told_when_no_more_plans_come_and_used_again_if_wanted() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    frontend.submit(&[header(1, 1)]);
    let plan = backend.plan().await;

    let duty = |duty| scene.change(|view| view.backends.get_mut(&BACKEND).unwrap().duty = duty);
    duty(Duty::Draining);
    assert_eq!(backend.next().await, ToBackend::Retired { gpus: vec![GPU] });
    frontend.submit(&[header(2, 1)]);
    backend.done(&plan);
    backend.says_nothing().await;

    // It hears that plans come again before the first one: drained once more meanwhile, it must wait for the word.
    duty(Duty::Serving);
    backend.asked_to_seal_again(TOKEN).await;
    backend.seal(TOKEN, vec![], vec![]);
    let plan = backend.plan().await;
    assert_eq!((plan.sequence, sequences(&plan)), (2, vec![2]), "under the same seal");
    duty(Duty::Draining);
    backend.done(&plan);
    assert_eq!(backend.next().await, ToBackend::Retired { gpus: vec![GPU] });
}

#[tokio::test]
async fn a_backend_that_drains_before_it_is_used_is_sealed_and_told_at_once() {
    let scene = Scene::with(|view| view.backends.get_mut(&BACKEND).unwrap().duty = Duty::Draining).await;
    let mut backend = scene.sealed().await;
    assert_eq!(backend.next().await, ToBackend::Retired { gpus: vec![GPU] });
    scene.change(|view| view.backends.get_mut(&BACKEND).unwrap().duty = Duty::Serving);
    backend.asked_to_seal_again(TOKEN).await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    frontend.submit(&[header(1, 1)]);
    assert_eq!(backend.plan().await.sequence, 1);
}

#[tokio::test]
async fn a_take_over_while_a_backend_drains_goes_on_with_what_the_others_hold() {
    let scene = Scene::with(|view| {
        // The one that drains has model 2 already, the one that stays is still loading it.
        let (drains, boot) = (BackendId::new(4), BootId::new(8));
        let former = view.backends[&BACKEND].clone();
        let gpus = vec![GpuView { id: GpuId::new(17), ..former.gpus[0].clone() }];
        view.backends.insert(drains, BackendView { boot, gpus, duty: Duty::Draining, up: true, ..former });
        for model in view.models.values_mut() {
            model.replicas.insert(drains, ReplicaView { boot, state: Ok(()) });
        }
        view.models.get_mut(&ModelId::new(2)).unwrap().replicas.remove(&BACKEND);
    })
    .await;
    // Both are dialled; who is who shows in what is to be sealed.
    let (mut backend, mut drains) = (scene.dialled().await, scene.dialled().await);
    let (first, _) = (backend.first_seal().await, drains.first_seal().await);
    if first[0].0 != GPU {
        std::mem::swap(&mut backend, &mut drains);
    }
    backend.seal(TOKEN, vec![], vec![]);
    scene.served(1).await;
    let mut frontend = scene.frontend().await;
    frontend.submit(&[header(1, 1)]);
    assert_eq!(sequences(&backend.plan().await), [1]);
    frontend.submit(&[header(2, 2)]);
    assert_eq!(frontend.next_end().await, (2, EndReason::Failed(FailReason::ModelNotReady)));
    scene.change(|view| {
        let ready = ReplicaView { boot: BACKEND_BOOT, state: Ok(()) };
        view.models.get_mut(&ModelId::new(2)).unwrap().replicas.insert(BACKEND, ready);
    });
    scene.served(2).await;
}
