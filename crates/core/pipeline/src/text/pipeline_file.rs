//! Reads a pipeline file and validates it.

use symphony_types::{LatencyProfile, Nanos, PROFILE_BATCH_MAX, RequestValue, SLO_MAX};

use super::edge_keys::{EdgeKeys, of_edge};
use super::pipeline_text::{EdgeText, PipelineText, StageText};
use crate::limits::STEPS_MAX;
use crate::pipeline::{EdgeSpec, Pipeline, PipelineSpec, Stage};
use crate::refused::Refused;

/// The highest rate in requests per second: one per nanosecond.
const RATE_RPS_MAX: f64 = 1e9;
/// The step of the time grid if none is given and the SLO has at least one and not too many of them.
const STEP_MS: f64 = 1.0;

/// Reads ℓ(b) from a file that a stage names, of this kind of GPU if one is given; or says why it cannot.
pub type ReadProfile<'a> = dyn Fn(&str, Option<&str>) -> Result<LatencyProfile, String> + 'a;

/// An invalid pipeline file, or an invalid file that it names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PipelineError {
    /// The text is no TOML, a key is unknown or missing, or a value has the wrong type.
    #[error("{file}: {message}")]
    Text {
        /// The pipeline file.
        file: String,
        /// The parser's message with line and key.
        message: String,
    },
    /// A value is out of range, or the pipeline has no valid shape.
    #[error("{file}: {refused}")]
    Value {
        /// The pipeline file.
        file: String,
        /// Key, expected value, value found.
        refused: Refused,
    },
}

/// A pipeline and the load that its budget is split for.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineFile {
    /// The pipeline, checked.
    pub pipeline: Pipeline,
    /// Requests per second.
    pub rate_rps: f64,
    /// The step of the time grid.
    pub step: Nanos,
    /// The time from a stage's result to the next stage's request.
    pub hop: Nanos,
}

impl PipelineFile {
    /// Reads the pipeline `text` of `file`.
    ///
    /// # Errors
    /// If anything is unknown, missing or invalid; the message names file, key and what was expected.
    pub fn parse(file: &str, text: &str, read_profile: &ReadProfile<'_>) -> Result<Self, PipelineError> {
        let parsed: PipelineText = toml::from_str(text).map_err(|error| text_error(file, &error))?;
        checked(parsed, read_profile).map_err(|refused| PipelineError::Value { file: file.to_owned(), refused })
    }
}

fn checked(text: PipelineText, read_profile: &ReadProfile<'_>) -> Result<PipelineFile, Refused> {
    let slo_ms = above_zero("slo_ms", text.slo_ms, SLO_MAX.as_millis_f64())?;
    let slo = Nanos::from_millis_f64(slo_ms);
    if slo == Nanos::ZERO {
        return Err(Refused::new("slo_ms", "a nanosecond (0.000001) or more", slo_ms));
    }
    let rate_rps = above_zero("rate_rps", text.rate_rps, RATE_RPS_MAX)?;
    let step_ms = text.step_ms.unwrap_or_else(|| STEP_MS.clamp(slo_ms / STEPS_MAX as f64, slo_ms));
    let step = Nanos::from_millis_f64(step_ms);
    // NaN is a step of zero.
    if !(1..=STEPS_MAX).contains(&slo.get().checked_div(step.get()).unwrap_or(0)) {
        let expected = format!("a number from slo_ms / {STEPS_MAX} to slo_ms ({slo_ms})");
        return Err(Refused::new("step_ms", expected, step_ms));
    }
    let hop_ms = text.hop_ms.unwrap_or(0.0);
    if !(0.0..=slo_ms).contains(&hop_ms) {
        return Err(Refused::new("hop_ms", format!("a number from 0 to slo_ms ({slo_ms})"), hop_ms));
    }
    let value = match text.value {
        None => RequestValue::ONE,
        Some(value) => checked_value(value)?,
    };
    let kind = text.gpu_kind.as_deref();
    let stages =
        text.stage.into_iter().enumerate().map(|(at, stage)| checked_stage(at, stage, slo, kind, read_profile));
    let stages = stages.collect::<Result<_, _>>()?;
    let edges = text.edge.iter().enumerate().map(|(at, edge)| checked_edge(at, edge)).collect::<Result<_, _>>()?;
    let name = text.name.unwrap_or_else(|| "pipeline".to_owned());
    let pipeline = Pipeline::new(PipelineSpec { name, slo, value, partial: text.partial, stages, edges })?;
    Ok(PipelineFile { pipeline, rate_rps, step, hop: Nanos::from_millis_f64(hop_ms) })
}

/// The parser's message on one line.
pub(super) fn text_error(file: &str, error: &toml::de::Error) -> PipelineError {
    let whole = error.to_string();
    let lines: Vec<_> = whole.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    PipelineError::Text { file: file.to_owned(), message: lines.join(" ") }
}

pub(super) fn checked_value(value: f64) -> Result<RequestValue, Refused> {
    let (min, max) = (RequestValue::MIN, RequestValue::MAX);
    let refused = || Refused::new("value", format!("a number from {min} to {max}"), value);
    RequestValue::from_number(value).ok_or_else(refused)
}

fn above_zero(key: &str, value: f64, max: f64) -> Result<f64, Refused> {
    if value > 0.0 && value <= max {
        return Ok(value);
    }
    Err(Refused::new(key, format!("a number above 0, at most {max}"), value))
}

fn checked_stage(
    at: usize,
    text: StageText,
    slo: Nanos,
    kind: Option<&str>,
    read_profile: &ReadProfile<'_>,
) -> Result<Stage, Refused> {
    let key = |name: &str| format!("stage.{at}.{name}");
    let profile = match (text.alpha_ms, text.beta_ms, &text.profile_csv) {
        (Some(alpha_ms), Some(beta_ms), None) => {
            let batch_max = text.batch_max.unwrap_or_else(|| batch_within(alpha_ms, beta_ms, slo));
            if !(1..=PROFILE_BATCH_MAX).contains(&batch_max) {
                return Err(Refused::new(key("batch_max"), format!("1 to {PROFILE_BATCH_MAX}"), batch_max));
            }
            LatencyProfile::from_line(alpha_ms, beta_ms, batch_max)
                .map_err(|error| Refused::new(key("alpha_ms"), "a line that makes latencies", error))?
        }
        (None, None, Some(csv)) => {
            let read = read_profile(csv, kind).and_then(|profile| up_to(&profile, text.batch_max));
            read.map_err(|why| Refused::new(key("profile_csv"), "latencies by batch size", format!("{csv}: {why}")))?
        }
        _ => {
            let expected = "alpha_ms and beta_ms, or profile_csv";
            return Err(Refused::new(format!("stage.{at}"), expected, "another combination of these keys"));
        }
    };
    let model = text.model.unwrap_or_else(|| text.name.clone());
    Ok(Stage { name: text.name, model, profile })
}

/// The profile up to a largest batch.
fn up_to(profile: &LatencyProfile, batch_max: Option<u32>) -> Result<LatencyProfile, String> {
    let Some(batch_max) = batch_max else { return Ok(profile.clone()) };
    let table = profile.table();
    let most = (batch_max as usize).min(table.len());
    LatencyProfile::from_table(&table[..most]).map_err(|error| error.to_string())
}

/// The largest batch within the SLO, at least one: larger ones meet no deadline.
fn batch_within(alpha_ms: f64, beta_ms: f64, slo: Nanos) -> u32 {
    let fits = |&batch: &u32| Nanos::from_millis_f64(alpha_ms.mul_add(f64::from(batch), beta_ms)) <= slo;
    (1..=PROFILE_BATCH_MAX).take_while(fits).last().unwrap_or(1)
}

fn checked_edge(at: usize, text: &EdgeText) -> Result<EdgeSpec, Refused> {
    let keys = EdgeKeys {
        from: &text.from,
        to: &text.to,
        gamma: text.gamma,
        for_each: text.for_each.as_deref(),
        condition: text.condition.as_deref(),
        most: text.most,
    };
    keys.checked().map_err(|refused| of_edge(at, refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAFFIC: &str = r#"
slo_ms = 400.0
rate_rps = 100.0
step_ms = 2.0
[[stage]]
name = "detect"
alpha_ms = 2.0
beta_ms = 10.0
[[stage]]
name = "recognise"
model = "resnet"
profile_csv = "r.csv"
[[edge]]
from = "detect"
to = "recognise"
gamma = 1.5
where = "scores > 0.5"
"#;

    fn read(_: &str, kind: Option<&str>) -> Result<LatencyProfile, String> {
        match kind {
            Some("t4") => Err("has no t4".to_owned()),
            _ => LatencyProfile::from_line(1.0, 1.0, 8).map_err(|error| error.to_string()),
        }
    }

    #[test]
    fn a_file_is_read_with_its_defaults() {
        let file = PipelineFile::parse("p.toml", TRAFFIC, &read).unwrap();
        assert_eq!((file.rate_rps, file.step, file.hop), (100.0, Nanos::from_millis(2), Nanos::ZERO));
        let pipeline = &file.pipeline;
        assert_eq!((pipeline.slo(), pipeline.is_partial()), (Nanos::from_millis(400), false));
        let models: Vec<_> = pipeline.stages().iter().map(|stage| stage.model.as_str()).collect();
        assert_eq!(models, ["detect", "resnet"]);
        // 2 · 195 + 10 = 400.
        assert_eq!(pipeline.stages()[0].profile.batch_max(), 195);
        let edge = &pipeline.edges()[0];
        assert!(edge.per_row && edge.most == 32 && edge.condition.is_some(), "{edge:?}");
        for (slo, step_ms) in [("0.5", 0.5), ("3600000.0", 360.0)] {
            let other = TRAFFIC.replace("400.0", slo).replace("step_ms = 2.0", "");
            let file = PipelineFile::parse("p.toml", &other, &read).unwrap();
            assert_eq!(file.step, Nanos::from_millis_f64(step_ms));
        }
        let fewer = TRAFFIC.replace("profile_csv", "batch_max = 3\nprofile_csv");
        let file = PipelineFile::parse("p.toml", &fewer, &read).unwrap();
        assert_eq!(file.pipeline.stages()[1].profile.batch_max(), 3);
    }

    #[test]
    fn mistakes_are_named_by_file_and_key_with_what_was_expected() {
        let refused = |from: &str, to: &str, words: &str| {
            assert!(TRAFFIC.contains(from), "{from}");
            let error = PipelineFile::parse("p.toml", &TRAFFIC.replace(from, to), &read).unwrap_err().to_string();
            assert!(error.starts_with("p.toml: ") && error.contains(words), "{error}");
        };
        refused("slo_ms = 400.0", "", "missing field `slo_ms`");
        refused("slo_ms = 400.0", "slo = 1", "unknown field `slo`");
        refused("slo_ms = 400.0", "slo_ms = nan", "key `slo_ms`: expected a number above 0, at most 3600000, got NaN");
        refused("slo_ms = 400.0", "slo_ms = 1e-7", "key `slo_ms`: expected a nanosecond");
        refused("rate_rps = 100.0", "rate_rps = 0.0", "key `rate_rps`: expected a number above 0");
        refused("step_ms = 2.0", "step_ms = 0.01", "key `step_ms`: expected a number from slo_ms / 10000");
        refused("step_ms = 2.0", "step_ms = 401.0", "key `step_ms`");
        refused("step_ms = 2.0", "hop_ms = -1.0", "key `hop_ms`: expected a number from 0 to slo_ms (400), got -1");
        refused("step_ms = 2.0", "value = 0.0", "key `value`: expected a number from 0.001 to 1000, got 0");
        refused(
            "step_ms = 2.0",
            "gpu_kind = \"t4\"",
            "key `stage.1.profile_csv`: expected latencies by batch size, got r.csv: has no t4",
        );
        refused("alpha_ms = 2.0", "alpha_ms = -2.0", "key `stage.0.alpha_ms`: expected a line that makes latencies");
        refused("\"resnet\"", "\"\"", "key `stage.1.model`: expected a name of 1 to");
        refused("alpha_ms = 2.0\n", "", "key `stage.0`: expected alpha_ms and beta_ms, or profile_csv");
        refused("profile_csv", "batch_max = 0\nprofile_csv", "key `stage.1.profile_csv`");
        refused("gamma = 1.5", "gamma = 0.0", "key `edge.0.gamma`: expected a number above 0");
        refused("gamma = 1.5", "for_each = \"item\"", "key `edge.0.for_each`: expected \"row\", got \"item\"");
        refused("scores > 0.5", "scores", "key `edge.0.where`: expected an output, one of");
        refused("to = \"recognise\"", "to = \"recognize\"", "key `edge.0.to`: expected one of the stages");
    }
}
