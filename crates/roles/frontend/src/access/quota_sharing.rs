//! Follows this frontend's share of the tenants' quotas, which the leader of the control group divides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_protocol::control as pb;
use symphony_quotas::{Demand, TenantDemand, TenantShare};
use tokio_util::sync::CancellationToken;

use crate::access::tenants::Tenants;
use crate::clusters::cluster::Cluster;

/// How often demands are reported: a share follows a load within three of these.
const SHARED_EVERY: Duration = Duration::from_secs(1);
/// How long the leader may take. Without an answer the last share stays.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// Begins with an equal part, by whichever cluster shows first how many share; where the control group of this one
/// divides the quotas, reports the tenants' demand and takes their shares, until `ended`.
pub(crate) async fn share_quotas(
    tenants: Arc<Tenants>,
    cluster: Arc<Cluster>,
    divides: bool,
    ended: CancellationToken,
) {
    let mut view = cluster.view.clone();
    let joined = async {
        // The view in which this frontend is one of all.
        let _ = view.wait_for(|view| view.frontends.contains_key(&cluster.id)).await;
    };
    tokio::select! {
        () = ended.cancelled() => return,
        () = joined => {}
    }
    // Names stay known for long after their processes have left.
    let frontends = || {
        let count = cluster.view.borrow().frontends.values().filter(|frontend| !frontend.has_left()).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    tenants.begin_with(frontends());
    if !divides {
        return;
    }
    // The demand until now is not that of one second.
    tenants.demands(f64::INFINITY);
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + SHARED_EVERY, SHARED_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut last, mut reachable) = (Instant::now(), true);
    loop {
        tokio::select! {
            () = ended.cancelled() => return,
            _ = ticks.tick() => {}
        }
        tenants.frontends_are(frontends());
        let seconds = last.elapsed().as_secs_f64().max(1e-3);
        last = Instant::now();
        let demands = tenants.demands(seconds);
        if demands.is_empty() {
            continue;
        }
        let answered = cluster.share_quotas(to_message(&demands), ANSWERED_WITHIN).await;
        match answered {
            Ok(shares) => {
                tenants.take_shares(
                    shares
                        .into_iter()
                        .map(|share| (share.name, TenantShare { items: share.items, gpu_seconds: share.gpu_seconds })),
                );
                reachable = true;
            }
            // Once, not every second.
            Err(error) if reachable => {
                tracing::warn!(%error, "no share of quotas was told; the last one stays");
                reachable = false;
            }
            Err(error) => tracing::debug!(%error, "no share of quotas was told"),
        }
    }
}

fn to_message(demands: &BTreeMap<String, TenantDemand>) -> Vec<pb::TenantDemand> {
    let quota = |demand: Demand| pb::QuotaDemand { quota: demand.quota, offered: demand.offered, held: demand.held };
    let tenant = |(name, demand): (&String, &TenantDemand)| pb::TenantDemand {
        name: name.clone(),
        items: demand.items.map(quota),
        gpu_seconds: demand.gpu_seconds.map(quota),
    };
    demands.iter().map(tenant).collect()
}
