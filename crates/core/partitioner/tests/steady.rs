//! C4: solving again from the plan changes nothing; near problems change little; moves stay within C_max.

use proptest::prelude::*;
use symphony_partitioner::{Budget, Change, Problem, solve, verify};

use crate::problems::{alike, any_small, model, small};

/// Models of many sizes and rates, by a fixed rule.
fn many(models: usize, parts: usize) -> Problem {
    let mut state = 12_345_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 24)
    };
    let models = (0..models).map(|at| {
        let rate = 1.0 + 200.0 * next() * next();
        model(&format!("m{at}"), rate, 20 + (400.0 * next()) as u64, 50)
    });
    alike(parts, 4 * parts, 1e9, 40_000, models.collect())
}

/// The same problem after an epoch: rates within this share of what they were.
fn drifted(problem: &Problem, share: f64) -> Problem {
    let mut problem = problem.clone();
    for (at, model) in problem.models.iter_mut().enumerate() {
        model.rate_rps *= 1.0 + share * (((at * 7_919) % 201) as f64 / 100.0 - 1.0);
    }
    problem
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// From every plan in force, of whatever problem, and under every limit of disruption.
    #[test]
    fn solving_again_from_the_plan_changes_nothing(before in any_small(), problem in any_small()) {
        let in_force = solve(&before, None, &small()).ok();
        if let Ok(plan) = solve(&problem, in_force.as_ref(), &small()) {
            let again = solve(&problem, Some(&plan), &small()).unwrap();
            let change = Change::between(&problem, &plan, &again);
            prop_assert!(change.is_none(), "{change:?}");
            prop_assert_eq!(&again.parts, &plan.parts);
        }
    }

    /// Equal inputs, equal plans.
    #[test]
    fn the_same_problem_gives_the_same_plan(problem in any_small()) {
        let once = solve(&problem, None, &small()).map_err(|why| why.to_string());
        prop_assert_eq!(once, solve(&problem, None, &small()).map_err(|why| why.to_string()));
    }
}

/// −0 is read as an amount below zero.
#[test]
fn a_part_without_models_and_a_change_without_moves_count_nothing_and_not_less() {
    let problem = alike(2, 2, 1e9, 40_000, vec![model("alone", 10.0, 20, 50)]);
    let plan = solve(&problem, None, &small()).unwrap();
    let empty = plan.parts.iter().find(|part| part.models.is_empty()).unwrap();
    let change = Change::between(&problem, &plan, &plan);
    for amount in [empty.rate_rps, empty.load.unwrap(), change.cost] {
        assert!(amount == 0.0 && amount.is_sign_positive(), "{amount:?} in {empty:?} and {change:?}");
    }
}

#[test]
fn small_changes_of_rates_move_nothing() {
    let problem = many(200, 4);
    let budget = Budget::for_models(200);
    let plan = solve(&problem, None, &budget).unwrap();
    assert!(plan.balance.objective < 0.001, "{:?}", plan.balance);
    let next = drifted(&problem, 0.02);
    let again = solve(&next, Some(&plan), &budget).unwrap();
    let change = Change::between(&next, &plan, &again);
    assert!(change.is_none() && again.balance.objective <= next.steadiness.keep_within, "{change:?}");
}

#[test]
fn large_changes_move_no_more_than_allowed_and_come_close_to_a_free_choice() {
    let problem = many(400, 8);
    let budget = Budget::for_models(400);
    let plan = solve(&problem, None, &budget).unwrap();
    let mut next = drifted(&problem, 0.2);
    // Unevenly, so that something has to be done.
    next.models.iter_mut().step_by(3).for_each(|model| model.rate_rps *= 1.3);
    next.disruption_max = Some(40.0);
    let bounded = solve(&next, Some(&plan), &budget).unwrap();
    let change = Change::between(&next, &plan, &bounded);
    assert!(change.cost <= 40.0 && !change.moved_models.is_empty(), "{}", change.cost);
    assert!(change.before.unwrap().objective > 0.01, "{:?}", change.before);
    assert_eq!(verify(&next, Some(&plan), &bounded), []);
    next.disruption_max = None;
    let free = solve(&next, None, &budget).unwrap();
    assert!(bounded.balance.objective <= 2.0 * free.balance.objective, "{:?} {:?}", bounded.balance, free.balance);
}

#[test]
fn what_is_spent_of_the_limit_stays_spent_while_the_problem_is_the_same() {
    let problem = many(60, 3);
    let plan = solve(&problem, None, &small()).unwrap();
    let mut next = problem;
    next.models.iter_mut().take(30).for_each(|model| model.rate_rps *= 2.0);
    next.disruption_max = Some(3.0);
    let moved = solve(&next, Some(&plan), &small()).unwrap();
    assert!(moved.disruption_spent > 0.0 && moved.disruption_spent <= 3.0, "{}", moved.disruption_spent);
    let again = solve(&next, Some(&moved), &small()).unwrap();
    assert!(Change::between(&next, &moved, &again).is_none());
    // Another problem, another account.
    next.models[0].rate_rps += 1.0;
    let later = solve(&next, Some(&moved), &small()).unwrap();
    assert!(later.balance.objective < moved.balance.objective && Change::between(&next, &moved, &later).cost <= 3.0);
}

#[test]
fn a_new_model_moves_no_old_one_where_it_fits_and_a_gone_one_is_forgotten() {
    let mut problem = many(100, 4);
    problem.steadiness.keep_within = 0.2;
    let plan = solve(&problem, None, &small()).unwrap();
    problem.models.push(model("newcomer", 10.0, 30, 10));
    problem.models.remove(5);
    let next = solve(&problem, Some(&plan), &small()).unwrap();
    let change = Change::between(&problem, &plan, &next);
    assert_eq!(
        (&change.new_models[..], &change.gone_models[..]),
        (&["newcomer".to_owned()][..], &["m5".to_owned()][..])
    );
    assert!(change.moved_models.is_empty() && change.cost == 0.0 && change.before.is_none(), "{change:?}");
}

#[test]
fn a_search_that_is_stopped_says_so_and_its_plan_is_sound() {
    let problem = many(200, 4);
    let budget = Budget { should_stop: Some(&|| true), ..Budget::for_models(200) };
    let plan = solve(&problem, None, &budget).unwrap();
    assert!(plan.cut_short && verify(&problem, None, &plan).is_empty());
    assert!(!solve(&problem, None, &small()).unwrap().cut_short);
}
