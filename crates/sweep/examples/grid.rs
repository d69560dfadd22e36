//! A policy against others over cases drawn from the grid of seed 000, Table 3, with the profiles of its Table 5:
//! `cargo run --release -p symphony-sweep --example grid -- CASES SEED THREADS PROFILES.csv POLICY [RIVAL …]`
//!
//! A policy is TOML as in a scenario. One line of CSV for each case and policy as it is found, and at the end how the first
//! policy compares with the best of the others.

use std::error::Error;
use std::sync::Mutex;

use rand::SeedableRng as _;
use rand::seq::IndexedRandom as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_sweep::Sweep;
use symphony_workload::Scenario;

const SHAPES: [f64; 6] = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0];
const MODELS: [&str; 6] = ["DenseNet121", "InceptionV3", "ResNet50V2", "VGG16", "Xception", "BERT"];
const COUNTS: [u32; 6] = [8, 16, 24, 32, 48, 64];
const GPUS_PER_MODEL: [f64; 7] = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0];
const SLOS_MS: [f64; 5] = [20.0, 25.0, 30.0, 40.0, 50.0];

/// A goodput below this, in requests per second, is a trickle: ratios of two such say nothing.
const TRICKLE_RPS: f64 = 1.0;

/// One case of the grid.
#[derive(Clone, Copy, Debug)]
struct Case {
    model: &'static str,
    count: u32,
    gpus: u32,
    slo_ms: f64,
    shape: f64,
}

impl Case {
    /// Another one, each value as likely as any other.
    fn draw(random: &mut Xoshiro256PlusPlus) -> Option<Self> {
        let count = *COUNTS.choose(random)?;
        let gpus = (GPUS_PER_MODEL.choose(random)? * f64::from(count)).round() as u32;
        let (slo_ms, shape) = (*SLOS_MS.choose(random)?, *SHAPES.choose(random)?);
        Some(Self { model: MODELS.choose(random)?, count, gpus, slo_ms, shape })
    }

    /// As a scenario; `line` is the α and the β of the model in milliseconds.
    fn scenario(&self, line: (f64, f64), policy: &str) -> Result<Scenario, Box<dyn Error>> {
        let Self { model, count, gpus, slo_ms, shape } = self;
        let (alpha_ms, beta_ms) = line;
        let text = format!(
            "name = \"{model}, {count}, {gpus}, {slo_ms}, {shape}\"\npolicy = {policy}\nduration_s = 10\nwarmup_s = 2\nseeds = [1]\n\
             [[gpu]]\nkind = \"emulated\"\ncount = {gpus}\n\
             [[model]]\nname = \"m\"\ncount = {count}\nalpha_ms = {alpha_ms:?}\nbeta_ms = {beta_ms:?}\nslo_ms = {slo_ms:?}\n\
             [workload]\nrate_rps = 1000.0\narrival = {{ gamma = {shape:?} }}\npopularity = \"uniform\"\n"
        );
        Ok(Scenario::parse("grid", &text, &[], &|_| Err("no files".to_owned()))?)
    }
}

/// The α and the β of a model in a file with columns `name,alpha_ms,beta_ms,…`.
fn line_of(profiles: &str, model: &str) -> Result<(f64, f64), Box<dyn Error>> {
    let row = profiles.lines().map(|row| row.split(',').collect::<Vec<_>>()).find(|row| row[0] == model);
    match row.as_deref() {
        Some([_, alpha_ms, beta_ms, ..]) => Ok((alpha_ms.parse()?, beta_ms.parse()?)),
        _ => Err(format!("no row of {model} with alpha_ms and beta_ms").into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cases, seed, threads, profiles, policies @ ..] = &arguments[..] else {
        return Err("expected CASES SEED THREADS PROFILES.csv POLICY [RIVAL …]".into());
    };
    if policies.is_empty() {
        return Err("expected a policy, as TOML".into());
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.parse()?);
    let profiles = std::fs::read_to_string(profiles)?;
    let mut ratios = Vec::new();
    println!("model, models, gpus, slo_ms, shape, policy, goodput_rps");
    let cases = (0..cases.parse::<usize>()?).filter_map(|_| Case::draw(&mut random)).collect::<Vec<_>>();
    let scenarios = cases
        .iter()
        .flat_map(|case| policies.iter().map(|policy| case.scenario(line_of(&profiles, case.model)?, policy)))
        .collect::<Result<Vec<_>, _>>()?;
    let printing = Mutex::new(());
    let tell = |progress: symphony_sweep::Progress<'_>| {
        if let symphony_sweep::Progress::Found { scenario, goodput_rps } = progress {
            let _one = printing.lock();
            println!("{}, {}, {goodput_rps:.1}", scenario.name, scenario.policy);
        }
    };
    let goodputs = Sweep::new(Some(threads.parse()?)).goodputs(&scenarios, &tell)?;
    for found in goodputs.chunks(policies.len()) {
        let best = found[1..].iter().copied().fold(0.0, f64::max);
        ratios.push(if best.max(found[0]) < TRICKLE_RPS { 1.0 } else { found[0] / best.max(TRICKLE_RPS) });
    }
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios.get((share * ratios.len() as f64) as usize).copied().unwrap_or(f64::NAN);
    let below = ratios.iter().filter(|&&ratio| ratio < 0.98).count();
    println!(
        "# {} over the best of the others, {} cases: least {:.3}, 1 % {:.3}, 5 % {:.3}, 25 % {:.3}, median {:.3}; {below} below 0.98",
        policies[0],
        ratios.len(),
        at(0.0),
        at(0.01),
        at(0.05),
        at(0.25),
        at(0.5),
    );
    Ok(())
}
