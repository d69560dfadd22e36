//! The Symphony paper, Figure 15 (Appendix A): how even the partitions are that solvers find in bounded time.

use std::time::Instant;

use anyhow::{Result, ensure};
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_milp::{Limits, divide};
use symphony_partitioner::milp::Milp;
use symphony_partitioner::{
    Balance, Budget, Change, PartitionPlan, Problem, Steadiness, adopt, exhaustive, solve, verify,
};

use super::cell;
use crate::data::{self, HighsRow};
use crate::lab::Lab;
use crate::partitions::{drawn, drifted};
use crate::plot::{Axis, Draw, Figure, Lines, Marker, Panel, Rule, Scale, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};

/// The size of the figure, and the one of "Practical Implementation".
const LARGE: (usize, usize) = (800, 20);
const SMALL: (usize, usize) = (400, 4);
const HUGE: (usize, usize) = (10_000, 100);
/// Small enough to evaluate every partition.
const TINY: (usize, usize) = (12, 3);
/// The time of each solver in the paper, in seconds.
const TIME_LIMIT_S: f64 = 10.0;
/// How much rates change in the experiment on disruption, and the share of models that may move.
const DRIFT: f64 = 0.2;
const MOVED_SHARE: f64 = 0.1;
/// The largest allowed ratio of a bounded choice to a free one.
const DISRUPTED_MAX: f64 = 2.0;
/// The target for the median of both factors.
const AIM: f64 = 0.001;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Solver {
    Ours,
    Random,
    Highs,
    HighsFromOurs,
}

const SOLVERS: [Solver; 4] = [Solver::Ours, Solver::Random, Solver::Highs, Solver::HighsFromOurs];

impl Solver {
    fn key(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Random => "random",
            Self::Highs => "highs",
            Self::HighsFromOurs => "highs-from-ours",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Ours => Style::new("ours", "#0072B2", Marker::Circle),
            Self::Random => Style::new("random search", "#7a8793", Marker::Square),
            Self::Highs => Style::new("HiGHS, 10 s", "#D55E00", Marker::Up),
            Self::HighsFromOurs => {
                Style { dashed: true, ..Style::new("HiGHS from ours, 10 s", "#009E73", Marker::Diamond) }
            }
        }
    }
}

/// One partition of one problem.
struct Row {
    size: (usize, usize),
    seed: u64,
    solver: Solver,
    /// None if no partition was found.
    balance: Option<Balance>,
    seconds: f64,
    /// The proven lower bound; only HiGHS has one.
    bound: Option<f64>,
}

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let mut rows = Vec::new();
    for (size, seeds) in [(LARGE, lab.pick(50, 4)), (SMALL, lab.pick(50, 4)), (HUGE, lab.pick(5, 0))] {
        let seeds: Vec<u64> = (1..=seeds).collect();
        // The largest ones are too large for random divisions to mean anything.
        let tries = if size == HUGE { 0 } else { lab.pick(500_000, 3_000) };
        for found in lab.map(&seeds, |&seed| deterministic(size, seed, tries)) {
            rows.extend(found?);
        }
    }
    if symphony_milp::is_built() {
        for (size, seeds) in [(LARGE, lab.pick(50, 1)), (SMALL, lab.pick(10, 1))] {
            let seeds: Vec<u64> = (1..=seeds).collect();
            let time_s = lab.pick(TIME_LIMIT_S, 1.0);
            for found in lab.map(&seeds, |&seed| with_highs(size, seed, time_s)) {
                rows.extend(found?);
            }
        }
    } else {
        rows.extend(data::fig15_highs().iter().filter_map(stored));
    }
    let tiny: Vec<u64> = (1..=lab.pick(20, 2)).collect();
    let optimal = lab.map(&tiny, |&seed| optimality(seed)).into_iter().collect::<Result<Vec<_>>>()?;
    let drifts: Vec<u64> = (1..=lab.pick(20, 2)).collect();
    let disruption = lab.map(&drifts, |&seed| disrupted(seed)).into_iter().collect::<Result<Vec<_>>>()?;

    let has = |solver: Solver| rows.iter().any(|row| row.solver == solver);
    let mut missing = Vec::new();
    if !has(Solver::Highs) {
        missing.push("HiGHS");
    }
    Ok(Report {
        plots: vec![Plot { suffix: "", figure: figure(&rows) }],
        tables: tables(&rows, &optimal, &disruption),
        comparisons: comparisons(&rows, &disruption),
        setup: setup(lab),
        differences: differences(&rows, &optimal, &disruption),
        missing,
    })
}

/// Ours and random search: equal on every machine.
fn deterministic(size: (usize, usize), seed: u64, tries: u64) -> Result<Vec<Row>> {
    let problem = drawn(size.0, size.1, seed);
    let began = Instant::now();
    let plan = ours(&problem, None)?;
    let seconds = began.elapsed().as_secs_f64();
    let mut rows = vec![Row { size, seed, solver: Solver::Ours, balance: Some(plan.balance), seconds, bound: None }];
    if tries > 0 {
        let began = Instant::now();
        let balance = random(&problem, seed, tries)?;
        let seconds = began.elapsed().as_secs_f64();
        rows.push(Row { size, seed, solver: Solver::Random, balance, seconds, bound: None });
    }
    Ok(rows)
}

fn ours(problem: &Problem, previous: Option<&PartitionPlan>) -> Result<PartitionPlan> {
    let plan = solve(problem, previous, &Budget::for_models(problem.models.len()))?;
    let violations = verify(problem, previous, &plan);
    ensure!(violations.is_empty(), "the solver broke a constraint: {violations:?}");
    Ok(plan)
}

/// The paper's random solver: draws a division, checks it, keeps the best.
fn random(problem: &Problem, seed: u64, tries: u64) -> Result<Option<Balance>> {
    let (models, parts) = (problem.models.len(), problem.parts.len());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let needs: Vec<_> = problem.models.iter().filter_map(|model| model.needs[0].as_ref()).collect();
    let numbers: Vec<(f64, f64, f64)> = problem
        .models
        .iter()
        .zip(&needs)
        .map(|(model, need)| (model.rate_rps, need.static_memory_bytes as f64, need.dynamic_memory_bytes as f64))
        .collect();
    let total = numbers.iter().fold((0.0, 0.0), |sum, number| (sum.0 + number.0, sum.1 + number.1));
    let (mean_rate, mean_memory) = (total.0 / parts as f64, total.1 / parts as f64);
    let (rate_max, memory_max) = (problem.parts[0].rate_max_rps, problem.parts[0].kinds[0].memory_max_bytes as f64);
    let mut best: Option<(f64, Vec<usize>)> = None;
    let (mut division, mut sums) = (vec![0; models], vec![(0.0, 0.0, 0.0_f64); parts]);
    for _ in 0..tries {
        sums.fill((0.0, 0.0, 0.0));
        for (part, number) in division.iter_mut().zip(&numbers) {
            *part = rng.random_range(0..parts);
            let sum = &mut sums[*part];
            *sum = (sum.0 + number.0, sum.1 + number.1, sum.2.max(number.2));
        }
        if sums.iter().any(|sum| sum.0 > rate_max || sum.1 + sum.2 > memory_max) {
            continue;
        }
        let furthest =
            |of: &dyn Fn(&(f64, f64, f64)) -> f64| sums.iter().map(|sum| (of(sum) - 1.0).abs()).fold(0.0, f64::max);
        let objective = furthest(&|sum| sum.0 / mean_rate) + furthest(&|sum| sum.1 / mean_memory);
        if best.as_ref().is_none_or(|(least, _)| objective < *least) {
            best = Some((objective, division.clone()));
        }
    }
    best.map(|(_, division)| Ok(adopt(problem, None, &division)?.balance)).transpose()
}

/// HiGHS, from nothing and from ours.
fn with_highs(size: (usize, usize), seed: u64, time_s: f64) -> Result<Vec<Row>> {
    let problem = drawn(size.0, size.1, seed);
    let plan = ours(&problem, None)?;
    let part_of = |name: &String| plan.parts.iter().position(|part| part.models.contains(name)).unwrap_or_default();
    let division: Vec<usize> = problem.models.iter().map(|model| part_of(&model.name)).collect();
    let milp = Milp::new(&problem, None)?;
    let limits = Limits { time_s, ..Limits::default() };
    [(Solver::Highs, None), (Solver::HighsFromOurs, Some(division.as_slice()))]
        .into_iter()
        .map(|(solver, start)| {
            let began = Instant::now();
            let found = divide(&milp, start, &limits);
            let seconds = began.elapsed().as_secs_f64();
            let balance = match &found {
                Ok(found) => Some(adopt(&problem, None, &found.division)?.balance),
                Err(_) => None,
            };
            Ok(Row { size, seed, solver, balance, seconds, bound: found.ok().map(|found| found.bound) })
        })
        .collect()
}

/// A row that a build with HiGHS has left in the crate's data.
fn stored(row: &HighsRow) -> Option<Row> {
    let solver = SOLVERS.into_iter().find(|solver| solver.key() == row.solver)?;
    let balance = row.objective.map(|objective| Balance {
        objective,
        rate_imbalance: row.rate_imbalance.unwrap_or(0.0),
        memory_imbalance: row.memory_imbalance.unwrap_or(0.0),
        ..Balance::default()
    });
    Some(Row { size: (row.models, row.parts), seed: row.seed, solver, balance, seconds: row.seconds, bound: row.bound })
}

/// Ours and the best of all divisions of a tiny problem.
fn optimality(seed: u64) -> Result<(u64, f64, f64)> {
    let problem = drawn(TINY.0, TINY.1, seed);
    let plan = ours(&problem, None)?;
    let best = exhaustive::optimum(&problem, None)?;
    Ok((seed, plan.balance.objective, best.map_or(f64::INFINITY, |best| best.objective)))
}

/// What a change of rates does to a plan, and what a bounded and a free choice make of it.
struct Disrupted {
    seed: u64,
    before: f64,
    bounded: f64,
    moved: usize,
    free: f64,
    free_moves: usize,
    again: usize,
}

fn disrupted(seed: u64) -> Result<Disrupted> {
    let first = drawn(LARGE.0, LARGE.1, seed);
    let plan = ours(&first, None)?;
    let mut next = drifted(&first, DRIFT, seed + 1000);
    // Every epoch is to choose again here, whatever it may gain.
    next.steadiness = Steadiness { keep_within: 0.0, ..Steadiness::default() };
    // Rates have moved, not the limits: those of the first epoch hold.
    let fresh = ours(&next, None)?;
    let free_moves = Change::between(&next, &plan, &fresh).moved_models.len();
    next.steadiness = Steadiness::default();
    next.disruption_max = Some(MOVED_SHARE * LARGE.0 as f64);
    let bounded = ours(&next, Some(&plan))?;
    let change = Change::between(&next, &plan, &bounded);
    let again = Change::between(&next, &bounded, &ours(&next, Some(&bounded))?);
    Ok(Disrupted {
        seed,
        before: change.before.map_or(f64::INFINITY, |before| before.objective),
        bounded: bounded.balance.objective,
        moved: change.moved_models.len(),
        free: fresh.balance.objective,
        free_moves,
        again: again.moved_models.len(),
    })
}

fn sorted(rows: &[Row], size: (usize, usize), solver: Solver, what: fn(&Balance) -> f64) -> Vec<f64> {
    let of = rows.iter().filter(|row| row.size == size && row.solver == solver);
    let mut values: Vec<f64> = of.map(|row| row.balance.as_ref().map_or(f64::INFINITY, what)).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: &[f64]) -> Option<f64> {
    values.get(values.len() / 2).copied()
}

/// The compared quantity, and its name.
type Factor = (&'static str, fn(&Balance) -> f64);

const FACTORS: [Factor; 2] =
    [("Request rate", |balance| balance.rate_imbalance), ("Static memory", |balance| balance.memory_imbalance)];

fn figure(rows: &[Row]) -> Figure {
    let mut panels = Vec::new();
    for (size, words) in [(LARGE, "800 models in 20 parts"), (SMALL, "400 models in 4 parts")] {
        for (name, what) in FACTORS {
            let ticks = [0.001, 0.01, 0.1, 1.0, 10.0, 100.0];
            let x = Axis::at("imbalance (max − min)/avg, %", Scale::Log2, &ticks);
            let mut lines = Lines::new(&format!("{name}, {words}"), x, Axis::between("configurations, %", 0.0, 100.0));
            for solver in SOLVERS {
                let values = sorted(rows, size, solver, what);
                let count = values.len() as f64;
                let found = values.iter().enumerate().filter(|(_, value)| value.is_finite());
                let points: Vec<_> =
                    found.map(|(at, value)| ((100.0 * value).max(0.001), 100.0 * (at + 1) as f64 / count)).collect();
                if !points.is_empty() {
                    lines.series.push(Series { style: solver.style(), draw: Draw::Steps, points });
                }
            }
            lines.rules.push(Rule::Upright(100.0 * if size == LARGE { AIM } else { AIM / 2.0 }, "aim".to_owned()));
            panels.push(Panel::Lines(lines));
        }
    }
    Figure {
        title: "How even divisions of models are".to_owned(),
        subtitle: "Distribution of the imbalance factor over configurations of models from the zoo with variants, rates exponential. \
                   A configuration for which a solver found no division counts, and is beyond the right end"
            .to_owned(),
        columns: 2,
        panels,
        theirs: String::new(),
        note: "Dashed: what the median should stay below. The Symphony paper, Figure 15.".to_owned(),
    }
}

fn tables(rows: &[Row], optimal: &[(u64, f64, f64)], disruption: &[Disrupted]) -> Vec<Table> {
    let header = ["models", "parts", "seed", "solver", "rate_imbalance", "memory_imbalance", "objective"];
    let text = |value: Option<f64>| value.map_or_else(String::new, |value| cell(value, 7));
    let cells = |row: &Row| {
        let of = |what: fn(&Balance) -> f64| text(row.balance.as_ref().map(what));
        let numbers =
            [row.size.0.to_string(), row.size.1.to_string(), row.seed.to_string(), row.solver.key().to_owned()];
        let balance = [of(|b| b.rate_imbalance), of(|b| b.memory_imbalance), of(|b| b.objective)];
        numbers.into_iter().chain(balance).collect::<Vec<_>>()
    };
    let is_highs = |row: &&Row| matches!(row.solver, Solver::Highs | Solver::HighsFromOurs);
    let mut main = Table::new(&header);
    main.rows = rows.iter().filter(|row| !is_highs(row)).map(cells).collect();
    let mut highs = Table { suffix: "-highs", measured: true, ..Table::new(&header) };
    highs.header.extend(["seconds", "bound"]);
    let timed = |row: &Row| cells(row).into_iter().chain([cell(row.seconds, 2), text(row.bound)]).collect();
    highs.rows = rows.iter().filter(is_highs).map(timed).collect();
    let mut times =
        Table { suffix: "-measured", measured: true, ..Table::new(&["models", "parts", "solver", "median_seconds"]) };
    for size in [LARGE, SMALL, HUGE] {
        for solver in [Solver::Ours, Solver::Random] {
            if let Some(seconds) = seconds(rows, size, solver) {
                let numbers = [size.0.to_string(), size.1.to_string()];
                times.rows.push(numbers.into_iter().chain([solver.key().to_owned(), cell(seconds, 3)]).collect());
            }
        }
    }
    let mut tiny = Table { suffix: "-optimal", ..Table::new(&["models", "parts", "seed", "ours", "optimum"]) };
    tiny.rows = optimal
        .iter()
        .map(|&(seed, ours, best)| {
            vec![TINY.0.to_string(), TINY.1.to_string(), seed.to_string(), cell(ours, 7), cell(best, 7)]
        })
        .collect();
    let header = [
        "seed",
        "objective_before",
        "objective_bounded",
        "moved_bounded",
        "objective_free",
        "moved_free",
        "moved_again",
    ];
    let mut moves = Table { suffix: "-disruption", ..Table::new(&header) };
    moves.rows = disruption
        .iter()
        .map(|d| {
            let counts = [d.moved, d.free_moves, d.again].map(|count| count.to_string());
            let [moved, free_moves, again] = counts;
            vec![d.seed.to_string(), cell(d.before, 5), cell(d.bounded, 6), moved, cell(d.free, 6), free_moves, again]
        })
        .collect();
    [main, highs, tiny, moves, times].into_iter().filter(|table| !table.rows.is_empty()).collect()
}

fn seconds(rows: &[Row], size: (usize, usize), solver: Solver) -> Option<f64> {
    let mut seconds: Vec<f64> =
        rows.iter().filter(|row| row.size == size && row.solver == solver).map(|row| row.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    median(&seconds)
}

fn comparisons(rows: &[Row], disruption: &[Disrupted]) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for (size, words) in [(LARGE, "800 × 20"), (SMALL, "400 × 4")] {
        for ((name, what), key) in FACTORS.into_iter().zip(["rate", "memory"]) {
            let of = |solver| median(&sorted(rows, size, solver, what));
            let better = of(Solver::Random).zip(of(Solver::Ours)).map(|(random, ours)| random / ours);
            let mut comparison = Comparison::words("symphony-fig15", "better_than_random", better, "×");
            comparison.key = format!("{key}_{}", size.0);
            comparison.what = format!("{words}, {}: {}", name.to_lowercase(), comparison.what);
            comparisons.push(comparison);
        }
    }
    let ratios = disruption_ratios(disruption);
    let what = "objective within C_max after a change of rates, over that of a division from nothing";
    for (key, words, value) in [("median", "median", median(&ratios)), ("most", "largest", ratios.last().copied())] {
        let (key, what) = (format!("disruption_{key}"), format!("{what}, {words}"));
        let value = value.unwrap_or(f64::INFINITY);
        comparisons.push(Comparison::aim(&key, &what, (0.0, DISRUPTED_MAX), value, "×"));
    }
    comparisons
}

/// What a bounded choice has over what a free one has, from the least on.
fn disruption_ratios(disruption: &[Disrupted]) -> Vec<f64> {
    let mut ratios: Vec<f64> = disruption.iter().map(|d| d.bounded / d.free).collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

fn setup(lab: &Lab<'_>) -> String {
    let tries = lab.pick("500 000", "3000");
    let highs = "HiGHS has 10 s of one thread for each, once from nothing and once from ours, with the symmetry of equal parts taken out, in \
                 a build with the feature `highs`; other builds show what such a build has left in `crates/programs/paper/data`. Its \
                 10 s are of the clock: on a machine with other work it has less of a core, so its values, and all seconds, are upper bounds \
                 unless the machine is at rest.";
    format!(
        "Configurations as in section A.2: models of Table 5 with variants, ± 10 % in memory, rates exponential with one mean; R_max and S_max \
         30 % above the average, S_max also with room for the largest dynamic memory; w weighs a percent of rate like a percent of memory. \
         Static and dynamic memory are those of Table 1, by a line over the size of the model's file for models that it does not have. Every \
         plan passed `verify`.\n\n\
         Ours has the default number of moves, random search {tries} divisions: counts, not times, so that both come out the same everywhere; \
         what they take is in the data. {highs}"
    )
}

fn percent(value: Option<f64>) -> String {
    match value {
        Some(value) if value.is_finite() => format!("{:.3} %", 100.0 * value),
        Some(_) => "none found".to_owned(),
        None => "not run".to_owned(),
    }
}

fn differences(rows: &[Row], optimal: &[(u64, f64, f64)], disruption: &[Disrupted]) -> Vec<String> {
    let mut lines = Vec::new();
    for (size, words) in [(LARGE, "800 × 20"), (SMALL, "400 × 4"), (HUGE, "10 000 × 100")] {
        let of = |solver: Solver| {
            let [rate, memory] = FACTORS.map(|(_, what)| percent(median(&sorted(rows, size, solver, what))));
            format!("{} {rate} and {memory}", solver.style().label)
        };
        let there =
            SOLVERS.into_iter().filter(|&solver| rows.iter().any(|row| row.size == size && row.solver == solver));
        let each: Vec<_> = there.map(of).collect();
        if !each.is_empty() {
            lines.push(format!("{words}, medians of rate and memory imbalance: {}.", each.join("; ")));
        }
    }
    let worse = |row: &Row| {
        let ours =
            rows.iter().find(|other| other.solver == Solver::Ours && other.size == row.size && other.seed == row.seed);
        let objective = |row: &Row| row.balance.as_ref().map_or(f64::INFINITY, |balance| balance.objective);
        ours.is_some_and(|ours| objective(ours) > objective(row) + 1e-7)
    };
    let beaten = rows.iter().filter(|row| row.solver != Solver::Ours && worse(row));
    let (mut by_start, mut by_others) = (0, 0);
    beaten.for_each(|row| if row.solver == Solver::HighsFromOurs { by_start += 1 } else { by_others += 1 });
    lines.push(format!(
        "Ours is worse than random search or HiGHS in {by_others} configurations. HiGHS improves on ours in {by_start}, when it starts there."
    ));
    let proven = optimal.iter().filter(|(_, ours, best)| *ours <= best + 1e-9).count();
    lines.push(format!(
        "{} × {}: ours is the best of all divisions in {proven} of {} configurations, which is proven by looking at each of them.",
        TINY.0,
        TINY.1,
        optimal.len()
    ));
    let most = |of: &dyn Fn(&Disrupted) -> f64| disruption.iter().map(of).fold(0.0, f64::max);
    let least = |of: &dyn Fn(&Disrupted) -> f64| disruption.iter().map(of).fold(f64::INFINITY, f64::min);
    let ratios = disruption_ratios(disruption);
    lines.push(format!(
        "Disruption, 800 × 20: after every rate has changed by up to 20 % the plan in force has an objective of {:.4} at least. With C_max at a \
         tenth of the models, at most {:.0} move, and the objective is {:.2} times that of a division from nothing in the median, {:.2} times at most; the \
         division from nothing has {:.0} models or more elsewhere. Solving again moves {:.0}.",
        least(&|d| d.before),
        most(&|d| d.moved as f64),
        median(&ratios).unwrap_or(f64::INFINITY),
        ratios.last().copied().unwrap_or(f64::INFINITY),
        least(&|d| d.free_moves as f64),
        most(&|d| d.again as f64),
    ));
    lines.push(
        "The paper solves with CPLEX, which finds divisions where HiGHS finds few or none in the same time; it shows distributions without \
         numbers."
            .to_owned(),
    );
    lines
}
