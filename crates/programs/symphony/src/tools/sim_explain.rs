//! `symphony sim --explain`: the outcome of selected requests of a run, and the reasons.

use serde::Serialize;
use symphony_explain::Explanation;
use symphony_simulator::{Ask, SimulationResult, simulate_explained};
use symphony_types::RequestId;
use symphony_workload::Scenario;

use crate::cli::SimArgs;
use crate::exit::bad_input;

/// The requests to explain, validated before the simulation starts.
pub(crate) fn ask(args: &SimArgs) -> anyhow::Result<Option<Ask>> {
    if let Some(count) = args.explain_worst {
        return Ok(Some(Ask::Worst(count.into())));
    }
    let sequence = |text: &String| {
        let number = text.parse().or_else(|_| text.parse::<RequestId>().map(|id| id.sequence));
        number.map_err(|_| {
            bad_input(format!("--explain: expected the number of an arrival or an id as in f0/1/17, got `{text}`"))
        })
    };
    let sequences: Vec<u64> = args.explain.iter().map(sequence).collect::<Result<_, _>>()?;
    Ok((!sequences.is_empty()).then_some(Ask::Requests(sequences)))
}

/// Repeats the first seed's run and explains. `None` if no explanation was requested.
///
/// # Errors
/// If a named request did not arrive, or was not decided, in that run.
pub(crate) fn explain(ask: Option<Ask>, scenario: &Scenario, rate_rps: f64) -> anyhow::Result<Vec<Explanation>> {
    let (Some(ask), Some(&seed)) = (ask, scenario.seeds.first()) else { return Ok(Vec::new()) };
    let (_, explanations) = simulate_explained(scenario, seed, rate_rps, ask.clone())?;
    if let Ask::Requests(wanted) = ask {
        for sequence in wanted {
            let named = |id: &str| id.parse().is_ok_and(|id: RequestId| id.sequence == sequence);
            if !explanations.iter().any(|explanation| explanation.request.as_deref().is_some_and(named)) {
                anyhow::bail!("request {sequence} was not decided in the run of seed {seed}: too few requests arrived");
            }
        }
    }
    Ok(explanations)
}

/// For people.
pub(crate) fn show(explanations: &[Explanation]) {
    for explanation in explanations {
        print!("\n{explanation}");
    }
}

/// The result of the simulation with the explanations after it, if there are any.
#[derive(Serialize)]
struct Explained<'a> {
    #[serde(flatten)]
    result: &'a SimulationResult,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    explanations: &'a [Explanation],
}

/// For programs.
pub(crate) fn to_json(result: &SimulationResult, explanations: &[Explanation]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&Explained { result, explanations })
}
