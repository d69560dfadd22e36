//! How fast a scenario is simulated on one core, and what comes out: `cargo run --release -p symphony-simulator
//! --example speed -- deploy/scenarios/table4-resnet50.toml [key=value …] [--find-goodput]`

use std::time::Instant;

use symphony_simulator::{find_goodput, simulate};
use symphony_workload::Scenario;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let find = arguments.iter().any(|argument| argument == "--find-goodput");
    arguments.retain(|argument| argument != "--find-goodput");
    let Some((file, overrides)) = arguments.split_first() else { return Err("expected a scenario file".into()) };
    let read = |name: &str| std::fs::read_to_string(name).map_err(|error| error.to_string());
    let scenario = Scenario::parse(file, &read(file)?, overrides, &read)?;
    if find {
        let started = Instant::now();
        println!("goodput {:.0} r/s, found in {:.2} s", find_goodput(&scenario)?, started.elapsed().as_secs_f64());
    }
    for &seed in &scenario.seeds {
        let started = Instant::now();
        let run = simulate(&scenario, seed, scenario.rate_rps)?;
        let real_s = started.elapsed().as_secs_f64();
        println!(
            "seed {seed}: {:.2} M requests/s ({} in {real_s:.3} s), good {:.1} of {:.1} r/s, bad {:.4}, idle {:.3}, GPUs used {}",
            run.simulated_requests as f64 / real_s / 1e6,
            run.simulated_requests,
            run.good_rps,
            run.offered_rps,
            run.bad_rate,
            run.idle_fraction,
            run.gpus_used,
        );
    }
    Ok(())
}
