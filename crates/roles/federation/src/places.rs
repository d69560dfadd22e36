//! Finds places for models without one: first those of the highest value, while clusters have memory and GPU time for
//! them.

use std::collections::{BTreeMap, BTreeSet};

use symphony_federation_state::{HomeMove, MOVES_AT_ONCE_MAX, Model as Federated};
use symphony_partitioner::{Budget, Change, Model, PartitionPlan, Pin, adopt, solve, verify};

use crate::decide::cut;
use crate::problem::{FederationProblem, Known, SubclusterRef};

/// Moves of the partitioner's search per problem: nearly all models stay where they are, so the search is short.
const SEARCH_MOVES: u64 = 100_000;
/// Models tried one by one when they do not fit together; the next round begins with the others.
const TRIED_MAX: usize = 128;

/// The result for models without a place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Placed {
    pub(crate) moves: Vec<HomeMove>,
    /// Models that found no place, and why.
    pub(crate) unplaced: Vec<(String, String)>,
    /// Models tried without success in the current round over all of them; empty at the end of a round.
    pub(crate) tried: BTreeSet<String>,
}

/// The time limits of a search.
pub(crate) struct Stop<'a> {
    /// Whether it is too late for a joint plan of all models: time must remain for each one alone, or for each move.
    pub(crate) together: &'a dyn Fn() -> bool,
    /// Whether time is up; the remaining models wait. At least one model is tried.
    pub(crate) all: &'a dyn Fn() -> bool,
}

/// Finds places: first for models that were not `tried` recently, and among them in the order of value. So every model
/// is tried in turn, however many find no place.
pub(crate) fn place(known: &Known<'_>, without_home: &[&str], tried: &BTreeSet<String>, stop: &Stop<'_>) -> Placed {
    let mut placed = Placed::default();
    let mut models: Vec<&Federated> = without_home.iter().filter_map(|name| known.state.models().get(*name)).collect();
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
        // A served model stays where it is: a loss would cost more than an even plan gains.
        model.pin = at(&posed.in_force, &model.name).map(Pin::Part);
    });
    let anywhere = |model: &&Federated| allowed(&posed.places, model).len() == posed.places.len();
    let free: Vec<&Federated> = models.iter().copied().filter(anywhere).collect();
    if free.len() == models.len() && free.len() > 1 {
        // First a joint plan of all, which is the usual case and the most even.
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

/// A place for one model in an allowed cluster, beside all placed models.
pub(crate) fn one(
    known: &Known<'_>,
    posed: &FederationProblem,
    model: &Federated,
    allowed: &[usize],
    stop: &dyn Fn() -> bool,
) -> Result<(FederationProblem, PartitionPlan), String> {
    // A free choice is one problem; a named cluster is one problem per sub-cluster.
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

/// The parts where a model may be placed.
fn allowed(places: &[SubclusterRef], model: &Federated) -> Vec<usize> {
    let first = |place: &SubclusterRef| {
        model.first_home.is_empty() || model.home.is_some() || place.cluster == model.first_home
    };
    let free = |place: &SubclusterRef| !model.leftovers.contains_key(&place.cluster);
    places.iter().enumerate().filter(|(_, place)| first(place) && free(place)).map(|(part, _)| part).collect()
}

/// A plan within all limits, verified independently of the solver, in which no GPU that runs one of `models` is asked
/// for more time than it has.
fn fits(posed: &FederationProblem, models: &[&Federated], stop: &dyn Fn() -> bool) -> Result<PartitionPlan, String> {
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

/// The name of a model's part.
fn home_in<'a>(plan: &'a PartitionPlan, model: &str) -> Option<&'a str> {
    plan.parts.iter().find(|part| part.models.iter().any(|own| own == model)).map(|part| part.name.as_str())
}

/// The part of a model.
fn at(plan: &PartitionPlan, model: &str) -> Option<usize> {
    plan.parts.iter().position(|part| part.models.iter().any(|own| own == model))
}

/// The move that takes a model to its place in the plan.
pub(crate) fn wanted(posed: &FederationProblem, plan: &PartitionPlan, model: &Federated) -> Option<HomeMove> {
    let SubclusterRef { cluster, subcluster } = posed.places.get(at(plan, &model.spec.name)?)?.clone();
    Some(HomeMove {
        model: model.spec.name.clone(),
        loaded_at: model.loaded_at,
        from: model.home.as_ref().map(|home| home.cluster.clone()),
        to: cluster,
        subcluster,
    })
}

/// A more even division of all models.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Division {
    /// A description.
    pub(crate) what: String,
    /// The moves that can begin now.
    pub(crate) moves: Vec<HomeMove>,
}

/// The part of a plan that can begin now.
struct Part {
    moves: Vec<HomeMove>,
    /// Objective of the plan that these moves lead to.
    objective: f64,
    /// Number of moves of the plan that do not begin.
    waiting: usize,
}

/// Looks for a more even division. `moved_bytes_max` bounds the bytes that it loads (C_max of the Symphony paper,
/// equation 11).
pub(crate) fn balance(known: &Known<'_>, moved_bytes_max: Option<u64>, stop: &Stop<'_>) -> Result<Division, String> {
    let posed = known.pose().filter(|posed| !posed.problem.models.is_empty());
    let mut posed = posed.ok_or_else(|| "no model has a home in a cluster that answers".to_owned())?;
    let budget = Budget { should_stop: Some(stop.together), ..Budget::for_models(posed.problem.models.len()) };
    posed.problem.disruption_max = moved_bytes_max.map(|bytes| bytes as f64);
    posed.problem.models.iter_mut().for_each(|model| {
        let stays = known.state.models().get(&model.name).is_some_and(|model| stays(known, model));
        model.pin = if stays { at(&posed.in_force, &model.name).map(Pin::Part) } else { None };
    });
    let plan = solve(&posed.problem, Some(&posed.in_force), &budget).map_err(|unsolved| unsolved.to_string())?;
    if let Some(violation) = verify(&posed.problem, Some(&posed.in_force), &plan).first() {
        return Err(format!("the plan does not hold: {violation}"));
    }
    let change = Change::between(&posed.problem, &posed.in_force, &plan);
    let Part { moves, objective, waiting } = part_of_plan(known, &posed, &plan, &change, stop.all);
    let percent = |part: f64| part * 100.0;
    let before = change.before.as_ref().map_or(0.0, |balance| percent(balance.objective));
    let mut what = format!(
        "{} models would change clusters; imbalance {before:.1} % before, {:.1} % after",
        moves.len(),
        percent(objective)
    );
    if waiting > 0 {
        let at_last = percent(change.after.objective);
        what = format!("{what}; {waiting} more, which would bring it to {at_last:.1} %, cannot begin yet");
    }
    Ok(Division { what, moves })
}

/// Whether a balance leaves the model alone: it is moving, or a cluster that answers still has an old copy of it. It
/// could not move to that one, and a plan that needs this move would take the place of one that can begin. An old copy
/// in a lost cluster does not matter: nothing moves there.
fn stays(known: &Known<'_>, model: &Federated) -> bool {
    model.moving.is_some() || model.leftovers.keys().any(|cluster| known.views.contains_key(cluster))
}

/// The moves towards a plan that can begin now, and the objective after them. The plan was verified as a whole, but
/// some of its moves do not begin: those within clusters, those without room yet, and those beyond the limit of
/// concurrent moves. So the moves that begin are verified by themselves, as a plan in which everything else stays.
/// They make nothing worse, and are worth their cost even if the others never follow.
fn part_of_plan(
    known: &Known<'_>,
    posed: &FederationProblem,
    plan: &PartitionPlan,
    change: &Change,
    stop: &dyn Fn() -> bool,
) -> Part {
    let between = between(known, posed, plan, change);
    let before = change.before.as_ref().map_or(f64::INFINITY, |balance| balance.objective);
    let most = MOVES_AT_ONCE_MAX.saturating_sub(known.state.moves_under_way());
    let mut room = Room::of(known, posed);
    let may_begin = |room: &mut Room<'_>, wanted: &&HomeMove| known.state.movable(wanted).is_ok() && room.takes(wanted);
    let fitting: Vec<_> = between.iter().filter(|wanted| may_begin(&mut room, wanted)).cloned().collect();
    let all_may = fitting.len() == change.moved_models.len();
    if all_may && fitting.len() <= most {
        return Part { waiting: 0, moves: fitting, objective: change.after.objective };
    }
    let enough = if all_may { before } else { before * (1.0 - posed.problem.steadiness.gain_min_share) };
    let first = fitting[..most.min(fitting.len())].to_vec();
    let (mut moves, mut objective) = match reached(posed, &first).filter(|reached| *reached <= before) {
        Some(reached) => (first, reached),
        None => (Vec::new(), before),
    };
    if moves.is_empty() {
        // One by one, those that do not worsen the objective.
        let mut room = Room::of(known, posed);
        for wanted in &between {
            if moves.len() >= most || stop() {
                break;
            }
            if !may_begin(&mut room, &wanted) {
                continue;
            }
            moves.push(wanted.clone());
            match reached(posed, &moves).filter(|reached| *reached <= objective) {
                Some(reached) => objective = reached,
                None => {
                    moves.pop();
                    room.gives_back(wanted);
                }
            }
        }
    }
    if objective > enough {
        (moves, objective) = (Vec::new(), before);
    }
    Part { waiting: between.len() - moves.len(), moves, objective }
}

/// The plan's moves between clusters; those within a cluster are the cluster's business.
fn between(known: &Known<'_>, posed: &FederationProblem, plan: &PartitionPlan, change: &Change) -> Vec<HomeMove> {
    let moved = change.moved_models.iter().filter_map(|moved| known.state.models().get(&moved.name));
    let moves = moved.filter_map(|model| wanted(posed, plan, model));
    moves.filter(|wanted| wanted.from.as_ref() != Some(&wanted.to)).collect()
}

/// The objective if only these moves are made; none if that breaks a limit.
fn reached(posed: &FederationProblem, moves: &[HomeMove]) -> Option<f64> {
    let comes: BTreeMap<&str, usize> =
        moves.iter().filter_map(|wanted| Some((wanted.model.as_str(), posed.part_of(wanted)?))).collect();
    let homes: BTreeMap<&str, usize> = homes(&posed.in_force).collect();
    let mut problem = posed.problem.clone();
    let mut division = Vec::new();
    for model in &mut problem.models {
        let part = comes.get(model.name.as_str()).or_else(|| homes.get(model.name.as_str())).copied()?;
        model.pin = Some(Pin::Part(part));
        division.push(part);
    }
    let plan = adopt(&problem, Some(&posed.in_force), &division).ok()?;
    let holds = verify(&problem, Some(&posed.in_force), &plan).is_empty();
    holds.then_some(plan.balance.objective)
}

/// The part of every model in a plan.
fn homes(plan: &PartitionPlan) -> impl Iterator<Item = (&str, usize)> {
    plan.parts.iter().enumerate().flat_map(|(at, part)| part.models.iter().map(move |model| (model.as_str(), at)))
}

/// Memory for both copies of moving models, since an old copy stays until the new one is ready: whichever moves end,
/// in whatever order, all copies fit.
struct Room<'a> {
    posed: &'a FederationProblem,
    /// Models that take memory in each part.
    there: Vec<Vec<&'a Model>>,
}

impl<'a> Room<'a> {
    fn of(known: &Known<'_>, posed: &'a FederationProblem) -> Self {
        let homes: BTreeMap<&str, usize> = homes(&posed.in_force).collect();
        let mut there = vec![Vec::new(); posed.places.len()];
        for model in &posed.problem.models {
            if let Some(&part) = homes.get(model.name.as_str()) {
                there[part].push(model);
            }
            // A moving model counts at its origin and at its destination.
            let federated = known.state.models().get(&model.name).filter(|federated| federated.moving.is_some());
            let old = federated.and_then(|federated| federated.home.as_ref()).and_then(|home| {
                posed.places.iter().position(|at| at.cluster == home.cluster && at.subcluster == home.subcluster)
            });
            if let Some(old) = old {
                there[old].push(model);
            }
        }
        Self { posed, there }
    }

    /// Whether there is room for the model at its destination; if so, the room is taken.
    fn takes(&mut self, wanted: &HomeMove) -> bool {
        let (posed, problem) = (self.posed, &self.posed.problem);
        let model = problem.models.iter().find(|model| model.name == wanted.model);
        let (Some(model), Some(part)) = (model, posed.part_of(wanted)) else { return false };
        let all = || self.there[part].iter().copied().chain([model]);
        let fits = problem.parts[part].kinds.iter().all(|own| {
            let needs = all().filter_map(|model| model.needs[own.kind].as_ref());
            let (static_bytes, dynamic) = needs.fold((0_u64, 0), |(static_bytes, dynamic), need| {
                (static_bytes.saturating_add(need.static_memory_bytes), need.dynamic_memory_bytes.max(dynamic))
            });
            static_bytes.saturating_add(dynamic) <= own.memory_max_bytes
        });
        if fits {
            self.there[part].push(model);
        }
        fits
    }

    /// Undoes the last `takes`.
    fn gives_back(&mut self, wanted: &HomeMove) {
        if let Some(part) = self.posed.part_of(wanted) {
            self.there[part].pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use symphony_federation_state::Cause;

    use super::*;
    use crate::scene::Scene;

    const NEVER: Stop<'_> = Stop { together: &|| false, all: &|| false };

    /// A GPU takes 6 ms for one request and about 1 ms for each of many: some 800 r/s.
    fn placed(scene: &Scene, rates: &[(&str, f64)]) -> Placed {
        let (views, state) = (scene.views(), &scene.state);
        let rates: BTreeMap<_, _> = rates.iter().map(|&(model, rps)| (model.to_owned(), rps)).collect();
        let known = Known { state, views: &views, rates: &rates };
        let without_home: Vec<_> = crate::decide::without_home(state).into_iter().collect();
        place(&known, &without_home, &BTreeSet::new(), &NEVER)
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
        // The two GPUs of b can serve two of the three models.
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
        // A model of the cluster's own operators fills the GPUs.
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
        let without_home: Vec<_> = crate::decide::without_home(&scene.state).into_iter().collect();
        let all = |tried: &BTreeSet<String>, late: bool| {
            place(&known, &without_home, tried, &Stop { together: &|| late, all: &|| late })
        };
        let first = all(&BTreeSet::new(), false);
        assert_eq!((first.moves.len(), first.unplaced.len(), first.tried.len()), (0, TRIED_MAX, TRIED_MAX));
        let second = all(&first.tried, false);
        assert_eq!(targets(&second), [("modest", "a")].into());
        assert!(second.tried.is_empty(), "all have had their turn");
        // However short the time, each round continues where the last one ended.
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
        // All GPUs of a are taken, so only b has room.
        find(&|scene| scene.fill("a"), &[]);
        find(&|scene| scene.shrink("a", 1), &[]);
        find(&|scene| scene.new_kind("a"), &[]);
        find(&|scene| scene.fill("a"), &[("served", 1e12)]);
        // A model that fits the GPUs of a is too large for those of b.
        let mut scene = Scene::new(&["a", "b"]);
        scene.load_large("served");
        scene.settle("served", "a");
        scene.shrink("b", 4 << 20);
        scene.load("new", 1);
        assert_eq!(targets(&placed(&scene, &[]))["new"], "b");
        // The same for a model that is not served yet.
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
        // Batches of other models and of the federation's take turns on a GPU.
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
            let known = Known { state: &scene.state, views: &views, rates: &rates };
            balance(&known, None, &NEVER).unwrap().moves
        };
        let moves = balanced(&scene);
        assert!(moves.len() == 2 && moves.iter().all(|wanted| wanted.to == "b"), "{moves:?}");
        for wanted in moves {
            scene.begin(&wanted.model, "b", Cause::Balance);
            scene.arrive(&wanted.model, "b");
        }
        assert_eq!(balanced(&scene), [], "C4: solving again moves nothing");
    }
    /// `a` has more load than `b`, and balance takes one model moving each way.
    fn crossed(scene: &mut Scene, bytes: u64) -> BTreeMap<String, f64> {
        for (model, cluster) in [("m", "a"), ("n", "a"), ("o", "b"), ("p", "b")] {
            scene.load_sized(model, bytes);
            scene.settle(model, cluster);
        }
        let rates = [("m", 50.0), ("n", 50.0), ("o", 30.0), ("p", 30.0)];
        rates.into_iter().map(|(model, rps)| (model.to_owned(), rps)).collect()
    }

    fn divided(scene: &Scene, rates: &BTreeMap<String, f64>) -> Division {
        let views = scene.views();
        balance(&Known { state: &scene.state, views: &views, rates }, None, &NEVER).unwrap()
    }

    #[test]
    fn half_of_a_swap_does_not_begin_without_the_other_half() {
        let mut scene = Scene::new(&["a", "b"]);
        let rates = crossed(&mut scene, 1 << 20);
        assert_eq!(divided(&scene, &rates).moves.len(), 2, "one goes each way");
        // The GPUs of a have room for two models and a batch, and none for a third one before one of the two has left.
        scene.fill_but("a", 3 << 20);
        let Division { what, moves } = divided(&scene, &rates);
        assert_eq!(moves, [], "one model fewer in a would be 50 to 110 requests, after 100 to 60");
        assert!(what.starts_with("0 models") && what.contains("2 more"), "{what}");
    }

    #[test]
    fn a_model_whose_old_copy_is_in_a_cluster_that_answers_stays_and_another_one_moves() {
        // One model may move. At best it is m: without it a has half of the load.
        let moved = |scene: &Scene| {
            let (views, rates) = (scene.views(), BTreeMap::new());
            let known = Known { state: &scene.state, views: &views, rates: &rates };
            let moves = balance(&known, Some(1 << 20), &NEVER).unwrap().moves;
            moves.into_iter().map(|wanted| (wanted.model, wanted.to)).collect::<Vec<_>>()
        };
        let all_in_a = |clusters: &[&str]| {
            let mut scene = Scene::new(clusters);
            for (model, wanted_rps) in [("m", 50), ("n", 30), ("o", 20)] {
                scene.load(model, wanted_rps);
                scene.settle(model, "a");
            }
            scene
        };
        let leave_copy_of_m = |scene: &mut Scene, cluster: &str| {
            scene.settle("m", cluster);
            let since = scene.begin("m", "a", Cause::Operator);
            scene.copy("m", "a", Some(Ok(())));
            scene.done(&symphony_federation_state::Command::Loaded { model: "m".into(), since });
        };
        let to_b = |model: &str| vec![(model.to_owned(), "b".to_owned())];
        let mut scene = all_in_a(&["a", "b"]);
        assert_eq!(moved(&scene), to_b("m"));
        leave_copy_of_m(&mut scene, "b");
        assert_eq!(moved(&scene), to_b("n"), "m cannot go back to b yet");
        // It lasts until the lost cluster is back, and nothing moves there.
        let mut scene = all_in_a(&["a", "b", "c"]);
        leave_copy_of_m(&mut scene, "c");
        scene.lose("c");
        assert_eq!(moved(&scene), to_b("m"), "c is lost");
    }

    #[test]
    fn what_moves_has_room_beside_what_has_not_left_yet() {
        // Two of them fill a GPU, and a third one does not fit, however even the swap would be.
        let mut scene = Scene::new(&["a", "b"]);
        let rates = crossed(&mut scene, 400 << 20);
        let Division { what, moves } = divided(&scene, &rates);
        assert!(moves.is_empty() && what.contains("2 more"), "{what}: {moves:?}");
    }

    #[test]
    fn no_more_begin_than_may_be_under_way_and_those_that_do_all_begin() {
        const UNDER_WAY: usize = 10;
        let mut scene = Scene::new(&["a", "b"]);
        for model in 0..3 * MOVES_AT_ONCE_MAX {
            scene.load(&format!("m{model:03}"), 1);
            scene.settle(&format!("m{model:03}"), "a");
        }
        for model in 0..UNDER_WAY {
            scene.begin(&format!("m{model:03}"), "b", Cause::Operator);
        }
        let Division { what, moves } = divided(&scene, &BTreeMap::new());
        assert_eq!(moves.len(), MOVES_AT_ONCE_MAX - UNDER_WAY, "{what}");
        scene.done(&symphony_federation_state::Command::BeginMoves { moves, cause: Cause::Balance });
        assert_eq!(scene.state.moves_under_way(), MOVES_AT_ONCE_MAX);
    }

    #[test]
    fn of_a_plan_that_cannot_begin_as_a_whole_those_moves_do_that_help_by_themselves() {
        let mut scene = Scene::new(&["a", "b", "c", "d"]);
        let mut rates = crossed(&mut scene, 1 << 20);
        for (model, cluster, rps) in [("q", "c", 90.0), ("r", "c", 20.0), ("s", "d", 50.0)] {
            scene.load(model, 0);
            scene.settle(model, cluster);
            rates.insert(model.to_owned(), rps);
        }
        let views = scene.views();
        let known = Known { state: &scene.state, views: &views, rates: &rates };
        let mut posed = known.pose().unwrap();
        posed.problem.models.iter_mut().for_each(|model| model.pin = None);
        // m and o change places, and r leaves c, which has the most load; but o does not begin.
        let division = |moves: &[(&str, usize)]| {
            let home = |name: &str| homes(&posed.in_force).find(|(model, _)| *model == name).unwrap().1;
            let goes = |name: &str| moves.iter().find(|(model, _)| *model == name).map(|(_, part)| *part);
            let models = posed.problem.models.iter();
            let parts: Vec<_> = models.map(|model| goes(&model.name).unwrap_or_else(|| home(&model.name))).collect();
            adopt(&posed.problem, None, &parts).unwrap()
        };
        let plan = division(&[("m", 1), ("o", 0), ("r", 3)]);
        let change = Change::between(&posed.problem, &posed.in_force, &plan);
        assert_eq!(part_of_plan(&known, &posed, &plan, &change, &|| false).moves.len(), 3);

        let mut state = scene.state.clone();
        let loaded_at = state.models()["o"].loaded_at;
        let away =
            HomeMove { model: "o".into(), loaded_at, from: Some("b".into()), to: "d".into(), subcluster: "s".into() };
        let begin = symphony_federation_state::Command::BeginMoves { moves: vec![away], cause: Cause::Operator };
        state.apply(state.applied_index() + 1, &begin).unwrap();
        let known = Known { state: &state, ..known };
        let part = part_of_plan(&known, &posed, &plan, &change, &|| false);
        let names: Vec<_> = part.moves.iter().map(|wanted| wanted.model.as_str()).collect();
        assert_eq!((names, part.waiting), (vec!["r"], 2));
        assert!(part.objective < change.before.unwrap().objective);
    }
}
