//! A policy against others over cases of the grid of seed 000, Table 3, with the profiles of its Table 5:
//! `cargo run --release -p symphony-sweep --example grid -- --profiles PROFILES.csv --cases 120 --draw 7 POLICY [RIVAL …]`
//!
//! A policy is TOML as in a scenario. Cases are drawn, each value of a column of Table 3 as often as any other, or named (`--case`).
//! One line of CSV for each search as it ends, then one for each case, and at the end how the first policy compares with the
//! best of the others. With `--repeat` each search is made with so many seeds, one by one, and a ratio has a standard error.

use std::error::Error;
use std::str::FromStr;
use std::sync::Mutex;

use clap::Parser;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_sweep::{Progress, Sweep};
use symphony_workload::Scenario;

const SHAPES: [f64; 6] = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0];
const MODELS: [&str; 6] = ["DenseNet121", "InceptionV3", "ResNet50V2", "VGG16", "Xception", "BERT"];
const COUNTS: [u32; 6] = [8, 16, 24, 32, 48, 64];
const GPUS_PER_MODEL: [f64; 7] = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0];
const SLOS_MS: [f64; 5] = [20.0, 25.0, 30.0, 40.0, 50.0];

/// A goodput below this, in requests per second, is a trickle: ratios of two such say nothing.
const TRICKLE_RPS: f64 = 1.0;
/// What the first policy may lose against the best of the others (docs/adr/0008).
const RATIO_MIN: f64 = 0.98;

#[derive(Parser)]
struct Options {
    /// Columns `name,alpha_ms,beta_ms,…`.
    #[arg(long)]
    profiles: String,
    /// How many cases to draw.
    #[arg(long, default_value_t = 0)]
    cases: usize,
    /// Seed of the draw.
    #[arg(long, default_value_t = 1)]
    draw: u64,
    /// One more case: `MODEL,COUNT,GPUS,SLO_MS,SHAPE`, and the exponent of a Zipf popularity if it is not even.
    #[arg(long)]
    case: Vec<Case>,
    /// Simulated seconds of each run.
    #[arg(long, default_value_t = 10.0)]
    duration_s: f64,
    /// Searches for each case and policy, each with one seed of its own, from 1.
    #[arg(long, default_value_t = 1)]
    repeat: u64,
    #[arg(long)]
    threads: Option<usize>,
    /// The policy that is judged, and its rivals.
    #[arg(required = true)]
    policies: Vec<String>,
}

/// One case of the grid.
#[derive(Clone, Debug)]
struct Case {
    model: String,
    count: u32,
    gpus: u32,
    slo_ms: f64,
    shape: f64,
    /// Exponent of the popularity; none where it is even, as in all of the grid.
    zipf: Option<f64>,
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fields: Vec<_> = text.split(',').collect();
        let [model, count, gpus, slo_ms, shape, ref zipf @ ..] = fields[..] else {
            return Err("expected MODEL,COUNT,GPUS,SLO_MS,SHAPE or MODEL,COUNT,GPUS,SLO_MS,SHAPE,ZIPF".to_owned());
        };
        let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is no number"));
        let whole = |text: &str| text.parse().map_err(|_| format!("`{text}` is no whole number"));
        let (count, gpus) = (whole(count)?, whole(gpus)?);
        let zipf = match zipf {
            [] => None,
            [exponent] => Some(number(exponent)?),
            [_, rest @ ..] => return Err(format!("{} fields too many", rest.len())),
        };
        Ok(Self { model: model.to_owned(), count, gpus, slo_ms: number(slo_ms)?, shape: number(shape)?, zipf })
    }
}

impl Case {
    /// So many, in random order.
    fn draw(cases: usize, seed: u64) -> Vec<Self> {
        let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
        let models = column(&MODELS, cases, random);
        let counts = column(&COUNTS, cases, random);
        let per_model = column(&GPUS_PER_MODEL, cases, random);
        let slos_ms = column(&SLOS_MS, cases, random);
        let shapes = column(&SHAPES, cases, random);
        (0..cases)
            .map(|at| Self {
                model: models[at].to_owned(),
                count: counts[at],
                gpus: (per_model[at] * f64::from(counts[at])).round() as u32,
                slo_ms: slos_ms[at],
                shape: shapes[at],
                zipf: None,
            })
            .collect()
    }

    /// As a scenario; `line` is the α and the β of the model in milliseconds.
    fn scenario(&self, line: (f64, f64), policy: &str, duration_s: f64, seed: u64) -> Result<Scenario, Box<dyn Error>> {
        let Self { model, count, gpus, slo_ms, shape, zipf } = self;
        let popularity = zipf.map_or_else(|| "\"uniform\"".to_owned(), |exponent| format!("{{ zipf = {exponent:?} }}"));
        let (alpha_ms, beta_ms) = line;
        let text = format!(
            "name = \"{model}, {count}, {gpus}, {slo_ms}, {shape}, {seed}\"\npolicy = {policy}\nduration_s = {duration_s:?}\n\
             warmup_s = 2\nseeds = [{seed}]\n[[gpu]]\nkind = \"emulated\"\ncount = {gpus}\n\
             [[model]]\nname = \"m\"\ncount = {count}\nalpha_ms = {alpha_ms:?}\nbeta_ms = {beta_ms:?}\nslo_ms = {slo_ms:?}\n\
             [workload]\nrate_rps = 1000.0\narrival = {{ gamma = {shape:?} }}\npopularity = {popularity}\n"
        );
        Ok(Scenario::parse("grid", &text, &[], &|_| Err("no files".to_owned()))?)
    }
}

/// Values for `cases` rows, each of them equally often and in random order: any part of the rows is a fair sample too.
fn column<T: Copy>(values: &[T], cases: usize, random: &mut Xoshiro256PlusPlus) -> Vec<T> {
    let mut column: Vec<T> = values.iter().copied().cycle().take(cases).collect();
    column.shuffle(random);
    column
}

/// The α and the β of a model in a file with columns `name,alpha_ms,beta_ms,…`.
fn line_of(profiles: &str, model: &str) -> Result<(f64, f64), Box<dyn Error>> {
    let row = profiles.lines().map(|row| row.split(',').collect::<Vec<_>>()).find(|row| row[0] == model);
    match row.as_deref() {
        Some([_, alpha_ms, beta_ms, ..]) => Ok((alpha_ms.parse()?, beta_ms.parse()?)),
        _ => Err(format!("no row of {model} with alpha_ms and beta_ms").into()),
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Of the mean of some values; not a number for one.
fn standard_error(values: &[f64]) -> f64 {
    let middle = mean(values);
    let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    (squares / (values.len() as f64 - 1.0) / values.len() as f64).sqrt()
}

/// How the goodputs of a policy compare with those of a rival, seed by seed.
fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    let ratio = |(&ours, &theirs): (&f64, &f64)| {
        if ours.max(theirs) < TRICKLE_RPS { 1.0 } else { ours / theirs.max(TRICKLE_RPS) }
    };
    ours.iter().zip(theirs).map(ratio).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let profiles = std::fs::read_to_string(&options.profiles)?;
    let mut cases = Case::draw(options.cases, options.draw);
    cases.extend(options.case);
    let mut scenarios = Vec::new();
    for case in &cases {
        for policy in &options.policies {
            for seed in 1..=options.repeat.max(1) {
                scenarios.push(case.scenario(line_of(&profiles, &case.model)?, policy, options.duration_s, seed)?);
            }
        }
    }
    let printing = Mutex::new(());
    let tell = |progress: Progress<'_>| {
        if let Progress::Found { scenario, goodput_rps } = progress {
            let _one = printing.lock();
            // One column, whatever options it has.
            let policy = scenario.policy.to_string().replace('"', "'");
            println!("{}, \"{policy}\", {goodput_rps:.1}", scenario.name);
        }
    };
    println!("model, models, gpus, slo_ms, shape, seed, policy, goodput_rps");
    let goodputs = Sweep::new(options.threads).goodputs(&scenarios, &tell)?;

    let seeds = options.repeat.max(1) as usize;
    let mut all = Vec::new();
    println!(
        "model, models, gpus, slo_ms, shape, goodput_rps of each policy …, ratio to the best rival, standard error"
    );
    for (case, found) in cases.iter().zip(goodputs.chunks(options.policies.len() * seeds)) {
        let by_policy: Vec<&[f64]> = found.chunks(seeds).collect();
        let Some(best) = by_policy[1..].iter().max_by(|a, b| mean(a).total_cmp(&mean(b))) else { continue };
        let by_seed = ratios(by_policy[0], best);
        let goodputs: Vec<String> = by_policy.iter().map(|found| format!("{:.1}", mean(found))).collect();
        let Case { model, count, gpus, slo_ms, shape, .. } = case;
        let (ratio, error) = (mean(&by_seed), standard_error(&by_seed));
        println!("{model}, {count}, {gpus}, {slo_ms}, {shape}, {}, {ratio:.4}, {error:.4}", goodputs.join(", "));
        all.push(ratio);
    }
    all.sort_by(f64::total_cmp);
    let at = |share: f64| all.get((share * all.len() as f64) as usize).copied().unwrap_or(f64::NAN);
    let below = all.iter().filter(|&&ratio| ratio < RATIO_MIN).count();
    println!(
        "# {} over the best of the others, {} cases: least {:.3}, 1 % {:.3}, 5 % {:.3}, 25 % {:.3}, median {:.3}; {below} below {RATIO_MIN}",
        options.policies[0],
        all.len(),
        at(0.0),
        at(0.01),
        at(0.05),
        at(0.25),
        at(0.5),
    );
    Ok(())
}
