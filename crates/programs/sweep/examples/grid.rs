//! Compares a policy with others over cases of the grid of the Symphony paper, Table 3, with the profiles of its Table
//! 5: `cargo run --release -p symphony-sweep --example grid -- --profiles PROFILES.csv --cases 120 --draw 7 POLICY
//! [RIVAL …]`
//!
//! A policy is TOML as in a scenario. Cases are drawn, each value of a column of Table 3 equally often, or named
//! (`--case`). Prints a line of CSV for each search as it ends, then one for each case, and finally the comparison of
//! the first policy with the best of the others. With `--repeat` each search is repeated with that many seeds, one by
//! one, and a ratio has a standard error, a median and a range. With `--items` each case runs with each of these
//! distributions of items per request, and rates count requests.

#[path = "regimes/grid_cases.rs"]
mod grid_cases;

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;

use clap::Parser;
use symphony_sweep::{Progress, Sweep};
use symphony_workload::Scenario;

use grid_cases::{Case, line_of};

/// A goodput below this, in requests per second, is a trickle: ratios of two such are meaningless.
const TRICKLE_RPS: f64 = 1.0;
/// How much the first policy may lose against the best of the others (docs/adr/0008).
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
    /// One more case: `MODEL,COUNT,GPUS,SLO_MS,SHAPE`, and the exponent of a Zipf popularity if it is not even. A model
    /// is a name in the profiles, or `ALPHA_MS/BETA_MS`.
    #[arg(long)]
    case: Vec<Case>,
    /// Items of a request in every case: a number, or `LEAST-MOST` for any of these equally often; several are run one
    /// after another.
    #[arg(long, default_value = "1")]
    items: Vec<Items>,
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

/// How many items a request has: any number from the least to the most, equally often.
#[derive(Clone, Copy, Debug)]
struct Items {
    least: u32,
    most: u32,
}

impl FromStr for Items {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let whole = |text: &str| text.parse().map_err(|_| format!("`{text}` is no whole number"));
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        Ok(Self { least: whole(least)?, most: whole(most)? })
    }
}

impl fmt::Display for Items {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { least, most } if least == most => write!(f, "{least}"),
            Self { least, most } => write!(f, "{least}-{most}"),
        }
    }
}

/// One case with one distribution of items.
#[derive(Clone, Copy, Debug)]
struct Pool<'a> {
    case: &'a Case,
    items: Items,
}

impl Pool<'_> {
    /// As a scenario; `line` is the α and the β of the model in milliseconds.
    fn scenario(&self, line: (f64, f64), policy: &str, duration_s: f64, seed: u64) -> Result<Scenario, Box<dyn Error>> {
        let head = format!(
            "name = \"{self}, {seed}\"\npolicy = {policy}\nduration_s = {duration_s:?}\nwarmup_s = 2\nseeds = [{seed}]\n"
        );
        let text = head + &self.case.text(line, (self.items.least, self.items.most));
        Ok(Scenario::parse("grid", &text, &[], &|_| Err("no files".to_owned()))?)
    }
}

impl fmt::Display for Pool<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case: Case { model, count, gpus, slo_ms, shape, .. }, items } = self;
        write!(f, "{model}, {count}, {gpus}, {slo_ms}, {shape}, {items}")
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard error of the mean of some values; NaN for one value.
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

/// The quantile at this share of all values; NaN if there are none.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted.get((share * sorted.len() as f64) as usize).or(sorted.last()).copied().unwrap_or(f64::NAN)
}

/// The results of several pools, each with its own ratio.
fn print_summary(of: &str, mut ratios: Vec<f64>) {
    ratios.sort_by(f64::total_cmp);
    let at = |share| quantile(&ratios, share);
    let below = ratios.iter().filter(|&&ratio| ratio < RATIO_MIN).count();
    println!(
        "# {of}, {} cases: least {:.3}, 1 % {:.3}, 5 % {:.3}, 25 % {:.3}, median {:.3}; {below} below {RATIO_MIN}",
        ratios.len(),
        at(0.0),
        at(0.01),
        at(0.05),
        at(0.25),
        at(0.5),
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let profiles = std::fs::read_to_string(&options.profiles)?;
    let mut cases = Case::draw(options.cases, options.draw);
    cases.extend(options.case);
    let pools: Vec<Pool<'_>> =
        options.items.iter().flat_map(|&items| cases.iter().map(move |case| Pool { case, items })).collect();
    let mut scenarios = Vec::new();
    for pool in &pools {
        for policy in &options.policies {
            for seed in 1..=options.repeat.max(1) {
                scenarios.push(pool.scenario(
                    line_of(&profiles, &pool.case.model)?,
                    policy,
                    options.duration_s,
                    seed,
                )?);
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
    println!("model, models, gpus, slo_ms, shape, items, seed, policy, goodput_rps");
    let goodputs = Sweep::new(options.threads).goodputs(&scenarios, &tell)?;

    let seeds = options.repeat.max(1) as usize;
    let mut all = Vec::new();
    println!(
        "model, models, gpus, slo_ms, shape, items, goodput_rps of each policy …, ratio to the best rival, standard error, \
         median, least, most"
    );
    for (pool, found) in pools.iter().zip(goodputs.chunks(options.policies.len() * seeds)) {
        let by_policy: Vec<&[f64]> = found.chunks(seeds).collect();
        let Some(best) = by_policy[1..].iter().max_by(|a, b| mean(a).total_cmp(&mean(b))) else { continue };
        let mut by_seed = ratios(by_policy[0], best);
        let goodputs: Vec<String> = by_policy.iter().map(|found| format!("{:.1}", mean(found))).collect();
        let (ratio, error) = (mean(&by_seed), standard_error(&by_seed));
        by_seed.sort_by(f64::total_cmp);
        let [median, least, most] = [0.5, 0.0, 1.0].map(|share| quantile(&by_seed, share));
        println!("{pool}, {}, {ratio:.4}, {error:.4}, {median:.3}, {least:.3}, {most:.3}", goodputs.join(", "));
        all.push(ratio);
    }
    let of = format!("{} over the best of the others", options.policies[0]);
    if options.items.len() > 1 {
        for (items, ratios) in options.items.iter().zip(all.chunks(cases.len().max(1))) {
            print_summary(&format!("{of}, {items} items"), ratios.to_vec());
        }
    }
    print_summary(&of, all);
    Ok(())
}
