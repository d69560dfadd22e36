//! The Kairos paper, Figure 1 (section 4): heterogeneous configurations against the best homogeneous one.

use anyhow::Result;

use super::cell;
use super::kairos::{BUDGET_PER_HOUR, bar, bars, differences, labelled, only, setup, studies, words};
use crate::lab::Lab;
use crate::plot::Figure;
use crate::report::{Comparison, Plot, Report, Table};
use crate::system::{AUTO, KAIROS, RIBBON};

/// The figure's fleets of RM2: G1, C1 and C2, and none of the fourth kind.
pub(super) const FLEETS: [[u32; 4]; 4] = [[4, 0, 0, 0], [3, 1, 3, 0], [2, 0, 9, 0], [1, 4, 2, 0]];

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let study = only(studies(lab)?, "rm2")?;
    let wanted = [RIBBON, KAIROS, AUTO];
    let systems = lab.known(&wanted);
    let mut table = Table::new(&["policy", "fleet", "price_per_hour", "goodput_rps", "at_budget_rps"]);
    let (mut panels, mut over) = (Vec::new(), None);
    for system in &systems {
        let fleets: Vec<_> = FLEETS.iter().map(|counts| (counts.to_vec(), *system)).collect();
        let found = study.goodputs(lab, &fleets)?;
        let mut all = Vec::new();
        let mut at_budget = Vec::new();
        for ((counts, _), rate_rps) in fleets.iter().zip(&found) {
            let price = study.problem.price_per_hour(counts);
            // Only equal GPUs are scaled to what is left of the budget, to their advantage.
            let scaled = if counts[1..].iter().all(|&count| count == 0) {
                rate_rps * BUDGET_PER_HOUR / price
            } else {
                *rate_rps
            };
            at_budget.push(scaled);
            table.rows.push(vec![
                system.key.to_owned(),
                words(counts),
                cell(price, 3),
                cell(*rate_rps, 2),
                cell(scaled, 2),
            ]);
            all.push(bar(labelled(system, &words(&counts[..3])), Some(scaled), 1, None));
        }
        if *system == RIBBON {
            over = Some(at_budget[1] / at_budget[0].max(1e-9));
        }
        panels.push(bars(system.label, "goodput, r/s", all));
    }
    let figure = Figure {
        title: "Not every unequal fleet is better than equal GPUs".to_owned(),
        subtitle: "RM2 within 350 ms, for 2.5 $ an hour; numbers of g4dn.xlarge, c5n.2xlarge and r5n.large".to_owned(),
        columns: panels.len().clamp(1, 2),
        panels,
        theirs: String::new(),
        note: "The Kairos paper, Figure 1, which uses Ribbon's policy; the others are added. (1, 4, 2) costs 2.552 $."
            .to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons: vec![Comparison::words("kairos-fig1", "heterogeneous", over, "×")],
        setup: setup(lab),
        differences: differences(),
        missing: Report::missing(&wanted, &systems),
    })
}
