//! GPUs that follow the load: the production autoscaler, hosted in virtual time.

use symphony_controllers::Reason;
use symphony_simulator::{CourseStep, RunResult, simulate};
use symphony_workload::Scenario;

/// Ten models; the load doubles at 60 s and falls back at 240 s.
const TEXT: &str = "
    name = 'autoscale'
    policy = 'symphony'
    duration_s = 600
    warmup_s = 2
    seeds = [1]
    model = [{ name = 'm', count = 10, alpha_ms = 1.053, beta_ms = 5.072, slo_ms = 100 }]
    workload = { rate_rps = 6000, arrival = 'poisson', rate_profile = [[0, 1.0], [60, 2.0], [240, 1.0]] }
    [[gpu]]
    kind = 'x'
    count = 32
    start = 9
    [autoscale]
    provision_s = 5";

fn scenario(overrides: &[&str]) -> Scenario {
    let overrides: Vec<_> = overrides.iter().map(|&assignment| assignment.to_owned()).collect();
    Scenario::parse("autoscale.toml", TEXT, &overrides, &|_| Err("no files".to_owned())).unwrap()
}

fn run(overrides: &[&str]) -> RunResult {
    let scenario = scenario(overrides);
    simulate(&scenario, 1, scenario.rate_rps).unwrap()
}

fn course(run: &RunResult) -> &[CourseStep] {
    &run.autoscale.as_ref().expect("the scenario has an autoscaler").course
}

fn bad_rate(steps: &[CourseStep]) -> f64 {
    let (good, bad) = steps.iter().map(CourseStep::total).fold((0, 0), |sum, at| (sum.0 + at.good, sum.1 + at.bad));
    f64::from(bad) / f64::from(good + bad).max(1.0)
}

#[test]
fn a_step_up_is_served_after_a_provisioning_and_a_step_down_is_given_back() {
    let run = run(&[]);
    let course = course(&run);
    let at = |second: usize| &course[second - 1];
    let before = at(59).serving;
    assert!((8.0..=11.0).contains(&before), "{before} GPUs before the step");
    assert!(bad_rate(&course[60..65]) > 0.1, "nobody can be ready before");
    let ordered: u32 = course[59..65].iter().map(|step| step.add).sum();
    assert!(f64::from(ordered) <= before, "{ordered} asked for while {before} serve: something was counted twice");
    // The step is over after two provisionings: what is lost tells how much is missing, as far as twice what there is.
    assert!(bad_rate(&course[75..240]) < 0.005, "{}", bad_rate(&course[75..240]));
    assert!((15.0..=19.0).contains(&at(230).serving), "{} GPUs for twice the load", at(230).serving);
    assert!(course[240..295].iter().all(|step| step.serving >= 14.5), "what was needed within a minute stays");
    let after = at(600).serving;
    assert!((8.0..=11.0).contains(&after), "{after} GPUs in the end");
    assert!(bad_rate(&course[240..600]) < 0.005);
    let scaling = run.autoscale.as_ref().unwrap();
    let (least, most) = scaling.gpus_range.unwrap();
    assert!(f64::from(least) <= after && most <= 20 && scaling.ups >= 1 && scaling.downs >= 1, "{least} to {most}");
    let mean = course[2..].iter().map(|step| step.serving).sum::<f64>() / (course.len() - 2) as f64;
    assert!((scaling.gpus_mean / mean - 1.0).abs() < 0.02, "{} and {mean}", scaling.gpus_mean);
    // Busy time over the present GPUs, not over the fleet.
    assert!(run.gpu_utilization > 0.7, "{}", run.gpu_utilization);
}

#[test]
fn what_the_autoscaler_measures_is_what_the_run_counts() {
    let run = run(&["duration_s=100", "warmup_s=0"]);
    let course = course(&run);
    let (good, bad) = course.iter().map(CourseStep::total).fold((0, 0), |sum, at| (sum.0 + at.good, sum.1 + at.bad));
    let models = run.models.iter();
    let counted =
        models.map(|model| (model.good, model.late + model.dropped)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    // All but what is in flight at the end.
    assert!(u64::from(good).abs_diff(counted.0) < 3_000, "{good} and {}", counted.0);
    assert!(u64::from(bad).abs_diff(counted.1) < 100, "{bad} and {}", counted.1);
    let busy = course.iter().map(|step| step.busy).sum::<f64>();
    let there = course.iter().map(|step| step.serving).sum::<f64>();
    assert!((busy / there - run.gpu_utilization).abs() < 0.01, "{} and {}", busy / there, run.gpu_utilization);
    assert!(course.iter().all(|step| step.busy <= step.serving + 1e-9));
}

#[test]
fn equal_seeds_give_equal_courses_and_noise_and_other_policies_are_served() {
    let short = ["duration_s=130"];
    let first = run(&short);
    assert_eq!(first, run(&short));
    for more in ["execution.noise={ lognormal_sigma = 0.05 }", "policy=auto", "policy=eager", "policy=timeout"] {
        let run = run(&[short[0], more]);
        let course = course(&run);
        assert!(bad_rate(&course[85..]) < 0.02, "{more}: {}", bad_rate(&course[85..]));
        assert!(course[120].serving > course[50].serving, "{more}");
    }
}

#[test]
fn of_two_kinds_the_first_is_ordered_first_and_the_second_given_back_first() {
    let gpus = "gpu=[{ kind = 'x', count = 10, start = 6, min = 1 }, { kind = 'y', count = 30, start = 3 }]";
    let slow = ["model.0.alpha_ms={ x = 1.053, y = 1.58 }", "model.0.beta_ms={ x = 5.072, y = 7.61 }"];
    let run = run(&[gpus, slow[0], slow[1]]);
    let course = course(&run);
    assert!(bad_rate(&course[85..240]) < 0.01, "{}", bad_rate(&course[85..240]));
    // Ten of the first kind, and about ten of the slower one.
    assert!((16.0..=23.0).contains(&course[230].serving), "{}", course[230].serving);
    // In the end, those of the first kind serve nearly all of it.
    assert!((8.0..=12.0).contains(&course[599].serving), "{}", course[599].serving);
    assert!(bad_rate(&course[240..]) < 0.01);
}

#[test]
fn an_slo_that_no_gpu_can_meet_does_not_fill_the_fleet() {
    let run = run(&["model.0.slo_ms=3", "workload.rate_rps=100", "duration_s=100"]);
    let course = course(&run);
    assert!(run.bad_rate == 1.0 && course.iter().all(|step| step.add == 0 && step.release == 0));
    assert!(course.iter().skip(1).all(|step| step.reason == Reason::BadWhileIdle));
}

/// Large requests are for the base only; small ones cost least on the small kind.
const BUDGETED: &str = "
    name = 'budgeted'
    policy = 'auto'
    duration_s = 60
    warmup_s = 2
    seeds = [1]
    workload = { rate_rps = 800, arrival = 'poisson' }
    [[model]]
    name = 'm'
    slo_ms = 250
    alpha_ms = { base = 4.0, small = 10.0 }
    beta_ms = { base = 16.0, small = 10.0 }
    items = { csv = 'items' }
    [[gpu]]
    kind = 'base'
    count = 20
    start = 12
    price_per_hour = 1.0
    [[gpu]]
    kind = 'small'
    count = 60
    start = 0
    price_per_hour = 0.2
    [autoscale]
    provision_s = 3
    budget_per_hour = 20";

#[test]
fn within_a_budget_the_kinds_are_those_that_the_measured_sizes_cost_least_on() {
    let run = |items: &'static str, overrides: &[String]| {
        let read = |_: &str| -> Result<String, String> { Ok(items.to_owned()) };
        let scenario = Scenario::parse("budgeted.toml", BUDGETED, overrides, &read).unwrap();
        simulate(&scenario, 1, scenario.rate_rps).unwrap().autoscale.unwrap()
    };
    // A small request costs 10.4 ms · 0.2 on the small kind and 4.3 ms · 1.0 on the base; a large one is late on the
    // former.
    let small = run("items,share\n1,1\n", &[]);
    assert_eq!(small.fleet_refused, None);
    let fleet = small.fleet.as_deref().unwrap();
    assert!(fleet[0] <= 1 && fleet[1] >= 8, "{fleet:?}");
    assert!(bad_rate(&small.course[30..]) < 0.02, "{}", bad_rate(&small.course[30..]));
    let changes = small.course.iter().filter(|step| step.reason == Reason::Fleet && step.add > 0).count();
    assert_eq!(changes, 1, "it goes to the other kind in one step");

    let slowly = "workload.rate_rps=60".to_owned();
    let large = run("items,share\n1,1\n40,1\n", std::slice::from_ref(&slowly));
    let fleet = large.fleet.as_deref().unwrap();
    assert!((5..=12).contains(&fleet[0]), "{fleet:?}");
    assert!(bad_rate(&large.course[30..]) < 0.1, "{}", bad_rate(&large.course[30..]));

    let poor = run("items,share\n1,1\n40,1\n", &[slowly, "autoscale.budget_per_hour=4".to_owned()]);
    let fleet = poor.fleet.unwrap();
    assert!(f64::from(fleet[0]) + 0.2 * f64::from(fleet[1]) <= 4.0 + 1e-9 && fleet[0] > 0, "{fleet:?}");
}

#[test]
fn a_budget_that_cannot_be_kept_is_refused_in_words() {
    let refused = |overrides: &[&str], words: &str| {
        let overrides: Vec<_> = overrides.iter().map(|&assignment| assignment.to_owned()).collect();
        let read = |_: &str| -> Result<String, String> { Ok("items,share\n1,1\n".to_owned()) };
        let error = Scenario::parse("budgeted.toml", BUDGETED, &overrides, &read).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(&["autoscale.budget_per_hour=0"], "`autoscale.budget_per_hour`: expected a number above 0");
    refused(&["autoscale.budget_per_hour=0.05"], "expected at least 0.2, the price of the cheapest kind");
    refused(&["gpu.1.min=1"], "`gpu.1.min`: expected none where there is a budget");
    let free = "gpu=[{ kind = 'base', count = 20, price_per_hour = 1 }, { kind = 'small', count = 9 }]";
    refused(&[free], "`gpu.1.price_per_hour`: expected a price");
}
