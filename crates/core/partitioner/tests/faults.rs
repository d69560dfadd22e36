//! Every equation has a planted fault that `verify` finds, and plans of the solver have none.

use proptest::prelude::*;
use symphony_partitioner::{Gpu, PartitionPlan, Pin, Problem, Violation, solve, verify};

use crate::problems::{alike, any_small, model, small};

fn problem() -> Problem {
    let models =
        (0..8).map(|at| model(&format!("m{at}"), 100.0 + f64::from(at), 100 + u64::from(at as u8), 200)).collect();
    alike(2, 6, 600.0, 1000, models)
}

/// What is found after `plant` has changed the good plan of a problem, or the problem itself.
fn found(plant: impl FnOnce(&mut Problem, &mut PartitionPlan)) -> Vec<Violation> {
    let mut problem = problem();
    let mut plan = solve(&problem, None, &small()).unwrap();
    assert_eq!(verify(&problem, None, &plan), []);
    plant(&mut problem, &mut plan);
    verify(&problem, None, &plan)
}

fn take(plan: &mut PartitionPlan, part: usize) -> String {
    plan.parts[part].models.pop().unwrap()
}

#[test]
fn a_model_that_is_nowhere_or_twice_breaks_equation_9() {
    let violations = found(|_, plan| drop(take(plan, 0)));
    assert!(violations.iter().any(|v| matches!(v, Violation::PartsOfModel { parts: 0, .. })), "{violations:?}");
    let violations = found(|_, plan| {
        let model = plan.parts[0].models[0].clone();
        plan.parts[1].models.push(model);
    });
    assert!(violations.iter().any(|v| matches!(v, Violation::PartsOfModel { parts: 2, .. })), "{violations:?}");
    let violations = found(|_, plan| plan.parts[0].models.push("ghost".to_owned()));
    assert!(violations.contains(&Violation::UnknownModel("ghost".to_owned())), "{violations:?}");
}

#[test]
fn too_much_rate_breaks_equation_5() {
    let violations = found(|_, plan| {
        for _ in 0..2 {
            let model = take(plan, 0);
            plan.parts[1].models.push(model);
        }
    });
    let over = |v: &Violation| matches!(v, Violation::Rate { part, rate_rps, max_rps: 600.0 } if part == "s-1" && *rate_rps > 600.0);
    assert!(violations.iter().any(over), "{violations:?}");
}

#[test]
fn too_much_memory_breaks_equation_6_and_dynamic_memory_counts_once() {
    // Four models of about 100 MB and once 200 MB are 614 MB at most.
    assert!(
        found(|problem, _| problem.parts.iter_mut().for_each(|part| part.kinds[0].memory_max_bytes = 615 << 20))
            .is_empty()
    );
    let violations = found(|problem, _| problem.parts[0].kinds[0].memory_max_bytes = 600 << 20);
    assert!(
        matches!(&violations[..], [Violation::Memory { part, needed_bytes, .. }] if part == "s-0" && *needed_bytes > 600 << 20),
        "{violations:?}"
    );
}

#[test]
fn a_balance_that_is_stated_wrong_breaks_equations_4_7_and_8() {
    for (equation, plant) in [
        (4, (|plan: &mut PartitionPlan| plan.balance.objective *= 0.5) as fn(&mut PartitionPlan)),
        (7, |plan| plan.balance.rate_deviation += 0.01),
        (8, |plan| plan.balance.memory_deviation += 0.01),
    ] {
        let violations = found(|_, plan| {
            plan.balance.objective += 0.1;
            plan.balance.objective -= 0.1;
            plant(plan);
        });
        let one = matches!(violations[..], [Violation::Balance { equation: found, .. }] if found == equation);
        assert!(one || problem_is_even(&violations), "equation {equation}: {violations:?}");
    }
}

/// An objective of zero, halved, is right again.
fn problem_is_even(violations: &[Violation]) -> bool {
    violations.is_empty()
}

#[test]
fn moves_beyond_the_limit_break_equation_11() {
    let mut problem = problem();
    let plan = solve(&problem, None, &small()).unwrap();
    let mut other = plan.clone();
    let names: Vec<_> = plan.parts.iter().map(|part| part.models.clone()).collect();
    (other.parts[0].models, other.parts[1].models) = (names[1].clone(), names[0].clone());
    problem.disruption_max = Some(7.5);
    let violations = verify(&problem, Some(&plan), &other);
    let over =
        |v: &Violation| matches!(v, Violation::Disruption { models: 8, cost, max } if *cost == 8.0 && *max == 7.5);
    assert!(violations.iter().any(over), "{violations:?}");
    problem.disruption_max = Some(8.0);
    assert!(!verify(&problem, Some(&plan), &other).iter().any(|v| matches!(v, Violation::Disruption { .. })));
}

#[test]
fn gpus_that_are_missing_doubled_strange_or_away_from_their_owner_are_found() {
    let gpu = |violations: &[Violation], words: &str| {
        let is_named = |v: &Violation| matches!(v, Violation::Gpu { why, .. } if why.contains(words));
        assert!(violations.iter().any(is_named), "{words}: {violations:?}");
    };
    gpu(&found(|_, plan| drop(plan.parts[0].gpus[0].names.pop())), "it is in no part");
    gpu(
        &found(|_, plan| {
            let name = plan.parts[0].gpus[0].names[0].clone();
            plan.parts[1].gpus[0].names.push(name);
        }),
        "it is in the plan twice",
    );
    gpu(&found(|_, plan| plan.parts[0].gpus[0].names.push("ghost".to_owned())), "not in the problem");
    gpu(&found(|_, plan| plan.parts[0].gpus[0].kind = "t4".to_owned()), "another kind");
    gpu(
        &found(|problem, plan| {
            let name = &plan.parts[0].gpus[0].names[0];
            problem.gpus.iter_mut().filter(|gpu| gpu.name == *name).for_each(|gpu: &mut Gpu| gpu.part = Some(1));
        }),
        "it belongs to s-1",
    );
}

#[test]
fn needs_and_loads_that_are_stated_wrong_break_equation_3() {
    let wrong = |violations: &[Violation]| {
        assert!(matches!(violations, [Violation::GpusNeeded { .. }]), "{violations:?}");
    };
    wrong(&found(|_, plan| plan.parts[0].gpus[0].needed *= 1.01));
    wrong(&found(|_, plan| plan.parts[1].load = Some(0.1)));
    wrong(&found(|_, plan| plan.parts[1].load = None));
}

#[test]
fn models_where_they_may_not_be_are_found() {
    let why = |violations: &[Violation], words: &str| {
        let is_named = |v: &Violation| matches!(v, Violation::NotAllowed { why, .. } if why.contains(words));
        assert!(violations.iter().any(is_named), "{words}: {violations:?}");
    };
    why(
        &found(|problem, plan| {
            let name = &plan.parts[0].models[0];
            problem
                .models
                .iter_mut()
                .filter(|model| model.name == *name)
                .for_each(|model| model.pin = Some(Pin::Part(1)));
        }),
        "it is pinned to s-1",
    );
    why(&found(|problem, _| problem.models[3].slo = symphony_types::Nanos::from_millis(5)), "SLO is out of reach");
    why(&found(|problem, _| problem.kinds[0].memory_bytes = 301 << 20), "it does not fit one a100");
    let parts = found(|_, plan| plan.parts[0].name = "x".to_owned());
    assert!(matches!(&parts[..], [Violation::Parts(_)]), "{parts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// The solver's plans keep every equation, with and without a plan in force, whatever comes and goes.
    #[test]
    fn plans_of_the_solver_have_no_fault(first in any_small(), second in any_small()) {
        if let Ok(plan) = solve(&first, None, &small()) {
            prop_assert_eq!(verify(&first, None, &plan), []);
            if let Ok(next) = solve(&second, Some(&plan), &small()) {
                prop_assert_eq!(verify(&second, Some(&plan), &next), []);
            }
        }
    }
}
