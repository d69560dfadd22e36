//! The Nexus paper, Figure 4 (section 4.2): no division of a latency budget is the best one for every fan-out.

use anyhow::{Context as _, Result};
use symphony_pipeline::{BatchOption, EdgeSpec, Pipeline, PipelineSpec, Split, Stage, split_options};
use symphony_types::{LatencyProfile, Nanos, RequestValue};

use super::cell;
use crate::data::{self, Fig3Row, Fig4Row};
use crate::lab::Lab;
use crate::page::number;
use crate::plot::{Axis, Bar, Bars, Figure, Panel, Style};
use crate::report::{Comparison, Plot, Report, Table};

/// The budget of the paper's query.
const SLO: Nanos = Nanos::from_millis(100);
/// All latencies of Figure 3 are multiples of it.
const STEP: Nanos = Nanos::from_millis(10);

pub(crate) fn run(_: &Lab<'_>) -> Result<Report> {
    let profiles = data::nexus_fig3();
    let printed = data::nexus_fig4();
    let mut table = Table::new(&["gamma", "budget_x_ms", "budget_y_ms", "throughput_rps", "paper_rps", "best"]);
    let (mut panels, mut comparisons) = (Vec::new(), Vec::new());
    let mut gammas: Vec<f64> = printed.iter().map(|row| row.gamma).collect();
    gammas.sort_by(f64::total_cmp);
    gammas.dedup();
    for gamma in gammas {
        let best = split(&profiles, gamma, None)?;
        let best_x_ms = best.stages[0].budget.as_millis_f64();
        let rows: Vec<&Fig4Row> = printed.iter().filter(|row| row.gamma == gamma).collect();
        let mut bars = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            let ours = 1.0 / split(&profiles, gamma, Some((row.budget_x_ms, row.budget_y_ms)))?.gpus;
            let is_best = row.budget_x_ms == best_x_ms;
            let plan = format!("{} + {} ms", row.budget_x_ms, row.budget_y_ms);
            let key = format!("rps_{}_{}", row.budget_x_ms, gamma);
            let what = format!("γ = {gamma}, {plan}: throughput of a GPU");
            let theirs = row.avg_throughput_rps;
            comparisons.push(Comparison::printed(key, what, theirs, Some(ours), "r/s", "Figure 4"));
            let chosen = if is_best { ", chosen" } else { "" };
            let text = format!("{}{chosen}", number(ours));
            bars.push(Bar { style: Style::plain(&plan, at), value: Some(ours), text, theirs: Some((theirs, theirs)) });
            let best = if is_best { "yes" } else { "no" };
            let (x, y) = (cell(row.budget_x_ms, 0), cell(row.budget_y_ms, 0));
            table.rows.push(vec![gamma.to_string(), x, y, cell(ours, 2), cell(theirs, 1), best.to_owned()]);
        }
        let most = rows.iter().max_by(|a, b| a.avg_throughput_rps.total_cmp(&b.avg_throughput_rps));
        let theirs = most.context("Figure 4 has no row")?.budget_x_ms;
        let what = format!("γ = {gamma}: budget of X that is best");
        comparisons.push(Comparison::printed(format!("best_{gamma}"), what, theirs, Some(best_x_ms), "ms", "Figure 4"));
        panels.push(Panel::Bars(Bars {
            title: format!("γ = {gamma}"),
            axis: Axis::from_zero("throughput of a GPU, r/s"),
            bars,
            rules: Vec::new(),
        }));
    }
    let figure = Figure {
        title: "The best division of a budget depends on the fan-out".to_owned(),
        subtitle: "X feeds Y γ times within 100 ms; throughput over all GPUs, by the budgets of X + Y".to_owned(),
        columns: 3,
        panels,
        theirs: "the paper's value".to_owned(),
        note: "Chosen: what the split of the budget finds among all of Figure 3. The Nexus paper, Figure 4.".to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons,
        setup: "The two models of the paper's Figure 3 (`data/nexus_fig3.csv`), X before Y. Each division is what \
                `split_options` makes of the two latencies alone, and the chosen one what it makes of all: f(u, t) of \
                section 6.2 with steps of 10 ms."
            .to_owned(),
        differences: vec!["The paper rounds to a tenth; rounded, ours are the same.".to_owned()],
        missing: Vec::new(),
    })
}

/// The split at one request a second: of all latencies of Figure 3, or of one of each model.
fn split(profiles: &[Fig3Row], gamma: f64, only: Option<(f64, f64)>) -> Result<Split> {
    let options = |model: &str, only: Option<f64>, rate_rps: f64| -> Vec<BatchOption> {
        let rows = profiles.iter().filter(|row| row.model == model && only.is_none_or(|only| only == row.latency_ms));
        rows.map(|row| option(row, rate_rps)).collect()
    };
    let stages = [options("X", only.map(|only| only.0), 1.0), options("Y", only.map(|only| only.1), gamma)];
    Ok(split_options(&pipeline(gamma)?, &stages, STEP, Nanos::ZERO)?)
}

/// The paper gives throughput, of which the batch follows; it is not whole for X at 50 ms.
fn option(row: &Fig3Row, rate_rps: f64) -> BatchOption {
    let batch = (row.throughput_rps * row.latency_ms / 1000.0).round() as u32;
    BatchOption { batch, takes: Nanos::from_millis_f64(row.latency_ms), gpus: rate_rps / row.throughput_rps }
}

/// X and then Y. Their profiles are not used, since options are given.
fn pipeline(gamma: f64) -> Result<Pipeline> {
    let profile = LatencyProfile::from_table(&[Nanos::from_millis(40)])?;
    let stage = |name: &str| Stage { name: name.to_owned(), model: name.to_owned(), profile: profile.clone() };
    let (from, to) = ("X".to_owned(), "Y".to_owned());
    Ok(Pipeline::new(PipelineSpec {
        name: "figure-4".to_owned(),
        slo: SLO,
        value: RequestValue::ONE,
        partial: false,
        stages: ["X", "Y"].map(stage).to_vec(),
        edges: vec![EdgeSpec { from, to, gamma, per_row: true, condition: None, most: None }],
    })?)
}
