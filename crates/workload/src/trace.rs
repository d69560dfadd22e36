//! Recorded arrivals: a csv file with a column `time_s` and, if the record says which, a column `model`.

use serde::Deserialize;

/// The longest trace that is accepted: 16 bytes a row, so at most 1.6 GB.
pub const TRACE_ROWS_MAX: usize = 100_000_000;

/// Arrivals in the order of time. A trace is played once: after its last row nothing arrives.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Seconds since the beginning of the trace, and the model's position in the scenario if the trace names one.
    pub rows: Vec<(f64, Option<u32>)>,
    /// What every time of the trace is multiplied by: 2.0 makes it last twice as long.
    pub time_scale: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    time_s: f64,
    model: Option<String>,
}

impl Trace {
    /// Reads a trace; `position` finds the model of a name.
    pub(crate) fn from_csv(
        text: &str,
        time_scale: f64,
        position: impl Fn(&str) -> Option<u32>,
    ) -> Result<Self, String> {
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).comment(Some(b'#')).from_reader(text.as_bytes());
        let mut rows = Vec::new();
        for row in reader.deserialize::<Row>() {
            let row = row.map_err(|error| format!("expected columns time_s and perhaps model: {error}"))?;
            if !(row.time_s.is_finite() && row.time_s >= 0.0) {
                return Err(format!("row {}: expected time_s of at least 0, got {}", rows.len() + 1, row.time_s));
            }
            let model = match row.model.as_deref() {
                None | Some("") => None,
                Some(name) => {
                    let found = position(name);
                    Some(found.ok_or_else(|| format!("row {}: the scenario has no model `{name}`", rows.len() + 1))?)
                }
            };
            if rows.len() == TRACE_ROWS_MAX {
                return Err(format!("has more than {TRACE_ROWS_MAX} rows"));
            }
            rows.push((row.time_s, model));
        }
        if rows.is_empty() {
            return Err("has no arrivals; expected rows with time_s".to_owned());
        }
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(Self { rows, time_scale })
    }

    /// Mean rate over the time from zero to the last arrival, in requests per second, after scaling.
    #[must_use]
    pub fn rate_rps(&self) -> f64 {
        let last_s = self.rows.last().map_or(0.0, |row| row.0) * self.time_scale;
        // A trace of one instant has no rate of its own; a nanosecond keeps the number finite.
        self.rows.len() as f64 / last_s.max(1e-9)
    }
}
