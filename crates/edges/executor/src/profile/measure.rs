//! Measures how long batches take and how much memory they need.

use std::time::{Duration, Instant};

use symphony_types::{LatencyProfile, Nanos, PROFILE_BATCH_MAX, ProfileError, Signature};

use super::independence::{Dependence, find_dependence};
use super::inputs::plausible_input;
use super::interpolate::{profile_of_steps, profile_through, raise_to_monotone, sizes};
use crate::port::{BatchInputs, ExecuteError, ModelExecutor};
use crate::resources::{resident_bytes, thread_cpu_time};

/// Runs before the first one that counts, at each size: they fill caches and the runtime's memory pools.
const WARMUP_RUNS: u32 = 2;
/// The share of runs that [`MeasuredBatch::wall_high`] covers.
const HIGH_PERCENTILE: usize = 99;

/// How to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasureOptions {
    /// The largest batch of the profile, in items; at most what the executor takes. It may be less with a model that
    /// has a largest batch of its own.
    pub batch_max: u32,
    /// Runs at each size, at least, however long they take.
    pub runs_min: u32,
    /// Runs at each size, at most.
    pub runs_max: u32,
    /// No further round of runs begins after this time.
    pub budget: Duration,
    /// What ℓ(b) is made of.
    pub statistic: Statistic,
    /// The profile ends at the largest batch that takes no longer.
    pub latency_max: Option<Nanos>,
    /// The profile ends at the largest measured batch with which the process has grown by at most this.
    pub memory_max_bytes: Option<u64>,
}

/// Which of many runs of one batch size counts as its latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Statistic {
    /// The shortest: on a shared machine everything else measures the neighbours.
    #[default]
    Best,
    /// The median: for a machine of its own whose clock varies.
    Median,
    /// The 99th percentile: for promises that the hardest batch has to keep.
    P99,
}

impl Default for MeasureOptions {
    fn default() -> Self {
        Self {
            batch_max: 32,
            runs_min: 5,
            runs_max: 50,
            budget: Duration::from_secs(20),
            statistic: Statistic::Best,
            latency_max: None,
            memory_max_bytes: None,
        }
    }
}

/// Where a measurement is: `done` of at most `of` runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Items in the batch that ran last.
    pub batch: u32,
    /// Runs done.
    pub done: u32,
    /// Runs if the budget allows all of them.
    pub of: u32,
}

/// What was measured at one batch size, over `runs` runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredBatch {
    /// Items in the batch.
    pub batch: u32,
    /// Runs that counted.
    pub runs: u32,
    /// The shortest wall time.
    pub wall_min: Nanos,
    /// The median of wall time.
    pub wall_median: Nanos,
    /// The 99th percentile of wall time: far above the shortest on a machine that is busy with something else.
    pub wall_high: Nanos,
    /// The least CPU time of the calling thread.
    pub cpu_min: Nanos,
}

/// A profile and what it was made from.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// ℓ(b) for b = 1..=`batch_max`.
    pub latency: LatencyProfile,
    /// The sizes that were run; the profile is linear between them.
    pub batches: Vec<MeasuredBatch>,
    /// Measured sizes whose latency was raised because a smaller batch took longer, ascending. More than a few mean
    /// that the machine was too busy to measure on.
    pub raised_batches: Vec<u32>,
    /// How much memory the process grew by when the model was loaded. What loading used for a moment is part of it, for
    /// the process keeps it; the largest batch may then run in that memory and seem to need none of its own. The sum of
    /// both numbers is what the process did grow by.
    pub static_memory_bytes: u64,
    /// How much it grew by when the largest batch, and perhaps one that was too large, ran for the first time.
    pub dynamic_memory_bytes: u64,
    /// What ended the profile before the largest batch asked for.
    pub limit: Option<Limit>,
    /// Where an item's answer was another one among others than alone. Such a model must not be batched.
    pub dependence: Option<Dependence>,
}

/// What a larger batch would go beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`MeasureOptions::latency_max`].
    Latency,
    /// [`MeasureOptions::memory_max_bytes`].
    Memory,
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError<L> {
    /// The model cannot be loaded.
    #[error(transparent)]
    Load(L),
    /// The options make no sense.
    #[error("{0}")]
    BadOptions(String),
    /// Not even one item is within the limits.
    #[error("a batch of one item {0}")]
    BeyondLimits(String),
    /// A batch failed.
    #[error("batch size {batch}: {source}")]
    Execute {
        /// Items in the batch.
        batch: u32,
        /// Why it failed.
        source: ExecuteError,
    },
    /// The measured latencies make no profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Loads a model and measures it on the calling thread.
///
/// ℓ(b) is a statistic of many runs' wall time, and never less than the least CPU time. The sizes take turns, so that a
/// busy spell of the machine does not fall on one size. Memory is the growth of this process, so the model should be
/// the first thing that it loads.
///
/// # Errors
/// If the model cannot be loaded, a batch fails, or the options make no sense.
pub fn measure<E: ModelExecutor, L>(
    load: impl FnOnce() -> Result<E, L>,
    options: &MeasureOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Measurement, MeasureError<L>> {
    if !(1..=PROFILE_BATCH_MAX).contains(&options.batch_max) || options.runs_min == 0 {
        return Err(MeasureError::BadOptions(format!(
            "batch_max is {} and runs_min {}; expected 1 to {PROFILE_BATCH_MAX}, and at least 1",
            options.batch_max, options.runs_min
        )));
    }
    let before_load = resident_bytes();
    let mut executor = load().map_err(MeasureError::Load)?;
    // A device has memory of its own, and what its driver takes of the process says nothing about the model.
    let taken = |executor: &E| match executor.device_memory() {
        Some(memory) => memory.static_bytes + memory.dynamic_bytes,
        None => resident_bytes().saturating_sub(before_load),
    };
    let loaded = taken(&executor);

    // A model that runs some sizes only is measured at these: what comes between is filled up to them.
    let (largest, steps) = match executor.batch_sizes() {
        Some(own) => {
            let batch_max = options.batch_max.min(own.largest());
            (batch_max, Some(own.measured(batch_max)))
        }
        None => (options.batch_max, None),
    };
    let sizes_up_to = |batch_max: u32| match &steps {
        Some(steps) => steps.iter().copied().filter(|&size| size <= batch_max).collect(),
        None => sizes(batch_max),
    };
    let mut bench = Bench::new(executor.signature(), largest);
    let failed = |batch| move |source| MeasureError::Execute { batch, source };
    let mut grown = loaded;
    let mut fits = |batch| {
        let mut best = Duration::MAX;
        for _ in 0..=WARMUP_RUNS {
            best = best.min(bench.run(&mut executor, batch).map_err(failed(batch))?.0);
        }
        grown = grown.max(taken(&executor));
        let within = if options.memory_max_bytes.is_some_and(|max| grown > max) {
            Err(Limit::Memory)
        } else if options.latency_max.is_some_and(|max| Nanos::from(best) > max) {
            Err(Limit::Latency)
        } else {
            Ok(())
        };
        Ok::<_, MeasureError<L>>(within)
    };
    let (batch_max, limit) = largest_within(&sizes_up_to(largest), steps.is_none(), &mut fits)?;
    if batch_max == 0 {
        return Err(MeasureError::BeyondLimits(match limit {
            Some(Limit::Memory) => "takes more memory than allowed".into(),
            _ => "takes longer than allowed".into(),
        }));
    }
    let sizes = sizes_up_to(batch_max);
    let samples = run_in_turns(&mut bench, &mut executor, &sizes, options, progress)
        .map_err(|(batch, source)| failed(batch)(source))?;
    let dependence =
        find_dependence(&mut executor, &sizes, &|_| ()).map_err(|(batch, source)| failed(batch)(source))?;
    let batches: Vec<_> = sizes.iter().zip(samples).map(|(&batch, samples)| summarise(batch, samples)).collect();
    let mut points: Vec<_> =
        batches.iter().map(|measured| (measured.batch, measured.latency(options.statistic))).collect();
    let raised_batches = raise_to_monotone(&mut points);
    let latency = if steps.is_some() { profile_of_steps(&points) } else { profile_through(&points) };
    Ok(Measurement {
        latency: latency?,
        batches,
        raised_batches,
        static_memory_bytes: loaded,
        dynamic_memory_bytes: grown.saturating_sub(loaded),
        limit,
        dependence,
    })
}

/// Runs all sizes in turns until there are enough runs or the budget is spent.
///
/// # Errors
/// The batch that failed, and why.
fn run_in_turns(
    bench: &mut Bench,
    executor: &mut impl ModelExecutor,
    sizes: &[u32],
    options: &MeasureOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Vec<Sample>>, (u32, ExecuteError)> {
    let rounds_max = options.runs_max.max(options.runs_min);
    let of = rounds_max.saturating_mul(sizes.len() as u32);
    let mut samples = vec![Vec::new(); sizes.len()];
    let (begin, mut done) = (Instant::now(), 0);
    for round in 0..rounds_max {
        if round >= options.runs_min && begin.elapsed() >= options.budget {
            break;
        }
        for (&batch, samples) in sizes.iter().zip(&mut samples) {
            samples.push(bench.run(executor, batch).map_err(|source| (batch, source))?);
            done += 1;
            progress(Progress { batch, done, of });
        }
    }
    Ok(samples)
}

impl MeasuredBatch {
    /// What counts as the latency of this size, before ℓ(b) is made monotone.
    #[must_use]
    pub fn latency(&self, statistic: Statistic) -> Nanos {
        let wall = match statistic {
            Statistic::Best => self.wall_min,
            Statistic::Median => self.wall_median,
            Statistic::P99 => self.wall_high,
        };
        wall.max(self.cpu_min)
    }
}

/// The largest batch of these sizes that fits, 0 if none does, and what the next one would go beyond. Asks in ascending
/// order, so that memory is not taken in vain, and then, if that can be told `between` the sizes, between the last that
/// fits and the first that is too slow.
fn largest_within<E>(
    sizes: &[u32],
    between: bool,
    fits: &mut dyn FnMut(u32) -> Result<Result<(), Limit>, E>,
) -> Result<(u32, Option<Limit>), E> {
    let mut largest = 0;
    for &size in sizes {
        let Err(limit) = fits(size)? else {
            largest = size;
            continue;
        };
        let mut beyond = size;
        // Memory that was taken once stays taken: nothing in between would show what it needs alone.
        while between && limit == Limit::Latency && beyond - largest > 1 {
            let middle = largest + (beyond - largest) / 2;
            match fits(middle)? {
                Ok(()) => largest = middle,
                Err(_) => beyond = middle,
            }
        }
        return Ok((largest, Some(limit)));
    }
    Ok((largest, None))
}

/// Wall time and CPU time of one run.
type Sample = (Duration, Duration);

fn summarise(batch: u32, mut samples: Vec<Sample>) -> MeasuredBatch {
    samples.sort_unstable();
    let high = (samples.len() * HIGH_PERCENTILE).div_ceil(100).saturating_sub(1);
    let cpu_min = samples.iter().map(|&(_, cpu)| cpu).min().unwrap_or_default();
    let wall = |index: usize| samples.get(index).map_or(Nanos::ZERO, |&(wall, _)| wall.into());
    MeasuredBatch {
        batch,
        runs: samples.len() as u32,
        wall_min: wall(0),
        wall_median: wall(samples.len().div_ceil(2).saturating_sub(1)),
        wall_high: wall(high),
        cpu_min: cpu_min.into(),
    }
}

/// The buffers of a measurement: inputs for the largest batch, of which smaller ones take a part.
struct Bench {
    inputs: Vec<(usize, Vec<u8>)>,
    outputs: Vec<Vec<u8>>,
}

impl Bench {
    fn new(signature: &Signature, batch_max: u32) -> Self {
        let inputs = signature.inputs.iter().map(|spec| (spec.item_bytes(), plausible_input(spec, batch_max)));
        Self { inputs: inputs.collect(), outputs: Vec::new() }
    }

    fn run(&mut self, executor: &mut impl ModelExecutor, batch: u32) -> Result<Sample, ExecuteError> {
        let tensors: Vec<_> = self.inputs.iter().map(|(size, bytes)| &bytes[..size * batch as usize]).collect();
        let inputs = BatchInputs { items: batch, tensors: &tensors, start: None };
        let (wall, cpu) = (Instant::now(), thread_cpu_time());
        executor.run(&inputs, &mut self.outputs)?;
        // Taken in this order, CPU time lies within wall time.
        let cpu = thread_cpu_time().saturating_sub(cpu);
        Ok((wall.elapsed(), cpu))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::{EmulatedExecutor, default_signature};

    fn emulated(table_us: &[u64]) -> Result<EmulatedExecutor, Infallible> {
        let table: Vec<_> = table_us.iter().map(|&us| Nanos::from_micros(us)).collect();
        Ok(EmulatedExecutor::new(LatencyProfile::from_table(&table).unwrap(), default_signature()))
    }

    #[test]
    fn the_profile_of_an_emulated_gpu_is_found_again() {
        let options = MeasureOptions {
            batch_max: 5,
            runs_min: 5,
            runs_max: 30,
            budget: Duration::from_secs(1),
            ..MeasureOptions::default()
        };
        let mut last = None;
        let measured =
            measure(|| emulated(&[400, 600, 800, 1000, 1200]), &options, &mut |progress| last = Some(progress))
                .unwrap();
        assert_eq!(measured.batches.iter().map(|m| m.batch).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        for (batch, &latency) in (1_u32..).zip(measured.latency.table()) {
            // Never below the truth; above it only by what a busy machine adds to the best of its runs.
            let truth = Nanos::from_micros(200 + 200 * u64::from(batch));
            assert!(latency >= truth && latency < truth + Nanos::from_millis(20), "{batch}: {latency}");
        }
        for m in &measured.batches {
            assert!(m.wall_min <= m.wall_high && m.runs >= 5 && m.cpu_min <= m.wall_min, "{m:?}");
        }
        let last = last.unwrap();
        assert!((25..=150).contains(&last.done) && last.of == 150, "{last:?}");
    }

    /// Takes far longer for one item than for two.
    #[derive(Debug)]
    struct SlowAlone(EmulatedExecutor);

    impl ModelExecutor for SlowAlone {
        fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
            if batch.items == 1 {
                std::thread::sleep(Duration::from_millis(60));
            }
            self.0.run(batch, outputs)
        }

        fn signature(&self) -> &Signature {
            self.0.signature()
        }

        fn batch_max(&self) -> u32 {
            self.0.batch_max()
        }

        fn kind(&self) -> &'static str {
            self.0.kind()
        }
    }

    #[test]
    fn a_size_that_was_faster_than_a_smaller_one_is_raised_and_named() {
        let options = MeasureOptions { batch_max: 3, runs_min: 5, runs_max: 5, ..MeasureOptions::default() };
        let load = || emulated(&[100, 200, 200_000]).map(SlowAlone);
        let measured = measure(load, &options, &mut |_| ()).unwrap();
        assert_eq!(measured.raised_batches, [2]);
        let latency = |batch| measured.latency.latency(batch);
        assert!(latency(1) >= Nanos::from_millis(60) && latency(2) == latency(1) && latency(3) > latency(2));
        let second = &measured.batches[1];
        assert!(second.latency(Statistic::Best) < latency(2), "what was measured is still told: {second:?}");
    }

    #[test]
    fn a_batch_that_the_executor_refuses_is_named() {
        let options = MeasureOptions { batch_max: 3, ..MeasureOptions::default() };
        let error = measure(|| emulated(&[10, 20]), &options, &mut |_| ()).unwrap_err();
        assert_eq!(error.to_string(), "batch size 3: the batch has 3 items; this executor takes at most 2");
        let options = MeasureOptions { batch_max: 0, ..options };
        assert!(matches!(measure(|| emulated(&[10]), &options, &mut |_| ()), Err(MeasureError::BadOptions(_))));
    }

    #[test]
    fn summaries_take_the_best_and_the_high_end() {
        let ms = Duration::from_millis;
        let samples: Vec<_> = (1..=200).rev().map(|n| (ms(n), ms(n / 2 + 1))).collect();
        let summary = summarise(4, samples);
        assert_eq!((summary.wall_min, summary.wall_high), (Nanos::from_millis(1), Nanos::from_millis(198)));
        assert_eq!((summary.cpu_min, summary.runs), (Nanos::from_millis(1), 200));
        let of = [Statistic::Best, Statistic::Median, Statistic::P99].map(|statistic| summary.latency(statistic));
        assert_eq!(of, [1, 100, 198].map(Nanos::from_millis));
    }

    #[test]
    fn the_profile_ends_at_the_largest_batch_within_the_limits() {
        let largest = |batch_max, slow_from: u32, large_from: u32| {
            let mut tried = Vec::new();
            let fits = &mut |batch| {
                tried.push(batch);
                Ok::<_, Infallible>(match batch {
                    _ if batch >= large_from => Err(Limit::Memory),
                    _ if batch >= slow_from => Err(Limit::Latency),
                    _ => Ok(()),
                })
            };
            let found = largest_within(&sizes(batch_max), true, fits).unwrap();
            (found, tried.last().copied())
        };
        assert_eq!(largest(20, 99, 99), ((20, None), Some(20)));
        for slow_from in 1..=20 {
            assert_eq!(largest(20, slow_from, 99).0, (slow_from - 1, Some(Limit::Latency)));
        }
        assert_eq!(largest(20, 99, 10), ((8, Some(Limit::Memory)), Some(12)), "nothing smaller is asked any more");
        assert_eq!(largest(20, 1, 1).0, (0, Some(Limit::Memory)));
    }

    #[test]
    fn limits_end_a_measurement_early_or_refuse_the_model() {
        let options = MeasureOptions {
            batch_max: 4,
            runs_min: 1,
            runs_max: 1,
            latency_max: Some(Nanos::from_millis(100)),
            ..MeasureOptions::default()
        };
        // The third one is far beyond, the second far within.
        let table = [1_000, 2_000, 300_000, 400_000];
        let measured = measure(|| emulated(&table), &options, &mut |_| ()).unwrap();
        assert_eq!((measured.latency.batch_max(), measured.limit), (2, Some(Limit::Latency)));
        assert_eq!(measured.dependence, None);
        let hasty = MeasureOptions { latency_max: Some(Nanos::from_micros(10)), ..options };
        let error = measure(|| emulated(&table), &hasty, &mut |_| ()).unwrap_err();
        assert_eq!(error.to_string(), "a batch of one item takes longer than allowed");
    }
}
