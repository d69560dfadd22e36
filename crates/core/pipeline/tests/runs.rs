//! Runs through random pipelines, with results, losses and cancels in any order: P1 to P3 hold, and every request ends.

use std::sync::Arc;

use proptest::prelude::*;
use symphony_pipeline::{Action, AskId, Cost, Event, Lost, Pipeline, PipelineRun, RunCheck, RunPlan, split};
use symphony_types::{DropReason, LatencyProfile, Nanos, Outcome, Time};

use crate::shapes::{Dice, forks_and_joins, pipeline, tree};

fn random(dice: &mut Dice, is_tree: bool) -> Pipeline {
    let stages = 1 + dice.below(8);
    let edges = if is_tree { tree(dice, stages) } else { forks_and_joins(dice, stages) };
    let line = &mut |dice: &mut Dice| LatencyProfile::from_line(1.0, 3.0 * dice.share(), 16).unwrap();
    pipeline(dice, stages, &edges, Nanos::from_millis(200), line)
}

fn plan(pipeline: &Pipeline) -> Arc<RunPlan> {
    let hop = Nanos::from_micros(300);
    let split = split(pipeline, 100.0, Cost::Execution, Nanos::from_millis(1), hop).unwrap();
    let budgets: Vec<_> = split.stages.iter().map(|stage| stage.budget).collect();
    Arc::new(RunPlan::new(pipeline, &budgets, hop).unwrap())
}

/// The open stage requests after these actions, and the outcome if there is one.
fn follow(open: &mut Vec<AskId>, actions: &[Action]) -> Option<Outcome> {
    let mut outcome = None;
    for action in actions {
        match *action {
            Action::Ask(ask) => open.extend(ask.ids()),
            Action::Withdraw(ask) => open.retain(|&other| other != ask),
            Action::End { outcome: how, .. } => outcome = Some(how),
        }
    }
    outcome
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn whatever_the_order_the_invariants_hold_and_every_request_ends(
        seed in any::<u64>(), is_tree in any::<bool>(), trouble in 0_usize..20, hurry in 1_u64..40,
    ) {
        let mut dice = Dice::new(seed);
        let pipeline = random(&mut dice, is_tree);
        let plan = plan(&pipeline);
        let deadline = Time::ZERO + Nanos::from_millis(200);
        let (mut now, mut actions, mut open) = (Time::ZERO, Vec::new(), Vec::new());
        let mut check = RunCheck::new(Arc::clone(&plan), deadline);
        let mut run = PipelineRun::begin(plan, now, deadline, &mut actions);
        check.began(&actions).unwrap();
        let mut outcome = follow(&mut open, &actions);
        let mut closed: Vec<AskId> = Vec::new();
        while outcome.is_none() {
            prop_assert!(!open.is_empty(), "it has not ended, and waits for nothing");
            now += Nanos::from_micros(dice.below(100 * hurry as usize) as u64);
            actions.clear();
            let rows: Vec<u32> = (0..8).map(|_| dice.below(4) as u32).collect();
            let ask = open.swap_remove(dice.below(open.len()));
            let event = match dice.below(100) {
                0 if trouble > 10 => Event::Cancel,
                lot if lot < trouble => Event::StageEnded { ask, lost: Lost::Dropped(DropReason::Shed) },
                _ => Event::StageDone { ask, rows: &rows },
            };
            if event == Event::Cancel {
                open.push(ask);
            } else {
                closed.push(ask);
            }
            prop_assert!(run.step(now, event, &mut actions));
            let verdict = check.stepped(&event, true, &actions);
            prop_assert!(verdict.is_ok(), "{verdict:?}");
            outcome = follow(&mut open, &actions);
            // A result that comes again is no news.
            let again = closed.get(dice.below(closed.len().max(1))).copied();
            if let Some(ask) = again {
                let mut nothing = Vec::new();
                let is_news = run.step(now, Event::StageDone { ask, rows: &rows }, &mut nothing);
                prop_assert!(!is_news && nothing.is_empty());
            }
        }
        prop_assert!(run.has_ended() && open.is_empty(), "{open:?} outlive {outcome:?}");
        if now > deadline {
            prop_assert!(outcome != Some(Outcome::InTime), "{outcome:?} at {now}");
        }
    }

    /// Of a tree without trouble, the stage requests are those that its rows ask for.
    #[test]
    fn a_tree_asks_for_every_row_once(seed in any::<u64>()) {
        let mut dice = Dice::new(seed);
        let pipeline = random(&mut dice, true);
        let (mut actions, mut open) = (Vec::new(), Vec::new());
        let deadline = Time::ZERO + Nanos::from_millis(200);
        let mut run = PipelineRun::begin(plan(&pipeline), Time::ZERO, deadline, &mut actions);
        follow(&mut open, &actions);
        let mut counts = vec![0_u64; pipeline.stages().len()];
        while let Some(ask) = open.pop() {
            let stage = run.stage(ask).unwrap();
            counts[stage] += 1;
            prop_assert_eq!(run.inputs(ask).len(), usize::from(stage != pipeline.order()[0]));
            // Two rows along every edge.
            actions.clear();
            let is_news = run.step(Time::ZERO, Event::StageDone { ask, rows: &[2; 8] }, &mut actions);
            prop_assert!(is_news);
            follow(&mut open, &actions);
        }
        let mut expected = vec![1_u64; counts.len()];
        for &stage in pipeline.order() {
            if let Some(edge) = pipeline.edges().iter().find(|edge| edge.to == stage) {
                expected[stage] = 2 * expected[edge.from];
            }
        }
        prop_assert_eq!(counts, expected);
        prop_assert!(run.has_ended());
    }
}
