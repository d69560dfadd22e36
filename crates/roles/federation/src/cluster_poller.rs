//! Polls the clusters while this replica leads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use symphony_federation_state::FederationState;
use symphony_protocol::view::View;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::ClusterAccess;

/// How often a replica notes that it runs.
const NOTED_EVERY: Duration = Duration::from_millis(100);
/// After a longer pause (or half of the limit for unreachable clusters) this replica cannot tell which clusters were
/// silent: their answers may have been waiting for it.
const LATE_MAX: Duration = Duration::from_secs(1);

/// The newest poll of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Poll {
    /// The last view from a quorum of the cluster, since this replica leads.
    pub(crate) view: Option<Arc<View>>,
    /// The age of the view; without a view, how long this replica has been asking.
    pub(crate) ago: Duration,
}

impl Poll {
    /// The cluster's current view, if it is reachable.
    pub(crate) fn now(&self, unreachable: Duration) -> Option<&Arc<View>> {
        self.view.as_ref().filter(|_| self.ago < unreachable)
    }
}

/// The views of all clusters that the state counts as reachable; none if one of them is missing or outdated. A cluster
/// that this replica is not configured with is not polled, and does not keep models from being placed elsewhere.
pub(crate) fn views(
    polls: &BTreeMap<String, Poll>,
    state: &FederationState,
    unreachable: Duration,
) -> Option<BTreeMap<String, Arc<View>>> {
    let reachable = state.clusters().iter().filter(|(_, cluster)| cluster.reachable);
    let polled = reachable.filter_map(|(name, _)| Some((name, polls.get(name)?)));
    polled.map(|(name, poll)| Some((name.clone(), poll.now(unreachable)?.clone()))).collect()
}

#[derive(Debug)]
struct LastPoll {
    view: Option<Arc<View>>,
    at: Instant,
}

/// The poll results of a replica that notices its own pauses.
#[derive(Debug)]
struct PollResults {
    last_polls: BTreeMap<String, LastPoll>,
    /// The start or restart of polling; answers to earlier questions do not count.
    since: Instant,
    /// When this replica last noted that it runs.
    noted: Instant,
    late_max: Duration,
}

impl PollResults {
    fn begin<'a>(clusters: impl Iterator<Item = &'a str>, unreachable: Duration, now: Instant) -> Self {
        let last_polls = clusters.map(|cluster| (cluster.to_owned(), LastPoll { view: None, at: now })).collect();
        Self { last_polls, since: now, noted: now, late_max: LATE_MAX.min(unreachable / 2) }
    }

    /// Notes that this replica runs. After a long pause, polling restarts.
    fn note_running(&mut self, now: Instant) {
        let late = now.saturating_duration_since(self.noted);
        if late > self.late_max {
            tracing::warn!(late_ms = late.as_millis(), "this replica did not run: it polls all clusters anew");
            self.since = now;
            self.last_polls.values_mut().for_each(|last| *last = LastPoll { view: None, at: now });
        }
        self.noted = self.noted.max(now);
    }

    fn answered(&mut self, cluster: &str, view: View, polled_at: Instant) {
        if polled_at >= self.since {
            self.last_polls.insert(cluster.to_owned(), LastPoll { view: Some(Arc::new(view)), at: polled_at });
        }
    }

    fn all(&mut self, now: Instant) -> BTreeMap<String, Poll> {
        self.note_running(now);
        let poll = |last: &LastPoll| Poll { view: last.view.clone(), ago: now.saturating_duration_since(last.at) };
        self.last_polls.iter().map(|(name, last)| (name.clone(), poll(last))).collect()
    }
}

/// Polls all clusters until dropped.
#[derive(Debug)]
pub(crate) struct ClusterPoller {
    begun: Instant,
    results: Arc<Mutex<PollResults>>,
    stop: CancellationToken,
}

impl ClusterPoller {
    /// Begins to poll. Earlier results do not count: without polls there is no telling how long a cluster was silent.
    pub(crate) fn begin(clusters: &[ClusterAccess], every: Duration, unreachable: Duration) -> Self {
        let names = clusters.iter().map(|cluster| cluster.name.as_str());
        let results = Arc::new(Mutex::new(PollResults::begin(names, unreachable, Instant::now())));
        let poller = Self { begun: Instant::now(), results, stop: CancellationToken::new() };
        for cluster in clusters {
            let (cluster, results, stop) = (cluster.clone(), Arc::clone(&poller.results), poller.stop.clone());
            // A call without an answer must not take the time of two.
            let within = (unreachable / 2).max(every);
            tokio::spawn(async move { stop.run_until_cancelled(poll(cluster, results, every, within)).await });
        }
        let (results, stop) = (Arc::clone(&poller.results), poller.stop.clone());
        tokio::spawn(async move { stop.run_until_cancelled(run(results)).await });
        poller
    }

    /// How long it has polled.
    pub(crate) fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(crate) fn all(&self) -> BTreeMap<String, Poll> {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that another task's sign of life is not later than this time.
        results.all(Instant::now())
    }
}

impl Drop for ClusterPoller {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn run(results: Arc<Mutex<PollResults>>) {
    loop {
        tokio::time::sleep(NOTED_EVERY).await;
        results.lock().unwrap_or_else(PoisonError::into_inner).note_running(Instant::now());
    }
}

async fn poll(cluster: ClusterAccess, results: Arc<Mutex<PollResults>>, every: Duration, within: Duration) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let polled_at = Instant::now();
        // A linearizable read: a cluster without a quorum does not answer.
        match cluster.control.get_for(true, within, cluster.each_within(within)).await {
            Ok(view) if view.cluster == cluster.name => {
                results.lock().unwrap_or_else(PoisonError::into_inner).answered(&cluster.name, view, polled_at);
            }
            Ok(view) => tracing::error!(cluster = cluster.name, answers = view.cluster, "another cluster answers"),
            Err(error) => tracing::debug!(cluster = cluster.name, %error, "no answer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use symphony_net::Net;
    use symphony_transport::ControlClient;
    use tokio::net::TcpListener;

    use super::*;
    use crate::scene::Scene;

    #[test]
    fn a_replica_that_did_not_run_does_not_hold_it_against_clusters() {
        const UNREACHABLE: Duration = Duration::from_secs(10);
        let begun = Instant::now();
        let mut results = PollResults::begin(["a"].into_iter(), UNREACHABLE, begun);
        let silent = |results: &mut PollResults, now| results.all(now)["a"].ago;
        results.answered("a", View::default(), begun);
        // This replica runs and the cluster does not answer: that counts as silence.
        let mut now = begun;
        while now < begun + UNREACHABLE {
            now += LATE_MAX;
            results.note_running(now);
        }
        assert_eq!(silent(&mut results, now), UNREACHABLE);
        let (polled_at, late) = (now, now + 2 * UNREACHABLE);
        assert_eq!(silent(&mut results, late), Duration::ZERO, "it was paused, and counts anew");
        assert!(results.all(late)["a"].view.is_none(), "what it saw is old");
        results.answered("a", View::default(), polled_at);
        assert!(results.all(late)["a"].view.is_none(), "so is the answer that waited for it");
        results.answered("a", View::default(), late);
        assert!(results.all(late)["a"].now(UNREACHABLE).is_some());
    }

    #[tokio::test]
    async fn a_replica_that_hangs_leaves_time_to_ask_the_next_one_in_the_same_poll() {
        const UNREACHABLE: Duration = Duration::from_secs(2);
        // Both accept connections and send nothing. Each poll begins with the first.
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let second = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addrs = [&first, &second].map(|listener| listener.local_addr().unwrap().to_string());
        let control = ControlClient::new(&Net::plaintext(), &addrs).unwrap();
        let cluster = ClusterAccess { name: "a".into(), addrs: addrs.into(), control };
        let _poller = ClusterPoller::begin(&[cluster], UNREACHABLE / 10, UNREACHABLE);
        let accepted = tokio::time::timeout(5 * UNREACHABLE, second.accept()).await;
        assert!(accepted.is_ok(), "no poll comes to the second one");
    }

    #[test]
    fn only_clusters_that_are_looked_at_and_do_not_answer_keep_a_plan_waiting() {
        const UNREACHABLE: Duration = Duration::from_secs(4);
        let mut scene = Scene::new(&["a", "b"]);
        let seen = |scene: &Scene| {
            let views = views(&scene.polls, &scene.state, UNREACHABLE);
            views.map(|views| views.into_keys().collect::<Vec<_>>())
        };
        assert_eq!(seen(&scene), Some(vec!["a".into(), "b".into()]));
        scene.silent("b", UNREACHABLE);
        assert_eq!(seen(&scene), None, "b may answer in a moment");
        scene.polls.remove("b");
        assert_eq!(seen(&scene), Some(vec!["a".into()]), "nobody waits for b");
    }
}
