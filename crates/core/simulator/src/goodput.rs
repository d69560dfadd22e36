//! The search for goodput as a state machine: it requests runs and takes their verdicts.

use symphony_workload::Scenario;

use crate::capacity::fluid_bound_rps;
use crate::preflight::rate_limit;

/// The search ends when the lowest failing rate is within this share of the highest passing one.
pub const GOODPUT_RESOLUTION: f64 = 0.005;
/// The first rate, as a share of the fluid bound: good policies reach 85 to 100 %.
const FIRST_SHARE: f64 = 0.92;
/// The first step up from there; each further step is twice as long.
const FIRST_MOVE: f64 = 0.04;
/// The step down. Verdicts are not monotone: with noisy executions or bursts a policy may fail at a low rate and pass
/// at a higher one, and long steps down would skip the passing ones.
const MOVE_DOWN: f64 = 0.05;
/// Shares of the goodput at which lower rates are tried where that is asked for.
const TRIED_BELOW: [f64; 3] = [0.75, 0.5, 0.25];
/// Below this share of the fluid bound the goodput counts as zero.
const LEAST_SHARE: f64 = 1e-3;
/// No policy exceeds the bound by this factor, but a trace that is played ever faster may end before it overloads the
/// GPUs. The search then ends upwards, without a verdict.
const MOST_SHARE: f64 = 16.0;
/// The depth of speculation if there are more threads than needed trials: 2³ rates keep as many threads busy.
const GUESSES_AHEAD_MAX: u32 = 3;

/// A run that the search requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Total rate in requests per second.
    pub rate_rps: f64,
    /// Everything random in the run is drawn from it.
    pub seed: u64,
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Goodput {
    /// The highest total rate at which every model's p99 meets its SLO, in requests per second; zero if that fails at
    /// any relevant rate.
    pub rate_rps: f64,
    /// Lower rates that were tried and fail, in descending order: then only some rates up to the goodput pass.
    pub fails_below_rps: Vec<f64>,
}

/// Finds the highest total rate at which every model's p99 meets its SLO for the majority of seeds: bracketing and
/// bisection, then some lower rates if they are asked for. The caller runs the trials in any order on any number of
/// threads, including speculative ones; the result depends on the verdicts alone.
#[derive(Clone, Debug)]
pub struct GoodputSearch {
    seeds: Vec<u64>,
    bound_rps: f64,
    /// The largest rate to try.
    most_rps: f64,
    /// The current rate.
    rate_rps: f64,
    /// Verdicts at that rate, by seed index.
    verdicts: Vec<Option<bool>>,
    /// Verdicts of speculative trials at other rates.
    ahead: Vec<(Trial, bool)>,
    /// The highest rate that passed.
    passed_rps: Option<f64>,
    /// The lowest rate that failed.
    failed_rps: Option<f64>,
    step: f64,
    /// Shares of the goodput at which lower rates are tried.
    tried_below: &'static [f64],
    /// The goodput, once found; lower rates may still be tried.
    found_rps: Option<f64>,
    /// Rates below the goodput that fail, the highest first.
    fails_below: Vec<f64>,
    goodput_rps: Option<f64>,
}

impl GoodputSearch {
    /// A search that starts from the fluid bound of the scenario.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        Self::from_bound(scenario.seeds.clone(), fluid_bound_rps(scenario), rate_limit(scenario).rate_rps)
    }

    fn from_bound(seeds: Vec<u64>, bound_rps: f64, limit_rps: f64) -> Self {
        // Without seeds there are no trials, and without a bound there is no goodput.
        let goodput_rps = (seeds.is_empty() || bound_rps <= 0.0).then_some(0.0);
        Self {
            verdicts: vec![None; seeds.len()],
            ahead: Vec::new(),
            seeds,
            bound_rps,
            most_rps: (bound_rps * MOST_SHARE).min(limit_rps),
            rate_rps: (bound_rps * FIRST_SHARE).min(limit_rps),
            passed_rps: None,
            failed_rps: None,
            step: FIRST_MOVE,
            tried_below: &[],
            found_rps: None,
            fails_below: Vec::new(),
            goodput_rps,
        }
    }

    /// The same search, which also tries some lower rates once it has found the goodput.
    #[must_use]
    pub fn with_lower_rates(self) -> Self {
        Self { tried_below: &TRIED_BELOW, ..self }
    }

    /// The goodput in requests per second once found; zero if no relevant rate passes.
    #[must_use]
    pub fn goodput_rps(&self) -> Option<f64> {
        self.goodput_rps
    }

    /// The goodput once found, with those lower rates that were tried and fail.
    #[must_use]
    pub fn goodput(&self) -> Option<Goodput> {
        self.goodput_rps.map(|rate_rps| Goodput { rate_rps, fails_below_rps: self.fails_below.clone() })
    }

    /// If the search ended upwards: the highest tried rate, in requests per second and as a multiple of the fluid
    /// bound. It is then no goodput: no rate was too high, so hardly any request was counted.
    #[must_use]
    pub fn never_failed(&self) -> Option<(f64, f64)> {
        let passed = self.goodput_rps.filter(|&found| found > 0.0 && self.failed_rps.is_none())?;
        Some((passed, passed / self.bound_rps))
    }

    /// The runs that the next decision requires; empty when the search is over. With several seeds the majority
    /// decides, so that agreeing seeds save the runs of the others.
    #[must_use]
    pub fn needed(&self) -> Vec<Trial> {
        if self.goodput_rps.is_some() {
            return Vec::new();
        }
        let missing_to_pass = self.majority() - self.count(true);
        let missing_to_fail = self.seeds.len() + 1 - self.majority() - self.count(false);
        let unknown = self.seeds.iter().zip(&self.verdicts).filter(|(_, verdict)| verdict.is_none());
        let trials = unknown.map(|(&seed, _)| Trial { rate_rps: self.rate_rps, seed });
        trials.take(missing_to_pass.min(missing_to_fail)).collect()
    }

    /// The most useful trial beside those that are `running`: a required one, or else one at a rate that follows if the
    /// running trials pass or fail. `None` if no trial is useful.
    #[must_use]
    pub fn wanted(&self, running: &[Trial]) -> Option<Trial> {
        let mut futures = vec![self.clone()];
        for _ in 0..=GUESSES_AHEAD_MAX {
            for future in &futures {
                let found = future.needed().into_iter().find(|trial| !running.contains(trial));
                if found.is_some() {
                    return found;
                }
            }
            futures = futures.iter().flat_map(|future| [true, false].map(|passed| future.guess(passed))).collect();
        }
        None
    }

    /// The search as if every open verdict at this rate were this one.
    fn guess(&self, passed: bool) -> Self {
        let mut future = self.clone();
        if future.goodput_rps.is_none() {
            future.verdicts.fill(Some(passed));
            future.decide();
        }
        future
    }

    /// Takes the verdict of a trial: whether every model's p99 met its SLO. Verdicts at later rates are kept until
    /// needed.
    pub fn record(&mut self, trial: Trial, passed: bool) {
        if self.goodput_rps.is_none() && !self.ahead.iter().any(|(known, _)| *known == trial) {
            self.ahead.push((trial, passed));
            self.decide();
        }
    }

    /// Decides as far as the verdicts allow.
    fn decide(&mut self) {
        while self.goodput_rps.is_none() {
            for (seed, verdict) in self.seeds.iter().zip(&mut self.verdicts) {
                let known = self.ahead.iter().find(|(t, _)| t.rate_rps == self.rate_rps && t.seed == *seed);
                *verdict = verdict.or(known.map(|&(_, passed)| passed));
            }
            let passed = self.count(true) >= self.majority();
            if !passed && self.count(false) <= self.seeds.len() - self.majority() {
                return;
            }
            self.verdicts.fill(None);
            match self.found_rps {
                Some(found) => self.try_below(found, passed),
                None if passed => self.advance(Some(self.rate_rps), self.failed_rps),
                None => self.advance(self.passed_rps, Some(self.rate_rps)),
            }
        }
    }

    /// The number of seeds that must pass: a majority.
    fn majority(&self) -> usize {
        self.seeds.len() / 2 + 1
    }

    fn count(&self, passed: bool) -> usize {
        self.verdicts.iter().filter(|&&verdict| verdict == Some(passed)).count()
    }

    /// Chooses the next rate, or finds the goodput.
    fn advance(&mut self, passed: Option<f64>, failed: Option<f64>) {
        (self.passed_rps, self.failed_rps) = (passed, failed);
        let least_rps = self.bound_rps * LEAST_SHARE;
        match (passed, failed) {
            (Some(passed), Some(failed)) if failed <= passed * (1.0 + GOODPUT_RESOLUTION) => self.find(passed),
            (Some(passed), Some(failed)) => self.rate_rps = f64::midpoint(passed, failed),
            (Some(passed), None) if passed >= self.most_rps => self.find(passed),
            (Some(passed), None) => {
                self.rate_rps = (passed * (1.0 + self.step)).min(self.most_rps);
                self.step = (self.step * 2.0).min(0.5);
            }
            (None, Some(failed)) if failed <= least_rps => self.goodput_rps = Some(0.0),
            (None, Some(failed)) => self.rate_rps = failed * (1.0 - MOVE_DOWN),
            (None, None) => {}
        }
    }

    fn find(&mut self, goodput_rps: f64) {
        self.found_rps = Some(goodput_rps);
        self.go_below(goodput_rps, goodput_rps);
    }

    /// Takes the verdict at a rate below the goodput.
    fn try_below(&mut self, found_rps: f64, passed: bool) {
        if !passed {
            self.fails_below.push(self.rate_rps);
        }
        self.go_below(found_rps, self.rate_rps);
    }

    /// Chooses the next lower rate; without one the search is over.
    fn go_below(&mut self, found_rps: f64, last_rps: f64) {
        match self.tried_below.iter().map(|share| share * found_rps).find(|&rate_rps| rate_rps < last_rps) {
            Some(rate_rps) => self.rate_rps = rate_rps,
            None => self.goodput_rps = Some(found_rps),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use symphony_workload::RATE_RPS_MAX;

    use super::*;

    /// Runs the search with seeds that each pass up to a rate; returns the result and the number of runs.
    fn search(limits: &[f64], bound_rps: f64) -> (f64, usize) {
        let seeds: Vec<u64> = (0..limits.len() as u64).collect();
        let mut search = GoodputSearch::from_bound(seeds, bound_rps, RATE_RPS_MAX);
        let mut runs = 0;
        while search.goodput_rps().is_none() {
            let needed = search.needed();
            assert!(!needed.is_empty(), "a search that is not over needs something");
            for trial in needed {
                runs += 1;
                search.record(trial, trial.rate_rps <= limits[trial.seed as usize]);
            }
        }
        assert!(search.needed().is_empty());
        (search.goodput_rps().unwrap(), runs)
    }

    #[test]
    fn agreeing_seeds_spare_the_last_one_its_runs() {
        let (found, runs) = search(&[900.0, 900.0, 900.0], 1000.0);
        assert!((895.0..=900.0).contains(&found), "{found}");
        assert!(runs <= 14, "{runs} runs");
    }

    /// As `search`, with this many concurrent trials that end in a shuffled order.
    fn search_ahead(limits: &[f64], bound_rps: f64, threads: usize) -> (f64, usize) {
        let seeds: Vec<u64> = (0..limits.len() as u64).collect();
        let mut search = GoodputSearch::from_bound(seeds, bound_rps, RATE_RPS_MAX);
        let (mut running, mut turns) = (Vec::new(), 0);
        while search.goodput_rps().is_none() {
            while running.len() < threads
                && let Some(trial) = search.wanted(&running)
            {
                assert!(!running.contains(&trial));
                running.push(trial);
            }
            turns += 1;
            // Trials of a group end together; the last one started is reported first.
            for trial in running.drain(..).rev() {
                search.record(trial, trial.rate_rps <= limits[trial.seed as usize]);
            }
        }
        assert_eq!(search.wanted(&[]), None);
        (search.goodput_rps().unwrap(), turns)
    }

    #[test]
    fn more_threads_need_fewer_turns_for_the_same_answer() {
        let limits = [900.0, 950.0, 1010.0];
        let (alone, runs) = search(&limits, 1000.0);
        let turns = [1, 2, 4, 8, 16].map(|threads| {
            let (found, turns) = search_ahead(&limits, 1000.0, threads);
            assert_eq!(found, alone, "{threads} threads");
            turns
        });
        assert_eq!(turns[0], runs);
        assert!(turns.is_sorted_by(|a, b| a >= b) && turns[4] * 3 < turns[0], "{turns:?}");
    }

    #[test]
    fn nothing_served_is_zero_and_verdicts_of_strangers_are_ignored() {
        assert_eq!(search(&[0.0], 1000.0).0, 0.0);
        assert_eq!(search(&[], 1000.0).0, 0.0);
        assert_eq!(search(&[5.0], 0.0).0, 0.0);
        assert_eq!(GoodputSearch::from_bound(vec![1], 0.0, RATE_RPS_MAX).never_failed(), None);
        let mut search = GoodputSearch::from_bound(vec![1], 1000.0, RATE_RPS_MAX);
        let before = search.needed();
        search.record(Trial { rate_rps: 1.0, seed: 1 }, true);
        search.record(Trial { seed: 2, ..before[0] }, true);
        assert_eq!(search.needed(), before);
    }

    #[test]
    fn a_rate_that_passes_is_found_above_those_that_fail() {
        // As with noise: it fails at low load, and passes in a band that long steps down would miss.
        let passes = |rate_rps: f64| (700.0..=800.0).contains(&rate_rps) || rate_rps <= 250.0;
        let found = |mut search: GoodputSearch| {
            while let Some(&trial) = search.needed().first() {
                search.record(trial, passes(trial.rate_rps));
            }
            search.goodput().unwrap()
        };
        let search = GoodputSearch::from_bound(vec![1], 1000.0, RATE_RPS_MAX);
        let Goodput { rate_rps, fails_below_rps } = found(search.clone());
        assert!((795.0..=800.0).contains(&rate_rps) && fails_below_rps.is_empty(), "{rate_rps}, {fails_below_rps:?}");
        let fails_below_rps = vec![rate_rps * 0.75, rate_rps * 0.5];
        assert_eq!(found(search.with_lower_rates()), Goodput { rate_rps, fails_below_rps });
    }

    #[test]
    fn no_rate_above_the_limit_is_tried() {
        for limit_rps in [50.0, 300.0] {
            let mut search = GoodputSearch::from_bound(vec![1], 100.0, limit_rps);
            while let Some(&trial) = search.needed().first() {
                assert!(trial.rate_rps <= limit_rps, "{trial:?}");
                search.record(trial, true);
            }
            assert_eq!(search.never_failed().map(|(rate_rps, _)| rate_rps), Some(limit_rps));
        }
    }

    #[test]
    fn what_passes_everywhere_is_told_from_a_goodput() {
        let through = |limit: f64| {
            let mut search = GoodputSearch::from_bound(vec![1], 100.0, RATE_RPS_MAX);
            while let Some(&trial) = search.needed().first() {
                search.record(trial, trial.rate_rps <= limit);
            }
            search
        };
        assert_eq!(through(1e9).never_failed(), Some((1600.0, 16.0)));
        assert_eq!(through(1599.0).never_failed(), None);
        assert_eq!(through(0.0).never_failed(), None);
    }

    proptest! {
        #[test]
        fn the_median_is_found_within_one_percent(
            limits in prop::collection::vec(5.0..3000.0_f64, 1..6), bound_rps in 300.0..4000.0_f64,
        ) {
            let mut sorted = limits.clone();
            sorted.sort_by(f64::total_cmp);
            let median = sorted[(sorted.len() - 1) / 2];
            let (found, _) = search(&limits, bound_rps);
            prop_assert_eq!(search_ahead(&limits, bound_rps, 5).0, found);
            prop_assert!(found <= median && median <= found * 1.01, "{found} for {median}");
        }
    }
}
