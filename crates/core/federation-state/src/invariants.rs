//! Invariants that hold after every command.

use symphony_types::Invariant;

use crate::limits::{
    CLUSTERS_MAX, EVENTS_MAX, LEFTOVERS_TOTAL_MAX, MODEL_BYTES_TOTAL_MAX, MODELS_MAX, MOVES_AT_ONCE_MAX,
    MOVES_PER_COMMAND_MAX, OPERATIONS_KEPT, PLANS_KEPT, REPLICAS_MAX,
};
use crate::state::{FederatedPlan, FederationState, Model, Progress};

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{invariant} ({what})")]
pub struct Violation {
    /// Which one, as in docs/internals/invariants.md.
    pub invariant: Invariant,
    /// The place.
    pub what: String,
}

fn broken(invariant: Invariant, what: String) -> Result<(), Violation> {
    Err(Violation { invariant, what })
}

/// Checks that commands can produce this state.
///
/// # Errors
/// The first [`Violation`].
pub fn check(state: &FederationState) -> Result<(), Violation> {
    let FederationState { applied_index, plan, clusters, models, operations, events, plans, replicas } = state;
    let leftovers: usize = models.values().map(|model| model.leftovers.len()).sum();
    let counts = [
        ("clusters", clusters.len(), CLUSTERS_MAX),
        ("models", models.len(), MODELS_MAX),
        ("bytes of models", models.values().map(Model::weight_bytes).sum(), MODEL_BYTES_TOTAL_MAX),
        ("copies to let go of", leftovers, LEFTOVERS_TOTAL_MAX),
        ("moves under way", state.moves_under_way(), MOVES_AT_ONCE_MAX),
        ("operations", operations.len(), OPERATIONS_KEPT),
        ("events", events.len(), EVENTS_MAX),
        ("plans", plans.len(), PLANS_KEPT),
        ("replicas", replicas.len(), REPLICAS_MAX),
        ("moves of a plan", plans.iter().map(|plan| plan.moves.len()).max().unwrap_or(0), MOVES_PER_COMMAND_MAX),
    ];
    if let Some((what, got, max)) = counts.into_iter().find(|(_, got, max)| got > max) {
        return broken(Invariant::S5, format!("{got} {what}; at most {max} are allowed"));
    }
    for (name, model) in models {
        model_holds(state, name, model)?;
    }
    let kept = operations.iter().map(|kept| kept.index).chain(events.iter().map(|event| event.index));
    let kept = kept.chain(plans.iter().map(|plan| plan.id));
    let newest = clusters.values().map(|cluster| cluster.since).chain(models.values().flat_map(indexes)).chain(kept);
    match newest.max() {
        Some(since) if since > *applied_index => {
            broken(Invariant::C1, format!("something is since {since}, after the last command {applied_index}"))
        }
        // Each command makes at most one plan, so a plan always leaves room for later ones.
        _ if plan > applied_index => broken(Invariant::F2, format!("plan {plan} after {applied_index} commands")),
        _ => plans.iter().try_for_each(|plan| plan_holds(state, plan)),
    }
}

/// All log indexes in a model.
fn indexes(model: &Model) -> impl Iterator<Item = u64> {
    let home = model.home.iter().map(|home| home.since);
    let moving = model.moving.iter().map(|moving| moving.since);
    home.chain(moving).chain(model.leftovers.values().copied()).chain([model.loaded_at])
}

/// A move that a plan calls under way began with that plan.
fn plan_holds(state: &FederationState, plan: &FederatedPlan) -> Result<(), Violation> {
    let moves = |name: &str| state.models.get(name).and_then(|model| model.moving.as_ref()).map(|moving| moving.since);
    let mut under_way = plan.moves.iter().filter(|planned| planned.progress == Progress::UnderWay);
    match under_way.find(|planned| moves(&planned.model) != Some(plan.id)) {
        Some(planned) => broken(
            Invariant::F3,
            format!("model {} does not move, and plan {} says that it does", planned.model, plan.id),
        ),
        None => Ok(()),
    }
}

fn model_holds(state: &FederationState, name: &str, model: &Model) -> Result<(), Violation> {
    let home = model.home.as_ref().map(|home| &home.cluster);
    let to = model.moving.as_ref().map(|moving| &moving.to);
    if *name != model.spec.name {
        return broken(Invariant::F3, format!("model {} is kept as {name}", model.spec.name));
    }
    if home.is_some() && home == to {
        return broken(Invariant::F3, format!("model {name} moves to where it is at home"));
    }
    if let Some(cluster) = model.leftovers.keys().find(|cluster| Some(*cluster) == home || Some(*cluster) == to) {
        return broken(Invariant::F3, format!("{cluster} is to let go of model {name}, which belongs there"));
    }
    let mut named = home.into_iter().chain(to).chain(model.leftovers.keys());
    if let Some(cluster) = named.find(|cluster| !state.clusters.contains_key(*cluster)) {
        return broken(Invariant::F3, format!("model {name} is in {cluster}, which does not exist"));
    }
    if model.unloading && (home.is_some() || to.is_some() || model.leftovers.is_empty()) {
        return broken(
            Invariant::F3,
            format!("model {name} is being unloaded and belongs somewhere, or nowhere at all"),
        );
    }
    Ok(())
}

/// Checks that one state may follow another.
///
/// # Errors
/// The first [`Violation`].
pub fn check_step(before: &FederationState, after: &FederationState) -> Result<(), Violation> {
    if after.applied_index < before.applied_index {
        return broken(Invariant::C1, format!("index {} after {}", after.applied_index, before.applied_index));
    }
    if after.plan < before.plan {
        return broken(Invariant::F2, format!("plan {} after plan {}", after.plan, before.plan));
    }
    if let Some(replica) = before.replicas.difference(&after.replicas).next() {
        return broken(Invariant::C1, format!("that replica {replica} took part is forgotten"));
    }
    for (name, old) in &before.models {
        let new = after.models.get(name).filter(|new| new.loaded_at == old.loaded_at);
        let routed = |model: &Model| model.home.as_ref().map(|home| home.cluster.clone());
        if new.is_none_or(|new| routed(new) != routed(old) || new.unloading != old.unloading)
            && !old.unloading
            && after.plan == before.plan
        {
            return broken(Invariant::F2, format!("model {name} is elsewhere in the same plan {}", after.plan));
        }
        let Some(new) = new else { continue };
        let was = old.home.iter().map(|home| &home.cluster).chain(old.moving.iter().map(|moving| &moving.to));
        let kept = |cluster: &&String| !new.belongs_to(cluster) && !new.leftovers.contains_key(*cluster);
        // A home that lost its copy is forgotten; one that a move has left becomes a leftover.
        if let Some(cluster) = was.into_iter().find(kept).filter(|_| new.home.is_some() && old.home.is_some()) {
            return broken(Invariant::F3, format!("the copy of {name} in {cluster} is forgotten"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Cause, Cluster, Home, Move, PlannedMove};

    fn cluster() -> Cluster {
        Cluster { control: vec!["c:1".into()], kinds: Default::default(), reachable: true, since: 1 }
    }

    /// Model m, at home in a and moving to b.
    fn state() -> FederationState {
        let spec = symphony_replicated::ModelSpec {
            name: "m".into(),
            subcluster: String::new(),
            slo_ns: 1,
            source: symphony_replicated::ModelSource::Emulated,
            signature: symphony_types::Signature { inputs: vec![], outputs: vec![] },
            transforms: Default::default(),
            profiles: Default::default(),
            policy: Default::default(),
            value: symphony_types::RequestValue::ONE,
        };
        let model = Model {
            spec,
            wanted_mrps: 0,
            first_home: String::new(),
            operation: symphony_types::OperationId::new(1),
            loaded_at: 2,
            home: Some(Home { cluster: "a".into(), subcluster: "s".into(), since: 3 }),
            moving: Some(Move { to: "b".into(), subcluster: "s".into(), since: 4, cause: Cause::Operator }),
            leftovers: Default::default(),
            unloading: false,
            unplaced: String::new(),
        };
        let clusters = ["a", "b"].map(|name| (name.to_owned(), cluster()));
        FederationState {
            applied_index: 9,
            plan: 5,
            clusters: clusters.into(),
            models: [("m".to_owned(), model)].into(),
            plans: [plan()].into(),
            replicas: [1].into(),
            ..FederationState::default()
        }
    }

    /// The move of model m.
    fn plan() -> FederatedPlan {
        let (from, to) = (Some("a".into()), "b".into());
        let planned = PlannedMove { model: "m".into(), from, to, progress: Progress::UnderWay };
        FederatedPlan { id: 4, cause: Cause::Operator, moves: vec![planned] }
    }

    #[track_caller]
    fn finds(invariant: Invariant, plant: impl FnOnce(&mut FederationState, &mut Model)) {
        let good = state();
        assert_eq!(check(&good).and(check_step(&good, &good)), Ok(()));
        let mut bad = state();
        let mut model = bad.models.remove("m").unwrap();
        plant(&mut bad, &mut model);
        bad.models.insert("m".into(), model);
        let found = check(&bad).and(check_step(&good, &bad)).unwrap_err();
        assert_eq!(found.invariant, invariant, "{found}");
    }

    #[test]
    fn planted_faults_are_found() {
        finds(Invariant::F3, |_, m| m.moving.as_mut().unwrap().to = "a".into());
        finds(Invariant::F3, |_, m| m.leftovers.extend([("a".to_owned(), 5)]));
        finds(Invariant::F3, |_, m| m.leftovers.extend([("b".to_owned(), 5)]));
        finds(Invariant::F3, |_, m| m.leftovers.extend([("z".to_owned(), 5)]));
        finds(Invariant::F3, |_, m| m.unloading = true);
        finds(Invariant::F3, |_, m| {
            m.moving = None;
            m.leftovers.insert("b".into(), 5);
        });
        finds(Invariant::S5, |state, _| state.plans.extend(std::iter::repeat_n(plan(), PLANS_KEPT)));
        finds(Invariant::S5, |state, _| {
            state.plans[0].moves = vec![plan().moves.remove(0); MOVES_PER_COMMAND_MAX + 1];
        });
        finds(Invariant::C1, |state, _| state.plans.push_back(FederatedPlan { id: 10, moves: vec![], ..plan() }));
        finds(Invariant::F3, |_, m| m.spec.name = "other".into());
        finds(Invariant::F3, |state, m| {
            // The home changes and the old copy is not remembered.
            m.home.as_mut().unwrap().cluster = "b".into();
            m.moving = None;
            state.plans.clear();
            state.plan += 1;
        });
        finds(Invariant::F2, |state, _| state.plan = 4);
        finds(Invariant::F2, |state, m| {
            // New requests go elsewhere although the version is unchanged.
            state.plans.clear();
            m.leftovers.insert("a".into(), 5);
            m.home.as_mut().unwrap().cluster = "b".into();
            m.moving = None;
        });
        finds(Invariant::F2, |state, _| state.plan = 10);
        finds(Invariant::C1, |state, _| state.applied_index = 1);
        finds(Invariant::C1, |_, m| m.home.as_mut().unwrap().since = 10);
        finds(Invariant::C1, |_, m| m.moving.as_mut().unwrap().since = 10);
        finds(Invariant::C1, |_, m| m.loaded_at = 10);
        finds(Invariant::C1, |state, m| {
            state.clusters.insert("c".into(), cluster());
            m.leftovers.insert("c".into(), 10);
        });
        finds(Invariant::C1, |state, _| state.replicas = [2].into());
        finds(Invariant::S5, |state, _| state.replicas.extend(1..=REPLICAS_MAX as u64 + 1));
        finds(Invariant::S5, |state, _| {
            let events =
                (0..=EVENTS_MAX as u64).map(|index| crate::state::Event { index, at_unix_ms: 0, what: String::new() });
            state.events = events.collect();
        });
    }
}
