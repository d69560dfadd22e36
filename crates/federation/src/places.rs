//! Places for models that have none: those of the highest value first, as long as clusters have memory and GPU time for them.

use std::collections::BTreeSet;

use symphony_federation_state::{Model as Federated, WantedMove};
use symphony_partitioner::{Budget, Change, Pin, Plan, solve, verify};

use crate::decide::cut;
use crate::problem::{Known, Place, Posed};

/// Moves of the partitioner's search per problem: nearly all models stay where they are, so there is little to search.
const SEARCH_MOVES: u64 = 100_000;
/// Models that are tried one by one when they do not fit together; the others are the first ones the next time.
const TRIED_MAX: usize = 128;

/// What became of the models without a place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Placed {
    pub(crate) moves: Vec<WantedMove>,
    /// Models without one, and why.
    pub(crate) unplaced: Vec<(String, String)>,
    /// Models that have had their turn in vain since all had one; empty as soon as all have.
    pub(crate) tried: BTreeSet<String>,
}

/// When a search ends.
pub(crate) struct Stop<'a> {
    /// Whether it is late for a plan of all models together: each by itself shall have time as well.
    pub(crate) together: &'a dyn Fn() -> bool,
    /// Whether time is up: then the rest waits. At least one model has its turn.
    pub(crate) all: &'a dyn Fn() -> bool,
}

/// Finds places, first for models that were not `tried` lately, those of the highest value first: so every model has its turn,
/// however many there are for which there is no place.
pub(crate) fn place(known: &Known<'_>, homeless: &[&str], tried: &BTreeSet<String>, stop: &Stop<'_>) -> Placed {
    let mut placed = Placed::default();
    let mut models: Vec<&Federated> = homeless.iter().filter_map(|name| known.state.models().get(*name)).collect();
    models.sort_by(|a, b| {
        let turn = |model: &Federated| tried.contains(&model.spec.name);
        (turn(a), b.spec.value, &a.spec.name).cmp(&(turn(b), a.spec.value, &b.spec.name))
    });
    let Some(mut posed) = known.pose() else {
        let none = |model: &&Federated| (model.spec.name.clone(), "no cluster answers that has a GPU".to_owned());
        placed.unplaced = models.iter().map(none).collect();
        return placed;
    };
    posed.problem.models.iter_mut().for_each(|model| {
        // Whoever is served stays where it is: a loss is no time for a more even plan.
        model.pin = at(&posed.in_force, &model.name).map(Pin::Part);
    });
    let anywhere = |model: &&Federated| allowed(&posed.places, model).len() == posed.places.len();
    let free: Vec<&Federated> = models.iter().copied().filter(anywhere).collect();
    if free.len() == models.len() && free.len() > 1 {
        // All together is the rule, and finds the most even places.
        let mut all = posed.clone();
        let new: Vec<_> = free.iter().filter_map(|model| known.posed(&all.problem, model, None)).collect();
        all.problem.models.extend(new);
        let whole = all.problem.models.len() == posed.problem.models.len() + free.len();
        if let Some(Ok(plan)) = whole.then(|| fits(&all, &free, stop.together)) {
            placed.moves = free.iter().filter_map(|model| wanted(&all, &plan, model)).collect();
            return placed;
        }
    }
    let mut waiting: BTreeSet<&str> = models.iter().map(|model| model.spec.name.as_str()).collect();
    waiting.retain(|name| !tried.contains(*name));
    for (turn, model) in models.into_iter().take(TRIED_MAX).enumerate() {
        if turn > 0 && (stop.all)() {
            break;
        }
        waiting.remove(model.spec.name.as_str());
        match one(known, &posed, model, &allowed(&posed.places, model), stop.all) {
            Ok((with, plan)) => {
                placed.moves.extend(wanted(&with, &plan, model));
                posed = with;
            }
            Err(reason) => placed.unplaced.push((model.spec.name.clone(), cut(reason))),
        }
    }
    if !waiting.is_empty() {
        placed.tried.clone_from(tried);
        placed.tried.extend(placed.unplaced.iter().map(|(name, _)| name.clone()));
    }
    placed
}

/// A place in one of the clusters allowed for a model, besides all that have theirs.
pub(crate) fn one(
    known: &Known<'_>,
    posed: &Posed,
    model: &Federated,
    allowed: &[usize],
    stop: &dyn Fn() -> bool,
) -> Result<(Posed, Plan), String> {
    // A free choice is one problem; a named cluster is one for each of its sub-clusters.
    let pins: Vec<Option<usize>> = match allowed.len() == posed.places.len() {
        true => vec![None],
        false => allowed.iter().copied().map(Some).collect(),
    };
    let mut why = "no cluster where it may be answers, or its last copy there is not gone yet".to_owned();
    for pin in pins {
        let mut with = posed.clone();
        with.problem.models.retain(|other| other.name != model.spec.name);
        let Some(own) = known.posed(&with.problem, model, pin) else {
            let kinds: Vec<_> = with.problem.kinds.iter().map(|kind| kind.name.as_str()).collect();
            return Err(format!("it has no profile for any GPU there is ({}); measure one", kinds.join(", ")));
        };
        with.problem.models.push(own);
        match fits(&with, &[model], stop) {
            Ok(plan) => {
                let part = at(&plan, &model.spec.name);
                with.problem.models.iter_mut().filter(|own| own.name == model.spec.name).for_each(|own| {
                    own.pin = part.map(Pin::Part);
                });
                return Ok((with, plan));
            }
            Err(reason) => why = reason,
        }
    }
    Err(why)
}

/// The parts where a model may begin.
fn allowed(places: &[Place], model: &Federated) -> Vec<usize> {
    let first =
        |place: &Place| model.first_home.is_empty() || model.home.is_some() || place.cluster == model.first_home;
    let free = |place: &Place| !model.leftovers.contains_key(&place.cluster);
    places.iter().enumerate().filter(|(_, place)| first(place) && free(place)).map(|(part, _)| part).collect()
}

/// A plan that keeps all limits, verified apart from who made it, and in which no GPU that one of `models` comes to is asked for
/// more time than it has.
fn fits(posed: &Posed, models: &[&Federated], stop: &dyn Fn() -> bool) -> Result<Plan, String> {
    let budget = Budget { moves: SEARCH_MOVES, seed: 1, should_stop: Some(stop) };
    let plan = solve(&posed.problem, None, &budget).map_err(|unsolved| unsolved.to_string())?;
    if let Some(violation) = verify(&posed.problem, None, &plan).first() {
        return Err(format!("the plan does not hold: {violation}"));
    }
    let comes = |part: &str| models.iter().any(|model| home_in(&plan, &model.spec.name) == Some(part));
    let short = plan.short_of_gpus().find(|(part, _)| comes(&part.name)).map(|(part, load)| (part.name.clone(), load));
    match short {
        Some((part, load)) => {
            Err(format!("the GPUs of {part} would be asked for {:.0} % of their time", load.min(1e6) * 100.0))
        }
        None => Ok(plan),
    }
}

/// The name of the part that a model is in.
fn home_in<'a>(plan: &'a Plan, model: &str) -> Option<&'a str> {
    plan.parts.iter().find(|part| part.models.iter().any(|own| own == model)).map(|part| part.name.as_str())
}

/// The part that a model is in.
fn at(plan: &Plan, model: &str) -> Option<usize> {
    plan.parts.iter().position(|part| part.models.iter().any(|own| own == model))
}

/// The move that brings a model where the plan has it.
pub(crate) fn wanted(posed: &Posed, plan: &Plan, model: &Federated) -> Option<WantedMove> {
    let Place { cluster, subcluster } = posed.places.get(at(plan, &model.spec.name)?)?.clone();
    Some(WantedMove {
        model: model.spec.name.clone(),
        loaded_at: model.loaded_at,
        from: model.home.as_ref().map(|home| home.cluster.clone()),
        to: cluster,
        subcluster,
    })
}

/// A more even division of all models, as the moves between clusters that lead there; those within a cluster are its own business.
/// `moved_bytes_max` bounds what they load (C_max of seed 000, equation 11).
pub(crate) fn balance(
    known: &Known<'_>,
    moved_bytes_max: Option<u64>,
    stop: &dyn Fn() -> bool,
) -> Result<(String, Vec<WantedMove>), String> {
    let posed = known.pose().filter(|posed| !posed.problem.models.is_empty());
    let posed = posed.ok_or_else(|| "no model has a home in a cluster that answers".to_owned())?;
    let budget = Budget { should_stop: Some(stop), ..Budget::for_models(posed.problem.models.len()) };
    let mut posed = posed;
    posed.problem.disruption_max = moved_bytes_max.map(|bytes| bytes as f64);
    posed.problem.models.iter_mut().for_each(|model| {
        let moving = known.state.models().get(&model.name).is_some_and(|model| model.moving.is_some());
        model.pin = if moving { at(&posed.in_force, &model.name).map(Pin::Part) } else { None };
    });
    let plan = solve(&posed.problem, Some(&posed.in_force), &budget).map_err(|unsolved| unsolved.to_string())?;
    if let Some(violation) = verify(&posed.problem, Some(&posed.in_force), &plan).first() {
        return Err(format!("the plan does not hold: {violation}"));
    }
    let change = Change::between(&posed.problem, &posed.in_force, &plan);
    let moved = change.moved_models.iter().filter_map(|moved| known.state.models().get(&moved.name));
    let moves = moved
        .filter_map(|model| wanted(&posed, &plan, model))
        .filter(|wanted| wanted.from.as_ref() != Some(&wanted.to) && known.state.movable(wanted).is_ok());
    let moves: Vec<_> = moves.take(symphony_federation_state::MOVES_PER_COMMAND_MAX).collect();
    let percent = |part: f64| part * 100.0;
    let before = change.before.as_ref().map_or(0.0, |balance| percent(balance.objective));
    let what = format!(
        "{} models would change clusters; imbalance {before:.1} % before, {:.1} % after",
        moves.len(),
        percent(change.after.objective)
    );
    Ok((what, moves))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use symphony_federation_state::Cause;

    use super::*;
    use crate::scene::Scene;

    /// GPUs take 6 ms for one request and about 1 ms for each of many: some 800 r/s.
    fn placed(scene: &Scene, rates: &[(&str, f64)]) -> Placed {
        let (views, state) = (scene.views(), &scene.state);
        let rates: BTreeMap<_, _> = rates.iter().map(|&(model, rps)| (model.to_owned(), rps)).collect();
        let known = Known { state, views: &views, rates: &rates };
        let homeless: Vec<_> = crate::decide::homeless(state).into_iter().collect();
        place(&known, &homeless, &BTreeSet::new(), &Stop { together: &|| false, all: &|| false })
    }

    fn targets(placed: &Placed) -> BTreeMap<&str, &str> {
        placed.moves.iter().map(|wanted| (wanted.model.as_str(), wanted.to.as_str())).collect()
    }

    #[test]
    fn models_are_spread_over_clusters_and_a_named_one_begins_where_it_was_said() {
        let mut scene = Scene::new(&["a", "b"]);
        scene.load("m", 300);
        scene.load("n", 300);
        let found = placed(&scene, &[]);
        assert_eq!(found.moves.len(), 2, "{found:?}");
        let homes: std::collections::BTreeSet<_> = targets(&found).into_values().collect();
        assert_eq!(homes.len(), 2, "{found:?}");
        scene.load_in("o", "b");
        assert_eq!(targets(&placed(&scene, &[]))["o"], "b");
    }

    #[test]
    fn after_a_loss_the_most_valuable_are_placed_and_the_others_are_told_why() {
        let mut scene = Scene::new(&["a", "b"]);
        for (model, value) in [("cheap", 1.0), ("dear", 4.0), ("middle", 2.0)] {
            scene.load_worth(model, 400, value);
            scene.settle(model, "a");
        }
        scene.load("stays", 10);
        scene.settle("stays", "b");
        scene.lose("a");
        // The two GPUs of b can do what two of the three ask for.
        let found = placed(&scene, &[("dear", 600.0), ("middle", 600.0), ("cheap", 600.0)]);
        assert_eq!(targets(&found).into_keys().collect::<Vec<_>>(), ["dear", "middle"], "{found:?}");
        assert!(found.moves.iter().all(|wanted| wanted.from.as_deref() == Some("a") && wanted.subcluster == "s"));
        let [(model, why)] = &found.unplaced[..] else { panic!("{found:?}") };
        assert!(model == "cheap" && why.contains("GPUs of b/s"), "{why}");
        scene.lose("b");
        assert_eq!(placed(&scene, &[]).unplaced.len(), 4, "nobody is left");
    }

    #[test]
    fn memory_that_others_take_is_not_given_twice() {
        let mut scene = Scene::new(&["a"]);
        scene.load("m", 1);
        assert_eq!(placed(&scene, &[]).moves.len(), 1);
        // A model that the cluster's own operators loaded fills the GPUs.
        scene.fill("a");
        let found = placed(&scene, &[]);
        assert!(found.moves.is_empty() && found.unplaced[0].1.contains("needs 2.0 MB on gpu"), "{found:?}");
    }

    #[test]
    fn every_model_has_its_turn_however_many_there_are_without_a_place() {
        let mut scene = Scene::new(&["a"]);
        for model in 0..TRIED_MAX {
            scene.load_worth(&format!("hopeless-{model}"), 1_000_000, 9.0);
        }
        scene.load("modest", 1);
        let (views, rates) = (scene.views(), BTreeMap::new());
        let known = Known { state: &scene.state, views: &views, rates: &rates };
        let homeless: Vec<_> = crate::decide::homeless(&scene.state).into_iter().collect();
        let all = |tried: &BTreeSet<String>, late: bool| {
            place(&known, &homeless, tried, &Stop { together: &|| late, all: &|| late })
        };
        let first = all(&BTreeSet::new(), false);
        assert_eq!((first.moves.len(), first.unplaced.len(), first.tried.len()), (0, TRIED_MAX, TRIED_MAX));
        let second = all(&first.tried, false);
        assert_eq!(targets(&second), [("modest", "a")].into());
        assert!(second.tried.is_empty(), "all have had their turn");
        // However short the time is, each round goes on where the last one ended.
        let (mut tried, mut rounds) = (BTreeSet::new(), 0);
        loop {
            let found = all(&tried, true);
            if !found.moves.is_empty() {
                break assert_eq!(targets(&found), [("modest", "a")].into());
            }
            rounds += 1;
            assert_eq!(found.tried.len(), rounds);
            tried = found.tried;
        }
        assert_eq!(rounds, TRIED_MAX);
    }

    #[test]
    fn a_served_model_beyond_a_limit_does_not_keep_others_from_their_places() {
        let find = |plant: &dyn Fn(&mut Scene), rates: &[(&str, f64)]| {
            let mut scene = Scene::new(&["a", "b"]);
            scene.load("served", 1);
            scene.settle("served", "a");
            plant(&mut scene);
            scene.load("new", 1);
            let found = placed(&scene, rates);
            assert_eq!(targets(&found)["new"], "b", "{found:?}");
        };
        // All of a's GPUs are taken, so that only b has room.
        find(&|scene| scene.fill("a"), &[]);
        find(&|scene| scene.shrink("a", 1), &[]);
        find(&|scene| scene.new_kind("a"), &[]);
        find(&|scene| scene.fill("a"), &[("served", 1e12)]);
        // A model that fits on the GPUs of a is larger than those of b.
        let mut scene = Scene::new(&["a", "b"]);
        scene.load_large("served");
        scene.settle("served", "a");
        scene.shrink("b", 4 << 20);
        scene.load("new", 1);
        assert_eq!(targets(&placed(&scene, &[]))["new"], "b");
        // One that is not served yet as well.
        scene.load_large("large");
        scene.forget("served", "a");
        let since = scene.state.models()["served"].home.as_ref().unwrap().since;
        scene.done(&symphony_federation_state::Command::CopyGone {
            model: "served".into(),
            cluster: "a".into(),
            since,
        });
        let found = placed(&scene, &[]);
        let large = ["large", "served"].map(|model| targets(&found).get(model).copied());
        assert_eq!(large.iter().filter(|to| **to == Some("a")).count(), 1, "one of the two fits there: {found:?}");
        // Batches of others and of the federation's models take turns on a GPU.
        let mut scene = Scene::new(&["a"]);
        scene.load("served", 1);
        scene.settle("served", "a");
        scene.fill_but("a", 3 << 20);
        scene.load("new", 1);
        assert_eq!(targets(&placed(&scene, &[])), [("new", "a")].into());
    }

    #[test]
    fn a_more_even_division_moves_models_between_clusters_only_if_it_is_better() {
        let mut scene = Scene::new(&["a", "b"]);
        for model in ["m", "n", "o", "p"] {
            scene.load(model, 200);
            scene.settle(model, "a");
        }
        let balanced = |scene: &Scene| {
            let (views, rates) = (scene.views(), BTreeMap::new());
            balance(&Known { state: &scene.state, views: &views, rates: &rates }, None, &|| false).unwrap().1
        };
        let moves = balanced(&scene);
        assert!(moves.len() == 2 && moves.iter().all(|wanted| wanted.to == "b"), "{moves:?}");
        for wanted in moves {
            scene.begin(&wanted.model, "b", Cause::Balance);
            scene.arrive(&wanted.model, "b");
        }
        assert_eq!(balanced(&scene), [], "C4: solving again moves nothing");
    }
}
