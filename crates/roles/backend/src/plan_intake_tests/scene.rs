//! A backend's execution between a leader and frontends that the test plays.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use symphony_executor::{EmulatedExecutor, ModelExecutor, default_signature, item_checksum};
use symphony_net::{Net, Role};
use symphony_protocol::data::ResultBytes;
use symphony_protocol::execute::{Done, Execute, FromBackend, PlannedRequest, Refusal, SealedGpu, ToBackend};
use symphony_transport::{LinkReceiver, PayloadTransport, Payloads, ResultToFrontend, connect_link, link_over};
use symphony_types::PayloadDelay;
use symphony_types::{
    BackendId, BootId, FailReason, FrontendId, GpuId, LatencyProfile, ModelId, RequestId, SubclusterId, Token,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use crate::gpu_time::GpuTime;
use crate::journal::Journal;
use crate::plan_intake::{BackendIdentity, IntakeEvent, PlanIntake};

pub(super) const BOOT: BootId = BootId::new(5);
pub(super) const GPU: GpuId = GpuId::new(9);
pub(super) const TOKEN: Token = Token::new(11);
pub(super) const SUBCLUSTER: SubclusterId = SubclusterId::new(1);
pub(super) const MODEL: ModelId = ModelId::new(1);
/// Frontends: one that answers, and one that is silent until told otherwise.
pub(super) const FRONTEND: FrontendId = FrontendId::new(1);
pub(super) const SILENT: FrontendId = FrontendId::new(2);
/// Bytes of one item's input in the default signature.
pub(super) const ITEM_BYTES: usize = 64;

/// Inputs by sequence number, and the results that came back.
pub(super) struct Frontends {
    inputs: Mutex<HashMap<u64, Bytes>>,
    results: mpsc::UnboundedSender<(FrontendId, ResultToFrontend)>,
    pub(super) delay: Mutex<Option<PayloadDelay>>,
    /// Whether the silent frontend is silent.
    pub(super) silence: watch::Sender<bool>,
    /// Whether the frontends are connected.
    pub(super) ready: watch::Sender<bool>,
    /// How many reads were answered.
    reads: watch::Sender<u32>,
}

impl PayloadTransport for Frontends {
    async fn read(&self, frontend: FrontendId, _: BootId, sequences: Vec<u64>) -> Payloads {
        if frontend == SILENT {
            let _ = self.silence.subscribe().wait_for(|silence| !silence).await;
        }
        self.reads.send_modify(|reads| *reads += 1);
        let inputs = self.inputs.lock().unwrap();
        sequences.iter().map(|sequence| inputs.get(sequence).cloned()).collect()
    }

    fn deliver(&self, frontend: FrontendId, _: BootId, results: Vec<ResultToFrontend>) {
        for result in results {
            let _ = self.results.send((frontend, result));
        }
    }

    async fn finish(&self) {}

    async fn ready(&self, _: Duration) {
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    fn delay(&self) -> Option<PayloadDelay> {
        *self.delay.lock().unwrap()
    }

    fn name(&self) -> &'static str {
        "in memory"
    }
}

pub(super) struct Scene {
    pub(super) events: mpsc::UnboundedSender<IntakeEvent>,
    pub(super) frontends: Arc<Frontends>,
    pub(super) results: mpsc::UnboundedReceiver<(FrontendId, ResultToFrontend)>,
    pub(super) idle: watch::Receiver<bool>,
    /// Whether its only GPU is lost.
    pub(super) lost: watch::Receiver<bool>,
    /// The gaps between the GPU's plans.
    pub(super) time: Arc<GpuTime>,
    connections: u64,
}

pub(super) struct Leader {
    pub(super) connection: u64,
    receiver: LinkReceiver<FromBackend>,
}

/// A planned start that no test waits for.
pub(super) const FAR: Duration = Duration::from_secs(50);

pub(super) fn emulated() -> Box<dyn ModelExecutor> {
    let profile = LatencyProfile::from_line(1.0, 4.0, 8).unwrap();
    Box::new(EmulatedExecutor::new(profile, default_signature()))
}

pub(super) fn request(frontend: FrontendId, sequence: u64, items: u32) -> PlannedRequest {
    let id = RequestId { frontend, boot: BootId::new(1), sequence };
    PlannedRequest { id, items, model: ModelId::default() }
}

pub(super) fn plan(sequence: u64, start_in: Duration, requests: &[PlannedRequest]) -> Execute {
    Execute {
        gpu: GPU,
        token: TOKEN,
        backend_boot: BOOT,
        sequence,
        start_in: start_in.as_nanos() as u64,
        latency: 5_000_000,
        model: MODEL,
        requests: requests.to_vec(),
    }
}

impl Scene {
    pub(super) fn new(executor: Box<dyn ModelExecutor>) -> Self {
        Self::with_journal(executor, None)
    }

    pub(super) fn with_journal(executor: Box<dyn ModelExecutor>, journal: Option<Journal>) -> Self {
        let (events, events_out) = mpsc::unbounded_channel();
        let (results_in, results) = mpsc::unbounded_channel();
        let (inputs_of, delay) = (Mutex::default(), Mutex::default());
        let (silence, ready) = (watch::Sender::new(true), watch::Sender::new(true));
        let reads = watch::Sender::new(0);
        let frontends = Arc::new(Frontends { inputs: inputs_of, results: results_in, delay, silence, ready, reads });
        let identity = BackendIdentity {
            backend: BackendId::new(3),
            boot: BOOT,
            subcluster: SUBCLUSTER,
            gpus: vec![GPU],
            token: Token::new(10),
        };
        let links = Arc::clone(&frontends);
        let intake = PlanIntake::new(identity, links, events_out, Arc::default(), Arc::default(), journal).unwrap();
        let (idle, lost, time) = (intake.idle(), intake.lost(), Arc::clone(&intake.times()[0]));
        tokio::spawn(intake.run());
        events.send(IntakeEvent::Loaded(MODEL, vec![executor])).ok().unwrap();
        Self { events, frontends, results, idle, lost, time, connections: 0 }
    }

    pub(super) fn own(&self, sequence: u64, input: Bytes) {
        self.frontends.inputs.lock().unwrap().insert(sequence, input);
    }

    /// Waits until this many reads were answered: their inputs are with the GPU's thread then, since a read's answer is
    /// passed on before another task of this runtime gets its turn.
    pub(super) async fn answered(&self, reads: u32) {
        soon(self.frontends.reads.subscribe().wait_for(|&answered| answered >= reads)).await.unwrap();
    }

    pub(super) async fn linked(&mut self) -> Leader {
        self.connections += 1;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let (net, backend) = (Net::plaintext(), Role::Backend.into());
        let (link, accepted) =
            tokio::join!(connect_link::<ToBackend, FromBackend>(&net, &addr, &backend), listener.accept());
        let accepted = net.accept(accepted.unwrap().0, &[]).await.unwrap();
        let (sender, _) = link_over::<FromBackend, ToBackend>(accepted);
        self.events.send(IntakeEvent::Connected(self.connections, sender)).ok().unwrap();
        let mut leader = Leader { connection: self.connections, receiver: link.unwrap().1 };
        assert!(matches!(leader.next().await, FromBackend::Welcome { boot: BOOT, .. }));
        leader
    }

    /// A leader that has sealed the GPU, and the answer to its seal.
    pub(super) async fn sealed(&mut self) -> (Leader, SealedGpu) {
        let mut leader = self.linked().await;
        self.send(&leader, ToBackend::Seal { subcluster: SUBCLUSTER, gpus: vec![(GPU, TOKEN)] });
        let FromBackend::Sealed { boot: BOOT, mut gpus, .. } = leader.next().await else { panic!("no seal") };
        assert_eq!((gpus.len(), gpus[0].promised), (1, TOKEN));
        (leader, gpus.remove(0))
    }

    pub(super) fn send(&self, leader: &Leader, message: ToBackend) {
        self.events.send(IntakeEvent::FromLeader(leader.connection, message)).ok().unwrap();
    }

    pub(super) fn execute(&self, leader: &Leader, plan: Execute) {
        self.send(leader, ToBackend::Execute(plan));
    }

    pub(super) async fn result(&mut self) -> (u64, Result<Bytes, FailReason>) {
        let (_, ResultToFrontend { result, bytes }) = soon(self.results.recv()).await.unwrap();
        match result.outcome {
            ResultBytes::Answer(length) => {
                assert_eq!(length as usize, bytes.len());
                (result.sequence, Ok(bytes))
            }
            ResultBytes::Failed(reason) => (result.sequence, Err(reason)),
            ResultBytes::Shared => panic!("only a transport says so"),
        }
    }
}

impl Leader {
    pub(super) async fn next(&mut self) -> FromBackend {
        soon(self.receiver.receive()).await.unwrap().message
    }

    pub(super) async fn done(&mut self) -> Done {
        match self.next().await {
            FromBackend::Done(done) => done,
            other => panic!("{other:?} instead of a report"),
        }
    }

    pub(super) async fn refusal(&mut self) -> (u64, Refusal) {
        match self.next().await {
            FromBackend::Refused { sequence, refusal, .. } => (sequence, refusal),
            other => panic!("{other:?} instead of a refusal"),
        }
    }
}

pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("what is waited for comes within a minute")
}

pub(super) fn input(fill: u8, items: usize) -> Bytes {
    Bytes::from(vec![fill; ITEM_BYTES * items])
}

pub(super) fn answer(fill: u8) -> Bytes {
    Bytes::copy_from_slice(&item_checksum([&[fill; ITEM_BYTES][..]]).to_le_bytes())
}
