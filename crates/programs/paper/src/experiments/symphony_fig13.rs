//! The Symphony paper, Figure 13 (section 5.5): what network latency costs.

use anyhow::Result;

use super::cell;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Rule, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};
use crate::setup::{Models, Network};

const GPUS: u32 = 32;
const MODELS: u32 = 20;
const SLOS_MS: [f64; 4] = [20.0, 25.0, 50.0, 100.0];
const SLOS_QUICK_MS: [f64; 2] = [20.0, 50.0];
/// Section 5.5: the least RDMA latency is 24 µs, the 99.99th percentile 33 µs.
const RDMA_US: [f64; 4] = [0.0, 24.0, 33.0, 100.0];
/// Up to what an incast over TCP may take in the tail: milliseconds.
const TCP_US: [f64; 6] = [0.0, 1_000.0, 2_500.0, 5_000.0, 7_500.0, 10_000.0];
/// The 99.99th percentile of RDMA, where the comparison is made.
const RDMA_TAIL_US: f64 = 33.0;

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let slos = lab.pick::<&[f64]>(&SLOS_MS, &SLOS_QUICK_MS);
    let rdma: Vec<f64> = lab.pick(RDMA_US.to_vec(), vec![0.0, RDMA_TAIL_US]);
    let tcp: Vec<f64> = lab.pick(TCP_US.to_vec(), vec![0.0, 2_500.0, 10_000.0]);
    let latencies: Vec<f64> = rdma.iter().chain(&tcp[1..]).copied().collect();
    let mut setups = Vec::new();
    for &slo_ms in slos {
        for &ctrl_us in &latencies {
            let name = format!("SLO {slo_ms} ms, latency {ctrl_us} µs");
            let mut setup = lab.setup(&name, GPUS, vec![Models::resnet50_like(MODELS, slo_ms)]);
            setup.duration_s = lab.pick(30.0, 3.0);
            setup.network = Network { ctrl_us, ..Network::default() };
            setups.push(setup);
        }
    }
    let goodputs = lab.goodputs(&setups)?;

    let mut table = Table::new(&["slo_ms", "latency_us", "goodput_rps", "share_of_no_latency"]);
    let y = || Axis::from_zero("goodput, r/s");
    let mut left = Lines::new("RDMA range", Axis::between("network latency, µs", 0.0, 100.0), y());
    let mut right = Lines::new("TCP range", Axis::between("network latency, ms", 0.0, 10.0), y());
    left.rules.push(Rule::Upright(RDMA_TAIL_US, "RDMA p99.99".to_owned()));
    let mut kept = Vec::new();
    let mut at_slow_end = Vec::new();
    for (index, (slo_ms, found)) in slos.iter().zip(goodputs.chunks(latencies.len())).enumerate() {
        for (latency, goodput) in latencies.iter().zip(found) {
            let share = goodput / found[0];
            table.rows.push(vec![cell(*slo_ms, 0), cell(*latency, 0), cell(*goodput, 0), cell(share, 3)]);
            if *latency == RDMA_TAIL_US {
                kept.push(share);
            }
        }
        at_slow_end.push(found[found.len() - 1] / found[0]);
        let style = Style::plain(&format!("SLO {slo_ms:.0} ms"), index);
        let points: Vec<_> = latencies.iter().copied().zip(found.iter().copied()).collect();
        let low = points[..rdma.len()].to_vec();
        let high = points.iter().filter(|(us, _)| tcp.contains(us)).map(|&(us, goodput)| (us / 1e3, goodput)).collect();
        left.series.push(Series { style: style.clone(), draw: Draw::Points, points: low });
        right.series.push(Series { style, draw: Draw::Points, points: high });
    }
    let mut comparison =
        Comparison::words("symphony-fig13", "rdma_kept", Some(kept.iter().copied().fold(1.0, f64::min)), "");
    comparison.what = "least goodput kept at RDMA's p99.99 of 33 µs, over the SLOs (marginal loss)".to_owned();
    let ordered = at_slow_end.is_sorted();
    let figure = Figure {
        title: "What network latency costs".to_owned(),
        subtitle: "symphony, 20 models like ResNet50 with equal popularity, Poisson, 32 GPUs; latency between decision and start of execution"
            .to_owned(),
        columns: 2,
        panels: vec![Panel::Lines(left), Panel::Lines(right)],
        theirs: String::new(),
        note: "The Symphony paper, Figure 13.".to_owned(),
    };
    let order = if ordered {
        "As in the paper, the tighter the SLO the more a slow network costs."
    } else {
        "Unlike in the paper, the cost of a slow network does not fall in the order of the SLOs here; see the data."
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons: vec![comparison],
        setup: format!(
            "`network.ctrl_us` is the time from the scheduler's decision to the start of execution; it is known to the scheduler and comes off \
             every deadline, as the paper's high percentile estimate does. {}.",
            lab.words()
        ),
        differences: vec![
            order.to_owned(),
            "The paper's axis shows tails of measured networks; ours is an exact delay for each batch, so it shows the cost of planning for \
             that latency and nothing of what a plan that proves wrong would cost."
                .to_owned(),
        ],
        missing: Vec::new(),
    })
}
