//! `symphony trace`: traces of others become arrivals.

use std::collections::BTreeMap;
use std::path::Path;

use symphony_types::Nanos;
use symphony_workload::{ModelMap, RecordedArrivals, Rest, Spread, SpreadSeed, Window};

use super::arrivals_file::{self, seconds};
use crate::cli::{SpreadName, TraceCommand, TraceConvertArgs, TraceFormat};
use crate::exit::bad_input;

/// How long a job of a Blox log asks for its rate by default: Nexus schedules again every 30 to 60 s (its section 5).
const JOB_S: f64 = 30.0;

pub(crate) fn run(command: &TraceCommand) -> anyhow::Result<()> {
    match command {
        TraceCommand::Convert(args) => convert(args),
    }
}

fn convert(args: &TraceConvertArgs) -> anyhow::Result<()> {
    check_options(args)?;
    let map = model_map(args)?;
    let window = args.part.window()?;
    let spread = match args.spread {
        None | Some(SpreadName::Poisson) => Spread::Poisson,
        Some(SpreadName::Uniform) => Spread::Uniform,
    };
    let spread = SpreadSeed { spread, seed: args.seed.unwrap_or(1) };
    let job = seconds("--job-s", args.job_s.unwrap_or(JOB_S))?;
    let mut arrivals = RecordedArrivals::default();
    let mut begin = Nanos::ZERO;
    for path in &args.files {
        let text = arrivals_file::read_text(path)?;
        let read = match args.from {
            TraceFormat::Azure2019 => {
                RecordedArrivals::from_azure_functions_2019(&text, begin, spread, window).map(|(read, length)| {
                    begin += length;
                    read
                })
            }
            TraceFormat::Azure2021 => RecordedArrivals::from_azure_functions_2021(&text, window),
            TraceFormat::AzureLlm => RecordedArrivals::from_azure_llm(&text, &name_of(path), window),
            TraceFormat::Blox => RecordedArrivals::from_blox(&text, job, spread, window),
            TraceFormat::Arrivals => RecordedArrivals::from_csv(&text).map(|read| within(read, window)),
        };
        let merged = read.and_then(|read| arrivals.merge(read));
        merged.map_err(|error| bad_input(format!("{}: {error}", path.display())))?;
    }
    args.part.apply(&mut arrivals)?;
    arrivals.map(&map).map_err(|error| bad_input(format!("--map: {error}")))?;
    arrivals_file::write(&args.out, &arrivals)
}

/// Options that this format does not look at are refused.
fn check_options(args: &TraceConvertArgs) -> anyhow::Result<()> {
    let counts = matches!(args.from, TraceFormat::Azure2019 | TraceFormat::Blox);
    let given = [
        ("--spread", args.spread.is_some(), counts),
        ("--seed", args.seed.is_some(), counts),
        ("--job-s", args.job_s.is_some(), args.from == TraceFormat::Blox),
    ];
    match given.iter().find(|(_, given, known)| *given && !known) {
        Some((option, ..)) => Err(bad_input(format!("{option}: has no meaning with --from {}", args.from.label()))),
        None if args.job_s.is_some_and(|job_s| job_s <= 0.0) => {
            Err(bad_input(format!("--job-s {}: expected seconds above 0", args.job_s.unwrap_or_default())))
        }
        None => Ok(()),
    }
}

fn model_map(args: &TraceConvertArgs) -> anyhow::Result<ModelMap> {
    if args.models.iter().any(String::is_empty) {
        return Err(bad_input("--models: expected names of models, separated by commas"));
    }
    let rest = match args.models.as_slice() {
        [] if args.only_mapped => Rest::LeaveOut,
        [] => Rest::Keep,
        models => Rest::Ranked(models.to_vec()),
    };
    Ok(ModelMap { named: named(&args.map)?, rest })
}

/// Each name once.
pub(super) fn named(map: &[(String, String)]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut named = BTreeMap::new();
    for (name, model) in map {
        if let Some(before) = named.insert(name.clone(), model.clone()) {
            return Err(bad_input(format!(
                "--map {name}={model}: {name} is {before} already; expected each name once"
            )));
        }
    }
    Ok(named)
}

/// The name of a file without its ending.
fn name_of(path: &Path) -> String {
    path.file_stem().map_or_else(|| "llm".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

fn within(mut arrivals: RecordedArrivals, window: Window) -> RecordedArrivals {
    arrivals.rows.retain(|row| window.holds(row.at));
    arrivals
}
