//! The scheduler-only stress on a machine that has other things to do: everything but its speed.

use std::process::Command;
use std::time::Duration;

use symphony_benches::stress::{StressPlan, run};
use symphony_scheduler::Delays;
use symphony_types::Nanos;

/// A load that any machine can carry, with deadlines that no pause comes near.
fn gentle(model_threads: u32) -> StressPlan {
    let delay = Nanos::from_millis(100);
    StressPlan {
        models: 5,
        gpus: 4,
        model_threads,
        rate_rps: 2000.0,
        duration: Duration::from_millis(500),
        warmup: Duration::from_millis(100),
        alpha_ms: 0.1,
        beta_ms: 1.0,
        batch_max: 64,
        slo: Nanos::from_millis(1_000),
        delays: Delays { control: delay, guard: delay, ..Delays::default() },
        frame: Nanos::from_micros(50),
        lag_max: Nanos::from_millis(20_000),
        bad_max: 1.0,
        hang: false,
        no_recorder: false,
        spin: false,
        first_core: None,
        seed: 1,
    }
}

#[test]
fn requests_become_plans_on_one_thread_and_on_several() {
    for model_threads in [0, 1, 3] {
        let report = run(&gentle(model_threads)).unwrap();
        println!("{report}");
        assert!(report.sent > 0, "nothing was sent");
        assert!(
            report.mean_batch >= 1.0 && report.grants_per_s > 0.0 && report.offers_per_s > 0.0,
            "nothing was planned"
        );
        assert_eq!((report.violations, report.out_of_sequence), (0, 0));
        // Deadlines that no pause comes near: a scheduler that drops or forgets its requests is no success.
        assert!(report.bad_rate < 0.5 && report.met > 0, "{report}");
        assert_eq!(report.lagged, None);
    }
}

#[test]
fn a_scheduler_that_cannot_keep_up_fails_the_run() {
    // No request is taken in within a nanosecond.
    let report = run(&StressPlan { lag_max: Nanos::new(1), ..gentle(1) }).unwrap();
    assert!(!report.passed());
    assert!(report.lagged.is_some(), "{report}");
}

#[test]
fn the_program_says_by_its_exit_code_whether_it_lagged_or_was_asked_for_nonsense() {
    let stress = |arguments: &[&str]| {
        let program = env!("CARGO_BIN_EXE_scheduler-stress");
        let output = Command::new(program).args(["--park", "--rate", "1000"]).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), text)
    };
    let (code, text) = stress(&["--seconds", "0.2", "--lag-ms", "0.000001", "-o", "json"]);
    assert_eq!(code, Some(1), "{text}");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(report["lagged"].is_string() && report["sent"].is_u64(), "{text}");
    let (code, text) = stress(&["--seconds", "0.05", "--warmup", "0", "--lag-ms", "0.000001", "--tries", "3"]);
    assert_eq!((code, text.matches("once more").count()), (Some(1), 2), "{text}");
    for nonsense in [
        &["--models", "0"][..],
        &["--gpus", "99999"],
        &["--seconds", "-1"],
        &["--seconds", "1e30"],
        &["--warmup", "1e30"],
        &["--slo-ms", "1e30"],
        &["--slo-ms", "8e7", "--seconds", "80000"],
        &["--alpha-ms", "-1"],
    ] {
        let (code, text) = stress(nonsense);
        assert_eq!(code, Some(2), "{text}");
    }
}
