//! Scenarios that make no sense.

use symphony_testkit::Workspace;
use symphony_tests::{phase, run};

const FINE: &str = "name = \"fine\"\npolicy = \"symphony\"\nduration_s = 1\nwarmup_s = 0\nseeds = [1]\n\
    [[gpu]]\nkind = \"g\"\ncount = 1\n[[model]]\nname = \"m\"\nalpha_ms = 1.0\nbeta_ms = 5.0\nslo_ms = 25.0\n\
    [workload]\nrate_rps = 50.0\narrival = \"poisson\"\n";

#[test]
fn scenarios_that_make_no_sense_are_refused_with_file_key_and_expectation() {
    let workspace = Workspace::new("bad-scenarios").unwrap();
    workspace.write("fine.toml", FINE).unwrap();
    let _ = run(workspace.path(), &[], &["sim", "fine.toml"]).unwrap().ended_with(0);

    // (file, text, words)
    let refusals: [(&str, String, &[&str]); 7] = [
        ("unknown-key.toml", FINE.replace("slo_ms", "slo"), &["unknown-key.toml", "slo", "slo_ms"]),
        ("unknown-section.toml", format!("{FINE}[wat]\nx = 1\n"), &["unknown-section.toml", "wat"]),
        ("no-rate.toml", FINE.replace("rate_rps = 50.0\n", ""), &["no-rate.toml", "rate_rps"]),
        (
            "negative.toml",
            FINE.replace("slo_ms = 25.0", "slo_ms = -1.0"),
            &["negative.toml", "slo_ms", "expected", "-1"],
        ),
        (
            "falls.toml",
            FINE.replace("alpha_ms = 1.0\nbeta_ms = 5.0", "profile_csv = \"falls.csv\""),
            &["falls.csv", "monotone"],
        ),
        (
            "no-csv.toml",
            FINE.replace("alpha_ms = 1.0\nbeta_ms = 5.0", "profile_csv = \"gone.csv\""),
            &["no-csv.toml", "profile_csv", "gone.csv"],
        ),
        (
            "no-family.toml",
            FINE.replace("symphony", "nexus").replace(
                "slo_ms = 25.0\n",
                "slo_ms = 25.0\nvariants = { count = 2, suffix_alpha_ms = 0.1, suffix_beta_ms = 0.1 }\n",
            ),
            &["no-family.toml", "model.0.variants", "auto, symphony", "shared = false"],
        ),
    ];
    workspace.write("trace.csv", "time_s\n0.1\n0.2\n0.3\n").unwrap();
    workspace.write("falls.csv", "gpu_kind,batch,latency_ms\ng,1,9.0\ng,2,3.0\n").unwrap();
    for (file, text, words) in refusals {
        phase(file);
        workspace.write(file, &text).unwrap();
        let _ = run(workspace.path(), &[], &["sim", file]).unwrap().ended_with(2).complains(words);
    }
    phase("a trace that is over before anything is too much has no goodput");
    let rate = "rate_rps = 50.0\narrival = \"poisson\"";
    workspace.write("trace.toml", &FINE.replace(rate, "arrival = { trace_csv = \"trace.csv\" }")).unwrap();
    let overrides = ["--set", "warmup_s=0.2", "--set", "workload.arrival.time_scale=1", "--set", "seeds=[4]"];
    let search =
        run(workspace.path(), &[], &[&["sim", "trace.toml", "--find-goodput"], &overrides[..]].concat()).unwrap();
    let search = search.ended_with(1).complains(&[
        "no goodput",
        "s, and the warm-up 0.2 s",
        "to repeat: symphony sim trace.toml",
    ]);
    for once in ["seeds=", "workload.arrival.time_scale="] {
        assert_eq!(search.err.matches(once).count(), 1, "{once} in: {}", search.err);
    }
    phase("a trace that is over before the warm-up shows nothing");
    for rest in [&["--set", "warmup_s=0.5"][..], &["--find-goodput", "--set", "warmup_s=0.5"]] {
        let over = run(workspace.path(), &[], &[&["sim", "trace.toml"], rest].concat()).unwrap();
        let words = ["--set warmup_s=0.5: the trace lasts 0.3 s, and the warm-up 0.5 s: nothing would be measured"];
        let _ = over.ended_with(2).complains(&words);
    }
    phase("overrides and policies");
    let sim = |rest: &[&str]| {
        let args: Vec<_> = ["sim", "fine.toml"].iter().chain(rest).copied().collect();
        run(workspace.path(), &[], &args).unwrap()
    };
    let _ = sim(&["--set", "workload.rate=5"]).ended_with(2).complains(&["--set", "workload.rate"]);
    let _ = sim(&["--set", "exection.noise={}"])
        .ended_with(2)
        .complains(&["--set exection.noise={}: unknown field `exection`"]);
    let _ = sim(&["--set", "workload.rate_rps"]).ended_with(2).complains(&["--set", "workload.rate_rps"]);
    let many = sim(&["--set", "workload.rate_rps=many"]).ended_with(2);
    let _ = many.complains(&["--set workload.rate_rps=many: invalid type: string \"many\", expected a number"]);
    let negative = sim(&["--set", "warmup_s=0", "--set", "workload.rate_rps=-1"]).ended_with(2);
    let _ = negative.complains(&["--set workload.rate_rps=-1: key `workload.rate_rps`: expected a number above 0"]);
    let magic = sim(&["--policy", "magic"]).ended_with(2);
    let _ = magic.complains(&[
        "symphony: --policy magic: key `policy`: expected one of \"symphony\", \"auto\"",
        "got \"magic\"",
    ]);
    let typo = sim(&["--policy", "{ name = 'auto', dorp = 'prune' }"]).ended_with(2);
    let _ = typo.complains(&["--policy { name", "key `policy.dorp`: expected only trigger, drop, ready_order"]);
    let typo = sim(&["--set", "policy.windw=0.5"]).ended_with(2);
    let _ = typo.complains(&["--set policy.windw=0.5: key `policy.windw`: expected only trigger, drop, ready_order"]);
    phase("what cannot be done, and what the simulator cannot hold");
    let words = ["model `m`", "expected an SLO of at least 6 ms, got 5 ms", "ℓ(1) = 6 ms", "reply_us) take 0 ms"];
    let _ =
        sim(&["--set", "model.0.slo_ms=5"]).ended_with(2).complains(&words).complains(&["--set model.0.slo_ms=5: "]);
    workspace.write("hopeless.toml", &FINE.replace("slo_ms = 25.0", "slo_ms = 5.0")).unwrap();
    let hopeless = run(workspace.path(), &[], &["sim", "hopeless.toml", "--find-goodput"]).unwrap();
    let _ = hopeless.ended_with(2).complains(&words).complains(&["hopeless.toml: model"]);
    for search in [&[][..], &["--find-goodput"]] {
        let _ = sim(&[&["--set", "workload.rate_rps=1e9"], search].concat()).ended_with(2).complains(&[
            "--set workload.rate_rps=1e9: ",
            "expected at most 671088640",
            "16777216 (OPEN_SPAN_MAX)",
            "25 ms",
        ]);
    }
    let gone = run(workspace.path(), &[], &["sim", "gone.toml"]).unwrap();
    let _ = gone.ended_with(2).complains(&["gone.toml", "No such file"]);
}
