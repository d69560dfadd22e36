//! Validation of `[[pipeline]]`.

use std::iter::repeat_n;
use std::sync::Arc;

use symphony_pipeline::{EdgeKeys, EdgeSpec, Pipeline, PipelineSpec, Refused, Stage};
use symphony_types::{LatencyProfile, Nanos, RequestValue, SLO_MAX};

use super::fan_out::FanOut;
use super::pipeline_load::{PipelineLoad, SCENARIO_PIPELINES_MAX, SPLIT_EPOCH_S_MIN};
use super::text::{EdgeText, PipelineText, StageText};
use crate::check::Check;
use crate::error::ScenarioError;
use crate::limits::DURATION_S_MAX;
use crate::popularity::Popularity;
use crate::rate_profile::RateProfile;
use crate::scenario::{Arrival, Network};
use crate::specs::ModelSpec;
use crate::text::ScenarioText;

/// A stage, its model and what it costs besides.
struct CheckedStage {
    stage: Stage,
    model: u32,
    pre: Nanos,
    post: Nanos,
}

impl Check<'_> {
    /// The pipelines; `share` still holds the weight. Profiles of models are by class of GPU.
    pub(crate) fn pipelines(
        &self,
        text: &ScenarioText,
        models: &[ModelSpec],
        network: Network,
    ) -> Result<Vec<PipelineLoad>, ScenarioError> {
        if text.pipeline.len() > SCENARIO_PIPELINES_MAX {
            let expected = format!("at most {SCENARIO_PIPELINES_MAX} of them");
            return self.refuse("pipeline", &expected, text.pipeline.len());
        }
        let checked =
            text.pipeline.iter().enumerate().map(|(at, pipeline)| self.pipeline(at, pipeline, models, network));
        let pipelines: Vec<PipelineLoad> = checked.collect::<Result<_, _>>()?;
        let mut names: Vec<&str> = pipelines.iter().map(|load| load.pipeline.name()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => self.refuse("pipeline", "names that differ", format!("`{}` twice", pair[0])),
            None => Ok(pipelines),
        }
    }

    fn pipeline(
        &self,
        at: usize,
        text: &PipelineText,
        models: &[ModelSpec],
        network: Network,
    ) -> Result<PipelineLoad, ScenarioError> {
        let key = |name: &str| format!("pipeline.{at}.{name}");
        let slo_ms_max = SLO_MAX.as_millis_f64();
        let slo = Nanos::from_millis_f64(self.positive(&key("slo_ms"), text.slo_ms, slo_ms_max)?);
        let hop_ms = self.number(&key("hop_ms"), text.hop_ms.unwrap_or(0.0), 0.0, text.slo_ms)?;
        let hop = Nanos::from_millis_f64(hop_ms);
        let value = match text.value {
            None => RequestValue::ONE,
            Some(value) => self.value(&key("value"), value)?,
        };
        let stages = text.stage.iter().enumerate();
        let stages: Vec<CheckedStage> = stages
            .map(|(number, stage)| self.stage(&key(&format!("stage.{number}")), stage, text.slo_ms, models, network))
            .collect::<Result<_, _>>()?;
        let edges = text.edge.iter().enumerate();
        let edges: Vec<EdgeSpec> =
            edges.map(|(number, edge)| self.edge(&key(&format!("edge.{number}")), edge)).collect::<Result<_, _>>()?;
        let is_first = |stage: &CheckedStage| edges.iter().all(|edge| edge.to != stage.stage.name);
        let is_last = |stage: &CheckedStage| edges.iter().all(|edge| edge.from != stage.stage.name);
        let before = stages.iter().filter(|stage| is_first(stage)).map(|stage| stage.pre).max().unwrap_or_default();
        let after = stages.iter().filter(|stage| is_last(stage)).map(|stage| stage.post).max().unwrap_or_default();
        if before + after >= slo {
            let cost = (before + after).as_millis_f64();
            let expected = format!("more than pre_ms of the first stage and post_ms of the last ones, {cost}");
            return self.refuse(key("slo_ms"), &expected, text.slo_ms);
        }
        let spec = PipelineSpec {
            name: text.name.clone().unwrap_or_else(|| "pipeline".to_owned()),
            slo: slo - before - after,
            value,
            partial: text.partial,
            stages: stages.iter().map(|stage| stage.stage.clone()).collect(),
            edges,
        };
        let pipeline = match Pipeline::new(spec) {
            Ok(pipeline) => pipeline,
            Err(Refused { key: below, expected, got }) => return self.refuse(key(&below), &expected, got),
        };
        let wait = |(stage, checked): (usize, &CheckedStage)| {
            let behind = pipeline.edges().iter().filter(|edge| edge.from == stage).map(|edge| stages[edge.to].pre);
            behind.max().map_or(Nanos::ZERO, |pre| checked.post + hop + pre)
        };
        let waits: Vec<Nanos> = stages.iter().enumerate().map(wait).collect();
        let hop = waits.iter().copied().max().unwrap_or(Nanos::ZERO);
        Ok(PipelineLoad {
            models: stages.iter().map(|stage| stage.model).collect(),
            fan_outs: self.fan_outs(at, text, &pipeline)?,
            pipeline,
            slo,
            before,
            after,
            waits,
            hop,
            split: text.split,
            resplit: text.resplit,
            share: self.number(&key("weight"), text.weight.unwrap_or(1.0), 0.0, 1e12)?,
            rate_profile: None,
        })
    }

    fn stage(
        &self,
        key: &str,
        text: &StageText,
        slo_ms: f64,
        models: &[ModelSpec],
        network: Network,
    ) -> Result<CheckedStage, ScenarioError> {
        let name = text.model.as_ref().unwrap_or(&text.name);
        let Some(slot) = models.iter().position(|model| model.name == *name) else {
            let expected = "a model of the scenario, or alpha_ms and beta_ms, profile, or profile_csv of its own";
            return self.refuse(format!("{key}.model"), expected, format!("`{name}`"));
        };
        let span = |name: &str, ms: Option<f64>| {
            self.number(&format!("{key}.{name}"), ms.unwrap_or(0.0), 0.0, slo_ms).map(Nanos::from_millis_f64)
        };
        let (pre, post) = (span("pre_ms", text.pre_ms)?, span("post_ms", text.post_ms)?);
        let Some(profile) = with_delays(&models[slot], network) else {
            return self.refuse(format!("{key}.model"), "a profile with the delays of [network]", "none");
        };
        let stage = Stage { name: text.name.clone(), model: name.clone(), profile };
        Ok(CheckedStage { stage, model: slot as u32, pre, post })
    }

    fn edge(&self, key: &str, text: &EdgeText) -> Result<EdgeSpec, ScenarioError> {
        let keys = EdgeKeys {
            from: &text.from,
            to: &text.to,
            gamma: text.gamma,
            for_each: text.for_each.as_deref(),
            condition: text.condition.as_deref(),
            most: text.most,
        };
        match keys.checked() {
            Ok(edge) => Ok(edge),
            Err(Refused { key: below, expected, got }) => self.refuse(format!("{key}.{below}"), &expected, got),
        }
    }

    fn fan_outs(&self, at: usize, text: &PipelineText, pipeline: &Pipeline) -> Result<Vec<FanOut>, ScenarioError> {
        let edges = text.edge.iter().zip(pipeline.edges()).enumerate();
        let fan_out = edges.map(|(number, (text, edge))| {
            let profile = match &text.gamma_profile {
                None => None,
                Some(rows) => {
                    let key = format!("pipeline.{at}.edge.{number}.gamma_profile");
                    Some(Arc::new(RateProfile::check(self, &key, rows)?))
                }
            };
            Ok(FanOut { law: text.fan_out, gamma: edge.gamma, most: edge.most, profile })
        });
        fan_out.collect()
    }

    /// Divides the total rate among models and pipelines. A model that a stage asks has requests of its own only if it
    /// is given a weight.
    pub(crate) fn share_rate(
        &self,
        text: &ScenarioText,
        popularity: Popularity,
        models: &mut [ModelSpec],
        pipelines: &mut [PipelineLoad],
    ) -> Result<(), ScenarioError> {
        let has_weight = text.model.iter().flat_map(|model| repeat_n(model.weight.is_some(), model.models()));
        let is_asked = |slot: u32| pipelines.iter().any(|load| load.models.contains(&slot));
        let for_stages: Vec<bool> =
            has_weight.zip(0_u32..).map(|(has_weight, slot)| !has_weight && is_asked(slot)).collect();
        let of_models = models.iter_mut().zip(&for_stages).filter(|(_, for_stages)| !**for_stages);
        let mut shares: Vec<&mut f64> = of_models.map(|(model, _)| &mut model.share).collect();
        shares.extend(pipelines.iter_mut().map(|load| &mut load.share));
        let weights: Vec<f64> = shares.iter().map(|share| **share).collect();
        let Some(found) = popularity.shares(&weights) else {
            return self.refuse("model.0.weight", "at least one weight above 0", "none");
        };
        for (share, found) in shares.into_iter().zip(found) {
            *share = found;
        }
        for (model, _) in models.iter_mut().zip(for_stages).filter(|(_, for_stages)| *for_stages) {
            model.share = 0.0;
        }
        Ok(())
    }

    /// What does not go together with pipelines; returns the period in which budgets are split again, if there is one.
    pub(crate) fn pipelines_run(&self, text: &ScenarioText, arrival: &Arrival) -> Result<Option<Nanos>, ScenarioError> {
        if text.pipeline.is_empty() {
            return match text.split_epoch_s {
                None => Ok(None),
                Some(_) => self.refuse("split_epoch_s", "a [[pipeline]] whose budget is split", "none"),
            };
        }
        if matches!(arrival, Arrival::Trace(_)) {
            let expected = "another arrival process with [[pipeline]]: rows of a trace name models";
            return self.refuse("workload.arrival.trace_csv", expected, "a trace");
        }
        if text.autoscale.is_some() {
            return self.refuse("autoscale", "a fixed number of GPUs with [[pipeline]]", "[autoscale]");
        }
        let epoch_s = |s: f64| self.number("split_epoch_s", s, SPLIT_EPOCH_S_MIN, DURATION_S_MAX);
        Ok(text.split_epoch_s.map(epoch_s).transpose()?.map(Nanos::from_secs_f64))
    }
}

/// ℓ(b) on the slowest GPU, with what the network takes: from the request to its answer at the host of the pipeline.
fn with_delays(model: &ModelSpec, network: Network) -> Option<LatencyProfile> {
    let first = model.profiles.first()?.clone();
    let slowest = model.profiles.iter().skip(1).fold(first, |a, b| a.slower_of(b));
    let both = network.control + network.reply;
    let takes = slowest.table().iter().zip(1_u64..);
    let takes = takes.map(|(&latency, batch)| latency + both + network.data_per_item.saturating_mul(batch));
    LatencyProfile::from_table(&takes.collect::<Vec<_>>()).ok()
}
