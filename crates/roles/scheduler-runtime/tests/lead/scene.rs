//! The sub-cluster: a runtime that leads it, the view that says so, and the port where its backend is dialled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use symphony_cluster_state::LeadReport;
use symphony_net::{Net, Role};
use symphony_protocol::dispatch::{EndReason, RequestHeader, ToFrontend, ToLeader};
use symphony_protocol::view::{
    BackendView, GpuView, HolderView, KindProfile, ModelSource, ModelSpec, ModelView, NodeView, SubclusterView, View,
};
use symphony_scheduler::{DataDelaySettings, Delays};
use symphony_scheduler_runtime::{DecisionConfig, LeadConfig, Runtime};
use symphony_transport::{connect_link, link_over};
use symphony_types::PAYLOAD_DELAY_FORGOTTEN_AFTER;
use symphony_types::{FailReason, LatencyProfile, ModelId, Nanos, RequestValue, Signature, Token};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::backend::Backend;
use super::frontend::{Frontend, header};
use super::{BACKEND, BACKEND_BOOT, FRONTEND, FRONTEND_BOOT, GPU, NODE, NODE_BOOT, SOON, SUBCLUSTER, TOKEN, soon};

/// The most that inputs are given.
pub(crate) const DATA_MAX: Nanos = Nanos::from_millis(2_000);

pub(crate) struct Scene {
    pub(crate) runtime: Runtime,
    pub(crate) view: watch::Sender<Arc<View>>,
    pub(crate) backends: TcpListener,
    pub(crate) dispatch: String,
    pub(crate) contact: watch::Sender<bool>,
    pub(crate) reports: mpsc::UnboundedReceiver<LeadReport>,
}

pub(crate) fn model(name: &str, policy: &str) -> ModelView {
    // Deferred batches start within a window as wide as α: wide enough for a busy machine's timers.
    let alpha_ms = if policy == "symphony" { 100.0 } else { 1.0 };
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
        policy: policy.parse().unwrap(),
        value: RequestValue::ONE,
    };
    let holders = BTreeMap::from([(BACKEND, HolderView { boot: BACKEND_BOOT, state: Ok(()) })]);
    ModelView { spec, subcluster: SUBCLUSTER, moving: None, holders, trunk: None }
}

impl Scene {
    /// Model 1 runs at once, model 2 waits for company.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// The scene of [`new`](Self::new) in a view that is changed first.
    pub(crate) async fn with(change: impl FnOnce(&mut View)) -> Self {
        Self::configured(change, |_| {}).await
    }

    /// The scene of [`with`](Self::with), with this limit for stuck threads and links.
    pub(crate) async fn impatient(stuck_after: Duration, change: impl FnOnce(&mut View)) -> Self {
        Self::configured(change, |config| config.stuck_after = stuck_after).await
    }

    /// The scene of [`new`](Self::new), where redriven requests wait for every backend to answer, however busy this
    /// machine is.
    pub(crate) async fn patient() -> Self {
        Self::configured(|_| {}, |config| config.decisions.redrive_wait = SOON.into()).await
    }

    /// The scene of [`new`](Self::new), where a backend's measurements expire after this time.
    pub(crate) async fn forgetful(forgotten_after: Nanos) -> Self {
        Self::configured(|_| {}, |config| config.data_delays.forgotten_after = forgotten_after).await
    }

    pub(crate) async fn configured(change: impl FnOnce(&mut View), configure: impl FnOnce(&mut LeadConfig)) -> Self {
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
            models: [(1, model("at-once", "eager")), (2, model("patient", "symphony"))]
                .map(|(id, model)| (ModelId::new(id), model))
                .into(),
            ..View::default()
        };
        change(&mut view);
        let (view, view_receiver) = watch::channel(Arc::new(view));
        let (contact, in_contact) = watch::channel(true);
        let (report_sender, reports) = mpsc::unbounded_channel();
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
            decisions: DecisionConfig { model_threads: 1, ..DecisionConfig::default() },
            tapes: None,
            // These tests run on busy machines.
            stuck_after: Duration::from_secs(30),
            consolidate: Vec::new(),
            policies: symphony_scheduler::PolicyRegistry::new(),
        };
        configure(&mut config);
        let runtime = Runtime::start(config, listener, view_receiver, in_contact, report_sender).unwrap();
        Self { runtime, view, backends, dispatch, contact, reports }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut View)) {
        self.view.send_modify(|view| {
            let mut next = View::clone(view);
            next.applied_index += 1;
            change(&mut next);
            *view = Arc::new(next);
        });
    }

    /// The leader's next link to the backend, with the seal asked for and not answered.
    pub(crate) async fn asked_to_seal(&self) -> Backend {
        let mut backend = self.dialled().await;
        backend.asked_to_seal(TOKEN).await;
        backend
    }

    /// The leader's next link to the backend.
    pub(crate) async fn dialled(&self) -> Backend {
        let (stream, _) = soon("link of the leader", self.backends.accept()).await.unwrap();
        let (sender, receiver) = link_over(Net::plaintext().accept(stream, &[]).await.unwrap());
        Backend { sender, receiver }
    }

    pub(crate) async fn sealed(&self) -> Backend {
        let backend = self.asked_to_seal().await;
        backend.seal(TOKEN, vec![], vec![]);
        backend
    }

    pub(crate) async fn frontend(&self) -> Frontend {
        // The lead begins shortly after the view assigns it: the frontend asks until it is welcome.
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

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let status = self.runtime.status();
        let read = |status: &symphony_scheduler_runtime::LeadStatus| {
            status.counters.iter().find(|(counter, _)| *counter == name).unwrap().1
        };
        status.iter().map(read).sum()
    }

    pub(crate) async fn until(&self, what: &str, reached: impl Fn(&Self) -> bool) {
        soon(what, async {
            while !reached(self) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    /// Model 1 is served when a request for it is not refused: different tasks follow the view and the links.
    pub(crate) async fn served(&self, model: u32) {
        let mut probe = self.frontend().await;
        soon("service", async {
            for sequence in 1_000_000.. {
                // Too late to run: the model's queue drops it, if there is a queue.
                probe.announce(&[RequestHeader { budget: 0, ..header(sequence, model) }]);
                if !matches!(probe.next_end().await, (_, EndReason::Failed(FailReason::ModelNotReady))) {
                    return;
                }
            }
        })
        .await;
    }
}
