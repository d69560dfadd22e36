//! `symphony plan fleet`: how many GPUs of which kind, within a budget.

use std::path::Path;
use std::time::Instant;

use serde_json::{Map, Value, json};
use symphony_fleet::{Bound, Evaluator, FleetProblem, Found, RankError, RankedFleet, Ranking, Trial, rank, search};
use symphony_policy::PolicySpec;
use symphony_scheduler::PolicyRegistry;
use symphony_sweep::Sweep;

use crate::cli::{FleetArgs, FleetBound, Output};
use crate::exit::bad_input;
use crate::inspect::table;

/// Fleets in the table; JSON has all.
const FLEETS_SHOWN: usize = 10;
/// Requests of a simulated run at the highest bound: of 20 000 two hundred may be late, which settles a p99.
const REQUESTS: f64 = 20_000.0;
/// The shortest and the longest simulated run, in seconds: of slow models fewer requests must do.
const DURATION_S: (f64, f64) = (5.0, 600.0);
/// Seeds of a simulated run; the median counts.
const SEEDS: [u64; 3] = [1, 2, 3];

pub(crate) fn run(args: &FleetArgs, policies: &PolicyRegistry) -> anyhow::Result<()> {
    let problem = read(&args.problem)?;
    let policy =
        policies.parse(&args.policy).map_err(|error| bad_input(format!("--policy {}: {error}", args.policy)))?;
    let began = Instant::now();
    let bound = bound(args, &problem, &policy);
    let ranking = rank(&problem, bound).map_err(|error| refused(args, &problem, &error))?;
    let found = if args.evaluate { Some(evaluate(args, &problem, &ranking, policies)?) } else { None };
    let seconds = began.elapsed().as_secs_f64();
    let best = found.as_ref().and_then(|found| Some(&ranking.fleets[found.evaluations[found.best?].place]));
    let chosen = match &found {
        None => ranking.chosen(),
        Some(_) => best.ok_or_else(|| {
            anyhow::anyhow!("no fleet that was simulated met the SLO at any rate with policy {}", args.policy)
        })?,
    };
    match args.output {
        Output::Json => {
            let whole = to_json(args, &problem, &ranking, chosen, found.as_ref(), seconds);
            println!("{}", serde_json::to_string_pretty(&whole)?);
        }
        Output::Table => show(args, &problem, &ranking, chosen, found.as_ref(), seconds),
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<FleetProblem> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| bad_input(format!("{file}: {error}")))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let read_csv = |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|error| error.to_string());
    FleetProblem::parse(&file, &text, &read_csv).map_err(bad_input)
}

/// By default one that holds for the policy: whether an added policy merges requests is not known.
fn bound(args: &FleetArgs, problem: &FleetProblem, policy: &PolicySpec) -> Bound {
    match args.bound {
        Some(FleetBound::Kairos) => Bound::Kairos,
        Some(FleetBound::Alone) => Bound::Alone,
        Some(FleetBound::Together) => Bound::Together,
        None if problem.models.len() > 1 => Bound::Together,
        None if args.evaluate && policy.merges() => Bound::Together,
        None => Bound::Kairos,
    }
}

fn refused(args: &FleetArgs, problem: &FleetProblem, error: &RankError) -> anyhow::Error {
    match error {
        RankError::NotForKairos => bad_input(format!("--bound kairos: expected {error}")),
        _ => {
            let (file, got) = (args.problem.display(), problem.budget_per_hour);
            bad_input(format!("{file}: key `budget_per_hour`: expected {error}, got {got}"))
        }
    }
}

/// Simulates a fleet.
struct Simulated<'a> {
    problem: &'a FleetProblem,
    trial: Trial,
    policies: &'a PolicyRegistry,
    sweep: Sweep,
}

impl Evaluator for Simulated<'_> {
    type Error = anyhow::Error;

    fn rate_rps(&mut self, counts: &[u32]) -> anyhow::Result<f64> {
        let scenario = self.problem.scenario_among(counts, &self.trial, self.policies).map_err(bad_input)?;
        let goodputs = self.sweep.goodputs(std::slice::from_ref(&scenario), &|_| {})?;
        Ok(goodputs.first().copied().unwrap_or_default())
    }
}

fn evaluate(
    args: &FleetArgs,
    problem: &FleetProblem,
    ranking: &Ranking,
    policies: &PolicyRegistry,
) -> anyhow::Result<Found> {
    let highest_rps = ranking.fleets.first().map_or(0.0, |fleet| fleet.bound_rps).max(1e-9);
    let trial = Trial {
        policy: args.policy.clone(),
        duration_s: (REQUESTS / highest_rps).clamp(DURATION_S.0, DURATION_S.1),
        seeds: SEEDS.to_vec(),
        arrival: "\"poisson\"".to_owned(),
        more: String::new(),
    };
    let mut simulated = Simulated { problem, trial, policies, sweep: Sweep::new(None) };
    search(ranking, &mut simulated, args.evaluations_max as usize)
}

/// Counts by kind.
fn counts(problem: &FleetProblem, fleet: &RankedFleet) -> Value {
    let each = problem.kinds.iter().zip(&fleet.counts).map(|(kind, count)| (kind.name.clone(), json!(count)));
    Value::Object(each.collect::<Map<_, _>>())
}

fn fleet_json(problem: &FleetProblem, fleet: &RankedFleet) -> Value {
    let RankedFleet { price_per_hour, bound_rps, .. } = fleet;
    json!({ "counts": counts(problem, fleet), "price_per_hour": price_per_hour, "bound_rps": bound_rps })
}

fn to_json(
    args: &FleetArgs,
    problem: &FleetProblem,
    ranking: &Ranking,
    chosen: &RankedFleet,
    found: Option<&Found>,
    seconds: f64,
) -> Value {
    let mut whole = fleet_json(problem, chosen);
    whole["ranking"] = ranking.fleets.iter().map(|fleet| fleet_json(problem, fleet)).collect();
    whole["seconds"] = json!(seconds);
    if let Some(found) = found {
        let evaluations = found.evaluations.iter().map(|evaluation| {
            let mut fleet = fleet_json(problem, &ranking.fleets[evaluation.place]);
            fleet["goodput_rps"] = json!(evaluation.rate_rps);
            fleet
        });
        whole["evaluations"] = evaluations.collect();
        whole["goodput_rps"] = json!(found.best.map(|best| found.evaluations[best].rate_rps));
        whole["complete"] = json!(found.complete);
        whole["policy"] = json!(args.policy);
    }
    whole
}

fn show(
    args: &FleetArgs,
    problem: &FleetProblem,
    ranking: &Ranking,
    chosen: &RankedFleet,
    found: Option<&Found>,
    seconds: f64,
) {
    let mut header: Vec<&str> = problem.kinds.iter().map(|kind| kind.name.as_str()).collect();
    header.extend(["PRICE/H", "BOUND R/S", "GOODPUT R/S", ""]);
    let goodput = |place: usize| {
        let evaluation = found?.evaluations.iter().find(|evaluation| evaluation.place == place)?;
        Some(format!("{:.1}", evaluation.rate_rps))
    };
    let row = |(place, fleet): (usize, &RankedFleet)| {
        let mut row: Vec<String> = fleet.counts.iter().map(ToString::to_string).collect();
        row.push(format!("{:.4}", fleet.price_per_hour));
        row.push(format!("{:.1}", fleet.bound_rps));
        row.push(goodput(place).unwrap_or_else(|| "-".to_owned()));
        row.push(if fleet == chosen { "chosen".to_owned() } else { String::new() });
        row
    };
    let is_shown = |(place, fleet): &(usize, &RankedFleet)| *place < FLEETS_SHOWN || *fleet == chosen;
    let rows: Vec<_> = ranking.fleets.iter().enumerate().filter(is_shown).map(row).collect();
    table::print(&header, &rows);
    println!("{} fleets within {} per hour, in {seconds:.3} s", ranking.fleets.len(), problem.budget_per_hour);
    if let Some(found) = found {
        let rest =
            if found.complete { "no other can be better by its bound" } else { "then the limit ended the search" };
        println!("{} of them simulated with policy {}; {rest}", found.evaluations.len(), args.policy);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use symphony_scheduler::rivals::{Clockwork, ClockworkSettings};
    use symphony_testkit::Workspace;
    use symphony_types::Nanos;

    use super::*;
    use crate::cli::{Cli, Command, PlanCommand};

    const PROBLEM: &str = "budget_per_hour = 1.0\nslo_ms = 10000.0\nitems = 1\nlatency_csv = 'l.csv'\n\
        [[kind]]\nname = 'x'\nprice_per_hour = 1.0";

    fn args(problem: &str, rest: &[&str]) -> FleetArgs {
        let words = ["symphony", "plan", "fleet", problem].into_iter().chain(rest.iter().copied());
        match Cli::try_parse_from(words).unwrap().command {
            Command::Plan(PlanCommand::Fleet(args)) => args,
            other => panic!("another command: {other:?}"),
        }
    }

    #[test]
    fn a_fleet_is_evaluated_with_a_policy_that_the_program_adds() {
        let workspace = Workspace::new("fleet-added").unwrap();
        let file = workspace.file("fleet.toml").display().to_string();
        std::fs::write(&file, PROBLEM).unwrap();
        std::fs::write(workspace.file("l.csv"), "kind,items,latency_ms\nx,1,1000\nx,8,2000\n").unwrap();
        let evaluated = |policies: &PolicyRegistry| {
            run(&args(&file, &["--evaluate", "--policy", "copy", "--evaluations-max", "1"]), policies)
        };
        let error = evaluated(&PolicyRegistry::new()).unwrap_err().to_string();
        assert!(error.contains("--policy copy: expected one of"), "{error}");
        let added = PolicyRegistry::new().with("copy", |facts, options| {
            options.only(&[])?;
            let early = Nanos::from_millis(5);
            Ok(Box::new(Clockwork::new(facts, ClockworkSettings { commit: early, early })))
        });
        evaluated(&added).unwrap();
    }

    #[test]
    fn the_bound_holds_for_what_is_simulated() {
        let problem =
            FleetProblem::parse("f", PROBLEM, &|_| Ok("kind,items,latency_ms\nx,1,1000\nx,8,2000\n".to_owned()));
        let problem = problem.unwrap();
        let policies = PolicyRegistry::new().with("not-kairos", |_, _| Err("it is only named".to_owned()));
        let bound = |rest: &[&str], policy: &str| bound(&args("f", rest), &problem, &policies.parse(policy).unwrap());
        assert_eq!(bound(&[], "auto"), Bound::Kairos);
        for policy in ["auto", "nexus", "not-kairos"] {
            assert_eq!(bound(&["--evaluate"], policy), Bound::Together, "{policy}");
        }
        for policy in ["drs", "{ name = 'kairos', learn = false }"] {
            assert_eq!(bound(&["--evaluate"], policy), Bound::Kairos, "{policy}");
        }
        assert_eq!(bound(&["--evaluate", "--bound", "alone"], "auto"), Bound::Alone);
    }
}
