//! *Implementing Inference scheduler in Blox*, Figure 4 (section 5.2): GPUs by the number of jobs.

use anyhow::Result;
use symphony_packing::{nodes_at_most, squishy_bin_packing};

use super::cell;
use super::zoo_jobs::{drawn, sessions};
use crate::data;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};

/// The largest rates of jobs, in GPUs' worth: the paper gives none.
const GPUS_MAX: [f64; 3] = [0.25, 0.5, 1.0];
/// The one whose GPUs are drawn.
const DRAWN: f64 = 0.5;

/// One number of jobs: mean GPUs over the seeds.
struct Point {
    jobs: usize,
    fifo: f64,
    squishy: f64,
}

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let counts = lab.pick(vec![1, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500], vec![1, 100, 500]);
    let seeds: Vec<u64> = (1..=lab.pick(10, 2)).collect();
    let mut table = Table::new(&["rate_max_gpus", "jobs", "fifo_gpus", "squishy_gpus", "squishy_over_fifo"]);
    let mut by_rate = Vec::new();
    for gpus_max in GPUS_MAX {
        let points = lab.map(&counts, |&jobs| point(jobs, gpus_max, &seeds)).into_iter().collect::<Result<Vec<_>>>()?;
        for Point { jobs, fifo, squishy } in &points {
            let cells =
                [cell(gpus_max, 2), jobs.to_string(), cell(*fifo, 1), cell(*squishy, 1), cell(squishy / fifo, 3)];
            table.rows.push(cells.to_vec());
        }
        by_rate.push((gpus_max, points));
    }
    let ratio = |gpus_max: f64| {
        let (_, points) = by_rate.iter().find(|(of, _)| *of == gpus_max)?;
        points.last().map(|point| point.squishy / point.fifo)
    };
    let comparison = |gpus_max: f64| {
        let mut comparison = Comparison::words("blox-fig4", "half", ratio(gpus_max), "");
        comparison.what += &format!("; rates up to {gpus_max} GPU");
        comparison.key = format!("half_{:.0}", 100.0 * gpus_max);
        comparison
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure: figure(&by_rate) }],
        tables: vec![table],
        comparisons: [DRAWN, GPUS_MAX[0], GPUS_MAX[2]].map(comparison).into(),
        setup: format!(
            "Jobs of the {} models of the Symphony paper's Table 5 (1080Ti) with its SLOs, drawn evenly; rates evenly from 0 to a share of what one \
             GPU does alone; mean of {} seeds. FIFO: whole GPUs, and one more for each residue. Squishy: Algorithm 1 (`symphony-packing`).",
            data::zoo_1080ti().len(),
            seeds.len()
        ),
        differences: vec![
            "The paper does not say how jobs were generated, and everything depends on that: FIFO pays for a whole GPU for each residue, so what sharing \
             saves is what residues leave. Jobs of a quarter of a GPU at most save about what the paper says, larger ones less."
                .to_owned(),
            "The zoo's SLOs allow batches of a few items, as in the Symphony paper. With longer ones more models fit into a duty cycle.".to_owned(),
        ],
        missing: Vec::new(),
    })
}

fn point(jobs: usize, gpus_max: f64, seeds: &[u64]) -> Result<Point> {
    let (mut fifo, mut squishy) = (0.0, 0.0);
    for &seed in seeds {
        let drawn = drawn(jobs, gpus_max, seed)?;
        let sessions = sessions(&drawn);
        fifo += nodes_at_most(&sessions);
        squishy += squishy_bin_packing(&sessions).len() as f64;
    }
    let count = seeds.len() as f64;
    Ok(Point { jobs, fifo: fifo / count, squishy: squishy / count })
}

fn figure(by_rate: &[(f64, Vec<Point>)]) -> Figure {
    let x = || Axis::from_zero("jobs");
    let mut gpus = Lines::new("rates up to half a GPU", x(), Axis::from_zero("GPUs"));
    let mut ratios = Lines::new("by the largest rate", x(), Axis::from_zero("GPUs of squishy packing over FIFO's"));
    for (index, (gpus_max, points)) in by_rate.iter().enumerate() {
        let label = format!("rates up to {gpus_max} GPU");
        let over = points.iter().map(|point| (point.jobs as f64, point.squishy / point.fifo)).collect();
        ratios.series.push(Series { style: Style::plain(&label, 2 + index), draw: Draw::Points, points: over });
        if *gpus_max == DRAWN {
            for (index, label) in ["FIFO", "squishy packing"].into_iter().enumerate() {
                let value = |point: &Point| if index == 0 { point.fifo } else { point.squishy };
                let points = points.iter().map(|point| (point.jobs as f64, value(point))).collect();
                gpus.series.push(Series { style: Style::plain(label, 1 - index), draw: Draw::Points, points });
            }
        }
    }
    ratios.theirs.push((500.0, data::claim("blox-fig4", "half").low, "#111111"));
    Figure {
        title: "Sharing GPUs saves more the smaller jobs are".to_owned(),
        subtitle: "GPUs by the number of jobs; FIFO gives each residue a GPU of its own".to_owned(),
        columns: 2,
        panels: vec![Panel::Lines(gpus), Panel::Lines(ratios)],
        theirs: "the paper's words".to_owned(),
        note: "Implementing Inference scheduler in Blox, Figure 4.".to_owned(),
    }
}
