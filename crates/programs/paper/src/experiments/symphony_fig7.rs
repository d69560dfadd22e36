//! The Symphony paper, Figure 7 (section 5.2.1): goodput by SLO, popularity and burstiness.

use anyhow::Result;

use super::cell;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Scale, Series};
use crate::report::{Comparison, Plot, Reading, Report, Table};
use crate::setup::Models;
use crate::system::{self, System};

const GPUS: u32 = 32;
const MODELS: u32 = 20;
const SLOS_MS: [f64; 6] = [15.0, 20.0, 25.0, 35.0, 50.0, 100.0];
const SLOS_QUICK_MS: [f64; 3] = [15.0, 25.0, 100.0];

const SYSTEMS: [System; 7] = [
    system::SYMPHONY,
    system::AUTO,
    system::EAGER,
    system::CLOCKWORK,
    system::NEXUS_1,
    system::NEXUS_8,
    system::SHEPHERD,
];

/// Symphony, and the best of the paper's baselines.
const SYSTEMS_QUICK: [System; 2] = [system::SYMPHONY, system::CLOCKWORK];

/// A combination of popularity and arrivals: key, title, both as TOML.
const MIXES: [(&str, &str, &str, &str); 4] = [
    ("even_poisson", "Equal popularity, Poisson", r#""uniform""#, r#""poisson""#),
    ("zipf_poisson", "Zipf 0.9, Poisson", "{ zipf = 0.9 }", r#""poisson""#),
    ("even_bursty", "Equal popularity, bursty (Γ 0.05)", r#""uniform""#, "{ gamma = 0.05 }"),
    ("zipf_bursty", "Zipf 0.9, bursty (Γ 0.05)", "{ zipf = 0.9 }", "{ gamma = 0.05 }"),
];

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let slos: Vec<f64> = lab.pick(SLOS_MS.to_vec(), SLOS_QUICK_MS.to_vec());
    let wanted = lab.pick::<&[System]>(&SYSTEMS, &SYSTEMS_QUICK);
    let systems = lab.known(wanted);
    let mut setups = Vec::new();
    // The quick variant has the easiest and the hardest.
    let mixes: Vec<_> = MIXES.iter().copied().step_by(lab.pick(1, 3)).collect();
    for &(key, _, popularity, arrival) in &mixes {
        for system in &systems {
            for &slo_ms in &slos {
                let models = vec![Models::resnet50_like(MODELS, slo_ms)];
                let mut setup = lab.setup(&format!("{key}, {slo_ms} ms"), GPUS, models).with_policy(system.policy);
                setup.duration_s = lab.pick(30.0, 3.0);
                (setup.popularity, setup.arrival) = (popularity.to_owned(), arrival.to_owned());
                setups.push(setup);
            }
        }
    }
    let goodputs = lab.goodputs(&setups)?;
    let mut table = Table::new(&["mix", "slo_ms", "system", "goodput_rps"]);
    let (mut panels, mut comparisons) = (Vec::new(), Vec::new());
    for ((key, title, ..), found) in mixes.iter().zip(goodputs.chunks(systems.len() * slos.len())) {
        let x = Axis::at("SLO, ms", Scale::Log2, &slos);
        let mut lines = Lines::new(title, x, Axis::from_zero("goodput, r/s"));
        let mut at_tightest = Vec::new();
        for (system, found) in systems.iter().zip(found.chunks(slos.len())) {
            at_tightest.push((*system, found[0]));
            for (slo_ms, goodput) in slos.iter().zip(found) {
                table.rows.push(vec![(*key).to_owned(), cell(*slo_ms, 0), system.key.to_owned(), cell(*goodput, 0)]);
            }
            let points = slos.iter().copied().zip(found.iter().copied()).collect();
            lines.series.push(Series { style: system.style(), draw: Draw::Points, points });
        }
        panels.push(Panel::Lines(lines));
        comparisons.push(tight_slo(key, title, &at_tightest));
    }
    let figure = Figure {
        title: "Goodput by SLO, popularity and burstiness".to_owned(),
        subtitle: "20 models like ResNet50 on 32 GPUs".to_owned(),
        columns: 2,
        panels,
        theirs: String::new(),
        note: "The Symphony paper, Figure 7, which the paper gives as a plot only.".to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons,
        setup: format!(
            "20 models with α = 1.053 ms and β = 5.072 ms (the ResNet50 of Table 4), all with the same SLO, on 32 GPUs, no network. {}. Gamma \
             gaps of shape 0.05 come in bursts of about twenty.",
            lab.words()
        ),
        differences: vec![
            "The paper has no numbers for this figure; it says that Symphony gains most at tight SLOs, that Nexus suffers from bursts, and \
             that loose SLOs are easy for everybody. The same holds here."
                .to_owned(),
            "Under bursts and at loose SLOs waiting for company gains nothing that the burst has not brought already, and `eager` is as \
             good or better by a few per cent. `auto` is there to choose."
                .to_owned(),
        ],
        missing: Report::missing(wanted, &systems),
    })
}

/// The text's finding for the tightest SLO: Symphony is ahead of the best of the paper's baselines.
fn tight_slo(key: &str, title: &str, at_tightest: &[(System, f64)]) -> Comparison {
    let of = |system: &System| at_tightest.iter().find(|(other, _)| other == system).map(|(_, goodput)| *goodput);
    let best = [system::CLOCKWORK, system::NEXUS_1, system::NEXUS_8].iter().filter_map(of).reduce(f64::max);
    let ours = best.filter(|best| *best > 0.0).and_then(|best| Some(of(&system::SYMPHONY)? / best));
    Comparison {
        key: key.to_owned(),
        what: format!("{title}, tightest SLO: Symphony over the best baseline (significant benefits)"),
        theirs: (1.0, f64::INFINITY),
        ours,
        unit: "×",
        reading: Reading::Words,
        source: "section 5.2.1".to_owned(),
    }
}
