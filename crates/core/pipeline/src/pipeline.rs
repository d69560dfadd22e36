//! A pipeline, checked.

use std::collections::BTreeSet;

use symphony_types::{LatencyProfile, NAME_BYTES_MAX, Nanos, RequestValue, SLO_MAX};

use crate::condition::Condition;
use crate::limits::{EDGES_MAX, FAN_OUT_MAX, FAN_OUT_USUAL, GAMMA_MIN, STAGES_MAX};
use crate::refused::Refused;
use crate::shape::Shape;

/// A stage: one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Its name in the pipeline.
    pub name: String,
    /// The model that it asks; two stages may ask the same one.
    pub model: String,
    /// ℓ(b) of that model.
    pub profile: LatencyProfile,
}

/// An edge as its author gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeSpec {
    /// The stage whose results it carries.
    pub from: String,
    /// The stage that is asked with them.
    pub to: String,
    /// γ: the expected number of stage requests per result (the Nexus paper, section 4.2).
    pub gamma: f64,
    /// Whether each row of a result becomes a separate stage request. A γ above 1 implies it.
    pub per_row: bool,
    /// Which rows lead to a stage request; all if not given.
    pub condition: Option<Condition>,
    /// The most stage requests that one result leads to; rows beyond it are left out.
    pub most: Option<u32>,
}

/// A pipeline as its author gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineSpec {
    /// Its name in results and messages.
    pub name: String,
    /// The latency budget of a request, from its arrival to its answer.
    pub slo: Nanos,
    /// What a request is worth against others under overload.
    pub value: RequestValue,
    /// Whether a request is answered without the rows of stages that were dropped or failed.
    pub partial: bool,
    /// What it computes, one model each.
    pub stages: Vec<Stage>,
    /// Which results lead to which stage requests.
    pub edges: Vec<EdgeSpec>,
}

/// An edge between two stages, by their indices.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// The stage whose results it carries.
    pub from: usize,
    /// The stage that is asked with them.
    pub to: usize,
    /// γ: the expected number of stage requests per result.
    pub gamma: f64,
    /// Whether each row of a result becomes a separate stage request.
    pub per_row: bool,
    /// Which rows lead to a stage request.
    pub condition: Option<Condition>,
    /// The most stage requests that one result leads to.
    pub most: u32,
}

/// A DAG of stages with one source, which is a tree, or made of forks and joins.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    name: String,
    slo: Nanos,
    value: RequestValue,
    partial: bool,
    stages: Vec<Stage>,
    edges: Vec<Edge>,
    /// Stages, each after all that feed it.
    order: Vec<usize>,
    shape: Shape,
}

impl Pipeline {
    /// Checks a pipeline.
    ///
    /// # Errors
    /// If there are too few or too many stages, names are doubled, an edge leads to an unknown stage, is doubled or has
    /// numbers that make no sense, there is a cycle or more than one source, or the shape is neither a tree nor made of
    /// forks and joins. The message names the key and what was expected.
    pub fn new(spec: PipelineSpec) -> Result<Self, Refused> {
        let PipelineSpec { name, slo, value, partial, stages, edges } = spec;
        if slo == Nanos::ZERO || slo > SLO_MAX {
            let expected = format!("a number above 0, at most {}", SLO_MAX.as_millis_f64());
            return Err(Refused::new("slo_ms", expected, slo.as_millis_f64()));
        }
        check_stages(&stages)?;
        let edges = checked_edges(&stages, &edges)?;
        let order = sorted(&stages, &edges)?;
        let sources: Vec<_> = (0..stages.len()).filter(|&stage| edges.iter().all(|edge| edge.to != stage)).collect();
        if sources.len() != 1 {
            let got = format!("{} of them: {}", sources.len(), named(&stages, &sources));
            return Err(Refused::new("edge", "one stage without an edge into it, where requests enter", got));
        }
        let pairs: Vec<_> = edges.iter().map(|edge| (edge.from, edge.to)).collect();
        let shape = Shape::of(stages.len(), &pairs).map_err(|left| {
            let expected = "a tree, or forks whose branches meet again in joins (a series-parallel graph)";
            Refused::new("edge", expected, format!("edges among {} that are neither", named(&stages, &left)))
        })?;
        Ok(Self { name, slo, value, partial, stages, edges, order, shape })
    }

    /// The name that its author gave it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The latency budget of a request.
    #[must_use]
    pub const fn slo(&self) -> Nanos {
        self.slo
    }

    /// What a request is worth against others under overload.
    #[must_use]
    pub const fn value(&self) -> RequestValue {
        self.value
    }

    /// Whether a request is answered without the rows of stages that were dropped or failed.
    #[must_use]
    pub const fn is_partial(&self) -> bool {
        self.partial
    }

    /// The stages, as given.
    #[must_use]
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// The edges, as given.
    #[must_use]
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Stages by their indices, each after all that feed it; the first one is the source.
    #[must_use]
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// The same pipeline with γ as measured, by edge: at least [`GAMMA_MIN`], at most what the edge allows. An edge
    /// without a measured number keeps its own.
    #[must_use]
    pub fn with_gammas(&self, gammas: &[f64]) -> Self {
        let mut measured = self.clone();
        for (edge, &gamma) in measured.edges.iter_mut().zip(gammas).filter(|(_, gamma)| gamma.is_finite()) {
            edge.gamma = gamma.clamp(GAMMA_MIN, f64::from(edge.most));
        }
        measured
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Stage requests per request of the pipeline, by stage: the product of γ along the way. A join is asked as often
    /// as the edge into it that brings most.
    #[must_use]
    pub fn requests_per_request(&self) -> Vec<f64> {
        let mut requests = vec![0.0_f64; self.stages.len()];
        for &stage in &self.order {
            let into = self.edges.iter().filter(|edge| edge.to == stage);
            let most = into.map(|edge| requests[edge.from] * edge.gamma).reduce(f64::max);
            requests[stage] = most.unwrap_or(1.0);
        }
        requests
    }

    /// Requests per second with which all stages together keep one GPU busy, without batches.
    #[must_use]
    pub fn rate_of_one_gpu(&self) -> f64 {
        let stages = self.stages.iter().zip(self.requests_per_request());
        let busy_s = stages.map(|(stage, requests)| requests * stage.profile.latency(1).as_secs_f64());
        1.0 / busy_s.sum::<f64>()
    }
}

/// The names of these stages, for a message.
fn named(stages: &[Stage], which: &[usize]) -> String {
    let names: Vec<_> = which.iter().map(|&stage| format!("`{}`", stages[stage].name)).collect();
    names.join(", ")
}

fn check_stages(stages: &[Stage]) -> Result<(), Refused> {
    if stages.is_empty() || stages.len() > STAGES_MAX {
        return Err(Refused::new("stage", format!("1 to {STAGES_MAX} stages"), stages.len()));
    }
    let mut names = BTreeSet::new();
    for (at, stage) in stages.iter().enumerate() {
        for (key, name) in [("name", &stage.name), ("model", &stage.model)] {
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                let expected = format!("a name of 1 to {NAME_BYTES_MAX} bytes");
                return Err(Refused::new(format!("stage.{at}.{key}"), expected, format!("`{name}`")));
            }
        }
        if !names.insert(stage.name.as_str()) {
            let got = format!("`{}` twice", stage.name);
            return Err(Refused::new(format!("stage.{at}.name"), "another name for each stage", got));
        }
    }
    Ok(())
}

fn checked_edges(stages: &[Stage], specs: &[EdgeSpec]) -> Result<Vec<Edge>, Refused> {
    if specs.len() > EDGES_MAX {
        return Err(Refused::new("edge", format!("at most {EDGES_MAX} edges"), specs.len()));
    }
    let mut pairs = BTreeSet::new();
    let mut edges = Vec::with_capacity(specs.len());
    for (at, spec) in specs.iter().enumerate() {
        let key = |name: &str| format!("edge.{at}.{name}");
        let stage = |name: &str, stage: &str| {
            stages.iter().position(|known| known.name == stage).ok_or_else(|| {
                let all: Vec<_> = (0..stages.len()).collect();
                let expected = format!("one of the stages {}", named(stages, &all));
                Refused::new(key(name), expected, format!("`{stage}`"))
            })
        };
        let (from, to) = (stage("from", &spec.from)?, stage("to", &spec.to)?);
        if from == to {
            return Err(Refused::new(key("to"), "another stage than `from`", format!("`{}`", spec.to)));
        }
        if !pairs.insert((from, to)) {
            let got = format!("a second one from `{}` to `{}`", spec.from, spec.to);
            return Err(Refused::new(format!("edge.{at}"), "at most one edge between two stages", got));
        }
        if !(spec.gamma > 0.0 && spec.gamma <= f64::from(FAN_OUT_MAX)) {
            let expected = format!("a number above 0, at most {FAN_OUT_MAX}");
            return Err(Refused::new(key("gamma"), expected, spec.gamma));
        }
        let per_row = spec.per_row || spec.gamma > 1.0;
        let most = spec.most.unwrap_or_else(|| fan_out(per_row, spec.gamma));
        if !(1..=FAN_OUT_MAX).contains(&most) || f64::from(most) < spec.gamma {
            let expected = format!("a whole number from gamma ({}) to {FAN_OUT_MAX}", spec.gamma);
            return Err(Refused::new(key("most"), expected, most));
        }
        if !per_row && most > 1 {
            let got = format!("{most}, but no `for_each`");
            return Err(Refused::new(key("most"), "1 where a whole result is one request", got));
        }
        let condition = spec.condition.clone();
        edges.push(Edge { from, to, gamma: spec.gamma, per_row, condition, most });
    }
    Ok(edges)
}

/// The bound of a fan-out for which the pipeline gives none: four times what is expected, and not less than usual.
fn fan_out(per_row: bool, gamma: f64) -> u32 {
    if !per_row {
        return 1;
    }
    // γ is at most FAN_OUT_MAX.
    ((4.0 * gamma).ceil() as u32).clamp(FAN_OUT_USUAL, FAN_OUT_MAX)
}

/// Stages, each after all that feed it; among those that could be next, the first as given.
fn sorted(stages: &[Stage], edges: &[Edge]) -> Result<Vec<usize>, Refused> {
    let mut order: Vec<usize> = Vec::with_capacity(stages.len());
    while order.len() < stages.len() {
        let is_next = |stage: &usize| {
            !order.contains(stage) && edges.iter().all(|edge| edge.to != *stage || order.contains(&edge.from))
        };
        let Some(next) = (0..stages.len()).find(is_next) else {
            let rest: Vec<_> = (0..stages.len()).filter(|stage| !order.contains(stage)).collect();
            let got = format!("a cycle; these stages wait for each other, or for those: {}", named(stages, &rest));
            return Err(Refused::new("edge", "edges without a cycle", got));
        };
        order.push(next);
    }
    Ok(order)
}

#[cfg(test)]
mod tests;
