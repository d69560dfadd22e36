//! Models that share a trunk, of one `[[model]]`: as one family, or separately.

use symphony_controllers::LearningSettings;
use symphony_policy::PolicySpec;
use symphony_types::{FamilyProfile, LatencyProfile, Nanos, VARIANTS_MAX};

use crate::check::Check;
use crate::error::ScenarioError;
use crate::limits::ZIPF_MAX;
use crate::popularity::Popularity;
use crate::specs::Variants;
use crate::text::{ModelText, PopularityText, ScenarioText, VariantsText};
use crate::value_distribution::ValueDistribution;

/// How the models of one `[[model]]` are served.
pub(crate) struct Served {
    /// ℓ(b) by kind of GPU; of a family, what it takes at worst.
    pub(crate) profiles: Vec<LatencyProfile>,
    /// The family, with profiles by kind.
    pub(crate) variants: Option<Variants>,
    /// The share of the rate of each model: one, or all variants by themselves.
    pub(crate) shares: Vec<f64>,
}

impl ModelText {
    /// How many models it makes.
    pub(crate) fn models(&self) -> usize {
        let apart = self.variants.as_ref().filter(|variants| !variants.shared).map_or(1, |variants| variants.count);
        (self.count.unwrap_or(1) as usize).saturating_mul(apart as usize)
    }
}

impl Check<'_> {
    /// How a model is served whose own profiles are `trunks`, by kind; batches that take longer than `within` do not
    /// count.
    pub(crate) fn served(
        &self,
        position: usize,
        model: &ModelText,
        kinds: &[String],
        trunks: Vec<LatencyProfile>,
        within: Nanos,
    ) -> Result<Served, ScenarioError> {
        let Some(text) = &model.variants else {
            return Ok(Served { profiles: trunks, variants: None, shares: vec![1.0] });
        };
        let key = |name: &str| format!("model.{position}.variants.{name}");
        if !(1..=VARIANTS_MAX).contains(&text.count) {
            return self.refuse(key("count"), &format!("1 to {VARIANTS_MAX}"), text.count);
        }
        let popularity = match &text.popularity {
            None => Popularity::Uniform,
            Some(PopularityText::Name(name)) if name == "uniform" => Popularity::Uniform,
            Some(PopularityText::Name(name)) => {
                return self.refuse(key("popularity"), "\"uniform\" or { zipf = s }", format!("\"{name}\""));
            }
            Some(PopularityText::Zipf(table)) => {
                Popularity::Zipf(self.number(&key("popularity.zipf"), table.zipf, 0.0, ZIPF_MAX)?)
            }
        };
        let shares = popularity.shares(&vec![1.0; text.count as usize]).unwrap_or_default();
        let of_kinds = kinds.iter().zip(trunks);
        let families: Vec<FamilyProfile> = of_kinds
            .map(|(kind, trunk)| self.family(position, (model, text), (kind.as_str(), &trunk), within))
            .collect::<Result<_, _>>()?;
        if !text.shared {
            let profiles = families.iter().filter_map(|family| family.unshared(0)).collect();
            return Ok(Served { profiles, variants: None, shares });
        }
        let profiles = families.iter().map(|family| family.worst().clone()).collect();
        let of_requests = match popularity {
            Popularity::Zipf(_) => by_share(&shares),
            _ => ValueDistribution::Uniform(0, u64::from(text.count) - 1),
        };
        let variants = Some(Variants { profiles: families.into(), of_requests });
        Ok(Served { profiles, variants, shares: vec![1.0] })
    }

    /// The family on GPUs of one kind.
    fn family(
        &self,
        position: usize,
        (model, text): (&ModelText, &VariantsText),
        (kind, trunk): (&str, &LatencyProfile),
        within: Nanos,
    ) -> Result<FamilyProfile, ScenarioError> {
        let key = |name: &str| format!("model.{position}.variants.{name}");
        let alpha_ms = self.of_kind(&key("suffix_alpha_ms"), &text.suffix_alpha_ms, kind)?;
        let beta_ms = self.of_kind(&key("suffix_beta_ms"), &text.suffix_beta_ms, kind)?;
        let suffix = match LatencyProfile::from_line(alpha_ms, beta_ms, trunk.batch_max()) {
            Ok(suffix) => suffix,
            Err(error) => return self.refuse(key("suffix_alpha_ms"), "a line that makes a profile", error),
        };
        let mut trunk = trunk.clone();
        if model.batch_max.is_none() {
            // As without variants: what no request's deadline allows even if all rows are of one variant.
            let whole = trunk.table().iter().zip(suffix.table());
            let fits = whole.take_while(|&(trunk, suffix)| *trunk + *suffix <= within).count().max(1);
            trunk = match LatencyProfile::from_table(&trunk.table()[..fits]) {
                Ok(trunk) => trunk,
                Err(error) => return self.refuse(format!("model.{position}"), "a profile", error),
            };
        }
        match FamilyProfile::alike(trunk, suffix, text.count) {
            Ok(family) => Ok(family),
            Err(error) => self.refuse(key("count"), "variants that make a family", error),
        }
    }

    /// Families are for queues, whose plans know the variants of their requests.
    pub(crate) fn families_run(
        &self,
        text: &ScenarioText,
        policy: &PolicySpec,
        learning: &LearningSettings,
    ) -> Result<(), ScenarioError> {
        let is_family = |model: &ModelText| model.variants.as_ref().is_some_and(|variants| variants.shared);
        let Some(position) = text.model.iter().position(is_family) else { return Ok(()) };
        let key = format!("model.{position}.variants");
        if policy.queues().is_none() {
            let expected =
                "a policy whose plans know variants (auto, symphony, eager, timeout, clipper), or shared = false";
            return self.refuse(key, expected, "another policy");
        }
        if learning.is_on() {
            let expected = "no [learning], which knows only whole batches, or shared = false";
            return self.refuse(key, expected, "both");
        }
        Ok(())
    }
}

/// Variants by their shares, which add up to one.
fn by_share(shares: &[f64]) -> ValueDistribution {
    let mut upto = 0.0;
    let cumulative = shares.iter().zip(0_u64..).map(|(share, variant)| {
        upto += share;
        (upto, variant)
    });
    ValueDistribution::Shares(cumulative.collect())
}
