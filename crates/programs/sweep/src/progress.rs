//! The progress that a sweep reports to its caller.

use symphony_simulator::Trial;
use symphony_workload::Scenario;

/// Something that has just ended; reported on the thread that did it, in no particular order.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A trial of a search.
    Trial {
        /// The search's scenario.
        scenario: &'a Scenario,
        /// Rate and seed.
        trial: Trial,
        /// Every model's p99 met its SLO.
        passed: bool,
        /// Requests simulated.
        requests: u64,
    },
    /// A search.
    Found {
        /// The scenario whose goodput was sought.
        scenario: &'a Scenario,
        /// In requests per second.
        goodput_rps: f64,
    },
    /// A run.
    Ran {
        /// The scenario that was simulated.
        scenario: &'a Scenario,
        /// Requests simulated.
        requests: u64,
    },
}
