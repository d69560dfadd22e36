//! One run of a scenario: to its end, watched, explained, or until it is certain to fail.

use symphony_explain::Explanation;
use symphony_types::Time;
use symphony_workload::{ArrivalStream, Scenario, arrival_streams, pipeline_streams};

use crate::build_policy::{UsePolicy, build_policy};
use crate::error::{Error, replay_command};
use crate::explained::{Ask, Explained};
use crate::hosted::Hosted;
use crate::policy_facts::PolicyFacts;
use crate::result::RunResult;
use crate::timeline::{Timeline, TimelineRange};
use crate::world::World;

/// The verdict of one trial in a search for goodput.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The p99 of every model's clients and of every pipeline was within its SLO.
    pub passed: bool,
    /// Simulated requests: fewer if failure was certain early.
    pub simulated_requests: u64,
}

/// Builds the scenario's policy for `user`.
fn with_policy<T, U: UsePolicy<Output = Result<T, Error>>>(
    scenario: &Scenario,
    seed: u64,
    rate_rps: f64,
    user: U,
) -> Result<T, Error> {
    let facts = PolicyFacts::new(scenario, seed, rate_rps);
    build_policy(scenario, &facts, user).unwrap_or_else(|error| {
        let command = replay_command(scenario, seed, rate_rps);
        Err(Error::NoPolicy { error, command })
    })
}

/// Runs `scenario` with this seed and total rate (requests per second) to the end.
///
/// # Errors
/// If an invariant is violated or the run is stuck: a defect of the scheduler, with the command that repeats it.
pub fn simulate(scenario: &Scenario, seed: u64, rate_rps: f64) -> Result<RunResult, Error> {
    struct Simulate<'a>(&'a Scenario, u64, f64);
    impl UsePolicy for Simulate<'_> {
        type Output = Result<RunResult, Error>;
        fn with<P: Hosted>(self, policy: P) -> Self::Output {
            let Self(scenario, seed, rate_rps) = self;
            let mut world = World::new(scenario, seed, rate_rps, policy);
            world.run()?;
            Ok(world.into_result())
        }
    }
    with_policy(scenario, seed, rate_rps, Simulate(scenario, seed, rate_rps))
}

/// As [`simulate`], and records the events of GPUs and queues in a range of time.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_timeline(
    scenario: &Scenario,
    seed: u64,
    rate_rps: f64,
    range: TimelineRange,
) -> Result<(RunResult, Timeline), Error> {
    struct Watched<'a>(&'a Scenario, u64, f64, TimelineRange);
    impl UsePolicy for Watched<'_> {
        type Output = Result<(RunResult, Timeline), Error>;
        fn with<P: Hosted>(self, policy: P) -> Self::Output {
            let Self(scenario, seed, rate_rps, range) = self;
            let timeline = Timeline::new(scenario, seed, range);
            let mut world = World::watched(scenario, seed, rate_rps, policy, timeline);
            world.run()?;
            Ok(world.into_parts())
        }
    }
    with_policy(scenario, seed, rate_rps, Watched(scenario, seed, rate_rps, range))
}

/// As [`simulate`], and explains selected requests. Requests that did not arrive, or were undecided at the end of the
/// run, are left out.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_explained(
    scenario: &Scenario,
    seed: u64,
    rate_rps: f64,
    ask: Ask,
) -> Result<(RunResult, Vec<Explanation>), Error> {
    struct Explain<'a>(&'a Scenario, u64, f64, Ask);
    impl UsePolicy for Explain<'_> {
        type Output = Result<(RunResult, Vec<Explanation>), Error>;
        fn with<P: Hosted>(self, policy: P) -> Self::Output {
            let Self(scenario, seed, rate_rps, ask) = self;
            let mut world = World::watched(scenario, seed, rate_rps, policy, Explained::new(scenario, ask));
            world.run()?;
            let (result, explained) = world.into_parts();
            Ok((result, explained.explain()))
        }
    }
    with_policy(scenario, seed, rate_rps, Explain(scenario, seed, rate_rps, ask))
}

/// Whether the p99 of every model's clients and of every pipeline meets its SLO at this rate. Ends as soon as failure
/// is certain.
///
/// # Errors
/// As [`simulate`].
pub fn meets_slo(scenario: &Scenario, seed: u64, rate_rps: f64) -> Result<Verdict, Error> {
    struct MeetsSlo<'a>(&'a Scenario, u64, f64);
    impl UsePolicy for MeetsSlo<'_> {
        type Output = Result<Verdict, Error>;
        fn with<P: Hosted>(self, policy: P) -> Self::Output {
            let Self(scenario, seed, rate_rps) = self;
            let mut world = World::new(scenario, seed, rate_rps, policy);
            world.offered = Some(offered(scenario, seed, rate_rps));
            world.run()?;
            let passed = !world.failed && world.tally.meets_slo();
            Ok(Verdict { passed, simulated_requests: world.tally.simulated() })
        }
    }
    with_policy(scenario, seed, rate_rps, MeetsSlo(scenario, seed, rate_rps))
}

/// The number of counted requests per model and then per pipeline. Arrivals do not depend on the scheduler, so it is
/// known in advance.
fn offered(scenario: &Scenario, seed: u64, rate_rps: f64) -> Vec<u64> {
    let from = Time::ZERO + scenario.warmup;
    let until = from + scenario.duration;
    let count = |mut stream: ArrivalStream| {
        let arrivals = std::iter::from_fn(move || stream.next_arrival());
        arrivals.take_while(|&at| at < until).filter(|&at| at >= from).count() as u64
    };
    let of_models = arrival_streams(scenario, seed, rate_rps).into_iter();
    of_models.chain(pipeline_streams(scenario, seed, rate_rps)).map(count).collect()
}
