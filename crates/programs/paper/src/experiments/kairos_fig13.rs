//! The Kairos paper, Figure 13 (section 8.5): actual throughput of the configurations with the highest upper bounds.

use anyhow::Result;

use super::cell;
use super::kairos::{differences, setup, studies, words};
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Marker, Panel, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};
use crate::system::{AUTO, KAIROS};

/// Fleets that the figure shows.
const SHOWN: (usize, usize) = (20, 4);

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let wanted = [KAIROS, AUTO];
    let systems = lab.known(&wanted);
    let mut table = Table::new(&["model", "place", "fleet", "bound_rps", "policy", "goodput_rps", "chosen"]);
    let (mut panels, mut worst_place) = (Vec::new(), None::<f64>);
    for study in studies(lab)? {
        let shown = &study.ranking.fleets[..study.ranking.fleets.len().min(lab.pick(SHOWN.0, SHOWN.1))];
        let chosen = study.ranking.chosen();
        let place = |at: usize| f64::from(u32::try_from(at + 1).unwrap_or(u32::MAX));
        let x = Axis::from_zero("place by upper bound");
        let mut lines = Lines::new(study.label, x, Axis::from_zero("r/s"));
        let points = shown.iter().enumerate().map(|(at, fleet)| (place(at), fleet.bound_rps)).collect();
        lines.series.push(Series { style: Style::ideal("upper bound (equation 15)"), draw: Draw::Points, points });
        for system in &systems {
            let fleets: Vec<_> = shown.iter().map(|fleet| (fleet.counts.clone(), *system)).collect();
            let found = study.goodputs(lab, &fleets)?;
            for (at, (fleet, rate_rps)) in shown.iter().zip(&found).enumerate() {
                table.rows.push(vec![
                    study.name.to_owned(),
                    (at + 1).to_string(),
                    words(&fleet.counts),
                    cell(fleet.bound_rps, 2),
                    system.key.to_owned(),
                    cell(*rate_rps, 2),
                    if fleet == chosen { "yes" } else { "" }.to_owned(),
                ]);
            }
            let best = (0..found.len()).max_by(|&a, &b| found[a].total_cmp(&found[b]).then(b.cmp(&a)));
            if let Some(best) = best.filter(|_| *system == KAIROS) {
                worst_place = Some(worst_place.map_or(place(best), |worst| worst.max(place(best))));
            }
            let points = found.iter().enumerate().map(|(at, rate_rps)| (place(at), *rate_rps)).collect();
            lines.series.push(Series { style: system.style(), draw: Draw::Points, points });
            if let Some(at) = shown.iter().position(|fleet| fleet == chosen) {
                let style = Style::new("chosen in one shot", "#111111", Marker::Cross);
                lines.series.push(Series { style, draw: Draw::Marks, points: vec![(place(at), found[at])] });
            }
        }
        panels.push(Panel::Lines(lines));
    }
    let figure = Figure {
        title: "Fleets with high bounds answer much".to_owned(),
        subtitle: "The fleets with the highest upper bounds of each model, for 2.5 $ an hour".to_owned(),
        columns: 2,
        panels,
        theirs: String::new(),
        note: "The Kairos paper, Figure 13.".to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons: vec![Comparison::words("kairos-fig13", "place", worst_place, "")],
        setup: setup(lab),
        differences: differences(),
        missing: Report::missing(&wanted, &systems),
    })
}
