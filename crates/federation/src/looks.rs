//! What the leader sees of the clusters.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use symphony_federation_state::FederationState;
use symphony_protocol::view::View;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::ClusterAccess;

/// The newest look at a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// What a quorum of it said last, since this replica leads.
    pub(crate) view: Option<Arc<View>>,
    /// How long ago that was asked for; without a view, how long this replica has been asking.
    pub(crate) ago: Duration,
}

impl Look {
    /// What the cluster says now, if it does.
    pub(crate) fn now(&self, unreachable: Duration) -> Option<&Arc<View>> {
        self.view.as_ref().filter(|_| self.ago < unreachable)
    }
}

/// The views of all clusters that the state counts as answering; none if one of them is not seen yet, or not any more. One that
/// nobody looks at, because this replica is not configured with it, keeps nothing from being placed elsewhere.
pub(crate) fn views(
    looks: &BTreeMap<String, Look>,
    state: &FederationState,
    unreachable: Duration,
) -> Option<BTreeMap<String, Arc<View>>> {
    let reachable = state.clusters().iter().filter(|(_, cluster)| cluster.reachable);
    let looked_at = reachable.filter_map(|(name, _)| Some((name, looks.get(name)?)));
    looked_at.map(|(name, look)| Some((name.clone(), look.now(unreachable)?.clone()))).collect()
}

#[derive(Debug)]
struct Seen {
    view: Option<Arc<View>>,
    at: Instant,
}

/// Looks at all clusters for as long as it lives.
#[derive(Debug)]
pub(crate) struct Looks {
    seen: Arc<Mutex<BTreeMap<String, Seen>>>,
    stop: CancellationToken,
}

impl Looks {
    /// Begins to look. Nothing that was seen before counts: whoever did not look does not know how long a cluster was silent.
    pub(crate) fn begin(clusters: &[ClusterAccess], every: Duration, unreachable: Duration) -> Self {
        let now = Instant::now();
        let seen = clusters.iter().map(|cluster| (cluster.name.clone(), Seen { view: None, at: now })).collect();
        let looks = Self { seen: Arc::new(Mutex::new(seen)), stop: CancellationToken::new() };
        for cluster in clusters {
            let (cluster, seen, stop) = (cluster.clone(), Arc::clone(&looks.seen), looks.stop.clone());
            // A call that nobody answers must not take the time of two.
            let within = (unreachable / 2).max(every);
            tokio::spawn(async move { stop.run_until_cancelled(look(cluster, seen, every, within)).await });
        }
        looks
    }

    pub(crate) fn all(&self) -> BTreeMap<String, Look> {
        let now = Instant::now();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let look = |seen: &Seen| Look { view: seen.view.clone(), ago: now.saturating_duration_since(seen.at) };
        seen.iter().map(|(name, seen)| (name.clone(), look(seen))).collect()
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn look(cluster: ClusterAccess, seen: Arc<Mutex<BTreeMap<String, Seen>>>, every: Duration, within: Duration) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let at = Instant::now();
        // Linearizable: a cluster without a quorum does not answer.
        match cluster.control.get(true, within).await {
            Ok(view) if view.cluster == cluster.name => {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.insert(cluster.name.clone(), Seen { view: Some(Arc::new(view)), at });
            }
            Ok(view) => tracing::error!(cluster = cluster.name, answers = view.cluster, "another cluster answers"),
            Err(error) => tracing::debug!(cluster = cluster.name, %error, "no answer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Scene;

    #[test]
    fn only_clusters_that_are_looked_at_and_do_not_answer_keep_a_plan_waiting() {
        const UNREACHABLE: Duration = Duration::from_secs(4);
        let mut scene = Scene::new(&["a", "b"]);
        let seen = |scene: &Scene| {
            let views = views(&scene.looks, &scene.state, UNREACHABLE);
            views.map(|views| views.into_keys().collect::<Vec<_>>())
        };
        assert_eq!(seen(&scene), Some(vec!["a".into(), "b".into()]));
        scene.silent("b", UNREACHABLE);
        assert_eq!(seen(&scene), None, "b may answer in a moment");
        scene.looks.remove("b");
        assert_eq!(seen(&scene), Some(vec!["a".into()]), "nobody waits for b");
    }
}
