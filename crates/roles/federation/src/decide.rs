//! Decides the next steps from the state, the views of the clusters, and the age of moves in progress. A pure
//! function, so that a new leader continues where another one stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use symphony_cluster_state::{Fnv1a, ModelSpec};
use symphony_federation_state::{Command, FederationState, KindCapacity, Model, Move};
use symphony_protocol::view::VIEWS_FOLLOW_WITHIN;
use symphony_protocol::view::View;
use symphony_types::OperationId;

use crate::cluster_poller::Poll;
use crate::copies::{Copy, copy_in};

/// How long the old home still serves a moved model, in addition to the model's SLO.
const SERVES_ON: Duration = VIEWS_FOLLOW_WITHIN;

/// A missing copy may still come from a call in progress, of this leader or its predecessor: calls take at most two
/// seconds, and committed changes show at once.
pub(crate) const CALLS_END_WITHIN: Duration = Duration::from_secs(5);

/// How long loading may take.
const LOADS_WITHIN: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A command for the group.
    Propose(Command),
    /// A request to a cluster.
    Ask(ClusterCall),
}

/// A request to a cluster. It is done once per id, whichever leader repeats it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterCall {
    pub(crate) cluster: String,
    pub(crate) id: OperationId,
    pub(crate) what: ModelCommand,
}

/// What calls to a cluster are for: the cluster, the model, and the index of the event that they follow from.
pub(crate) type Purpose = (String, String, u64);

impl ClusterCall {
    pub(crate) fn purpose(&self) -> Purpose {
        let (model, since) = match &self.what {
            ModelCommand::Load { spec, since } => (&spec.name, *since),
            ModelCommand::Unload { model, since } => (model, *since),
        };
        (self.cluster.clone(), model.clone(), since)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelCommand {
    /// Serve this model, in the sub-cluster that the specification names.
    Load { spec: ModelSpec, since: u64 },
    /// Stop serving this model.
    Unload { model: String, since: u64 },
}

/// The leader's knowledge besides the state.
pub(crate) struct Seen<'a> {
    /// The configured clusters with their control addresses.
    pub(crate) configured: &'a BTreeMap<String, Vec<String>>,
    /// The replicas that hold entries of its log.
    pub(crate) holders: &'a BTreeSet<u64>,
    pub(crate) polls: &'a BTreeMap<String, Poll>,
    pub(crate) unreachable: Duration,
    /// How long this leader has led.
    pub(crate) leads: Duration,
    /// How long this leader has known of the model's event at that index.
    pub(crate) age: &'a dyn Fn(&str, u64) -> Duration,
    /// How many calls of this leader a cluster has refused, by their purpose.
    pub(crate) refusals: &'a BTreeMap<Purpose, u64>,
}

impl Seen<'_> {
    /// The cluster's view, if it belongs to the federation and answers, and its age.
    pub(crate) fn view(&self, state: &FederationState, cluster: &str) -> Option<(&View, Duration)> {
        let poll = self.polls.get(cluster).filter(|_| state.is_reachable(cluster))?;
        poll.now(self.unreachable).map(|view| (&**view, poll.ago))
    }
}

/// All steps that can be taken now.
pub(crate) fn steps(state: &FederationState, seen: &Seen<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    let new = seen.holders.difference(state.replicas());
    steps.extend(new.map(|&replica| Step::Propose(Command::SeeReplica { replica })));
    for (name, control) in seen.configured {
        steps.extend(standing(state, seen, name, control).map(Step::Propose));
    }
    steps.extend(unlooked(state, seen).map(Step::Propose));
    for (name, model) in state.models() {
        steps.extend(model.moving.as_ref().and_then(|moving| on_its_way(state, seen, model, moving)));
        steps.extend(home(state, seen, name, model).map(Step::Propose));
        let leftovers = model.leftovers.iter();
        steps.extend(leftovers.filter_map(|(cluster, since)| leftover(state, seen, model, cluster, *since)));
    }
    steps
}

/// Models that have no home or an unreachable one, and are not moving to another.
pub(crate) fn without_home(state: &FederationState) -> BTreeSet<&str> {
    let unserved = |model: &Model| {
        let served = model.home.as_ref().is_some_and(|home| state.is_reachable(&home.cluster));
        !served && model.moving.is_none() && !model.unloading
    };
    state.models().iter().filter(|(_, model)| unserved(model)).map(|(name, _)| name.as_str()).collect()
}

fn standing(state: &FederationState, seen: &Seen<'_>, name: &str, control: &[String]) -> Option<Command> {
    let poll = seen.polls.get(name)?;
    let known = state.clusters().get(name);
    match (known, poll.now(seen.unreachable)) {
        (Some(cluster), Some(_)) if !cluster.reachable => {
            Some(Command::ClusterBack { name: name.to_owned(), since: cluster.since })
        }
        (known, Some(view)) => {
            let kinds = capacity(view);
            let is_current = known.is_some_and(|cluster| cluster.kinds == kinds && cluster.control == control);
            let control = control.to_vec();
            (!is_current).then(|| Command::SeeCluster { name: name.to_owned(), control, kinds })
        }
        (Some(cluster), None) if cluster.reachable && poll.ago >= seen.unreachable => {
            Some(Command::ClusterLost { name: name.to_owned(), since: cluster.since })
        }
        _ => None,
    }
}

/// Clusters of the federation that are missing in this leader's configuration: they are not polled, and so do not
/// answer.
fn unlooked(state: &FederationState, seen: &Seen<'_>) -> impl Iterator<Item = Command> {
    let late = seen.leads >= seen.unreachable;
    let silent = state.clusters().iter().filter(move |(_, cluster)| late && cluster.reachable);
    let silent = silent.filter(|(name, _)| !seen.configured.contains_key(*name));
    silent.map(|(name, cluster)| Command::ClusterLost { name: name.clone(), since: cluster.since })
}

/// GPUs that take work and their memory, by kind.
fn capacity(view: &View) -> BTreeMap<String, KindCapacity> {
    let mut kinds: BTreeMap<String, KindCapacity> = BTreeMap::new();
    for gpu in view.backends.values().filter(|b| b.up && b.duty.takes_work()).flat_map(|b| &b.gpus) {
        let kind = kinds.entry(gpu.kind.clone()).or_default();
        kind.gpus += 1;
        kind.memory_bytes = kind.memory_bytes.saturating_add(gpu.memory_bytes);
    }
    kinds
}

fn on_its_way(state: &FederationState, seen: &Seen<'_>, model: &Model, moving: &Move) -> Option<Step> {
    let (name, since) = (&model.spec.name, moving.since);
    let give_up = |reason: String| {
        let reason = cut(reason);
        Some(Step::Propose(Command::GiveUp { model: name.clone(), since, reason }))
    };
    let age = (seen.age)(name, since);
    let is_late = age >= LOADS_WITHIN;
    let too_late =
        |why: &str| give_up(format!("{} has not loaded it within {} s{why}", moving.to, LOADS_WITHIN.as_secs()));
    // Without a view the target is about to be polled or to count as lost, which ends the move.
    let (view, ago) = seen.view(state, &moving.to)?;
    match copy_in(view, &model.spec) {
        // Seen before the move began: possibly an earlier copy that is gone by now.
        Copy::Ready(_) | Copy::Failed(_) if ago > age => None,
        // However late: a leader that was paused, or had no quorum, could not propose it before.
        Copy::Ready(_) => Some(Step::Propose(Command::Loaded { model: name.clone(), since })),
        Copy::NoGpu(why) if is_late => too_late(&format!(": {why}")),
        Copy::Loading | Copy::None if is_late => too_late(""),
        Copy::Loading | Copy::NoGpu(_) => None,
        Copy::Failed(reason) => give_up(format!("{} cannot load it: {reason}", moving.to)),
        Copy::Foreign => give_up(format!("{} has another model of that name", moving.to)),
        Copy::None if view.subclusters.values().all(|s| s.name != moving.subcluster) => {
            give_up(format!("{} has no sub-cluster {} any more", moving.to, moving.subcluster))
        }
        Copy::None => {
            let spec = ModelSpec { subcluster: moving.subcluster.clone(), ..model.spec.clone() };
            let id = derived(model, since, "load");
            Some(Step::Ask(ClusterCall { cluster: moving.to.clone(), id, what: ModelCommand::Load { spec, since } }))
        }
    }
}

/// Whether all calls in progress at a time had ended when the cluster was polled. Only then does a missing copy mean
/// that none will come. The view may be older than the event.
fn calls_had_ended(since: Duration, called_at: Duration) -> bool {
    since.saturating_sub(called_at) >= CALLS_END_WITHIN
}

/// A home without a copy does not count.
fn home(state: &FederationState, seen: &Seen<'_>, name: &str, model: &Model) -> Option<Command> {
    let home = model.home.as_ref()?;
    let (view, ago) = seen.view(state, &home.cluster)?;
    let gone = matches!(copy_in(view, &model.spec), Copy::None | Copy::Foreign);
    let settled = calls_had_ended((seen.age)(name, home.since), ago);
    let (model, cluster, since) = (name.to_owned(), home.cluster.clone(), home.since);
    (gone && settled).then_some(Command::CopyGone { model, cluster, since })
}

fn leftover(state: &FederationState, seen: &Seen<'_>, model: &Model, cluster: &str, since: u64) -> Option<Step> {
    let (name, age) = (&model.spec.name, (seen.age)(&model.spec.name, since));
    let (view, ago) = seen.view(state, cluster)?;
    let serves_on = if model.unloading { Duration::ZERO } else { SERVES_ON + Duration::from(model.spec.slo()) };
    match copy_in(view, &model.spec) {
        Copy::None | Copy::Foreign => {
            let command = Command::CopyGone { model: name.clone(), cluster: cluster.to_owned(), since };
            calls_had_ended(age, ago).then_some(Step::Propose(command))
        }
        // The cluster would refuse. The copy goes once no pipeline needs it.
        _ if view.pipelines_need(name) => None,
        Copy::Ready(_) | Copy::Loading | Copy::Failed(_) | Copy::NoGpu(_) if age >= serves_on => {
            let what = ModelCommand::Unload { model: name.clone(), since };
            let mut call = ClusterCall { cluster: cluster.to_owned(), id: derived(model, since, "unload"), what };
            // It is refused if a pipeline came after the view was made, and a cluster answers an id as it did before.
            // So there is another id after each refusal, and only then: an earlier call that is still under way was
            // refused, or is the same operation, and takes no copy away that has come back meanwhile.
            if let Some(refusals) = seen.refusals.get(&call.purpose()) {
                call.id = derived(model, since, &format!("unload after {refusals} refusals"));
            }
            Some(Step::Ask(call))
        }
        _ => None,
    }
}

/// The id of a request to a cluster: the same for every leader, and different for every move and `what`.
fn derived(model: &Model, since: u64, what: &str) -> OperationId {
    let half = |salt: u8| {
        let start = Fnv1a::default().over(&[salt]).over(&model.operation.get().to_le_bytes());
        u128::from(start.over(&since.to_le_bytes()).over(what.as_bytes()).get())
    };
    OperationId::new((half(1) << 64 | half(2)).max(1))
}

/// The beginning of a long reason is better than a refused report.
pub(crate) fn cut(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(symphony_federation_state::REASON_BYTES_MAX));
    reason
}

#[cfg(test)]
mod tests {
    use symphony_federation_state::Cause;

    use super::*;
    use crate::scene::Scene;

    const LATE: Duration = Duration::from_secs(4);

    fn all(scene: &Scene, age: Duration) -> Vec<Step> {
        all_after(scene, age, &BTreeMap::new())
    }

    fn all_after(scene: &Scene, age: Duration, refusals: &BTreeMap<Purpose, u64>) -> Vec<Step> {
        let configured = scene.polls.keys().map(|name| (name.clone(), vec![format!("{name}:7001")])).collect();
        let (polls, unreachable) = (&scene.polls, LATE);
        let (holders, leads) = (&scene.holders, age);
        let seen = Seen { configured: &configured, holders, polls, unreachable, leads, age: &|_, _| age, refusals };
        steps(&scene.state, &seen)
    }

    #[test]
    fn who_holds_the_log_is_written_down_once() {
        let mut scene = Scene::new(&["a"]);
        scene.holders = [1, 3].into();
        let seen = [1, 3].map(|replica| Command::SeeReplica { replica });
        assert_eq!(all(&scene, LATE), seen.clone().map(Step::Propose));
        for command in &seen {
            scene.done(command);
        }
        assert_eq!(all(&scene, LATE), []);
        scene.holders.clear();
        assert_eq!(all(&scene, LATE), [], "who is away is not forgotten");
    }

    #[test]
    fn a_cluster_that_the_leader_is_not_configured_with_is_lost_after_a_while() {
        let mut scene = Scene::new(&["a", "b"]);
        scene.load("m", 0);
        scene.settle("m", "b");
        let all_polls = scene.polls.clone();
        scene.polls.remove("b");
        assert_eq!(all(&scene, LATE / 2), [], "another leader may know it");
        let [Step::Propose(lost)] = &all(&scene, LATE)[..] else { panic!("nobody polls b") };
        assert!(matches!(lost, Command::ClusterLost { name, .. } if name == "b"), "{lost:?}");
        scene.done(lost);
        assert_eq!((all(&scene, LATE), without_home(&scene.state).len()), (vec![], 1));
        scene.polls = all_polls;
        let back = all(&scene, Duration::ZERO);
        assert!(matches!(&back[..], [Step::Propose(Command::ClusterBack { name, .. })] if name == "b"), "{back:?}");
    }

    #[test]
    fn a_move_goes_on_from_wherever_another_leader_left_it() {
        let mut scene = Scene::new(&["a", "b"]);
        scene.load("m", 0);
        scene.settle("m", "a");
        assert_eq!(all(&scene, LATE), [], "all is well");
        let since = scene.begin("m", "b", Cause::Operator);
        let [Step::Ask(call)] = &all(&scene, Duration::ZERO)[..] else { panic!("the target is asked to load it") };
        let ModelCommand::Load { spec, .. } = &call.what else { panic!("{call:?}") };
        assert_eq!((call.cluster.as_str(), spec.subcluster.as_str()), ("b", "s"));
        assert_eq!(all(&scene, LATE), [Step::Ask(call.clone())], "another leader asks under the same id");
        scene.copy("m", "b", Some(Err("no file".into())));
        assert!(
            matches!(&all(&scene, LATE)[..], [Step::Propose(Command::GiveUp { reason, .. })] if reason.contains("no file"))
        );
        scene.copy("m", "b", None);
        assert_eq!(all(&scene, LATE), [], "it loads");
        assert!(matches!(&all(&scene, LOADS_WITHIN)[..], [Step::Propose(Command::GiveUp { .. })]));
        scene.backends_up("b", false);
        assert_eq!(all(&scene, Duration::ZERO).len(), 1, "only that b has no GPUs is told");
        let late = all(&scene, LOADS_WITHIN);
        let why = "within 600 s: no GPU takes it: all its backends are down";
        let says_so =
            |step: &Step| matches!(step, Step::Propose(Command::GiveUp { reason, .. }) if reason.ends_with(why));
        assert!(late.iter().any(says_so), "{late:?}");
        let view = scene.polls.get_mut("b").unwrap().view.take();
        assert_eq!(all(&scene, LOADS_WITHIN), [], "a leader that was paused has to poll b first");
        scene.polls.get_mut("b").unwrap().view = view;
        scene.backends_up("b", true);
        scene.copy("m", "b", Some(Ok(())));
        scene.silent("b", LATE / 2);
        assert_eq!(all(&scene, LATE / 4), [], "that was before the move");
        scene.silent("b", Duration::ZERO);
        let loaded = [Step::Propose(Command::Loaded { model: "m".into(), since })];
        assert_eq!(all(&scene, LATE), loaded);
        assert_eq!(all(&scene, LOADS_WITHIN), loaded, "a leader without a quorum could not say so before");
        scene.done(&Command::Loaded { model: "m".into(), since });

        assert_eq!(all(&scene, SERVES_ON), [], "the old home serves what came before");
        let [Step::Ask(unload)] = &all(&scene, LATE)[..] else { panic!("then it lets go") };
        assert!(unload.cluster == "a" && matches!(unload.what, ModelCommand::Unload { .. }) && unload.id != call.id);
        scene.forget("m", "a");
        assert_eq!(all(&scene, LATE), [], "a call may still be under way");
        scene.silent("a", LATE / 2);
        assert_eq!(all(&scene, CALLS_END_WITHIN), [], "what was seen is older than the end of calls");
        assert_eq!(all(&scene, CALLS_END_WITHIN + LATE / 2).len(), 1);
        scene.silent("a", Duration::ZERO);
        assert!(
            matches!(&all(&scene, CALLS_END_WITHIN)[..], [Step::Propose(Command::CopyGone { cluster, .. })] if cluster == "a")
        );
    }

    #[test]
    fn a_copy_that_a_pipeline_needs_stays_and_what_was_refused_is_asked_under_another_id() {
        let mut scene = Scene::new(&["a", "b"]);
        scene.load("m", 0);
        scene.settle("m", "a");
        scene.load_pipeline("m", "a");
        let since = scene.begin("m", "b", Cause::Operator);
        scene.copy("m", "b", Some(Ok(())));
        scene.done(&Command::Loaded { model: "m".into(), since });
        assert_eq!(all(&scene, LATE), [], "a has a pipeline that needs it");
        scene.unload_pipeline("a");
        let unload = |age, refusals: &BTreeMap<Purpose, u64>| {
            let [Step::Ask(call)] = &all_after(&scene, age, refusals)[..] else {
                panic!("no pipeline needs it any more")
            };
            call.clone()
        };
        let first = unload(LATE, &BTreeMap::new());
        assert!(first.cluster == "a" && matches!(first.what, ModelCommand::Unload { .. }), "{first:?}");
        let refused = |age, times| unload(age, &[(first.purpose(), times)].into());
        let (second, third) = (refused(LATE, 1), refused(LATE, 2));
        assert!(first.id != second.id && first.id != third.id && second.id != third.id);
        assert_eq!(refused(2 * LATE, 1), second, "a leader since another time asks under the same id");
        let other = ("b".to_owned(), "m".to_owned(), 1);
        assert_eq!(unload(LATE, &[(other, 1)].into()), first, "that was another call");
    }

    #[test]
    fn a_cluster_is_lost_when_nobody_answers_for_long_and_is_back_when_somebody_does() {
        let mut scene = Scene::new(&["a", "b"]);
        scene.load("m", 0);
        scene.settle("m", "a");
        scene.silent("a", LATE / 2);
        assert_eq!(all(&scene, LATE), []);
        scene.silent("a", LATE);
        let lost = all(&scene, LATE);
        assert!(matches!(&lost[..], [Step::Propose(Command::ClusterLost { name, .. })] if name == "a"), "{lost:?}");
        let Step::Propose(command) = &lost[0] else { panic!("{lost:?}") };
        scene.done(command);
        assert_eq!((all(&scene, LATE), without_home(&scene.state).len()), (vec![], 1));
        scene.silent("a", Duration::ZERO);
        assert!(matches!(&all(&scene, LATE)[..], [Step::Propose(Command::ClusterBack { .. })]));
    }

    #[test]
    fn a_home_that_lost_its_copy_is_none_and_a_stranger_of_the_same_name_is_left_alone() {
        let mut scene = Scene::new(&["a", "b"]);
        scene.load("m", 0);
        scene.settle("m", "a");
        scene.forget("m", "a");
        assert_eq!(all(&scene, LATE), [], "what was seen may be older");
        scene.silent("a", LATE / 2);
        assert_eq!(all(&scene, CALLS_END_WITHIN), [], "and is");
        scene.silent("a", Duration::ZERO);
        assert!(matches!(&all(&scene, CALLS_END_WITHIN)[..], [Step::Propose(Command::CopyGone { .. })]));
        scene.settle("m", "a");
        scene.begin("m", "b", Cause::Operator);
        scene.stranger("m", "b");
        let found = all(&scene, LATE);
        assert!(
            matches!(&found[..], [Step::Propose(Command::GiveUp { reason, .. })] if reason.contains("another model")),
            "{found:?}"
        );
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let reason = cut(format!("x{}", "é".repeat(300)));
        assert!(reason.len() <= symphony_federation_state::REASON_BYTES_MAX && reason.ends_with('é'));
    }
}
