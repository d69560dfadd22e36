//! Every reason why there is no plan is reported: which limit, by how much, which models.

use symphony_partitioner::{Gpu, GpuKind, PartKind, Pin, Problem, Unsolved, solve, verify};
use symphony_types::Nanos;

use crate::problems::{alike, model, need, part, small};

fn two() -> Problem {
    alike(2, 0, 200.0, 1000, (0..4).map(|at| model(&format!("m{at}"), 90.0, 100, 300)).collect())
}

#[track_caller]
fn refused(problem: &Problem, words: &[&str]) {
    let message = solve(problem, None, &small()).unwrap_err().to_string();
    for words in words {
        assert!(message.contains(words), "expected `{words}` in: {message}");
    }
}

#[test]
fn a_model_larger_than_any_gpu_or_any_part() {
    let mut problem = two();
    problem.models[2].needs = vec![need(1.0, 5.0, 40_000, 1_500)];
    refused(
        &problem,
        &[
            "model m2 can be nowhere",
            "it needs 41500.0 MB on a100 (40000.0 MB static, 1500.0 MB dynamic)",
            "540.0 MB more than one GPU has",
        ],
    );
    problem.models[2].needs = vec![need(1.0, 5.0, 900, 150)];
    refused(&problem, &["m2", "50.0 MB more than the part has (in s-0, s-1)"]);
}

#[test]
fn a_rate_above_one_rank_worker_or_above_all_of_them() {
    let mut problem = two();
    problem.models[1].rate_rps = 250.0;
    refused(&problem, &["model m1 can be nowhere: its rate of 250.0 r/s is 50.0 r/s above what the rank worker takes"]);
    let mut problem = two();
    problem.models.iter_mut().for_each(|model| model.rate_rps = 110.0);
    refused(
        &problem,
        &[
            "rate: 4 models that can only be in s-0, s-1 ask for 440.0 r/s, which is 40.0 r/s more than the 400.0 r/s there",
            "m0 (110.0 r/s)",
        ],
    );
}

#[test]
fn all_models_together_need_more_memory_than_there_is() {
    let mut problem = two();
    problem.models.iter_mut().for_each(|model| model.needs = vec![need(1.0, 5.0, 600, 10)]);
    refused(
        &problem,
        &["memory on a100: 4 models", "ask for 2400.0 MB, which is 400.0 MB more than the 2000.0 MB there"],
    );
}

#[test]
fn pins_that_contradict_a_limit_a_kind_or_the_slo() {
    let mut problem = two();
    problem.models.iter_mut().take(3).for_each(|model| model.pin = Some(Pin::Part(1)));
    refused(&problem, &["rate: 3 models that can only be in s-1 ask for 270.0 r/s", "70.0 r/s more"]);
    problem.models.iter_mut().for_each(|model| model.rate_rps = 1.0);
    problem.parts[1].kinds[0].memory_max_bytes = 500 << 20;
    refused(&problem, &["memory on a100: 3 models that can only be in s-1 ask for 600.0 MB"]);

    let mut problem = two();
    problem.kinds.push(GpuKind { name: "t4".to_owned(), memory_bytes: 1 << 34 });
    problem.models.iter_mut().for_each(|model| model.needs.push(None));
    problem.parts[1].kinds = vec![PartKind { kind: 1, memory_max_bytes: 1 << 33 }];
    problem.models[0].pin = Some(Pin::Part(1));
    problem.models[3].pin = Some(Pin::Kind(1));
    refused(
        &problem,
        &[
            "m0",
            "it has no profile for t4 (in s-1)",
            "it is pinned to another part (in s-0)",
            "m3",
            "it is pinned to t4, and there are other GPUs too (in s-0)",
        ],
    );

    let mut problem = two();
    problem.models[0].slo = Nanos::from_millis(4);
    refused(&problem, &["one request takes 6 ms on a100, 2.000 ms more than its SLO"]);
}

#[test]
fn a_search_that_finds_nothing_shows_the_nearest_division() {
    // Three of 120 and one of 20 fit two parts of 200 by their sum, but not in pairs.
    let rates = [120.0, 120.0, 120.0, 20.0];
    let models = rates.iter().enumerate().map(|(at, &rate)| model(&format!("m{at}"), rate, 10, 10)).collect();
    let problem = alike(2, 0, 200.0, 1000, models);
    refused(
        &problem,
        &[
            "rate: the search found no division that fits",
            "asks for 240.0 r/s, which is 40.0 r/s more than its 200.0 r/s",
            "m0 (120.0 r/s)",
        ],
    );
}

#[test]
fn a_limit_of_disruption_that_is_too_small_says_what_would_do() {
    let problem = two();
    let plan = solve(&problem, None, &small()).unwrap();
    let mut next = problem.clone();
    // What s-0 has grows, and only moving one of its two models away helps; the others get smaller.
    for model in &mut next.models {
        model.rate_rps = if plan.parts[0].models.contains(&model.name) { 120.0 } else { 70.0 };
        model.move_cost = 2.0;
    }
    next.disruption_max = Some(1.0);
    let message = solve(&next, Some(&plan), &small()).unwrap_err().to_string();
    assert!(
        message.contains("moves for a cost of 1 do not mend it") && message.contains("larger by 3.000"),
        "{message}"
    );
    next.disruption_max = Some(4.0);
    let mended = solve(&next, Some(&plan), &small()).unwrap();
    assert_eq!(verify(&next, Some(&plan), &mended), []);

    // A model that may not stay is forced to move, whatever it costs.
    let mut next = problem;
    let name = plan.parts[0].models[0].clone();
    next.models.iter_mut().filter(|model| model.name == name).for_each(|model| model.pin = Some(Pin::Part(1)));
    next.disruption_max = Some(0.5);
    let message = solve(&next, Some(&plan), &small()).unwrap_err().to_string();
    assert!(message.contains(&format!("cannot stay where they are: {name} (cost 1)")), "{message}");
}

#[test]
fn senseless_problems_are_refused_before_anything_else() {
    let mut problem = two();
    problem.models[1].name = "m0".to_owned();
    assert!(
        matches!(solve(&problem, None, &small()), Err(Unsolved::Bad(what)) if what.contains("`m0` is there twice"))
    );
    let mut problem = two();
    problem.models[1].rate_rps = f64::NAN;
    refused(&problem, &["model m1: its rate is NaN"]);
    let mut problem = two();
    problem.gpus.push(Gpu { name: "g".to_owned(), kind: 7, part: None });
    refused(&problem, &["GPU g is of a kind, or in a part, that does not exist"]);
    let mut problem = two();
    problem.parts.push(part("s-9", 0.0, 1));
    refused(&problem, &["part s-9: its rate_max_rps is 0"]);
}
