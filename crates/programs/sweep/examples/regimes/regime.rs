//! A regime, and the parts of its text.

use std::error::Error;
use std::path::Path;

use symphony_workload::Scenario;

/// A regime: everything of a scenario but its policy, seeds and duration.
pub(crate) struct Regime {
    pub(crate) name: String,
    pub(crate) group: &'static str,
    pub(crate) text: String,
    pub(crate) trace: Option<String>,
}

impl Regime {
    /// The scenario with this head, which has policy, seeds and duration, and with these overrides.
    pub(crate) fn scenario(&self, head: &str, sets: &[String]) -> Result<Scenario, Box<dyn Error>> {
        let read = |_: &str| self.trace.clone().ok_or_else(|| "no files".to_owned());
        let text = format!("name = \"{}\"\n{head}{}", self.name, self.text);
        Ok(Scenario::parse(&self.name, &text, sets, &read)?)
    }
}

/// A model of a zoo.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) alpha_ms: f64,
    pub(crate) beta_ms: f64,
    pub(crate) slo_ms: f64,
}

/// The models of a table of the paper.
pub(crate) fn zoo(data: &Path, file: &str) -> Result<Vec<Model>, Box<dyn Error>> {
    let text = std::fs::read_to_string(data.join(file))?;
    let row = |line: &str| -> Option<Model> {
        let fields: Vec<_> = line.split(',').collect();
        let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some(Model { name: fields[0].to_lowercase(), alpha_ms: number(1)?, beta_ms: number(2)?, slo_ms: number(4)? })
    };
    Ok(text.lines().skip(1).filter_map(row).collect())
}

pub(crate) fn model_text(name: &str, count: u32, alpha: &str, beta: &str, slo_ms: f64, items: &str) -> String {
    let count = if count > 1 { format!("count = {count}\n") } else { String::new() };
    format!("[[model]]\nname = \"{name}\"\n{count}alpha_ms = {alpha}\nbeta_ms = {beta}\nslo_ms = {slo_ms:?}\n{items}")
}

pub(crate) fn gpu_text(kind: &str, count: u32) -> String {
    format!("[[gpu]]\nkind = \"{kind}\"\ncount = {count}\n")
}

pub(crate) fn workload_text(arrival: &str, popularity: &str) -> String {
    format!("[workload]\nrate_rps = 1000.0\narrival = {arrival}\npopularity = {popularity}\n")
}

pub(crate) const UNIFORM: &str = "\"uniform\"";
