use symphony_types::{FailReason, LatencyProfile, Nanos, RequestValue};

use super::*;
use crate::pipeline::{EdgeSpec, Pipeline, PipelineSpec, Stage};

fn at(ms: u64) -> Time {
    Time::ZERO + Nanos::from_millis(ms)
}

/// Stages of ℓ(1) = 2 ms with 20 ms each, edges with up to four rows.
fn plan(stages: &[&str], edges: &[(&str, &str)], partial: bool) -> Arc<RunPlan> {
    let profile = LatencyProfile::from_line(1.0, 1.0, 8).unwrap();
    let edge = |&(from, to): &(&str, &str)| EdgeSpec {
        from: from.to_owned(),
        to: to.to_owned(),
        gamma: 1.0,
        per_row: true,
        condition: None,
        most: Some(4),
    };
    let stage = |name: &&str| Stage { name: (*name).to_owned(), model: (*name).to_owned(), profile: profile.clone() };
    let pipeline = Pipeline::new(PipelineSpec {
        name: "p".to_owned(),
        slo: Nanos::from_millis(100),
        value: RequestValue::ONE,
        partial,
        stages: stages.iter().map(stage).collect(),
        edges: edges.iter().map(edge).collect(),
    })
    .unwrap();
    let budgets = vec![Nanos::from_millis(20); stages.len()];
    Arc::new(RunPlan::new(&pipeline, &budgets, Nanos::ZERO).unwrap())
}

struct Story {
    run: PipelineRun,
    actions: Vec<Action>,
}

impl Story {
    fn new(plan: Arc<RunPlan>) -> Self {
        let mut actions = Vec::new();
        let run = PipelineRun::begin(plan, at(0), at(100), &mut actions);
        Self { run, actions }
    }

    /// A result at this time; returns (stage, first, rows) of what is asked.
    fn done(&mut self, ms: u64, ask: u32, rows: &[u32]) -> Vec<(usize, u32, u32)> {
        self.actions.clear();
        assert!(self.run.step(at(ms), Event::StageDone { ask: AskId(ask), rows }, &mut self.actions));
        self.asks()
    }

    fn lost(&mut self, ms: u64, ask: u32) -> Vec<(usize, u32, u32)> {
        self.actions.clear();
        let lost = Lost::Failed(FailReason::NoGpu);
        assert!(self.run.step(at(ms), Event::StageEnded { ask: AskId(ask), lost }, &mut self.actions));
        self.asks()
    }

    fn asks(&self) -> Vec<(usize, u32, u32)> {
        let asks = |action: &Action| match action {
            Action::Ask(ask) => Some((ask.stage, ask.first.0, ask.rows)),
            _ => None,
        };
        self.actions.iter().filter_map(asks).collect()
    }

    fn withdrawn(&self) -> Vec<u32> {
        let withdrawn = |action: &Action| match action {
            Action::Withdraw(ask) => Some(ask.0),
            _ => None,
        };
        self.actions.iter().filter_map(withdrawn).collect()
    }

    fn end(&self) -> Option<(Outcome, bool)> {
        match self.actions.last() {
            Some(&Action::End { outcome, is_complete }) => Some((outcome, is_complete)),
            _ => None,
        }
    }
}

#[test]
fn rows_are_asked_by_themselves_and_no_more_than_most() {
    let mut story = Story::new(plan(&["detect", "recognise"], &[("detect", "recognise")], false));
    assert_eq!(story.asks(), [(0, 0, 1)]);
    assert_eq!(story.done(5, 0, &[9]), [(1, 1, 4)]);
    for (ask, end) in [(1, None), (4, None), (2, None), (3, Some((Outcome::InTime, true)))] {
        assert!(story.done(30, ask, &[]).is_empty());
        assert_eq!(story.end(), end, "after {ask}");
    }
    assert!(story.run.has_ended());
}

#[test]
fn no_row_is_an_answer_and_a_late_one_counts_as_late() {
    let plan = plan(&["detect", "recognise"], &[("detect", "recognise")], false);
    let mut story = Story::new(Arc::clone(&plan));
    assert!(story.done(5, 0, &[]).is_empty());
    assert_eq!(story.end(), Some((Outcome::InTime, true)));
    let mut story = Story::new(plan);
    story.done(5, 0, &[1]);
    story.done(101, 1, &[]);
    assert_eq!(story.end(), Some((Outcome::Late, true)));
}

#[test]
fn a_join_waits_for_all_rows_of_all_branches() {
    let edges = [("s", "a"), ("s", "b"), ("a", "join"), ("b", "join"), ("join", "last")];
    let mut story = Story::new(plan(&["s", "a", "b", "join", "last"], &edges, false));
    assert_eq!(story.done(1, 0, &[2, 1]), [(1, 1, 2), (2, 3, 1)]);
    assert!(story.done(2, 3, &[1]).is_empty());
    assert!(story.done(3, 1, &[1]).is_empty());
    // Two rows of a with the one of b.
    assert_eq!(story.done(4, 2, &[1]), [(3, 4, 2)]);
    assert_eq!(story.run.inputs(AskId(4)), [1, 2, 3].map(AskId));
    assert_eq!(story.run.inputs(AskId(1)), [AskId(0)]);
    assert_eq!(story.done(5, 4, &[1]), [(4, 6, 1)]);
    assert!(story.done(5, 5, &[0]).is_empty() && story.end().is_none());
    story.done(6, 6, &[]);
    assert_eq!(story.end(), Some((Outcome::InTime, true)));
}

#[test]
fn each_result_of_an_inner_fork_has_its_own_join() {
    // s forks to x, whose every row forks again and joins; what joins meets y.
    let edges = [("s", "x"), ("s", "y"), ("x", "a"), ("x", "b"), ("a", "in"), ("b", "in"), ("in", "out"), ("y", "out")];
    let stages = ["s", "x", "y", "a", "b", "in", "out"];
    let mut story = Story::new(plan(&stages, &edges, false));
    assert_eq!(story.done(1, 0, &[2, 1]), [(1, 1, 2), (2, 3, 1)]);
    assert!(story.done(2, 3, &[1]).is_empty());
    assert_eq!(story.done(2, 1, &[1, 1]), [(3, 4, 1), (4, 5, 1)]);
    assert!(story.done(3, 4, &[1]).is_empty());
    assert_eq!(story.done(3, 5, &[1]), [(5, 6, 1)]);
    assert!(story.done(4, 6, &[1]).is_empty(), "the second row of x is still on its way");
    // The second row of x leads nowhere, and the outer join has what it can have.
    assert_eq!(story.done(5, 2, &[0, 0]), [(6, 7, 1)]);
    assert_eq!(story.run.inputs(AskId(7)), [3, 6].map(AskId));
    story.done(6, 7, &[]);
    assert_eq!(story.end(), Some((Outcome::InTime, true)));
}

#[test]
fn a_lost_stage_ends_the_request_and_its_siblings() {
    let edges = [("s", "a"), ("s", "b")];
    let mut story = Story::new(plan(&["s", "a", "b"], &edges, false));
    story.done(1, 0, &[2, 1]);
    assert!(story.lost(2, 2).is_empty());
    assert_eq!(story.withdrawn(), [1, 3]);
    assert_eq!(story.end(), Some((Outcome::Failed(FailReason::NoGpu), true)));
    // Events after the end are no news.
    let mut actions = Vec::new();
    for event in [Event::StageDone { ask: AskId(1), rows: &[] }, Event::Cancel] {
        assert!(!story.run.step(at(3), event, &mut actions) && actions.is_empty());
    }
}

#[test]
fn a_partial_pipeline_answers_without_what_is_lost() {
    let edges = [("s", "a"), ("s", "b"), ("a", "join"), ("b", "join")];
    let plan = plan(&["s", "a", "b", "join"], &edges, true);
    let mut story = Story::new(Arc::clone(&plan));
    story.done(1, 0, &[2, 1]);
    story.done(2, 3, &[1]);
    assert!(story.lost(3, 1).is_empty() && story.end().is_none());
    assert_eq!(story.done(4, 2, &[1]), [(3, 4, 1)]);
    assert_eq!(story.run.inputs(AskId(4)), [2, 3].map(AskId));
    story.done(5, 4, &[]);
    assert_eq!(story.end(), Some((Outcome::InTime, false)));
    // Without a row from each parent there is nothing to join.
    let mut story = Story::new(Arc::clone(&plan));
    story.done(1, 0, &[1, 1]);
    story.done(2, 2, &[1]);
    assert!(story.lost(3, 1).is_empty());
    assert_eq!(story.end(), Some((Outcome::InTime, false)));
    // Without the source there is no answer at all.
    let mut story = Story::new(plan);
    story.lost(3, 0);
    assert_eq!(story.end(), Some((Outcome::Failed(FailReason::NoGpu), true)));
}

#[test]
fn a_request_that_cannot_be_met_any_more_is_dropped_early() {
    let edges = [("s", "a"), ("s", "b"), ("a", "leaf")];
    let unreachable = Outcome::Dropped(DropReason::SloUnreachable);
    // b has time until 98 ms, a until 96: nothing is asked that would be withdrawn at once.
    let mut story = Story::new(plan(&["s", "a", "b", "leaf"], &edges, false));
    assert!(story.done(97, 0, &[1, 1]).is_empty());
    assert_eq!((story.end(), story.withdrawn().len()), (Some((unreachable, true)), 0));
    // A partial one goes on with what can be met.
    let mut story = Story::new(plan(&["s", "a", "b", "leaf"], &edges, true));
    assert_eq!(story.done(97, 0, &[1, 1]), [(2, 1, 1)]);
    story.done(99, 1, &[]);
    assert_eq!(story.end(), Some((Outcome::InTime, false)));
    // From the beginning.
    let mut actions = Vec::new();
    let run = PipelineRun::begin(plan(&["s"], &[], false), at(0), at(1), &mut actions);
    assert_eq!(actions, [Action::End { outcome: unreachable, is_complete: true }]);
    assert!(run.has_ended());
}

#[test]
fn a_run_asks_no_more_than_its_limit() {
    let names: Vec<String> = (0..8).map(|at| format!("s{at}")).collect();
    let stages: Vec<_> = names.iter().map(String::as_str).collect();
    let edges: Vec<_> = stages.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let mut story = Story::new(plan(&stages, &edges, false));
    let mut open = vec![0];
    let mut asks = 1;
    while let Some(ask) = open.pop() {
        for (_, first, rows) in story.done(1, ask, &[4]) {
            open.extend(first..first + rows);
            asks += rows as usize;
        }
    }
    // Four to the power of seven and all before would be 21 845.
    assert_eq!(asks, ASKS_MAX);
    assert_eq!(story.end(), Some((Outcome::InTime, false)));
}
