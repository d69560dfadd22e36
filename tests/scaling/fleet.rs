//! Kinds are advised by their prices and the sizes of requests, also a kind of which there is no GPU yet.

use std::time::Duration;

use symphony_protocol::view::View;
use symphony_tests::{LoadReport, Shape, phase, tell};

/// Replicas that it started may drain for a minute.
const STOPPED_WITHIN: Duration = Duration::from_secs(150);
/// Seconds of requests of one to four items.
const UNEQUAL_S: u32 = 8;
/// What may be late of them: threads may have to wait for a core.
const BAD_MOST: f64 = 0.2;

/// Large batches are what the dear kind is good for; requests of one item cost a sixth on the other.
const PROFILE: &str = "format = 1\nmodel = \"m\"\n[[inputs]]\nname = \"INPUT0\"\ndata_type = \"FP32\"\nitem_shape = [16]\n\
     [[outputs]]\nname = \"OUTPUT0\"\ndata_type = \"UINT32\"\nitem_shape = [1]\n\
     [gpu.emulated]\nmachine = \"here\"\nstatic_memory_bytes = 1\ndynamic_memory_bytes = 1\nlatency_ms = [20.0, 22.0, 24.0, 26.0]\n\
     [gpu.small]\nmachine = \"here\"\nstatic_memory_bytes = 1\ndynamic_memory_bytes = 1\nlatency_ms = [30.0, 34.0, 38.0, 42.0]\n";

#[test]
fn a_cheaper_kind_is_advised_before_there_is_one_of_it() {
    let prices = "scheduler.autoscaling.prices=[{ kind = \"emulated\", per_hour = 1.0 }, { kind = \"small\", per_hour = 0.1 }, \
                  { kind = \"unknown\", per_hour = 0.01 }]";
    let shape = Shape::emulated(&["pool"]).with("scheduler.autoscaling.budget_per_hour=4").with(prices);
    tell("fleet", &shape, |cluster| {
        cluster.workspace.write("m.profile.toml", PROFILE).unwrap();
        let load = ["model", "load", "m", "--emulated", "--subcluster", "pool", "--slo-ms", "1000"];
        let _ = cluster.cli(&[&load[..], &["--profile", "m.profile.toml"]].concat()).ended_with(0);
        cluster.wait_until_it_serves("m").unwrap();

        phase("enough requests to know their sizes by");
        let load = cluster.spawn_load_until_ended("load", &["m=100"]).unwrap();
        let advice = cluster.wait_for_view("a fleet", |view| {
            let advice = view.subclusters.values().find_map(|subcluster| subcluster.advice.clone())?;
            advice.fleet.as_ref()?.chosen?;
            Some(advice)
        });
        let advice = advice.unwrap();
        let fleet = advice.fleet.unwrap();
        // By the margin 118 requests a second, of 95 that one of the small kind answers at most.
        let chosen = fleet.chosen.unwrap();
        assert!(chosen.price_per_hour < 1.0 && chosen.bound_rps >= chosen.needed_rps * 0.999, "{chosen:?}");
        assert!((50.0..=150.0).contains(&chosen.rate_rps) && fleet.budget_per_hour == 4.0, "{fleet:?}");
        let kinds: Vec<_> = advice.kinds.iter().map(|kind| (kind.kind.as_str(), kind.price_per_hour)).collect();
        assert_eq!(kinds, [("emulated", Some(1.0)), ("small", Some(0.1))], "the model has no profile for others");
        assert!(advice.kinds[0].target == 2 && advice.kinds[1].target > 0, "what goes waits: {:?}", advice.kinds);

        phase("it is told in words and numbers");
        let shown = cluster.cli(&["get", "subclusters"]).ended_with(0);
        assert!(shown.out.contains("of kind small at 0.1 (0 there, "), "{}", shown.out);
        assert!(shown.out.contains("of 4.00 per hour for "), "{}", shown.out);
        let metrics = ["scheduler-1", "scheduler-2", "scheduler-3"].map(|name| cluster.metrics_of(name).unwrap());
        let price = "symphony_control_gpus_price{subcluster=\"pool\",gpu_kind=\"emulated\"} 2.0";
        assert_eq!(metrics.iter().filter(|text| text.contains(price)).count(), 1, "the Raft leader's");
        cluster.end_load(load).unwrap().check_safety().unwrap();

        phase("as many requests of two items each are another fleet, in one step");
        let frontend = cluster.address("frontend", "grpc");
        let mut args = vec!["load", "--protocol", "grpc", "--frontend", &frontend, "--model", "m=100", "--items", "2"];
        args.extend(["--duration-s", LoadReport::UNTIL_ENDED_S]);
        args.extend(LoadReport::OPTIONS);
        let load = cluster.spawn_cli("larger", &args).unwrap();
        let dearer = cluster.wait_for_view("a fleet for the larger requests", |view| {
            let advice = view.subclusters.values().find_map(|subcluster| subcluster.advice.clone())?;
            let fleet = advice.fleet?.chosen?;
            (fleet.price_per_hour > chosen.price_per_hour).then_some((fleet, advice.kinds[1].target))
        });
        let (dearer, small) = dearer.unwrap();
        assert!((50.0..=150.0).contains(&dearer.rate_rps), "not for more requests: {dearer:?} after {chosen:?}");
        // By the bound for two items a GPU of the small kind answers 48 of them, and 95 of one item.
        assert!(small > advice.kinds[1].target && dearer.bound_rps < 60.0 * f64::from(small), "{small}: {dearer:?}");
        cluster.end_load(load).unwrap().check_safety().unwrap();
    });
}

/// The kinds of the GPUs that are up and take plans, sorted.
fn working(view: &View) -> Vec<String> {
    let working = view.backends.values().filter(|backend| backend.up && backend.duty.takes_work());
    let mut kinds: Vec<_> = working.flat_map(|backend| &backend.gpus).map(|gpu| gpu.kind.clone()).collect();
    kinds.sort_unstable();
    kinds
}

#[test]
fn each_kind_is_provisioned_by_the_advice_for_it_within_one_budget() {
    let prices =
        "scheduler.autoscaling.prices=[{ kind = \"emulated\", per_hour = 1.0 }, { kind = \"small\", per_hour = 0.1 }]";
    let shape = Shape { schedulers: 3, frontends: 1, ..Shape::default() };
    let shape = shape.with("scheduler.autoscaling.budget_per_hour=4").with(prices);
    tell("fleet-provision", &shape, |cluster| {
        phase("one of each kind from the beginning");
        let mut provision = cluster.spawn_fleet("pool", &[("emulated", 1.0), ("small", 0.1)], 1.25).unwrap();
        let both = |view: &View| (working(view) == ["emulated", "small"]).then_some(());
        cluster.wait_for_view("one GPU of each kind", both).unwrap();
        cluster.workspace.write("m.profile.toml", PROFILE).unwrap();
        let load = ["model", "load", "m", "--emulated", "--subcluster", "pool", "--slo-ms", "1000"];
        let _ = cluster.cli(&[&load[..], &["--profile", "m.profile.toml"]].concat()).ended_with(0);
        cluster.wait_until_it_serves("m").unwrap();

        phase("two of the cheap kind are the cheapest fleet that is enough");
        let load = cluster.spawn_load_until_ended("load", &["m=100"]).unwrap();
        let all = |view: &View| (working(view) == ["emulated", "small", "small"]).then_some(());
        cluster.wait_for_view("another GPU of the cheap kind", all).unwrap();
        cluster.end_load(load).unwrap().check_safety().unwrap();

        phase("`kairos` gives requests of unequal sizes to both kinds, each alone, and learns what they take");
        let policy = "{ name = \"kairos\", learn = true }";
        let _ = cluster.cli(&["subcluster", "policy", "pool", policy]).ended_with(0);
        let four = |tenth: u32| (1..=4).map(move |items| format!("{:.1},m,{items},\n", f64::from(tenth) / 10.0));
        let unequal: String = (0..UNEQUAL_S * 10).flat_map(four).collect();
        cluster.workspace.write("unequal.csv", &format!("time_s,model,items,slo_ms\n{unequal}")).unwrap();
        let frontend = cluster.address("frontend", "grpc");
        let mut args = vec!["load", "--protocol", "grpc", "--frontend", &frontend, "--trace", "unequal.csv"];
        args.extend(LoadReport::OPTIONS);
        let load = cluster.spawn_cli("unequal", &args).unwrap();
        let report = cluster.load_report(load, UNEQUAL_S).unwrap();
        report.check_safety().unwrap();
        report.check_bad_rate("m", BAD_MOST).unwrap();
        let told = cluster.cli(&["explain", "--batch", "m", "--last", "100", "-o", "json"]).ended_with(0).json();
        let batches = || told.as_array().unwrap().iter().map(|told| &told["batch"]);
        assert!(batches().all(|batch| batch["requests"] == 1), "it never merges requests: {told}");
        for kind in ["emulated", "small"] {
            assert!(batches().any(|batch| batch["gpu"]["kind"] == kind), "{kind}: {told}");
        }
        assert!(batches().any(|batch| batch["items"] == 4), "{told}");
        cluster.wait_for_a_balanced_ledger().unwrap();

        phase("it ends with those that it started");
        assert!(provision.stop(STOPPED_WITHIN).unwrap().success(), "{}", provision.log_tail());
        let stdout = provision.stdout().unwrap();
        for word in ["start emulated-0", "start small-0", "start small-1"] {
            assert!(stdout.contains(word), "{word}: {stdout}");
        }
        assert!(!stdout.contains("start emulated-1"), "{stdout}");
    });
}
