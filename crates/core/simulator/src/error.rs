//! Why a run has no result. Every message contains the command that repeats the run.

use symphony_scheduler::{PolicyFault, RegistryError, Violation};
use symphony_types::Time;
use symphony_workload::{Arrival, Scenario, override_key};

use crate::goodput::GoodputSearch;
use crate::open_requests::OPEN_SPAN_MAX;
use crate::preflight::{RateLimit, rate_limit};

/// An invalid run: a defect of the scheduler or of this host, or a search without an answer for its scenario.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// An invariant is violated.
    #[error("{violation} (at {now}, seed {seed}; to repeat: {command})")]
    Violation {
        /// The invariant and the values.
        violation: Violation,
        /// Virtual time.
        now: Time,
        /// The seed of the run.
        seed: u64,
        /// The command that repeats it.
        command: String,
    },
    /// A policy that the program added is at fault: it panicked, did not stop ordering, or broke an invariant.
    #[error("{fault} (at {now}, seed {seed}; to repeat: {command})")]
    Policy {
        /// What it did.
        fault: PolicyFault,
        /// Virtual time.
        now: Time,
        /// The seed of the run.
        seed: u64,
        /// The command that repeats it.
        command: String,
    },
    /// The scenario's policy cannot be built.
    #[error("{error} (to repeat: {command})")]
    NoPolicy {
        /// The reason that the registry gave.
        error: RegistryError,
        /// The command that repeats it.
        command: String,
    },
    /// Requests wait and no event is due.
    #[error("the run is stuck: {what} (at {now}, seed {seed}; to repeat: {command})")]
    Stuck {
        /// The observation.
        what: String,
        /// Virtual time.
        now: Time,
        /// The seed of the run.
        seed: u64,
        /// The command that repeats it.
        command: String,
    },
    /// More requests arrived within a deadline than the simulator keeps: a burst, which the mean rate does not show.
    #[error(
        "{OPEN_SPAN_MAX} requests (OPEN_SPAN_MAX) arrived within the deadline of one that is still open; expected a \
         lower rate, or shorter deadlines (at {now}, seed {seed}; to repeat: {command})"
    )]
    TooManyOpen {
        /// Virtual time.
        now: Time,
        /// The seed of the run.
        seed: u64,
        /// The command that repeats it.
        command: String,
    },
    /// A search for goodput reached a limit of the simulator before a rate that is too high.
    #[error(
        "no goodput: every SLO is still met at {rate_rps:.0} r/s, and the simulator runs {limit} (to repeat: {command})"
    )]
    AboveLimit {
        /// The highest rate that was tried, in requests per second.
        rate_rps: f64,
        /// What kept it from trying a higher rate.
        limit: RateLimit,
        /// The command that repeats it.
        command: String,
    },
    /// A search for goodput found no rate that is too high.
    #[error(
        "no goodput: at {rate_rps:.0} r/s, {times:.0} times what these GPUs can do, every SLO is still met, so too little arrives in the \
         counted time; {why} (to repeat: {command})"
    )]
    NeverTooMuch {
        /// The highest rate that was tried, in requests per second.
        rate_rps: f64,
        /// As a multiple of the fluid bound.
        times: f64,
        /// Why the load stays too low.
        why: String,
        /// The command that repeats it.
        command: String,
    },
}

impl Error {
    /// The error of a search that ended without a rate that is too high; `None` if it found one or continues.
    #[must_use]
    pub fn never_too_much(scenario: &Scenario, search: &GoodputSearch) -> Option<Self> {
        let (rate_rps, times) = search.never_failed()?;
        let seed = scenario.seeds.first().copied().unwrap_or_default();
        let command = replay_command(scenario, seed, rate_rps);
        let limit = rate_limit(scenario);
        if rate_rps >= limit.rate_rps {
            return Some(Self::AboveLimit { rate_rps, limit, command });
        }
        let warmup_s = scenario.warmup.as_secs_f64();
        let why = match &scenario.arrival {
            Arrival::Trace(trace) => {
                let lasts_s = trace.lasts_s() * scenario.rate_rps / rate_rps;
                format!("played at this rate the trace lasts {lasts_s:.6} s, and the warm-up {warmup_s} s")
            }
            _ => format!("is the rate profile at zero after the warm-up of {warmup_s} s?"),
        };
        Some(Self::NeverTooMuch { rate_rps, times, why, command })
    }
}

/// The command line that repeats one run.
pub(crate) fn replay_command(scenario: &Scenario, seed: u64, rate_rps: f64) -> String {
    let rate = match &scenario.arrival {
        // A trace has its own rate.
        Arrival::Trace(trace) => {
            let time_scale = trace.time_scale * scenario.rate_rps / rate_rps;
            format!("workload.arrival.time_scale={time_scale:?}")
        }
        _ => format!("workload.rate_rps={rate_rps:?}"),
    };
    let own = [format!("seeds=[{seed}]"), rate];
    // Options that are overridden by the run's own seed and rate are left out.
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
