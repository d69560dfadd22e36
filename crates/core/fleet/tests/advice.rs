//! The fleet of a running sub-cluster: chosen by what is measured, in one step, within the budget.

use proptest::prelude::*;
use symphony_controllers::{Advice, Autoscaler, AutoscalerSettings, KindSettings, KindWindow, Reason, Window};
use symphony_fleet::{
    FLEET_MARGIN, FleetPlanner, FleetProblem, Kind, LatencyTable, Merging, Mix, ServedModel, measured_problem,
};
use symphony_types::{GpuId, Nanos, Time};

const SECOND: Nanos = Nanos::from_millis(1000);
/// The autoscaler is content: less would be needed only below it.
const CONTENT: f64 = 0.06;

/// Ten items take the base 200 ms, of 250. The small kind has no time for more than four; for these it costs less.
fn problem(budget_per_hour: f64, mix: &Mix) -> Result<FleetProblem, String> {
    let kind = |name: &str, price_per_hour| Kind { name: name.to_owned(), price_per_hour, count_max: 100 };
    let table = |points: &[(u32, f64)]| LatencyTable::from_points(points).unwrap();
    let latencies = vec![table(&[(1, 100.0), (10, 200.0)]), table(&[(1, 125.0), (4, 250.0), (10, 500.0)])];
    let model = ServedModel { model: 7, name: "m".to_owned(), slo: Nanos::from_millis(250), latencies };
    measured_problem(budget_per_hour, vec![kind("base", 1.0), kind("small", 0.2)], vec![model], mix)
}

/// A sub-cluster that follows the advice at once.
struct Scene {
    budget_per_hour: f64,
    merging: Merging,
    planner: FleetPlanner,
    scaler: Autoscaler,
    fleet: [u32; 2],
    second: u64,
}

impl Scene {
    fn new(budget_per_hour: f64, fleet: [u32; 2]) -> Self {
        let kind = |capacity| KindSettings { min: 0, max: 100, capacity };
        let scaler = Autoscaler::new(AutoscalerSettings::new(vec![kind(50.0), kind(16.0)])).unwrap();
        Self { budget_per_hour, merging: Merging::Together, planner: FleetPlanner::new(), scaler, fleet, second: 0 }
    }

    /// One second with these requests, of which some are lost.
    fn second(&mut self, sizes: &[(u32, u64)], lost: f64, idle: f64) -> Advice {
        self.second += 1;
        let mut arrived = Mix::default();
        sizes.iter().for_each(|&(items, requests)| arrived.count(7, items, requests));
        let bad = (arrived.total() as f64 * lost) as u64;
        let kind = |count: u32| {
            let gpu_time = SECOND.saturating_mul(count.into());
            let busy_time = Nanos::from_secs_f64(gpu_time.as_secs_f64() * (1.0 - idle));
            KindWindow { serving: (0..count).map(GpuId::new).collect(), ordered: 0, gpu_time, busy_time }
        };
        let window = Window {
            length: SECOND,
            good: arrived.total() - bad,
            bad,
            kinds: self.fleet.map(kind).into_iter().collect(),
        };
        let now = Time::ZERO + SECOND.saturating_mul(self.second);
        let budget_per_hour = self.budget_per_hour;
        let pose = |mix: &Mix| problem(budget_per_hour, mix);
        let advice = self.planner.observe(now, &mut self.scaler, &window, &arrived, self.merging, pose);
        self.fleet = [advice.kinds[0].target, advice.kinds[1].target];
        advice
    }

    /// The changes within these seconds.
    fn pass(&mut self, seconds: u32, sizes: &[(u32, u64)], lost: f64, idle: f64) -> Vec<Advice> {
        (0..seconds).map(|_| self.second(sizes, lost, idle)).filter(Advice::changes).collect()
    }
}

/// How many GPUs come and go in each.
fn steps(changes: &[Advice]) -> Vec<(u32, usize)> {
    let step = |advice: &Advice| {
        let kinds = &advice.kinds;
        (kinds.iter().map(|kind| kind.add).sum(), kinds.iter().map(|kind| kind.release.len()).sum())
    };
    changes.iter().map(step).collect()
}

#[test]
fn another_distribution_of_sizes_is_another_fleet_in_one_step() {
    let mut scene = Scene::new(4.0, [1, 0]);
    // 47.1 requests of one item, by the margin, each 62.5 ms of the small kind: 2.94 GPUs.
    let changes = scene.pass(25, &[(1, 40)], 0.0, CONTENT);
    assert_eq!((scene.fleet, steps(&changes)), ([0, 3], vec![(3, 0), (0, 1)]), "what goes waits for what comes");
    assert!(changes.iter().all(|change| change.reason == Reason::Fleet));
    let plan = scene.planner.plan().unwrap();
    assert!((plan.rate_rps - 40.0).abs() < 1e-9 && (plan.bound_rps - 48.0).abs() < 1e-6, "{plan:?}");
    assert!((plan.price_per_hour - 0.6).abs() < 1e-9 && plan.is_enough());

    // Half of them become large. A measurement of both mixes says nothing; then 11.8 large ones take 2.35 of the base,
    // which has time for the small ones as well.
    let changes = scene.pass(100, &[(1, 10), (10, 10)], 0.0, CONTENT);
    assert_eq!((scene.fleet, steps(&changes)), ([3, 0], vec![(3, 0), (0, 3)]), "{changes:?}");
    assert!(changes.iter().all(|change| change.reason == Reason::Fleet));
    assert_eq!(scene.planner.refused(), None);

    // There is no money for both fleets.
    let mut scene = Scene::new(3.0, [0, 3]);
    assert_eq!(steps(&scene.pass(100, &[(1, 10), (10, 10)], 0.0, CONTENT)), [(3, 3)]);
}

#[test]
fn a_policy_that_merges_no_requests_needs_another_fleet() {
    let mut scene = Scene { merging: Merging::Alone, ..Scene::new(4.0, [1, 0]) };
    // 47.1 requests of one item, each 125 ms of the small kind: 5.88 GPUs.
    let _ = scene.pass(25, &[(1, 40)], 0.0, CONTENT);
    assert_eq!(scene.fleet, [0, 6], "{:?}", scene.planner.plan());
    // Another policy decides: nothing is measured again, and what was measured of that one does not count.
    scene.merging = Merging::Together;
    let changes = scene.pass(5, &[(1, 40)], 0.0, CONTENT);
    assert_eq!(scene.fleet, [0, 3], "{:?}", scene.planner.plan());
    assert!(changes.iter().all(|change| change.reason == Reason::Fleet), "{changes:?}");
}

#[test]
fn the_autoscaler_says_how_much_and_the_planner_of_which() {
    let mut scene = Scene::new(4.0, [0, 3]);
    assert!(scene.pass(25, &[(1, 40)], 0.0, CONTENT).is_empty(), "the fleet is right");
    // A seventh of the last three seconds is lost: as much more is needed, and the reserve.
    let changes = scene.pass(1, &[(1, 60)], 0.34, 0.0);
    assert_eq!((changes.len(), changes[0].reason), (1, Reason::BadRate));
    assert_eq!(scene.fleet, [0, 4], "{:?}", scene.planner.plan());

    // Most of it idles for longer than the windows and pauses of the autoscaler: it goes in its steps.
    let mut scene = Scene::new(4.0, [0, 3]);
    assert!(scene.pass(25, &[(1, 40)], 0.0, CONTENT).is_empty());
    let changes = scene.pass(400, &[(1, 8)], 0.0, 0.8);
    assert!(changes.len() > 1 && changes.iter().all(|change| change.reason == Reason::Idle), "{changes:?}");
    assert_eq!(scene.fleet, [0, 1]);
}

#[test]
fn what_the_budget_does_not_buy_is_not_asked_for_again_and_again() {
    let mut scene = Scene::new(2.0, [2, 0]);
    let sizes = [(1, 30), (10, 30)];
    let _ = scene.pass(20, &sizes, 0.0, CONTENT);
    assert_eq!(scene.fleet, [2, 0], "{:?}", scene.planner.plan());
    let spent = scene.planner.plan().unwrap().clone();
    assert!(!spent.is_enough() && spent.price_per_hour <= 2.0);
    assert_eq!(scene.pass(50, &sizes, 0.5, 0.0), []);
    assert_eq!(scene.planner.plan(), Some(&spent), "it was not ranked anew");
    assert_eq!(scene.second(&sizes, 0.5, 0.0).reason, Reason::BadRate, "what is missing is said");
}

#[test]
fn without_a_choice_nothing_changes_and_the_reason_is_said() {
    let mut scene = Scene::new(0.5, [2, 2]);
    assert_eq!(scene.pass(200, &[(10, 20)], 0.2, 0.0), []);
    let refused = scene.planner.refused().unwrap();
    assert!(refused.contains("budget_per_hour: expected at least 1"), "{refused}");
    let mut unasked = Scene::new(4.0, [2, 2]);
    assert_eq!(unasked.pass(200, &[], 0.0, 1.0), []);
    assert_eq!((unasked.planner.plan(), unasked.planner.refused()), (None, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes, the fleet is within the budget, and no cheaper one is enough.
    #[test]
    fn the_cheapest_fleet_that_is_enough(budget in 1.0..9.0_f64, small in 1..60_u64, large in 0..20_u64) {
        let mut scene = Scene::new(budget, [1, 1]);
        let changes = scene.pass(2000 / (small + large) as u32 + 4, &[(1, small), (10, large)], 0.0, CONTENT);
        let plan = scene.planner.plan().unwrap();
        prop_assert!(changes.len() <= 2 && scene.fleet[..] == plan.counts[..]);
        prop_assert!(plan.price_per_hour <= budget * (1.0 + 1e-6));
        let mut mix = Mix::default();
        mix.count(7, 1, small);
        mix.count(7, 10, large);
        let ranking = symphony_fleet::rank(&problem(budget, &mix).unwrap(), symphony_fleet::Bound::Together).unwrap();
        let needed = (small + large) as f64 / FLEET_MARGIN;
        let enough = ranking.fleets.iter().filter(|fleet| fleet.bound_rps >= needed * (1.0 + 1e-6));
        let cheapest = enough.map(|fleet| fleet.price_per_hour).fold(f64::INFINITY, f64::min);
        prop_assert!(plan.price_per_hour <= cheapest + 1e-9 && (plan.is_enough() || cheapest == f64::INFINITY));
        if cheapest == f64::INFINITY && !plan.is_enough() {
            prop_assert!(plan.bound_rps >= ranking.fleets[0].bound_rps - 1e-6);
        }
    }
}
