//! Planted faults: a run's actions are changed on their way, and the change is found.

use symphony_types::{LatencyProfile, Nanos, Outcome, RequestValue};

use super::*;
use crate::pipeline::{EdgeSpec, Pipeline, PipelineSpec, Stage};
use crate::run::{Ask, PipelineRun};

fn at(ms: u64) -> Time {
    Time::ZERO + Nanos::from_millis(ms)
}

/// A detector and a recogniser for each of its rows, 10 + 89 ms with a hop of 1 ms; ℓ(1) = 2 ms each.
fn plan() -> Arc<RunPlan> {
    let profile = LatencyProfile::from_line(1.0, 1.0, 8).unwrap();
    let stage = |name: &str| Stage { name: name.to_owned(), model: name.to_owned(), profile: profile.clone() };
    let edge = EdgeSpec {
        from: "detect".to_owned(),
        to: "recognise".to_owned(),
        gamma: 2.0,
        per_row: true,
        condition: None,
        most: None,
    };
    let pipeline = Pipeline::new(PipelineSpec {
        name: "p".to_owned(),
        slo: Nanos::from_millis(100),
        value: RequestValue::ONE,
        partial: false,
        stages: ["detect", "recognise"].map(stage).to_vec(),
        edges: vec![edge],
    })
    .unwrap();
    Arc::new(RunPlan::new(&pipeline, &[10, 89].map(Nanos::from_millis), Nanos::from_millis(1)).unwrap())
}

/// A run whose detector has found two rows, and its check.
fn two_rows() -> (PipelineRun, RunCheck) {
    let (plan, mut actions) = (plan(), Vec::new());
    let mut check = RunCheck::new(Arc::clone(&plan), at(100));
    let mut run = PipelineRun::begin(plan, at(0), at(100), &mut actions);
    check.began(&actions).unwrap();
    actions.clear();
    let found = Event::StageDone { ask: AskId::new(0), rows: &[2] };
    assert!(run.step(at(8), found, &mut actions));
    check.stepped(&found, true, &actions).unwrap();
    assert_eq!(actions.len(), 1, "{actions:?}");
    (run, check)
}

#[test]
fn p1_a_stage_request_that_outlives_its_request_is_found() {
    let (mut run, mut check) = two_rows();
    let mut actions = Vec::new();
    assert!(run.step(at(9), Event::Cancel, &mut actions));
    assert_eq!(check.clone().stepped(&Event::Cancel, true, &actions), Ok(()));
    let forgetful: Vec<_> = actions.iter().copied().filter(|&a| a != Action::Withdraw(AskId::new(2))).collect();
    assert_eq!(forgetful.len() + 1, actions.len());
    assert_eq!(check.clone().stepped(&Event::Cancel, true, &forgetful).unwrap_err().invariant, Invariant::P1);
    // One that comes after the end.
    let ask = Action::Ask(Ask { stage: 1, first: AskId::new(3), rows: 1, deadline: at(50) });
    actions.push(ask);
    assert_eq!(check.stepped(&Event::Cancel, true, &actions).unwrap_err().invariant, Invariant::P1);
}

#[test]
fn p2_a_deadline_that_leaves_nothing_for_what_is_behind_is_found() {
    let mut check = RunCheck::new(plan(), at(100));
    let ask = |deadline| Action::Ask(Ask { stage: 0, first: AskId::new(0), rows: 1, deadline });
    // Behind it lie a hop of 1 ms and 2 ms.
    assert_eq!(check.clone().began(&[ask(at(97))]), Ok(()));
    assert_eq!(check.began(&[ask(at(98))]).unwrap_err().invariant, Invariant::P2);
}

#[test]
fn p3_a_result_that_is_used_twice_is_found() {
    let (mut run, mut check) = two_rows();
    let again = Event::StageDone { ask: AskId::new(0), rows: &[2] };
    let mut actions = Vec::new();
    assert!(!run.step(at(9), again, &mut actions) && actions.is_empty());
    assert_eq!(check.clone().stepped(&again, false, &actions), Ok(()));
    let violation = check.stepped(&again, true, &actions).unwrap_err();
    assert_eq!(violation.invariant, Invariant::P3);
    assert!(violation.to_string().contains("the end of a0 is used"), "{violation}");
}

#[test]
fn an_end_with_nothing_open_is_none() {
    let (mut run, mut check) = two_rows();
    for ask in [1, 2] {
        let mut actions = Vec::new();
        let done = Event::StageDone { ask: AskId::new(ask), rows: &[] };
        assert!(run.step(at(60), done, &mut actions));
        check.stepped(&done, true, &actions).unwrap();
        let ends: &[Action] = &[Action::End { outcome: Outcome::InTime, is_complete: true }];
        assert_eq!(actions, if ask == 2 { ends } else { &[] });
    }
}
