//! Why a run ended without a result. Every message carries the command that repeats it.

use symphony_scheduler::Violation;
use symphony_types::Time;
use symphony_workload::{Arrival, Scenario};

use crate::goodput::GoodputSearch;

/// A run that must not count: an error of the scheduler or of this host, or a search that its scenario cannot answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// An invariant does not hold.
    #[error("{violation} (at {now}, seed {seed}; to repeat: {command})")]
    Violation {
        /// Which one, and how.
        violation: Violation,
        /// Virtual time.
        now: Time,
        /// The seed of the run.
        seed: u64,
        /// The command that shows it again.
        command: String,
    },
    /// Requests wait and nothing moves.
    #[error("the run is stuck: {what} (at {now}, seed {seed}; to repeat: {command})")]
    Stuck {
        /// What was seen.
        what: String,
        /// Virtual time.
        now: Time,
        /// The seed of the run.
        seed: u64,
        /// The command that shows it again.
        command: String,
    },
    /// A search for goodput found no rate that is too high.
    #[error(
        "no goodput: at {rate_rps:.0} r/s, {times:.0} times what these GPUs can do, every SLO is still met, so too little arrives in the \
         counted time. Is the trace over, or the rate profile at zero, before the warm-up ends? (to repeat: {command})"
    )]
    NeverTooMuch {
        /// The highest rate that was tried, in requests per second.
        rate_rps: f64,
        /// As a multiple of the fluid bound.
        times: f64,
        /// The command that shows it again.
        command: String,
    },
}

impl Error {
    /// What a search says that ended without a rate that is too high; none if it found one, or is not over.
    #[must_use]
    pub fn never_too_much(scenario: &Scenario, search: &GoodputSearch) -> Option<Self> {
        let (rate_rps, times) = search.never_failed()?;
        let seed = scenario.seeds.first().copied().unwrap_or_default();
        Some(Self::NeverTooMuch { rate_rps, times, command: replay_command(scenario, seed, rate_rps) })
    }
}

/// The command line that repeats one run.
pub(crate) fn replay_command(scenario: &Scenario, seed: u64, rate_rps: f64) -> String {
    let mut command = format!("symphony sim {}", quoted(&scenario.file));
    for assignment in &scenario.overrides {
        command += &format!(" --set {}", quoted(assignment));
    }
    command += &format!(" --set 'seeds=[{seed}]'");
    match &scenario.arrival {
        // A trace brings its own rate.
        Arrival::Trace(trace) => {
            let time_scale = trace.time_scale * scenario.rate_rps / rate_rps;
            command + &format!(" --set workload.arrival.time_scale={time_scale:?}")
        }
        _ => command + &format!(" --set workload.rate_rps={rate_rps:?}"),
    }
}

/// `text` as one word of a POSIX shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=,:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_command_are_quoted_where_the_shell_would_touch_them() {
        assert_eq!(quoted("deploy/scenarios/a.toml"), "deploy/scenarios/a.toml");
        assert_eq!(quoted("policy={ name = 'x' }"), r"'policy={ name = '\''x'\'' }'");
        assert_eq!(quoted(""), "''");
    }
}
