//! The report of `symphony load -o json`.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The least share of good answers of a cluster that serves, on however busy a machine: less is an outage.
const SERVES_LEAST: f64 = 0.5;

/// A report and how the program ended.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// The report.
    pub json: Value,
}

impl LoadReport {
    /// A machine on which 1 % of requests leave later than this is not judged by times: a tenth of most tests' SLOs.
    pub const LAG_JUDGED_MS: f64 = 50.0;

    /// Seconds of a load that goes on until it is ended: longer than any test may take.
    pub const UNTIL_ENDED_S: &'static str = "900";

    /// Options of `symphony load` for a report that can be read here. The tests judge the cluster. The generator shares
    /// two cores with it, so a test that judges times checks its lag first.
    pub const OPTIONS: [&'static str; 10] =
        ["--warmup-s", "0.5", "--slack-ms", "50", "--lag-p99-ms", "10000", "--lag-max-ms", "20000", "-o", "json"];

    /// Parses the program's output.
    ///
    /// # Errors
    /// If it is not a report; the message contains the program's complaint.
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

    /// No request failed. On a machine that was too busy to send them in time a first data link may take longer than a
    /// request has: then, and only then, an input may be lost on its way.
    ///
    /// # Errors
    /// If one did.
    pub fn check_nothing_failed(&self) -> Result<()> {
        let failed = &self.json["total"]["failed"];
        let reasons = failed.as_object().with_context(|| format!("no reasons of failures: {}", self.json))?;
        let excused = reasons.keys().all(|reason| reason == "payload_lost") && self.machine_was_busy()?;
        ensure!(reasons.is_empty() || excused, "requests failed: {failed}; {}", self.json);
        Ok(())
    }

    /// The cluster served all the time: nothing was refused, and at most this share of the requests was dropped or
    /// late. A busy machine excuses lateness and what was shed for it, but no outage.
    ///
    /// # Errors
    /// If it did not.
    pub fn check_served(&self, bad_most: f64) -> Result<()> {
        let total = &self.json["total"];
        let refused = total["refused"].as_object().with_context(|| format!("no reasons of refusals: {total}"))?;
        ensure!(refused.is_empty(), "requests were refused: {total}");
        let (good, offered) = (self.number("total", "good")?, self.number("total", "offered")?);
        ensure!(offered > 0.0 && good >= SERVES_LEAST * offered, "{good} of {offered} requests were served: {total}");
        self.check_bad_rate("total", bad_most)
    }

    /// Whether the generator itself was held up: then the cluster was as well, and times prove nothing about it.
    ///
    /// # Errors
    /// If the report lacks it.
    pub fn machine_was_busy(&self) -> Result<bool> {
        let lag_p99_ms = self.json["lag"]["p99_ms"].as_f64().context("the report says how the generator lagged")?;
        Ok(lag_p99_ms > Self::LAG_JUDGED_MS)
    }

    /// At most this share of a model's requests was not answered in time. On a machine that was too busy to send them
    /// in time nothing is checked.
    ///
    /// # Errors
    /// If more were.
    pub fn check_bad_rate(&self, model: &str, most: f64) -> Result<()> {
        let bad_rate = self.number(model, "bad_rate")?;
        if bad_rate > most && self.machine_was_busy()? {
            eprintln!(
                "{bad_rate:.3} of the requests for {model} were bad, and the generator lagged: {}",
                self.json["lag"]
            );
            return Ok(());
        }
        ensure!(bad_rate <= most, "{model}: {bad_rate:.3} of the requests were bad, at most {most}: {}", self.json);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(bad_rate: f64, failed: &Value, lag_p99_ms: f64) -> LoadReport {
        let (offered, good) = (100.0, 100.0 - 100.0 * bad_rate);
        let total = serde_json::json!({
            "name": "total", "bad_rate": bad_rate, "failed": failed, "refused": {}, "offered": offered, "good": good
        });
        LoadReport {
            code: Some(0),
            json: serde_json::json!({"total": total, "models": [], "lag": {"p99_ms": lag_p99_ms}}),
        }
    }

    #[test]
    fn a_busy_machine_is_no_excuse_but_for_lateness_and_lost_inputs() {
        let none = serde_json::json!({});
        let lost = serde_json::json!({"payload_lost": 3});
        let other = serde_json::json!({"payload_lost": 3, "execution_failed": 1});
        assert!(report(0.2, &none, 5.0).check_bad_rate("total", 0.05).is_err());
        assert!(report(0.04, &none, 5.0).check_bad_rate("total", 0.05).is_ok());
        assert!(report(0.2, &none, 80.0).check_bad_rate("total", 0.05).is_ok());
        assert!(report(0.0, &none, 5.0).check_nothing_failed().is_ok());
        assert!(report(0.0, &lost, 5.0).check_nothing_failed().is_err());
        assert!(report(0.0, &lost, 80.0).check_nothing_failed().is_ok());
        assert!(report(0.0, &other, 80.0).check_nothing_failed().is_err());
    }

    #[test]
    fn an_outage_is_no_service_on_any_machine() {
        let none = serde_json::json!({});
        assert!(report(0.04, &none, 5.0).check_served(0.05).is_ok());
        assert!(report(0.06, &none, 5.0).check_served(0.05).is_err());
        assert!(report(0.4, &none, 80.0).check_served(0.05).is_ok());
        assert!(report(0.6, &none, 80.0).check_served(0.05).is_err(), "dropped, on a busy machine");
        let change = |key: &str, value: Value| {
            let mut report = report(0.0, &none, 5.0);
            report.json["total"][key] = value;
            report.check_served(0.05)
        };
        assert!(change("late", 1.into()).is_ok());
        assert!(change("refused", serde_json::json!({"overload": 1})).is_err());
        assert!(change("offered", 0.into()).is_err(), "nothing was asked");
    }
}
