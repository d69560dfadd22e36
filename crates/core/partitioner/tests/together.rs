//! Models and processes with their GPUs, planned together: they come to rest, move whole, and leave nobody alone.

use proptest::prelude::*;
use symphony_partitioner::{Arranged, Change, PartitionPlan, Problem, Unit, UnitGpu, Violation, arrange};
use symphony_types::Nanos;

use crate::problems::{MB, alike, model, need, small};

/// A unit of this many GPUs of a kind.
fn unit(name: &str, part: usize, kind: usize, gpus: usize) -> Unit {
    let gpu = |at: usize| UnitGpu { name: format!("{name}-{at}"), kind, memory_bytes: 8_000 * MB };
    Unit { part, works: true, gpus: (0..gpus).map(gpu).collect() }
}

/// The plan in force: each model in the part that is named, in the problem's order.
fn in_force(problem: &Problem, homes: &[usize]) -> PartitionPlan {
    let mut plan = PartitionPlan::default();
    for (at, part) in problem.parts.iter().enumerate() {
        let here = problem.models.iter().zip(homes).filter(|&(_, &home)| home == at);
        let models = here.map(|(model, _)| model.name.clone()).collect();
        plan.parts.push(symphony_partitioner::PartPlan { name: part.name.clone(), models, ..Default::default() });
    }
    plan
}

/// The units once they are where they belong, and the plan with them.
fn adopted(units: &[Unit], arranged: &Arranged) -> (Vec<Unit>, PartitionPlan) {
    let moved = units.iter().zip(&arranged.places).map(|(unit, &part)| Unit { part, ..unit.clone() });
    let mut plan = arranged.plan.clone();
    // The next epoch knows names only, and has an account of C_max of its own.
    (plan.problem, plan.disruption_spent) = (PartitionPlan::default().problem, 0.0);
    for aside in &arranged.unplaceable {
        plan.parts[aside.part.unwrap()].models.push(aside.model.name.clone());
    }
    (moved.collect(), plan)
}

fn models_moved(base: &Problem, before: &PartitionPlan, after: &Arranged) -> usize {
    Change::between(base, before, &after.plan).moved_models.len()
}

/// Two or more parts, one or two kinds of GPU, units of one to four GPUs, loads from nothing to far too much.
fn any_scene() -> impl Strategy<Value = (Problem, Vec<Unit>, Vec<usize>)> {
    let models = proptest::collection::vec((0.0_f64..1.0, 1_u64..400, 0_u64..300, 0_usize..8, 0_u8..20), 1..9);
    let units = proptest::collection::vec((0_usize..8, 1_usize..5, 0_u8..8), 2..14);
    (2_usize..5, any::<bool>(), models, units).prop_map(|(parts, two_kinds, models, more)| {
        let of = |(at, &(rate, held, dynamic, _, sort)): (usize, &(f64, u64, u64, usize, u8))| {
            // A few are asked for much more than the others: more than a part has GPUs for.
            let mut of = model(&format!("m{at}"), 9_000.0 * rate.powi(4), held, dynamic);
            of.move_cost = (held * MB) as f64;
            of.needs = vec![need(1.0, 5.0, held, dynamic), need(3.0, 9.0, held + 5, dynamic / 2)];
            of.needs.truncate(1 + usize::from(two_kinds));
            if sort == 0 {
                of.slo = Nanos::from_millis(3);
            }
            of
        };
        let mut base = alike(parts, 0, 1e6, 0, models.iter().enumerate().map(of).collect());
        if two_kinds {
            let second = symphony_partitioner::GpuKind { name: "t4".to_owned(), memory_bytes: 16_384 * MB };
            base.kinds.push(second);
        }
        let mut units: Vec<Unit> = (0..parts).map(|part| unit(&format!("u{part}"), part, 0, 1)).collect();
        for (at, (part, gpus, sort)) in more.into_iter().enumerate() {
            let kind = usize::from(two_kinds && sort == 1);
            let mut of = unit(&format!("v{at}"), part % parts, kind, gpus);
            of.works = sort != 2;
            units.push(of);
        }
        let homes = models.iter().map(|&(_, _, _, home, _)| home % parts).collect();
        (base, units, homes)
    })
}

/// Whether a unit stayed in its part and had a kind of GPU that no other working unit of those that stayed there had.
fn was_last(units: &[Unit], places: &[usize], at: usize) -> bool {
    let part = units[at].part;
    let stays = |other: &usize| units[*other].works && units[*other].part == part && places[*other] == part;
    let has = |other: usize, kind: usize| units[other].gpus.iter().any(|gpu| gpu.kind == kind);
    let others: Vec<usize> = (0..units.len()).filter(|other| *other != at && stays(other)).collect();
    stays(&at) && units[at].gpus.iter().any(|gpu| !others.iter().any(|&other| has(other, gpu.kind)))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    /// From wherever a cluster is, one epoch leads to where the next one changes nothing; and what leads there is
    /// sound. Only a unit that had to stay, since its part had no other one that held its models, may follow when
    /// others have come; then all rests again.
    #[test]
    fn one_epoch_comes_to_rest_but_for_units_that_their_parts_could_not_spare((base, units, homes) in any_scene()) {
        let before = in_force(&base, &homes);
        let Ok(first) = arrange(&base, &units, &before, &small()) else { return Ok(()) };
        prop_assert_eq!(first.verify(&units, &before), []);
        let (mut was, mut arranged) = (units, first);
        for _ in 0..=was.len() {
            let (now, plan) = adopted(&was, &arranged);
            let next = arrange(&base, &now, &plan, &small()).unwrap();
            let moved: Vec<usize> = (0..now.len()).filter(|&at| next.places[at] != now[at].part).collect();
            if moved.is_empty() {
                prop_assert_eq!(models_moved(&base, &plan, &next), 0);
                return Ok(());
            }
            prop_assert!(moved.iter().any(|&at| was_last(&was, &arranged.places, at)), "{moved:?} of {arranged:?}");
            (was, arranged) = (now, next);
        }
        prop_assert!(false, "no rest");
    }

    /// Under C_max every epoch spends no more, and they come to rest all the same.
    #[test]
    fn bounded_epochs_keep_the_bound_and_come_to_rest((mut base, units, homes) in any_scene(), share in 0.0_f64..0.5) {
        let all: f64 = base.models.iter().map(|model| model.move_cost).sum();
        base.disruption_max = Some(share * all);
        let (mut units, mut plan) = (units, in_force(&base, &homes));
        for epoch in 0..40 {
            let Ok(next) = arrange(&base, &units, &plan, &small()) else { return Ok(()) };
            prop_assert_eq!(next.verify(&units, &plan), []);
            let change = Change::between(&base, &plan, &next.plan);
            prop_assert!(change.cost + next.units_cost <= share * all * (1.0 + 1e-6));
            let rests = change.moved_models.is_empty() && units.iter().map(|u| u.part).eq(next.places.iter().copied());
            if rests {
                return Ok(());
            }
            prop_assert!(epoch < 30, "no rest after {epoch} epochs");
            (units, plan) = adopted(&units, &next);
        }
    }
}

/// A model that needs two and a half GPUs, and three that need little; two GPUs on either side.
fn hot() -> (Problem, Vec<Unit>, PartitionPlan) {
    let mut models: Vec<_> = ["hot", "a", "b", "c"].iter().map(|name| model(name, 10.0, 100, 50)).collect();
    for of in &mut models {
        // 100 requests per second and GPU, one by one.
        of.needs = vec![need(10.0, 0.0, 100, 50)];
        of.slo = Nanos::from_millis(19);
    }
    models[0].rate_rps = 250.0;
    // As much as the others together: memory is even.
    models[0].needs = vec![need(10.0, 0.0, 300, 50)];
    let base = alike(2, 0, 1e6, 0, models);
    let units = (0..4).map(|at| unit(&format!("u{at}"), at / 2, 0, 1)).collect();
    let plan = in_force(&base, &[0, 1, 1, 1]);
    (base, units, plan)
}

#[test]
fn a_gpu_goes_to_the_model_that_needs_it_and_no_model_moves_for_that() {
    let (base, units, plan) = hot();
    let next = arrange(&base, &units, &plan, &small()).unwrap();
    assert_eq!(next.places, [0, 0, 1, 0], "the last of those that are equally good");
    assert_eq!(models_moved(&base, &plan, &next), 0);
    assert!(next.plan.parts[0].load.unwrap() < 0.9, "{:?}", next.plan.parts[0]);
    assert_eq!(next.verify(&units, &plan), []);
}

#[test]
fn a_part_keeps_its_last_unit_and_what_does_not_fit_or_does_not_work_stays() {
    let (mut base, mut units, plan) = hot();
    base.models[0].rate_rps = 900.0;
    let places = |base: &Problem, units: &[Unit]| arrange(base, units, &plan, &small()).unwrap().places;
    assert_eq!(places(&base, &units), [0, 0, 1, 0], "one is left, however much is asked for");
    units[3].works = false;
    assert_eq!(places(&base, &units), [0, 0, 1, 1]);
    units[3].works = true;
    for at in [2, 3] {
        units[at].gpus[0].memory_bytes = 450 * MB;
    }
    base.models[0].needs = vec![need(10.0, 0.0, 500, 50)];
    assert_eq!(places(&base, &units), [0, 0, 1, 1], "no room for the hot model");
}

#[test]
fn units_move_whole() {
    let (mut base, _, plan) = hot();
    base.models[0].rate_rps = 450.0;
    let units: Vec<Unit> = (0..4).map(|at| unit(&format!("u{at}"), at / 2, 0, 2)).collect();
    let next = arrange(&base, &units, &plan, &small()).unwrap();
    assert_eq!(next.places, [0, 0, 1, 0]);
    let names = |part: usize| next.plan.parts[part].gpus[0].names.join(" ");
    assert_eq!((names(0).as_str(), names(1).as_str()), ("u0-0 u0-1 u1-0 u1-1 u3-0 u3-1", "u2-0 u2-1"));
}

#[test]
fn a_model_that_fits_nowhere_is_named_and_the_others_are_planned() {
    let (mut base, units, _) = hot();
    base.models[0].rate_rps = 10.0;
    base.models[3].slo = Nanos::from_millis(5);
    let plan = in_force(&base, &[0, 0, 0, 0]);
    let next = arrange(&base, &units, &plan, &small()).unwrap();
    let [aside] = &next.unplaceable[..] else { panic!("{:?}", next.unplaceable) };
    assert_eq!((aside.model.name.as_str(), aside.part), ("c", Some(0)));
    assert!(aside.why.to_string().contains("one request takes 10 ms"), "{}", aside.why);
    assert!(models_moved(&base, &plan, &next) > 0 && next.verify(&units, &plan).is_empty());
    assert!(next.problem.parts[0].kinds[0].memory_max_bytes == 7_850 * MB, "what it holds is not given to others");
    // Nothing but such models is no plan.
    base.models.iter_mut().for_each(|model| model.slo = Nanos::from_millis(5));
    assert!(arrange(&base, &units, &plan, &small()).unwrap_err().to_string().contains("every model can be nowhere"));
}

/// Four models in the first part, of which the last one or two ask for what no part can give: 400 MB of dynamic memory
/// each, at once.
fn full(aside: usize) -> (Problem, Vec<Unit>, PartitionPlan) {
    let mut models: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| model(name, 10.0, 100, 400)).collect();
    for of in models.iter_mut().rev().take(aside) {
        of.slo = Nanos::from_millis(3);
    }
    let base = alike(2, 0, 1e6, 0, models);
    let mut units: Vec<Unit> = (0..2).map(|at| unit(&format!("u{at}"), at, 0, 1)).collect();
    // All of them and one batch.
    units[0].gpus[0].memory_bytes = 800 * MB;
    // Room for none.
    units[1].gpus[0].memory_bytes = 450 * MB;
    let plan = in_force(&base, &[0, 0, 0, 0]);
    (base, units, plan)
}

#[test]
fn dynamic_memory_is_shared_with_models_that_fit_nowhere() {
    for aside in [1, 2] {
        let (base, units, plan) = full(aside);
        let next = arrange(&base, &units, &plan, &small()).unwrap();
        assert_eq!(next.unplaceable.len(), aside);
        assert_eq!(models_moved(&base, &plan, &next), 0);
        assert_eq!(next.verify(&units, &plan), []);
    }
}

#[test]
fn what_is_wrong_with_units_is_found() {
    let (base, mut units, plan) = hot();
    let good = arrange(&base, &units, &plan, &small()).unwrap();
    let found = |arranged: &Arranged, units: &[Unit], words: &str| {
        let violations = arranged.verify(units, &plan);
        let is_named = |v: &Violation| matches!(v, Violation::Gpu { why, .. } if why.contains(words));
        assert!(violations.iter().any(is_named), "{words}: {violations:?}");
    };
    let mut bad = good.clone();
    bad.places[2] = 0;
    found(&bad, &units, "the last one of its part");
    found(&bad, &units, "not in the part of its process");
    units[3].gpus[0].memory_bytes = 10 * MB;
    found(&good, &units, "no room");
    units[3].works = false;
    found(&good, &units, "takes no work");
    units[3].part = 7;
    assert!(arrange(&base, &units, &plan, &small()).is_err());
}
