//! Compares a policy with others over regimes for which none was tuned, and over those of the papers:
//! `cargo run --release -p symphony-sweep --example regimes -- --data DATA --random 60 --draw 7 POLICY [RIVAL …]`
//!
//! A regime is a scenario: models and their popularity, SLOs, GPUs, arrivals, delays, noise. `--data` is the folder
//! with the profiles of the Symphony paper (Tables 5 and 6) and recorded arrivals. Prints a line of CSV for each search
//! as it ends; finally it compares the first policy with the best of the others, group by group. `--known` reads such
//! lines and skips the searches in them.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;

use clap::Parser;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_sweep::{Progress, Sweep};
use symphony_workload::Scenario;

/// A goodput below this, in requests per second, is a trickle: ratios of two such are meaningless.
const TRICKLE_RPS: f64 = 1.0;
/// A recorded trace is repeated to this many rows, so that a fast replay does not run out of it.
const TRACE_ROWS: usize = 400_000;

#[derive(Parser)]
struct Options {
    /// The folder with `symphony_table5_1080ti.csv`, `symphony_table6_a100.csv` and recorded arrivals.
    #[arg(long)]
    data: std::path::PathBuf,
    /// The regimes of docs/adr/0008.
    #[arg(long)]
    named: bool,
    /// So many drawn at random.
    #[arg(long, default_value_t = 0)]
    random: usize,
    /// Seed of the draw.
    #[arg(long, default_value_t = 1)]
    draw: u64,
    /// Only regimes whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// The spread of execution times (lognormal sigma) in every regime, instead of its own.
    #[arg(long)]
    noise: Option<f64>,
    /// Leave out this rule of `auto` (`load`, `gaps`, `spacing`, `overrun`).
    #[arg(long)]
    without: Option<String>,
    /// Simulated seconds of each run.
    #[arg(long, default_value_t = 10.0)]
    duration_s: f64,
    /// Seeds of each search, from 1.
    #[arg(long, default_value_t = 2)]
    seeds: u64,
    /// Results of before, as this program prints them.
    #[arg(long)]
    known: Vec<std::path::PathBuf>,
    #[arg(long)]
    threads: Option<usize>,
    /// Print the scenarios instead of running them.
    #[arg(long)]
    print: bool,
    /// The policy that is judged, and its rivals: TOML as in a scenario.
    policies: Vec<String>,
}

/// A regime: everything of a scenario but its policy, seeds and duration.
struct Regime {
    name: String,
    group: &'static str,
    text: String,
    trace: Option<String>,
}

#[derive(Clone)]
struct Model {
    name: String,
    alpha_ms: f64,
    beta_ms: f64,
    slo_ms: f64,
}

fn zoo(data: &Path, file: &str) -> Result<Vec<Model>, Box<dyn Error>> {
    let text = std::fs::read_to_string(data.join(file))?;
    let row = |line: &str| -> Option<Model> {
        let fields: Vec<_> = line.split(',').collect();
        let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some(Model { name: fields[0].to_lowercase(), alpha_ms: number(1)?, beta_ms: number(2)?, slo_ms: number(4)? })
    };
    Ok(text.lines().skip(1).filter_map(row).collect())
}

fn model_text(name: &str, count: u32, alpha: &str, beta: &str, slo_ms: f64, items: &str) -> String {
    let count = if count > 1 { format!("count = {count}\n") } else { String::new() };
    format!("[[model]]\nname = \"{name}\"\n{count}alpha_ms = {alpha}\nbeta_ms = {beta}\nslo_ms = {slo_ms:?}\n{items}")
}

fn gpu_text(kind: &str, count: u32) -> String {
    format!("[[gpu]]\nkind = \"{kind}\"\ncount = {count}\n")
}

fn workload_text(arrival: &str, popularity: &str) -> String {
    format!("[workload]\nrate_rps = 1000.0\narrival = {arrival}\npopularity = {popularity}\n")
}

const UNIFORM: &str = "\"uniform\"";

/// The regimes of docs/adr/0008 and the zoos of the paper.
fn named(data: &Path) -> Result<Vec<Regime>, Box<dyn Error>> {
    let mut regimes = Vec::new();
    let mut alike =
        |name: &str, (count, alpha, beta): (u32, f64, f64), slo_ms: f64, gpus: u32, arrival: &str, popularity: &str| {
            let text = gpu_text("x", gpus)
                + &model_text("m", count, &format!("{alpha:?}"), &format!("{beta:?}"), slo_ms, "")
                + &workload_text(arrival, popularity);
            regimes.push(Regime { name: name.to_owned(), group: "named", text, trace: None });
        };
    let poisson = "\"poisson\"";
    let (resnet, inception, densenet, bert) = ((1.053, 5.072), (5.090, 18.368), (1.061, 10.312), (7.008, 0.159));
    alike("table4 resnet50", (1, resnet.0, resnet.1), 25.0, 8, poisson, UNIFORM);
    alike("table4 inceptionresnetv2", (1, inception.0, inception.1), 70.0, 8, poisson, UNIFORM);
    for slo_ms in [15.0, 25.0, 50.0, 100.0] {
        alike(&format!("20 resnet50 32 gpus {slo_ms} ms"), (20, resnet.0, resnet.1), slo_ms, 32, poisson, UNIFORM);
        let gamma = "{ gamma = 0.05 }";
        alike(&format!("20 resnet50 32 gpus {slo_ms} ms gamma"), (20, resnet.0, resnet.1), slo_ms, 32, gamma, UNIFORM);
        let zipf = "{ zipf = 0.9 }";
        alike(&format!("20 resnet50 32 gpus {slo_ms} ms zipf"), (20, resnet.0, resnet.1), slo_ms, 32, poisson, zipf);
    }
    alike("16 densenet121 32 gpus 30 ms", (16, densenet.0, densenet.1), 30.0, 32, poisson, UNIFORM);
    alike("16 densenet121 32 gpus 50 ms", (16, densenet.0, densenet.1), 50.0, 32, poisson, UNIFORM);
    alike("16 bert 32 gpus 56 ms", (16, bert.0, bert.1), 56.0, 32, poisson, UNIFORM);
    // SLOs that leave little time besides a batch.
    let inceptionv3 = (1.964, 8.771);
    let (zipf, gamma) = ("{ zipf = 0.9 }", |shape: f64| format!("{{ gamma = {shape} }}"));
    alike("tight: 20 inceptionv3 32 gpus 20 ms zipf", (20, inceptionv3.0, inceptionv3.1), 20.0, 32, poisson, zipf);
    alike("tight: 8 densenet121 14 gpus 20 ms zipf", (8, densenet.0, densenet.1), 20.0, 14, poisson, zipf);
    alike("tight: 16 densenet121 24 gpus 20 ms", (16, densenet.0, densenet.1), 20.0, 24, poisson, UNIFORM);
    alike("tight: 16 densenet121 24 gpus 20 ms gamma", (16, densenet.0, densenet.1), 20.0, 24, &gamma(0.5), UNIFORM);
    alike("tight: 8 densenet121 12 gpus 20 ms gamma", (8, densenet.0, densenet.1), 20.0, 12, &gamma(0.5), UNIFORM);
    alike("tight: 8 densenet121 8 gpus 20 ms gamma", (8, densenet.0, densenet.1), 20.0, 8, &gamma(0.7), UNIFORM);
    alike("tight: 8 inceptionv3 8 gpus 20 ms gamma", (8, inceptionv3.0, inceptionv3.1), 20.0, 8, &gamma(0.2), UNIFORM);
    alike("tight: 8 bert 12 gpus 25 ms", (8, bert.0, bert.1), 25.0, 12, poisson, UNIFORM);
    alike("20 resnet50 8 gpus 50 ms", (20, resnet.0, resnet.1), 50.0, 8, poisson, UNIFORM);
    for (kind, file) in [("1080ti", "symphony_table5_1080ti.csv"), ("a100", "symphony_table6_a100.csv")] {
        let models = zoo(data, file)?;
        type Keeps = fn(&Model) -> bool;
        let parts: [(&str, Keeps); 3] =
            [("all", |_| true), ("gt2", |m| m.beta_ms > 2.0 * m.alpha_ms), ("lt2", |m| m.beta_ms <= 2.0 * m.alpha_ms)];
        for (part, keeps) in parts {
            let mut text = gpu_text(kind, 64);
            for m in models.iter().filter(|m| keeps(m)) {
                let (alpha, beta) = (format!("{:?}", m.alpha_ms), format!("{:?}", m.beta_ms));
                text += &model_text(&m.name, 1, &alpha, &beta, m.slo_ms, "");
            }
            text += &workload_text(poisson, UNIFORM);
            regimes.push(Regime { name: format!("zoo {kind} {part}"), group: "zoo", text, trace: None });
        }
    }
    Ok(regimes)
}

/// Recorded arrivals as a trace, repeated end to end.
fn trace(data: &Path, file: &str) -> Result<String, Box<dyn Error>> {
    let text = std::fs::read_to_string(data.join(file))?;
    let times: Vec<f64> = text.lines().skip(1).filter_map(|line| line.split(',').next()?.parse::<f64>().ok()).collect();
    let (first, last) = (times.first().ok_or("an empty trace")?, times.last().ok_or("an empty trace")?);
    let period = last - first + (last - first) / times.len() as f64;
    let mut csv = "time_s\n".to_owned();
    for round in 0..TRACE_ROWS.div_ceil(times.len()) {
        for time in &times {
            writeln!(csv, "{:.6}", (time - first + period * round as f64) / 1e3)?;
        }
    }
    Ok(csv)
}

/// This many regimes of all kinds.
fn random(data: &Path, cases: usize, draw: u64) -> Result<Vec<Regime>, Box<dyn Error>> {
    let zoos = [zoo(data, "symphony_table5_1080ti.csv")?, zoo(data, "symphony_table6_a100.csv")?];
    let traces =
        [trace(data, "azure_llm_2023_conv_arrivals.csv")?, trace(data, "azure_llm_2023_code_arrivals_part1.csv")?];
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(draw);
    let log_uniform = |random: &mut Xoshiro256PlusPlus, least: f64, most: f64| -> f64 {
        (random.random_range(least.ln()..=most.ln())).exp()
    };
    let mut regimes = Vec::new();
    for case in 0..cases {
        let own = random.random_range(0..2_usize);
        let two_kinds = random.random_bool(0.25);
        let other = &zoos[1 - own];
        let mut models: Vec<(Model, Option<Model>)> = zoos[own]
            .iter()
            .map(|m| (m.clone(), other.iter().find(|o| o.name == m.name).cloned()))
            .filter(|(_, o)| !two_kinds || o.is_some())
            .collect();
        models.shuffle(random);
        models.truncate(log_uniform(random, 1.0, models.len() as f64).round() as usize);
        let gpus = log_uniform(random, 4.0, 96.0).round() as u32;
        let kinds = ["1080ti", "a100"];
        let mut text = if two_kinds {
            let first = random.random_range(1..gpus);
            gpu_text(kinds[own], first) + &gpu_text(kinds[1 - own], gpus - first)
        } else {
            gpu_text(kinds[own], gpus)
        };
        let items = match random.random_range(0..20) {
            0..=13 => "",
            14..=16 => "items = { uniform = [1, 2] }\n",
            _ => "items = { uniform = [1, 4] }\n",
        };
        for (m, o) in &models {
            let slo_ms = ((m.slo_ms * log_uniform(random, 0.8, 4.0)) * 10.0).round() / 10.0;
            // At least the time of four items, so that there is something to serve.
            let least = |m: &Model| m.beta_ms + 4.0 * m.alpha_ms + 3.0;
            let slo_ms = slo_ms.max(least(m)).max(o.as_ref().filter(|_| two_kinds).map_or(0.0, least));
            let (alpha, beta) = match o {
                Some(o) if two_kinds => (
                    format!("{{ {} = {:?}, {} = {:?} }}", kinds[own], m.alpha_ms, kinds[1 - own], o.alpha_ms),
                    format!("{{ {} = {:?}, {} = {:?} }}", kinds[own], m.beta_ms, kinds[1 - own], o.beta_ms),
                ),
                _ => (format!("{:?}", m.alpha_ms), format!("{:?}", m.beta_ms)),
            };
            text += &model_text(&m.name, 1, &alpha, &beta, slo_ms, items);
        }
        text += [
            "",
            "",
            "[network]\nctrl_us = 20\ndata_us_per_item = 10\nreply_us = 20\n",
            "[network]\nctrl_us = 200\ndata_us_per_item = 60\nreply_us = 300\n",
        ][random.random_range(0..4_usize)];
        let sigma = [0.0, 0.0, 0.01, 0.03, 0.08][random.random_range(0..5_usize)];
        if sigma > 0.0 {
            writeln!(text, "[execution]\nnoise = {{ lognormal_sigma = {sigma:?} }}")?;
        }
        let popularity = match random.random_bool(0.5) {
            true => UNIFORM.to_owned(),
            false => format!("{{ zipf = {:.2} }}", random.random_range(0.5..1.5)),
        };
        let (arrival, recorded) = match random.random_range(0..20) {
            0..=7 => ("\"poisson\"".to_owned(), None),
            8..=16 => (format!("{{ gamma = {:.3} }}", log_uniform(random, 0.05, 1.0)), None),
            _ => ("{ trace_csv = \"trace.csv\" }".to_owned(), Some(traces[random.random_range(0..2_usize)].clone())),
        };
        text += &workload_text(&arrival, &popularity);
        let group = match sigma {
            0.0 => "noise 0",
            0.01 => "noise 1 %",
            0.03 => "noise 3 %",
            _ => "noise 8 %",
        };
        let kinds = if two_kinds { "both" } else { kinds[own] };
        let arrival = arrival.replace(['"', '{', '}', ','], "").replace(" ", "");
        let name = format!("r{draw}-{case} {} of {kinds} on {gpus} {arrival} {sigma}", models.len());
        regimes.push(Regime { name, group, text, trace: recorded });
    }
    Ok(regimes)
}

impl Regime {
    fn scenario(&self, policy: &str, options: &Options) -> Result<Scenario, Box<dyn Error>> {
        let seeds: Vec<u64> = (1..=options.seeds).collect();
        let head = format!(
            "name = \"{}\"\npolicy = {policy}\nduration_s = {:?}\nwarmup_s = 2\nseeds = {seeds:?}\n",
            self.name, options.duration_s
        );
        let noise = options.noise.iter().map(|sigma| format!("execution.noise={{ lognormal_sigma = {sigma:?} }}"));
        let without = options.without.iter().map(|rule| format!("without=[{rule:?}]"));
        let sets: Vec<String> = noise.chain(without).collect();
        let read = |_: &str| self.trace.clone().ok_or_else(|| "no files".to_owned());
        let text = head + &self.text;
        if options.print {
            println!("# {}\n{text}", self.name);
        }
        Ok(Scenario::parse(&self.name, &text, &sets, &read)?)
    }
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted.get((share * sorted.len() as f64) as usize).or(sorted.last()).copied().unwrap_or(f64::NAN)
}

fn print_summary(of: &str, mut ratios: Vec<f64>) {
    ratios.sort_by(f64::total_cmp);
    let at = |share| quantile(&ratios, share);
    println!(
        "# {of}, {} regimes: least {:.3}, 1 % {:.3}, 5 % {:.3}, 25 % {:.3}, median {:.3}; {} below 0.98, {} below 0.95",
        ratios.len(),
        at(0.0),
        at(0.01),
        at(0.05),
        at(0.25),
        at(0.5),
        ratios.iter().filter(|&&ratio| ratio < 0.98).count(),
        ratios.iter().filter(|&&ratio| ratio < 0.95).count(),
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let mut regimes = if options.named { named(&options.data)? } else { Vec::new() };
    regimes.extend(random(&options.data, options.random, options.draw)?);
    if let Some(only) = &options.only {
        regimes.retain(|regime| regime.name.contains(only));
    }
    let label = |policy: &str| policy.replace(['"', '\'', ',', '{', '}'], "").trim().to_owned();
    let mut found: BTreeMap<(String, String), f64> = BTreeMap::new();
    for file in &options.known {
        for line in std::fs::read_to_string(file)?.lines().filter(|line| !line.starts_with('#')) {
            if let [name, policy, goodput] = line.split(", ").collect::<Vec<_>>()[..] {
                found.insert((name.to_owned(), policy.to_owned()), goodput.parse()?);
            }
        }
    }
    let (mut scenarios, mut of) = (Vec::new(), Vec::new());
    for regime in &regimes {
        for policy in &options.policies {
            let key = (regime.name.clone(), label(policy));
            if !found.contains_key(&key) {
                scenarios.push(regime.scenario(policy, &options)?);
                of.push(key);
            }
        }
    }
    if options.print {
        return Ok(());
    }
    let printing = Mutex::new(());
    let tell = |progress: Progress<'_>| {
        if let Progress::Found { scenario, goodput_rps } = progress {
            let _one = printing.lock();
            println!("{}, {}, {goodput_rps:.1}", scenario.name, label(&scenario.policy.to_string()));
        }
    };
    let goodputs = Sweep::new(options.threads).goodputs(&scenarios, &tell)?;
    found.extend(of.into_iter().zip(goodputs.into_iter().map(|goodput| goodput.rate_rps)));

    let [judged, rivals @ ..] = &options.policies[..] else { return Ok(()) };
    let mut by_group: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    println!("# regime: {judged}, then {}; ratio", rivals.join(", "));
    for regime in &regimes {
        let of = |policy: &String| found[&(regime.name.clone(), label(policy))];
        let theirs: Vec<f64> = rivals.iter().map(of).collect();
        let (ours, best) = (of(judged), theirs.iter().copied().fold(0.0, f64::max));
        let ratio = if ours.max(best) < TRICKLE_RPS { 1.0 } else { ours / best.max(TRICKLE_RPS) };
        let theirs: Vec<String> = theirs.iter().map(|goodput| format!("{goodput:.0}")).collect();
        println!("# {}: {ours:.0}; {}; {ratio:.3}", regime.name, theirs.join(" "));
        by_group.entry(regime.group).or_default().push(ratio);
    }
    for (group, ratios) in &by_group {
        print_summary(group, ratios.clone());
    }
    print_summary("all", by_group.into_values().flatten().collect());
    Ok(())
}
