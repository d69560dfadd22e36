//! A comparison for people and for programs.

use std::fmt;

use serde_json::json;
use symphony_paper::ComparedRun;

use crate::tools::table;

/// What was recorded.
pub(super) struct OfTapes {
    pub(super) requests: usize,
    pub(super) models: usize,
    pub(super) lasts_s: f64,
}

impl fmt::Display for OfTapes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, models, lasts_s } = self;
        write!(f, "{requests} requests of {models} models in {lasts_s:.3} s")
    }
}

pub(super) fn table(of_tapes: &OfTapes, runs: &[ComparedRun]) {
    println!("{of_tapes}, simulated");
    let rows: Vec<_> = runs.iter().map(overview).collect();
    table::print(&["POLICY", "GPUS", "OFFERED", "GOOD", "GOOD %", "LATE", "DROPPED", "GPU S", "USED %"], &rows);
    println!();
    let rows: Vec<_> = runs.iter().flat_map(by_model).collect();
    table::print(&["POLICY", "GPUS", "MODEL", "OFFERED", "GOOD", "LATE", "DROPPED", "P50 MS", "P99 MS"], &rows);
}

fn overview(run: &ComparedRun) -> Vec<String> {
    vec![
        run.policy.clone(),
        run.gpus.to_string(),
        run.offered.to_string(),
        run.good.to_string(),
        format!("{:.2}", run.good_percent()),
        run.late.to_string(),
        run.dropped.to_string(),
        format!("{:.1}", run.gpu_s),
        format!("{:.1}", 100.0 * run.gpu_utilization),
    ]
}

fn by_model(run: &ComparedRun) -> Vec<Vec<String>> {
    let ms = |value: Option<f64>| value.map_or_else(|| "inf".to_owned(), |value| format!("{value:.1}"));
    let row = |model: &symphony_paper::ComparedModel| {
        vec![
            run.policy.clone(),
            run.gpus.to_string(),
            model.name.clone(),
            model.offered.to_string(),
            model.good.to_string(),
            model.late.to_string(),
            model.dropped.to_string(),
            ms(model.p50_ms),
            ms(model.p99_ms),
        ]
    };
    run.models.iter().map(row).collect()
}

pub(super) fn json(of_tapes: &OfTapes, runs: &[ComparedRun]) -> serde_json::Value {
    let OfTapes { requests, models, lasts_s } = of_tapes;
    json!({ "requests": requests, "models": models, "seconds": lasts_s, "runs": runs })
}
