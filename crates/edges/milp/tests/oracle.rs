//! HiGHS as the oracle of the production solver, and both against every division there is.
#![cfg(feature = "highs")]

use proptest::prelude::*;
use symphony_milp::{Limits, NoAnswer, divide};
use symphony_partitioner::milp::Milp;
use symphony_partitioner::{
    Budget, GpuKind, KindNeed, Model, Part, PartKind, Problem, Steadiness, Unsolved, adopt, exhaustive, solve, verify,
};
use symphony_types::{LatencyProfile, Nanos};

const MB: u64 = 1 << 20;

fn problem(models: &[(f64, u64, u64)], parts: usize, room: f64) -> Problem {
    let rate: f64 = models.iter().map(|model| model.0).sum();
    let memory: u64 = models.iter().map(|model| model.1).sum();
    let memory_max_bytes = (memory as f64 * room / parts as f64) as u64 * MB + 200 * MB;
    let profile = LatencyProfile::from_line(1.0, 5.0, 16).unwrap();
    let model = |(at, &(rate_rps, held, dynamic)): (usize, &(f64, u64, u64))| Model {
        name: format!("m{at}"),
        rate_rps,
        slo: Nanos::from_millis(50),
        needs: vec![Some(KindNeed {
            profile: profile.clone(),
            static_memory_bytes: held * MB,
            dynamic_memory_bytes: dynamic * MB,
        })],
        move_cost: 1.0,
        pin: None,
    };
    let kinds = vec![PartKind { kind: 0, memory_max_bytes }];
    let part = |at: usize| Part {
        name: format!("s{at}"),
        rate_max_rps: rate * room / parts as f64 + 50.0,
        share: 1.0,
        kinds: kinds.clone(),
    };
    Problem {
        kinds: vec![GpuKind { name: "a100".into(), memory_bytes: 1 << 40 }],
        models: models.iter().enumerate().map(model).collect(),
        parts: (0..parts).map(part).collect(),
        gpus: Vec::new(),
        memory_weight: 1.0,
        disruption_max: None,
        steadiness: Steadiness { keep_within: 0.0, ..Steadiness::default() },
    }
}

fn budget() -> Budget<'static> {
    Budget { moves: 400_000, seed: 1, should_stop: None }
}

fn division(problem: &Problem, plan: &symphony_partitioner::PartitionPlan) -> Vec<usize> {
    let part_of = |name: &String| plan.parts.iter().position(|part| part.models.contains(name)).unwrap();
    problem.models.iter().map(|model| part_of(&model.name)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_program_has_the_optimum_that_all_divisions_have(
        models in proptest::collection::vec((1.0_f64..500.0, 20_u64..400, 0_u64..200), 2..7),
        parts in 2_usize..4,
        room in 1.0_f64..1.6,
        moved in 0_u8..4,
    ) {
        let mut problem = problem(&models, parts, room);
        let mut in_force = None;
        if moved > 0 {
            // A plan in force, other rates, and a limit of disruption.
            in_force = solve(&problem, None, &budget()).ok();
            problem.models.iter_mut().step_by(2).for_each(|model| model.rate_rps *= 0.5);
            problem.disruption_max = Some(f64::from(moved));
        }
        let best = exhaustive::optimum(&problem, in_force.as_ref()).unwrap();
        let milp = Milp::new(&problem, in_force.as_ref()).unwrap();
        match (divide(&milp, None, &Limits::default()), best) {
            (Ok(found), Some(best)) => {
                prop_assert!(found.proven, "{found:?}");
                prop_assert!((found.objective - best.objective).abs() < 1e-5, "{found:?} {best:?}");
                let plan = adopt(&problem, in_force.as_ref(), &found.division).unwrap();
                prop_assert_eq!(verify(&problem, in_force.as_ref(), &plan), []);
            }
            (Err(NoAnswer::Infeasible), None) => {
                let refused = matches!(solve(&problem, in_force.as_ref(), &budget()), Err(Unsolved::Infeasible(_)));
                prop_assert!(refused);
            }
            (found, best) => prop_assert!(false, "{found:?} but {best:?}"),
        }
    }
}

#[test]
fn the_production_solver_is_proven_optimal_on_small_problems() {
    let mut worst: f64 = 1.0;
    for seed in 0..6_u64 {
        let amount = |at: u64, most: u64| 1 + (at * 7_919 + seed * 104_729) % most;
        let models: Vec<_> =
            (0..10).map(|at| (amount(at, 331) as f64, amount(at + 50, 293), amount(at + 90, 97))).collect();
        let problem = problem(&models, 3, 1.3);
        let ours = solve(&problem, None, &budget()).unwrap();
        let milp = Milp::new(&problem, None).unwrap();
        let limits = Limits { time_s: 60.0, ..Limits::default() };
        let found = divide(&milp, Some(&division(&problem, &ours)), &limits).unwrap();
        assert!(found.objective <= ours.balance.objective + 1e-6, "a start is never lost");
        worst = worst.max(ours.balance.objective / found.objective.max(1e-9));
    }
    assert!(worst < 1.0 + 1e-4, "ours is {worst} of the best");
}

#[test]
fn a_time_limit_is_kept_and_a_start_is_not_lost() {
    let models: Vec<_> = (0..120_u64).map(|at| ((at * 37 % 101) as f64 + 1.0, at * 53 % 97 + 10, 10)).collect();
    let problem = problem(&models, 8, 1.3);
    let ours = solve(&problem, None, &budget()).unwrap();
    let milp = Milp::new(&problem, None).unwrap();
    let found = divide(&milp, Some(&division(&problem, &ours)), &Limits { time_s: 2.0, ..Limits::default() }).unwrap();
    assert!(found.objective <= ours.balance.objective + 1e-6 && found.bound <= found.objective + 1e-9, "{found:?}");
}
