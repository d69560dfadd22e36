//! The Symphony paper, Figure 10 (section 5.3): goodput under overload, and GPU use under partial load.

mod panels;
mod variants;

use anyhow::Result;
use symphony_simulator::RunResult;

use super::cell;
use crate::lab::Lab;
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

/// So many of them are in the quick variant: ours, and two that lack what the paper promises.
const SYSTEMS_QUICK: usize = 4;

const OURS: [System; 2] = [system::SYMPHONY, system::AUTO];

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
    let wanted = &SYSTEMS[..lab.pick(SYSTEMS.len(), SYSTEMS_QUICK)];
    let systems = lab.known(wanted);
    let courses = measure(lab, &systems)?;
    let variants = variants::all(lab)?;
    Ok(Report {
        plots: vec![Plot { suffix: "", figure: panels::figure(&courses, courses[0].peak) }],
        tables: vec![run_table(&courses), error_table(&courses), variants::table(&variants)],
        comparisons: comparisons(&courses),
        setup: format!(
            "One run for each rate, seed 1; rates are tenths of `symphony`'s goodput, up to twice. Each system's own peak is its goodput: {}.",
            lab.words()
        ),
        differences: [differences(&courses), variants::explained(&variants)].concat(),
        missing: Report::missing(wanted, &systems),
    })
}

/// A system's runs, from light load to twice the goodput of the first system.
struct Course {
    system: System,
    /// The system's own goodput.
    peak: f64,
    runs: Vec<RunResult>,
}

impl Course {
    /// The least goodput under overload, as a share of the peak; none without overload.
    fn flat(&self) -> Option<f64> {
        let overloaded = self.runs.iter().filter(|run| run.offered_rps > 1.05 * self.peak);
        overloaded.map(|run| run.good_rps / self.peak).reduce(f64::min).filter(|kept| kept.is_finite())
    }

    fn error(&self, beyond: fn(&RunResult, f64) -> f64) -> f64 {
        largest(self.runs.iter().map(|run| Some(beyond(run, self.peak)))).unwrap_or_default()
    }

    fn error_by_demand(&self) -> Option<f64> {
        largest(self.runs.iter().map(|run| undemanded_beyond(run, self.peak)))
    }
}

fn measure(lab: &Lab<'_>, systems: &[System]) -> Result<Vec<Course>> {
    let base = lab.setup("autoscaling", GPUS, vec![Models::resnet50_like(10, 100.0)]);
    let setups: Vec<_> = systems.iter().map(|system| base.with_policy(system.policy)).collect();
    let peaks = lab.goodputs(&setups)?;
    let steps: Vec<u32> = lab.pick((1..=20).collect(), vec![2, 5, 8, 10, 12, 20]);
    let mut runs = Vec::new();
    for setup in &setups {
        runs.extend(steps.iter().map(|&tenths| (setup.clone(), f64::from(tenths) / 10.0 * peaks[0])));
    }
    let results = lab.runs(&runs)?;
    let courses = systems.iter().zip(peaks).zip(results.chunks(steps.len()));
    Ok(courses.map(|((&system, peak), runs)| Course { system, peak, runs: runs.to_vec() }).collect())
}

fn run_table(courses: &[Course]) -> Table {
    let mut table = Table::new(&[
        "system",
        "offered_rps",
        "good_rps",
        "bad_rate",
        "gpu_utilization",
        "idle_fraction",
        "demand_fraction",
        "gpus_used",
        "peak_rps",
    ]);
    for course in courses {
        table.rows.extend(course.runs.iter().map(|run| {
            vec![
                course.system.key.to_owned(),
                cell(run.offered_rps, 0),
                cell(run.good_rps, 0),
                cell(run.bad_rate, 4),
                cell(run.gpu_utilization, 4),
                cell(run.idle_fraction, 4),
                run.demand_fraction.map_or_else(String::new, |demand| cell(demand, 4)),
                run.gpus_used.to_string(),
                cell(course.peak, 0),
            ]
        }));
    }
    table
}

fn error_table(courses: &[Course]) -> Table {
    let header = ["system", "peak_rps", "flat", "bad_error", "idle_error", "idle_error_by_demand"];
    let mut table = Table { suffix: "-differences", ..Table::new(&header) };
    table.rows.extend(courses.iter().map(|course| {
        vec![
            course.system.key.to_owned(),
            cell(course.peak, 0),
            course.flat().map_or_else(String::new, |kept| cell(kept, 4)),
            cell(course.error(bad_beyond), 4),
            cell(course.error(idle_beyond), 4),
            course.error_by_demand().map_or_else(String::new, |error| cell(error, 4)),
        ]
    }));
    table
}

fn comparisons(courses: &[Course]) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    // Clockwork's goodput falls; the paper does not say how far.
    for course in courses.iter().filter(|course| course.system != system::CLOCKWORK) {
        let Course { system, .. } = course;
        let Some(kept) = course.flat() else { continue };
        let mut comparison = Comparison::words("symphony-fig10", "flat", Some(kept), "");
        comparison.key = format!("flat_{}", system.key);
        comparison.what = format!("{}: least {} up to twice the peak", system.label, comparison.what);
        comparisons.push(comparison);
    }
    let errors = [("bad_error", bad_beyond as fn(&RunResult, f64) -> f64), ("idle_error", idle_beyond)];
    for (key, beyond) in errors {
        for course in courses {
            let Course { system, .. } = course;
            let mut comparison = Comparison::words("symphony-fig10", key, Some(course.error(beyond)), "");
            comparison.key = format!("{key}_{}", system.key);
            comparison.what = format!("{}: {}", system.label, comparison.what);
            comparisons.push(comparison);
        }
    }
    for course in courses {
        let Course { system, .. } = course;
        let Some(error) = course.error_by_demand() else { continue };
        let mut comparison = Comparison::words("symphony-fig10", "idle_error", Some(error), "");
        comparison.key = format!("idle_error_{}_by_demand", system.key);
        comparison.what = format!("{}, by demand instead of measured: {}", system.label, comparison.what);
        comparisons.push(comparison);
    }
    comparisons
}

/// Why ours differs from the paper's figure.
fn differences(courses: &[Course]) -> Vec<String> {
    let ours = courses.iter().filter(|course| OURS.contains(&course.system)).map(|course| {
        let points = course.runs.iter().map(|run| 100.0 * bad_beyond(run, course.peak));
        let (least, most) = points.fold((0.0_f64, 0.0_f64), |(least, most), at| (least.min(at), most.max(at)));
        format!("{} to {} points with `{}`", cell(least, 1), cell(most, 1), course.system.key)
    });
    let mut reasons = vec![
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
            ours.collect::<Vec<_>>().join(", ")
        ),
    ];
    let clockwork = courses.iter().find(|course| course.system == system::CLOCKWORK);
    reasons.extend(clockwork.and_then(Course::flat).map(|kept| {
        format!(
            "The paper's Clockwork loses goodput as soon as it is overloaded; ours keeps at least {} of its peak up to twice the peak. At an SLO \
             of 100 ms it too forms batches that are large enough; what wears the paper's down under overload is not in the text.",
            cell(kept, 2)
        )
    }));
    reasons
}
