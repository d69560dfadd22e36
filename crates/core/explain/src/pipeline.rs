//! The outcome of a request for a pipeline, as the frontend that ran it remembers it: for programs, and in words.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::explanation_text::{line, plural};

/// A request for a pipeline that has ended. Times are milliseconds since its arrival.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PipelineExplanation {
    /// Its id, as `symphony explain` takes it.
    pub request: String,
    /// Its items; each goes through the stages separately.
    pub items: u32,
    /// Name of the pipeline, with its version.
    pub pipeline: String,
    /// `in_time`, `late`, `dropped`, `failed` or `cancelled`.
    pub outcome: String,
    /// Why it was dropped or failed; else empty.
    pub reason: String,
    /// Age of its outcome.
    pub ended_ago_ms: f64,
    /// When it had its outcome.
    pub ended_ms: f64,
    /// Its deadline, that is, its budget.
    pub deadline_ms: f64,
    /// Its stage requests, in the order in which they were asked.
    pub stages: Vec<StageExplanation>,
    /// Further stage requests, which are not remembered.
    pub more: u64,
}

/// A stage request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageExplanation {
    /// Name of the stage in the pipeline.
    pub stage: String,
    /// The model that was asked.
    pub model: String,
    /// The item of the request, counted from 0.
    pub item: u32,
    /// Under which name it can be explained; none if it ended before it had one.
    pub request: Option<String>,
    /// When it was asked.
    pub asked_ms: f64,
    /// When it ended.
    pub ended_ms: f64,
    /// Its own deadline.
    pub deadline_ms: f64,
    /// `in_time`, `late`, `dropped`, `failed`, `cancelled`, or `withdrawn` with the request.
    pub outcome: String,
    /// Why it was dropped or failed; else empty.
    pub reason: String,
    /// How long its batch ran; none without a result.
    pub execution_ms: Option<f64>,
    /// Whether the request ended with it, for lack of its result.
    pub ended_request: bool,
}

impl StageExplanation {
    /// Its request id, or that it has none.
    fn named(&self) -> &str {
        self.request.as_deref().unwrap_or("without an id")
    }
}

fn ended(outcome: &str, reason: &str) -> String {
    let outcome = outcome.replace('_', " ");
    if reason.is_empty() { outcome } else { format!("{outcome}, {reason}") }
}

impl fmt::Display for PipelineExplanation {
    /// Several lines, each terminated; times are relative to the arrival.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, items, pipeline, .. } = self;
        let outcome = ended(&self.outcome, &self.reason);
        writeln!(f, "request {request} ({}) for pipeline {pipeline}: {outcome}", plural(*items, "item"))?;
        let ago_s = self.ended_ago_ms / 1e3;
        line(f, "ended", format_args!("{ago_s:.3} s ago; times below count from its arrival"))?;
        let (ended_ms, deadline_ms) = (self.ended_ms, self.deadline_ms);
        line(f, "took", format_args!("{ended_ms:.3} ms; its deadline was +{deadline_ms:.3} ms"))?;
        for stage in &self.stages {
            self.write_stage(f, stage)?;
        }
        if self.more > 0 {
            line(f, "", format_args!("and {} more, which are not remembered", self.more))?;
        }
        self.write_why(f)
    }
}

impl PipelineExplanation {
    fn write_stage(&self, f: &mut fmt::Formatter<'_>, of: &StageExplanation) -> fmt::Result {
        let item = if self.items > 1 { format!(" for item {}", of.item) } else { String::new() };
        let (named, outcome) = (of.named(), ended(&of.outcome, &of.reason));
        let execution = of.execution_ms.map(|ms| format!("; {ms:.3} ms of execution")).unwrap_or_default();
        let StageExplanation { stage, model, asked_ms, ended_ms, deadline_ms, .. } = of;
        line(
            f,
            "stage",
            format_args!(
                "{stage}{item}: {named} of {model}, +{asked_ms:.3} ms to +{ended_ms:.3} ms, {outcome}{execution}; \
                 had until +{deadline_ms:.3} ms"
            ),
        )
    }

    /// Why it has no answer, if it has none.
    fn write_why(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !matches!(self.outcome.as_str(), "dropped" | "failed") {
            return Ok(());
        }
        // Without the results of others it would have had a partial answer.
        match self.stages.iter().find(|stage| stage.ended_request) {
            Some(StageExplanation { stage, request: Some(request), .. }) => line(
                f,
                "why",
                format_args!("stage {stage} has no result, and the rest was withdrawn: symphony explain {request}"),
            ),
            Some(StageExplanation { stage, .. }) => {
                line(f, "why", format_args!("stage {stage} has no result, and the rest was withdrawn"))
            }
            None if self.outcome == "dropped" => {
                line(f, "why", format_args!("no stage request ended it: the stages that were left had too little time"))
            }
            None => line(f, "why", format_args!("no stage request ended it")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &str, ended_ms: f64, (outcome, reason): (&str, &str)) -> StageExplanation {
        StageExplanation {
            stage: name.into(),
            model: format!("{name}@2"),
            item: 1,
            request: Some("f2/9a/18".into()),
            asked_ms: 0.5,
            ended_ms,
            deadline_ms: 250.0,
            outcome: outcome.into(),
            reason: reason.into(),
            execution_ms: (outcome == "in_time").then_some(22.0),
            ended_request: false,
        }
    }

    fn explained(outcome: &str, reason: &str, stages: Vec<StageExplanation>) -> PipelineExplanation {
        PipelineExplanation {
            request: "f2/9a/17".into(),
            items: 2,
            pipeline: "canvas@1".into(),
            outcome: outcome.into(),
            reason: reason.into(),
            ended_ago_ms: 1500.0,
            ended_ms: 84.0,
            deadline_ms: 500.0,
            stages,
            more: 3,
        }
    }

    #[test]
    fn an_answer_tells_its_stages_and_nothing_else() {
        let detect = stage("detect", 31.0, ("in_time", ""));
        assert_eq!(
            explained("in_time", "", vec![detect]).to_string(),
            "request f2/9a/17 (2 items) for pipeline canvas@1: in time\n\
             \x20 ended     1.500 s ago; times below count from its arrival\n\
             \x20 took      84.000 ms; its deadline was +500.000 ms\n\
             \x20 stage     detect for item 1: f2/9a/18 of detect@2, +0.500 ms to +31.000 ms, in time; \
             22.000 ms of execution; had until +250.000 ms\n\
             \x20           and 3 more, which are not remembered\n"
        );
    }

    #[test]
    fn the_stage_that_ended_it_is_named_and_without_one_it_had_too_little_time() {
        let stages = || {
            let digits = stage("digits", 84.0, ("dropped", "queue_full"));
            vec![
                stage("detect", 31.0, ("in_time", "")),
                StageExplanation { ended_request: true, ..digits },
                stage("digits", 84.0, ("withdrawn", "")),
            ]
        };
        let text = explained("dropped", "queue_full", stages()).to_string();
        assert!(text.starts_with("request f2/9a/17 (2 items) for pipeline canvas@1: dropped, queue_full\n"), "{text}");
        assert!(text.contains("why       stage digits has no result") && text.contains("symphony explain f2/9a/18"));
        let text = explained("dropped", "slo_unreachable", stages().drain(..1).collect()).to_string();
        assert!(text.contains("too little time"), "{text}");
        // An answer that lacks something is an answer.
        let text = explained("in_time", "", stages()).to_string();
        assert!(!text.contains("why"), "{text}");
    }

    #[test]
    fn a_lost_stage_request_that_a_partial_answer_would_do_without_is_not_blamed() {
        let digits = stage("digits", 60.0, ("dropped", "shed"));
        let text = explained("failed", "no_answer", vec![stage("detect", 31.0, ("in_time", "")), digits.clone()]);
        let text = text.to_string();
        assert!(
            text.ends_with("why       no stage request ended it\n") && !text.contains("symphony explain"),
            "{text}"
        );
        // A stage request that ended later than the one that ended the request did not end it either.
        let ends =
            StageExplanation { request: None, ended_request: true, ..stage("detect", 31.0, ("failed", "no_gpu")) };
        let text = explained("failed", "no_gpu", vec![ends, digits]).to_string();
        assert!(text.ends_with("why       stage detect has no result, and the rest was withdrawn\n"), "{text}");
    }
}
