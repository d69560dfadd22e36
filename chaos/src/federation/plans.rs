//! Watches the plan of every replica of the group above the clusters, and holds plans and clusters against each other.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use symphony_protocol::control as pb;
use symphony_protocol::federation::FederationView;
use symphony_protocol::view::View;
use symphony_transport::FederationClient;
use tokio_util::sync::CancellationToken;

use crate::views::Views;

/// How often the clusters are held against the newest plan.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// A cluster that is home to a model may lack it for so long: what is seen of the one may be older than what is seen of
/// the other. Less than the 5 s after which the federation itself says that such a home is none.
const LACKS_MAX: Duration = Duration::from_secs(2);
/// How long opening a watch may take, and the pause before one that ended is opened again.
const OPEN_WITHIN: Duration = Duration::from_secs(2);
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Findings that are kept in words.
const FINDINGS_MAX: usize = 16;
/// Losses that are remembered: far more than there are faults.
const LOST_MAX: usize = 1000;
/// Plans that are remembered for comparison.
const PLANS_MAX: usize = 6000;

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// By applied index: what the view said, who said it first, and its plan.
    views: BTreeMap<u64, (u64, u64, u64)>,
    /// By plan: where models are at home.
    homes: BTreeMap<u64, u64>,
    pub(super) newest: Arc<FederationView>,
    /// Since when a home lacks its model, while the plan says that it is one: cluster, model.
    lacks: BTreeMap<(String, String), Instant>,
    /// Clusters that came to count as lost, and when that was seen.
    pub(super) lost: Vec<(Instant, String)>,
    /// Views that could be compared with another replica's.
    pub(super) compared: u64,
    pub(super) findings: Vec<String>,
}

impl Seen {
    /// One replica's view: equal views at equal indexes (C6), plans that only grow, and one home for a model in a plan
    /// (F2), no copy to be let go of where a model belongs (F3).
    fn note(&mut self, replica: u64, view: FederationView) {
        let index = view.applied_index;
        let said = digest(&view);
        match self.views.get(&index) {
            Some(&(other, by, _)) if by != replica => {
                self.compared += 1;
                if other != said {
                    self.find(format!("C6: replicas {by} and {replica} of the federation differ at index {index}"));
                }
            }
            Some(_) => {}
            None => {
                let before = self.views.range(..index).next_back().map(|(_, &(.., plan))| plan);
                let after = self.views.range(index..).next().map(|(_, &(.., plan))| plan);
                if before.is_some_and(|plan| plan > view.plan) || after.is_some_and(|plan| plan < view.plan) {
                    self.find(format!(
                        "F2: plan {} at index {index}, {before:?} before and {after:?} after it",
                        view.plan
                    ));
                }
                self.views.insert(index, (said, replica, view.plan));
                if self.views.len() > PLANS_MAX {
                    self.views.pop_first();
                }
            }
        }
        let homes = routes(&view);
        if *self.homes.entry(view.plan).or_insert(homes) != homes {
            self.find(format!("F2: plan {} says two different things about homes", view.plan));
        }
        if self.homes.len() > PLANS_MAX {
            self.homes.pop_first();
        }
        for (name, model) in &view.models {
            let belongs =
                |cluster: &&String| Some(*cluster) == model.home.as_ref() || Some(*cluster) == model.moves_to.as_ref();
            if let Some(cluster) = model.leftovers.iter().find(belongs) {
                self.find(format!("F3: {cluster} is to let go of {name}, which belongs there"));
            }
        }
        if index > self.newest.applied_index {
            // It answered, and its standing has changed since: it is lost, or was and answers again.
            let was_lost = |name: &String, since| {
                self.newest.clusters.get(name).is_some_and(|before| before.reachable && before.since != since)
            };
            let lost = view.clusters.iter().filter(|(name, cluster)| was_lost(name, cluster.since));
            let lost: Vec<_> = lost.map(|(name, _)| (Instant::now(), name.clone())).collect();
            self.lost.extend(lost);
            self.lost.truncate(LOST_MAX);
            self.newest = Arc::new(view);
        }
    }

    /// Holds the clusters against the newest plan: a cluster that answers has the models that are at home there (F3).
    fn compare(&mut self, now: Instant, clusters: &[(String, Arc<View>)]) {
        let mut lacks = BTreeMap::new();
        for (cluster, view) in clusters {
            if !self.newest.clusters.get(cluster).is_some_and(|known| known.reachable) {
                continue;
            }
            for (name, model) in &self.newest.models {
                if model.home.as_ref() == Some(cluster) && view.model_named(name).is_none() {
                    let key = (cluster.clone(), name.clone());
                    lacks.insert(key.clone(), self.lacks.get(&key).copied().unwrap_or(now));
                }
            }
        }
        for ((cluster, name), since) in &lacks {
            if now.saturating_duration_since(*since) > LACKS_MAX {
                self.find(format!("F3: {cluster} has let go of {name}, which is at home there"));
            }
        }
        self.lacks = lacks;
    }

    fn find(&mut self, finding: String) {
        if self.findings.len() < FINDINGS_MAX && !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }
}

fn hash(what: &impl std::fmt::Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{what:?}").hash(&mut hasher);
    hasher.finish()
}

/// Everything that all replicas must agree on.
fn digest(view: &FederationView) -> u64 {
    // Which replica answers, and which one it takes for the leader, does not matter.
    hash(&FederationView { replica: 0, leader: None, ..view.clone() })
}

/// Identifies the part of the view by which requests are routed. A model that is at home nowhere, not yet or no more,
/// comes and goes within a plan.
fn routes(view: &FederationView) -> u64 {
    let homes: BTreeMap<_, _> = view.models.iter().filter_map(|(name, m)| Some((name, m.home.as_ref()?))).collect();
    hash(&homes)
}

/// The watchers of one run.
#[derive(Debug)]
pub(super) struct Plans {
    seen: Arc<Mutex<Seen>>,
    stop: CancellationToken,
}

impl Plans {
    /// Watches each replica by itself, and the clusters beside them.
    pub(super) fn watch(replicas: &BTreeMap<u64, FederationClient>, clusters: &[(String, Arc<Views>)]) -> Self {
        let this = Self { seen: Arc::default(), stop: CancellationToken::new() };
        for (&replica, client) in replicas {
            let (seen, stop, client) = (Arc::clone(&this.seen), this.stop.clone(), client.clone());
            // Not by the client's own watch, which passes over what would be a step back.
            let watch = async move {
                loop {
                    let open = |mut grpc: pb::federation_client::FederationClient<_>| async move {
                        grpc.watch(pb::FederationWatchRequest { watcher: "chaos".into() }).await
                    };
                    if let Ok(mut stream) = client.call(OPEN_WITHIN, open).await {
                        while let Ok(Some(view)) = stream.message().await {
                            // A malformed one ends the watch, which begins again.
                            let Ok(view) = view.try_into() else { break };
                            lock(&seen).note(replica, view);
                        }
                    }
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            };
            tokio::spawn(async move { stop.run_until_cancelled(watch).await });
        }
        let (seen, stop, clusters) = (Arc::clone(&this.seen), this.stop.clone(), clusters.to_vec());
        let compare = async move {
            loop {
                tokio::time::sleep(POLL_EVERY).await;
                let views: Vec<_> = clusters.iter().map(|(name, views)| (name.clone(), views.newest())).collect();
                lock(&seen).compare(Instant::now(), &views);
            }
        };
        tokio::spawn(async move { stop.run_until_cancelled(compare).await });
        this
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

impl Drop for Plans {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use symphony_protocol::federation::{FederatedClusterView, FederatedModelView};
    use symphony_protocol::view::{ModelSource, ModelSpec, ModelView};
    use symphony_types::{ModelId, Nanos, RequestValue, Signature, SubclusterId};

    use super::*;

    fn plan(applied_index: u64, plan: u64, home: &str) -> FederationView {
        let model = FederatedModelView { home: Some(home.into()), ..FederatedModelView::default() };
        let cluster = FederatedClusterView { reachable: true, ..FederatedClusterView::default() };
        FederationView {
            applied_index,
            plan,
            models: [("m".to_owned(), model)].into(),
            clusters: ["a", "b"].map(|name| (name.to_owned(), cluster.clone())).into(),
            ..FederationView::default()
        }
    }

    fn noted(views: &[(u64, FederationView)]) -> Seen {
        let mut seen = Seen::default();
        views.iter().for_each(|(replica, view)| seen.note(*replica, view.clone()));
        seen
    }

    #[test]
    fn replicas_that_agree_are_compared_and_one_that_lags_is_no_step_back() {
        let believes = FederationView { replica: 2, leader: Some(3), ..plan(5, 2, "a") };
        let seen = noted(&[(1, plan(5, 2, "a")), (2, believes), (1, plan(7, 3, "b")), (2, plan(6, 2, "a"))]);
        assert_eq!((seen.compared, &seen.findings[..]), (1, &[][..]));
        assert_eq!(seen.newest.applied_index, 7);
    }

    #[test]
    fn a_name_without_a_home_comes_and_goes_within_a_plan() {
        let mut named = plan(6, 2, "a");
        named.models.insert("n".to_owned(), FederatedModelView::default());
        let seen = noted(&[(1, plan(5, 2, "a")), (1, named), (1, plan(7, 2, "a"))]);
        assert_eq!(seen.findings, [""; 0]);
    }

    #[test]
    fn a_cluster_counts_as_lost_when_its_standing_changes_also_if_only_what_came_after_was_seen() {
        let standing = |applied_index, reachable, since| {
            let mut plan = plan(applied_index, applied_index, "b");
            let cluster = plan.clusters.get_mut("a").unwrap();
            (cluster.reachable, cluster.since) = (reachable, since);
            (1, plan)
        };
        let lost =
            |views: &[(u64, FederationView)]| noted(views).lost.into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        let (first, away, back) = (standing(5, true, 1), standing(7, false, 7), standing(9, true, 9));
        let none: [&str; 0] = [];
        assert_eq!(lost(&[first.clone(), standing(6, true, 1)]), none);
        assert_eq!(lost(&[first.clone(), away.clone(), back.clone()]), ["a"]);
        assert_eq!(lost(&[first, back.clone()]), ["a"], "it was lost in between");
        assert_eq!(lost(&[away, back]), none, "it was before");
    }

    #[test]
    fn each_planted_fault_is_found() {
        let mut stays = plan(5, 2, "a");
        stays.models.get_mut("m").unwrap().leftovers.push("a".into());
        for (views, words) in [
            (vec![(1, plan(5, 2, "a")), (2, plan(5, 2, "b"))], "C6: replicas 1 and 2"),
            (vec![(1, plan(5, 2, "a")), (1, plan(6, 1, "a"))], "F2: plan 1 at index 6"),
            (vec![(1, plan(7, 2, "a")), (2, plan(6, 3, "a"))], "F2: plan 3 at index 6"),
            (vec![(1, plan(5, 2, "a")), (1, plan(6, 2, "b"))], "F2: plan 2 says two different things"),
            (vec![(1, stays)], "F3: a is to let go of m"),
        ] {
            let seen = noted(&views);
            assert!(seen.findings.iter().any(|finding| finding.starts_with(words)), "{words}: {:?}", seen.findings);
        }
    }

    #[test]
    fn a_home_without_its_model_is_found_unless_it_is_lost_or_a_moment_behind() {
        let spec = ModelSpec {
            name: "m".into(),
            subcluster: String::new(),
            slo: Nanos::from_millis(100),
            source: ModelSource::Emulated,
            signature: Signature { inputs: vec![], outputs: vec![] },
            profiles: BTreeMap::new(),
            policy: Default::default(),
            value: RequestValue::ONE,
            transforms: Default::default(),
        };
        let model =
            ModelView { spec, subcluster: SubclusterId::new(1), moving: None, holders: BTreeMap::new(), trunk: None };
        let there = Arc::new(View { models: [(ModelId::new(1), model)].into(), ..View::default() });
        let empty = Arc::new(View::default());
        let begun = Instant::now();
        let found = |plan: FederationView, looks: &[(Duration, &Arc<View>)]| {
            let mut seen = noted(&[(1, plan)]);
            for (after, view) in looks {
                seen.compare(begun + *after, &[("a".to_owned(), Arc::clone(view))]);
            }
            seen.findings.len()
        };
        let (zero, late) = (Duration::ZERO, LACKS_MAX + POLL_EVERY);
        assert_eq!(found(plan(5, 2, "a"), &[(zero, &empty), (late, &empty)]), 1);
        assert_eq!(found(plan(5, 2, "a"), &[(zero, &empty), (late / 2, &there), (late, &empty)]), 0);
        assert_eq!(found(plan(5, 2, "b"), &[(zero, &empty), (late, &empty)]), 0);
        let mut lost = plan(5, 2, "a");
        lost.clusters.get_mut("a").unwrap().reachable = false;
        assert_eq!(found(lost, &[(zero, &empty), (late, &empty)]), 0);
    }
}
