//! One thread or many: the same answers, those of the simulator itself.

use std::sync::atomic::{AtomicU64, Ordering};

use symphony_simulator::{find_goodput, simulate};
use symphony_sweep::{Progress, Run, Sweep};
use symphony_workload::Scenario;

fn scenario(name: &str, gpus: u32, slo_ms: f64) -> Scenario {
    let text = format!(
        "name = \"{name}\"\nduration_s = 2\nwarmup_s = 0.5\nseeds = [1, 2, 3]\n\
         [[gpu]]\nkind = \"any\"\ncount = {gpus}\n\
         [[model]]\nname = \"m\"\nalpha_ms = 1.0\nbeta_ms = 5.0\nslo_ms = {slo_ms}\n\
         [workload]\nrate_rps = 100.0\narrival = \"poisson\"\n"
    );
    Scenario::parse(name, &text, &[], &|_| Err("no files here".to_owned())).unwrap()
}

#[test]
fn goodputs_and_runs_do_not_depend_on_threads() {
    let scenarios: Vec<_> = (1..5).map(|n| scenario(&format!("s{n}"), n, 20.0 + 5.0 * f64::from(n))).collect();
    let alone: Vec<_> = scenarios.iter().map(|scenario| find_goodput(scenario).unwrap()).collect();
    let with_lower_rates = |threads| Sweep::new(Some(threads)).goodputs_and_lower_rates(&scenarios, &|_| {}).unwrap();
    let one_thread = with_lower_rates(1);
    assert_eq!(one_thread.iter().map(|goodput| goodput.rate_rps).collect::<Vec<_>>(), alone);
    assert_eq!(with_lower_rates(4), one_thread);
    for threads in [1, 4, 9] {
        let found = AtomicU64::new(0);
        let tell = |progress: Progress<'_>| {
            if matches!(progress, Progress::Found { .. }) {
                found.fetch_add(1, Ordering::Relaxed);
            }
        };
        let sweep = Sweep::new(Some(threads));
        assert_eq!(sweep.goodputs(&scenarios, &tell).unwrap(), alone, "{threads} threads");
        assert_eq!(found.load(Ordering::Relaxed), 4);

        let runs: Vec<_> = scenarios.iter().map(|scenario| Run { scenario, seed: 7, rate_rps: 500.0 }).collect();
        let expected: Vec<_> = scenarios.iter().map(|scenario| simulate(scenario, 7, 500.0).unwrap()).collect();
        assert_eq!(sweep.runs(&runs, &tell).unwrap(), expected, "{threads} threads");
    }
}

#[test]
fn nothing_to_do_and_what_cannot_be_served_end_at_once() {
    let sweep = Sweep::new(Some(0));
    assert!(sweep.goodputs(&[], &|_| {}).unwrap().is_empty());
    assert!(sweep.runs(&[], &|_| {}).unwrap().is_empty());
    // ℓ(1) = 6 ms is more than the SLO.
    assert_eq!(sweep.goodputs(&[scenario("hopeless", 1, 5.5)], &|_| {}).unwrap(), [0.0]);
    assert_eq!(sweep.map(&[1, 2, 3], |n| n * n), [1, 4, 9]);
}
