//! Distributions of deadlines and items of a model's requests, validated.

use symphony_types::Nanos;

use crate::check::Check;
use crate::error::ScenarioError;
use crate::item_law::{ItemLaw, items_from_csv};
use crate::limits::TIME_MS_MAX;
use crate::text::{DeadlineText, ItemsText, SpreadText};
use crate::value_distribution::ValueDistribution;

impl Check<'_> {
    /// The distribution of deadlines; by default the SLO.
    pub(crate) fn deadline(
        &self,
        key: &str,
        text: Option<&DeadlineText>,
        slo: Nanos,
    ) -> Result<ValueDistribution, ScenarioError> {
        let nanos =
            |key: &str, ms: f64| self.positive(key, ms, TIME_MS_MAX).map(|ms| Nanos::from_millis_f64(ms).get().max(1));
        match text {
            None => Ok(ValueDistribution::Fixed(slo.get())),
            Some(DeadlineText::Uniform(table)) => {
                let key = format!("{key}.uniform_ms");
                let [least, most] = table.uniform_ms;
                let (low, high) = (nanos(&key, least)?, nanos(&key, most)?);
                if low > high {
                    return self.refuse(key, "[least, most] in this order", format!("[{least}, {most}]"));
                }
                Ok(ValueDistribution::Uniform(low, high))
            }
            Some(DeadlineText::Shares(entries)) => {
                let mut shares = Vec::with_capacity(entries.len());
                for (position, entry) in entries.iter().enumerate() {
                    shares.push((entry.share, nanos(&format!("{key}.{position}.slo_ms"), entry.slo_ms)?));
                }
                ValueDistribution::from_shares(self, key, &shares)
            }
        }
    }

    /// The distribution of items; by default one.
    pub(crate) fn items(
        &self,
        key: &str,
        text: Option<&ItemsText>,
        batch_max: u32,
    ) -> Result<ValueDistribution, ScenarioError> {
        let checked = |key: &str, items: u32| {
            if (1..=batch_max).contains(&items) {
                return Ok(u64::from(items));
            }
            let expected = format!("1 to {batch_max} items, the largest batch that may run");
            self.refuse(key, &expected, items)
        };
        match text {
            None => Ok(ValueDistribution::Fixed(1)),
            Some(ItemsText::Fixed(items)) => checked(key, *items).map(ValueDistribution::Fixed),
            Some(ItemsText::Uniform(table)) => {
                let key = format!("{key}.uniform");
                let [least, most] = table.uniform;
                let (low, high) = (checked(&key, least)?, checked(&key, most)?);
                if low > high {
                    return self.refuse(key, "[least, most] in this order", format!("[{least}, {most}]"));
                }
                Ok(ValueDistribution::Uniform(low, high))
            }
            Some(ItemsText::Lognormal(table)) => {
                let SpreadText { mean, sigma } = table.lognormal;
                self.item_law(key, ItemLaw::Lognormal { mean, sigma }, batch_max)
            }
            Some(ItemsText::Gaussian(table)) => {
                let SpreadText { mean, sigma } = table.gaussian;
                self.item_law(key, ItemLaw::Gaussian { mean, sigma }, batch_max)
            }
            Some(ItemsText::Csv(table)) => {
                let key = format!("{key}.csv");
                let text = self.csv(&key, &table.csv)?;
                items_from_csv(&text, batch_max).map_err(|message| self.csv_refused(&key, &table.csv, message))
            }
            Some(ItemsText::Shares(entries)) => {
                let mut shares = Vec::with_capacity(entries.len());
                for (position, entry) in entries.iter().enumerate() {
                    shares.push((entry.share, checked(&format!("{key}.{position}.items"), entry.items)?));
                }
                ValueDistribution::from_shares(self, key, &shares)
            }
        }
    }

    fn item_law(&self, key: &str, law: ItemLaw, batch_max: u32) -> Result<ValueDistribution, ScenarioError> {
        match law.within(batch_max) {
            Ok(items) => Ok(items),
            Err(error) => self.refuse(format!("{key}.{}.{}", law.name(), error.key), &error.expected, error.got),
        }
    }
}
