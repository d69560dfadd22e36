//! The Kairos paper, Figure 10 (section 8.3): how much of the space each scheme evaluates until it has its best
//! configuration.

use anyhow::Result;

use super::cell;
use super::kairos::{SYSTEMS, bar, bars, differences, labelled, setup, studies};
use crate::lab::Lab;
use crate::plot::Figure;
use crate::report::{Comparison, Plot, Report, Table};
use crate::system::{DRS, KAIROS, RIBBON};

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let systems = lab.known(&SYSTEMS);
    let mut table = Table::new(&["model", "policy", "fleets", "tried", "share", "best_found_after"]);
    let (mut panels, mut of_kairos, mut of_rivals) = (Vec::new(), None::<f64>, Vec::new());
    for study in studies(lab)? {
        let mut all = Vec::new();
        for system in &systems {
            let (ranking, found) = study.best(lab, system)?;
            let (fleets, tried) = (ranking.fleets.len(), found.evaluations.len());
            let share = tried as f64 / fleets as f64;
            let after = found.best.map_or(0, |best| best + 1);
            table.rows.push(vec![
                study.name.to_owned(),
                system.key.to_owned(),
                fleets.to_string(),
                tried.to_string(),
                cell(share, 4),
                after.to_string(),
            ]);
            all.push(bar(labelled(system, system.label), Some(100.0 * share), 2, None));
            if *system == KAIROS {
                of_kairos = Some(of_kairos.map_or(share, |most| most.max(share)));
            }
            if [RIBBON, DRS].contains(system) {
                of_rivals.push(share);
            }
        }
        panels.push(bars(study.label, "fleets tried, % of all", all));
    }
    let figure = Figure {
        title: "How many fleets must be tried".to_owned(),
        subtitle: "Until every other fleet is ruled out: by its bound, or as part of one that was tried".to_owned(),
        columns: 2,
        panels,
        theirs: String::new(),
        note: "The Kairos paper, Figure 10; every policy by the same search, as there.".to_owned(),
    };
    let rivals = if of_rivals.is_empty() { None } else { Some(of_rivals.iter().sum::<f64>() / of_rivals.len() as f64) };
    let mut differences = differences();
    differences.push(
        "The search goes on until nothing can be better, by a bound that holds for every schedule; Kairos prunes by its own bound, which is \
         lower and now and then too low."
            .to_owned(),
    );
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons: vec![
            Comparison::words("kairos-fig10", "kairos", of_kairos, ""),
            Comparison::words("kairos-fig10", "rivals", rivals, ""),
        ],
        setup: setup(lab),
        differences,
        missing: Report::missing(&SYSTEMS, &systems),
    })
}
