//! The public interface.

use std::num::NonZero;

use symphony_simulator::{Error, Goodput, GoodputSearch, RunResult, simulate};
use symphony_workload::Scenario;

use crate::goodputs;
use crate::map::in_parallel;
use crate::progress::Progress;

/// A run to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What is simulated, its own seeds and rate aside.
    pub scenario: &'a Scenario,
    /// Everything random in the run is drawn from it.
    pub seed: u64,
    /// Its total rate in requests per second.
    pub rate_rps: f64,
}

/// Runs a limited number of simulations at a time.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    threads: usize,
}

impl Sweep {
    /// With this many threads, at least one; as many as there are cores if `None`.
    #[must_use]
    pub fn new(threads: Option<usize>) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        Self { threads: threads.unwrap_or_else(cores).max(1) }
    }

    /// The goodput of each scenario in requests per second: the highest total rate at which every model's p99 meets its
    /// SLO in the median of the scenario's seeds.
    ///
    /// # Errors
    /// As [`simulate`]; if several fail, the error of the earliest failed scenario that was found.
    pub fn goodputs(
        &self,
        scenarios: &[Scenario],
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<Vec<f64>, Error> {
        let searches = scenarios.iter().map(GoodputSearch::new).collect();
        let found = goodputs::find_all(scenarios, searches, self.threads, progress)?;
        Ok(found.into_iter().map(|goodput| goodput.rate_rps).collect())
    }

    /// As [`goodputs`](Self::goodputs), and which of some lower rates fail: that takes a third longer.
    ///
    /// # Errors
    /// As [`goodputs`](Self::goodputs).
    pub fn goodputs_and_lower_rates(
        &self,
        scenarios: &[Scenario],
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<Vec<Goodput>, Error> {
        let searches = scenarios.iter().map(|scenario| GoodputSearch::new(scenario).with_lower_rates()).collect();
        goodputs::find_all(scenarios, searches, self.threads, progress)
    }

    /// The result of each run, in the order given.
    ///
    /// # Errors
    /// As [`simulate`]; if several fail, the error of the earliest run.
    pub fn runs(&self, runs: &[Run<'_>], progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<Vec<RunResult>, Error> {
        let results = in_parallel(runs, self.threads, |run| {
            let result = simulate(run.scenario, run.seed, run.rate_rps)?;
            progress(Progress::Ran { scenario: run.scenario, requests: result.simulated_requests });
            Ok(result)
        });
        results.into_iter().collect()
    }

    /// Calls `work` for each item, as many at a time as there are threads; results keep the order of the items. For
    /// experiments that are not runs of a scenario.
    pub fn map<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        in_parallel(items, self.threads, work)
    }
}
