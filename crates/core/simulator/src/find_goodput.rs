//! The whole search for goodput.

use symphony_workload::Scenario;

use crate::error::Error;
use crate::goodput::GoodputSearch;
use crate::simulate::meets_slo;

/// The whole search, one run after another.
///
/// # Errors
/// As [`simulate`](crate::simulate()), and if no rate is too high.
pub fn find_goodput(scenario: &Scenario) -> Result<f64, Error> {
    let mut search = GoodputSearch::new(scenario);
    loop {
        if let Some(goodput_rps) = search.goodput_rps() {
            return Error::never_too_much(scenario, &search).map_or(Ok(goodput_rps), Err);
        }
        for trial in search.needed() {
            let verdict = meets_slo(scenario, trial.seed, trial.rate_rps)?;
            search.record(trial, verdict.passed);
        }
    }
}
