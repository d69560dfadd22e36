//! Seed 000, Figure 10 (section 5.3): goodput under overload, and GPU use under partial load.

use anyhow::Result;

use super::cell;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};
use crate::setup::Models;
use crate::system::{self, System};

const GPUS: u32 = 24;

const SYSTEMS: [System; 7] = [
    system::SYMPHONY,
    system::AUTO,
    system::EAGER,
    system::CLIPPER,
    system::CLOCKWORK,
    system::NEXUS_1,
    system::SHEPHERD,
];

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let systems = lab.known(&SYSTEMS);
    let base = lab.setup("autoscaling", GPUS, vec![Models::resnet50_like(10, 100.0)]);
    let setups: Vec<_> = systems.iter().map(|system| base.with_policy(system.policy)).collect();
    let peaks = lab.goodputs(&setups)?;
    let peak = peaks[0];
    let steps: Vec<u32> = lab.pick((1..=20).collect(), vec![2, 5, 8, 10, 12, 16, 20]);
    let mut runs = Vec::new();
    for setup in &setups {
        runs.extend(steps.iter().map(|&tenths| (setup.clone(), f64::from(tenths) / 10.0 * peak)));
    }
    let results = lab.runs(&runs)?;

    let header =
        ["system", "offered_rps", "good_rps", "bad_rate", "gpu_utilization", "idle_fraction", "gpus_used", "peak_rps"];
    let mut table = Table::new(&header);
    let mut goodput =
        Lines::new("Stability", Axis::from_zero("offered, r/s"), Axis::from_zero("answered in time, r/s"));
    let mut busy = Lines::new(
        "GPU use",
        Axis::from_zero("offered, r/s"),
        Axis::between("GPU time spent executing, %", 0.0, 105.0),
    );
    let (mut flat, mut idle_error) = (Vec::new(), Vec::new());
    for ((system, &own_peak), results) in systems.iter().zip(&peaks).zip(results.chunks(steps.len())) {
        let style = system.style();
        let draw = Draw::Points;
        let points = results.iter().map(|run| (run.offered_rps, run.good_rps)).collect();
        goodput.series.push(Series { style: style.clone(), draw, points });
        let points = results.iter().map(|run| (run.offered_rps, 100.0 * run.gpu_utilization)).collect();
        busy.series.push(Series { style, draw, points });
        for run in results {
            table.rows.push(vec![
                system.key.to_owned(),
                cell(run.offered_rps, 0),
                cell(run.good_rps, 0),
                cell(run.bad_rate, 4),
                cell(run.gpu_utilization, 4),
                cell(run.idle_fraction, 4),
                run.gpus_used.to_string(),
                cell(own_peak, 0),
            ]);
        }
        let overloaded = results.iter().filter(|run| run.offered_rps > 1.05 * own_peak);
        flat.push((*system, overloaded.map(|run| run.good_rps / own_peak).fold(f64::INFINITY, f64::min)));
        let below = results.iter().filter(|run| run.offered_rps < own_peak);
        let error = below.map(|run| (run.idle_fraction - (own_peak - run.offered_rps) / own_peak).abs());
        idle_error.push((*system, error.fold(0.0, f64::max)));
    }
    let ideal = Style::ideal("ideal, at symphony's peak");
    let ends = [0.0, peak, 2.0 * peak];
    let points = ends.map(|offered| (offered, offered.min(peak))).to_vec();
    goodput.series.push(Series { style: ideal.clone(), draw: Draw::Line, points });
    let points = ends.map(|offered| (offered, 100.0 * (offered / peak).min(1.0))).to_vec();
    busy.series.push(Series { style: ideal, draw: Draw::Line, points });

    let mut comparisons = Vec::new();
    let mut clockwork = String::new();
    for (system, kept) in flat.iter().filter(|(_, kept)| kept.is_finite()) {
        // Clockwork's goodput falls; the paper does not say how far.
        if *system == system::CLOCKWORK {
            clockwork = format!(
                "The paper's Clockwork loses goodput as soon as it is overloaded; ours keeps at least {} of its peak up to twice the peak. At an SLO \
                 of 100 ms it too forms batches that are large enough; what wears the paper's down under overload is not in the text.",
                cell(*kept, 2)
            );
            continue;
        }
        let mut comparison = Comparison::words("symphony-fig10", "flat", Some(*kept), "");
        comparison.key = format!("flat_{}", system.key);
        comparison.what = format!("{}: least {} up to twice the peak", system.label, comparison.what);
        comparisons.push(comparison);
    }
    for (system, error) in idle_error.iter().filter(|(system, _)| [system::SYMPHONY, system::AUTO].contains(system)) {
        let mut comparison = Comparison::words("symphony-fig10", "idle_error", Some(*error), "");
        comparison.key = format!("idle_error_{}", system.key);
        comparison.what = format!("{}: {}", system.label, comparison.what);
        comparisons.push(comparison);
    }
    let figure = Figure {
        title: "Overload does not hurt, and idle GPUs tell the spare load".to_owned(),
        subtitle: "10 models like ResNet50, SLO 100 ms, equal popularity, Poisson, 24 GPUs".to_owned(),
        columns: 2,
        panels: vec![Panel::Lines(goodput), Panel::Lines(busy)],
        theirs: String::new(),
        note: "Seed 000, Figure 10.".to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons,
        setup: format!(
            "One run for each rate, seed 1; rates are tenths of `symphony`'s goodput, up to twice. Each system's own peak is its goodput: {}.",
            lab.words()
        ),
        differences: [
            "Goodput under overload is a little above the peak, because the peak is the rate at which one per cent is bad: a system that may \
             give up more uses the last of the GPU time as well."
                .to_owned(),
            "A flat top needs a drop rule that keeps batches large. `clipper` shows what happens without: it always serves the \
             oldest request, in ever smaller batches."
                .to_owned(),
            "An eager policy is busy at any load, since it runs small batches as soon as a GPU is free; its idle time says nothing about \
             the spare load."
                .to_owned(),
            clockwork,
        ]
        .into_iter()
        .filter(|reason| !reason.is_empty())
        .collect(),
        missing: Report::missing(&SYSTEMS, &systems),
    })
}
