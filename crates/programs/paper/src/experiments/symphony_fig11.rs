//! The Symphony paper, Figure 11 (section 5.4): the scheduler's speed by threads, and goodput by the number of GPUs.

use std::sync::Barrier;
use std::time::Instant;

use anyhow::Result;
use symphony_simulator::simulate;

use super::cell;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Scale, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};
use crate::setup::Models;
use crate::system::{self, System};

const MODELS: u32 = 20;
const SLO_MS: f64 = 100.0;
const GPUS: [u32; 6] = [8, 16, 32, 64, 128, 256];
const GPUS_QUICK: [u32; 3] = [8, 16, 32];

const SYSTEMS: [System; 6] =
    [system::SYMPHONY, system::AUTO, system::EAGER, system::CLOCKWORK, system::NEXUS_1, system::SHEPHERD];

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    // The quick variant has ours.
    let wanted = &SYSTEMS[..lab.pick(SYSTEMS.len(), 2)];
    let systems = lab.known(wanted);
    let gpus: Vec<u32> = lab.pick(GPUS.to_vec(), GPUS_QUICK.to_vec());
    let mut setups = Vec::new();
    for system in &systems {
        for &gpus in &gpus {
            let models = vec![Models::resnet50_like(MODELS, SLO_MS)];
            let mut setup = lab.setup(&format!("{gpus} GPUs"), gpus, models).with_policy(system.policy);
            setup.duration_s = lab.pick(8.0, 4.0);
            setups.push(setup);
        }
    }
    let goodputs = lab.goodputs(&setups)?;

    let mut table = Table::new(&["system", "gpus", "goodput_rps", "goodput_per_gpu_rps"]);
    let ticks: Vec<f64> = gpus.iter().map(|&gpus| f64::from(gpus)).collect();
    let x = || Axis::at("GPUs", Scale::Log2, &ticks);
    let mut total = Lines::new(
        "Goodput",
        Axis { scale: Scale::Linear, ..Axis::from_zero("GPUs") },
        Axis::from_zero("goodput, r/s"),
    );
    let mut each = Lines::new("The same for each GPU", x(), Axis::from_zero("goodput for each GPU, r/s"));
    let mut comparisons = Vec::new();
    for (system, found) in systems.iter().zip(goodputs.chunks(gpus.len())) {
        let points: Vec<_> = gpus.iter().map(|&gpus| f64::from(gpus)).zip(found.iter().copied()).collect();
        for (gpus, goodput) in &points {
            table.rows.push(vec![system.key.to_owned(), cell(*gpus, 0), cell(*goodput, 0), cell(goodput / gpus, 1)]);
        }
        let per_gpu: Vec<_> = points.iter().map(|&(gpus, goodput)| (gpus, goodput / gpus)).collect();
        if *system == system::SYMPHONY {
            let kept = per_gpu[per_gpu.len() - 1].1 / per_gpu[0].1;
            comparisons.push(Comparison::words("symphony-fig11", "linear", Some(kept), ""));
        }
        each.series.push(Series { style: system.style(), draw: Draw::Points, points: per_gpu });
        total.series.push(Series { style: system.style(), draw: Draw::Points, points });
    }
    let (threads, speeds) = measure(lab)?;
    let mut measured = Table { suffix: "-measured", measured: true, ..Table::new(&["threads", "requests_per_second"]) };
    for (threads, speed) in threads.iter().zip(&speeds) {
        measured.rows.push(vec![threads.to_string(), cell(*speed, 0)]);
    }
    let figure = Figure {
        title: "Goodput by the number of GPUs".to_owned(),
        subtitle: "20 models like ResNet50 with equal popularity, SLO 100 ms, Poisson".to_owned(),
        columns: 2,
        panels: vec![Panel::Lines(total), Panel::Lines(each)],
        theirs: String::new(),
        note: "The Symphony paper, Figure 11, right.".to_owned(),
    };
    let plots =
        vec![Plot { suffix: "", figure }, Plot { suffix: "-measured", figure: speed_figure(&threads, &speeds) }];
    Ok(Report {
        plots,
        tables: vec![table, measured],
        comparisons,
        setup: format!(
            "Right panel of the paper: {} s for each trial; otherwise {}. Left panel, measured in real time: each thread has model queues and a \
             ranker of its own (20 models, 32 GPUs, half of the goodput) and runs them as fast as it can in virtual time, arrivals and \
             bookkeeping of the simulator included.",
            lab.pick(8, 4),
            lab.words()
        ),
        differences: vec![
            "More than linear: on fewer GPUs than there are models, the windows of many models fall on the same GPU, and what waits for its \
             window is too late when it opens; `eager`, which does not wait, loses less. From as many GPUs as models on it is linear."
                .to_owned(),
            "The paper's Clockwork is held back by its locks, which virtual time does not show.".to_owned(),
            "The measured plot is of independent schedulers (one sub-cluster each), not of model workers that share a rank worker on a real \
             clock: the stress tool in `benches/` measures that. It was made on a shared machine, and says little beyond the order of \
             magnitude."
                .to_owned(),
        ],
        missing: Report::missing(wanted, &systems),
    })
}

/// Requests per second by number of threads, each with a scheduler of its own, in real time.
fn measure(lab: &Lab<'_>) -> Result<(Vec<usize>, Vec<f64>)> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads: Vec<usize> = (0..).map(|power| 1 << power).take_while(|&threads| threads <= cores.min(32)).collect();
    let mut setup = lab.setup("speed", 32, vec![Models::resnet50_like(MODELS, SLO_MS)]);
    setup.duration_s = lab.pick(60.0, 3.0);
    let scenario = setup.scenario()?;
    let rate_rps = 12_000.0;
    let mut speeds = Vec::new();
    for &threads in &threads {
        let start = Barrier::new(threads + 1);
        let (requests, seconds) = std::thread::scope(|scope| -> Result<(u64, f64)> {
            let work = |seed: u64| {
                let (scenario, start) = (&scenario, &start);
                move || {
                    start.wait();
                    simulate(scenario, seed, rate_rps).map(|run| run.simulated_requests)
                }
            };
            let workers: Vec<_> = (0..threads as u64).map(|seed| scope.spawn(work(seed))).collect();
            start.wait();
            let begun = Instant::now();
            let mut requests = 0;
            for worker in workers {
                requests += worker.join().map_err(|_| anyhow::anyhow!("a measuring thread panicked"))??;
            }
            Ok((requests, begun.elapsed().as_secs_f64()))
        })?;
        speeds.push(requests as f64 / seconds);
    }
    Ok((threads, speeds))
}

fn speed_figure(threads: &[usize], speeds: &[f64]) -> Figure {
    let mut lines = Lines::new(
        "Independent schedulers, one on each thread",
        Axis::from_zero("threads"),
        Axis::from_zero("requests per second"),
    );
    lines.x.ticks = Some(threads.iter().map(|&threads| threads as f64).collect());
    let points: Vec<_> = threads.iter().map(|&threads| threads as f64).zip(speeds.iter().copied()).collect();
    let linear = points.iter().map(|&(threads, _)| (threads, threads * speeds[0])).collect();
    lines.series.push(Series { style: Style::plain("measured", 0), draw: Draw::Points, points });
    lines.series.push(Series { style: Style::ideal("linear"), draw: Draw::Line, points: linear });
    Figure {
        title: "Decisions by threads, measured".to_owned(),
        subtitle: "Real time on the machine that made this page: differs from run to run and from machine to machine"
            .to_owned(),
        columns: 1,
        panels: vec![Panel::Lines(lines)],
        theirs: String::new(),
        note: "The Symphony paper, Figure 11, left, used 32 cores.".to_owned(),
    }
}
