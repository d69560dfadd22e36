//! Compares a policy with others over regimes for which none was tuned, and over those of the papers:
//! `cargo run --release -p symphony-sweep --example regimes -- --data DATA --random 60 --draw 7 POLICY [RIVAL …]`
//!
//! A regime is a scenario: models and their popularity, SLOs, GPUs, arrivals, delays, noise. `--data` is the folder
//! with the profiles of the Symphony paper (Tables 5 and 6) and recorded arrivals. Prints a line of JSON for each
//! search as it ends; finally it compares the first policy with the best of the others, group by group.
//!
//! With `--out FILE` those lines are kept, and searches whose lines the file has are not made again: a run may be ended
//! at any time and goes on when it is started again, and several runs with parts of the regimes (`--only`, `--noise`)
//! may follow each other. A file is of one build: policies that decide differently need another.

mod grid_cases;
mod named;
mod random;
mod regime;
mod results;
mod summary;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use clap::Parser;
use symphony_sweep::{Progress, Sweep};

use regime::Regime;
use results::{Question, Results};

#[derive(Parser)]
struct Options {
    /// The folder with `symphony_table5_1080ti.csv`, `symphony_table6_a100.csv` and recorded arrivals.
    #[arg(long)]
    data: PathBuf,
    /// The regimes of docs/adr/0008.
    #[arg(long)]
    named: bool,
    /// This many cases of the grid of the Symphony paper, Table 3.
    #[arg(long, default_value_t = 0)]
    grid: usize,
    /// This many drawn at random.
    #[arg(long, default_value_t = 0)]
    random: usize,
    /// Seed of the draws.
    #[arg(long, default_value_t = 1)]
    draw: u64,
    /// Only regimes whose name contains this, or one of several.
    #[arg(long)]
    only: Vec<String>,
    /// Only so many of them: the first ones are a fair sample of the grid.
    #[arg(long)]
    first: Option<usize>,
    /// The spread of execution times (lognormal sigma) in every regime, instead of its own; several one after another.
    #[arg(long)]
    noise: Vec<f64>,
    /// Leave out this rule of `auto` (`load`, `short_waits`, `gaps`, `spacing`, `overrun`, `budget`) in the policy that
    /// is judged.
    #[arg(long)]
    without: Option<String>,
    /// Simulated seconds of each run.
    #[arg(long, default_value_t = 10.0)]
    duration_s: f64,
    /// Seeds of each search, from 1.
    #[arg(long, default_value_t = 2)]
    seeds: u64,
    /// Keeps results in this file, and skips the searches whose results it has.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Searches nothing: compares where `--out` has the results of all policies.
    #[arg(long, requires = "out", conflicts_with = "print")]
    known: bool,
    #[arg(long)]
    threads: Option<usize>,
    /// Print the scenarios instead of running them.
    #[arg(long)]
    print: bool,
    /// The policy that is judged, and its rivals: TOML as in a scenario.
    policies: Vec<String>,
}

impl Options {
    fn regimes(&self) -> Result<Vec<Regime>, Box<dyn Error>> {
        let mut regimes = if self.named { named::named(&self.data)? } else { Vec::new() };
        if self.grid > 0 {
            regimes.extend(named::grid(&self.data, self.grid, self.draw)?);
        }
        if self.random > 0 {
            regimes.extend(random::random(&self.data, self.random, self.draw)?);
        }
        if !self.only.is_empty() {
            regimes.retain(|regime| self.only.iter().any(|part| regime.name.contains(part)));
        }
        regimes.truncate(self.first.unwrap_or(usize::MAX));
        Ok(regimes)
    }

    /// Every spread of execution times to run with; none is each regime's own.
    fn noises(&self) -> Vec<Option<f64>> {
        if self.noise.is_empty() { vec![None] } else { self.noise.iter().copied().map(Some).collect() }
    }

    fn question(&self, regime: &Regime, noise: Option<f64>, policy: &str) -> Question {
        let is_judged = self.policies.first().is_some_and(|first| first == policy);
        Question {
            regime: regime.name.clone(),
            noise,
            policy: policy.to_owned(),
            without: self.without.clone().filter(|_| is_judged),
            duration_s: self.duration_s,
            seeds: self.seeds,
        }
    }
}

/// What a scenario has besides its regime, and its overrides.
fn head_and_sets(question: &Question) -> (String, Vec<String>) {
    let seeds: Vec<u64> = (1..=question.seeds).collect();
    let head = format!(
        "policy = {}\nduration_s = {:?}\nwarmup_s = 2\nseeds = {seeds:?}\n",
        question.policy, question.duration_s
    );
    let noise = question.noise.iter().map(|sigma| format!("execution.noise={{ lognormal_sigma = {sigma:?} }}"));
    let without = question.without.iter().map(|rule| format!("without=[{rule:?}]"));
    (head, noise.chain(without).collect())
}

/// Makes the searches whose results are not known yet.
fn search(options: &Options, regimes: &[Regime], results: Results) -> Result<Results, Box<dyn Error>> {
    let (mut scenarios, mut questions) = (Vec::new(), Vec::new());
    for noise in options.noises() {
        // A draw may have a case twice.
        let mut seen = BTreeSet::new();
        for regime in regimes.iter().filter(|regime| seen.insert(&regime.name)) {
            for policy in &options.policies {
                let question = options.question(regime, noise, policy);
                let (head, sets) = head_and_sets(&question);
                if options.print {
                    println!("# {}{}\n{head}{}", regime.name, of_noise(noise), regime.text);
                } else if results.of(&question)?.is_none() {
                    scenarios.push(regime.scenario(&head, &sets)?);
                    questions.push(question);
                }
            }
        }
    }
    if options.print {
        return Ok(results);
    }
    eprintln!("{} searches", scenarios.len());
    let results = Mutex::new(results);
    let tell = |progress: Progress<'_>| {
        let Progress::Found { scenario, goodput_rps } = progress else { return };
        let index = scenarios.iter().position(|other| std::ptr::eq(other, scenario));
        let Some(question) = index.and_then(|index| questions.get(index)) else { return };
        match results.lock().unwrap_or_else(PoisonError::into_inner).record(question, goodput_rps) {
            Ok(line) => println!("{line}"),
            Err(error) => eprintln!("a result is not kept: {error}"),
        }
    };
    Sweep::new(options.threads).goodputs(&scenarios, &tell)?;
    Ok(results.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn of_noise(noise: Option<f64>) -> String {
    noise.map_or_else(String::new, |sigma| format!(", noise {} %", 100.0 * sigma))
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let regimes = options.regimes()?;
    let mut results = Results::open(options.out.as_deref())?;
    if !options.known {
        results = search(&options, &regimes, results)?;
    }
    let [judged, rivals @ ..] = &options.policies[..] else { return Ok(()) };
    if options.print || rivals.is_empty() {
        return Ok(());
    }
    let mut groups: Vec<(String, Vec<f64>)> = Vec::new();
    println!("# regime: {judged}, then {}; ratio", rivals.join(", "));
    for noise in options.noises() {
        let mut by_group: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for regime in &regimes {
            let of = |policy: &String| results.of(&options.question(regime, noise, policy));
            let theirs: Option<Vec<f64>> = rivals.iter().map(of).collect::<Result<_, _>>()?;
            let (Some(ours), Some(theirs)) = (of(judged)?, theirs) else { continue };
            let ratio = summary::ratio(ours, &theirs);
            let theirs: Vec<String> = theirs.iter().map(|goodput| format!("{goodput:.0}")).collect();
            println!("# {}{}: {ours:.0}; {}; {ratio:.3}", regime.name, of_noise(noise), theirs.join(" "));
            by_group.entry(regime.group).or_default().push(ratio);
        }
        groups.extend(by_group.into_iter().map(|(group, ratios)| (format!("{group}{}", of_noise(noise)), ratios)));
    }
    println!("{}", summary::HEAD);
    for (group, ratios) in &groups {
        println!("{}", summary::row(group, ratios.clone()));
    }
    if groups.len() > 1 {
        println!("{}", summary::row("all", groups.into_iter().flat_map(|(_, ratios)| ratios).collect()));
    }
    Ok(())
}
