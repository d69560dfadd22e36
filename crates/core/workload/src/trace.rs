//! Recorded arrivals: a CSV file with a column `time_s` and, optionally, `model`, `items`, `slo_ms`.

use serde::Deserialize;
use symphony_types::{Nanos, PROFILE_BATCH_MAX};

use crate::limits::TIME_MS_MAX;

/// The longest accepted trace in rows: at 40 bytes per row, at most 4 GB.
pub const TRACE_ROWS_MAX: usize = 100_000_000;

/// One arrival of a trace, with optional fields.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TraceRow {
    /// Seconds since the start of the trace.
    pub time_s: f64,
    /// The model's position in the scenario.
    pub model: Option<u32>,
    /// Items in the request.
    pub items: Option<u32>,
    /// Time from arrival to the deadline.
    pub slo: Option<Nanos>,
}

/// Arrivals in the order of time. A trace is played once.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The arrivals.
    pub rows: Vec<TraceRow>,
    /// The factor by which every arrival time is multiplied: 2.0 makes it last twice as long.
    pub time_scale: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    time_s: f64,
    model: Option<String>,
    items: Option<u32>,
    slo_ms: Option<f64>,
}

/// A row whose values were checked, with the model as it is written.
pub(crate) struct CheckedRow {
    pub(crate) time_s: f64,
    pub(crate) model: Option<String>,
    pub(crate) items: Option<u32>,
    pub(crate) slo: Option<Nanos>,
}

/// Passes the rows of a CSV file to `take`, with their numbers from 1; at least one.
pub(crate) fn each_row(
    text: &str,
    mut take: impl FnMut(usize, CheckedRow) -> Result<(), String>,
) -> Result<(), String> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).comment(Some(b'#')).from_reader(text.as_bytes());
    let mut number = 0;
    for row in reader.deserialize::<Row>() {
        number += 1;
        let Row { time_s, model, items, slo_ms } =
            row.map_err(|error| format!("expected columns time_s and perhaps model, items, slo_ms: {error}"))?;
        if !(time_s.is_finite() && time_s >= 0.0) {
            return Err(format!("row {number}: expected time_s of at least 0, got {time_s}"));
        }
        if let Some(items) = items
            && !(1..=PROFILE_BATCH_MAX).contains(&items)
        {
            return Err(format!("row {number}: expected items from 1 to {PROFILE_BATCH_MAX}, got {items}"));
        }
        if let Some(slo_ms) = slo_ms
            && !(slo_ms > 0.0 && slo_ms <= TIME_MS_MAX)
        {
            return Err(format!("row {number}: expected slo_ms above 0, at most {TIME_MS_MAX}, got {slo_ms}"));
        }
        let model = model.filter(|name| !name.is_empty());
        take(number, CheckedRow { time_s, model, items, slo: slo_ms.map(slo_from_ms) })?;
    }
    if number == 0 { Err("has no arrivals; expected rows with time_s".to_owned()) } else { Ok(()) }
}

/// A time to the deadline: at least a nanosecond.
pub(crate) fn slo_from_ms(slo_ms: f64) -> Nanos {
    Nanos::from_millis_f64(slo_ms).max(Nanos::new(1))
}

impl Trace {
    /// Parses a trace; `position` finds a model by name.
    pub(crate) fn from_csv(
        text: &str,
        time_scale: f64,
        mut position: impl FnMut(&str) -> Option<u32>,
    ) -> Result<Self, String> {
        let mut rows = Vec::new();
        each_row(text, |number, row| {
            let model = match row.model.as_deref() {
                None => None,
                Some(name) => {
                    Some(position(name).ok_or_else(|| format!("row {number}: the scenario has no model `{name}`"))?)
                }
            };
            if number > TRACE_ROWS_MAX {
                return Err(format!("has more than {TRACE_ROWS_MAX} rows"));
            }
            rows.push(TraceRow { time_s: row.time_s, model, items: row.items, slo: row.slo });
            Ok(())
        })?;
        rows.sort_by(|a: &TraceRow, b: &TraceRow| a.time_s.total_cmp(&b.time_s));
        Ok(Self { rows, time_scale })
    }

    /// From zero to the last arrival, in seconds, after scaling.
    #[must_use]
    pub fn lasts_s(&self) -> f64 {
        self.rows.last().map_or(0.0, |row| row.time_s) * self.time_scale
    }

    /// How many arrivals come at this time or later, after scaling.
    #[must_use]
    pub fn count_from(&self, at: Nanos) -> usize {
        let before = |row: &TraceRow| row.time_s * self.time_scale < at.as_secs_f64();
        self.rows.len() - self.rows.partition_point(before)
    }

    /// Mean rate over the time from zero to the last arrival, in requests per second, after scaling.
    #[must_use]
    pub fn rate_rps(&self) -> f64 {
        // A trace of a single instant has no rate of its own; one nanosecond keeps the number finite.
        self.rows.len() as f64 / self.lasts_s().max(1e-9)
    }
}
