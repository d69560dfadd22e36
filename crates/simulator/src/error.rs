//! Why a run ended without a result. Every message carries the command that repeats it.

use symphony_scheduler::Violation;
use symphony_types::Time;
use symphony_workload::{Arrival, Scenario};

/// A run that must not count: an error of the scheduler or of this host, never of the scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
