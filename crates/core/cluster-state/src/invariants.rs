//! Predicates of the invariants that this state can break (docs/internals/invariants.md).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use symphony_policy::POLICY_TEXT_BYTES_MAX;
use symphony_types::{CutDigest, Invariant, MODEL_CUTS_MAX, SubclusterId, Token};

use crate::epoch_plan::{Moved, PlanStatus};
use crate::limits::{
    BACKENDS_MAX, EVENTS_MAX, FRONTENDS_MAX, GPUS_MAX, GPUS_PER_BACKEND_MAX, HOLDERS_MAX, MODEL_BYTES_TOTAL_MAX,
    MODELS_MAX, MOVES_AT_ONCE_MAX, NAME_BYTES_MAX, NODES_MAX, NODES_REMOVED_MAX, OPERATION_WORDS_BYTES_MAX,
    OPERATIONS_KEPT, PIPELINE_BYTES_TOTAL_MAX, PIPELINES_MAX, PLAN_LEFT_ALONE_MAX, PLAN_MOVES_MAX, PLANS_KEPT,
    POLICIES_KNOWN_MAX, SUBCLUSTERS_MAX, TRAFFIC_SPLITS_MAX,
};
use crate::state::ClusterState;

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Violation {
    /// Which one, as in docs/internals/invariants.md.
    pub invariant: Invariant,
    /// The place, with the conflicting values.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

fn broken<T>(invariant: Invariant, what: String) -> Result<T, Violation> {
    Err(Violation { invariant, what })
}

/// Checks what must hold in every state: C1 (no token above the applied index), C2, C3, C7 and S5.
///
/// # Errors
/// The first violation found.
pub fn check(state: &ClusterState) -> Result<(), Violation> {
    tokens_are_past(state)?;
    removed_stay_removed(state)?;
    one_subcluster_each(state)?;
    moves_are_planned(state)?;
    models_fit(state)?;
    leaders_live(state)?;
    operations_are_past(state)?;
    traffic_goes_to_versions(state)?;
    level_is_known(state)?;
    policies_are_of_subclusters(state)?;
    trunks_are_shared(state)?;
    pipelines_are_whole(state)?;
    within_limits(state)
}

/// Checks what must hold between a state and its successor: epochs and tokens only grow, and recorded answers stay
/// (C1); a model is switched only to a sub-cluster where it is ready (C2).
///
/// # Errors
/// The first violation found.
pub fn check_step(before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
    if after.epoch < before.epoch || after.applied_index < before.applied_index || after.level < before.level {
        let what = format!(
            "epoch {} then {}, index {} then {}, level {} then {}",
            before.epoch, after.epoch, before.applied_index, after.applied_index, before.level, after.level
        );
        return broken(Invariant::C1, what);
    }
    for (id, old) in &before.subclusters {
        let Some(new) = after.subclusters.get(id) else { continue };
        let kept = new.leader == old.leader && new.token == old.token;
        if !kept && new.token <= old.token {
            let what = format!("leader of {id} changed without a larger token: {} then {}", old.token, new.token);
            return broken(Invariant::C1, what);
        }
        if !kept && after.epoch == before.epoch {
            return broken(Invariant::C1, format!("leader of {id} changed within epoch {}", after.epoch));
        }
    }
    if let Some(node) = before.removed_nodes.difference(&after.removed_nodes).next() {
        return broken(Invariant::C1, format!("it is forgotten that {node} was removed"));
    }
    let kept: BTreeMap<_, _> = after.operations.iter().map(|kept| (kept.index, kept)).collect();
    let oldest = after.operations.first().map_or(u64::MAX, |kept| kept.index);
    if let Some(lost) = before.operations.iter().find(|old| match kept.get(&old.index) {
        Some(now) => now != old,
        None => old.index >= oldest || after.operations.len() < OPERATIONS_KEPT,
    }) {
        return broken(Invariant::C1, format!("operation {} at {} is forgotten or answered anew", lost.id, lost.index));
    }
    for (id, new) in &after.models {
        let Some(old) = before.models.get(id).filter(|old| old.subcluster != new.subcluster) else { continue };
        let prepared = old.moving.is_some_and(|moving| moving.to == new.subcluster && moving.switched.is_none());
        // If the new backends already held the model, its move begins and is switched in one step.
        let at_once = new
            .moving
            .is_some_and(|moving| moving.since == after.applied_index && moving.switched == Some(after.applied_index));
        if !(prepared || at_once) || after.epoch == before.epoch {
            let what = format!("{id} went from {} to {} unprepared or within an epoch", old.subcluster, new.subcluster);
            return broken(Invariant::C2, what);
        }
    }
    let bindings = |state: &ClusterState| -> BTreeMap<_, _> {
        let gpus =
            state.backends.values().flat_map(|b| b.gpus.iter().map(|g| (g.id, (b.subcluster, b.boot, g.binding))));
        gpus.collect()
    };
    let now = bindings(after);
    for (gpu, (subcluster, boot, old)) in bindings(before) {
        let Some(&(new_subcluster, new_boot, new)) = now.get(&gpu) else { continue };
        let kept = (new_subcluster, new_boot, new) == (subcluster, boot, old);
        if !kept && new <= old {
            return broken(Invariant::C1, format!("{gpu} was bound again without a larger token: {old} then {new}"));
        }
    }
    Ok(())
}

fn tokens_are_past(state: &ClusterState) -> Result<(), Violation> {
    let applied = Token::new(state.applied_index);
    let leaders = state.subclusters.values().map(|s| s.token);
    let bindings = state.backends.values().flat_map(|b| b.gpus.iter().map(|g| g.binding));
    match leaders.chain(bindings).find(|&token| token > applied || token == Token::default()) {
        Some(token) => broken(Invariant::C1, format!("token {token} is no index up to {}", state.applied_index)),
        None => Ok(()),
    }
}

fn removed_stay_removed(state: &ClusterState) -> Result<(), Violation> {
    match state.nodes.keys().find(|node| state.removed_nodes.contains(node)) {
        Some(node) => {
            broken(Invariant::C1, format!("{node} was removed and is there again: ids are never given twice"))
        }
        None => Ok(()),
    }
}

fn operations_are_past(state: &ClusterState) -> Result<(), Violation> {
    let indexes: Vec<_> = state.operations.iter().map(|kept| kept.index).collect();
    if indexes.is_sorted_by(|a, b| a < b) && indexes.last().is_none_or(|&last| last <= state.applied_index) {
        return Ok(());
    }
    broken(Invariant::C1, format!("operations are not kept in the order of a log up to {}", state.applied_index))
}

fn one_subcluster_each(state: &ClusterState) -> Result<(), Violation> {
    let mut gpus = BTreeSet::new();
    for (id, backend) in &state.backends {
        if !state.subclusters.contains_key(&backend.subcluster) {
            return broken(Invariant::C2, format!("{id} is in {}, which does not exist", backend.subcluster));
        }
        if let Some(twice) = backend.gpus.iter().find(|g| !gpus.insert(g.id)) {
            return broken(Invariant::C2, format!("{} is held twice, the second time by {id}", twice.id));
        }
    }
    let mut names = BTreeSet::new();
    for (id, model) in &state.models {
        if !state.subclusters.contains_key(&model.subcluster) {
            return broken(Invariant::C2, format!("{id} is in {}, which does not exist", model.subcluster));
        }
        if let Some(moving) = model.moving {
            let (here, other) =
                if moving.switched.is_some() { (moving.to, moving.from) } else { (moving.from, moving.to) };
            if model.subcluster != here || !state.subclusters.contains_key(&other) || here == other {
                return broken(Invariant::C2, format!("{id} is in {} and moves by {moving:?}", model.subcluster));
            }
        }
        if !names.insert(&model.spec.name) {
            return broken(Invariant::C2, format!("{id} (`{}`) belongs to more than one sub-cluster", model.spec.name));
        }
    }
    let unique = |names: Vec<&String>| names.len() == names.into_iter().collect::<BTreeSet<_>>().len();
    if !unique(state.subclusters.values().map(|s| &s.name).collect())
        || !unique(state.backends.values().map(|b| &b.name).collect())
        || !unique(state.frontends.values().map(|f| &f.name).collect())
    {
        return broken(Invariant::C2, "a name is borne twice".to_owned());
    }
    Ok(())
}

/// Each move under way belongs to one running plan, once; no plan runs for ever without a move under way.
fn moves_are_planned(state: &ClusterState) -> Result<(), Violation> {
    let models = state.models.iter().filter_map(|(&id, m)| Some((Moved::Model(id), m.moving?.since)));
    let backends = state.backends.iter().filter_map(|(&id, b)| Some((Moved::Backend(id), b.moving?.since)));
    let on_its_way: BTreeSet<_> = models.chain(backends).collect();
    let running = state.plans.iter().filter(|plan| plan.status == PlanStatus::Running).flat_map(|plan| &plan.moves);
    let mut planned = BTreeSet::new();
    for (what, since) in running.filter_map(|m| Some((m.wanted.what, m.progress.under_way_since()?))) {
        if !planned.insert((what, since)) {
            return broken(Invariant::C2, format!("{what} is moved by two plans since {since}"));
        }
    }
    match on_its_way.symmetric_difference(&planned).next() {
        Some((what, since)) => broken(Invariant::C2, format!("{what} moves since {since} in part only: {planned:?}")),
        None => Ok(()),
    }
}

fn models_fit(state: &ClusterState) -> Result<(), Violation> {
    let models = state.models_by_home();
    let mut checked = BTreeSet::new();
    for (id, backend) in &state.backends {
        for homes in backend.homes() {
            let shape: Vec<_> = backend.gpus.iter().map(|gpu| (&gpu.kind, gpu.memory_bytes)).collect();
            if !checked.insert((homes.clone(), shape)) {
                continue;
            }
            // A backend that two of the homes hold is counted once.
            let held: BTreeMap<_, _> = homes.iter().filter_map(|home| models.get(home)).flatten().copied().collect();
            let held: Vec<_> = held.into_values().collect();
            if let Err(refusal) = state.check_specs_fit(backend, &homes, &held) {
                return broken(Invariant::C3, format!("{id}: {refusal}"));
            }
        }
    }
    Ok(())
}

fn leaders_live(state: &ClusterState) -> Result<(), Violation> {
    let up = |id| state.nodes.get(id).filter(|n| n.up);
    for (id, subcluster) in &state.subclusters {
        match subcluster.leader {
            Some(leader) if up(&leader.node).is_none_or(|n| n.boot != leader.boot) => {
                let what = format!("{id} is led by {} in {}, which is not alive", leader.node, leader.boot);
                return broken(Invariant::C7, what);
            }
            None if state.nodes.values().any(|n| n.up) => {
                return broken(Invariant::C7, format!("{id} has no leader although a scheduler is up"));
            }
            _ => {}
        }
        if let Some(next) = &subcluster.successor
            && (up(&next.node).is_none_or(|n| n.boot != next.boot)
                || subcluster.leader.is_none_or(|l| l.node == next.node))
        {
            return broken(Invariant::C7, format!("{id} is handed over to {}, which is down or leads it", next.node));
        }
        let leads = |standby| subcluster.leader.is_some_and(|l| l.node == standby);
        if let Some(standby) = subcluster.standbys.iter().find(|&s| up(s).is_none() || leads(*s)) {
            return broken(Invariant::C7, format!("{standby} stands by for {id} but is down or leads it"));
        }
    }
    Ok(())
}

fn traffic_goes_to_versions(state: &ClusterState) -> Result<(), Violation> {
    for (model, traffic) in &state.traffic {
        if let Some(version) = traffic.versions().find(|&version| !state.has_version(model, version)) {
            return broken(Invariant::C2, format!("traffic of {model} goes to version {version}, which is not loaded"));
        }
        if traffic.is_empty() {
            return broken(Invariant::C2, format!("the traffic split of {model} says nothing"));
        }
    }
    Ok(())
}

/// A snapshot of a level that this release does not know may hold what it cannot read.
fn level_is_known(state: &ClusterState) -> Result<(), Violation> {
    match state.level.is_read() {
        true => Ok(()),
        false => broken(Invariant::S5, format!("level {}; this release knows none such", state.level)),
    }
}

fn policies_are_of_subclusters(state: &ClusterState) -> Result<(), Violation> {
    let strange = state
        .policies
        .iter()
        .find(|(id, policy)| !state.subclusters.contains_key(*id) || policy.text.len() > POLICY_TEXT_BYTES_MAX);
    if let Some((id, policy)) = strange {
        return broken(Invariant::S5, format!("{id} has a policy of {} bytes", policy.text.len()));
    }
    match state.policies_known.iter().find(|(_, names)| names.len() > POLICIES_KNOWN_MAX) {
        Some((node, names)) => broken(Invariant::S5, format!("{node} adds {} policies", names.len())),
        None => Ok(()),
    }
}

/// A model that shares a trunk has it, and shares it with another model of its sub-cluster.
fn trunks_are_shared(state: &ClusterState) -> Result<(), Violation> {
    let mut families: BTreeMap<(SubclusterId, CutDigest), usize> = BTreeMap::new();
    for (id, trunk) in &state.trunks {
        let Some(model) = state.models.get(id) else {
            return broken(Invariant::S5, format!("{id} has a trunk and is not loaded"));
        };
        if trunk.cuts.len() > MODEL_CUTS_MAX || trunk.shared.is_some_and(|shared| !trunk.cuts.contains(&shared)) {
            return broken(Invariant::S5, format!("{id} shares {:?} of {} cut points", trunk.shared, trunk.cuts.len()));
        }
        if let Some(shared) = trunk.shared {
            *families.entry((model.subcluster, shared)).or_default() += 1;
        }
    }
    match families.into_iter().find(|(_, members)| *members < 2) {
        Some(((subcluster, trunk), _)) => {
            broken(Invariant::S5, format!("one model alone shares {trunk} on {subcluster}"))
        }
        None => Ok(()),
    }
}

fn pipelines_are_whole(state: &ClusterState) -> Result<(), Violation> {
    state.broken_pipeline().map_or(Ok(()), |what| broken(Invariant::C2, what))
}

fn within_limits(state: &ClusterState) -> Result<(), Violation> {
    let gpus = |state: &ClusterState| state.backends.values().map(|b| b.gpus.len()).sum::<usize>();
    let most_words = state.operations.iter().map(|kept| kept.what.len()).max().unwrap_or(0);
    let longest_actor = state.operations.iter().map(|kept| kept.actor.len()).max().unwrap_or(0);
    let most_gpus = state.backends.values().map(|b| b.gpus.len()).max().unwrap_or(0);
    let counts = [
        ("nodes", state.nodes.len(), NODES_MAX),
        ("removed nodes", state.removed_nodes.len(), NODES_REMOVED_MAX),
        ("sub-clusters", state.subclusters.len(), SUBCLUSTERS_MAX),
        ("backends", state.backends.len(), BACKENDS_MAX),
        ("GPUs of a backend", most_gpus, GPUS_PER_BACKEND_MAX),
        ("GPUs", gpus(state), GPUS_MAX),
        ("frontends", state.frontends.len(), FRONTENDS_MAX),
        ("models", state.models.len(), MODELS_MAX),
        ("replicas", state.models.values().map(|m| m.holders.len()).sum(), HOLDERS_MAX),
        ("model bytes", state.models.values().map(|m| m.spec.weight_bytes()).sum(), MODEL_BYTES_TOTAL_MAX),
        ("events", state.events.len(), EVENTS_MAX),
        ("traffic splits", state.traffic.len(), TRAFFIC_SPLITS_MAX),
        ("pipelines", state.pipelines.len(), PIPELINES_MAX),
        (
            "pipeline bytes",
            state.pipelines.values().map(|pipeline| pipeline.declaration.weight_bytes()).sum(),
            PIPELINE_BYTES_TOTAL_MAX,
        ),
        ("operations", state.operations.len(), OPERATIONS_KEPT),
        ("plans", state.plans.len(), PLANS_KEPT),
        ("moves of a plan", state.plans.iter().map(|plan| plan.moves.len()).max().unwrap_or(0), PLAN_MOVES_MAX),
        (
            "models a plan leaves alone",
            state.plans.iter().map(|p| p.left_alone.len()).max().unwrap_or(0),
            PLAN_LEFT_ALONE_MAX,
        ),
        ("moves under way", state.moves_under_way(), MOVES_AT_ONCE_MAX),
        ("bytes of an operation's words", most_words, OPERATION_WORDS_BYTES_MAX),
        ("bytes of an operation's actor", longest_actor, NAME_BYTES_MAX),
    ];
    match counts.into_iter().find(|(_, got, max)| got > max) {
        Some((what, got, max)) => broken(Invariant::S5, format!("{got} {what}; at most {max} are allowed")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
