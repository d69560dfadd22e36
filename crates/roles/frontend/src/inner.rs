//! What all handles of a frontend share, and what its rooms work on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use symphony_protocol::view::Traffic;
use symphony_transport::FederationViewReceiver;
use symphony_types::{BootId, FrontendId};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::access::quota_sharing::share_quotas;
use crate::access::tenants::Tenants;
use crate::clusters::cluster::{Cluster, Requests};
use crate::clusters::traffic::TrafficSplitter;
use crate::counts::ledger::Ledger;
use crate::counts::pipeline_counters::PipelineCounters;
use crate::counts::rates::Rates;
use crate::counts::statistics::Statistics;
use crate::oip::{InFlightLimit, SharedRegions};
use crate::pictures::decoders::Decoders;
use crate::records::Records;
use crate::records::pipeline_memory::PipelineMemory;
use crate::repository::repository_service::RepositoryService;

/// What all handles of a frontend share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) boot: BootId,
    pub(crate) grace: Duration,
    /// The one limit on requests in flight, of which [`Inner::in_flight`] is what was accepted.
    pub(crate) in_flight_limit: InFlightLimit,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) statistics: Statistics,
    pub(crate) decoders: Decoders,
    /// Shared memory that clients have registered; none where they may not.
    pub(crate) shared_regions: Option<SharedRegions>,
    pub(crate) records: Records,
    pub(crate) pipeline_memory: PipelineMemory,
    /// In the order of the configuration.
    pub(crate) slots: Vec<ClusterSlot>,
    /// Which cluster is home to which model; none without a federation.
    pub(crate) federation_view: Option<FederationViewReceiver>,
    pub(crate) rates: Rates,
    pub(crate) pipeline_counters: PipelineCounters,
    pub(crate) repository: RepositoryService,
    pub(crate) traffic: TrafficSplitter,
    /// Who may call; none where every caller may.
    pub(crate) tenants: Option<Arc<Tenants>>,
    /// This process is about to end.
    pub(crate) draining: AtomicBool,
    pub(crate) forgotten: watch::Receiver<Option<FrontendId>>,
    pub(crate) ended: CancellationToken,
}

/// A cluster of the configuration, once it has taken this frontend in.
#[derive(Debug)]
pub(crate) struct ClusterSlot {
    pub(crate) name: String,
    pub(crate) requests: Requests,
    pub(crate) cluster: OnceLock<Arc<Cluster>>,
}

impl Inner {
    /// Follows this frontend's share of the quotas; the control group of `cluster` divides them, or reports at least
    /// how many frontends there are.
    pub(crate) fn share_quotas(&self, cluster: &Arc<Cluster>, divides: bool) {
        if let Some(tenants) = &self.tenants {
            tokio::spawn(share_quotas(Arc::clone(tenants), Arc::clone(cluster), divides, self.ended.clone()));
        }
    }

    /// The clusters that have taken this frontend in, with their slots.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = (usize, &Arc<Cluster>)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index, slot.cluster.get()?)))
    }

    /// How the requests for a model or pipeline that name no version are split, if they are. Each cluster splits those
    /// for what it serves: of several, the split of a cluster that no longer gets requests for those versions, since it
    /// is lost or was left, does not count.
    pub(crate) fn traffic_of(&self, model: &str) -> Option<Traffic> {
        self.clusters().find_map(|(slot, cluster)| {
            let split = cluster.view.borrow().traffic.get(model).cloned()?;
            let is_here = |version| self.slots.len() == 1 || self.is_version_served_in(slot, model, version);
            let is_anywhere = split.versions().any(is_here);
            is_anywhere.then_some(split)
        })
    }

    /// Forgets what was counted of models that no cluster has any more.
    pub(crate) fn forget_unloaded(&self, now: Instant) {
        let routes: Vec<_> = self.clusters().map(|(_, cluster)| cluster.routes()).collect();
        let is_loaded = |model: &str| routes.iter().any(|routes| routes.contains_key(model));
        let is_pipeline = |loaded_as: &str| self.clusters().any(|(_, cluster)| cluster.pipeline(loaded_as).is_some());
        self.statistics.forget_unloaded(now, |model| is_loaded(model) || is_pipeline(model));
        self.pipeline_counters.forget_unloaded(is_pipeline);
    }

    /// Accepted requests without an outcome.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.iter().map(|slot| slot.requests.table.len()).sum()
    }

    /// Whether new requests are refused: the process ends, or every cluster has cordoned this frontend.
    pub(crate) fn is_draining(&self) -> bool {
        let mut known = self.clusters().peekable();
        let by_all = known.peek().is_some() && known.all(|(_, cluster)| cluster.is_cordoned());
        self.draining.load(Ordering::Acquire) || self.ended.is_cancelled() || by_all
    }
}
