//! The Symphony paper, Figure 9 (section 5.2.3): how long requests wait for their GPU at the goodput of each system.

use anyhow::Result;

use super::{cell, two_models};
use crate::data;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Rule, Series};
use crate::report::{Comparison, Plot, Report, Table};
use crate::system::{CLOCKWORK, NEXUS_1, SYMPHONY, System};

/// Points of a distribution that are kept: a plot shows no more.
const POINTS: usize = 120;

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let mut table = Table::new(&["model", "system", "p50_ms", "p99_ms", "max_ms"]);
    let mut shares = Table { suffix: "-distribution", ..Table::new(&["model", "system", "queueing_ms", "share"]) };
    let (mut panels, mut comparisons) = (Vec::new(), Vec::new());
    for row in data::table4() {
        let title = format!("{}, SLO {:.0} ms", row.model, row.slo_ms);
        let x = Axis::between("queueing delay, ms", 0.0, row.slo_ms);
        let mut lines = Lines::new(&title, x, Axis::between("requests that wait no longer, %", 0.0, 100.0));
        let mut longest: Vec<(System, f64, f64)> = Vec::new();
        for (system, _, run) in two_models::at_goodput(lab, &row)? {
            let ms = |value: Option<f64>| value.unwrap_or(f64::NAN);
            let queueing = run.queueing_ms;
            table.rows.push(vec![
                row.model.clone(),
                system.key.to_owned(),
                cell(ms(queueing.p50), 2),
                cell(ms(queueing.p99), 2),
                cell(ms(queueing.max), 2),
            ]);
            let points = thinned(&run.queueing_cdf);
            for (wait, share) in &points {
                let words = [row.model.clone(), system.key.to_owned(), cell(*wait, 2), cell(*share, 4)];
                shares.rows.push(words.to_vec());
            }
            let points = points.into_iter().map(|(wait, share)| (wait, 100.0 * share)).collect();
            lines.series.push(Series { style: system.style(), draw: Draw::Line, points });
            longest.push((system, ms(queueing.p50), ms(queueing.max)));
        }
        lines.rules.push(Rule::Upright(row.slo_ms / 2.0, "half the SLO".to_owned()));
        panels.push(Panel::Lines(lines));
        let of = |system: System| longest.iter().find(|(known, ..)| *known == system);
        let model = row.model.to_lowercase();
        for baseline in [CLOCKWORK, NEXUS_1] {
            let shorter = of(baseline).zip(of(SYMPHONY)).map(|(theirs, ours)| theirs.1 / ours.1);
            let mut comparison = Comparison::words("symphony-fig9", "times_shorter", shorter, "×");
            comparison.key = format!("{model}_{}_over_symphony", baseline.key);
            comparison.what = format!("{}: median wait with {} over that with symphony", row.model, baseline.label);
            comparisons.push(comparison);
        }
        let share = of(NEXUS_1).map(|nexus| nexus.2 / row.slo_ms);
        let mut comparison = Comparison::words("symphony-fig9", "nexus_longest_share", share, "");
        comparison.key = format!("{model}_nexus_longest_share");
        comparison.what = format!("{}: {}", row.model, comparison.what);
        comparisons.push(comparison);
    }
    let figure = Figure {
        title: "How long requests wait for a GPU".to_owned(),
        subtitle: "One model on 8 GPUs, each system at its own goodput; from arrival to the start of the batch"
            .to_owned(),
        columns: 2,
        panels,
        theirs: String::new(),
        note: "Dashed: about the longest wait with the paper's Nexus. The Symphony paper, Figure 9.".to_owned(),
    };
    let systems = lab.known(&two_models::SYSTEMS);
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table, shares],
        comparisons,
        setup: format!("The scenarios of Table 4, each system at its own goodput, seed 1. The search: {}.", lab.words()),
        differences: vec![
            "Deferral waits by design, yet requests wait less with it: batches are larger, so the cluster is never behind, and the SLO is \
             spent on executing."
                .to_owned(),
            "Each system stands at its own goodput, not all at one rate; the paper does not say which of the two it shows.".to_owned(),
        ],
        missing: Report::missing(&two_models::SYSTEMS, &systems),
    })
}

/// Every so many points, and the last.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(POINTS).max(1);
    let kept = points.iter().copied().step_by(step);
    let last = points.last().copied().filter(|_| !(points.len() - 1).is_multiple_of(step));
    kept.chain(last).collect()
}
