//! The solver against every division there is, and the program against both.

use proptest::prelude::*;
use symphony_partitioner::milp::Milp;
use symphony_partitioner::{Unsolved, exhaustive, solve, verify};

use crate::problems::{alike, any_small, model, small};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    /// Tiny problems are solved to the optimum, and where there is no division at all the solver says so.
    #[test]
    fn the_solver_finds_the_best_of_all_divisions(mut problem in any_small()) {
        problem.models.truncate(6);
        // The oracle knows no GPUs: with none, nothing comes before the objective.
        problem.gpus.clear();
        let best = exhaustive::optimum(&problem, None).unwrap();
        match (solve(&problem, None, &small()), best) {
            (Ok(plan), Some(best)) => {
                prop_assert!(plan.balance.objective <= best.objective + 1e-9, "{} {}", plan.balance.objective, best.objective);
            }
            (Err(Unsolved::Infeasible(_)), None) => {}
            (ours, best) => prop_assert!(false, "{ours:?} but {best:?}"),
        }
    }

    /// Also under a limit of disruption: never better than the best, and it where a move is worth it.
    #[test]
    fn bounded_plans_are_within_the_limit_and_no_better_than_the_best(mut problem in any_small(), scale in 0.2_f64..5.0) {
        problem.models.truncate(6);
        problem.gpus.clear();
        problem.steadiness.keep_within = 0.0;
        if let Ok(plan) = solve(&problem, None, &small()) {
            problem.models.iter_mut().step_by(2).for_each(|model| model.rate_rps *= scale);
            match (solve(&problem, Some(&plan), &small()), exhaustive::optimum(&problem, Some(&plan)).unwrap()) {
                (Ok(next), Some(best)) => {
                    prop_assert_eq!(verify(&problem, Some(&plan), &next), []);
                    let (ours, best) = (next.balance.objective, best.objective);
                    prop_assert!(ours >= best - 1e-9);
                    // Less than a tenth better is not worth a move.
                    prop_assert!(0.9 * ours <= best + 1e-9, "{ours} {best}");
                }
                (Err(Unsolved::Infeasible(_)), None) => {}
                (ours, best) => prop_assert!(false, "{ours:?} but {best:?}"),
            }
        }
    }

    /// Equations 4 to 11 as rows: what the program says of a division is what the plan says, with limits kept and
    /// broken.
    #[test]
    fn the_program_means_what_the_plan_means(problem in any_small(), other in any_small()) {
        let in_force = solve(&other, None, &small()).ok();
        if let Ok(plan) = solve(&problem, in_force.as_ref(), &small()) {
            let milp = Milp::new(&problem, in_force.as_ref()).unwrap();
            let part_of = |name: &String| plan.parts.iter().position(|part| part.models.contains(name)).unwrap();
            let division: Vec<usize> = problem.models.iter().map(|model| part_of(&model.name)).collect();
            let values = milp.start(&division);
            let (cost, broken) = milp.judge(&values);
            let owned = problem.gpus.iter().any(|gpu| gpu.part.is_some());
            prop_assert!(broken < 1e-6, "broken by {broken}");
            prop_assert!(cost + 1e-6 >= plan.balance.objective && (owned || cost <= plan.balance.objective + 1e-6));
            let back = milp.division(&values).unwrap();
            let renamed = solve_like(&division, &back);
            prop_assert!(renamed, "{division:?} came back as {back:?}");
        }
    }
}

/// Whether two divisions are the same up to the names of parts.
fn solve_like(one: &[usize], other: &[usize]) -> bool {
    (0..one.len()).all(|a| (0..one.len()).all(|b| (one[a] == one[b]) == (other[a] == other[b])))
}

#[test]
fn a_part_that_is_too_full_breaks_a_row_and_a_split_model_is_refused() {
    let problem = alike(2, 0, 150.0, 1000, (0..2).map(|at| model(&format!("m{at}"), 100.0, 100, 100)).collect());
    let milp = Milp::new(&problem, None).unwrap();
    let (_, broken) = milp.judge(&milp.start(&[0, 0]));
    assert!(broken > 0.3, "equation 5 is broken by a third: {broken}");
    let mut values = milp.start(&[0, 1]);
    assert_eq!(milp.division(&values).unwrap(), [0, 1]);
    (values[2], values[3]) = (0.5, 0.5);
    assert!(milp.judge(&values).1 >= 0.5 && milp.division(&values).unwrap_err().contains("model 1"));
    (values[2], values[3]) = (0.0, 0.0);
    assert!(milp.division(&values).is_err(), "equation 9");
    // The largest of two models that are alike may only be in the first of two parts that are alike.
    assert_eq!(milp.columns[1].upper + milp.columns[3].upper, 1.0);
}
