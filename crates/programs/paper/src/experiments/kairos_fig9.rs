//! The Kairos paper, Figure 9 (section 8.2): Kairos and Kairos+ against rivals, each rival on its best configuration.

use anyhow::Result;

use super::cell;
use super::kairos::{
    ALL_SYSTEMS, auto_below_kairos, bar, bars, differences_with_oracle, fleet_of_auto, labelled, rivals_are_in_time,
    setup, studies,
};
use crate::lab::Lab;
use crate::plot::Figure;
use crate::report::{Comparison, Plot, Report, Table};
use crate::system::{AUTO, CLKWRK, DRS, KAIROS, RIBBON, System};

/// The ratios of two systems' goodputs by model.
fn over(all: &[(&str, System, f64)], one: f64, model: &str, system: System) -> Option<f64> {
    let found = all.iter().find(|known| known.0 == model && known.1 == system)?;
    Some(one / found.2.max(1e-9))
}

fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() { None } else { Some(values.iter().sum::<f64>() / values.len() as f64) }
}

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let systems = lab.known(&ALL_SYSTEMS);
    let mut table = Table::new(&["model", "policy", "fleet_by", "goodput_rps", "fleets_tried"]);
    let (mut panels, mut best) = (Vec::new(), Vec::new());
    let (mut ribbon, mut rivals, mut plus, mut ours) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for study in studies(lab)? {
        let mut all = Vec::new();
        for system in &systems {
            let (rate_rps, tried) = study.best_rps(lab, system)?;
            best.push((study.name, *system, rate_rps));
            let tried = tried.to_string();
            table.rows.push(vec![
                study.name.to_owned(),
                system.key.to_owned(),
                "search".to_owned(),
                cell(rate_rps, 2),
                tried,
            ]);
            all.push(bar(labelled(system, &format!("{}, best fleet", system.label)), Some(rate_rps), 1, None));
        }
        for system in lab.known(&[KAIROS, AUTO]) {
            let one_shot = study.goodput(lab, &study.in_one_shot(&system)?.counts, &system)?;
            let none = String::from("0");
            table.rows.push(vec![
                study.name.to_owned(),
                system.key.to_owned(),
                "bounds".to_owned(),
                cell(one_shot, 2),
                none,
            ]);
            all.push(bar(labelled(&system, &format!("{}, in one shot", system.label)), Some(one_shot), 1, None));
            let over = |other: System| over(&best, one_shot, study.name, other);
            if system == KAIROS {
                ribbon.extend(over(RIBBON));
                rivals.extend([DRS, CLKWRK].into_iter().filter_map(over));
                plus.extend(over(KAIROS).map(f64::recip));
            }
            ours.extend(over(system));
        }
        panels.push(bars(study.label, "goodput, r/s", all));
    }
    let figure = Figure {
        title: "A fleet in one shot against rivals on their best fleets".to_owned(),
        subtitle: "Fleets of at most 2.5 $ an hour; best: found by simulating fleets from the highest bound down"
            .to_owned(),
        columns: 2,
        panels,
        theirs: String::new(),
        note: "The Kairos paper, Figure 9. Kairos+ is kairos on its best fleet.".to_owned(),
    };
    let mut comparisons = vec![
        Comparison::words("kairos-fig9", "ribbon", mean(&ribbon), "×"),
        Comparison::words("kairos-fig9", "rivals", rivals.iter().copied().reduce(f64::max), "×"),
        Comparison::words("kairos-fig9", "plus", mean(&plus), "×"),
    ];
    if let Some(least) = ours.iter().copied().reduce(f64::min) {
        let what = "the fleet in one shot over the best one, the least of models and of kairos and auto";
        comparisons.push(Comparison::aim("one_shot", what, (0.95, f64::INFINITY), least, "×"));
    }
    let mut differences = differences_with_oracle();
    differences.extend([fleet_of_auto(), auto_below_kairos(), rivals_are_in_time()]);
    differences.push(
        "The fleet in one shot that is least of its best one is that of `auto` for RM2: the bound counts the time of GPUs, not that large requests wait for the one \
         base. Two bases, the fifth fleet that the search tries, serve more."
            .to_owned(),
    );
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons,
        setup: setup(lab),
        differences,
        missing: Report::missing(&ALL_SYSTEMS, &systems),
    })
}
