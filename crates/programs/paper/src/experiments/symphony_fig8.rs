//! The Symphony paper, Figure 8 (section 5.2.2): the batch sizes of requests at the goodput of each system.

use anyhow::Result;

use super::{cell, two_models};
use crate::data;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Rule, Series};
use crate::report::{Comparison, Plot, Report, Table};
use crate::system::{NEXUS_1, SYMPHONY};

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let mut table = Table::new(&["model", "system", "batch", "share_of_requests"]);
    let (mut panels, mut comparisons) = (Vec::new(), Vec::new());
    for row in data::table4() {
        let title = format!("{}, SLO {:.0} ms", row.model, row.slo_ms);
        let mut lines = Lines::new(&title, Axis::from_zero("batch size"), Axis::from_zero("share of requests, %"));
        let mut medians = Vec::new();
        for (system, _, run) in two_models::at_goodput(lab, &row)? {
            let all: u64 = run.batch_size_by_request.values().sum();
            let share = |requests: u64| requests as f64 / all.max(1) as f64;
            for (batch, &requests) in &run.batch_size_by_request {
                table.rows.push(vec![
                    row.model.clone(),
                    system.key.to_owned(),
                    batch.to_string(),
                    cell(share(requests), 4),
                ]);
            }
            // A system that is far from any rate has nothing to show.
            if all > 0 {
                let largest = run.batch_size_by_request.keys().last().copied().unwrap_or(0);
                let size = |batch: u32| run.batch_size_by_request.get(&batch).copied().unwrap_or(0);
                let points = (1..=largest).map(|batch| (f64::from(batch), 100.0 * share(size(batch)))).collect();
                lines.series.push(Series { style: system.style(), draw: Draw::Points, points });
            }
            let mut seen = 0;
            let median = run.batch_size_by_request.iter().find(|&(_, &requests)| {
                seen += requests;
                2 * seen >= all
            });
            medians.push((system, median.map_or(0.0, |(&batch, _)| f64::from(batch))));
        }
        let largest = lines.series.iter().flat_map(|series| &series.points).map(|point| point.0).fold(1.0, f64::max);
        let step = if largest > 10.0 { 2 } else { 1 };
        lines.x = Axis::between("batch size", 0.0, largest + 1.0);
        lines.x.ticks = Some((0..=largest as u32).step_by(step).map(f64::from).collect());
        lines.rules.push(Rule::Upright(f64::from(row.stagger_bs), format!("staggered: {}", row.stagger_bs)));
        for (key, system) in [("symphony", SYMPHONY), ("nexus", NEXUS_1)] {
            let ours = medians.iter().find(|(known, _)| *known == system).map(|(_, median)| *median);
            let key = format!("{}_{key}", row.model.to_lowercase());
            lines.theirs.push((data::claim("symphony-fig8", &key).low, 0.0, system.style().colour));
            let mut comparison = Comparison::words("symphony-fig8", &key, ours, "");
            comparison.what += "; ours: the median request's batch";
            comparisons.push(comparison);
        }
        panels.push(Panel::Lines(lines));
    }
    let figure = Figure {
        title: "In what batch sizes requests run".to_owned(),
        subtitle: "One model on 8 GPUs, each system at its own goodput. Dashed: the analytic batch size of staggered execution".to_owned(),
        columns: 2,
        panels,
        theirs: "the paper's words: above this most requests run, with symphony (blue) and nexus (purple)".to_owned(),
        note: "The Symphony paper, Figure 8.".to_owned(),
    };
    let systems = lab.known(&two_models::SYSTEMS);
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons,
        setup: format!("The scenarios of Table 4, each system at its own goodput, seed 1. The search: {}.", lab.words()),
        differences: vec![
            "The text says above which size most requests run. Ours is the batch size of the median request, so a little above the paper's \
             bound is agreement."
                .to_owned(),
            "Without delays the SLO leaves room for slightly larger batches than in the paper's running system.".to_owned(),
        ],
        missing: Report::missing(&two_models::SYSTEMS, &systems),
    })
}
