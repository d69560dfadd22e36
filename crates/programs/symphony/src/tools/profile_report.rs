//! The report of `symphony profile`, for people and programs.

use std::path::Path;

use crate::inspect::table;
use serde_json::{Value, json};
use symphony_executor::profile::{Limit, MeasuredBatch, Measurement, Statistic};
use symphony_types::{LineFit, Nanos};

/// A measurement of a model on one kind of GPU.
pub(super) struct ProfileReport<'a> {
    pub(super) model: &'a str,
    pub(super) gpu_kind: &'a str,
    /// The components of ℓ(b).
    pub(super) statistic: Statistic,
    pub(super) measurement: &'a Measurement,
    /// The path of the profile; `None` if it was not written.
    pub(super) written_to: Option<&'a Path>,
}

impl ProfileReport<'_> {
    /// To stdout, for people.
    pub(super) fn print(&self) {
        let measurement = self.measurement;
        let ms = |latency: Nanos| format!("{:.3}", latency.as_millis_f64());
        let row = |b: &MeasuredBatch| {
            let latency = measurement.latency.latency(b.batch);
            vec![b.batch.to_string(), ms(latency), ms(b.wall_median), ms(b.wall_high), b.runs.to_string()]
        };
        let rows: Vec<_> = measurement.batches.iter().map(row).collect();
        table::print(&["BATCH", "MS", "MEDIAN", "P99", "RUNS"], &rows);
        self.lines().iter().for_each(|line| println!("{line}"));
    }

    /// The lines below the table.
    fn lines(&self) -> Vec<String> {
        let measurement = self.measurement;
        let LineFit { alpha_ms, beta_ms, r_squared } = measurement.latency.fit_line();
        let mut lines = vec![format!(
            "fit: {alpha_ms:.3} ms per item + {beta_ms:.3} ms, R\u{b2} {r_squared:.4}; memory: {} MB static, {} MB dynamic",
            measurement.static_memory_bytes >> 20,
            measurement.dynamic_memory_bytes >> 20
        )];
        lines.extend(measurement.limit.map(|limit| match limit {
            Limit::Latency => "a larger batch would take longer than --slo-ms".to_owned(),
            Limit::Memory => "a larger batch would take more memory than --memory-mb".to_owned(),
        }));
        if !measurement.raised_batches.is_empty() {
            let raised: Vec<_> = measurement.raised_batches.iter().map(u32::to_string).collect();
            lines.push(format!(
                "{} of {} sizes were measured faster than a smaller one and were raised to it: {}",
                raised.len(),
                measurement.batches.len(),
                raised.join(", ")
            ));
        }
        lines.extend(
            self.written_to.and(measurement.dependence.as_ref()).map(|d| format!("answers depend on the batch: {d}")),
        );
        lines.extend(self.written_to.map(|path| format!("written to {}", path.display())));
        lines
    }

    /// The report for programs.
    pub(super) fn to_json(&self) -> Value {
        let measurement = self.measurement;
        let ms = Nanos::as_millis_f64;
        let batch = |b: &MeasuredBatch| {
            json!({ "batch": b.batch, "latency_ms": ms(measurement.latency.latency(b.batch)),
                    "measured_ms": ms(b.latency(self.statistic)), "median_ms": ms(b.wall_median), "p99_ms": ms(b.wall_high),
                    "runs": b.runs })
        };
        let LineFit { alpha_ms, beta_ms, r_squared } = measurement.latency.fit_line();
        json!({
            "model": self.model,
            "gpu_kind": self.gpu_kind,
            "batch_max": measurement.latency.batch_max(),
            "batches": measurement.batches.iter().map(batch).collect::<Vec<_>>(),
            "raised_batches": measurement.raised_batches,
            "fit": { "alpha_ms": alpha_ms, "beta_ms": beta_ms, "r_squared": r_squared },
            "static_memory_bytes": measurement.static_memory_bytes,
            "dynamic_memory_bytes": measurement.dynamic_memory_bytes,
            "limit": measurement.limit.map(|limit| match limit {
                Limit::Latency => "latency",
                Limit::Memory => "memory",
            }),
            "dependence": measurement.dependence.as_ref().map(ToString::to_string),
            "written_to": self.written_to,
        })
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::LatencyProfile;

    use super::*;

    /// Batches of 1, 2, 3, 4 items: the third and the fourth were faster than the second.
    fn measurement() -> Measurement {
        let ms = Nanos::from_millis;
        let batches = [(1, 4), (2, 9), (3, 8), (4, 7)].map(|(batch, wall)| MeasuredBatch {
            batch,
            runs: 5,
            wall_min: ms(wall),
            wall_median: ms(wall + 1),
            wall_high: ms(wall + 2),
            cpu_min: ms(1),
        });
        Measurement {
            latency: LatencyProfile::from_table(&[4, 9, 9, 9].map(ms)).unwrap(),
            batches: batches.into(),
            raised_batches: vec![3, 4],
            static_memory_bytes: 3 << 20,
            dynamic_memory_bytes: 1 << 20,
            limit: Some(Limit::Latency),
            dependence: None,
        }
    }

    fn report(measurement: &Measurement) -> ProfileReport<'_> {
        let written_to = Some(Path::new("m.profile.toml"));
        ProfileReport { model: "m", gpu_kind: "cpu", statistic: Statistic::Best, measurement, written_to }
    }

    #[test]
    fn people_are_told_which_sizes_were_raised() {
        let measured = measurement();
        let lines = report(&measured).lines();
        assert!(lines[0].starts_with("fit: 1.500 ms per item + 4.000 ms, R\u{b2} "), "{lines:?}");
        let expected = [
            "a larger batch would take longer than --slo-ms",
            "2 of 4 sizes were measured faster than a smaller one and were raised to it: 3, 4",
            "written to m.profile.toml",
        ];
        assert_eq!(lines[1..], expected);
        let smooth = Measurement { raised_batches: Vec::new(), limit: None, ..measured };
        assert_eq!(report(&smooth).lines().len(), 2);
    }

    #[test]
    fn programs_are_told_what_was_measured_where_it_was_raised() {
        let measured = measurement();
        let json = report(&measured).to_json();
        assert_eq!(json["raised_batches"], json!([3, 4]));
        let row =
            json!({ "batch": 4, "latency_ms": 9.0, "measured_ms": 7.0, "median_ms": 8.0, "p99_ms": 9.0, "runs": 5 });
        assert_eq!(json["batches"][3], row);
        assert_eq!((&json["limit"], &json["written_to"]), (&"latency".into(), &"m.profile.toml".into()));
        assert_eq!((&json["dependence"], &json["batch_max"]), (&Value::Null, &4.into()));
        let median = ProfileReport { statistic: Statistic::Median, ..report(&measured) };
        assert_eq!(median.to_json()["batches"][3]["measured_ms"], 8.0);
    }
}
