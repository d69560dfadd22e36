//! A frontend: accepts requests, keeps them until they have their one outcome, and knows who leads.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use symphony_config::FrontendConfig;
use symphony_net::{Incoming, Net, Port, Role};
use symphony_protocol::control as pb;
use symphony_protocol::dispatch::EndReason;
use symphony_protocol::view::View;
use symphony_telemetry::Registry;
use symphony_transport::{ControlClient, ControlError, SharedInputs, SharingError, ViewReceiver};
use symphony_types::{BootId, FailReason, FrontendId, Member, Nanos, Outcome, RequestId, SubclusterId, Token};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::data_server::DataServer;
use crate::leader_link::{LeaderLink, Word};
use crate::ledger::{Ledger, LedgerCounts};
use crate::metrics;
use crate::oip::{
    InferAnswer, InferError, InferRequest, InferenceService, ModelInfo, ModelState, ModelStatistics, Parameter,
    RepositoryError, ServerInfo, Timeliness,
};
use crate::request_table::{Ending, Pending, RequestTable};
use crate::rerouter::Rerouter;
use crate::routing::{Route, Routes, routes};
use crate::statistics::{Observed, Statistics};

/// How long registration may take: a cluster that starts together elects its leader first.
const REGISTER_WITHIN: Duration = Duration::from_secs(30);

/// The port for backends, of which a cluster has 4096: one connection each, and one that is given up.
const DATA: Port = Port::new("frontend.data", &[Role::Backend], 2 * 4096);

/// Why a frontend does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The cluster does not answer or refuses.
    #[error("cannot register frontend `{name}`: {source}")]
    Register {
        /// Its name.
        name: String,
        /// Why.
        source: ControlError,
    },
    /// This system has no shared memory, and it is required.
    #[error("frontend.payloads requires shared memory: {0}")]
    Sharing(#[from] SharingError),
}

/// A running frontend; cheap to clone. [`Frontend::stop`] ends it.
#[derive(Clone, Debug)]
pub struct Frontend {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: FrontendId,
    boot: BootId,
    grace: Duration,
    in_flight_max: usize,
    table: Arc<RequestTable>,
    /// Where backends of this host read inputs; none if none is shared.
    inputs: Option<Arc<SharedInputs>>,
    ledger: Arc<Ledger>,
    statistics: Statistics,
    routes: RwLock<Arc<Routes>>,
    links: Mutex<HashMap<SubclusterId, Way>>,
    /// Where links hand over requests that their leaders do not serve.
    turned_away: UnboundedSender<u64>,
    net: Net,
    view: ViewReceiver,
    /// This process is about to end.
    draining: AtomicBool,
    ended: CancellationToken,
}

/// The way to the leader of a sub-cluster.
#[derive(Clone, Debug)]
struct Way {
    words: UnboundedSender<Word>,
    /// The leader has stopped because it lost the control group.
    suspended: Arc<AtomicBool>,
}

impl Frontend {
    /// Registers with the cluster and serves backends on `data`. The public surface is mounted by the caller
    /// ([`oip`](crate::oip)): this value is its [`InferenceService`].
    ///
    /// # Errors
    /// If the cluster does not answer or refuses, or shared memory is required and this system has none.
    pub async fn start(
        config: &FrontendConfig,
        boot: BootId,
        data: TcpListener,
        net: Net,
        control: &ControlClient,
        registry: &Registry,
    ) -> Result<Self, StartError> {
        let ended = CancellationToken::new();
        let inputs = share_inputs(config, &ended)?;
        let request = pb::RegisterFrontendRequest {
            name: config.name.clone(),
            boot_id: boot.get(),
            data_addr: config.data.to_string(),
            console_addr: config.metrics.to_string(),
        };
        let call = |mut client: pb::control_client::ControlClient<_>| {
            let request = request.clone();
            async move { client.register_frontend(request).await }
        };
        let reply = control
            .call(REGISTER_WITHIN, call)
            .await
            .map_err(|source| StartError::Register { name: config.name.clone(), source })?;
        let id = FrontendId::new(reply.frontend);
        let view = control.watch(&format!("frontend {}", config.name));
        let (turned_away, turned_away_out) = mpsc::unbounded_channel();
        let inner = Arc::new(Inner {
            id,
            boot,
            grace: config.answer_grace().into(),
            in_flight_max: config.requests_in_flight_max as usize,
            table: Arc::default(),
            inputs: inputs.clone(),
            ledger: Arc::default(),
            statistics: Statistics::new(registry),
            routes: RwLock::default(),
            links: Mutex::default(),
            turned_away,
            net: net.clone(),
            view: view.clone(),
            draining: AtomicBool::new(false),
            ended,
        });
        metrics::register(registry, &inner.table, &inner.ledger, inputs.clone());
        let (table, ledger) = (Arc::clone(&inner.table), Arc::clone(&inner.ledger));
        let server = DataServer { boot, table, ledger, inputs, view: view.clone() };
        let backends = Incoming::new(data, net.clone(), DATA);
        tokio::spawn(server.accept(backends, inner.ended.clone()));
        tokio::spawn(follow(Arc::clone(&inner), view.clone()));
        let (owner, table) = (Arc::downgrade(&inner), Arc::clone(&inner.table));
        let announce = move |subcluster, sequence| {
            if let Some(owner) = owner.upgrade() {
                owner.tell(subcluster, Word::New(sequence));
            }
        };
        let rerouter = Rerouter { table, view: view.clone(), announce };
        tokio::spawn(rerouter.run(turned_away_out, inner.ended.clone()));
        tokio::spawn(report_drained(Arc::clone(&inner), control.clone(), view));
        tracing::info!(frontend = %id, %boot, "registered");
        Ok(Self { inner })
    }

    /// The newest view of the cluster.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.inner.view.borrow())
    }

    /// What became of the requests so far, and how many have no outcome yet.
    #[must_use]
    pub fn ledger(&self) -> (LedgerCounts, usize) {
        (self.inner.ledger.counts(), self.inner.table.len())
    }

    /// A model's requests by outcome, as the console reads them: `received`, `in_time`, `late`, `dropped`, `failed`.
    #[must_use]
    pub fn counts_json(&self, model: &str) -> serde_json::Value {
        self.inner.statistics.counts_json(model)
    }

    /// Takes no new requests from now on; those in flight get their outcomes.
    pub fn drain(&self) {
        self.inner.draining.store(true, Ordering::Release);
    }

    /// Ends the frontend. Requests without an outcome fail.
    pub fn stop(&self) {
        self.inner.ended.cancel();
    }
}

/// Memory for inputs, if the configuration wants any and the system has it.
fn share_inputs(config: &FrontendConfig, ended: &CancellationToken) -> Result<Option<Arc<SharedInputs>>, SharingError> {
    let payloads = &config.payloads;
    if !payloads.shares() {
        return Ok(None);
    }
    let in_flight_max = config.requests_in_flight_max as usize;
    match SharedInputs::start(payloads.pool_bytes(), in_flight_max, payloads.must_share(), ended.clone()) {
        Ok(inputs) => Ok(Some(inputs)),
        Err(error) if payloads.must_share() => Err(error),
        Err(error) => {
            tracing::warn!(%error, "inputs are not shared: payloads travel by TCP");
            Ok(None)
        }
    }
}

impl Inner {
    fn route(&self, name: &str) -> Option<Route> {
        let routes = Arc::clone(&self.routes.read().unwrap_or_else(PoisonError::into_inner));
        routes.get(name).cloned()
    }

    /// The way to the sub-cluster's leader, opened when it is first asked for.
    fn link(self: &Arc<Self>, subcluster: SubclusterId) -> Way {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let link = links.entry(subcluster).or_insert_with(|| {
            let (sender, words) = mpsc::unbounded_channel();
            let suspended = Arc::new(AtomicBool::new(false));
            let link = LeaderLink {
                frontend: self.id,
                boot: self.boot,
                subcluster,
                net: self.net.clone(),
                view: self.view.clone(),
                table: Arc::clone(&self.table),
                ledger: Arc::clone(&self.ledger),
                words,
                suspended: Arc::clone(&suspended),
                turned_away: self.turned_away.clone(),
            };
            tokio::spawn(link.run(self.ended.clone()));
            Way { words: sender, suspended }
        });
        link.clone()
    }

    fn tell(self: &Arc<Self>, subcluster: SubclusterId, word: Word) {
        let _ = self.link(subcluster).words.send(word);
    }

    /// Whether new requests are turned away: the process ends, or the cluster says that it is to take nothing new.
    fn turns_away(&self) -> bool {
        let own =
            |view: &View| view.frontends.get(&self.id).is_some_and(|f| f.boot == self.boot && !f.duty.takes_work());
        self.draining.load(Ordering::Acquire) || self.ended.is_cancelled() || own(&self.view.borrow())
    }

    async fn infer(self: &Arc<Self>, request: InferRequest) -> Result<InferAnswer, InferError> {
        if self.turns_away() {
            return Err(InferError::Failed(FailReason::Draining));
        }
        let route = self.route(&request.model.name).ok_or_else(|| {
            InferError::UnknownModel(format!("model `{}` is not loaded any more", request.model.name))
        })?;
        if route.info.state != ModelState::Ready {
            return Err(InferError::Failed(FailReason::ModelNotReady));
        }
        // Whoever waits has its chance until its deadline; nobody new shall wait for a leader that says it has stopped.
        if self.link(route.subcluster).suspended.load(Ordering::Acquire) {
            return Err(InferError::Failed(FailReason::ControlPlaneLost));
        }
        if self.table.len() >= self.in_flight_max {
            return Err(InferError::Busy { in_flight_max: self.in_flight_max });
        }
        let slo = route.info.slo;
        let allowed = match request.deadline.shortest() {
            Some(named) if request.deadline.exceed_slo => named,
            Some(named) => named.min(slo),
            None => slo,
        };
        let arrived = request.deadline.arrived;
        let deadline = arrived + Duration::from(allowed.min(DEADLINE_MAX));
        let (waiter, ending) = oneshot::channel();
        let sequence = self.table.insert(Pending {
            model: route.model,
            subcluster: route.subcluster,
            items: request.items,
            payload: request.payload,
            shared: None,
            deadline,
            announced: Token::default(),
            attempt: 0,
            waiter,
        });
        self.ledger.accept();
        request.receipt.accepted(RequestId { frontend: self.id, boot: self.boot, sequence });
        let mut owned = Owned { inner: self, sequence, route: &route, arrived, items: request.items, ended: false };
        self.tell(route.subcluster, Word::New(sequence));
        // While the leader hears of it.
        if let Some(inputs) = &self.inputs {
            self.table.share(sequence, inputs);
        }
        let ending = tokio::select! {
            ending = ending => ending.ok(),
            () = tokio::time::sleep_until((deadline + self.grace).into()) => None,
            () = self.ended.cancelled() => Some(Ending::Ended(EndReason::Failed(FailReason::Draining))),
        };
        owned.end(ending, deadline)
    }
}

/// No deadline is further away than this, whatever a client asks for.
const DEADLINE_MAX: Nanos = Nanos::from_millis(3_600_000);

/// A request in the hands of its caller: gets its outcome from [`Owned::end`], or is cancelled when the caller goes.
struct Owned<'a> {
    inner: &'a Arc<Inner>,
    sequence: u64,
    route: &'a Route,
    arrived: Instant,
    items: u32,
    ended: bool,
}

impl Owned<'_> {
    fn end(&mut self, ending: Option<Ending>, deadline: Instant) -> Result<InferAnswer, InferError> {
        self.ended = true;
        // Whatever ended it, nobody else may end it from now on.
        self.withdraw();
        let (outcome, ran, result) = match ending {
            Some(Ending::Answer { payload, batch, execution_ns, at }) => {
                let execution = Nanos::new(execution_ns);
                let timeliness = if at <= deadline { Timeliness::InTime } else { Timeliness::Late };
                let outcome = if at <= deadline { Outcome::InTime } else { Outcome::Late };
                (outcome, Some((batch, execution)), Ok(InferAnswer { payload, batch, execution, timeliness }))
            }
            Some(Ending::Ended(EndReason::Dropped(reason))) => {
                (Outcome::Dropped(reason), None, Err(InferError::Dropped(reason)))
            }
            Some(Ending::Ended(EndReason::Failed(reason))) => {
                (Outcome::Failed(reason), None, Err(InferError::Failed(reason)))
            }
            None => (Outcome::Failed(FailReason::NoAnswer), None, Err(InferError::Failed(FailReason::NoAnswer))),
        };
        self.settle(outcome, ran);
        result
    }

    /// Takes the request out of the table, and back from the leader that has it.
    fn withdraw(&self) {
        if let Some(pending) = self.inner.table.remove(self.sequence) {
            self.inner.tell(pending.subcluster, Word::Cancel(self.sequence, pending.model.get()));
        }
    }

    fn settle(&self, outcome: Outcome, ran: Option<(u32, Nanos)>) {
        self.inner.ledger.end(outcome);
        let observed = Observed { outcome, items: self.items, elapsed: self.arrived.elapsed(), ran };
        self.inner.statistics.observe(&self.route.info.name, observed);
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.withdraw();
            self.settle(Outcome::Cancelled, None);
        }
    }
}

/// Keeps the routes in step with the view, and opens links before the first request needs them.
async fn follow(inner: Arc<Inner>, mut view: ViewReceiver) {
    loop {
        let current = Arc::clone(&view.borrow_and_update());
        let routes = Arc::new(routes(&current));
        *inner.routes.write().unwrap_or_else(PoisonError::into_inner) = routes;
        for &subcluster in current.subclusters.keys() {
            inner.link(subcluster);
        }
        tokio::select! {
            () = inner.ended.cancelled() => return,
            changed = view.changed() => if changed.is_err() { return },
        }
    }
}

/// How often it is looked whether a frontend that takes nothing new has anything left.
const DRAINED_POLL: Duration = Duration::from_millis(50);
/// How long the report of that may take.
const REPORT_WITHIN: Duration = Duration::from_secs(5);

/// Tells the cluster, once for each time that this frontend is to take nothing new, that it has nothing left to answer.
async fn report_drained(inner: Arc<Inner>, control: ControlClient, mut view: ViewReceiver) {
    loop {
        let draining = {
            let view = view.borrow_and_update();
            view.frontends.get(&inner.id).is_some_and(|f| f.boot == inner.boot && !f.duty.takes_work() && !f.drained)
        };
        if draining && inner.table.len() == 0 {
            let member = Some(Member::Frontend(inner.id).into());
            let boot_id = inner.boot.get();
            let call = |mut client: pb::control_client::ControlClient<_>| {
                let request = pb::ReportDrainedRequest { member, boot_id };
                async move { client.report_drained(request).await }
            };
            if let Err(error) = control.call(REPORT_WITHIN, call).await {
                tracing::debug!(%error, "not reported as drained");
            }
        }
        tokio::select! {
            () = inner.ended.cancelled() => return,
            changed = view.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(DRAINED_POLL), if draining => {}
        }
    }
}

impl InferenceService for Frontend {
    fn server(&self) -> ServerInfo {
        let known = self.inner.view.borrow().applied_index > 0;
        ServerInfo {
            name: "symphony".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            live: true,
            ready: known && !self.inner.turns_away(),
        }
    }

    fn models(&self) -> Vec<Arc<ModelInfo>> {
        let routes = Arc::clone(&self.inner.routes.read().unwrap_or_else(PoisonError::into_inner));
        routes.values().map(|route| Arc::clone(&route.info)).collect()
    }

    fn model(&self, name: &str) -> Option<Arc<ModelInfo>> {
        self.inner.route(name).map(|route| route.info)
    }

    fn statistics(&self, model: Option<&str>) -> Vec<ModelStatistics> {
        self.inner.statistics.of(model)
    }

    async fn infer(&self, request: InferRequest) -> Result<InferAnswer, InferError> {
        self.inner.infer(request).await
    }

    async fn load_model(&self, model: &str, _: BTreeMap<String, Parameter>) -> Result<(), RepositoryError> {
        match self.model(model) {
            Some(info) if info.state == ModelState::Ready => Ok(()),
            Some(_) => Err(RepositoryError::Unavailable(format!("model `{model}` is known and not ready yet"))),
            None => Err(RepositoryError::Unsupported(format!(
                "a frontend knows no profile of `{model}`; load it with `symphony model load`"
            ))),
        }
    }

    async fn unload_model(&self, model: &str) -> Result<(), RepositoryError> {
        Err(RepositoryError::Unsupported(format!("unload `{model}` with `symphony model unload`")))
    }
}
