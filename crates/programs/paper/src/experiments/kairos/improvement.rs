//! The goodput of the fleet chosen in one shot over that of the homogeneous fleet, for each model: Figures 8, 15 and
//! 16.

use anyhow::Result;

use super::{
    BUDGET_PER_HOUR, KINDS, RUNS, Sizes, auto_below_kairos, bar, bars, differences, fleet_of_auto, labelled, setup,
    studies_with, words,
};
use crate::experiments::cell;
use crate::lab::Lab;
use crate::plot::Figure;
use crate::report::{Comparison, Plot, Report, Table};
use crate::system::{AUTO, KAIROS};

/// One panel: a setting of the paper's that differs from its usual one.
pub(crate) struct Variant {
    /// The panel's title.
    pub(crate) title: &'static str,
    /// The claim about the least of the models.
    pub(crate) claim: &'static str,
    pub(crate) sizes: Sizes,
    /// The budget over the usual one.
    pub(crate) budget_factor: f64,
    /// The SLO over the usual one.
    pub(crate) slo_factor: f64,
    /// Further keys of the scenarios, as TOML.
    pub(crate) more: &'static str,
}

/// The page of the variants.
pub(crate) fn report(
    lab: &Lab<'_>,
    figure: &'static str,
    title: &str,
    note: &str,
    variants: &[Variant],
) -> Result<Report> {
    let wanted = [KAIROS, AUTO];
    let systems = lab.known(&wanted);
    let header = [
        "variant",
        "model",
        "policy",
        "fleet",
        "price_per_hour",
        "bound_rps",
        "goodput_rps",
        "homogeneous_rps",
        "ratio",
    ];
    let mut table = Table::new(&header);
    let (mut panels, mut comparisons, mut bases) = (Vec::new(), Vec::new(), Vec::new());
    for variant in variants {
        let budget_per_hour = BUDGET_PER_HOUR * variant.budget_factor;
        let studies = studies_with(lab, &variant.sizes, budget_per_hour, variant.slo_factor, variant.more)?;
        let mut of_kairos = Vec::new();
        let mut all = Vec::new();
        for study in &studies {
            if let Some(base) = study.ranking.base.filter(|&base| base != 0) {
                bases.push(format!(
                    "{}, {}: {} answers every request in time as well, for less, and is the base; equal GPUs are {} all the same, as in the \
                     paper.",
                    variant.title, study.label, KINDS[base].0, KINDS[0].0
                ));
            }
            for system in &systems {
                let chosen = study.in_one_shot(system)?;
                let rate_rps = study.goodput(lab, &chosen.counts, system)?;
                let equal_rps = study.homogeneous_rps(lab, system)?;
                let ratio = rate_rps / equal_rps.max(1e-9);
                table.rows.push(vec![
                    variant.title.to_owned(),
                    study.name.to_owned(),
                    system.key.to_owned(),
                    words(&chosen.counts),
                    cell(chosen.price_per_hour, 3),
                    cell(chosen.bound_rps, 2),
                    cell(rate_rps, 2),
                    cell(equal_rps, 2),
                    cell(ratio, 3),
                ]);
                if *system == KAIROS {
                    of_kairos.push((study.name, ratio));
                }
                all.push(bar(labelled(system, &format!("{}, {}", study.label, system.label)), Some(ratio), 2, None));
            }
        }
        let least = of_kairos.iter().map(|known| known.1).reduce(f64::min);
        if figure == "kairos-fig8" {
            let rm2 = of_kairos.iter().find(|known| known.0 == "rm2").map(|known| known.1);
            comparisons.push(Comparison::words(figure, "rm2", rm2, "×"));
        }
        comparisons.push(Comparison::words(figure, variant.claim, least, "×"));
        panels.push(bars(variant.title, "goodput over that of equal GPUs", all));
    }
    let plot = Figure {
        title: title.to_owned(),
        subtitle:
            "The fleet chosen by bounds, over as many of the base as the budget buys, scaled up to the whole budget"
                .to_owned(),
        columns: panels.len().min(2),
        panels,
        theirs: String::new(),
        note: note.to_owned(),
    };
    let mut differences = differences();
    differences.push(
        "Equal GPUs are served by the same policy as the chosen fleet, so that only the fleet differs.".to_owned(),
    );
    differences.extend([fleet_of_auto(), auto_below_kairos()]);
    if figure == "kairos-fig8" {
        differences.push(format!(
            "WND under `auto` is below equal GPUs. On the base a batch shares 2.4 ms, and each item takes 7 µs; on an r5n.large it takes 40. So what the rest of the \
             budget buys beside four bases is less than the scaling to the whole budget makes of these, 4.75 of them ([runs]({RUNS}))."
        ));
    }
    differences.extend(bases);
    Ok(Report {
        plots: vec![Plot { suffix: "", figure: plot }],
        tables: vec![table],
        comparisons,
        setup: setup(lab),
        differences,
        missing: Report::missing(&wanted, &systems),
    })
}
