//! What a frontend of several clusters does beside requests: it joins them, withdraws what a lost one has, and reports
//! demand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_transport::{FederationClient, FederationViewReceiver};
use tokio::sync::watch;

use crate::clusters::cluster::{Cluster, ClusterAccess, FrontendIdentity};
use crate::clusters::cluster_order::lost_home;
use crate::counts::pipeline_reports::report_pipelines;
use crate::inner::Inner;
use crate::oip::ModelState;

/// Pause before a cluster that did not take this frontend in is asked again.
const JOIN_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often the demand of clients is reported to the leader of a federation, and how long one report may take.
const RATES_EVERY: Duration = Duration::from_secs(1);
const RATES_WITHIN: Duration = Duration::from_millis(900);

/// Gets into a cluster, however long that takes.
pub(crate) async fn join(inner: Arc<Inner>, index: usize, mut access: ClusterAccess, identity: FrontendIdentity) {
    let slot = &inner.slots[index];
    loop {
        let joined = tokio::select! {
            () = inner.ended.cancelled() => return,
            joined = Cluster::join(access, identity.clone(), slot.requests.clone()) => joined,
        };
        match joined {
            Ok(cluster) => {
                // One control group divides quotas: that of the first cluster. While it is away, the frontends of
                // another one share them equally.
                inner.share_quotas(&cluster, index == 0);
                tokio::spawn(report_pipelines(Arc::clone(&inner), Arc::clone(&cluster)));
                let _ = slot.cluster.set(cluster);
                identity.news.send_modify(|count| *count += 1);
                return;
            }
            Err((error, again)) => {
                tracing::warn!(cluster = slot.name, %error, "not registered; the other clusters are served without it");
                access = again;
            }
        }
        tokio::time::sleep(JOIN_AGAIN_AFTER).await;
    }
}

/// Withdraws requests from clusters that are lost, as soon as another one has their model: those that wait there are
/// served in time, those that a backend has wait for its answer.
pub(crate) async fn withdraw_from_lost_clusters(
    inner: Arc<Inner>,
    mut federation_view: FederationViewReceiver,
    mut news: watch::Receiver<u64>,
) {
    loop {
        let current = Arc::clone(&federation_view.borrow_and_update());
        for (index, cluster) in inner.clusters() {
            for (name, route) in cluster.routes().iter() {
                let ready_in = |other: &str| {
                    let mut others = inner.clusters().filter(|&(at, _)| inner.slots[at].name == other);
                    others.any(|(_, other)| other.route(name).is_some_and(|r| r.info.state == ModelState::Ready))
                };
                if lost_home(&current, name, &inner.slots[index].name).is_some_and(ready_in) {
                    let withdrawn = cluster.withdraw_unread(route.model);
                    if withdrawn > 0 {
                        tracing::info!(
                            model = name,
                            cluster = inner.slots[index].name,
                            withdrawn,
                            "requests withdrawn"
                        );
                    }
                }
            }
        }
        tokio::select! {
            () = inner.ended.cancelled() => return,
            changed = federation_view.changed() => if changed.is_err() { return },
            changed = news.changed() => if changed.is_err() { return },
        }
    }
}

/// Reports the clients' demand to the federation's leader, as long as there is any.
pub(crate) async fn report_rates(inner: Arc<Inner>, federation: FederationClient, frontend: String) {
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
