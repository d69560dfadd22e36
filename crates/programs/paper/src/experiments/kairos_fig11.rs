//! The Kairos paper, Figure 11 (section 8.3): evaluations of Kairos+ against other search algorithms.

use anyhow::Result;

use super::cell;
use super::kairos::{bar, bars, bayesian, differences, genetic, random, setup, studies};
use crate::lab::Lab;
use crate::plot::{Figure, Style};
use crate::report::{Comparison, Plot, Report, Table};
use crate::system::{AUTO, KAIROS};

/// A fleet within this of the best counts as found: the resolution of goodputs.
const FOUND: f64 = 0.99;
/// Seeds of the searches that draw.
const SEEDS: (u64, u64) = (5, 1);

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let mut table = Table::new(&["model", "policy", "search", "fleets_tried"]);
    let (mut panels, mut least) = (Vec::new(), None::<f64>);
    // Without Kairos's policy the searches still are ours.
    let system = lab.known(&[KAIROS]).first().copied().unwrap_or(AUTO);
    for study in studies(lab)? {
        let (_, found) = study.best(lab, &system)?;
        let best_rps = found.best.map_or(0.0, |best| found.evaluations[best].rate_rps);
        let reached = found.evaluations.iter().position(|evaluation| evaluation.rate_rps >= FOUND * best_rps);
        let by_bounds = reached.map_or(found.evaluations.len(), |at| at + 1) as f64;
        let evaluate = |counts: &[u32]| study.goodput(lab, counts, &system);
        let seeds = lab.pick(SEEDS.0, SEEDS.1);
        let (mut by_chance, mut by_genes, mut by_expectation) = (0.0, 0.0, 0.0);
        // Quick: the target is that of few fleets, so that the searches end soon as well.
        let target_rps = FOUND * best_rps * lab.pick(1.0, 0.7);
        for seed in 1..=seeds {
            by_chance += random(&study, &evaluate, target_rps, seed)? as f64 / seeds as f64;
            by_genes += genetic(&study, &evaluate, target_rps, seed)? as f64 / seeds as f64;
            by_expectation += bayesian(&study, &evaluate, target_rps, seed)? as f64 / seeds as f64;
        }
        let searches =
            [("Kairos+", by_bounds), ("random", by_chance), ("genetic", by_genes), ("Bayesian", by_expectation)];
        let mut all = Vec::new();
        for (at, (search, tried)) in searches.into_iter().enumerate() {
            table.rows.push(vec![study.name.to_owned(), system.key.to_owned(), search.to_owned(), cell(tried, 1)]);
            all.push(bar(Style::plain(search, at), Some(tried), 1, None));
        }
        let over = by_chance.min(by_genes).min(by_expectation) / by_bounds.max(1.0);
        least = Some(least.map_or(over, |least| least.min(over)));
        panels.push(bars(study.label, "fleets tried until the best is found", all));
    }
    let figure = Figure {
        title: "Bounds find the best fleet in few trials".to_owned(),
        subtitle: format!("Policy: {}. All searches leave out what is part of a fleet that was tried", system.label),
        columns: 2,
        panels,
        theirs: String::new(),
        note: "The Kairos paper, Figure 11.".to_owned(),
    };
    let mut differences = differences();
    differences.push(
        "Found is a fleet within 1 % of the best. All searches but that by bounds: the mean of five seeds.".to_owned(),
    );
    differences.push(
        "Ribbon's Bayesian optimisation is written anew: a Gaussian process with a Matérn 5/2 kernel whose length scale is \
         the likeliest of five, expected improvement, five fleets drawn first. Kairos's paper gives none of this."
            .to_owned(),
    );
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons: vec![Comparison::words("kairos-fig11", "others", least, "×")],
        setup: setup(lab),
        differences,
        missing: Report::missing(&[KAIROS], &lab.known(&[KAIROS])),
    })
}
