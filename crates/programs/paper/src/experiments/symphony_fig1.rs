//! The Symphony paper, Figure 1 (section 3.3): the more frontends distribute requests independently, the less goodput.

use anyhow::Result;
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution as _, Gamma};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::cell;
use crate::data;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Rule, Scale, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};
use crate::setup::{Models, Setup};
use crate::system::{EAGER, NEXUS_1};

const FRONTENDS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const FRONTENDS_QUICK: [u32; 2] = [1, 64];

/// GPUs that one model's requests are dealt to, and its SLO.
struct Case {
    label: String,
    gpus: u32,
    model: Models,
}

/// Section 3.3 varies GPUs from 8 to 64, models from 1 to 37, SLOs from 20 to 100 ms. For a model with its own GPUs the
/// number of models does not matter, only that of its GPUs.
fn cases() -> Vec<Case> {
    let resnet = |gpus, slo_ms| Case {
        label: format!("ResNet50, {gpus} GPUs, {slo_ms:.0} ms"),
        gpus,
        model: Models::resnet50_like(1, slo_ms),
    };
    let mut cases = vec![resnet(8, 20.0), resnet(8, 50.0), resnet(64, 20.0), resnet(64, 100.0)];
    let row = data::model_1080ti("DenseNet121");
    cases.push(Case {
        label: "DenseNet121, 16 GPUs, 40 ms".to_owned(),
        gpus: 16,
        model: Models { slo_ms: 40.0, ..Models::of(&row) },
    });
    cases
}

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let cases = cases();
    let frontends: Vec<u32> = lab.pick(FRONTENDS.to_vec(), FRONTENDS_QUICK.to_vec());
    let seeds: Vec<u64> = lab.pick(vec![1, 2, 3], vec![1]);
    let mut setups = Vec::new();
    for case in &cases {
        for &frontends in &frontends {
            setups.extend(seeds.iter().map(|&seed| one_backend(lab, case, frontends, seed)));
        }
    }
    let goodputs = lab.goodputs(&setups)?;
    let medians: Vec<f64> = goodputs.chunks(seeds.len()).map(median).collect();

    let mut table = Table::new(&["part", "case", "frontends", "goodput_rps", "share_of_one_frontend"]);
    let mut alone = Lines::new("One backend alone, dealt to by round robin", x_axis(&frontends), y_axis());
    let mut losses = Vec::new();
    for (index, (case, found)) in cases.iter().zip(medians.chunks(frontends.len())).enumerate() {
        let mut points = Vec::new();
        for (&frontends, &per_gpu) in frontends.iter().zip(found) {
            let share = per_gpu / found[0];
            points.push((f64::from(frontends), 100.0 * share));
            let total = per_gpu * f64::from(case.gpus);
            table.rows.push(vec![
                "backend".to_owned(),
                case.label.clone(),
                frontends.to_string(),
                cell(total, 0),
                cell(share, 3),
            ]);
        }
        losses.push(1.0 - found.last().unwrap_or(&0.0) / found[0]);
        alone.series.push(Series { style: Style::plain(&case.label, index), draw: Draw::Points, points });
    }
    let claim = data::claim("symphony-fig1", "loss");
    let band =
        Rule::Band(100.0 * (1.0 - claim.high), 100.0 * (1.0 - claim.low), "the paper: 5 to 40 % lost".to_owned());
    alone.rules.push(band.clone());
    let mut plots = vec![plot("", Panel::Lines(alone))];
    if lab.knows(&NEXUS_1) {
        let clusters = whole_clusters(lab, &frontends, band, &mut table, &mut losses)?;
        plots.push(plot("-clusters", Panel::Lines(clusters)));
    }
    let most = losses.iter().copied().fold(0.0, f64::max);
    let least = losses.iter().copied().fold(1.0, f64::min);
    let mut most_lost = Comparison::words("symphony-fig1", "loss", Some(most), "");
    most_lost.what += ", in the worst of our cases";
    let mut least_lost = Comparison::words("symphony-fig1", "loss", Some(least), "");
    least_lost.what += ", in the mildest of our cases";
    least_lost.key = "least_loss".to_owned();
    Ok(Report {
        plots,
        tables: vec![table],
        comparisons: vec![most_lost, least_lost],
        setup: format!(
            "One backend of a cluster, seen alone: requests with exponential gaps come to the frontends in equal parts, each frontend \
             deals its own to all GPUs of the model in turn, and the backend runs whatever it has (`{}`, early drop), as Nexus does. A \
             backend's arrivals are a trace made from a seed; its goodput is where 1 % of its requests turn bad. Median of {} seed(s), 30 s. \
             If this build has the `nexus` policy, whole clusters are simulated with it as well.",
            EAGER.key,
            seeds.len()
        ),
        differences: vec![
            "The paper runs Nexus in settings that it does not list one by one. Ours are single models that have their GPUs to \
             themselves, so that nothing but the dealing differs between one frontend and many."
                .to_owned(),
            "On the zoo with `nexus` the loss is larger than in the paper: many models there need only a part of a GPU, and their SLOs leave no \
             slack for a batch that comes a little late."
                .to_owned(),
            "The loss grows with the tightness of the SLO: a batch of a tight SLO is small, and one request more or less matters."
                .to_owned(),
        ],
        missing: Report::missing(&[NEXUS_1], &lab.known(&[NEXUS_1])),
    })
}

fn plot(suffix: &'static str, panel: Panel) -> Plot {
    let figure = Figure {
        title: "Frontends that do not talk to each other cost goodput".to_owned(),
        subtitle:
            "Goodput with so many frontends, in per cent of that with one. Each deals its share of the requests in turn"
                .to_owned(),
        columns: 1,
        panels: vec![panel],
        theirs: String::new(),
        note: "The Symphony paper, Figure 1.".to_owned(),
    };
    Plot { suffix, figure }
}

fn x_axis(frontends: &[u32]) -> Axis {
    let ticks: Vec<f64> = frontends.iter().map(|&frontends| f64::from(frontends)).collect();
    Axis::at("frontends", Scale::Log2, &ticks)
}

fn y_axis() -> Axis {
    Axis::between("goodput, % of that with one frontend", 30.0, 105.0)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) / 2]
}

/// One GPU and its arrivals.
fn one_backend(lab: &Lab<'_>, case: &Case, frontends: u32, seed: u64) -> Setup {
    let Models { alpha_ms, beta_ms, slo_ms, .. } = case.model;
    // A search begins near what an uncoordinated GPU can do (section 4.2, equation 1).
    let batch = ((slo_ms / 2.0 - beta_ms) / alpha_ms).floor().max(1.0);
    let per_gpu_rps = batch / (alpha_ms * batch + beta_ms) * 1e3;
    let mut setup = lab.setup(&format!("{} frontends, {}", frontends, case.label), 1, vec![case.model.clone()]);
    setup.policy = EAGER.policy.to_owned();
    setup.arrival = r#"{ trace_csv = "trace" }"#.to_owned();
    setup.seeds = vec![1];
    // Twice as long as a run: a search may play it faster.
    setup.trace = trace(case.gpus, frontends, per_gpu_rps, 2.0 * setup.duration_s + 8.0, seed);
    setup
}

/// Arrivals at one of `gpus` backends: from each frontend every `gpus`-th of its requests.
fn trace(gpus: u32, frontends: u32, per_gpu_rps: f64, seconds: f64, seed: u64) -> String {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let rate = per_gpu_rps * f64::from(gpus) / f64::from(frontends);
    let gap = |requests: u32, random: &mut Xoshiro256PlusPlus| {
        // The time of this many exponential gaps; shape and scale are positive, so the distribution exists.
        Gamma::new(f64::from(requests), 1.0 / rate).map_or(0.0, |law| law.sample(random))
    };
    let mut times = Vec::new();
    for _ in 0..frontends {
        let first = random.random_range(1..=gpus);
        let mut at = gap(first, &mut random);
        while at < seconds {
            times.push(at);
            at += gap(gpus, &mut random);
        }
    }
    times.sort_by(f64::total_cmp);
    let lines: Vec<_> = times.iter().map(|at| format!("{at:.7}")).collect();
    format!("time_s\n{}\n", lines.join("\n"))
}

/// Goodput by frontends with the policy itself: GPUs, models and SLOs at the corners of what section 3.3 names.
fn whole_clusters(
    lab: &Lab<'_>,
    frontends: &[u32],
    band: Rule,
    table: &mut Table,
    losses: &mut Vec<f64>,
) -> Result<Lines> {
    let zoo: Vec<_> = data::zoo_a100().iter().map(Models::of).collect();
    let cases = [
        ("8 GPUs, 1 model, 20 ms", 8, vec![Models::resnet50_like(1, 20.0)]),
        ("32 GPUs, 8 models, 50 ms", 32, vec![Models::resnet50_like(8, 50.0)]),
        ("64 GPUs, 20 models, 100 ms", 64, vec![Models::resnet50_like(20, 100.0)]),
        ("64 GPUs, 37 models of Table 6", 64, zoo),
    ];
    let mut setups = Vec::new();
    for (label, gpus, models) in &cases {
        for &frontends in frontends {
            let policy = format!("{{ name = \"nexus\", frontends = {frontends} }}");
            setups.push(lab.setup(label, *gpus, models.clone()).with_policy(&policy));
        }
    }
    let goodputs = lab.goodputs(&setups)?;
    let mut lines = Lines::new("Whole clusters with the policy nexus", x_axis(frontends), y_axis());
    for (index, ((label, ..), found)) in cases.iter().zip(goodputs.chunks(frontends.len())).enumerate() {
        // A system that serves nothing with one frontend has nothing to lose.
        let share = |goodput: f64| if found[0] > 0.0 { goodput / found[0] } else { 1.0 };
        for (&frontends, &goodput) in frontends.iter().zip(found) {
            let (goodput_text, share_text) = (cell(goodput, 0), cell(share(goodput), 3));
            let words = ["cluster".to_owned(), (*label).to_owned(), frontends.to_string(), goodput_text, share_text];
            table.rows.push(words.to_vec());
        }
        losses.push(1.0 - share(*found.last().unwrap_or(&0.0)));
        let points = frontends.iter().zip(found).map(|(&f, &goodput)| (f64::from(f), 100.0 * share(goodput)));
        lines.series.push(Series { style: Style::plain(label, index), draw: Draw::Points, points: points.collect() });
    }
    lines.rules.push(band);
    Ok(lines)
}
