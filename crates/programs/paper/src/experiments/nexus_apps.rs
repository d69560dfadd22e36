//! The applications `game` and `traffic` of the Nexus paper's Table 4 as pipelines, with its techniques left out one
//! after another (section 7.3), and what Symphony makes of them.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use symphony_pipeline::{Cost, Pipeline, Split, even_split, split};
use symphony_types::Nanos;

use super::cell;
use super::nexus_fig17::{STEP, throughput};
use crate::data;
use crate::lab::Lab;
use crate::plot::{Axis, Bar, Bars, Figure, Panel, Style};
use crate::report::Table;
use crate::setup::Setup;
use crate::system::{AUTO, NEXUS_1, NEXUS_LAZY, NEXUS_OBLIVIOUS};

/// Where reasons come from, as seen from the pages.
pub(crate) const RUNS: &str = "../internals/lab/2026-11-27-paper-pages.md#nexus";
/// Pre-processing of a frame or a crop on the CPU (section 7.3.1: roughly 10 ms).
pub(crate) const PRE_MS: f64 = 10.0;
/// Games, each with models of its own (section 7.3.1).
const GAMES: u32 = 20;
const GAME_SLO_MS: f64 = 50.0;
/// Of `traffic` (section 7.3.2), whose longest path has two stages.
const TRAFFIC_SLO_MS: f64 = 400.0;
const TRAFFIC_STAGES: f64 = 2.0;
/// Numbers that are read in each frame.
const NUMBERS: f64 = 6.0;
/// The exponent of the games' popularity.
const ZIPF: f64 = 0.9;
/// One fully connected layer of a game's own: its weights are read once a batch (`nexus-fig15`).
const SUFFIX_MS: f64 = 0.027;

/// ℓ(b) = α·b + β.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) alpha_ms: f64,
    pub(crate) beta_ms: f64,
}

impl Line {
    /// With this ℓ(1), of which batches share this part.
    pub(crate) const fn of(alone_ms: f64, fixed: f64) -> Self {
        Self { alpha_ms: alone_ms * (1.0 - fixed), beta_ms: alone_ms * fixed }
    }

    /// With this ℓ(1), in the proportions of a model of the Symphony paper's Table 5.
    fn like(name: &str, alone_ms: f64) -> Self {
        let row = data::model_1080ti(name);
        Self::of(alone_ms, row.beta_ms / (row.alpha_ms + row.beta_ms))
    }
}

/// A system of an ablation: with the techniques of those before it but one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    policy: &'static str,
    split: &'static str,
    /// Pre-processing runs beside the GPU.
    is_overlapped: bool,
    /// Models of all games run as one batch.
    is_shared: bool,
    /// Of a frame of `game` only the icon is asked for: what the paper asks of its baselines.
    only_icons: bool,
}

impl Case {
    const NEXUS: Self = Self {
        key: "nexus",
        label: "nexus",
        policy: NEXUS_1.policy,
        split: "waiting",
        is_overlapped: true,
        is_shared: true,
        only_icons: false,
    };
    const SYMPHONY: Self =
        Self { key: "symphony", label: "symphony (auto)", policy: AUTO.policy, split: "deferred", ..Self::NEXUS };

    /// Requests of models for a frame of `game`.
    pub(crate) const fn requests_per_frame(&self) -> f64 {
        if self.only_icons { 1.0 } else { 1.0 + NUMBERS }
    }
}

/// Places of an ablation: all of Nexus, one technique less, all but OL left out, everything left out, Symphony.
/// Baselines follow.
pub(crate) const ALL: usize = 0;
pub(crate) const FIRST_LESS: usize = 1;
pub(crate) const NO_ED: usize = 3;
pub(crate) const NO_OL: usize = 4;
pub(crate) const SYMPHONY: usize = 5;
/// Places of the baselines. In `traffic` `− overlap` stands for TF Serving, so only Clipper follows.
pub(crate) const TF_SERVING: usize = 6;
pub(crate) const CLIPPER_IN_GAME: usize = 7;
pub(crate) const CLIPPER_IN_TRAFFIC: usize = 6;

const NO_PB: Case = Case { key: "no_pb", label: "− prefix batching", is_shared: false, ..Case::NEXUS };
/// Its policy and split do not count.
const LIKE_CLIPPER: Case = Case { key: "clipper", label: "like Clipper", is_overlapped: false, ..NO_PB };
pub(crate) static OF_GAME: [Case; 8] = [
    Case::NEXUS,
    NO_PB,
    Case { key: "no_ss", label: "− squishy packing", policy: NEXUS_OBLIVIOUS, ..NO_PB },
    Case { key: "no_ed", label: "− early drop", policy: NEXUS_LAZY, ..NO_PB },
    Case { key: "no_ol", label: "− overlap", policy: NEXUS_LAZY, is_overlapped: false, ..NO_PB },
    Case::SYMPHONY,
    Case {
        key: "tf_serving",
        label: "like TF Serving, icons only",
        policy: NEXUS_LAZY,
        is_overlapped: false,
        only_icons: true,
        ..NO_PB
    },
    Case { label: "like Clipper, icons only", only_icons: true, ..LIKE_CLIPPER },
];

const NO_QA: Case = Case { key: "no_qa", label: "− query analysis", split: "even", ..Case::NEXUS };
pub(crate) static OF_TRAFFIC: [Case; 7] = [
    Case::NEXUS,
    NO_QA,
    Case { key: "no_ss", label: "− squishy packing", policy: NEXUS_OBLIVIOUS, ..NO_QA },
    Case { key: "no_ed", label: "− early drop", policy: NEXUS_LAZY, ..NO_QA },
    Case { key: "no_ol", label: "− overlap", policy: NEXUS_LAZY, is_overlapped: false, ..NO_QA },
    Case::SYMPHONY,
    LIKE_CLIPPER,
];

/// GPUs of both applications.
pub(crate) fn gpus(lab: &Lab<'_>) -> u32 {
    lab.pick(16, 4)
}

fn setup(lab: &Lab<'_>, name: &str, case: &Case, arrival: &str, duration_s: f64) -> Setup {
    let mut setup = lab.setup(&format!("{name}, {}", case.label), gpus(lab), Vec::new()).with_policy(case.policy);
    setup.arrival = format!("\"{arrival}\"");
    setup.popularity = r#""weights""#.to_owned();
    setup.duration_s = duration_s;
    setup
}

fn stage(case: &Case, name: &str, line: Line) -> String {
    let Line { alpha_ms, beta_ms } = line;
    let (pre_ms, beta_ms) = if case.is_overlapped { (PRE_MS, beta_ms) } else { (0.0, beta_ms + PRE_MS) };
    format!(
        "[[pipeline.stage]]\nname = \"{name}\"\nalpha_ms = {alpha_ms:?}\nbeta_ms = {beta_ms:?}\npre_ms = {pre_ms:?}\n"
    )
}

/// Section 7.3.1: frames of twenty games; each needs an icon and six numbers, all in 50 ms. Requests are those of
/// models, seven for a frame.
pub(crate) fn game(lab: &Lab<'_>, case: &Case, arrival: &str) -> Setup {
    let mut setup = setup(lab, "game", case, arrival, lab.pick(10.0, 1.0));
    let streams = if case.is_shared { 1 } else { GAMES };
    // The layer of its own is part of the model; a batch of several games runs that of each.
    let more_ms = if case.is_shared { f64::from(GAMES - 1) * SUFFIX_MS } else { 0.0 };
    let kinds = [("icon", 1.0, icon()), ("number", NUMBERS, Line::of(0.1, 0.95))];
    let asked = if case.only_icons { 1 } else { kinds.len() };
    for (name, of_frame, line) in kinds.into_iter().take(asked) {
        let line = Line { beta_ms: line.beta_ms + more_ms, ..line };
        for game in 0..streams {
            let weight = of_frame * f64::from(game + 1).powf(-ZIPF);
            // Writing into a string cannot fail.
            let _ = write!(
                setup.more,
                "[[pipeline]]\nname = \"{name}-{game}\"\nslo_ms = {GAME_SLO_MS:?}\nweight = {weight:?}\nsplit = \"{}\"\n{}",
                case.split,
                stage(case, &format!("{name}-{game}"), line)
            );
        }
    }
    setup
}

/// A model that an application asks, by itself.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    /// On a GPU of its own, without pre-processing.
    pub(crate) line: Line,
    /// Its share of the application's SLO.
    pub(crate) slo_ms: f64,
    /// Requests for each one of the application.
    pub(crate) per_request: f64,
}

/// What Clipper is asked of a frame: the icon, of one game by its share of the frames.
pub(crate) fn game_services() -> Vec<Service> {
    let weights: Vec<f64> = (1..=GAMES).map(|game| f64::from(game).powf(-ZIPF)).collect();
    let all: f64 = weights.iter().sum();
    let icon = |(game, weight): (usize, &f64)| Service {
        name: format!("icon-{game}"),
        line: icon(),
        slo_ms: GAME_SLO_MS,
        per_request: weight / all,
    };
    weights.iter().enumerate().map(icon).collect()
}

/// ResNet-50.
fn icon() -> Line {
    Line::like("ResNet50", 6.2)
}

/// Objects per frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    pub(crate) cars: f64,
    pub(crate) faces: f64,
}

/// The paper does not say how many objects there are.
pub(crate) const DAY: Scene = Scene { key: "day", label: "non-rush hour", cars: 1.5, faces: 0.5 };
pub(crate) const RUSH: Scene = Scene { key: "rush", label: "rush hour", cars: 7.5, faces: 2.5 };

impl Scene {
    /// The models, and the requests of each for a frame.
    fn models(&self) -> [(&'static str, Line, f64); 3] {
        let vgg = data::model_1080ti("VGG16");
        [
            ("ssd", Line::of(47.0, 0.75), 1.0),
            ("car", Line::of(4.2, 0.75), self.cars),
            ("face", Line { alpha_ms: vgg.alpha_ms, beta_ms: vgg.beta_ms }, self.faces),
        ]
    }

    /// What Clipper is asked of a frame.
    pub(crate) fn services(&self) -> Vec<Service> {
        let service = |(name, line, per_request): (&str, Line, f64)| Service {
            name: name.to_owned(),
            line,
            slo_ms: TRAFFIC_SLO_MS / TRAFFIC_STAGES,
            per_request,
        };
        self.models().map(service).into()
    }
}

/// Section 7.3.2: SSD on each frame, then the make of each car and each face, in 400 ms.
pub(crate) fn traffic(lab: &Lab<'_>, case: &Case, scene: &Scene) -> Setup {
    let mut setup = setup(lab, &format!("traffic, {}", scene.label), case, "uniform", lab.pick(30.0, 5.0));
    let (cars, faces) = (scene.cars, scene.faces);
    let stages = scene.models().map(|(name, line, _)| stage(case, name, line));
    setup.more = format!(
        "[[pipeline]]\nname = \"traffic\"\nslo_ms = {TRAFFIC_SLO_MS:?}\nsplit = \"{}\"\n{}\
         [[pipeline.edge]]\nfrom = \"ssd\"\nto = \"car\"\nfor_each = \"row\"\ngamma = {cars:?}\n\
         [[pipeline.edge]]\nfrom = \"ssd\"\nto = \"face\"\nfor_each = \"row\"\ngamma = {faces:?}\n",
        case.split,
        stages.concat()
    );
    setup
}

/// Frames per second at which all GPUs are busy by the best split of the budget. It counts fractions of GPUs, and no
/// request comes by chance: where batches take so much of their budgets, no policy serves more.
pub(crate) fn split_bound(lab: &Lab<'_>, scene: &Scene, cost: Cost) -> Result<f64> {
    bound(lab, scene, |pipeline, rate_rps, hop| split(pipeline, rate_rps, cost, STEP, hop).ok())
}

/// The same with equal shares.
pub(crate) fn even_bound(lab: &Lab<'_>, scene: &Scene, cost: Cost) -> Result<f64> {
    bound(lab, scene, |pipeline, rate_rps, hop| even_split(pipeline, rate_rps, cost, hop).ok())
}

fn bound(lab: &Lab<'_>, scene: &Scene, by: impl Fn(&Pipeline, f64, Nanos) -> Option<Split>) -> Result<f64> {
    let scenario = traffic(lab, &Case::NEXUS, scene).scenario()?;
    let load = scenario.pipelines.first().context("the application is one pipeline")?;
    Ok(throughput(f64::from(gpus(lab)), &|rate_rps| by(&load.pipeline, rate_rps, load.hop)))
}

/// The goodput of each case in requests of the application per second.
pub(crate) fn ablation(
    lab: &Lab<'_>,
    cases: &[Case],
    per_request: impl Fn(&Case) -> f64,
    setup: impl Fn(&Case) -> Setup,
) -> Result<Vec<f64>> {
    let setups: Vec<_> = cases.iter().map(setup).collect();
    let goodputs = lab.goodputs(&setups)?;
    Ok(cases.iter().zip(goodputs).map(|(case, goodput)| goodput / per_request(case)).collect())
}

/// A bar for each case, with the paper's throughput where it says one.
pub(crate) fn bars(title: &str, cases: &[Case], found: &[f64], theirs: &[Option<f64>]) -> Bars {
    let bar = |(index, ((case, &value), theirs)): (usize, ((&Case, &f64), &Option<f64>))| Bar {
        style: Style::plain(case.label, index),
        value: Some(value),
        text: format!("{value:.0}"),
        theirs: theirs.map(|theirs| (theirs, theirs)),
    };
    Bars {
        title: title.to_owned(),
        axis: Axis::from_zero("throughput, r/s"),
        bars: cases.iter().zip(found).zip(theirs).enumerate().map(bar).collect(),
        rules: Vec::new(),
    }
}

/// Rows of a table: the case, its throughput, and its share of the first's.
pub(crate) fn rows(table: &mut Table, first: &str, cases: &[Case], found: &[f64]) {
    for (case, &value) in cases.iter().zip(found) {
        let over = value / found[ALL].max(f64::MIN_POSITIVE);
        table.rows.push(vec![first.to_owned(), case.key.to_owned(), cell(value, 1), cell(over, 3)]);
    }
}

/// Which throughput is left of another; `None` if that is nothing.
pub(crate) fn share(of: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| of / whole)
}

pub(crate) fn figure(title: &str, subtitle: &str, panels: Vec<Bars>, note: &str) -> Figure {
    Figure {
        title: title.to_owned(),
        subtitle: subtitle.to_owned(),
        columns: 1,
        panels: panels.into_iter().map(Panel::Bars).collect(),
        theirs: "the paper, where its text has a number".to_owned(),
        note: note.to_owned(),
    }
}

/// What all pages of applications say about the paper's systems.
pub(crate) fn differences() -> Vec<String> {
    vec![
        "The paper gives ℓ(1) of its models, and no profiles: how much of it a batch shares is ours (SSD, GoogleNet and LeNet 75, 75 and 95 %; ResNet-50 and VGG as \
         in the Symphony paper's Table 5), and so are absolute throughputs. Shares of the first bar are what to compare."
            .to_owned(),
        "Without overlap a batch takes 10 ms longer, once: the paper's pre-processing of a frame, by a pool of threads. The paper does not say how it grows with the \
         batch."
            .to_owned(),
        "Nexus is the simulator's `nexus` with one frontend and the rates known; `− squishy packing` allocates GPUs as section 7.2 describes, `− early drop` lets the \
         oldest request decide the batch until it is lost. Goodput asks 99 % of each pipeline."
            .to_owned(),
        "With all of them left out, `− overlap` is what the page of Figure 14 has for TF Serving, on GPUs that are allocated as section 7.2 describes, with the budget in \
         equal shares. Clipper has a container for each model on a GPU, where each of n takes n times as long, as on that page. Its containers are simulated by \
         themselves, with requests at uniform intervals of which 99 % are in time, and the least able model counts, which flatters it."
            .to_owned(),
        "What a stage leaves of its budget goes to those behind it under every system here but Clipper; the paper's sessions have fixed SLOs, which leave it unused."
            .to_owned(),
    ]
}
