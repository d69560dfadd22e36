//! One load under several policies and numbers of GPUs, as a page of its own.

use serde::Serialize;

use crate::plot::{Axis, Bar, Bars, Draw, Figure, Lines, Panel, Series, Style, escaped};

/// The result of the load under one policy on this many GPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedRun {
    /// The policy as it is written.
    pub policy: String,
    /// Number of GPUs.
    pub gpus: u32,
    /// Requests that arrived.
    pub offered: u64,
    /// Answered by their deadline.
    pub good: u64,
    /// Answered later.
    pub late: u64,
    /// Never answered.
    pub dropped: u64,
    /// Time that GPUs executed, added up, in seconds.
    pub gpu_s: f64,
    /// The busy time over the time of all GPUs.
    pub gpu_utilization: f64,
    /// Each model.
    pub models: Vec<ComparedModel>,
}

/// One model of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedModel {
    /// Name of the model in the recorded load.
    pub name: String,
    /// Requests that arrived.
    pub offered: u64,
    /// Answered by their deadline.
    pub good: u64,
    /// Answered later.
    pub late: u64,
    /// Never answered.
    pub dropped: u64,
    /// Median of the time from arrival to answer in milliseconds, dropped requests as infinite; `None` where infinite.
    pub p50_ms: Option<f64>,
    /// The 99th percentile.
    pub p99_ms: Option<f64>,
}

impl ComparedRun {
    /// Good requests in percent of those that arrived.
    #[must_use]
    pub fn good_percent(&self) -> f64 {
        100.0 * self.good as f64 / self.offered.max(1) as f64
    }

    /// The largest 99th percentile of a model in milliseconds; `None` if one is infinite.
    #[must_use]
    pub fn worst_p99_ms(&self) -> Option<f64> {
        let offered = self.models.iter().filter(|model| model.offered > 0);
        offered.map(|model| model.p99_ms).try_fold(0.0, |worst: f64, p99_ms| Some(worst.max(p99_ms?)))
    }
}

/// What is drawn of each run.
type Quantity = (&'static str, fn(&ComparedRun) -> Option<f64>);

const QUANTITIES: [Quantity; 3] = [
    ("good, %", |run| Some(run.good_percent())),
    ("GPU time, s", |run| Some(run.gpu_s)),
    ("p99 of the slowest model, ms", ComparedRun::worst_p99_ms),
];

const STYLE: &str = "body{font-family:Inter,'Segoe UI','Helvetica Neue',Arial,sans-serif;margin:24px;color:#1b1f24}\
                     table{border-collapse:collapse;margin:16px 0}\
                     td,th{padding:4px 12px;border-bottom:1px solid #e6e9ed;text-align:right}\
                     td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}";

/// One page of HTML with plots and tables, without anything to load.
#[must_use]
pub fn comparison_page(title: &str, subtitle: &str, runs: &[ComparedRun]) -> String {
    let panels = panels(runs);
    // Bars need room for the names of policies.
    let columns = if matches!(panels.first(), Some(Panel::Bars(_))) { 1 } else { panels.len() };
    let figure = Figure {
        title: title.to_owned(),
        subtitle: subtitle.to_owned(),
        columns,
        panels,
        theirs: String::new(),
        note: "Policies are simulated with the scheduler's own decisions. A percentile is infinite, and not drawn, where so many \
               requests were dropped."
            .to_owned(),
    };
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n{}{}{}</body>\n</html>\n",
        figure.render(),
        overview(runs),
        by_model(runs)
    )
}

fn panels(runs: &[ComparedRun]) -> Vec<Panel> {
    let mut gpus: Vec<f64> = runs.iter().map(|run| f64::from(run.gpus)).collect();
    gpus.sort_by(f64::total_cmp);
    gpus.dedup();
    let policies = policies(runs);
    let panel = |&(label, value): &Quantity| match gpus.as_slice() {
        [] | [_] => Panel::Bars(bars(label, value, runs)),
        several => {
            let x =
                Axis { ticks: Some(several.to_vec()), ..Axis::between("GPUs", several[0], several[several.len() - 1]) };
            let mut lines = Lines::new("", x, Axis::from_zero(label));
            for (index, policy) in policies.iter().enumerate() {
                let mut points: Vec<(f64, f64)> = runs
                    .iter()
                    .filter(|run| run.policy == *policy)
                    .filter_map(|run| Some((f64::from(run.gpus), value(run)?)))
                    .collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                lines.series.push(Series { style: Style::plain(policy, index), draw: Draw::Points, points });
            }
            Panel::Lines(lines)
        }
    };
    QUANTITIES.iter().map(panel).collect()
}

fn bars(label: &str, value: fn(&ComparedRun) -> Option<f64>, runs: &[ComparedRun]) -> Bars {
    let bar = |(index, run): (usize, &ComparedRun)| Bar {
        style: Style::plain(&run.policy, index),
        // Nothing of a bar is drawn where it is infinite.
        value: value(run),
        text: value(run).map_or_else(|| "∞".to_owned(), |value| format!("{value:.1}")),
        theirs: None,
    };
    let bars = runs.iter().enumerate().map(bar).collect();
    Bars { title: label.to_owned(), axis: Axis::from_zero(label), bars, rules: Vec::new() }
}

/// Each once, in the order of the runs.
fn policies(runs: &[ComparedRun]) -> Vec<&str> {
    let mut policies: Vec<&str> = Vec::new();
    for run in runs {
        if !policies.contains(&run.policy.as_str()) {
            policies.push(&run.policy);
        }
    }
    policies
}

fn overview(runs: &[ComparedRun]) -> String {
    let rows = runs.iter().map(|run| {
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
    });
    let header = ["policy", "GPUs", "offered", "good", "good, %", "late", "dropped", "GPU time, s", "utilisation, %"];
    html_table(&header, rows)
}

fn by_model(runs: &[ComparedRun]) -> String {
    let ms = |value: Option<f64>| value.map_or_else(|| "∞".to_owned(), |value| format!("{value:.1}"));
    let rows = runs.iter().flat_map(|run| {
        run.models.iter().map(move |model| {
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
        })
    });
    let header = ["policy", "GPUs", "model", "offered", "good", "late", "dropped", "p50, ms", "p99, ms"];
    html_table(&header, rows)
}

fn html_table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |tag: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let head = line("th", header.iter().map(|&cell| cell.to_owned()).collect());
    let body: String = rows.map(|row| line("td", row)).collect();
    format!("<table>\n{head}{body}</table>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(policy: &str, gpus: u32, p99_ms: Option<f64>) -> ComparedRun {
        let (offered, good, late, dropped) = (200, 150, 30, 20);
        let name = "a<b>".to_owned();
        let model = ComparedModel { name, offered, good, late, dropped, p50_ms: Some(7.0), p99_ms };
        let (gpu_s, gpu_utilization, policy) = (12.5, 0.25, policy.to_owned());
        ComparedRun { policy, gpus, offered, good, late, dropped, gpu_s, gpu_utilization, models: vec![model] }
    }

    #[test]
    fn a_page_has_plots_and_tables_and_loads_nothing() {
        let runs = [run("auto", 4, Some(25.0)), run("eager", 4, None), run("auto", 8, Some(20.0))];
        let page = comparison_page("Compared", "an hour", &runs);
        assert_eq!(page.matches("<svg").count(), 1);
        assert!(page.contains("a&lt;b&gt;") && !page.contains("a<b>"), "{page}");
        assert!(page.contains("<td>75.00</td>") && page.contains("<td>∞</td>"), "{page}");
        let loads = ["<script", "<link", "src=", "@import"];
        assert!(loads.iter().all(|word| !page.contains(word)), "{page}");
        let same_gpus = comparison_page("Compared", "an hour", &runs[..2]);
        assert!(same_gpus.contains(">eager</text>"), "{same_gpus}");
    }

    #[test]
    fn the_slowest_model_counts_and_a_dropped_percent_is_infinite() {
        assert_eq!(run("auto", 4, Some(25.0)).worst_p99_ms(), Some(25.0));
        assert_eq!(run("auto", 4, None).worst_p99_ms(), None);
        assert_eq!(run("auto", 4, None).good_percent(), 75.0);
    }
}
