//! A frontend: accepts requests, keeps them until they have their one outcome, and knows which cluster serves what.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use futures::future::join_all;
use symphony_config::FrontendConfig;
use symphony_net::Net;
use symphony_protocol::federation::FederationView;
use symphony_protocol::view::View;
use symphony_telemetry::{Registry, Traces};
use symphony_transport::{
    ControlClient, ControlError, FederationClient, FederationViewReceiver, SharedInputs, SharingError,
};
use symphony_types::{BootId, FrontendId, RequestId};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::access::tenants::Tenants;
use crate::clusters::cluster::{Cluster, ClusterAccess, FrontendIdentity, Requests};
use crate::clusters::federation::{join, report_rates, withdraw_from_lost_clusters};
use crate::clusters::traffic::TrafficSplitter;
use crate::counts::collectors;
use crate::counts::ledger::{Ledger, LedgerCounts};
use crate::counts::pipeline_counters::PipelineCounters;
use crate::counts::pipeline_reports::report_pipelines;
use crate::counts::rates::Rates;
use crate::counts::statistics::Statistics;
use crate::counts::triton_names::TritonCollector;
use crate::inner::{ClusterSlot, Inner};
use crate::metrics;
use crate::oip::limits::image_limits;
use crate::oip::{InFlightLimit, SharedRegions};
use crate::pictures::decoders::Decoders;
use crate::records::Records;
use crate::records::pipeline_memory::PipelineMemory;
use crate::repository::repository_service::{RepositoryAccess, RepositoryService};

/// How long the cluster may take to agree that this frontend leaves.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// How long the last word of a frontend may take.
const GOODBYE_WITHIN: Duration = Duration::from_millis(500);
/// How often it is looked whether its requests are done.
const DRAIN_POLL: Duration = Duration::from_millis(20);
/// How often it is looked which models are unloaded.
const POLL_EVERY: Duration = Duration::from_secs(30);

/// Why a frontend does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The cluster does not answer or refuses.
    #[error("cannot register frontend `{name}`: {source}")]
    Register {
        /// The configured name.
        name: String,
        /// The error of the control plane.
        source: ControlError,
    },
    /// This system has not the transport that is required.
    #[error("frontend.payloads.required: {0}")]
    Sharing(#[from] SharingError),
}

/// A running frontend; cheap to clone. [`Frontend::stop`] ends it.
#[derive(Clone, Debug)]
pub struct Frontend {
    pub(crate) inner: Arc<Inner>,
}

impl Frontend {
    /// Registers with the cluster and serves backends on `data`. The public surface is mounted by the caller
    /// ([`oip`](crate::oip)): this value is its [`InferenceService`](crate::oip::InferenceService). With a repository
    /// it lists and loads its models. With tenants it serves them alone.
    ///
    /// # Errors
    /// If the cluster does not answer or refuses, or shared memory is required and this system has none.
    #[expect(clippy::too_many_arguments, reason = "each is a part of the process that the caller has made")]
    pub async fn start(
        config: &FrontendConfig,
        boot: BootId,
        data: TcpListener,
        net: Net,
        control: &ControlClient,
        repository: Option<RepositoryAccess>,
        tenants: Option<Arc<Tenants>>,
        registry: &Registry,
    ) -> Result<Self, StartError> {
        let (control, data_addr) = (control.clone(), config.data.to_string());
        let access = ClusterAccess { name: String::new(), data, data_addr, net, control };
        let callers = Callers { repository, tenants };
        let (frontend, identity) = Self::new(config, boot, &[access.name.as_str()], None, callers, registry)?;
        let slot = &frontend.inner.slots[0];
        let joined = Cluster::join(access, identity, slot.requests.clone()).await;
        let cluster = joined.map_err(|(source, _)| StartError::Register { name: config.name.clone(), source })?;
        frontend.inner.share_quotas(&cluster, true);
        tokio::spawn(report_pipelines(Arc::clone(&frontend.inner), Arc::clone(&cluster)));
        let _ = slot.cluster.set(cluster);
        Ok(frontend)
    }

    /// Serves the models of several clusters, each by the cluster that is its home in the federation. Clusters are
    /// joined in the background: one that is away when the frontend starts does not delay the others.
    ///
    /// # Errors
    /// If shared memory is required and there is none.
    pub fn start_federated(
        config: &FrontendConfig,
        boot: BootId,
        clusters: Vec<ClusterAccess>,
        federation: &FederationClient,
        tenants: Option<Arc<Tenants>>,
        registry: &Registry,
    ) -> Result<Self, StartError> {
        let names: Vec<_> = clusters.iter().map(|access| access.name.as_str()).collect();
        let federation_view = federation.watch(&format!("frontend {}", config.name));
        let callers = Callers { repository: None, tenants };
        let watched = Some(federation_view.clone());
        let (frontend, identity) = Self::new(config, boot, &names, watched, callers, registry)?;
        let news = identity.news.subscribe();
        for (index, access) in clusters.into_iter().enumerate() {
            tokio::spawn(join(Arc::clone(&frontend.inner), index, access, identity.clone()));
        }
        tokio::spawn(withdraw_from_lost_clusters(Arc::clone(&frontend.inner), federation_view, news));
        tokio::spawn(report_rates(Arc::clone(&frontend.inner), federation.clone(), config.name.clone()));
        Ok(frontend)
    }

    fn new(
        config: &FrontendConfig,
        boot: BootId,
        clusters: &[&str],
        federation_view: Option<FederationViewReceiver>,
        Callers { repository, tenants }: Callers,
        registry: &Registry,
    ) -> Result<(Self, FrontendIdentity), SharingError> {
        let (ledger, ended) = (Arc::<Ledger>::default(), CancellationToken::new());
        let forgotten = watch::Sender::default();
        // A backend reads shared memory without a word, so what is there can not be sent to another cluster any more
        // (F1): a frontend of several clusters keeps its inputs to itself until they are asked for.
        let shares = federation_view.is_none();
        let slot = |name: &&str| {
            let inputs = if shares { share_inputs(config, &ended)? } else { None };
            let requests = Requests { table: Arc::default(), inputs };
            Ok(ClusterSlot { name: (*name).to_owned(), requests, cluster: OnceLock::new() })
        };
        let slots: Vec<_> = clusters.iter().map(slot).collect::<Result<_, SharingError>>()?;
        let tables = slots.iter().map(|slot| Arc::clone(&slot.requests.table)).collect();
        let inputs = slots.iter().filter_map(|slot| slot.requests.inputs.clone()).collect();
        collectors::register(registry, tables, &ledger, inputs);
        let inner = Inner {
            boot,
            grace: config.answer_grace().into(),
            in_flight_limit: InFlightLimit::new(config.requests_in_flight_max as usize),
            ledger: Arc::clone(&ledger),
            statistics: Statistics::new(registry),
            records: Records::new(config.access_log, registry),
            pipeline_memory: PipelineMemory::default(),
            shared_regions: config.shared_memory.then(SharedRegions::default),
            decoders: Decoders::new(&config.images, image_limits(&config.images), registry),
            slots,
            federation_view,
            rates: Rates::begin(Instant::now()),
            pipeline_counters: PipelineCounters::new(registry),
            repository: RepositoryService::new(repository, registry),
            traffic: TrafficSplitter::default(),
            tenants,
            draining: AtomicBool::new(false),
            forgotten: forgotten.subscribe(),
            ended: ended.clone(),
        };
        let (name, console_addr) = (config.name.clone(), config.metrics.to_string());
        let identity =
            FrontendIdentity { name, boot, console_addr, ledger, ended, news: watch::Sender::default(), forgotten };
        let inner = Arc::new(inner);
        registry.collect(collectors::ModelCollector(Arc::downgrade(&inner)));
        if config.metrics_triton_names {
            registry.collect(TritonCollector(Arc::downgrade(&inner)));
        }
        tokio::spawn(forget_unloaded(Arc::downgrade(&inner)));
        Ok((Self { inner }, identity))
    }

    /// The newest view of the cluster; of a federation, that of the first cluster that is known.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        let first = self.inner.clusters().next();
        first.map_or_else(Arc::default, |(_, cluster)| Arc::clone(&cluster.view.borrow()))
    }

    /// The newest view of the federation, if there is one.
    #[must_use]
    pub fn federation_view(&self) -> Option<Arc<FederationView>> {
        self.inner.federation_view.as_ref().map(|view| Arc::clone(&view.borrow()))
    }

    /// What became of the requests so far, and how many have no outcome yet.
    #[must_use]
    pub fn ledger(&self) -> (LedgerCounts, usize) {
        (self.inner.ledger.counts(), self.inner.in_flight())
    }

    /// A model's requests by outcome, as `top` reads them: `received`, `in_time`, `late`, `dropped`, `failed`.
    #[must_use]
    pub fn counts_json(&self, model: &str) -> serde_json::Value {
        self.inner.statistics.counts_json(model)
    }

    /// The last hour of requests, as `/api/history` shows it: all models in short, or one of them.
    #[must_use]
    pub fn history_json(&self, model: Option<&str>) -> serde_json::Value {
        let mut history = self.inner.statistics.history_json(model);
        // Callers see which process answers.
        history["boot"] = self.inner.boot.get().into();
        history
    }

    /// What became of a request for a pipeline that this frontend ran, as `/api/explain` shows it; null if it does not
    /// remember it.
    #[must_use]
    pub fn explain_json(&self, request: RequestId) -> serde_json::Value {
        let explanation = self.inner.pipeline_memory.explain(request);
        serde_json::json!({ "boot": self.inner.boot.get(), "explanation": explanation })
    }

    /// Sends traces of requests from now on. To be called once.
    pub fn trace_by(&self, traces: Arc<Traces>, registry: &Registry) {
        registry.register(&metrics::SPANS_LOST, traces.lost());
        self.inner.records.trace_by(traces);
    }

    /// Takes no new requests from now on; those in flight get their outcomes.
    pub fn drain(&self) {
        self.inner.draining.store(true, Ordering::Release);
    }

    /// Leaves every cluster, in at most `within` and a moment: takes no new requests, waits for those in flight, and
    /// says so. False if requests were left by then.
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

    /// Waits until a cluster has forgotten this boot of the frontend, and returns its id there: no backend finds it any
    /// more.
    pub async fn forgotten(&self) -> FrontendId {
        let mut forgotten = self.inner.forgotten.clone();
        match forgotten.wait_for(Option::is_some).await.map(|id| *id) {
            Ok(Some(id)) => id,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Writes the lines of the access log and sends the traces that are left; takes seconds if the collector does not
    /// answer. Later records are lost.
    pub fn finish_records(&self) {
        self.inner.records.finish();
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

/// What callers may ask for beside models, and which tenants there are.
struct Callers {
    repository: Option<RepositoryAccess>,
    tenants: Option<Arc<Tenants>>,
}

/// Forgets models that are unloaded, as long as there is a frontend.
async fn forget_unloaded(frontend: Weak<Inner>) {
    loop {
        tokio::time::sleep(POLL_EVERY).await;
        let Some(frontend) = frontend.upgrade() else { return };
        frontend.forget_unloaded(Instant::now());
    }
}
