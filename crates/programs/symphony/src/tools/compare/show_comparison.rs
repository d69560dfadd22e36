//! A comparison for people and for programs.

use std::fmt;

use serde_json::json;
use symphony_paper::ComparedRun;

use super::recorded::Recorded;
use crate::inspect::table;

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

pub(super) fn table(of_tapes: &OfTapes, happened: Option<&Recorded>, runs: &[ComparedRun]) {
    println!("{of_tapes}, simulated");
    let all = || happened.map(|happened| &happened.run).into_iter().chain(runs);
    let rows: Vec<_> = all().map(overview).collect();
    table::print(&["POLICY", "GPUS", "OFFERED", "GOOD", "GOOD %", "LATE", "DROPPED", "GPU S", "USED %"], &rows);
    println!();
    let rows: Vec<_> = all().flat_map(by_model).collect();
    table::print(&["POLICY", "GPUS", "MODEL", "OFFERED", "GOOD", "LATE", "DROPPED", "P50 MS", "P99 MS"], &rows);
    if let Some(Recorded { run, cancelled, unknown }) = happened {
        println!(
            "\n{}: what happened, by what the lead heard; {cancelled} requests were cancelled, and of {unknown} the tapes \
             do not say what became",
            run.policy
        );
    }
}

/// GPUs whose number is not on the tapes are shown as `-`.
fn gpus(run: &ComparedRun) -> String {
    if run.gpus == 0 { "-".to_owned() } else { run.gpus.to_string() }
}

fn overview(run: &ComparedRun) -> Vec<String> {
    vec![
        run.policy.clone(),
        gpus(run),
        run.offered.to_string(),
        run.good.to_string(),
        format!("{:.2}", run.good_percent()),
        run.late.to_string(),
        run.dropped.to_string(),
        format!("{:.1}", run.gpu_s),
        if run.gpus == 0 { "-".to_owned() } else { format!("{:.1}", 100.0 * run.gpu_utilization) },
    ]
}

fn by_model(run: &ComparedRun) -> Vec<Vec<String>> {
    let ms = |value: Option<f64>| value.map_or_else(|| "inf".to_owned(), |value| format!("{value:.1}"));
    let row = |model: &symphony_paper::ComparedModel| {
        vec![
            run.policy.clone(),
            gpus(run),
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

pub(super) fn json(of_tapes: &OfTapes, happened: Option<&Recorded>, runs: &[ComparedRun]) -> serde_json::Value {
    let OfTapes { requests, models, lasts_s } = of_tapes;
    let happened = happened.map(|Recorded { run, cancelled, unknown }| {
        let mut shown = json!(run);
        shown["cancelled"] = json!(cancelled);
        shown["unknown"] = json!(unknown);
        shown
    });
    json!({ "requests": requests, "models": models, "seconds": lasts_s, "recorded": happened, "runs": runs })
}
