//! `symphony tape`: what is on tapes, for other tools.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use symphony_tape::{RecordedLoad, Tape};
use symphony_types::{Nanos, PROFILE_BATCH_MAX};
use symphony_workload::{ARRIVALS_MAX, RecordedArrival, RecordedArrivals};

use super::{arrivals_file, replay};
use crate::cli::{TapeArrivalsArgs, TapeCommand};
use crate::exit::bad_input;

pub(crate) fn run(command: &TapeCommand) -> anyhow::Result<()> {
    match command {
        TapeCommand::Arrivals(args) => write_arrivals(args),
    }
}

fn write_arrivals(args: &TapeArrivalsArgs) -> anyhow::Result<()> {
    let load = load(&args.tapes)?;
    arrivals_file::write(&args.out, &arrivals(&load)?)
}

/// The load of a lead.
pub(super) fn load(tapes: &[PathBuf]) -> anyhow::Result<RecordedLoad> {
    let mut load = RecordedLoad::default();
    let mut read = HashSet::new();
    // One at a time: a tape may be large.
    for path in tapes {
        let file = path.display();
        if !read.insert(path.canonicalize().unwrap_or_else(|_| path.clone())) {
            return Err(bad_input(format!("{file}: given twice; expected each tape once")));
        }
        let bytes = replay::read(path).map_err(|error| bad_input(format!("{file}: {error}")))?;
        let added = Tape::open(&bytes).and_then(|tape| load.add(&tape));
        added.map_err(|error| bad_input(format!("{file}: {error}")))?;
    }
    if let (Some(begin), Some(until)) = (load.begin(), load.complete_until()) {
        eprintln!(
            "warning: a tape ended {:.3} s after the first request, full or on a slow disk: of later requests some are \
             missing; leave them out with --for-s (of `symphony compare`, `symphony trace convert`), or record again \
             with a larger scheduler.tape_mb_max",
            until.since(begin).as_secs_f64()
        );
    }
    Ok(load)
}

/// Its requests, the first at zero. Models that had one name, one after the other, are one.
pub(super) fn arrivals(load: &RecordedLoad) -> anyhow::Result<RecordedArrivals> {
    let nothing = || {
        bad_input(
            "no requests are on these tapes; expected that of a model worker (model-0, …) or of a policy among them",
        )
    };
    let begin = load.begin().ok_or_else(nothing)?;
    let mut positions: HashMap<&str, u32> = HashMap::new();
    let mut arrivals = RecordedArrivals::default();
    for model in load.models().values().filter(|model| !model.requests.is_empty()) {
        let source = *positions.entry(&model.name).or_insert_with(|| {
            arrivals.sources.push(model.name.clone());
            arrivals.sources.len() as u32 - 1
        });
        if arrivals.rows.len() + model.requests.len() > ARRIVALS_MAX {
            return Err(bad_input(format!("expected at most {ARRIVALS_MAX} requests on the tapes, got more")));
        }
        arrivals.rows.extend(model.requests.iter().map(|request| RecordedArrival {
            at: request.at.since(begin),
            source,
            // No batch is larger; a deadline that had passed cannot be met.
            items: Some(request.items.clamp(1, PROFILE_BATCH_MAX)),
            slo: Some(request.slo.max(Nanos::new(1))),
        }));
    }
    arrivals.rows.sort_by_key(|row| row.at);
    Ok(arrivals)
}
