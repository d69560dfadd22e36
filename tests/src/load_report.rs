//! What `symphony load -o json` found.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// A report and how the program ended.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// The report.
    pub json: Value,
}

impl LoadReport {
    /// Reads what the program wrote.
    ///
    /// # Errors
    /// If that is no report; the message has what it complained of.
    pub fn parse(code: Option<i32>, out: &str, err: &str) -> Result<Self> {
        let json =
            serde_json::from_str(out).with_context(|| format!("`symphony load` wrote no report: {out}\n{err}"))?;
        Ok(Self { code, json })
    }

    /// A number of a model's report, or of `total`.
    ///
    /// # Errors
    /// If there is none.
    pub fn number(&self, model: &str, key: &str) -> Result<f64> {
        let models = self.json["models"].as_array().context("the report has no models")?;
        let report = match model {
            "total" => &self.json["total"],
            _ => models.iter().find(|m| m["name"] == model).with_context(|| format!("no report of {model}"))?,
        };
        report[key].as_f64().with_context(|| format!("{model} has no number {key}: {report}"))
    }

    /// Every request was answered once, with its own answer (invariant S3), and the program agrees.
    ///
    /// # Errors
    /// If not.
    pub fn check_safety(&self) -> Result<()> {
        for key in ["lost", "answered_twice", "foreign"] {
            let count = self.number("total", key)?;
            ensure!(count == 0.0, "{count} requests were {key}: {}", self.json["total"]);
        }
        ensure!(self.number("total", "sent")? > 0.0, "nothing was sent: {}", self.json);
        ensure!(self.code == Some(0), "exit code {:?}; verdict {}", self.code, self.json["verdict"]);
        Ok(())
    }

    /// At most this share of a model's requests was not answered in time.
    ///
    /// # Errors
    /// If more were.
    pub fn check_bad_rate(&self, model: &str, most: f64) -> Result<()> {
        let bad_rate = self.number(model, "bad_rate")?;
        ensure!(bad_rate <= most, "{model}: {bad_rate:.3} of the requests were bad, at most {most}: {}", self.json);
        Ok(())
    }
}
