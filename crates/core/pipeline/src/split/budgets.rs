//! A split: the budget, batch and GPUs of each stage.

use symphony_types::Nanos;

use super::cost::{BatchOption, Cost, best_within, options};
use super::dynamic::{Table, divide};
use crate::limits::STEPS_MAX;
use crate::pipeline::Pipeline;

/// What a stage plans for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageBudget {
    /// The time from a stage request to its result, without the hop that brought it.
    pub budget: Nanos,
    /// The batch that needs fewest GPUs within the budget.
    pub batch: u32,
    /// GPUs kept busy by such batches.
    pub gpus: f64,
}

/// The budget of a pipeline, split.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// GPUs of all stages: fractional, since models share GPUs.
    pub gpus: f64,
    /// By stage, in the order of the pipeline.
    pub stages: Vec<StageBudget>,
}

/// Why a budget cannot be split.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsplittable {
    /// The grid is too fine or too coarse.
    #[error("expected a time step with 1 to {STEPS_MAX} steps in the SLO of {slo}, got {step}")]
    Steps {
        /// The pipeline's SLO.
        slo: Nanos,
        /// The step given.
        step: Nanos,
    },
    /// Even with the smallest batches a path takes longer than the SLO.
    #[error(
        "the SLO of {slo} cannot be met: with the smallest batches, {path} takes {least}, divided in steps of {step}"
    )]
    TooShort {
        /// The pipeline's SLO.
        slo: Nanos,
        /// The longest path, as names.
        path: String,
        /// What it takes.
        least: Nanos,
        /// The step of the time grid.
        step: Nanos,
    },
}

/// Splits the budget of a pipeline that is asked `rate_rps` times a second, so that all stages together need fewest
/// GPUs. `hop` is the time from a stage's result to the next stage's request.
///
/// # Errors
/// If no split meets the SLO, or the step does not suit it.
pub fn split(pipeline: &Pipeline, rate_rps: f64, cost: Cost, step: Nanos, hop: Nanos) -> Result<Split, Unsplittable> {
    let options: Vec<_> = stage_options(pipeline, rate_rps, cost);
    split_options(pipeline, &options, step, hop)
}

/// The same with the options of each stage given, such as those of a paper's table; one list for each stage.
///
/// # Errors
/// As [`split`].
pub fn split_options(
    pipeline: &Pipeline,
    options: &[Vec<BatchOption>],
    step: Nanos,
    hop: Nanos,
) -> Result<Split, Unsplittable> {
    let slo = pipeline.slo();
    let steps = slo.get().checked_div(step.get()).unwrap_or(0);
    if steps == 0 || steps > STEPS_MAX {
        return Err(Unsplittable::Steps { slo, step });
    }
    let steps = steps as usize;
    let hops = hops(pipeline, hop);
    let tables: Vec<Table> =
        options.iter().zip(&hops).map(|(options, &hop)| table(options, hop, step, steps)).collect();
    let short = || {
        let (least, path) = longest_path(pipeline, options, hop);
        Unsplittable::TooShort { slo, path, least, step }
    };
    let budgets = divide(pipeline.shape(), &tables, steps).ok_or_else(short)?;
    let span = |(&steps, &hop): (&usize, &Nanos)| step.saturating_mul(steps as u64) - hop;
    let budgets: Vec<_> = budgets.iter().zip(&hops).map(span).collect();
    with_budgets(options, &budgets).ok_or_else(short)
}

/// What the paper compares with (section 7.2): every stage gets the same share of the SLO, by the longest path.
///
/// # Errors
/// If a stage has no batch that fits its share.
pub fn even_split(pipeline: &Pipeline, rate_rps: f64, cost: Cost, hop: Nanos) -> Result<Split, Unsplittable> {
    let mut stages_on_path = vec![1_u32; pipeline.stages().len()];
    for &stage in pipeline.order() {
        let into = pipeline.edges().iter().filter(|edge| edge.to == stage);
        stages_on_path[stage] = into.map(|edge| stages_on_path[edge.from] + 1).max().unwrap_or(1);
    }
    let longest = stages_on_path.iter().copied().max().unwrap_or(1);
    let options = stage_options(pipeline, rate_rps, cost);
    let share = pipeline.slo().divided_by(longest);
    let budgets: Vec<_> = hops(pipeline, hop).into_iter().map(|hop| share - hop).collect();
    with_budgets(&options, &budgets).ok_or_else(|| {
        let (least, path) = longest_path(pipeline, &options, hop);
        Unsplittable::TooShort { slo: pipeline.slo(), path, least, step: share }
    })
}

fn stage_options(pipeline: &Pipeline, rate_rps: f64, cost: Cost) -> Vec<Vec<BatchOption>> {
    let requests = pipeline.requests_per_request();
    let stages = pipeline.stages().iter().zip(requests);
    stages.map(|(stage, requests)| options(&stage.profile, rate_rps * requests, cost)).collect()
}

/// The hop before each stage; requests enter at the source without one.
fn hops(pipeline: &Pipeline, hop: Nanos) -> Vec<Nanos> {
    let source = pipeline.order().first().copied();
    (0..pipeline.stages().len()).map(|stage| if Some(stage) == source { Nanos::ZERO } else { hop }).collect()
}

/// f of a stage by budget in steps: the fewest GPUs of all options that fit, behind the hop.
fn table(options: &[BatchOption], hop: Nanos, step: Nanos, steps: usize) -> Table {
    let mut table = vec![f64::INFINITY; steps + 1];
    for option in options {
        let at = (option.takes + hop).get().div_ceil(step.get());
        if let Some(gpus) = usize::try_from(at).ok().and_then(|at| table.get_mut(at)) {
            *gpus = gpus.min(option.gpus);
        }
    }
    for at in 1..=steps {
        table[at] = table[at].min(table[at - 1]);
    }
    table
}

/// The best batch of each stage within its budget; `None` if one has none.
fn with_budgets(options: &[Vec<BatchOption>], budgets: &[Nanos]) -> Option<Split> {
    let stage = |(options, &budget): (&Vec<BatchOption>, &Nanos)| {
        let best = best_within(options, budget)?;
        Some(StageBudget { budget, batch: best.batch, gpus: best.gpus })
    };
    let stages: Vec<_> = options.iter().zip(budgets).map(stage).collect::<Option<_>>()?;
    Some(Split { gpus: stages.iter().map(|stage| stage.gpus).sum(), stages })
}

/// The path that takes longest with the smallest batches, and what it takes.
fn longest_path(pipeline: &Pipeline, options: &[Vec<BatchOption>], hop: Nanos) -> (Nanos, String) {
    let hops = hops(pipeline, hop);
    let mut longest: Vec<(Nanos, String)> = vec![(Nanos::ZERO, String::new()); pipeline.stages().len()];
    for &stage in pipeline.order() {
        let into = pipeline.edges().iter().filter(|edge| edge.to == stage);
        let before = into.map(|edge| &longest[edge.from]).max_by_key(|(takes, _)| *takes);
        let takes = options[stage].iter().map(|option| option.takes).min().unwrap_or(Nanos::MAX) + hops[stage];
        let name = &pipeline.stages()[stage].name;
        longest[stage] = match before {
            Some((earlier, path)) => (*earlier + takes, format!("{path} → {name}")),
            None => (takes, name.clone()),
        };
    }
    longest.into_iter().max_by_key(|(takes, _)| *takes).unwrap_or_default()
}
