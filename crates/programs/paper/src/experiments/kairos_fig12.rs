//! The Kairos paper, Figure 12 (section 8.4): the configurations that each scheme evaluates after the sizes have
//! changed from log-normal to Gaussian.

use anyhow::Result;

use super::cell;
use super::kairos::{
    BUDGET_PER_HOUR, GAUSSIAN, SYSTEMS, differences_with_oracle, fleet_of_auto, only, rivals_are_in_time, setup,
    studies, studies_with, words,
};
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Rule, Series};
use crate::report::{Comparison, Plot, Report, Table};
use crate::system::{AUTO, DRS, KAIROS, ORACLE, RIBBON};

/// Evaluations that the figure shows.
const SHOWN: usize = 20;

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let before = only(studies(lab)?, "rm2")?;
    let after = only(studies_with(lab, &GAUSSIAN, BUDGET_PER_HOUR, 1.0, "")?, "rm2")?;
    let systems = lab.known(&SYSTEMS);
    let mut table = Table::new(&["policy", "step", "fleet", "goodput_rps"]);
    let x = Axis::from_zero("fleets tried after the change");
    let mut lines = Lines::new("RM2, Gaussian sizes", x, Axis::from_zero("goodput, r/s"));
    let chosen = [&before, &after].map(|study| study.ranking.chosen().counts.clone());
    let (mut first_of_rivals, mut best_of_kairos, mut one_shot_rps) = (Vec::new(), None, None);
    for system in &systems {
        let (ranking, found) = after.best(lab, system)?;
        let shown = found.evaluations.iter().take(SHOWN);
        let points: Vec<(f64, f64)> = (1_u32..).map(f64::from).zip(shown.clone().map(|tried| tried.rate_rps)).collect();
        for (step, tried) in shown.enumerate() {
            let fleet = words(&ranking.fleets[tried.place].counts);
            table.rows.push(vec![system.key.to_owned(), (step + 1).to_string(), fleet, cell(tried.rate_rps, 2)]);
        }
        if [RIBBON, DRS].contains(system) {
            first_of_rivals.extend(points.first().map(|point| point.1));
        }
        if *system == KAIROS {
            best_of_kairos = found.best.map(|best| found.evaluations[best].rate_rps);
        }
        if [KAIROS, AUTO].contains(system) {
            let [former, new] = [before.in_one_shot(system)?.counts, after.in_one_shot(system)?.counts];
            let at_once = after.goodput(lab, &new, system)?;
            let kept = after.goodput(lab, &former, system)?;
            for (step, counts, rate_rps) in [("one shot", &new, at_once), ("kept", &former, kept)] {
                table.rows.push(vec![system.key.to_owned(), step.to_owned(), words(counts), cell(rate_rps, 2)]);
            }
            lines.rules.push(Rule::Level(at_once, format!("{} in one shot", system.label)));
            if *system == KAIROS {
                one_shot_rps = Some(at_once);
            }
        }
        lines.series.push(Series { style: system.style(), draw: Draw::Points, points });
    }
    let (oracle_rps, _) = after.best_rps(lab, &ORACLE)?;
    let figure = Figure {
        title: "When the sizes change, bounds know the new fleet at once".to_owned(),
        subtitle: format!("Chosen by Kairos's bound before: {}; after: {}", words(&chosen[0]), words(&chosen[1])),
        columns: 1,
        panels: vec![Panel::Lines(lines)],
        theirs: String::new(),
        note: "The Kairos paper, Figure 12: the first twenty fleets that each search tries. Gaussian: mean 240 items, deviation 100."
            .to_owned(),
    };
    let mean = first_of_rivals.iter().sum::<f64>() / first_of_rivals.len().max(1) as f64;
    let over_rivals = one_shot_rps.filter(|_| mean > 0.0).map(|rate_rps: f64| rate_rps / mean);
    let over_oracle = best_of_kairos.map(|best: f64| best / oracle_rps.max(1e-9));
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons: vec![
            Comparison::words("kairos-fig12", "rivals", over_rivals, "×"),
            Comparison::words("kairos-fig12", "oracle", over_oracle, "×"),
        ],
        setup: setup(lab),
        differences: [differences_with_oracle(), vec![fleet_of_auto(), rivals_are_in_time()]].concat(),
        missing: Report::missing(&SYSTEMS, &systems),
    })
}
