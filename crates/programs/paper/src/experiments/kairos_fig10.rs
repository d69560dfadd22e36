//! The Kairos paper, Figure 10 (section 8.3): how much of the space each scheme evaluates until it has its best
//! configuration.

use anyhow::Result;
use symphony_fleet::{Bound, Found};

use super::cell;
use super::kairos::{SYSTEMS, Study, bar, bars, differences, labelled, setup, studies};
use crate::lab::Lab;
use crate::plot::Figure;
use crate::report::{Comparison, Plot, Report, Table};
use crate::system::{DRS, KAIROS, RIBBON, System};

/// The most, or the least, of the models: of Kairos+ by its own bound.
#[derive(Default)]
struct Plus {
    /// The share of the fleets that it tries, at most.
    tried: Option<f64>,
    /// The share that it has tried when it has its best one, at most.
    found_after: Option<f64>,
    /// Its best fleet over the best one that there is, at least.
    over_best: Option<f64>,
}

impl Plus {
    fn add(&mut self, fleets: usize, by_its_own: &Found, by_every: &Found) {
        let most = |of: Option<f64>, count: usize| Some(of.unwrap_or(0.0).max(count as f64 / fleets as f64));
        let best_rps = |found: &Found| found.best.map_or(0.0, |best| found.evaluations[best].rate_rps);
        self.tried = most(self.tried, by_its_own.evaluations.len());
        self.found_after = most(self.found_after, by_its_own.best.map_or(fleets, |best| best + 1));
        let over = best_rps(by_its_own) / best_rps(by_every).max(1e-9);
        self.over_best = Some(self.over_best.unwrap_or(over).min(over));
    }
}

fn row(study: &Study, system: &System, bound: &str, fleets: usize, found: &Found) -> Vec<String> {
    let tried = found.evaluations.len();
    vec![
        study.name.to_owned(),
        system.key.to_owned(),
        bound.to_owned(),
        fleets.to_string(),
        tried.to_string(),
        cell(tried as f64 / fleets as f64, 4),
        found.best.map_or(0, |best| best + 1).to_string(),
    ]
}

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let systems = lab.known(&SYSTEMS);
    let mut table = Table::new(&["model", "policy", "bound", "fleets", "tried", "share", "best_found_after"]);
    let (mut panels, mut plus, mut of_rivals) = (Vec::new(), Plus::default(), Vec::new());
    for study in studies(lab)? {
        let mut all = Vec::new();
        for system in &systems {
            let (ranking, found) = study.best(lab, system)?;
            let fleets = ranking.fleets.len();
            if *system == KAIROS {
                let (own, by_its_own) = study.best_by(lab, system, Bound::Kairos)?;
                let fleets = own.fleets.len();
                table.rows.push(row(&study, system, "kairos", fleets, &by_its_own));
                let share = by_its_own.evaluations.len() as f64 / fleets as f64;
                all.push(bar(labelled(system, "kairos+, its own bound"), Some(100.0 * share), 2, None));
                plus.add(fleets, &by_its_own, &found);
            }
            table.rows.push(row(&study, system, "every schedule", fleets, &found));
            let share = found.evaluations.len() as f64 / fleets as f64;
            all.push(bar(labelled(system, system.label), Some(100.0 * share), 2, None));
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
        "Searches go on until nothing can be better, by a bound that holds for every schedule. Kairos+ is the same search by Kairos's own \
         bound, which is lower, and now and then too low."
            .to_owned(),
    );
    let mut comparisons = vec![
        Comparison::words("kairos-fig10", "kairos", plus.tried, ""),
        Comparison::words("kairos-fig10", "rivals", rivals, ""),
    ];
    if let (Some(after), Some(over)) = (plus.found_after, plus.over_best) {
        let what = "share of the fleets that Kairos+ has tried when it has its best one, the most of the models";
        comparisons.push(Comparison::aim("found_after", what, (0.0, 0.01), after, ""));
        let what = "the best fleet of Kairos+ over the best one that there is, the least of the models";
        comparisons.push(Comparison::aim("plus_over_best", what, (0.99, f64::INFINITY), over, "×"));
    }
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons,
        setup: setup(lab),
        differences,
        missing: Report::missing(&SYSTEMS, &systems),
    })
}
