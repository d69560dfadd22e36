//! How much memory a large cluster takes. Alone in its program: the peak is that of the whole process.

#![cfg(target_os = "linux")]

use symphony_simulator::simulate;
use symphony_workload::Scenario;

/// What a run of 512 GPUs, 1000 models and a million waiting requests may take.
const PEAK_MB_MAX: u64 = 500;

/// The peak of this process's resident memory.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn a_million_requests_wait_for_512_gpus_in_less_than_half_a_gigabyte() {
    // A batch of 64 takes ten seconds, so 512 GPUs have begun at most 98 304 requests when the last of 1.2 million
    // arrives after 24 seconds: the others wait, until they are dropped or served.
    let text = "
        name = 'large'
        duration_s = 24
        warmup_s = 0
        seeds = [1]
        gpu = [{ kind = 'x', count = 512 }]
        model = [{ name = 'm', count = 1000, alpha_ms = 0, beta_ms = 10000, slo_ms = 60000, batch_max = 64 }]
        workload = { rate_rps = 50000, arrival = 'poisson', rate_profile = [[0, 1], [24, 0]] }";
    let scenario = Scenario::parse("large.toml", text, &[], &|_| Err("no files".to_owned())).unwrap();
    let run = simulate(&scenario, 1, scenario.rate_rps).unwrap();
    let offered: u64 = run.models.iter().map(|model| model.offered).sum();
    assert!(offered > 1_000_000 + 3 * 64 * 512, "{offered} requests arrived");
    let peak = peak_mb();
    println!("{offered} requests, peak {peak} MB");
    assert!(peak < PEAK_MB_MAX, "{peak} MB");
}
