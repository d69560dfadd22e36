//! *Implementing Inference scheduler in Blox*, Figure 5 (section 5.3): the bad rate by the number of GPUs.

use anyhow::Result;
use symphony_packing::nodes_at_most;
use symphony_placement::{Demand, Fifo, Packed, Placed, Placement};

use super::cell;
use super::zoo_jobs::{Job, drawn, sessions};
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};

/// Rates up to one and a half GPUs, so that some GPUs have one job and others share.
const GPUS_MAX: f64 = 1.5;
/// Points of a curve.
const STEPS: usize = 24;
/// A tenth of what FIFO needs is few.
const FEW: f64 = 0.1;
/// Less than a request in a thousand is nothing.
const NOTHING: f64 = 0.001;

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let jobs = drawn(lab.pick(200, 60), GPUS_MAX, 1)?;
    let most = nodes_at_most(&sessions(&jobs)) as usize;
    let gpus: Vec<usize> = (1..=STEPS).map(|step| (most * step).div_ceil(STEPS)).collect();
    let of = |placement: &(dyn Placement + Sync)| {
        lab.map(&gpus, |&gpus| bad_rate(placement, &jobs, gpus)).into_iter().collect::<Result<Vec<f64>>>()
    };
    let (fifo, squishy) = (of(&Fifo)?, of(&Packed)?);
    let mut table = Table::new(&["gpus", "fifo_bad_rate", "squishy_bad_rate"]);
    for ((gpus, fifo), squishy) in gpus.iter().zip(&fifo).zip(&squishy) {
        table.rows.push(vec![gpus.to_string(), cell(*fifo, 4), cell(*squishy, 4)]);
    }
    let served = |bad: &[f64]| bad.iter().position(|bad| *bad < NOTHING).map(|at| gpus[at] as f64);
    let fewer = served(&squishy).zip(served(&fifo)).map(|(squishy, fifo)| squishy / fifo);
    let few = gpus.iter().position(|&gpus| gpus as f64 >= FEW * most as f64).map(|at| squishy[at] / fifo[at]);
    let largest = fifo.iter().zip(&squishy).map(|(fifo, squishy)| fifo - squishy).fold(0.0, f64::max);
    let mut lines = Lines::new(
        &format!("{} jobs", jobs.len()),
        Axis::from_zero("GPUs"),
        Axis::from_zero("requests without a GPU, %"),
    );
    for (index, (label, bad)) in [("squishy packing", &squishy), ("FIFO", &fifo)].into_iter().enumerate() {
        let points = gpus.iter().zip(bad).map(|(&gpus, &bad)| (gpus as f64, 100.0 * bad)).collect();
        lines.series.push(Series { style: Style::plain(label, index), draw: Draw::Points, points });
    }
    let figure = Figure {
        title: "With too few GPUs, sharing serves more".to_owned(),
        subtitle: "Requests of what no GPU was left for".to_owned(),
        columns: 1,
        panels: vec![Panel::Lines(lines)],
        theirs: String::new(),
        note: "Implementing Inference scheduler in Blox, Figure 5.".to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons: vec![
            Comparison::words("blox-fig5", "all_served", fewer, ""),
            Comparison::words("blox-fig5", "few", few, ""),
        ],
        setup: format!(
            "{} jobs of models drawn from the Symphony paper's Table 5 (1080Ti) with its SLOs, rates evenly up to {GPUS_MAX} GPUs' worth, seed 1. Whatever \
             gets no GPU is dropped; what has one is served, since packings keep SLOs. No simulation: `symphony-placement`, `Fifo` and `Packed`.",
            jobs.len()
        ),
        differences: vec![
            format!(
                "As in the paper, nothing is dropped from some number of GPUs on, and squishy packing comes there first. Between, FIFO drops up to {:.1} % \
                 of the requests more; the paper gives no number.",
                100.0 * largest
            ),
            "The paper finds both equal where GPUs are few, since both fill them with saturated jobs first. Our FIFO takes jobs as they come, residues and \
             all, which is what its name says; so it wastes GPUs from the first residue on."
                .to_owned(),
        ],
        missing: Vec::new(),
    })
}

/// The share of requests whose node has no GPU.
fn bad_rate(placement: &dyn Placement, jobs: &[Job], gpus: usize) -> Result<f64> {
    let sessions = sessions(jobs);
    let models: Vec<_> = (0..jobs.len()).collect();
    let placed = placement.place(&Demand::new(&sessions, &models, gpus, 1)?, &Placed::default());
    let dropped: f64 =
        placed.unplaced.iter().flat_map(|node| &node.sessions).map(|packed| packed.rate_per_second).sum();
    let all: f64 = jobs.iter().map(|job| job.rate_rps).sum();
    // An empty sum is −0.
    Ok((dropped / all).max(0.0))
}
