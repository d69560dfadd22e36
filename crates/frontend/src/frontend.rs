//! A frontend: accepts requests, keeps them until they have their one outcome, and knows which cluster serves what.

mod door;
mod owned;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures::future::join_all;
use symphony_config::{FrontendConfig, ImagesConfig};
use symphony_images::{IMAGE_BYTES_MAX, ImageLimits};
use symphony_net::Net;
use symphony_protocol::dispatch::EndReason;
use symphony_protocol::federation::FederationView;
use symphony_protocol::view::View;
use symphony_telemetry::Registry;
use symphony_transport::{ControlClient, ControlError, FederationClient, PlanReceiver, SharedInputs, SharingError};
use symphony_types::{BootId, DropReason, FailReason, FrontendId, Token, VersionedName};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, ClusterAccess, Own, Requests};
use crate::decoders::{Decoders, Decoding, Progress};
use crate::ledger::{Ledger, LedgerCounts};
use crate::metrics;
use crate::oip::shorten;
use crate::oip::{
    Credential, IndexEntry, InferAnswer, InferError, InferRequest, InferenceService, ModelInfo, ModelState,
    ModelStatistics, Parameter, RepositoryError, ServerInfo,
};
use crate::plan::{in_order, lost_home};
use crate::rates::Rates;
use crate::repository_desk::{CallEnded, RepositoryAccess, RepositoryDesk};
use crate::request_table::{Ending, Payload, Pending};
use crate::routing::{Route, versions_of};
use crate::statistics::{Statistics, forget_unloaded};
use door::takes;
use owned::Owned;

/// Pause before a cluster that did not take this frontend in is asked again.
const JOIN_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often the leader of a federation hears what clients ask for, and how long one report may take.
const RATES_EVERY: Duration = Duration::from_secs(1);
const RATES_WITHIN: Duration = Duration::from_millis(900);

/// How long the cluster may take to agree that this frontend leaves.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// How long the last word of a frontend may take.
const GOODBYE_WITHIN: Duration = Duration::from_millis(500);
/// How often it is looked whether its requests are done.
const DRAIN_POLL: Duration = Duration::from_millis(20);

/// How long this frontend may be behind another watcher of its cluster.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

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
    /// This system has not the transport that is required.
    #[error("frontend.payloads.required: {0}")]
    Sharing(#[from] SharingError),
}

/// A running frontend; cheap to clone. [`Frontend::stop`] ends it.
#[derive(Clone, Debug)]
pub struct Frontend {
    inner: Arc<Inner>,
}

/// What all handles of a frontend share.
#[derive(Debug)]
pub(crate) struct Inner {
    grace: Duration,
    in_flight_max: usize,
    ledger: Arc<Ledger>,
    statistics: Statistics,
    decoders: Decoders,
    /// In the order of the configuration.
    places: Vec<Place>,
    /// Which cluster is home to which model; none without a federation.
    plan: Option<PlanReceiver>,
    rates: Rates,
    repository: RepositoryDesk,
    /// This process is about to end.
    draining: AtomicBool,
    forgotten: watch::Receiver<Option<FrontendId>>,
    ended: CancellationToken,
}

/// A cluster, or the place of one that has not taken this frontend in yet.
#[derive(Debug)]
struct Place {
    name: String,
    requests: Requests,
    cluster: OnceLock<Arc<Cluster>>,
}

impl Frontend {
    /// Registers with the cluster and serves backends on `data`. The public surface is mounted by the caller
    /// ([`oip`](crate::oip)): this value is its [`InferenceService`]. With a repository it lists and loads its models.
    ///
    /// # Errors
    /// If the cluster does not answer or refuses, or shared memory is required and this system has none.
    pub async fn start(
        config: &FrontendConfig,
        boot: BootId,
        data: TcpListener,
        net: Net,
        control: &ControlClient,
        repository: Option<RepositoryAccess>,
        registry: &Registry,
    ) -> Result<Self, StartError> {
        let (control, data_addr) = (control.clone(), config.data.to_string());
        let access = ClusterAccess { name: String::new(), data, data_addr, net, control };
        let (frontend, own) = Self::new(config, boot, &[access.name.as_str()], None, repository, registry)?;
        let place = &frontend.inner.places[0];
        let joined = Cluster::join(access, own, place.requests.clone()).await;
        let cluster = joined.map_err(|(source, _)| StartError::Register { name: config.name.clone(), source })?;
        let _ = place.cluster.set(cluster);
        Ok(frontend)
    }

    /// Serves the models of several clusters, each by the cluster that is its home in the federation's plan. Clusters are joined
    /// in the background: one that is away when the frontend starts keeps nobody from the others.
    ///
    /// # Errors
    /// If shared memory is required and there is none.
    pub fn start_federated(
        config: &FrontendConfig,
        boot: BootId,
        clusters: Vec<ClusterAccess>,
        federation: &FederationClient,
        registry: &Registry,
    ) -> Result<Self, StartError> {
        let names: Vec<_> = clusters.iter().map(|access| access.name.as_str()).collect();
        let plan = federation.watch(&format!("frontend {}", config.name));
        let (frontend, own) = Self::new(config, boot, &names, Some(plan.clone()), None, registry)?;
        let news = own.news.subscribe();
        for (index, access) in clusters.into_iter().enumerate() {
            tokio::spawn(join(Arc::clone(&frontend.inner), index, access, own.clone()));
        }
        tokio::spawn(follow(Arc::clone(&frontend.inner), plan, news));
        tokio::spawn(report_rates(Arc::clone(&frontend.inner), federation.clone(), config.name.clone()));
        Ok(frontend)
    }

    fn new(
        config: &FrontendConfig,
        boot: BootId,
        clusters: &[&str],
        plan: Option<PlanReceiver>,
        repository: Option<RepositoryAccess>,
        registry: &Registry,
    ) -> Result<(Self, Own), SharingError> {
        let (ledger, ended) = (Arc::<Ledger>::default(), CancellationToken::new());
        let forgotten = watch::Sender::default();
        // A backend reads shared memory without a word, so what is there can not be sent to another cluster any more (F1): a
        // frontend of several clusters keeps its inputs to itself until they are asked for.
        let shares = plan.is_none();
        let place = |name: &&str| {
            let inputs = if shares { share_inputs(config, &ended)? } else { None };
            let requests = Requests { table: Arc::default(), inputs };
            Ok(Place { name: (*name).to_owned(), requests, cluster: OnceLock::new() })
        };
        let places: Vec<_> = clusters.iter().map(place).collect::<Result<_, SharingError>>()?;
        let tables = places.iter().map(|place| Arc::clone(&place.requests.table)).collect();
        let inputs = places.iter().filter_map(|place| place.requests.inputs.clone()).collect();
        metrics::register(registry, tables, &ledger, inputs);
        let inner = Inner {
            grace: config.answer_grace().into(),
            in_flight_max: config.requests_in_flight_max as usize,
            ledger: Arc::clone(&ledger),
            statistics: Statistics::new(registry),
            decoders: Decoders::new(&config.images, image_limits(&config.images), registry),
            places,
            plan,
            rates: Rates::begin(Instant::now()),
            repository: RepositoryDesk::new(repository, registry),
            draining: AtomicBool::new(false),
            forgotten: forgotten.subscribe(),
            ended: ended.clone(),
        };
        let (name, console_addr) = (config.name.clone(), config.metrics.to_string());
        let own = Own { name, boot, console_addr, ledger, ended, news: watch::Sender::default(), forgotten };
        let inner = Arc::new(inner);
        registry.collect(metrics::ModelCollector(Arc::downgrade(&inner)));
        tokio::spawn(forget_unloaded(Arc::downgrade(&inner)));
        Ok((Self { inner }, own))
    }

    /// The newest view of the cluster; of a federation, that of the first cluster that is known.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        let first = self.inner.clusters().next();
        first.map_or_else(Arc::default, |(_, cluster)| Arc::clone(&cluster.view.borrow()))
    }

    /// The newest plan of the federation, if there is one.
    #[must_use]
    pub fn plan(&self) -> Option<Arc<FederationView>> {
        self.inner.plan.as_ref().map(|plan| Arc::clone(&plan.borrow()))
    }

    /// What became of the requests so far, and how many have no outcome yet.
    #[must_use]
    pub fn ledger(&self) -> (LedgerCounts, usize) {
        (self.inner.ledger.counts(), self.inner.in_flight())
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

    /// Leaves every cluster, in at most `within` and a moment: takes no new requests, waits for those in flight, and says so. False if
    /// requests were left by then.
    pub async fn leave(&self, within: Duration) -> bool {
        self.drain();
        let clusters = || self.inner.clusters().map(|(_, cluster)| cluster);
        let done = async {
            while self.inner.in_flight() > 0 {
                tokio::time::sleep(DRAIN_POLL).await;
            }
        };
        let leaving = join_all(clusters().map(|cluster| cluster.leave(LEAVE_WITHIN.min(within))));
        let (in_time, _) = tokio::join!(tokio::time::timeout(within, done), leaving);
        if in_time.is_ok() {
            join_all(clusters().map(|cluster| cluster.report_drained(GOODBYE_WITHIN))).await;
        }
        in_time.is_ok()
    }

    /// Waits until a cluster has forgotten this life of the frontend, and returns who it was there: no backend finds it any more.
    pub async fn forgotten(&self) -> FrontendId {
        let mut forgotten = self.inner.forgotten.clone();
        match forgotten.wait_for(Option::is_some).await.map(|id| *id) {
            Ok(Some(id)) => id,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Ends the frontend. Requests without an outcome fail.
    pub fn stop(&self) {
        self.inner.ended.cancel();
    }
}

/// Memory for inputs, if the configuration wants any and the system has it.
fn share_inputs(config: &FrontendConfig, ended: &CancellationToken) -> Result<Option<Arc<SharedInputs>>, SharingError> {
    let payloads = &config.payloads;
    let in_flight_max = config.requests_in_flight_max as usize;
    let required = payloads.must_share() || payloads.must_use_rdma();
    let inputs = if payloads.shares() {
        SharedInputs::start(payloads.pool_bytes(), in_flight_max, required, ended.clone())
    } else if payloads.wants_rdma() {
        SharedInputs::over_rdma(payloads.pool_bytes(), in_flight_max, required, payloads.rdma_device())
    } else {
        return Ok(None);
    };
    match inputs {
        Ok(inputs) => Ok(Some(inputs)),
        Err(error) if required => Err(error),
        Err(error) => {
            tracing::warn!(%error, "inputs are not shared: payloads travel by TCP");
            Ok(None)
        }
    }
}

impl Inner {
    /// The clusters that have taken this frontend in, with their places.
    fn clusters(&self) -> impl Iterator<Item = (usize, &Arc<Cluster>)> {
        self.places.iter().enumerate().filter_map(|(index, place)| Some((index, place.cluster.get()?)))
    }

    /// Forgets what was counted of models that no cluster has any more.
    pub(crate) fn forget_unloaded(&self, now: Instant) {
        let routes: Vec<_> = self.clusters().map(|(_, cluster)| cluster.routes()).collect();
        self.statistics.forget_unloaded(now, |model| routes.iter().any(|routes| routes.contains_key(model)));
    }

    fn in_flight(&self) -> usize {
        self.places.iter().map(|place| place.requests.table.len()).sum()
    }

    /// Whether new requests are turned away: the process ends, or every cluster says that it is to take nothing new.
    fn turns_away(&self) -> bool {
        let mut known = self.clusters().peekable();
        let by_all = known.peek().is_some() && known.all(|(_, cluster)| cluster.turns_away());
        self.draining.load(Ordering::Acquire) || self.ended.is_cancelled() || by_all
    }

    /// Where a request for the model goes, by the newest plan, without those clusters that have turned it away, or in which its input
    /// is none of the model's (`made_for`): where it is ready, if it is anywhere.
    fn choose(&self, model: &str, made_for: Option<&ModelInfo>, not: &[usize]) -> Option<(Arc<Cluster>, usize, Route)> {
        let plan = self.plan.as_ref().map(|plan| Arc::clone(&plan.borrow()));
        let order = match &plan {
            Some(plan) => in_order(plan, model, self.places.iter().map(|place| place.name.as_str())),
            None => (0..self.places.len()).collect(),
        };
        let mut second = None;
        for index in order.into_iter().filter(|index| !not.contains(index)) {
            let Some(cluster) = self.places[index].cluster.get() else { continue };
            let Some(route) = cluster.route(model) else { continue };
            if made_for.is_some_and(|made_for| !route.info.reads_and_answers_as(made_for)) {
                continue;
            }
            let takes = takes(cluster, &route);
            let found = (Arc::clone(cluster), index, route);
            if takes {
                return Some(found);
            }
            second.get_or_insert(found);
        }
        second
    }

    /// What is known of the model of that name in the cluster that would be asked.
    pub(crate) fn info(&self, loaded_as: &str) -> Option<Arc<ModelInfo>> {
        self.choose(loaded_as, None, &[]).map(|(.., route)| route.info)
    }

    /// Waits until requests are routed by a view of this log index, or a little longer than that ever takes: who was told that a
    /// model is ready asks for it at once.
    async fn seen(&self, index: u64) {
        let routed = async {
            for (_, cluster) in self.clusters() {
                cluster.routed(index).await;
            }
        };
        let _ = tokio::time::timeout(SEEN_WITHIN, routed).await;
    }

    /// What a caller is told of a load or unload, once this frontend has seen it itself: who then asks for the index is not told of
    /// what was before, whether it worked or not.
    async fn told(&self, ended: CallEnded) -> Result<(), RepositoryError> {
        self.seen(ended.as_of).await;
        ended.result
    }

    /// The same of all models, in the order of those names.
    pub(crate) fn infos(&self) -> Vec<Arc<ModelInfo>> {
        let all = self.clusters().flat_map(|(_, cluster)| cluster.routes().keys().cloned().collect::<Vec<_>>());
        let names: BTreeSet<_> = all.collect();
        names.iter().filter_map(|loaded_as| self.info(loaded_as)).collect()
    }

    /// The names that versions of a model have in the clusters, each once.
    fn loaded_as(&self, name: &str) -> BTreeSet<String> {
        let routes = self.clusters().map(|(_, cluster)| cluster.routes());
        routes.flat_map(|routes| versions_of(&routes, name)).collect()
    }

    async fn infer(self: &Arc<Self>, mut request: InferRequest) -> Result<InferAnswer, InferError> {
        let model = Arc::clone(&request.model);
        let name = &model.loaded_as;
        if self.turns_away() {
            return Err(self.refused(name, InferError::Failed(FailReason::Draining)));
        }
        let (mut cluster, mut index, mut route) = self
            .choose(name, Some(&request.model), &[])
            .ok_or_else(|| InferError::UnknownModel(format!("model `{name}` is not loaded any more")))?;
        let (allowed, mut decoding) = self.admit(&mut request, &cluster, &route)?;
        let arrived = request.deadline.arrived;
        let deadline = arrived + Duration::from(allowed);
        self.ledger.accept();
        let mut owned = Owned { inner: self, here: None, name, arrived, items: request.items, ended: false };
        let mut not_here = Vec::new();
        loop {
            let (waiter, mut ending) = oneshot::channel();
            // The schedulers hear of it once nothing is before the last of its pictures, or once all are decoded if that takes long:
            // a GPU that is given it then waits for milliseconds at most. It has its name and its place in the table from the start.
            let mut held = decoding.as_ref().is_some_and(Decoding::is_waiting);
            let (id, sequence) = cluster.submit(Pending {
                model: route.model,
                subcluster: route.subcluster,
                items: request.items,
                payload: match decoding {
                    Some(_) => Payload::Coming(Vec::new()),
                    None => Payload::Here(request.payload.clone()),
                },
                deadline,
                held,
                announced: Token::default(),
                attempt: 0,
                panics: 0,
                shared: None,
                read: false,
                waiter,
            });
            request.receipt.accepted(id);
            owned.here = Some((Arc::clone(&cluster), sequence));
            let ending = loop {
                let end_by = if held { deadline } else { deadline + self.grace };
                tokio::select! {
                    ending = &mut ending => break ending.ok(),
                    progress = progress_of(&mut decoding) => {
                        let made = match progress {
                            Progress::Begun => None,
                            Progress::Made(Ok(input)) => Some(input),
                            Progress::Made(Err(error)) => return owned.withdrawn(error),
                        };
                        if let Some(input) = &made {
                            decoding = None;
                            request.payload = input.clone();
                        }
                        if std::mem::take(&mut held) {
                            // It has waited: its model may be elsewhere by now, or another one of that name, or its cluster lost.
                            let made_for = Some(request.model.as_ref());
                            let other = self.choose(name, made_for, &not_here).filter(|(_, at, _)| *at != index);
                            let here = cluster.route(name).filter(|r| r.info.reads_and_answers_as(&request.model));
                            match here {
                                Some(here) if other.is_none_or(|(other, _, route)| !takes(&other, &route)) => {
                                    cluster.release(sequence, &here, made.as_ref());
                                }
                                _ => {
                                    cluster.withdraw(sequence);
                                    break Some(Ending::NotHere);
                                }
                            }
                        } else if let Some(input) = &made {
                            cluster.supply(sequence, input);
                        }
                    }
                    () = tokio::time::sleep_until(end_by.into()) => {
                        break held.then_some(Ending::Ended(EndReason::Dropped(DropReason::QueueExpired)));
                    }
                    () = self.ended.cancelled() => {
                        break Some(Ending::Ended(EndReason::Failed(FailReason::Draining)));
                    }
                }
            };
            // Only what has not run, and never will, where it was is sent elsewhere (invariant F1).
            let Some(Ending::NotHere) = ending else { return owned.end(ending, deadline) };
            not_here.push(index);
            match self
                .choose(name, Some(&request.model), &not_here)
                .filter(|(.., next)| next.info.state == ModelState::Ready)
            {
                _ if Instant::now() >= deadline => return owned.end(None, deadline),
                Some((next, ..)) if next.turns_away() => {
                    return owned.end(Some(Ending::Ended(EndReason::Failed(FailReason::Draining))), deadline);
                }
                Some(next) => (cluster, index, route) = next,
                None => return owned.end(ending, deadline),
            }
        }
    }
}

/// What happens next to a payload that is being made; never anything if none is.
async fn progress_of(decoding: &mut Option<Decoding>) -> Progress {
    match decoding {
        Some(decoding) => decoding.next().await,
        None => std::future::pending().await,
    }
}

/// What a picture may cost here.
#[must_use]
pub fn image_limits(config: &ImagesConfig) -> ImageLimits {
    ImageLimits { bytes_max: IMAGE_BYTES_MAX, pixels_max: config.pixels_max }
}

/// Gets into a cluster, however long that takes.
async fn join(inner: Arc<Inner>, index: usize, mut access: ClusterAccess, own: Own) {
    let place = &inner.places[index];
    loop {
        let joined = tokio::select! {
            () = inner.ended.cancelled() => return,
            joined = Cluster::join(access, own.clone(), place.requests.clone()) => joined,
        };
        match joined {
            Ok(cluster) => {
                let _ = place.cluster.set(cluster);
                own.news.send_modify(|count| *count += 1);
                return;
            }
            Err((error, again)) => {
                tracing::warn!(cluster = place.name, %error, "not registered; the other clusters are served without it");
                access = again;
            }
        }
        tokio::time::sleep(JOIN_AGAIN_AFTER).await;
    }
}

/// Takes requests back from clusters that are lost, as soon as another one has their model: those that wait there are served in
/// time, those that a backend has wait for its answer.
async fn follow(inner: Arc<Inner>, mut plan: PlanReceiver, mut news: watch::Receiver<u64>) {
    loop {
        let current = Arc::clone(&plan.borrow_and_update());
        for (index, cluster) in inner.clusters() {
            for (name, route) in cluster.routes().iter() {
                let ready_in = |other: &str| {
                    let mut others = inner.clusters().filter(|&(at, _)| inner.places[at].name == other);
                    others.any(|(_, other)| other.route(name).is_some_and(|r| r.info.state == ModelState::Ready))
                };
                if lost_home(&current, name, &inner.places[index].name).is_some_and(ready_in) {
                    let taken = cluster.take_back(route.model);
                    if taken > 0 {
                        tracing::info!(model = name, cluster = inner.places[index].name, taken, "requests taken back");
                    }
                }
            }
        }
        tokio::select! {
            () = inner.ended.cancelled() => return,
            changed = plan.changed() => if changed.is_err() { return },
            changed = news.changed() => if changed.is_err() { return },
        }
    }
}

/// Tells the federation's leader what clients ask for, as long as anybody does.
async fn report_rates(inner: Arc<Inner>, federation: FederationClient, frontend: String) {
    let mut ticks = tokio::time::interval(RATES_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = inner.ended.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let Some(rates) = inner.rates.each(Instant::now()) else { continue };
        let call = |mut client: symphony_protocol::control::federation_client::FederationClient<_>| {
            let (rates, frontend) = (rates.clone(), frontend.clone());
            let request = symphony_protocol::control::FederationRatesRequest { rates, frontend };
            async move { client.report_rates(request).await }
        };
        if let Err(error) = federation.call(RATES_WITHIN, call).await {
            tracing::debug!(%error, "rates not reported");
        }
    }
}

impl InferenceService for Frontend {
    fn server(&self) -> ServerInfo {
        let known = self.inner.clusters().any(|(_, cluster)| cluster.view.borrow().applied_index > 0);
        ServerInfo {
            name: "symphony".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            live: true,
            ready: known && !self.inner.turns_away(),
        }
    }

    fn models(&self) -> Vec<Arc<ModelInfo>> {
        let mut models = self.inner.infos();
        models.sort_by(|a, b| (&a.name, a.version).cmp(&(&b.name, b.version)));
        models
    }

    fn model(&self, name: &str, version: Option<u64>) -> Option<Arc<ModelInfo>> {
        if let Some(version) = version {
            let versioned = self.inner.info(&VersionedName { name, version }.loaded_as());
            return versioned.or_else(|| self.inner.info(name).filter(|info| info.version == version));
        }
        // Also under the name that the cluster has for a version, which people see in its tools.
        let exact = self.inner.info(name);
        let versioned = self.inner.loaded_as(name).into_iter().filter_map(|loaded_as| self.inner.info(&loaded_as));
        versioned.chain(exact).max_by_key(|info| (info.state == ModelState::Ready, info.version))
    }

    fn versions(&self, name: &str) -> Vec<u64> {
        let exact = self.inner.info(name).map(|info| info.version);
        let loaded_as = self.inner.loaded_as(name);
        let versions = loaded_as.iter().map(|loaded_as| VersionedName::parse(loaded_as).version).chain(exact);
        versions.collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn statistics(&self, of: Option<(&str, Option<u64>)>) -> Vec<ModelStatistics> {
        self.inner.statistics.of(of)
    }

    async fn index(&self, credential: &Credential) -> Result<Vec<IndexEntry>, RepositoryError> {
        let known = |info: Arc<ModelInfo>| IndexEntry {
            name: info.name.clone(),
            version: Some(info.version),
            state: info.state.clone(),
        };
        let mut entries: Vec<_> = self.models().into_iter().map(known).collect();
        for listed in self.inner.repository.listed().await.iter() {
            if !entries.iter().any(|entry| entry.name == listed.name && entry.version == listed.version) {
                entries.push(listed.clone());
            }
        }
        entries.sort_by(|a, b| (&a.name, a.version).cmp(&(&b.name, b.version)));
        self.inner.repository.keep_reasons(&mut entries, credential);
        Ok(entries)
    }

    async fn infer(&self, request: InferRequest) -> Result<InferAnswer, InferError> {
        self.inner.infer(request).await
    }

    async fn load_model(
        &self,
        model: &str,
        parameters: BTreeMap<String, Parameter>,
        credential: Credential,
    ) -> Result<(), RepositoryError> {
        if let Some(name) = parameters.keys().next() {
            return Err(RepositoryError::Unsupported(format!(
                "parameter `{name}` is not taken: a model is loaded as its folder in the repository says"
            )));
        }
        self.inner.told(self.inner.repository.load(model, &credential).await).await
    }

    async fn unload_model(&self, model: &str, credential: Credential) -> Result<(), RepositoryError> {
        if self.versions(model).is_empty() {
            return Err(RepositoryError::UnknownModel(format!("there is no model `{}`", shorten(model))));
        }
        self.inner.told(self.inner.repository.unload(model, &credential).await).await
    }
}

#[cfg(test)]
mod tests;
