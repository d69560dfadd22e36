//! The scenario contract: every key is understood, every mistake is named.

use symphony_policy::{
    DropRule, GpuChoice, ModelPolicyName, POLICY_NAMES, ReadyOrder, ShedChoice, SloShare, TriggerChoice,
};
use symphony_types::{GpuClass, GpuId, LatencyProfile, Nanos, Time};
use symphony_workload::{Arrival, PolicySpec, Scenario, ScenarioError, arrival_streams};

const FULL: &str = r#"
name = "full"
policy = { name = "symphony", trigger = { timeout_ms = 5 }, drop = "prune", gpu_choice = "earliest_free", shed = "proportional" }
duration_s = 30
warmup_s = 2
seeds = [1, 2, 3]
[network]
ctrl_us = 100.0
data_us_per_item = 50.0
reply_us = 2000
[[gpu]]
kind = "1080ti"
count = 8
memory_mb = 11264
[[gpu]]
kind = "a100"
count = 2
[[model]]
name = "resnet50"
count = 2
alpha_ms = 1.053
beta_ms = 5.072
slo_ms = 25.0
weight = 1.0
[[model]]
name = "measured"
profile_csv = "measured.csv"
slo_ms = 9.0
weight = 2.0
value = 2.5
[workload]
rate_rps = 5000.0
arrival = { gamma = 0.05 }
popularity = "weights"
"#;

fn csv_files(name: &str) -> Result<String, String> {
    match name {
        "measured.csv" => {
            Ok("gpu_kind,batch,latency_ms\n1080ti,1,4\n1080ti,3,8\n1080ti,4,10\na100,1,5\na100,4,6\n".into())
        }
        "measured.toml" => Ok("[gpu.1080ti]\nlatency_ms = [4, 5]\nstatic_memory_bytes = 104857600\n\
            dynamic_memory_bytes = 52428800\n[gpu.a100]\nlatency_ms = [2, 3]\n"
            .into()),
        "trace.csv" => Ok("time_s,model\n0.5,measured\n0.25,resnet50-1\n1.0,\n".into()),
        _ => Err("no such file".into()),
    }
}

fn parse(text: &str, overrides: &[&str]) -> Result<Scenario, ScenarioError> {
    let overrides: Vec<String> = overrides.iter().map(|&o| o.to_owned()).collect();
    Scenario::parse("s.toml", text, &overrides, &csv_files)
}

#[track_caller]
fn refused(text: &str, overrides: &[&str], words: &str) {
    let error = parse(text, overrides).expect_err("the scenario should be refused").to_string();
    assert!(error.contains(words), "`{words}` is not in: {error}");
}

#[test]
fn every_key_of_the_contract_arrives_where_it_belongs() {
    let scenario = parse(FULL, &[]).unwrap();
    let PolicySpec::Queues(queues) = scenario.policy else { panic!("another policy: {}", scenario.policy) };
    assert_eq!(queues.model.trigger, TriggerChoice::Timeout(Nanos::from_millis(5)));
    assert_eq!((queues.model.drop, queues.research.gpu_choice), (DropRule::Prune, GpuChoice::EarliestFree));
    assert_eq!(queues.model.shed, ShedChoice::Proportional);
    let named = r#"{ name = "symphony", trigger = { timeout_ms = 5 }, drop = "prune", gpu_choice = "earliest_free", shed = "proportional" }"#;
    assert_eq!(scenario.policy.to_string(), named);
    assert_eq!((scenario.duration, scenario.warmup), (Nanos::from_millis(30_000), Nanos::from_millis(2_000)));
    assert_eq!(scenario.seeds, [1, 2, 3]);
    let values: Vec<String> = scenario.models.iter().map(|model| model.value.to_string()).collect();
    assert_eq!(values, ["1", "1", "2.5"]);
    assert_eq!(scenario.network.control, Nanos::from_micros(100));
    assert_eq!(scenario.network.data_per_item, Nanos::from_micros(50));
    assert_eq!(scenario.network.reply, Nanos::from_micros(2_000));
    assert_eq!(scenario.gpu_count(), 10);
    assert_eq!(scenario.gpus[0].memory_mb, Some(11264.0));
    let names: Vec<_> = scenario.models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names, ["resnet50-0", "resnet50-1", "measured"]);
    let shares: Vec<_> = scenario.models.iter().map(|model| model.share).collect();
    assert_eq!(shares, [0.25, 0.25, 0.5]);
    assert_eq!(scenario.arrival, Arrival::Gamma(0.05));
    // The largest batch within 25 ms: 18 × 1.053 + 5.072 = 24.026.
    assert!(scenario.models[0].profiles.iter().all(|profile| profile.batch_max() == 18));
    // Each kind up to its last batch size within 9 ms.
    let table = |profile: &LatencyProfile| profile.table().iter().map(|l| l.as_millis_f64()).collect::<Vec<_>>();
    let measured: Vec<_> = scenario.models[2].profiles.iter().map(table).collect();
    assert_eq!(measured, [vec![4.0, 6.0, 8.0], vec![5.0, 5.333333, 5.666666, 6.0]]);
    let classes: Vec<_> = scenario.gpu_classes().map(GpuClass::index).collect();
    assert_eq!(classes, [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
    assert_eq!(
        [0, 7, 8, 10].map(|gpu| scenario.gpu_kind(GpuId::new(gpu))),
        [Some("1080ti"), Some("1080ti"), Some("a100"), None]
    );
    // The slower kind at each batch size, up to the last one within 9 ms.
    let slowest = parse(FULL, &["profiles=slowest_kind"]).unwrap();
    assert_eq!(slowest, Scenario { overrides: slowest.overrides.clone(), ..scenario.with_slowest_profiles() });
    assert_eq!((slowest.class_count(), table(&slowest.models[2].profiles[0])), (1, vec![5.0, 6.0, 8.0]));
}

#[test]
fn a_line_may_differ_by_gpu_kind_and_kinds_that_do_not_differ_are_one_class() {
    let lines =
        ["model.0.alpha_ms={ 1080ti = 2.0, a100 = 0.5, h100 = 0.1 }", "model.0.beta_ms={ 1080ti = 6, a100 = 5 }"];
    let scenario = parse(FULL, &lines).unwrap();
    let of_two: Vec<_> = scenario.models[1].profiles.iter().map(|profile| profile.latency(2).as_millis_f64()).collect();
    assert_eq!(of_two, [10.0, 6.0]);
    // The largest batch of each kind within the SLO of 25 ms.
    assert_eq!(scenario.models[0].profiles.iter().map(LatencyProfile::batch_max).collect::<Vec<_>>(), [9, 40]);
    assert_eq!(
        parse(FULL, &[lines[0], lines[1], "model.0.alpha_ms.a100=0.25"]).unwrap().models[0].profiles[1].batch_max(),
        80
    );
    let missing = ["model.0.alpha_ms={ 1080ti = 2.0 }", lines[1]];
    refused(
        FULL,
        &missing,
        "`model.0.alpha_ms`: expected a number for the scenario's GPU kind `a100`, got only 1080ti",
    );
    refused(FULL, &["model.0.alpha_ms=quick"], "a number, or one for each GPU kind");
    refused(FULL, &["profiles=fastest"], "expected");

    // Without a line of its own no kind differs, whatever it is called, and that is one class.
    let kind = |number: usize| format!("{{ kind = 'k{number}', count = 1 }}");
    let many = |count: usize| format!("gpu=[{}]", (0..count).map(kind).collect::<Vec<_>>().join(", "));
    let same = parse(FULL, &[&many(20), "model.1={ name = 'same', alpha_ms = 1, beta_ms = 1, slo_ms = 9 }"]).unwrap();
    assert_eq!((same.class_count(), same.gpu_count()), (1, 20));
    let differ = (0..9).map(|number| format!("k{number} = {number}")).collect::<Vec<_>>().join(", ");
    let model = format!("model.1={{ name = 'differs', alpha_ms = {{ {differ} }}, beta_ms = 1, slo_ms = 9 }}");
    refused(FULL, &[&many(9), &model], "at most 8 GPU kinds that differ");
    assert_eq!(parse(FULL, &[&many(8), &model]).unwrap().class_count(), 8);
}

#[test]
fn optional_keys_have_the_documented_defaults() {
    let text = r#"
        name = "short"
        gpu = [{ kind = "x", count = 1 }]
        model = [{ name = "m", alpha_ms = 1, beta_ms = 5, slo_ms = 25 }]
        workload = { rate_rps = 10, arrival = "poisson" }
    "#;
    let scenario = parse(text, &[]).unwrap();
    assert_eq!(scenario.policy.queues().map(|queues| queues.model.name), Some(ModelPolicyName::Auto));
    assert_eq!(scenario.policy.to_string(), "auto");
    assert_eq!(scenario.models[0].name, "m");
    assert_eq!(scenario.network.reply, Nanos::ZERO);
    assert_eq!(scenario.models[0].share, 1.0);
}

#[test]
fn every_policy_has_its_name_its_defaults_and_keys_of_its_own() {
    let policy = |text: &str| parse(FULL, &[&format!("policy={text}")]).unwrap().policy;
    // What a name stands for is not said again.
    for name in POLICY_NAMES {
        assert_eq!(policy(name).to_string(), name);
        assert_eq!(policy(name), policy(&format!("{{ name = '{name}' }}")));
    }
    let queues = |text: &str| *policy(text).queues().unwrap();
    assert_eq!(queues("timeout").model.trigger, TriggerChoice::TimeoutShare(SloShare::QUARTER));
    assert_eq!((queues("timeout").model.drop, queues("clipper").model.drop), (DropRule::Prune, DropRule::Prune));
    assert_eq!(queues("symphony").research.ready_order, ReadyOrder::Latest);
    let ms = Nanos::from_millis;
    assert_eq!(policy("clockwork"), PolicySpec::Clockwork { commit: ms(5), early: ms(5) });
    assert_eq!(policy("nexus"), PolicySpec::Nexus { frontends: 1 });
    assert_eq!(policy("shepherd"), PolicySpec::Shepherd { preempt_factor: 3.0 });
    let examples = [
        "{ name = 'eager', ready_order = 'start' }",
        "{ name = 'auto', drop = { window = 0.5 } }",
        "{ name = 'auto', drop = 'window' }",
        "{ name = 'symphony', trigger = 'beta_lambda' }",
        "{ name = 'timeout', share = 0.5, drop = 'window' }",
        "{ name = 'timeout', trigger = { timeout_ms = 4 } }",
        "{ name = 'clockwork', commit_ms = 10, early_ms = 0 }",
        "{ name = 'nexus', frontends = 8 }",
        "{ name = 'shepherd', preempt_factor = 2.5 }",
        "{ name = 'kairos', learn = true }",
        "{ name = 'drs', threshold = 400 }",
    ];
    for text in examples {
        assert_eq!(policy(text).to_string(), text.replace('\'', "\""));
    }
}

#[test]
fn keys_of_other_policies_and_senseless_values_are_refused() {
    refused(FULL, &["policy={ name = 'nexus', commit_ms = 5 }"], "key `policy.commit_ms`: expected only frontends");
    refused(
        FULL,
        &["policy={ name = 'clockwork', trigger = 'eager' }"],
        "key `policy.trigger`: expected only commit_ms",
    );
    refused(FULL, &["policy={ name = 'symphony', share = 0.5 }"], "key `policy.share`");
    refused(FULL, &["policy={ name = 'timeout', share = 1.5 }"], "a share of the SLO, 0 to 1, got 1.5");
    refused(
        FULL,
        &["policy={ name = 'timeout', share = 0.5, trigger = { timeout_ms = 4 } }"],
        "either share or trigger",
    );
    refused(FULL, &["policy={ name = 'timeout', trigger = 'eager' }"], "{ timeout_ms = x } for policy \"timeout\"");
    refused(FULL, &["policy={ name = 'clipper', trigger = 'frontrun' }"], "\"eager\" for policy \"clipper\"");
    refused(FULL, &["policy={ name = 'eager', ready_order = 'best' }"], "key `policy.ready_order`: expected one of");
    refused(FULL, &["policy={ name = 'nexus', frontends = 0 }"], "key `policy.frontends`: expected 1 to 1024, got 0");
    refused(FULL, &["policy={ name = 'shepherd', preempt_factor = 0.5 }"], "key `policy.preempt_factor`");
    refused(FULL, &["policy={ name = 'clockwork', early_ms = -1 }"], "key `policy.early_ms`: expected milliseconds");
}

#[test]
fn overrides_replace_keys_and_are_kept_for_the_replay_command() {
    let overrides = ["workload.rate_rps=100", "gpu.0.count=16", "model.0.slo_ms=30", "policy=eager", "seeds=[7]"];
    let scenario = parse(FULL, &overrides).unwrap();
    assert_eq!((scenario.rate_rps, scenario.gpus[0].count), (100.0, 16));
    assert_eq!(scenario.models[0].slo, Nanos::from_millis(30));
    assert_eq!(scenario.policy.to_string(), "eager");
    assert_eq!(scenario.seeds, [7]);
    assert_eq!(scenario.overrides, overrides);
    // A policy that is a plain name becomes a table when one of its choices is set.
    let scenario = parse(FULL, &["policy=symphony", "policy.trigger=latest", "policy.drop=prune"]).unwrap();
    assert_eq!(scenario.policy.to_string(), r#"{ name = "symphony", trigger = "latest", drop = "prune" }"#);
}

#[test]
fn mistakes_are_named_by_file_key_and_expectation() {
    refused(FULL, &["workload.rat_rps=3"], "--set workload.rat_rps=3: unknown field `rat_rps`");
    refused(FULL, &["gpu.5.count=3"], "the list has 2 entries");
    refused(FULL, &["exection.noise.lognormal_sigma=1"], "unknown field `exection`, expected one of `name`, `policy`");
    refused(
        FULL,
        &["execution.noise.sigma=1"],
        "unknown field `sigma`, expected `lognormal_sigma` in `execution.noise`",
    );
    refused(FULL, &["policy.drop.windw=1"], "`policy.drop` is a plain value and has no key `windw`");
    let many = "--set workload.rate_rps=many: invalid type: string \"many\", expected a number in `workload.rate_rps`";
    refused(FULL, &["workload.rate_rps=many"], many);
    refused(
        FULL,
        &["gpu.0.count=1.5"],
        "--set gpu.0.count=1.5: invalid type: floating point `1.5`, expected a whole number",
    );
    refused(FULL, &["network=5"], "--set network=5: invalid type: integer `5`, expected a table of keys in `network`");
    refused(FULL, &["seeds=[1,"], "expected a list in `seeds`");
    refused(
        FULL,
        &["workload.rate_rps=-1"],
        "--set workload.rate_rps=-1: key `workload.rate_rps`: expected a number above 0, at most 1000000000, got -1",
    );
    refused(FULL, &["workload.rate_rps=nan"], "`workload.rate_rps`");
    refused(FULL, &["policy=magic"], "key `policy`: expected one of \"symphony\", \"auto\", \"eager\"");
    refused(
        FULL,
        &["policy.trigger=beta"],
        "key `policy.trigger`: expected one of \"eager\", \"frontrun\", \"adaptive\", \"latest\"",
    );
    refused(FULL, &["policy.drop=all"], "key `policy.drop`: expected one of \"window\", { window = share }, \"prune\"");
    refused(FULL, &["policy.gpu_choice=best"], "key `policy.gpu_choice`");
    refused(FULL, &["policy.shed=all"], "key `policy.shed`");
    for value in ["0", "-1", "0.0001", "1001", "inf", "nan"] {
        refused(FULL, &[&format!("model.0.value={value}")], "key `model.0.value`: expected 0.001 to 1000");
    }
    refused(FULL, &["policy.name=eager"], "use name = \"symphony\" to choose one");
    let extra =
        "--set policy.extra=1: key `policy.extra`: expected only trigger, drop, ready_order, gpu_choice and shed";
    refused(FULL, &["policy.extra=1"], extra);
    refused(&FULL.replace("gpu_choice", "gpu"), &[], "s.toml: key `policy.gpu`: expected only trigger, drop");
    refused(FULL, &["policy={ name = 'nexus', frontend = 2 }"], "key `policy.frontend`: expected only frontends");
    refused(FULL, &["policy.gpu_choice=7"], "--set policy.gpu_choice=7: invalid type: integer `7`, expected a string");
    refused(FULL, &["workload.arrival=weekly"], "key `workload.arrival`: expected \"poisson\"");
    refused(FULL, &["workload.arrival={gamma=0}"], "key `workload.arrival.gamma`");
    refused(FULL, &["workload.arrival={gamma=1, extra=2}"], "expected \"poisson\", \"uniform\", { gamma = shape }");
    refused(FULL, &["workload.popularity={zipf=-1}"], "key `workload.popularity.zipf`");
    refused(FULL, &["workload.arrival={trace_csv='x'}"], "key `workload.arrival.trace_csv`: x: no such file");
    refused(FULL, &["gpu.1.kind=h100"], "measured.csv: has no rows for gpu_kind `h100`; it knows: 1080ti, a100");
    refused(FULL, &["model.0.profile_csv=measured.csv"], "alpha_ms and beta_ms, or profile, or profile_csv");
    refused(FULL, &["model.0.alpha_ms=-1"], "key `model.0.alpha_ms`");
    refused(FULL, &["model.0.count=1000000000"], "at most 10000 models");
    refused(FULL, &["model.0.batch_max=0"], "key `model.0.batch_max`: expected 1 to 4096, got 0");
    refused(FULL, &["model.1.name=resnet50-1"], "expected names that differ, got `resnet50-1` twice");
    refused(FULL, &["seeds=[]"], "key `seeds`: expected 1 to 1000 seeds");
    refused(FULL, &["gpu.0.count=4000000000"], "at most 65536 GPUs");
    refused(FULL, &["gpu=[]"], "at least one [[gpu]]");
    refused(&FULL.replace("weight", "wait"), &[], "unknown field `wait`");
    refused(&FULL.replace("rate_rps = 5000.0", ""), &[], "key `workload.rate_rps`");
    refused("name = ", &[], "s.toml: TOML parse error at line 1");
}

#[test]
fn what_only_a_later_check_refuses_is_told_of_the_override_that_brings_it_about() {
    // The key at fault is another one than the override's.
    refused(
        FULL,
        &["seeds=[7]", "gpu.1.kind=h100"],
        "--set gpu.1.kind=h100: key `model.1.profile_csv`: measured.csv: has no",
    );
    refused(
        FULL,
        &["model.0.items=8", "model.0.slo_ms=7"],
        "--set model.0.slo_ms=7: key `model.0.items`: expected 1 to 1 ",
    );
    refused(FULL, &["policy=eager", "policy.trigger=latest"], "--set policy.trigger=latest: key `policy.trigger`");
    // What is wrong without any override is the file's.
    refused(
        &FULL.replace("slo_ms = 9.0", "slo_ms = 0"),
        &["seeds=[7]"],
        "s.toml: key `model.1.slo_ms`: expected a number",
    );
    let fast = "workload.arrival={trace_csv='trace.csv', time_scale=1e-12}";
    refused(FULL, &[fast], "key `workload.arrival.trace_csv`: expected a mean rate above 0, at most 1000000000");
}

#[test]
fn a_trace_is_played_once_in_order_and_stretched() {
    let scenario = parse(FULL, &["workload.arrival={trace_csv='trace.csv', time_scale=2.0}"]).unwrap();
    // Three requests in one second, played at half speed.
    assert_eq!(scenario.rate_rps, 1.5);
    let Arrival::Trace(trace) = &scenario.arrival else { panic!("{:?}", scenario.arrival) };
    assert_eq!([0, 1000, 1001, 2001].map(|ms| trace.count_from(Nanos::from_millis(ms))), [3, 2, 1, 0]);
    let mut streams = arrival_streams(&scenario, 1, scenario.rate_rps);
    let times = |stream: &mut symphony_workload::ArrivalStream| {
        std::iter::from_fn(|| stream.next_arrival()).map(Time::as_secs_f64).collect::<Vec<_>>()
    };
    let played: Vec<Vec<f64>> = streams.iter_mut().map(times).collect();
    assert!(played[1].contains(&0.5) && played[2].contains(&1.0), "{played:?}");
    // The nameless row went to one of the models.
    assert_eq!(played.iter().flatten().filter(|&&time| time == 2.0).count(), 1);
    assert_eq!(played.iter().flatten().count(), 3);
}

#[test]
fn models_that_do_not_fit_a_gpu_are_refused_with_what_they_need() {
    let text = |memory_mb: &str| {
        let text = FULL.replace("profile_csv = \"measured.csv\"", "profile = \"measured.toml\"\ncount = 3");
        text.replace("memory_mb = 11264", &format!("memory_mb = {memory_mb}"))
    };
    // Three times 100 MB, and 50 MB for one batch; the other model says nothing, nor does the other kind.
    assert!(parse(&text("350"), &[]).is_ok());
    let words =
        "key `gpu.0.memory_mb`: expected at least 350.0, which the models' profiles need on a GPU of kind `1080ti`";
    refused(&text("349.5"), &[], words);
    assert!(parse(&text("1").replace("memory_mb = 1\n", ""), &[]).is_ok(), "nothing is said of its memory");
    let elsewhere = text("350").replace("kind = \"a100\"", "kind = \"a100\"\nmemory_mb = 1");
    assert!(parse(&elsewhere, &[]).is_ok());
}

#[test]
fn items_follow_a_law_up_to_the_largest_batch_and_gpus_have_prices() {
    let items =
        |text: &str| parse(FULL, &[&format!("model.0.items={text}")]).map(|scenario| scenario.models[0].items.clone());
    // The largest batch of the model within its SLO is 18.
    let gaussian = items("{ gaussian = { mean = 9.5, sigma = 40.0 } }").unwrap();
    assert_eq!((gaussian.min(), gaussian.max()), (1, 18));
    assert!((gaussian.mean() - 9.5).abs() < 1e-9, "cut evenly on both sides");
    let lognormal = items("{ lognormal = { mean = 1.0, sigma = 0.5 } }").unwrap();
    assert!((2.9..3.2).contains(&lognormal.mean()), "{}", lognormal.mean());
    refused(
        FULL,
        &["model.0.items={ gaussian = { mean = 19, sigma = 1.0 } }"],
        "key `model.0.items.gaussian.mean`: expected a mean of 1 to 18 items, the largest batch that may run, got 19",
    );
    refused(FULL, &["model.0.items={ lognormal = { mean = 1, sigma = 0 } }"], "key `model.0.items.lognormal.sigma`");
    refused(FULL, &["model.0.items={ csv = 'none.csv' }"], "key `model.0.items.csv`: none.csv: no such file");
    refused(FULL, &["model.0.items={ zipf = 1 }"], "{ lognormal = { mean, sigma } }");

    assert_eq!(parse(FULL, &["gpu.0.price_per_hour=0.5"]).unwrap().price_per_hour(), None);
    let priced = parse(FULL, &["gpu.0.price_per_hour=0.5", "gpu.1.price_per_hour=3"]).unwrap();
    assert_eq!(priced.price_per_hour(), Some(10.0));
    refused(FULL, &["gpu.0.price_per_hour=0"], "key `gpu.0.price_per_hour`: expected a number above 0");
}
