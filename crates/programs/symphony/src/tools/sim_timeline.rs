//! `symphony sim --timeline`: the events of GPUs and queues, as a file.

use symphony_simulator::{TIMELINE_EVENTS_MAX, TimelineRange, simulate_timeline};
use symphony_types::{Nanos, Time};
use symphony_workload::{DURATION_S_MAX, Scenario};

use crate::cli::SimArgs;
use crate::exit::bad_input;

/// The default length: what fits on a screen and opens quickly in a browser.
const PICTURE_FOR_S: f64 = 0.25;
const TRACE_FOR_S: f64 = 5.0;

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Trace,
    Picture,
}

/// Repeats the first seed's run and writes its timeline.
pub(crate) fn write_if_asked(args: &SimArgs, scenario: &Scenario, rate_rps: f64) -> anyhow::Result<()> {
    let Some(file) = &args.timeline else { return Ok(()) };
    let format = format(args)?;
    let range = range(args, format, scenario.warmup.as_secs_f64())?;
    let Some(&seed) = scenario.seeds.first() else { return Ok(()) };
    let (_, timeline) = simulate_timeline(scenario, seed, rate_rps, range)?;
    let text = if format == Format::Trace { timeline.to_trace_json() } else { timeline.to_svg() };
    std::fs::write(file, text).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
    if timeline.is_empty() {
        eprintln!(
            "{}: nothing happened in that time; --timeline-from-s and --timeline-for-s say which is shown",
            file.display()
        );
    }
    if timeline.is_cut() {
        eprintln!("{}: cut after {TIMELINE_EVENTS_MAX} events; ask for less with --timeline-for-s", file.display());
    }
    Ok(())
}

/// Validates the options before the simulation starts.
pub(crate) fn check(args: &SimArgs, scenario: &Scenario) -> anyhow::Result<()> {
    if args.timeline.is_none() {
        return Ok(());
    }
    let from = range(args, format(args)?, scenario.warmup.as_secs_f64())?.from;
    let last = scenario.warmup + scenario.duration;
    if Nanos::new(from.as_nanos()) >= last {
        return Err(bad_input(format!(
            "--timeline-from-s: expected less than {} s, after which no request comes, got {}",
            last.as_secs_f64(),
            args.timeline_from_s.unwrap_or_default()
        )));
    }
    Ok(())
}

fn format(args: &SimArgs) -> anyhow::Result<Format> {
    let extension = args.timeline.as_ref().and_then(|file| file.extension()).and_then(|extension| extension.to_str());
    match extension {
        Some("json") => Ok(Format::Trace),
        Some("svg") => Ok(Format::Picture),
        _ => Err(bad_input("--timeline: expected a file name that ends in .json or .svg")),
    }
}

/// The time range; by default from `warmup_s` on.
fn range(args: &SimArgs, format: Format, warmup_s: f64) -> anyhow::Result<TimelineRange> {
    let seconds = |name: &str, given: Option<f64>, default: f64| {
        let value = given.unwrap_or(default);
        let sane = value.is_finite() && (0.0..=2.0 * DURATION_S_MAX).contains(&value);
        if sane { Ok(value) } else { Err(bad_input(format!("{name}: expected seconds, 0 or more, got {value}"))) }
    };
    let default_for_s = if format == Format::Trace { TRACE_FOR_S } else { PICTURE_FOR_S };
    let from = Time::ZERO + Nanos::from_secs_f64(seconds("--timeline-from-s", args.timeline_from_s, warmup_s)?);
    let for_s = seconds("--timeline-for-s", args.timeline_for_s, default_for_s)?;
    Ok(TimelineRange { from, until: from + Nanos::from_secs_f64(for_s) })
}
