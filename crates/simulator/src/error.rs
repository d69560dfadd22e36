//! Why a run ended without a result. Every message carries the command that repeats it.

use symphony_scheduler::Violation;
use symphony_types::Time;
use symphony_workload::{Arrival, Scenario, override_key};

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
    let rate = match &scenario.arrival {
        // A trace brings its own rate.
        Arrival::Trace(trace) => {
            let time_scale = trace.time_scale * scenario.rate_rps / rate_rps;
            format!("workload.arrival.time_scale={time_scale:?}")
        }
        _ => format!("workload.rate_rps={rate_rps:?}"),
    };
    let own = [format!("seeds=[{seed}]"), rate];
    // What the run's own seed and rate replace need not be said.
    let is_replaced = |given: &&String| own.iter().any(|own| override_key(own) == override_key(given));
    let given = scenario.overrides.iter().filter(|given| !is_replaced(given));
    given.chain(&own).fold(format!("symphony sim {}", quoted(&scenario.file)), |command, assignment| {
        format!("{command} --set {}", quoted(assignment))
    })
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
    fn a_command_says_seed_and_rate_once() {
        let scenario = |workload: &str, overrides: &[&str]| {
            let text = format!(
                "name = 'c'\nworkload = {workload}\ngpu = [{{ kind = 'x', count = 1 }}]\n\
                 model = [{{ name = 'm', alpha_ms = 1, beta_ms = 5, slo_ms = 25 }}]"
            );
            let overrides: Vec<_> = overrides.iter().map(|&assignment| assignment.to_owned()).collect();
            Scenario::parse("c.toml", &text, &overrides, &|_| Ok("time_s\n1\n2\n".to_owned())).unwrap()
        };
        let given = ["workload.rate_rps=5", "policy=eager", "seeds=[1, 2]", "warmup_s=0", " workload.rate_rps = 7"];
        assert_eq!(
            replay_command(&scenario("{ rate_rps = 3, arrival = 'poisson' }", &given), 2, 10.5),
            "symphony sim c.toml --set policy=eager --set warmup_s=0 --set 'seeds=[2]' --set workload.rate_rps=10.5"
        );
        let trace = scenario("{ arrival = { trace_csv = 't' } }", &["workload.arrival.time_scale=2"]);
        assert_eq!(
            replay_command(&trace, 1, trace.rate_rps * 4.0),
            "symphony sim c.toml --set 'seeds=[1]' --set workload.arrival.time_scale=0.5"
        );
    }

    #[test]
    fn words_of_a_command_are_quoted_where_the_shell_would_touch_them() {
        assert_eq!(quoted("deploy/scenarios/a.toml"), "deploy/scenarios/a.toml");
        assert_eq!(quoted("policy={ name = 'x' }"), r"'policy={ name = '\''x'\'' }'");
        assert_eq!(quoted(""), "''");
    }
}
