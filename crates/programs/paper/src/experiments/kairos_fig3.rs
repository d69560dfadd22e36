//! The Kairos paper, Figure 3 (section 4): the same configurations with several query distribution mechanisms.

use anyhow::Result;

use super::cell;
use super::kairos::{ALL_SYSTEMS, bar, bars, differences_with_oracle, labelled, only, setup, studies, words};
use super::kairos_fig1::FLEETS;
use crate::lab::Lab;
use crate::plot::Figure;
use crate::report::{Comparison, Plot, Report, Table};
use crate::system::{CLKWRK, DRS, ORACLE, RIBBON, System};

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let study = only(studies(lab)?, "rm2")?;
    let systems = lab.known(&ALL_SYSTEMS);
    let mut table = Table::new(&["fleet", "policy", "goodput_rps"]);
    let (mut panels, mut least) = (Vec::new(), None::<f64>);
    // The first fleet has equal GPUs.
    for counts in &FLEETS[1..] {
        let wanted: Vec<_> = systems.iter().map(|system| (counts.to_vec(), *system)).collect();
        let found = study.goodputs(lab, &wanted)?;
        let of = |system: System| systems.iter().position(|known| *known == system).map(|at| found[at]);
        let rivals = [RIBBON, DRS, CLKWRK].into_iter().filter_map(of).reduce(f64::max);
        if let (Some(oracle), Some(rivals)) = (of(ORACLE), rivals) {
            let over = oracle / rivals.max(1e-9);
            least = Some(least.map_or(over, |least| least.min(over)));
        }
        let mut all = Vec::new();
        for system in &ALL_SYSTEMS {
            all.push(bar(labelled(system, system.label), of(*system), 1, None));
        }
        for (system, rate_rps) in systems.iter().zip(&found) {
            table.rows.push(vec![words(counts), system.key.to_owned(), cell(*rate_rps, 2)]);
        }
        panels.push(bars(&format!("RM2 on {}", words(&counts[..3])), "goodput, r/s", all));
    }
    let figure = Figure {
        title: "Who gets which request decides what a fleet answers".to_owned(),
        subtitle: "RM2 within 350 ms; numbers of g4dn.xlarge, c5n.2xlarge and r5n.large".to_owned(),
        columns: 2,
        panels,
        theirs: String::new(),
        note: "The Kairos paper, Figure 3; kairos and auto are added.".to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons: vec![Comparison::words("kairos-fig3", "oracle", least, "×")],
        setup: setup(lab),
        differences: differences_with_oracle(),
        missing: Report::missing(&ALL_SYSTEMS, &systems),
    })
}
