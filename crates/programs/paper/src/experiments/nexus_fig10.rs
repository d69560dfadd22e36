//! The Nexus paper, Figure 10 (section 7.3.1): what each technique is worth in game analysis.

use anyhow::Result;

use super::nexus_apps::{
    ALL, CLIPPER_IN_GAME, Case, FIRST_LESS, NO_ED, NO_OL, OF_GAME, PRE_MS, RUNS, SYMPHONY, TF_SERVING, ablation, bars,
    differences, figure, game, game_services, gpus, rows, share,
};
use super::nexus_clipper::ablation_beside_clipper;
use crate::lab::Lab;
use crate::report::{Comparison, Plot, Report, Table};

/// The paper's throughputs in its text; those between are in the plot only. TF Serving has 12.7 times less than Nexus,
/// Clipper 9.4 times.
const THEIRS: [Option<f64>; 8] =
    [Some(4120.0), None, None, Some(2143.0), None, None, Some(4120.0 / 12.7), Some(4120.0 / 9.4)];

/// What is left of a throughput that has collapsed, at most: a ratio over it means nothing.
const COLLAPSED: f64 = 0.05;

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let setup = |case: &Case| game(lab, case, "uniform");
    let uniform = ablation_beside_clipper(lab, &OF_GAME, Case::requests_per_frame, setup, &game_services())?;
    // What early drop is worth where arrivals are less regular.
    let drops = &OF_GAME[NO_ED - 1..=NO_ED];
    let poisson = ablation(lab, drops, Case::requests_per_frame, |case| game(lab, case, "poisson"))?;
    let mut table = Table::new(&["arrival", "case", "frames_per_s", "over_first"]);
    rows(&mut table, "uniform", &OF_GAME, &uniform);
    rows(&mut table, "poisson", drops, &poisson);
    let words = |key, ours, unit| Comparison::words("nexus-fig10", key, ours, unit);
    let over = |first: usize, other: usize| share(uniform[first], uniform[other]).filter(|over| over * COLLAPSED < 1.0);
    let over_nexus = uniform[SYMPHONY] / uniform[ALL].max(f64::MIN_POSITIVE);
    Ok(Report {
        plots: vec![Plot {
            suffix: "",
            figure: figure(
                "Game analysis, one technique less at a time",
                "Frames per second of which 99 % of the requests are in time",
                vec![bars("Uniform arrivals", &OF_GAME, &uniform, &THEIRS)],
                "The Nexus paper, Figure 10; Symphony is added.",
            ),
        }],
        tables: vec![table],
        comparisons: vec![
            words("others_off", share(uniform[NO_ED], uniform[ALL]), ""),
            words("ol", over(NO_ED, NO_OL), "×"),
            words("tf_serving", over(ALL, TF_SERVING), "×"),
            words("clipper", over(ALL, CLIPPER_IN_GAME), "×"),
            words("ed_uniform", share(uniform[NO_ED], uniform[NO_ED - 1]), ""),
            words("ed_poisson", share(poisson[1], poisson[0]), ""),
            Comparison::aim("symphony_over_nexus", "Symphony over Nexus", (1.0, f64::INFINITY), over_nexus, "×"),
        ],
        setup: format!(
            "{} GPUs, SLO 50 ms, twenty games by Zipf-0.9; of each frame one icon (ResNet-50, 6.2 ms alone) and six numbers (LeNet, 0.1 ms alone), \
             {PRE_MS} ms of pre-processing before each. With prefix batching the games have one queue per kind of model, whose batches run the last layer of \
             each game; without it each has its own. {}; here {:.0} s.",
            gpus(lab),
            lab.words(),
            lab.pick(10.0, 1.0)
        ),
        differences: [
            differences(),
            vec![
                format!(
                    "Without prefix batching {:.0} % are left here; the paper's plot has its bar. The requests of a frame come by themselves, \
                     each kind at its own intervals, and a frame is counted as a seventh of them, not by its last answer.",
                    100.0 * share(uniform[FIRST_LESS], uniform[ALL]).unwrap_or_default()
                ),
                format!(
                    "Without overlap and the rest {:.0} frames/s are left, too few for a ratio. Each batch then takes more than 10 ms, and an allocation by need puts \
                     the numbers of many games on one GPU: twenty such models answer 74 requests a second in time there ([runs]({RUNS})). The paper asks 99 % of all \
                     requests, here it is 99 % of each of 40 pipelines.",
                    uniform[NO_OL]
                ),
                format!(
                    "Early drop gains nothing here with uniform arrivals, and why is not found: each of the two searches ends within 1 %, and on one GPU with one to three \
                     of these ResNets lazy drop loses 0.5 to 2.4 %, also with windows that are too large for a shared GPU ([runs]({RUNS}))."
                ),
                "The paper lets its baselines read icons alone, so the bar of TF Serving is `− overlap` with these only. Its frames have one request each, and all GPUs."
                    .to_owned(),
            ],
        ]
        .concat(),
        missing: Vec::new(),
    })
}
