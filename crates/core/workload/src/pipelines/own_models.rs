//! Stages with a profile of their own: each is one more model of the scenario.

use crate::error::ScenarioError;
use crate::text::{ModelText, ScenarioText};

/// Where the models of stages come from, for messages.
pub(crate) struct OwnModels {
    /// Models that the scenario gives itself.
    given: usize,
    /// Pipeline and stage of each further one.
    stages: Vec<(usize, usize)>,
}

impl OwnModels {
    /// Adds a model for each stage that has a profile.
    pub(crate) fn add(text: &mut ScenarioText) -> Self {
        let given = text.model.len();
        let mut stages = Vec::new();
        for (at, pipeline) in text.pipeline.iter_mut().enumerate() {
            for (number, stage) in pipeline.stage.iter_mut().enumerate() {
                let (alpha_ms, beta_ms) = (stage.alpha_ms.take(), stage.beta_ms.take());
                let (profile, profile_csv, batch_max) =
                    (stage.profile.take(), stage.profile_csv.take(), stage.batch_max.take());
                let has_profile = alpha_ms.is_some() || beta_ms.is_some() || profile.is_some() || profile_csv.is_some();
                if !has_profile && batch_max.is_none() {
                    continue;
                }
                stages.push((at, number));
                text.model.push(ModelText {
                    name: stage.model.clone().unwrap_or_else(|| stage.name.clone()),
                    count: None,
                    alpha_ms,
                    beta_ms,
                    profile,
                    profile_csv,
                    batch_max,
                    slo_ms: pipeline.slo_ms,
                    deadline: None,
                    items: None,
                    weight: None,
                    value: pipeline.value,
                    rate_profile: None,
                    variants: None,
                });
            }
        }
        Self { given, stages }
    }

    /// The error with the key that its author wrote.
    pub(crate) fn named(&self, mut error: ScenarioError) -> ScenarioError {
        if let ScenarioError::Value { key, .. } | ScenarioError::Csv { key, .. } = &mut error
            && let Some(written) = self.written(key)
        {
            *key = written;
        }
        error
    }

    fn written(&self, key: &str) -> Option<String> {
        let rest = key.strip_prefix("model.")?;
        let (number, name) = rest.split_once('.').map_or((rest, None), |(number, name)| (number, Some(name)));
        let position: usize = number.parse().ok()?;
        let (pipeline, stage) = self.stages.get(position.checked_sub(self.given)?)?;
        Some(match name {
            None => format!("pipeline.{pipeline}.stage.{stage}"),
            // These are the pipeline's.
            Some(name @ ("slo_ms" | "value")) => format!("pipeline.{pipeline}.{name}"),
            Some(name) => format!("pipeline.{pipeline}.stage.{stage}.{name}"),
        })
    }
}
