//! Arrival processes have the rate and the spread they promise, and a seed means one trace at every rate.

use symphony_types::Time;
use symphony_workload::{Scenario, arrival_streams};

const ARRIVALS: usize = 200_000;

fn scenario(arrival: &str) -> Scenario {
    let text = format!(
        "name = 'a'\ngpu = [{{ kind = 'x', count = 1 }}]\n\
         model = [{{ name = 'm', count = 2, alpha_ms = 1, beta_ms = 5, slo_ms = 25 }}]\n\
         workload = {{ rate_rps = 1000, arrival = {arrival} }}"
    );
    Scenario::parse("a.toml", &text, &[], &|_| Err("no files".to_owned())).unwrap()
}

fn times(arrival: &str, seed: u64, rate_rps: f64, model: usize) -> Vec<Time> {
    let mut streams = arrival_streams(&scenario(arrival), seed, rate_rps);
    (0..ARRIVALS).map(|_| streams[model].next_arrival().unwrap()).collect()
}

/// Mean and squared coefficient of variation of the gaps.
fn gaps(times: &[Time]) -> (f64, f64) {
    let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64()).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    (mean, variance / mean.powi(2))
}

#[test]
fn mean_and_spread_of_gaps_are_those_of_the_process() {
    // Two models share 1000 r/s, so the mean gap is 2 ms; a gamma of shape k has a squared variation of 1/k.
    for (arrival, spread, tolerance) in [
        ("'poisson'", 1.0, 0.03),
        ("'uniform'", 0.0, 1e-6),
        ("{ gamma = 0.5 }", 2.0, 0.1),
        ("{ gamma = 0.05 }", 20.0, 2.0),
    ] {
        let times = times(arrival, 1, 1000.0, 0);
        assert!(times.is_sorted());
        let (mean, found) = gaps(&times);
        assert!((mean / 0.002 - 1.0).abs() < 0.03, "{arrival}: mean gap {mean}");
        assert!((found - spread).abs() < tolerance, "{arrival}: squared variation {found}, expected {spread}");
    }
}

#[test]
fn a_seed_is_one_trace_and_rates_only_stretch_it() {
    let slow = times("'poisson'", 3, 1000.0, 1);
    let fast = times("'poisson'", 3, 4000.0, 1);
    for (a, b) in slow.iter().zip(&fast) {
        assert!(a.as_nanos().abs_diff(4 * b.as_nanos()) <= 4, "{a:?} is not four times {b:?}");
    }
    assert_eq!(slow, times("'poisson'", 3, 1000.0, 1));
}

#[test]
fn seeds_and_models_are_different_streams() {
    let base = times("'poisson'", 1, 1000.0, 0);
    assert_ne!(base, times("'poisson'", 2, 1000.0, 0));
    assert_ne!(base, times("'poisson'", 1, 1000.0, 1));
    // Neighbours in (seed, model) must not share a stream either.
    assert_ne!(times("'poisson'", 1, 1000.0, 1), times("'poisson'", 2, 1000.0, 0));
    // Uniform streams of equal models are out of phase.
    assert_ne!(times("'uniform'", 1, 1000.0, 0), times("'uniform'", 1, 1000.0, 1));
}
