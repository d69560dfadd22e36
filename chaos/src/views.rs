//! Watches every replica's view by itself, and holds them against each other.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use symphony_protocol::control::{self as pb, WatchRequest};
use symphony_protocol::view::View;
use symphony_transport::ControlClient;
use symphony_types::{BackendId, NodeId, SubclusterId, Token};
use tokio_util::sync::CancellationToken;

use crate::cluster::Process;

/// Views that are remembered for comparison: a minute of a hundred changes per second.
const VIEWS_MAX: usize = 6000;
/// Findings that are kept in words; more are counted.
const FINDINGS_MAX: usize = 16;
/// How long opening a watch may take.
const OPEN_WITHIN: Duration = Duration::from_secs(2);
/// The pause before a watch that ended is opened again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// By applied index: what the view said, and who said it first.
    views: BTreeMap<u64, (u64, Number)>,
    newest: Arc<View>,
    /// How far each replica was seen; one that restarts shows what it reads from its log once more.
    furthest: BTreeMap<Number, u64>,
    leaders: BTreeMap<(SubclusterId, Token), NodeId>,
    tokens: BTreeMap<(Number, SubclusterId), Token>,
    /// Assignments in the order in which the first of the watchers saw them.
    pub(crate) assignments: Vec<(Instant, SubclusterId, Token, NodeId)>,
    /// Backends that are down by the newest view, and when each was first seen so.
    down: BTreeSet<BackendId>,
    downs: Vec<(Instant, String)>,
    /// Views that could be compared with another replica's.
    pub(crate) compared: u64,
    /// How much of a GPU's memory models took at most.
    pub(crate) fullest_permille: u64,
    pub(crate) findings: Vec<String>,
}

/// The replica's number, which is what findings name.
type Number = u64;

/// The watchers of one run.
#[derive(Debug)]
pub(crate) struct Views {
    seen: Arc<Mutex<Seen>>,
    stop: CancellationToken,
}

impl Views {
    pub(crate) fn watch(replicas: &[(Process, ControlClient)]) -> Self {
        let this = Self { seen: Arc::default(), stop: CancellationToken::new() };
        replicas.iter().for_each(|(process, client)| this.follow(*process, client));
        this
    }

    /// Watches one more replica: it alone, or what it says could not be told from what others say.
    pub(crate) fn follow(&self, replica: Process, client: &ControlClient) {
        let Process::Replica(number) = replica else { return };
        let (seen, stop, client) = (Arc::clone(&self.seen), self.stop.clone(), client.clone());
        tokio::spawn(async move {
            let watch = async {
                loop {
                    let open = |mut grpc: pb::control_client::ControlClient<_>| async move {
                        grpc.watch(WatchRequest { watcher: "chaos".into(), ..WatchRequest::default() }).await
                    };
                    if let Ok(mut stream) = client.call(OPEN_WITHIN, open).await {
                        while let Ok(Some(view)) = stream.message().await {
                            if let Ok(view) = View::try_from(view) {
                                lock(&seen).note(number, &Arc::new(view));
                            }
                        }
                    }
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            };
            stop.run_until_cancelled(watch).await;
        });
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// The newest view of any replica.
    pub(crate) fn newest(&self) -> Arc<View> {
        Arc::clone(&self.seen().newest)
    }
}

impl Drop for Views {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    /// One replica's view: equal views at equal indexes (I5), one leader per token (I2), models that fit their GPUs
    /// (I7), tokens that only grow (C1).
    fn note(&mut self, replica: u64, view: &Arc<View>) {
        if view.applied_index > self.newest.applied_index {
            self.newest = Arc::clone(view);
            self.note_down(view);
        }
        self.find_overfull(view);
        let said = digest(view);
        match self.views.get(&view.applied_index) {
            Some(&(other, by)) if by != replica => {
                self.compared += 1;
                if other != said {
                    let index = view.applied_index;
                    self.find(format!("I5: replicas {by} and {replica} differ at applied index {index}"));
                }
            }
            _ => {
                self.views.insert(view.applied_index, (said, replica));
                if self.views.len() > VIEWS_MAX {
                    self.views.pop_first();
                }
            }
        }
        let furthest = self.furthest.entry(replica).or_default();
        if view.applied_index < *furthest {
            return;
        }
        *furthest = view.applied_index;
        for (&id, subcluster) in &view.subclusters {
            let token = subcluster.token;
            let before = self.tokens.insert((replica, id), token);
            if before.is_some_and(|before| before > token) {
                let name = &subcluster.name;
                self.find(format!("C1: replica {replica} went back to token {token} of {name}"));
            }
            let Some((leader, _)) = subcluster.leader else { continue };
            match self.leaders.insert((id, token), leader) {
                None => self.assignments.push((Instant::now(), id, token, leader)),
                Some(other) if other != leader => {
                    let name = &subcluster.name;
                    self.find(format!("I2: {other} and {leader} lead {name} under one token {token}"));
                }
                Some(_) => {}
            }
        }
    }

    fn note_down(&mut self, view: &View) {
        for (&id, backend) in &view.backends {
            if backend.up {
                self.down.remove(&id);
            } else if self.down.insert(id) {
                self.downs.push((Instant::now(), backend.name.clone()));
            }
        }
    }

    /// When a backend was first seen to be down from then on.
    pub(crate) fn down(&self, backend: &str, since: Instant) -> Option<Instant> {
        self.downs.iter().find(|(at, name)| *at >= since && name == backend).map(|(at, _)| *at)
    }

    /// The models that a backend holds, those on their way included, and what the largest batch of one of them takes
    /// besides, against each of its GPUs.
    fn find_overfull(&mut self, view: &View) {
        for backend in view.backends.values() {
            for gpu in &backend.gpus {
                let models = view.models.values().filter(|model| backend.is_to_hold(model));
                let profiles = models.filter_map(|model| model.spec.profiles.get(&gpu.kind));
                let (mut needed, mut extra) = (0, 0);
                for profile in profiles {
                    needed += profile.static_memory_bytes;
                    extra = profile.dynamic_memory_bytes.max(extra);
                }
                needed += extra;
                self.fullest_permille = self.fullest_permille.max(needed * 1000 / gpu.memory_bytes.max(1));
                if needed > gpu.memory_bytes {
                    let (name, has) = (&backend.name, gpu.memory_bytes);
                    self.find(format!("I7: models take {needed} bytes of a GPU of {name} that has {has}"));
                }
            }
        }
    }

    fn find(&mut self, finding: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    /// When another replica than `old` was first seen to lead a sub-cluster under a larger token, and which.
    pub(crate) fn successor(&self, id: SubclusterId, old: (NodeId, Token)) -> Option<(Instant, Token)> {
        let next = |&&(_, of, token, leader): &&(Instant, SubclusterId, Token, NodeId)| {
            of == id && token > old.1 && leader != old.0
        };
        self.assignments.iter().find(next).map(|&(at, _, token, _)| (at, token))
    }
}

/// Everything that all replicas must agree on.
fn digest(view: &View) -> u64 {
    // Which replica answers, and which one it takes for the group's leader, does not matter.
    let same = View { replica: NodeId::new(0), control_leader: None, group: BTreeMap::new(), ..view.clone() };
    let mut hasher = DefaultHasher::new();
    format!("{same:?}").hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use symphony_protocol::epoch_plan_view::ModelMoveView;
    use symphony_protocol::view::{BackendView, GpuView, KindProfile, ModelSpec, ModelView, SubclusterView};
    use symphony_types::{BackendId, BootId, Epoch, GpuId, LatencyProfile, ModelId};

    use super::*;
    use crate::load::specs;
    use crate::scenario::Model;

    fn view(index: u64, token: u64, leader: u64) -> View {
        let subcluster = SubclusterView {
            name: "pool".into(),
            leader: Some((NodeId::new(leader), BootId::new(1))),
            token: Token::new(token),
            standbys: vec![],
            successor: None,
            policy: None,
            advice: None,
            load: None,
        };
        View { applied_index: index, subclusters: [(SubclusterId::new(1), subcluster)].into(), ..View::default() }
    }

    fn noted(views: &[(u64, View)]) -> Seen {
        let mut seen = Seen::default();
        views.iter().for_each(|(replica, view)| seen.note(*replica, &Arc::new(view.clone())));
        seen
    }

    #[test]
    fn replicas_that_agree_are_compared_and_nothing_is_found() {
        let believes = View { control_leader: Some(NodeId::new(3)), replica: NodeId::new(2), ..view(5, 1, 1) };
        let seen = noted(&[(1, view(5, 1, 1)), (2, believes), (1, view(6, 6, 2))]);
        assert_eq!((seen.compared, &seen.findings[..]), (1, &[][..]));
        let old = (NodeId::new(1), Token::new(1));
        assert_eq!(seen.successor(SubclusterId::new(1), old), Some((seen.assignments[1].0, seen.assignments[1].2)));
        assert_eq!(seen.successor(SubclusterId::new(1), (NodeId::new(2), Token::new(1))), None);
    }

    #[test]
    fn a_backend_is_down_from_the_first_view_on_that_says_so_each_time() {
        let with = |index, up| {
            let backend = BackendView { name: "b".into(), up, ..BackendView::default() };
            View { backends: [(BackendId::new(1), backend)].into(), ..view(index, 1, 1) }
        };
        let begun = Instant::now();
        let seen = noted(&[(1, with(5, true)), (2, with(6, false)), (1, with(6, false)), (1, with(7, false))]);
        assert_eq!(seen.downs.len(), 1);
        assert_eq!(seen.down("b", begun), Some(seen.downs[0].0));
        assert_eq!((seen.down("c", begun), seen.down("b", Instant::now())), (None, None));
        assert_eq!(noted(&[(1, with(5, false)), (1, with(6, true)), (1, with(7, false))]).downs.len(), 2);
    }

    #[test]
    fn a_replica_that_reads_its_log_again_went_back_to_nothing() {
        assert_eq!(noted(&[(1, view(5, 4, 1)), (1, view(3, 2, 2)), (1, view(6, 4, 1))]).findings, [""; 0]);
    }

    #[test]
    fn models_that_do_not_fit_are_found() {
        let with = |memory_bytes| {
            let gpu = GpuView { id: GpuId::new(1), kind: "k".into(), memory_bytes, binding: Token::new(1) };
            let backend = BackendView {
                name: "b".into(),
                up: true,
                subcluster: SubclusterId::new(1),
                gpus: vec![gpu],
                ..BackendView::default()
            };
            let latency = LatencyProfile::from_line(1.0, 5.0, 2).unwrap();
            let profile = KindProfile { latency, static_memory_bytes: 10, dynamic_memory_bytes: 5 };
            let spec = ModelSpec {
                profiles: [("k".into(), profile)].into(),
                ..specs(&Model::default(), &["pool".into()]).unwrap().remove(0)
            };
            let model = |subcluster| ModelView {
                spec: spec.clone(),
                subcluster: SubclusterId::new(subcluster),
                moving: None,
                holders: BTreeMap::new(),
                trunk: None,
            };
            View {
                backends: [(BackendId::new(1), backend)].into(),
                models: [(1, 1), (2, 1), (3, 2)].map(|(id, of)| (ModelId::new(id), model(of))).into(),
                ..view(5, 1, 1)
            }
        };
        let fits = noted(&[(1, with(25))]);
        assert_eq!((fits.fullest_permille, &fits.findings[..]), (1000, &[][..]));
        assert_eq!(noted(&[(1, with(24))]).findings, ["I7: models take 25 bytes of a GPU of b that has 24"]);
        // The third one, of another sub-cluster, is loaded as well before it moves here.
        let mut moves = with(34);
        let (from, to) = (SubclusterId::new(2), SubclusterId::new(1));
        moves.models.get_mut(&ModelId::new(3)).unwrap().moving =
            Some(ModelMoveView { from, to, since: 5, switched: None });
        assert_eq!(noted(&[(1, moves)]).findings, ["I7: models take 35 bytes of a GPU of b that has 34"]);
    }

    #[test]
    fn each_planted_disagreement_is_found() {
        let other = View { epoch: Epoch::new(9), ..view(5, 1, 1) };
        for (views, words) in [
            ([(1, view(5, 1, 1)), (2, other)], "I5: replicas 1 and 2 differ at applied index 5"),
            ([(1, view(5, 1, 1)), (2, view(6, 1, 2))], "I2: n1 and n2 lead pool under one token"),
            ([(1, view(5, 4, 1)), (1, view(6, 3, 1))], "C1: replica 1 went back"),
        ] {
            let seen = noted(&views);
            assert!(seen.findings.iter().any(|finding| finding.starts_with(words)), "{words}: {:?}", seen.findings);
        }
    }
}
