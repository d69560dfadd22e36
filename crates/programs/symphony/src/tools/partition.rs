//! `symphony plan partition`: divides the models of a problem file among parts, without a cluster.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;
use symphony_milp::{Limits, divide};
use symphony_partitioner::milp::Milp;
use symphony_partitioner::{Balance, Budget, Change, PartitionPlan, Problem, Unsolved, adopt, solve, verify};

use crate::cli::{Output, PartitionArgs, Solver};
use crate::exit::bad_input;
use crate::inspect::table;

/// The most moved models and GPUs in the table; JSON has all.
const MOVES_SHOWN: usize = 20;

pub(crate) fn run(args: &PartitionArgs) -> anyhow::Result<()> {
    let problem = read_problem(&args.problem)?;
    let previous = args.previous.as_deref().map(read_plan).transpose()?;
    let began = Instant::now();
    let (plan, bound) = match args.solver {
        Solver::Local => (local(args, &problem, previous.as_ref())?, None),
        Solver::Highs => exact(args, &problem, previous.as_ref())?,
    };
    let seconds = began.elapsed().as_secs_f64();
    let violations = verify(&problem, previous.as_ref(), &plan);
    if let Some(violation) = violations.first() {
        anyhow::bail!("the plan is wrong, which is a bug of the solver: {violation}");
    }
    let change = previous.as_ref().map(|previous| Change::between(&problem, previous, &plan));
    match args.output {
        Output::Json => {
            let bound = bound.map(|bound| json!({ "objective_at_least": bound.0, "proven": bound.1 }));
            let whole = json!({ "plan": plan, "change": change, "bound": bound, "seconds": seconds });
            println!("{}", serde_json::to_string_pretty(&whole)?);
        }
        Output::Table => {
            show(&plan);
            if let Some((bound, proven)) = bound {
                let word = if proven { "which is proven to be the least" } else { "not proven" };
                println!("objective {:.6}, {word}; none is below {bound:.6}", plan.balance.objective);
            }
            if let Some(change) = &change {
                show_change(change);
            }
            println!("solved in {seconds:.2} s; every constraint verified");
        }
    }
    Ok(())
}

fn read_problem(path: &Path) -> anyhow::Result<Problem> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| bad_input(format!("{file}: {error}")))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let read_csv = |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|error| error.to_string());
    Problem::parse(&file, &text, &read_csv).map_err(bad_input)
}

/// A plan alone, or the output of `-o json`.
fn read_plan(path: &Path) -> anyhow::Result<PartitionPlan> {
    let file = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| bad_input(format!("{file}: {error}")))?;
    let refused =
        |error| bad_input(format!("{file}: expected a plan as `symphony plan partition -o json` prints it: {error}"));
    let mut whole: serde_json::Value = serde_json::from_str(&text).map_err(refused)?;
    let plan = whole.get_mut("plan").map(serde_json::Value::take).unwrap_or(whole);
    serde_json::from_value(plan).map_err(refused)
}

/// Invalid problems are the caller's mistake; other failures are not.
fn unsolved_error(unsolved: Unsolved) -> anyhow::Error {
    match unsolved {
        Unsolved::Bad(what) => bad_input(what),
        infeasible @ Unsolved::Infeasible(_) => anyhow::anyhow!("{infeasible}"),
    }
}

fn local(args: &PartitionArgs, problem: &Problem, previous: Option<&PartitionPlan>) -> anyhow::Result<PartitionPlan> {
    let usual = Budget::for_models(problem.models.len());
    let began = Instant::now();
    let limit = args.time_limit_s.map(Duration::from_secs_f64);
    let late = || limit.is_some_and(|limit| began.elapsed() >= limit);
    let should_stop: Option<&dyn Fn() -> bool> = if limit.is_some() { Some(&late) } else { None };
    let budget = Budget { moves: args.budget.unwrap_or(usual.moves), seed: args.seed, should_stop };
    solve(problem, previous, &budget).map_err(unsolved_error)
}

/// The plan, the proven bound, and whether the plan meets it.
fn exact(
    args: &PartitionArgs,
    problem: &Problem,
    previous: Option<&PartitionPlan>,
) -> anyhow::Result<(PartitionPlan, Option<(f64, bool)>)> {
    if !symphony_milp::is_built() {
        return Err(bad_input(symphony_milp::NoAnswer::NotBuilt));
    }
    // The exact solver starts from the local one's result; otherwise it would have no solution for a long time.
    let begin = local(args, problem, previous);
    let division = begin.as_ref().ok().map(|plan| division(problem, plan)).transpose()?;
    let milp = Milp::new(problem, previous).map_err(unsolved_error)?;
    let limits = Limits {
        time_s: args.time_limit_s.unwrap_or(Limits::default().time_s),
        seed: (args.seed % (1 << 30)) as u32,
        ..Limits::default()
    };
    let found = match (divide(&milp, division.as_deref(), &limits), begin) {
        (Ok(found), _) => found,
        // The local solver's message names the limit.
        (Err(_), Err(unsolved)) => return Err(unsolved),
        (Err(error), Ok(_)) => return Err(error.into()),
    };
    let plan = adopt(problem, previous, &found.division).map_err(unsolved_error)?;
    Ok((plan, Some((found.bound, found.proven))))
}

/// The part of each model by a plan.
fn division(problem: &Problem, plan: &PartitionPlan) -> anyhow::Result<Vec<usize>> {
    let of =
        |name: &String| plan.parts.iter().position(|part| part.models.contains(name)).context("a model has no part");
    problem.models.iter().map(|model| of(&model.name)).collect()
}

fn show(plan: &PartitionPlan) {
    let megabytes = |bytes: u64| format!("{:.0}", bytes as f64 / f64::from(1 << 20));
    let rows: Vec<_> = plan
        .parts
        .iter()
        .map(|part| {
            let per_kind = |what: &dyn Fn(&symphony_partitioner::PartGpus) -> String| {
                let each: Vec<_> = part.gpus.iter().map(|gpus| format!("{} {}", what(gpus), gpus.kind)).collect();
                if each.is_empty() { "-".to_owned() } else { each.join(", ") }
            };
            vec![
                part.name.clone(),
                part.models.len().to_string(),
                format!("{:.1}", part.rate_rps),
                megabytes(part.static_memory_bytes),
                per_kind(&|gpus| megabytes(gpus.memory_bytes)),
                per_kind(&|gpus| format!("{:.2}", gpus.needed)),
                per_kind(&|gpus| gpus.names.len().to_string()),
                part.load.map_or_else(|| "no GPU".to_owned(), |load| format!("{:.0} %", 100.0 * load)),
            ]
        })
        .collect();
    table::print(&["PART", "MODELS", "RATE R/S", "STATIC MB", "MB PER GPU", "GPUS NEEDED", "GPUS", "BUSY"], &rows);
    println!("imbalance: {}", balance(&plan.balance));
    for (part, load) in plan.short_of_gpus() {
        let load = if load.is_finite() {
            format!("{:.0} % of its GPUs", 100.0 * load)
        } else {
            "GPUs, and has none".to_owned()
        };
        println!("short of GPUs: {} needs {load}", part.name);
    }
    if plan.cut_short {
        println!("the search was cut short by the time limit: another run may find a better plan");
    }
}

fn balance(balance: &Balance) -> String {
    format!("rate {:.3} %, static memory {:.3} %", 100.0 * balance.rate_imbalance, 100.0 * balance.memory_imbalance)
}

fn show_change(change: &Change) {
    println!();
    if change.is_none() {
        println!("nothing changes against the plan in force");
    }
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row =
        |what: &str, name: &str, from: &str, to: &str| rows.push([what, name, from, to].map(str::to_owned).to_vec());
    change.moved_models.iter().take(MOVES_SHOWN).for_each(|model| row("model", &model.name, &model.from, &model.to));
    change.new_models.iter().take(MOVES_SHOWN).for_each(|name| row("new model", name, "-", "see above"));
    change.gone_models.iter().take(MOVES_SHOWN).for_each(|name| row("gone model", name, "see the old plan", "-"));
    change.moved_gpus.iter().take(MOVES_SHOWN).for_each(|gpu| row("GPU", &gpu.name, &gpu.from, &gpu.to));
    if !rows.is_empty() {
        table::print(&["WHAT", "NAME", "FROM", "TO"], &rows);
    }
    let Change { moved_models, new_models, gone_models, moved_gpus, .. } = change;
    println!(
        "{} models and {} GPUs move, {} models are new, {} are gone",
        moved_models.len(),
        moved_gpus.len(),
        new_models.len(),
        gone_models.len()
    );
    let limit = change.cost_max.map_or_else(|| "no limit".to_owned(), |limit| format!("at most {limit}"));
    println!("cost of the moves {:.3} ({limit})", change.cost);
    let before = change.before.as_ref().map_or_else(|| "not all models had a part".to_owned(), balance);
    println!("imbalance before: {before}");
    println!("imbalance after:  {}", balance(&change.after));
}

#[cfg(all(test, feature = "highs"))]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command, PlanCommand};

    /// `cargo xtask verify` runs this where HiGHS is installed: from a command line to a proven plan.
    #[test]
    fn the_exact_solver_answers_through_the_command_line() {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/partitions/two-subclusters.toml");
        let words =
            ["symphony", "plan", "partition", sample.to_str().unwrap(), "--solver", "highs", "--time-limit-s", "5"];
        let cli = Cli::try_parse_from(words).unwrap();
        let Command::Plan(PlanCommand::Partition(args)) = cli.command else { panic!("another command was read") };
        let (plan, bound) = exact(&args, &read_problem(&args.problem).unwrap(), None).unwrap();
        let (least, proven) = bound.unwrap();
        assert!(proven && (plan.balance.objective - least).abs() < 1e-3, "{least} {:?}", plan.balance);
        run(&args).unwrap();
    }
}
