//! Deadlines, items and changing rates: each its own stream, so that nothing but itself changes.

use symphony_types::{Nanos, Time};
use symphony_workload::{Arriving, Scenario, noise_streams, request_streams};

const TEXT: &str = "
    name = 'r'
    gpu = [{ kind = 'x', count = 2 }]
    model = [{ name = 'm', alpha_ms = 1, beta_ms = 5, slo_ms = 25 }]
    workload = { rate_rps = 1000, arrival = 'poisson' }";

fn parse(overrides: &[&str]) -> Result<Scenario, String> {
    let overrides: Vec<String> = overrides.iter().map(|&o| o.to_owned()).collect();
    let trace = |_: &str| Ok("time_s,model,items,slo_ms\n1,m,3,\n2,,,7.5\n3,,,\n".to_owned());
    Scenario::parse("r.toml", TEXT, &overrides, &trace).map_err(|error| error.to_string())
}

fn requests(overrides: &[&str], seconds: u64) -> Vec<Arriving> {
    let scenario = parse(overrides).unwrap();
    let mut streams = request_streams(&scenario, 1, scenario.rate_rps);
    let until = Time::from_nanos(seconds * 1_000_000_000);
    std::iter::from_fn(|| streams[0].next_request()).take_while(|request| request.at < until).collect()
}

fn mean(numbers: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = numbers.fold((0.0, 0), |(sum, count), number| (sum + number, count + 1));
    sum / f64::from(count)
}

#[test]
fn deadlines_and_items_follow_their_laws_and_leave_arrivals_alone() {
    let plain = requests(&[], 60);
    assert!(plain.iter().all(|request| request.slo == Nanos::from_millis(25) && request.items == 1));
    let deadline = "model.0.deadline={ uniform_ms = [10, 30] }";
    let items = "model.0.items=[{ share = 3, items = 1 }, { share = 1, items = 4 }]";
    let mixed = requests(&[deadline, items], 60);
    let times = |requests: &[Arriving]| requests.iter().map(|request| request.at).collect::<Vec<_>>();
    assert_eq!(times(&plain), times(&mixed));
    assert!((mean(mixed.iter().map(|r| r.slo.as_millis_f64())) - 20.0).abs() < 0.1);
    assert!((mean(mixed.iter().map(|r| f64::from(r.items))) - 1.75).abs() < 0.03);
    // Items do not change with the deadlines' law.
    let other = requests(&["model.0.deadline=[{ share = 1, slo_ms = 5 }]", items], 60);
    assert!(mixed.iter().zip(&other).all(|(a, b)| a.items == b.items && b.slo == Nanos::from_millis(5)));
    assert!(requests(&["model.0.items=7"], 1).iter().all(|request| request.items == 7));
}

#[test]
fn the_rate_follows_its_profile_step_by_step() {
    let count = |requests: &[Arriving], from: u64, to: u64| {
        let inside = |request: &&Arriving| (from..to).contains(&(request.at.as_nanos() / 1_000_000_000));
        requests.iter().filter(inside).count() as f64
    };
    let varied = requests(&["workload.rate_profile=[[0, 1.0], [10, 3.0], [20, 0.0], [30, 0.5]]"], 40);
    for (from, expected) in [(0, 10_000.0), (10, 30_000.0), (20, 0.0), (30, 5_000.0)] {
        let found = count(&varied, from, from + 10);
        assert!((found - expected).abs() <= 0.03 * expected, "{found} in the ten seconds from {from}");
    }
}

#[test]
fn a_models_own_profile_multiplies_that_of_the_workload_and_leaves_other_models_alone() {
    let count = |overrides: &[&str], model: usize| {
        let scenario = parse(overrides).unwrap();
        let mut stream = request_streams(&scenario, 1, scenario.rate_rps).swap_remove(model);
        let arrivals =
            std::iter::from_fn(|| stream.next_request()).map(|request| request.at.as_nanos() / 1_000_000_000);
        let seconds: Vec<_> = arrivals.take_while(|&second| second < 20).collect();
        let (early, late): (Vec<u64>, Vec<u64>) = seconds.iter().partition(|&&second| second < 10);
        (early.len() as f64, late.len() as f64)
    };
    let two = "model.0.count=2";
    let of_all = "workload.rate_profile=[[0, 1.0], [10, 2.0]]";
    let plain = count(&[two], 0);
    let (early, late) = count(&[two, "model.0.rate_profile=[[0, 3.0], [10, 0.5]]", of_all], 0);
    assert!((early / plain.0 - 3.0).abs() < 0.1 && (late / plain.1 - 1.0).abs() < 0.1, "{early} and {late}");
    assert_eq!(count(&[two, of_all], 1), count(&[two, "model.0.rate_profile=[[0, 1.0]]", of_all], 1));
}

#[test]
fn an_autoscaler_is_made_of_defaults_and_what_is_said() {
    let scenario = parse(&["autoscale={ provision_s = 4, reserve = 0.1 }", "gpu.0.start=1"]).unwrap();
    let autoscale = scenario.autoscale.unwrap();
    let settings = autoscale.autoscaler.settings();
    assert_eq!((autoscale.start, autoscale.provision), (vec![1], Nanos::from_millis(4_000)));
    assert_eq!((settings.reserve, settings.bad_rate_max), (0.1, 0.005));
    let kind = settings.kinds[0];
    assert_eq!((settings.kinds.len(), kind.min, kind.max, kind.capacity), (1, 1, 2, 1.0));
    assert!(parse(&[]).unwrap().autoscale.is_none());
    // A kind that is half as fast has half the capacity.
    let two = "gpu=[{ kind = 'x', count = 2 }, { kind = 'y', count = 3, min = 1 }]";
    let slow = ["model.0.alpha_ms={ x = 1, y = 2 }", "model.0.beta_ms={ x = 5, y = 10 }", "model.0.batch_max=4"];
    let scenario = parse(&[&["autoscale={}", two], &slow[..]].concat()).unwrap();
    let kinds = scenario.autoscale.unwrap().autoscaler.settings().kinds.clone();
    assert_eq!((kinds[1].min, kinds[1].max, kinds[1].capacity), (1, 3, 0.5));
}

#[test]
fn an_autoscaler_that_cannot_work_is_refused() {
    let refused = |assignments: &[&str], words: &str| {
        let error = parse(assignments).expect_err("the scenario should be refused");
        assert!(error.contains(words), "`{words}` is not in: {error}");
    };
    refused(&["gpu.0.start=1"], "`gpu.0.start`: expected [autoscale] where this is given");
    refused(&["gpu.0.min=1"], "`gpu.0.min`: expected [autoscale]");
    refused(&["autoscale={}", "gpu.0.start=3"], "`gpu.0.start`: expected a number from 0 to 2, got 3");
    refused(&["autoscale={}", "gpu.0.min=3"], "`gpu.0.min`: expected a number from 0 to 2");
    refused(&["autoscale={ provision_s = -1 }"], "`autoscale.provision_s`: expected a number from 0");
    refused(&["autoscale={ period_s = 0 }"], "`autoscale.period_s`: expected a number from 0.001");
    refused(&["autoscale={ reserve = 1.0 }"], "`autoscale.reserve`: expected a share from 0, below 1");
    refused(&["autoscale={ reserve_min = 0.2 }"], "`autoscale.reserve_min`: expected a share from 0 to the reserve");
    refused(&["autoscale={ down_window_s = 1 }"], "`autoscale.down_window_s`: expected at least the window");
    refused(&["autoscale={ up_window_s = 0 }"], "`autoscale.up_window_s`: expected a time above 0");
    refused(&["autoscale={ speed = 1 }"], "unknown field `speed`");
    refused(&["autoscale={}", "policy=clockwork"], "`policy`: expected a policy that GPUs may join and leave");
    refused(&["autoscale={}", "failure=[{ gpu = 0, at_s = 1 }]"], "`failure`: expected no failures together");
}

#[test]
fn a_trace_may_say_items_and_deadlines_row_by_row() {
    let played = requests(&["workload.arrival={ trace_csv = 't' }", "model.0.items=2"], 10);
    let rows: Vec<_> = played.iter().map(|request| (request.items, request.slo.as_millis_f64())).collect();
    assert_eq!(rows, [(3, 25.0), (2, 7.5), (2, 25.0)]);
}

#[test]
fn noise_has_mean_one_and_spikes_come_as_often_as_they_should() {
    let latency = Nanos::from_millis(10);
    let drawn = |overrides: &[&str]| {
        let mut streams = noise_streams(&parse(overrides).unwrap(), 1);
        assert_eq!(streams.len(), 2, "one per GPU");
        (0..100_000).map(|_| streams[0].stretch(latency).as_millis_f64()).collect::<Vec<_>>()
    };
    let noisy = drawn(&["execution.noise={ lognormal_sigma = 0.1 }"]);
    let center = mean(noisy.iter().copied());
    assert!((center - 10.0).abs() < 0.02, "{center}");
    let spread = mean(noisy.iter().map(|ms| (ms / 10.0).ln().powi(2))).sqrt();
    assert!((spread - 0.1).abs() < 0.002, "{spread}");
    let spiky = drawn(&["execution.spike={ probability = 0.01, factor = 4 }"]);
    let hit = spiky.iter().filter(|&&ms| ms == 40.0).count();
    assert!((900..1100).contains(&hit) && spiky.iter().all(|&ms| ms == 10.0 || ms == 40.0), "{hit}");
    assert!(noise_streams(&parse(&[]).unwrap(), 1).is_empty());
}

#[test]
fn mistakes_are_named() {
    let refused = |assignment: &str, words: &str| {
        let error = parse(&[assignment]).expect_err("the scenario should be refused");
        assert!(error.contains(words), "`{words}` is not in: {error}");
    };
    refused("model.0.deadline={ uniform_ms = [30, 10] }", "`model.0.deadline.uniform_ms`: expected [least, most]");
    refused("model.0.deadline={ uniform_ms = [0, 10] }", "a number above 0");
    refused("model.0.deadline=[]", "`model.0.deadline`: expected 1 to 100 entries");
    refused("model.0.deadline=[{ share = 0, slo_ms = 1 }]", "`model.0.deadline.0.share`");
    refused("model.0.deadline=[{ share = 1, slo_ms = nan }]", "`model.0.deadline.0.slo_ms`");
    refused("model.0.deadline=5", "expected { uniform_ms = [least, most] } or a list");
    refused("model.0.items=0", "`model.0.items`: expected 1 to 20 items, the largest batch that may run, got 0");
    refused("model.0.items={ uniform = [1, 21] }", "`model.0.items.uniform`: expected 1 to 20 items");
    refused("model.0.items={ uniform = [4, 1] }", "in this order");
    refused("model.0.items=[{ share = 1, items = 50 }]", "`model.0.items.0.items`");
    refused("model.0.items={ poisson = 3 }", "expected a number, { uniform = [least, most] }");
    refused(
        "execution.noise={ lognormal_sigma = 3 }",
        "`execution.noise.lognormal_sigma`: expected a number from 0 to 2",
    );
    refused("execution.noise={ sigma = 3 }", "unknown field `sigma`");
    refused("execution.spike={ probability = 1.5, factor = 2 }", "`execution.spike.probability`");
    refused(
        "execution.spike={ probability = 0.5, factor = 0.5 }",
        "`execution.spike.factor`: expected a number from 1",
    );
    refused("failure=[{ gpu = 2, at_s = 1 }]", "`failure.0.gpu`: expected a GPU from 0 to 1, got 2");
    refused("failure=[{ gpu = 0, at_s = -1 }]", "`failure.0.at_s`");
    refused("failure=[{ gpu = 0, at_s = 1, for_s = 0 }]", "`failure.0.for_s`");
    refused("failure=[{ gpu = 0, at_s = 1 }, { gpu = 0, at_s = 2 }]", "do not overlap, got another one of GPU 0 at 2");
    refused("workload.rate_profile=[]", "`workload.rate_profile`: expected 1 to 100000 steps");
    refused("workload.rate_profile=[[1, 1.0]]", "`workload.rate_profile.0`: expected a first step at time 0");
    refused("workload.rate_profile=[[0, 1.0], [0, 2.0]]", "`workload.rate_profile.1`: expected a time after");
    refused("workload.rate_profile=[[0, 0.0]]", "at least one factor above 0");
    refused("workload.rate_profile=[[0, -1.0]]", "`workload.rate_profile.0`: expected a number from 0");
    let both = parse(&["workload.arrival={ trace_csv = 't' }", "workload.rate_profile=[[0, 1.0]]"]).unwrap_err();
    assert!(both.contains("no profile with a trace"), "{both}");
    let both = parse(&["workload.arrival={ trace_csv = 't' }", "model.0.rate_profile=[[0, 1.0]]"]).unwrap_err();
    assert!(both.contains("`model.0.rate_profile`: expected no profile with a trace"), "{both}");
    let csv = |text: &'static str| {
        Scenario::parse("r.toml", TEXT, &["workload.arrival={trace_csv='t'}".into()], &|_| Ok(text.into()))
    };
    let error = csv("time_s,items\n1,0\n").unwrap_err().to_string();
    assert!(error.contains("row 1: expected items from 1 to 4096, got 0"), "{error}");
    let error = csv("time_s,slo_ms\n1,2\n1,-2\n").unwrap_err().to_string();
    assert!(error.contains("row 2: expected slo_ms above 0"), "{error}");
}
