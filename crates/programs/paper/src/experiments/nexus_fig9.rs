//! The Nexus paper, Figure 9 (section 6.3): throughput of lazy and early drop.

use anyhow::Result;

use super::cell;
use super::nexus_fig5::{OPTIMAL_RPS, alphas, profile};
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Rule, Series};
use crate::report::{Comparison, Plot, Report, Table};
use crate::system::{AUTO, CLIPPER, EAGER, NEXUS_1, SYMPHONY, System};

const SYSTEMS: [System; 5] = [CLIPPER, EAGER, NEXUS_1, SYMPHONY, AUTO];

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let alphas = alphas(lab);
    let systems = lab.known(&SYSTEMS);
    let mut setups = Vec::new();
    for system in &systems {
        setups.extend(alphas.iter().map(|&alpha| profile(lab, alpha).with_policy(system.policy)));
    }
    let goodputs = lab.goodputs(&setups)?;
    let mut table = Table::new(&["system", "alpha_ms", "throughput_rps", "over_lazy"]);
    let x = Axis::between("α, ms (β = 50 ms − 25 α)", alphas[0], alphas[alphas.len() - 1]);
    let mut lines =
        Lines::new("One GPU, optimal throughput 500 r/s, SLO 100 ms, Poisson", x, Axis::from_zero("throughput, r/s"));
    lines.rules.push(Rule::Level(OPTIMAL_RPS, "optimal".to_owned()));
    let lazy = &goodputs[..alphas.len()];
    let mut most: f64 = 0.0;
    for (system, found) in systems.iter().zip(goodputs.chunks(alphas.len())) {
        for ((alpha, goodput), lazy) in alphas.iter().zip(found).zip(lazy) {
            let over = goodput / lazy.max(1.0);
            if *system == EAGER {
                most = most.max(over);
            }
            table.rows.push(vec![system.key.to_owned(), cell(*alpha, 1), cell(*goodput, 1), cell(over, 3)]);
        }
        let mut style = system.style();
        if *system == EAGER {
            "eager, early drop".clone_into(&mut style.label);
        }
        let points = alphas.iter().copied().zip(found.iter().copied()).collect();
        lines.series.push(Series { style, draw: Draw::Points, points });
    }
    let figure = Figure {
        title: "Giving up early pays".to_owned(),
        subtitle: "Highest rate at which 99 % of the requests are in time, for profiles of equal optimal throughput"
            .to_owned(),
        columns: 1,
        panels: vec![Panel::Lines(lines)],
        theirs: String::new(),
        note: "The Nexus paper, Figure 9; systems other than lazy and early drop are added for comparison.".to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons: vec![Comparison::words("nexus-fig9", "early_over_lazy", Some(most), "×")],
        setup: format!(
            "One model on one GPU, Poisson, {:.0} s after 2 s of warm-up, seeds {:?}. Lazy drop: `clipper`; early drop: \
             `eager`, whose window is the staggered batch, here the same 25 as the one of the paper's global scheduler.",
            profile(lab, 1.0).duration_s,
            profile(lab, 1.0).seeds
        ),
        differences: vec![
            "Lazy dropping never recovers once it is behind, so the longer a run, the lower the rate that it survives: the gap to early \
             drop grows with the duration, which the paper does not give."
                .to_owned(),
        ],
        missing: Report::missing(&SYSTEMS, &systems),
    })
}
