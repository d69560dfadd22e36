//! The Symphony paper, Figure 10 (section 5.3): goodput under overload, and GPU use under partial load.

mod variants;

use anyhow::Result;
use symphony_simulator::RunResult;

use super::cell;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Marker, Panel, Rule, Series, Style};
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

const OURS: [System; 2] = [system::SYMPHONY, system::AUTO];

/// The colour of the demand that a system reports, beside its measured values.
const DEMAND: &str = "#8c3800";

/// How close bad rate and idle share should be to the ideal: what an autoscaler can work with.
const BAD_OFF_MAX: f64 = 0.03;
/// See [`BAD_OFF_MAX`].
const IDLE_OFF_MAX: f64 = 0.05;

/// By how much the bad rate exceeds what the overload beyond `peak` explains (the Symphony paper, section 4.4).
fn bad_beyond(run: &RunResult, peak: f64) -> f64 {
    run.bad_rate - ((run.offered_rps - peak) / run.offered_rps).max(0.0)
}

/// By how much the idle share exceeds what the load below `peak` leaves (the Symphony paper, section 4.4).
fn idle_beyond(run: &RunResult, peak: f64) -> f64 {
    run.idle_fraction - spare(run, peak)
}

/// By how much the share that the demand leaves exceeds what the load below `peak` leaves; none without a measurement.
fn undemanded_beyond(run: &RunResult, peak: f64) -> Option<f64> {
    Some((1.0 - run.demand_fraction?).max(0.0) - spare(run, peak))
}

/// The share of the GPU time that the load leaves.
fn spare(run: &RunResult, peak: f64) -> f64 {
    ((peak - run.offered_rps) / peak).max(0.0)
}

/// The largest difference of all runs; none if none has any.
fn largest(differences: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    differences.flatten().map(f64::abs).reduce(f64::max)
}

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

    let header = [
        "system",
        "offered_rps",
        "good_rps",
        "bad_rate",
        "gpu_utilization",
        "idle_fraction",
        "demand_fraction",
        "gpus_used",
        "peak_rps",
    ];
    let mut table = Table::new(&header);
    let mut goodput =
        Lines::new("Stability", Axis::from_zero("offered, r/s"), Axis::from_zero("answered in time, r/s"));
    let mut busy = Lines::new(
        "GPU use",
        Axis::from_zero("offered, r/s"),
        Axis::between("GPU time spent executing, or by demand, %", 0.0, 105.0),
    );
    let off = |title: &str, y: &str| {
        let axis = Axis { range: (None, None), ..Axis::from_zero(y) };
        Lines::new(title, Axis::from_zero("offered, % of the system's own peak"), axis)
    };
    let mut bad_off = off("Bad rate less (offered − peak) ÷ offered", "points more than the overload, %");
    let mut idle_off = off("Idle share less (peak − offered) ÷ peak", "points more than the spare load, %");
    for (panel, most) in [(&mut bad_off, BAD_OFF_MAX), (&mut idle_off, IDLE_OFF_MAX)] {
        panel.rules.push(Rule::Band(-100.0 * most, 100.0 * most, format!("within {:.0} points", 100.0 * most)));
    }
    let header = ["system", "peak_rps", "flat", "bad_error", "idle_error", "idle_error_by_demand"];
    let mut errors = Table { suffix: "-differences", ..Table::new(&header) };
    let (mut flat, mut idle_error, mut bad_error) = (Vec::new(), Vec::new(), Vec::new());
    let mut demand_error = Vec::new();
    let mut signed = Vec::new();
    for ((system, &own_peak), results) in systems.iter().zip(&peaks).zip(results.chunks(steps.len())) {
        let style = system.style();
        let draw = Draw::Points;
        let points = results.iter().map(|run| (run.offered_rps, run.good_rps)).collect();
        goodput.series.push(Series { style: style.clone(), draw, points });
        let points = results.iter().map(|run| (run.offered_rps, 100.0 * run.gpu_utilization)).collect();
        busy.series.push(Series { style: style.clone(), draw, points });
        let percent = |run: &RunResult| 100.0 * run.offered_rps / own_peak;
        let points = results.iter().map(|run| (percent(run), 100.0 * bad_beyond(run, own_peak))).collect();
        bad_off.series.push(Series { style: style.clone(), draw, points });
        let points = results.iter().map(|run| (percent(run), 100.0 * idle_beyond(run, own_peak))).collect();
        idle_off.series.push(Series { style, draw, points });
        // Only of systems that measure it.
        let style =
            Style { dashed: true, ..Style::new(&format!("{}, by demand", system.label), DEMAND, Marker::Diamond) };
        let demanded = results.iter().filter_map(|run| Some((run, run.demand_fraction?)));
        // What is beyond all of the GPU time cannot be spent.
        let points: Vec<_> = demanded.map(|(run, demand)| (run.offered_rps, 100.0 * demand.min(1.0))).collect();
        if !points.is_empty() {
            busy.series.push(Series { style: style.clone(), draw, points });
            let beyond = |run| Some((percent(run), 100.0 * undemanded_beyond(run, own_peak)?));
            idle_off.series.push(Series { style, draw, points: results.iter().filter_map(beyond).collect() });
        }
        for run in results {
            table.rows.push(vec![
                system.key.to_owned(),
                cell(run.offered_rps, 0),
                cell(run.good_rps, 0),
                cell(run.bad_rate, 4),
                cell(run.gpu_utilization, 4),
                cell(run.idle_fraction, 4),
                run.demand_fraction.map_or_else(String::new, |demand| cell(demand, 4)),
                run.gpus_used.to_string(),
                cell(own_peak, 0),
            ]);
        }
        let overloaded = results.iter().filter(|run| run.offered_rps > 1.05 * own_peak);
        flat.push((*system, overloaded.map(|run| run.good_rps / own_peak).fold(f64::INFINITY, f64::min)));
        if OURS.contains(system) {
            let points = results.iter().map(|run| 100.0 * bad_beyond(run, own_peak));
            let (least, most) = points.fold((0.0_f64, 0.0_f64), |(least, most), at| (least.min(at), most.max(at)));
            signed.push(format!("{} to {} points with `{}`", cell(least, 1), cell(most, 1), system.key));
        }
        let error = |beyond: fn(&RunResult, f64) -> f64| {
            largest(results.iter().map(|run| Some(beyond(run, own_peak)))).unwrap_or_default()
        };
        idle_error.push((*system, error(idle_beyond)));
        bad_error.push((*system, error(bad_beyond)));
        let by_demand = largest(results.iter().map(|run| undemanded_beyond(run, own_peak)));
        demand_error.extend(by_demand.map(|error| (*system, error)));
        errors.rows.push(vec![
            system.key.to_owned(),
            cell(own_peak, 0),
            flat.last()
                .map_or_else(String::new, |&(_, kept)| if kept.is_finite() { cell(kept, 4) } else { String::new() }),
            cell(error(bad_beyond), 4),
            cell(error(idle_beyond), 4),
            by_demand.map_or_else(String::new, |error| cell(error, 4)),
        ]);
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
    for (key, errors) in [("bad_error", &bad_error), ("idle_error", &idle_error)] {
        for (system, error) in errors {
            let mut comparison = Comparison::words("symphony-fig10", key, Some(*error), "");
            comparison.key = format!("{key}_{}", system.key);
            comparison.what = format!("{}: {}", system.label, comparison.what);
            comparisons.push(comparison);
        }
    }
    for (system, error) in &demand_error {
        let mut comparison = Comparison::words("symphony-fig10", "idle_error", Some(*error), "");
        comparison.key = format!("idle_error_{}_by_demand", system.key);
        comparison.what = format!("{}, by demand instead of measured: {}", system.label, comparison.what);
        comparisons.push(comparison);
    }
    let variants = variants::all(lab)?;
    let figure = Figure {
        title: "Overload does not hurt, and idle GPUs or the demand tell the spare load".to_owned(),
        subtitle: "10 models like ResNet50, SLO 100 ms, equal popularity, Poisson, 24 GPUs".to_owned(),
        columns: 2,
        panels: vec![Panel::Lines(goodput), Panel::Lines(busy), Panel::Lines(bad_off), Panel::Lines(idle_off)],
        theirs: String::new(),
        note: "The Symphony paper, Figure 10.".to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table, errors, variants::table(&variants)],
        comparisons,
        setup: format!(
            "One run for each rate, seed 1; rates are tenths of `symphony`'s goodput, up to twice. Each system's own peak is its goodput: {}.",
            lab.words()
        ),
        differences: [
            vec![
            "Goodput under overload is a little above the peak, because the peak is the rate at which one per cent is bad: a system that may \
             give up more uses the last of the GPU time as well."
                .to_owned(),
            "A flat top needs a drop rule that keeps batches large. `clipper` shows what happens without: it always serves the \
             oldest request, in ever smaller batches."
                .to_owned(),
            "An eager policy is busy at any load, since it runs small batches as soon as a GPU is free; its idle time says nothing about \
             the spare load."
                .to_owned(),
            "`auto` too starts batches early while there is time to spare, and its GPUs idle less than the load leaves. \
             So it measures the demand: the GPU time that deferred batches of all that is asked would take. The demand \
             tells the spare load, and autoscaling goes by it."
                .to_owned(),
            "The text promises two properties of a good scheduler and gives no numbers for the others; the bands of the lower panels are ours, \
             and so are the ranges above. A system outside of them asks an autoscaler for GPUs that it does not need, or hides those that it \
             could give back."
                .to_owned(),
            format!(
                "From the overload that the peak leaves, bad rates differ by {}: what is below zero is served beyond the peak, as said in the first point.",
                signed.join(", ")
            ),
            clockwork,
            ],
            variants::explained(&variants),
        ]
        .concat()
        .into_iter()
        .filter(|reason| !reason.is_empty())
        .collect(),
        missing: Report::missing(&SYSTEMS, &systems),
    })
}
