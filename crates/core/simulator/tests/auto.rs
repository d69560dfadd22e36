//! `auto` is never far from the best fixed policy (docs/adr/0008), in regimes that set them far apart.

use symphony_simulator::{ModelResult, find_goodput, meets_slo, simulate};
use symphony_types::Nanos;
use symphony_workload::Scenario;

/// `workload` without its rate.
fn scenario(policy: &str, gpus: u32, models: &str, workload: &str) -> Scenario {
    let text = format!(
        "name = 'auto'
        policy = {policy}
        duration_s = 8
        warmup_s = 6
        seeds = [1, 2, 3]
        gpu = [{{ kind = 'x', count = {gpus} }}]
        model = [{{ {models} }}]
        workload = {{ rate_rps = 1000, {workload} }}"
    );
    Scenario::parse("auto.toml", &text, &[], &|_| Err("no files".to_owned())).unwrap()
}

/// Eight seconds tell two policies apart to about a percent, a search ends within half a percent.
const NOISE: f64 = 0.015;
/// What `auto` may lose against the best fixed policy.
const LOSS_MAX: f64 = 0.02;

/// A fixed policy that wins and the one that loses.
const DEFERRAL_WINS: [&str; 2] = ["'symphony'", "'eager'"];
const AT_ONCE_WINS: [&str; 2] = ["'eager'", "'symphony'"];

/// Whether most seeds pass at this rate, as in a search for goodput.
fn passes(scenario: &Scenario, rate_rps: f64) -> bool {
    let passed = scenario.seeds.iter().filter(|&&seed| meets_slo(scenario, seed, rate_rps).unwrap().passed);
    2 * passed.count() > scenario.seeds.len()
}

/// Checks that `auto` keeps up with the fixed policy that wins, and that this one is ahead by at least `apart`: else
/// the regime would test nothing.
#[track_caller]
fn keeps_up(policies: [&str; 2], gpus: u32, models: &str, arrival: &str, apart: f64) {
    keeps_up_with(policies, gpus, models, &format!("arrival = {arrival}"), apart);
}

#[track_caller]
fn keeps_up_with(policies: [&str; 2], gpus: u32, models: &str, workload: &str, apart: f64) {
    keeps(policies, gpus, models, workload, apart, 1.0 - LOSS_MAX - NOISE);
}

/// The same where `auto` keeps this share. Only the winner's goodput is searched. Another one might pass above a rate
/// at which it fails, so that is asked at three.
#[track_caller]
fn keeps([winner, other]: [&str; 2], gpus: u32, models: &str, workload: &str, apart: f64, share: f64) {
    let [winner, other, auto] = [winner, other, "'auto'"].map(|policy| scenario(policy, gpus, models, workload));
    let best = find_goodput(&winner).unwrap();
    let below = [1.0, 1.02, 1.05].iter().all(|above| !passes(&other, above * best / apart));
    assert!(below, "the regime tells nothing apart: {:?} of {best}", find_goodput(&other));
    // Verdicts are not monotone: it may fail at one rate and pass above.
    let reached = passes(&auto, best * share) || find_goodput(&auto).unwrap() >= best * share;
    assert!(reached, "auto reaches {:?} of {best}", find_goodput(&auto));
}

#[test]
fn where_deferral_wins() {
    let resnet = "name = 'resnet50', alpha_ms = 1.053, beta_ms = 5.072, slo_ms = 25";
    keeps_up(DEFERRAL_WINS, 8, resnet, "'poisson'", 1.3);
    let densenets = "name = 'densenet121', count = 16, alpha_ms = 1.061, beta_ms = 10.312, slo_ms = 50";
    keeps_up(DEFERRAL_WINS, 32, densenets, "'poisson'", 1.1);
}

#[test]
fn where_starting_at_once_wins() {
    let resnets = "name = 'resnet50', count = 20, alpha_ms = 1.053, beta_ms = 5.072, slo_ms = 50";
    keeps_up(AT_ONCE_WINS, 8, resnets, "'poisson'", 1.3);
    keeps_up(AT_ONCE_WINS, 32, resnets, "{ gamma = 0.05 }", 1.05);
}

#[test]
fn where_rarely_asked_models_would_fill_the_gpus_with_small_batches() {
    // By gaps alone these would start at once: 0.92 and 0.89 of deferral.
    let zipf = "arrival = 'poisson', popularity = { zipf = 0.9 }";
    let inceptions = "name = 'inceptionv3', count = 20, alpha_ms = 1.964, beta_ms = 8.771, slo_ms = 20";
    keeps_up_with(DEFERRAL_WINS, 32, inceptions, zipf, 1.3);
    let densenets = "name = 'densenet121', count = 8, alpha_ms = 1.061, beta_ms = 10.312, slo_ms = 20";
    // Falls short (docs/adr/0008): 0.95 of deferral.
    keeps(DEFERRAL_WINS, 14, densenets, zipf, 1.3, 0.93);
}

#[test]
fn where_the_slo_leaves_no_time_to_make_up_for_small_batches() {
    // Eager starts fill all GPUs with single requests, and only full batches would get them out of that.
    let densenets = "name = 'densenet121', count = 16, alpha_ms = 1.061, beta_ms = 10.312, slo_ms = 20";
    keeps_up(DEFERRAL_WINS, 24, densenets, "{ gamma = 0.5 }", 1.3);
    keeps_up(DEFERRAL_WINS, 24, densenets, "'poisson'", 1.3);
    // Fewer GPUs for a model: its fixed costs alone keep just one busy, but slack is dear where a batch runs for longer
    // than it gathers.
    let densenets = "name = 'densenet121', count = 8, alpha_ms = 1.061, beta_ms = 10.312, slo_ms = 20";
    // Falls short (docs/adr/0008): 0.96 of deferral.
    keeps(DEFERRAL_WINS, 12, densenets, "arrival = { gamma = 0.5 }", 1.1, 0.94);
}

#[test]
fn where_the_company_that_bursts_bring_is_worth_waiting_for() {
    // By the mean rate no other request comes within the SLO; after an arrival, the gaps say otherwise.
    let inceptions = "name = 'inceptionv3', count = 8, alpha_ms = 1.964, beta_ms = 8.771, slo_ms = 20";
    // Falls short (docs/adr/0008): 0.96 of deferral.
    keeps(DEFERRAL_WINS, 8, inceptions, "arrival = { gamma = 0.2 }", 1.2, 0.95);
}

#[test]
fn where_the_fixed_cost_is_small_or_a_model_has_one_gpu() {
    let berts = "name = 'bert', count = 8, alpha_ms = 7.008, beta_ms = 0.159, slo_ms = 25";
    keeps_up(AT_ONCE_WINS, 12, berts, "'poisson'", 1.05);
    // Falls short (docs/adr/0008): 0.96 of the better.
    let densenets = "name = 'densenet121', count = 8, alpha_ms = 1.061, beta_ms = 10.312, slo_ms = 20";
    let of = |policy| scenario(policy, 8, densenets, "arrival = { gamma = 0.7 }");
    let [symphony, eager] = ["'symphony'", "'eager'"].map(|policy| find_goodput(&of(policy)).unwrap());
    let auto = of("'auto'");
    assert!(
        passes(&auto, 0.94 * symphony.max(eager)),
        "auto reaches {:?}, deferral {symphony}, at once {eager}",
        find_goodput(&auto)
    );
}

#[test]
fn a_patient_model_does_not_take_the_gpus_that_impatient_ones_need() {
    // Single batches of the patient one take up to a second or half of it, twenty to forty times what the others may
    // wait in all.
    let inception = "alpha_ms = 5.09, beta_ms = 18.368";
    let with = |line: &str, weight: f64, slo_ms: u32| {
        format!(
            "name = 'patient', {line}, slo_ms = {slo_ms}, weight = {weight} }},
            {{ name = 'impatient', count = 4, alpha_ms = 1.053, beta_ms = 5.072, slo_ms = 25"
        )
    };
    let poisson = "arrival = 'poisson', popularity = 'weights'";
    keeps_up_with(DEFERRAL_WINS, 24, &with(inception, 0.2, 2000), poisson, 1.1);
    keeps_up_with(AT_ONCE_WINS, 4, &with(inception, 0.2, 1000), poisson, 1.25);
    let (bert, bursts) = ("alpha_ms = 7.008, beta_ms = 0.159", "arrival = { gamma = 0.2 }, popularity = 'weights'");
    keeps_up_with(AT_ONCE_WINS, 8, &with(bert, 0.2, 1000), bursts, 1.05);
}

#[test]
fn bursts_that_hardly_ever_fill_all_gpus_do_not_make_batches_small() {
    // The mean demand is two and a half standard deviations below the GPUs. Early starts for the sake of such bursts
    // made batches of 17 instead of 22, kept all GPUs busy by that, and one percent of the answers were bad.
    let resnets = "name = 'resnet50v2', count = 12, alpha_ms = 1.409, beta_ms = 5.947, slo_ms = 50";
    let run = simulate(&scenario("'auto'", 42, resnets, "arrival = { gamma = 0.5 }"), 1, 24_150.0).unwrap();
    assert!(run.bad_rate < 0.003, "{} bad", run.bad_rate);
    assert!(run.idle_fraction > 0.02, "{} idle", run.idle_fraction);
}

#[test]
fn where_there_is_time_to_spare_answers_are_as_fast_as_those_that_start_at_once() {
    for (gpus, models) in [
        (8, "name = 'resnet50', alpha_ms = 1.053, beta_ms = 5.072, slo_ms = 100"),
        (8, "name = 'resnet50', alpha_ms = 1.053, beta_ms = 5.072, slo_ms = 25"),
        (24, "name = 'resnet50', count = 10, alpha_ms = 1.053, beta_ms = 5.072, slo_ms = 100"),
    ] {
        let of = |policy: &str| scenario(policy, gpus, models, "arrival = 'poisson'");
        let (auto, eager) = (of("'auto'"), of("'eager'"));
        let peak = find_goodput(&auto).unwrap();
        for load in [0.02, 0.1, 0.3, 0.5] {
            let of = |scenario: &Scenario| {
                let model = simulate(scenario, 1, peak * load).unwrap().models.swap_remove(0);
                (model.p50_ms.unwrap(), model.p99_ms.unwrap())
            };
            let ((p50, p99), (eager_p50, eager_p99)) = (of(&auto), of(&eager));
            // At half of the peak it falls short with ten models (docs/adr/0008).
            let slower = if load < 0.5 { 1.15 } else { 1.3 };
            assert!(p50 <= slower * eager_p50, "{models} at {load}: p50 {p50} ms, at once {eager_p50}");
            // With an SLO of 25 ms it falls short at a tenth: the pace of starts (docs/adr/0008).
            let later = if load == 0.1 && models.ends_with("slo_ms = 25") { 1.15 } else { 1.05 };
            assert!(p99 <= later * eager_p99, "{models} at {load}: p99 {p99} ms, at once {eager_p99}");
        }
    }
}

#[test]
fn one_gpu_or_few_answer_at_once_also_where_slos_are_tight() {
    // ℓ(1) is half of the SLO.
    let model = "name = 'm', alpha_ms = 1.0, beta_ms = 9.0, slo_ms = 20";
    // At six tenths of two GPUs it falls short (docs/adr/0008).
    for (gpus, rate_rps, slower) in
        [(1, 20.0, 1.01), (1, 30.0, 1.01), (2, 80.0, 1.05), (2, 120.0, 1.35), (4, 240.0, 1.05)]
    {
        let of = |policy| {
            let scenario = scenario(policy, gpus, model, "arrival = 'poisson'");
            let model = simulate(&scenario, 1, rate_rps).unwrap().models.swap_remove(0);
            (model.p50_ms.unwrap(), (model.offered - model.good) as f64 / model.offered as f64)
        };
        let ((p50, bad), (eager_p50, eager_bad)) = (of("'auto'"), of("'eager'"));
        assert!(p50 <= slower * eager_p50, "{gpus} GPUs, {rate_rps}/s: p50 {p50} ms, at once {eager_p50}");
        assert!(bad <= eager_bad + 0.01, "{gpus} GPUs, {rate_rps}/s: {bad} bad, at once {eager_bad}");
    }
}

#[test]
fn overload_costs_no_goodput() {
    let models = "name = 'resnet50', count = 10, alpha_ms = 1.053, beta_ms = 5.072, slo_ms = 100";
    let scenario = scenario("'auto'", 24, models, "arrival = 'poisson'");
    // Its goodput is searched for the paper's figure.
    let page = include_str!("../../../../docs/papers/symphony-fig10-differences.csv");
    let peak =
        page.lines().find_map(|line| line.strip_prefix("auto,")?.split(',').next()?.parse::<f64>().ok()).unwrap();
    assert!(!passes(&scenario, 1.1 * peak), "1.1 times {peak} is no overload");
    for load in [1.1, 1.5, 2.0] {
        let good = simulate(&scenario, 1, peak * load).unwrap().good_rps;
        assert!(good >= 0.98 * peak, "at {load} times the peak of {peak}, {good} requests per second are good");
    }
}

#[test]
fn who_defers_requests_of_several_items_keeps_up_with_who_does_not() {
    // Deferral as if requests had one item each: 61 and 1524 requests/s, 0.08 and 0.47 of `eager`.
    for (gpus, model, items, least) in [
        (14, "name = 'densenet121', count = 8, alpha_ms = 1.061, beta_ms = 10.312, slo_ms = 20", "[2, 6]", 0.95),
        (32, "name = 'inceptionv3', count = 20, alpha_ms = 1.964, beta_ms = 8.771, slo_ms = 30", "[1, 4]", 0.9),
    ] {
        let models = format!("{model}, items = {{ uniform = {items} }}");
        let of = |policy| scenario(policy, gpus, &models, "arrival = 'poisson'");
        let [symphony, eager] = ["'symphony'", "'eager'"].map(|policy| find_goodput(&of(policy)).unwrap());
        assert!(symphony > least * eager, "{symphony} of {eager}");
        let (auto, best) = (of("'auto'"), eager.max(symphony));
        let reached = passes(&auto, (1.0 - LOSS_MAX - NOISE) * best);
        assert!(reached, "auto {:?} of {eager} and {symphony}", find_goodput(&auto));
    }
}

#[test]
fn a_lead_that_begins_knows_as_much_as_it_needs() {
    // Nothing is learnt yet: gaps, load, or by how much executions are longer than their profile. A lead that left no
    // room for that would have 0.25 % bad at the highest load, more than is allowed here.
    let resnets = "name = 'resnet50', count = 20, alpha_ms = 1.053, beta_ms = 5.072, slo_ms = 50";
    let noisy = "arrival = 'poisson', popularity = { zipf = 0.9 } }\nexecution = { noise = { lognormal_sigma = 0.03 }";
    let mut scenario = scenario("'auto'", 32, resnets, noisy);
    scenario.seeds = vec![1];
    scenario.duration = Nanos::from_millis(10_000);
    let peak = find_goodput(&scenario).unwrap();
    for load in [0.05, 0.5, 0.95] {
        let mut bad_rate_after = |warmup_ms| {
            scenario.warmup = Nanos::from_millis(warmup_ms);
            simulate(&scenario, 1, peak * load).unwrap().bad_rate
        };
        let (first, steady) = (bad_rate_after(0), bad_rate_after(20_000));
        assert!(first <= 1.1 * steady + 0.001, "at {load} of {peak}: {first} in the first ten seconds, {steady} later");
    }
}

const ZOO_1080TI: &str = include_str!("../../../../deploy/scenarios/zoo-1080ti-all.toml");
const ZOO_1080TI_GT2: &str = include_str!("../../../../deploy/scenarios/zoo-1080ti-gt2.toml");
const ZOO_1080TI_LT2: &str = include_str!("../../../../deploy/scenarios/zoo-1080ti-lt2.toml");
const ZOO_A100: &str = include_str!("../../../../deploy/scenarios/zoo-a100-all.toml");
const ZOO_A100_GT2: &str = include_str!("../../../../deploy/scenarios/zoo-a100-gt2.toml");
const ZOO_A100_LT2: &str = include_str!("../../../../deploy/scenarios/zoo-a100-lt2.toml");

fn zoo(text: &str, policy: &str, noise: f64) -> Scenario {
    let noise = format!("execution.noise={{ lognormal_sigma = {noise:?} }}");
    let overrides = [format!("policy={policy}"), noise, "duration_s=10".to_owned()];
    Scenario::parse("zoo.toml", text, &overrides, &|_| Err("no files".to_owned())).unwrap()
}

/// Checks that `auto` serves this rate: with each of two seeds at most one percent of all requests are bad, and two of
/// any model's. A run is short, so a model may have more than the percent of a goodput.
#[track_caller]
fn serves(scenario: &Scenario, rate_rps: f64) {
    for seed in [1, 2] {
        let run = simulate(scenario, seed, rate_rps).unwrap();
        let bad = |model: &ModelResult| 1.0 - model.good as f64 / model.offered as f64;
        let worst = run.models.iter().max_by(|a, b| bad(a).total_cmp(&bad(b))).unwrap();
        assert!(
            run.bad_rate <= 0.01 && bad(worst) <= 0.02,
            "{} at {rate_rps}, seed {seed}: {} bad, {} of {}",
            scenario.name,
            run.bad_rate,
            bad(worst),
            worst.name
        );
    }
}

#[test]
fn the_zoo_of_1080tis_is_served_to_within_two_percent_of_its_goodput() {
    // 7656, 20 269 and 3989 requests/s (docs/internals/lab/2026-11-policies.md).
    for (text, rate_rps) in [(ZOO_1080TI, 7500.0), (ZOO_1080TI_GT2, 19_850.0), (ZOO_1080TI_LT2, 3910.0)] {
        serves(&zoo(text, "auto", 0.0), rate_rps);
    }
}

#[test]
fn the_zoo_of_a100s_is_served_to_within_two_percent_of_its_goodput() {
    // 18 359, 58 363 and 6512 requests/s, there.
    for (text, rate_rps) in [(ZOO_A100, 17_990.0), (ZOO_A100_GT2, 57_190.0), (ZOO_A100_LT2, 6380.0)] {
        serves(&zoo(text, "auto", 0.0), rate_rps);
    }
}

#[test]
fn noise_costs_the_zoos_no_more_than_is_known() {
    // Goodput with noise of 1, 3 and 8 %: 7583, 7336 and 6634, 18 059, 17 296 and 15 392 requests/s
    // (docs/internals/lab/2026-11-24-auto-spacing.md). At 0.97 of it.
    for (text, rates_rps) in [(ZOO_1080TI, [7355.0, 7115.0, 6430.0]), (ZOO_A100, [17_510.0, 16_770.0, 14_930.0])] {
        for (noise, rate_rps) in [0.01, 0.03, 0.08].into_iter().zip(rates_rps) {
            serves(&zoo(text, "auto", noise), rate_rps);
        }
    }
}

#[test]
fn noise_breaks_no_model_whose_batches_are_large_or_come_in_bursts() {
    // With 8 % 16 179, 10 918 and 789 requests/s, there; 592 of the first while lateness was one time for all batches.
    // At 0.9 of it.
    let noisy = |arrival: &str| format!("arrival = {arrival} }}\nexecution = {{ noise = {{ lognormal_sigma = 0.08 }}");
    for (gpus, models, arrival, rate_rps) in [
        (32, "count = 20, alpha_ms = 1.053, beta_ms = 5.072, slo_ms = 25", "{ gamma = 0.05 }", 14_560.0),
        (32, "count = 16, alpha_ms = 1.061, beta_ms = 10.312, slo_ms = 30", "'poisson'", 9825.0),
        (8, "alpha_ms = 5.09, beta_ms = 18.368, slo_ms = 70", "'poisson'", 710.0),
    ] {
        serves(&scenario("'auto'", gpus, &format!("name = 'm', {models}"), &noisy(arrival)), rate_rps);
    }
}

#[test]
fn noise_leaves_slos_their_goodput_that_leave_little_beside_an_item() {
    // With 8 % 1568 and 1178 requests/s (docs/internals/lab/2026-11-27-auto-noise.md); 1297 and 976 where early starts
    // may load all GPUs to nine tenths.
    for (gpus, workload, rate_rps) in [
        (14, "popularity = { zipf = 0.9 }, arrival = 'poisson' }", 1425.0),
        (12, "arrival = { gamma = 0.5 } }", 1070.0),
    ] {
        let densenets = "name = 'densenet121', count = 8, alpha_ms = 1.061, beta_ms = 10.312, slo_ms = 20";
        let noisy = format!("{workload}\nexecution = {{ noise = {{ lognormal_sigma = 0.08 }}");
        assert!(passes(&scenario("'auto'", gpus, densenets, &noisy), rate_rps), "{rate_rps} requests/s on {gpus} GPUs");
    }
}

#[test]
fn models_of_the_zoos_are_answered_as_fast_as_if_they_started_at_once() {
    // Medians are within 1.15 of `eager`'s, and 1.33 at half of the peak (docs/adr/0008); a run of ten seconds has a
    // few hundred requests of a model.
    for (text, peak_rps) in [(ZOO_1080TI, 7656.0), (ZOO_A100, 18_359.0)] {
        for (load, slower) in [(0.1, 1.2), (0.3, 1.2), (0.5, 1.4)] {
            let [auto, eager] =
                ["auto", "eager"].map(|policy| simulate(&zoo(text, policy, 0.0), 1, peak_rps * load).unwrap().models);
            for (auto, eager) in auto.iter().zip(&eager) {
                let (ours, theirs) = (auto.p50_ms.unwrap(), eager.p50_ms.unwrap());
                assert!(ours <= slower * theirs, "{} at {load}: p50 {ours} ms, at once {theirs}", auto.name);
            }
        }
    }
}
