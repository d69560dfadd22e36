//! The Nexus paper, Figure 2 (section 4.1): which models share a GPU, and when each runs.

use anyhow::Result;
use symphony_packing::{PackedNode, Session, squishy_bin_packing};
use symphony_types::{LatencyProfile, Nanos};

use super::cell;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};

/// A model of the Nexus paper, Table 2: milliseconds for batches of 4, 8, 16; its SLO (section 4.1); requests per
/// second in the figure's parts (a), where any that fill GPUs do, and (b).
struct Model {
    name: &'static str,
    latency_ms: [f64; 3],
    slo_ms: u64,
    whole_rps: f64,
    shared_rps: f64,
}

static MODELS: [Model; COUNT] = [
    Model { name: "A", latency_ms: [50.0, 75.0, 100.0], slo_ms: 200, whole_rps: 320.0, shared_rps: 64.0 },
    Model { name: "B", latency_ms: [50.0, 90.0, 125.0], slo_ms: 250, whole_rps: 256.0, shared_rps: 32.0 },
    Model { name: "C", latency_ms: [60.0, 95.0, 125.0], slo_ms: 250, whole_rps: 128.0, shared_rps: 32.0 },
];
/// The models of Table 2.
const COUNT: usize = 3;
/// The batch sizes of Table 2.
const BATCHES: [u32; 3] = [4, 8, 16];
/// How much of a schedule is drawn.
const SHOWN_MS: f64 = 500.0;

/// Lines between the measured batches, and the smallest latency below.
fn profile(model: &Model) -> Result<LatencyProfile> {
    let [at_4, at_8, at_16] = model.latency_ms;
    let latency = |batch: u32| match f64::from(batch) {
        b if b <= 4.0 => at_4,
        b if b <= 8.0 => at_4 + (at_8 - at_4) * (b - 4.0) / 4.0,
        b => at_8 + (at_16 - at_8) * (b - 8.0) / 8.0,
    };
    let table: Vec<_> = (1..=BATCHES[2]).map(|batch| Nanos::from_millis_f64(latency(batch))).collect();
    Ok(LatencyProfile::from_table(&table)?)
}

fn packed(profiles: &[LatencyProfile], rate: fn(&Model) -> f64) -> Vec<PackedNode> {
    let sessions: Vec<_> = MODELS
        .iter()
        .zip(profiles)
        .map(|(model, profile)| Session {
            profile,
            slo: Nanos::from_millis(model.slo_ms),
            rate_per_second: rate(model),
        })
        .collect();
    squishy_bin_packing(&sessions)
}

pub(crate) fn run(_: &Lab<'_>) -> Result<Report> {
    let profiles = MODELS.iter().map(profile).collect::<Result<Vec<_>>>()?;
    let whole = packed(&profiles, |model| model.whole_rps);
    let shared = packed(&profiles, |model| model.shared_rps);
    let header = ["part", "gpu", "model", "batch", "duty_ms", "execution_ms", "worst_latency_ms", "slo_ms", "rate_rps"];
    let mut table = Table::new(&header);
    let mut panels = Vec::new();
    for (part, title, nodes) in [("a", "(a) rates that fill GPUs", &whole), ("b", "(b) 64, 32 and 32 r/s", &shared)] {
        rows(&mut table, part, nodes, &profiles);
        panels.push(Panel::Lines(schedule(title, nodes, &profiles)));
    }
    let figure = Figure {
        title: "Which models share a GPU".to_owned(),
        subtitle: "Each GPU runs one batch of each of its models in every duty cycle".to_owned(),
        columns: 1,
        panels,
        theirs: String::new(),
        note: "The Nexus paper, Figure 2, from its Table 2.".to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons: comparisons(&whole, &shared, &profiles),
        setup: "Algorithm 1 (`symphony-packing`), no simulation. Between the batches of Table 2 latencies are straight lines, below the smallest \
                one they are its own. Part (a) has two, two and one GPU's worth of requests, since the paper gives no rates for it."
            .to_owned(),
        differences: vec![
            "None in what the paper prints. C is packed before B, since it alone occupies more; it does not fit beside A in either order.".to_owned(),
            "C's own GPU has a duty cycle as long as its SLO allows, with larger batches than the 4 that it would have in A's cycle; the paper does \
             not show it."
                .to_owned(),
        ],
        missing: Vec::new(),
    })
}

fn rows(table: &mut Table, part: &str, nodes: &[PackedNode], profiles: &[LatencyProfile]) {
    for (gpu, node) in nodes.iter().enumerate() {
        for packed in &node.sessions {
            let (model, latency) = (&MODELS[packed.session], profiles[packed.session].latency(packed.batch));
            table.rows.push(vec![
                part.to_owned(),
                gpu.to_string(),
                model.name.to_owned(),
                packed.batch.to_string(),
                cell(node.duty.as_millis_f64(), 2),
                cell(latency.as_millis_f64(), 2),
                cell((node.duty + latency).as_millis_f64(), 2),
                model.slo_ms.to_string(),
                cell(packed.rate_per_second, 1),
            ]);
        }
    }
}

/// When each GPU runs what: a line for each batch.
fn schedule(title: &str, nodes: &[PackedNode], profiles: &[LatencyProfile]) -> Lines {
    let gpus: Vec<_> = (0..=nodes.len()).map(|gpu| gpu as f64).collect();
    let mut y = Axis::between("GPU", 0.0, nodes.len() as f64 + 0.5);
    y.ticks = Some(gpus[1..].to_vec());
    let mut lines = Lines::new(title, Axis::between("time, ms", 0.0, SHOWN_MS), y);
    let mut named = [false; COUNT];
    for (gpu, node) in nodes.iter().enumerate() {
        let mut cycle_ms = 0.0;
        while cycle_ms < SHOWN_MS {
            let mut from = cycle_ms;
            for packed in &node.sessions {
                let to = from + profiles[packed.session].latency(packed.batch).as_millis_f64();
                let label = if named[packed.session] {
                    String::new()
                } else {
                    format!("model {}", MODELS[packed.session].name)
                };
                named[packed.session] = true;
                let style = Style { label, ..Style::plain("", packed.session) };
                let height = gpu as f64 + 1.0;
                let points = vec![(from, height), (to.min(SHOWN_MS), height)];
                if from < SHOWN_MS {
                    lines.series.push(Series { style, draw: Draw::Points, points });
                }
                from = to;
            }
            cycle_ms += node.duty.as_millis_f64().max(1.0);
        }
    }
    lines
}

fn comparisons(whole: &[PackedNode], shared: &[PackedNode], profiles: &[LatencyProfile]) -> Vec<Comparison> {
    let source = "section 4.1";
    let mut comparisons = Vec::new();
    for (at, (model, theirs)) in MODELS.iter().zip([160.0, 128.0, 128.0]).enumerate() {
        let alone = whole.iter().flat_map(|node| &node.sessions).find(|packed| packed.session == at);
        let what = format!("(a): requests per second of model {} on a GPU", model.name);
        let key = format!("{}_alone", model.name.to_lowercase());
        comparisons.push(Comparison::printed(
            key,
            what,
            theirs,
            alone.map(|packed| packed.rate_per_second),
            "r/s",
            source,
        ));
    }
    let with_a = shared.iter().find(|node| node.runs(0));
    let duty = with_a.map(|node| node.duty.as_millis_f64());
    comparisons.push(Comparison::printed("duty", "(b): duty cycle of A's GPU", 125.0, duty, "ms", source));
    let batch = |session: usize| {
        let packed = with_a?.sessions.iter().find(|packed| packed.session == session)?;
        Some(packed.batch)
    };
    for (key, session, theirs) in [("a_batch", 0, 8.0), ("b_batch", 1, 4.0)] {
        let what = format!("(b): batch of model {} there", MODELS[session].name);
        comparisons.push(Comparison::printed(key, what, theirs, batch(session).map(f64::from), "", source));
    }
    let worst = with_a.zip(batch(1)).map(|(node, batch)| (node.duty + profiles[1].latency(batch)).as_millis_f64());
    comparisons.push(Comparison::printed("b_worst", "(b): worst latency of model B there", 175.0, worst, "ms", source));
    let beside = with_a.map(|node| f64::from(u8::from(node.runs(2))));
    comparisons.push(Comparison::printed("c_beside_a", "(b): GPUs that A shares with C", 0.0, beside, "", source));
    comparisons
}
