//! Reads a fleet problem and validates it.

use std::collections::BTreeMap;

use serde::Deserialize;
use symphony_types::{GPU_CLASSES_MAX, PROFILE_BATCH_MAX};
use symphony_workload::{ItemLaw, PRICE_MAX, ValueDistribution, item_shares, items_from_csv};

use crate::error::FleetError;
use crate::latency::LatencyTable;
use crate::problem::{FLEET_MODELS_MAX, FleetModel, FleetProblem, Kind};
use crate::problem_text::{FleetText, ItemsText, KindText, ModelText};

/// The longest SLO in milliseconds: about 11 days.
const TIME_MS_MAX: f64 = 1e9;
/// The largest share: shares count against each other.
const SHARE_MAX: f64 = 1e12;
/// The name of the only model, where the file names none.
const ONLY_MODEL: &str = "model";

impl FleetProblem {
    /// Reads the problem `text` of `file`. `read_csv` returns the text of a CSV file that it names, or why it cannot be
    /// read.
    ///
    /// # Errors
    /// If anything is unknown, missing or invalid; the message names file, key and what was expected.
    pub fn parse(
        file: &str,
        text: &str,
        read_csv: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, FleetError> {
        let parsed: FleetText = toml::from_str(text).map_err(|error| {
            let whole = error.to_string();
            let lines: Vec<_> = whole.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            FleetError::Text { file: file.to_owned(), message: lines.join(" ") }
        })?;
        Reader { file, read_csv }.problem(&parsed)
    }
}

struct Reader<'a> {
    file: &'a str,
    read_csv: &'a dyn Fn(&str) -> Result<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LatencyRow {
    kind: String,
    items: u32,
    latency_ms: f64,
}

impl Reader<'_> {
    fn refuse<T>(&self, key: &str, expected: &str, got: impl std::fmt::Display) -> Result<T, FleetError> {
        let (file, key, expected) = (self.file.to_owned(), key.to_owned(), expected.to_owned());
        Err(FleetError::Value { file, key, expected, got: got.to_string() })
    }

    fn csv_refused(&self, key: &str, csv: &str, message: String) -> FleetError {
        FleetError::Csv { file: self.file.to_owned(), key: key.to_owned(), csv: csv.to_owned(), message }
    }

    fn positive(&self, key: &str, value: f64, max: f64) -> Result<f64, FleetError> {
        if value > 0.0 && value <= max {
            return Ok(value);
        }
        self.refuse(key, &format!("a number above 0, at most {max}"), value)
    }

    fn problem(&self, text: &FleetText) -> Result<FleetProblem, FleetError> {
        let budget_per_hour = self.positive("budget_per_hour", text.budget_per_hour, PRICE_MAX)?;
        let kinds = self.kinds(&text.kind, budget_per_hour)?;
        let models = self.models(text, &kinds)?;
        Ok(FleetProblem { budget_per_hour, kinds, models })
    }

    fn kinds(&self, texts: &[KindText], budget_per_hour: f64) -> Result<Vec<Kind>, FleetError> {
        if texts.is_empty() || texts.len() > GPU_CLASSES_MAX {
            return self.refuse("kind", &format!("1 to {GPU_CLASSES_MAX} kinds"), texts.len());
        }
        let mut kinds: Vec<Kind> = Vec::with_capacity(texts.len());
        for (position, text) in texts.iter().enumerate() {
            let key = |name: &str| format!("kind.{position}.{name}");
            if text.name.is_empty() || kinds.iter().any(|kind| kind.name == text.name) {
                return self.refuse(&key("name"), "names that differ, and are not empty", format!("`{}`", text.name));
            }
            let price_per_hour = self.positive(&key("price_per_hour"), text.price_per_hour, PRICE_MAX)?;
            // More of them would break the budget by themselves. As above, a rounding error does not count.
            let affordable = (budget_per_hour / price_per_hour * (1.0 + 1e-9)).min(f64::from(u32::MAX)) as u32;
            let count_max = text.count_max.unwrap_or(affordable).min(affordable);
            kinds.push(Kind { name: text.name.clone(), price_per_hour, count_max });
        }
        let cheapest = kinds.iter().map(|kind| kind.price_per_hour).fold(f64::INFINITY, f64::min);
        if cheapest > budget_per_hour * (1.0 + 1e-9) {
            let expected = format!("at least {cheapest}, the price of the cheapest kind");
            return self.refuse("budget_per_hour", &expected, budget_per_hour);
        }
        Ok(kinds)
    }

    fn models(&self, text: &FleetText, kinds: &[Kind]) -> Result<Vec<FleetModel>, FleetError> {
        let FleetText { slo_ms, items, items_csv, latency_csv, .. } = text;
        if text.model.is_empty() {
            let only = ModelText {
                name: ONLY_MODEL.to_owned(),
                share: None,
                slo_ms: *slo_ms,
                items: *items,
                items_csv: items_csv.clone(),
                latency_csv: latency_csv.clone(),
            };
            return Ok(vec![self.model("", &only, 1.0, kinds)?]);
        }
        if slo_ms.is_some() || items.is_some() || items_csv.is_some() || latency_csv.is_some() {
            let expected = "either `model`, or slo_ms, items and latency_csv of the only one beside it";
            return self.refuse("model", expected, "both");
        }
        if text.model.len() > FLEET_MODELS_MAX {
            return self.refuse("model", &format!("at most {FLEET_MODELS_MAX} models"), text.model.len());
        }
        let mut shares = Vec::with_capacity(text.model.len());
        for (position, model) in text.model.iter().enumerate() {
            shares.push(self.positive(&format!("model.{position}.share"), model.share.unwrap_or(1.0), SHARE_MAX)?);
        }
        let total: f64 = shares.iter().sum();
        let mut models: Vec<FleetModel> = Vec::with_capacity(shares.len());
        for (position, (model, share)) in text.model.iter().zip(shares).enumerate() {
            if models.iter().any(|known| known.name == model.name) {
                return self.refuse(
                    &format!("model.{position}.name"),
                    "names that differ",
                    format!("`{}`", model.name),
                );
            }
            models.push(self.model(&format!("model.{position}."), model, share / total, kinds)?);
        }
        Ok(models)
    }

    fn model(&self, below: &str, text: &ModelText, share: f64, kinds: &[Kind]) -> Result<FleetModel, FleetError> {
        let key = |name: &str| format!("{below}{name}");
        let Some(slo_ms) = text.slo_ms else {
            return self.refuse(&key("slo_ms"), "the SLO in milliseconds", "nothing");
        };
        let slo_ms = self.positive(&key("slo_ms"), slo_ms, TIME_MS_MAX)?;
        let latency_key = key("latency_csv");
        let Some(latency_csv) = &text.latency_csv else {
            return self.refuse(&latency_key, "a CSV file with the columns kind,items,latency_ms", "nothing");
        };
        let latencies = self.latencies(&latency_key, latency_csv, kinds)?;
        let items_max = latencies.iter().map(|table| table.items_within(slo_ms)).max().unwrap_or(0);
        if items_max == 0 {
            let fastest = latencies.iter().map(|table| table.latency_ms(1)).fold(f64::INFINITY, f64::min);
            let expected = format!("at least {fastest} ms, the least that one item takes on any kind");
            return self.refuse(&key("slo_ms"), &expected, slo_ms);
        }
        let sizes = item_shares(&self.items(&key, text, items_max)?);
        let largest = sizes.last().map_or(0, |size| size.0);
        for (kind, table) in kinds.iter().zip(&latencies) {
            if !table.reaches(largest, slo_ms) {
                let message = format!(
                    "kind `{}`: expected latencies up to {largest} items, or up to one above the SLO of {slo_ms} ms; got \
                     them up to {} items",
                    kind.name,
                    table.items_max()
                );
                return Err(self.csv_refused(&latency_key, latency_csv, message));
            }
        }
        Ok(FleetModel { name: text.name.clone(), slo_ms, share, sizes, latencies })
    }

    /// The sizes of requests; by default one item. `items_max`: what some kind answers within the SLO.
    fn items(
        &self,
        key: &dyn Fn(&str) -> String,
        text: &ModelText,
        items_max: u32,
    ) -> Result<ValueDistribution, FleetError> {
        let by_law = |law: ItemLaw| match law.within(items_max) {
            Ok(items) => Ok(items),
            Err(error) => {
                let key = format!("{}.{}.{}", key("items"), law.name(), error.key);
                self.refuse(&key, &error.expected, error.got)
            }
        };
        match (&text.items, &text.items_csv) {
            (Some(_), Some(_)) => self.refuse(&key("items"), "either items or items_csv", "both"),
            (None, None) => Ok(ValueDistribution::Fixed(1)),
            (None, Some(csv)) => {
                let key = key("items_csv");
                let text = (self.read_csv)(csv).map_err(|message| self.csv_refused(&key, csv, message))?;
                items_from_csv(&text, items_max).map_err(|message| {
                    let within = format!("{message} (the largest that any kind answers within the SLO: {items_max})");
                    self.csv_refused(&key, csv, within)
                })
            }
            (Some(ItemsText::Fixed(items)), None) => {
                if (1..=items_max).contains(items) {
                    return Ok(ValueDistribution::Fixed(u64::from(*items)));
                }
                let expected = format!("1 to {items_max} items, the largest that any kind answers within the SLO");
                self.refuse(&key("items"), &expected, items)
            }
            (Some(ItemsText::Lognormal(table)), None) => {
                by_law(ItemLaw::Lognormal { mean: table.lognormal.mean, sigma: table.lognormal.sigma })
            }
            (Some(ItemsText::Gaussian(table)), None) => {
                by_law(ItemLaw::Gaussian { mean: table.gaussian.mean, sigma: table.gaussian.sigma })
            }
        }
    }

    /// Latencies by kind; the file may know others as well.
    fn latencies(&self, key: &str, csv: &str, kinds: &[Kind]) -> Result<Vec<LatencyTable>, FleetError> {
        let refused = |message: String| self.csv_refused(key, csv, message);
        let text = (self.read_csv)(csv).map_err(refused)?;
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).comment(Some(b'#')).from_reader(text.as_bytes());
        let mut points: BTreeMap<String, Vec<(u32, f64)>> = BTreeMap::new();
        for row in reader.deserialize::<LatencyRow>() {
            let LatencyRow { kind, items, latency_ms } =
                row.map_err(|error| refused(format!("expected columns kind,items,latency_ms: {error}")))?;
            let points = points.entry(kind).or_default();
            if points.len() >= PROFILE_BATCH_MAX as usize {
                return Err(refused(format!("expected at most {PROFILE_BATCH_MAX} rows of a kind")));
            }
            points.push((items, latency_ms));
        }
        let known = || points.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let mut tables = Vec::with_capacity(kinds.len());
        for Kind { name, .. } in kinds {
            let Some(points) = points.get(name) else {
                return Err(refused(format!("has no rows for kind `{name}`; it knows: {}", known())));
            };
            let table = LatencyTable::from_points(points);
            tables.push(table.map_err(|message| refused(format!("kind `{name}`: {message}")))?);
        }
        Ok(tables)
    }
}
