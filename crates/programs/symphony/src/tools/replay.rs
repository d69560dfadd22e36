//! `symphony replay`: repeats recorded decisions.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::json;
use symphony_scheduler::PolicyRegistry;
use symphony_tape::{Difference, Replay, TAPE_BYTES_MAX, Tape, TapeHeader};

use crate::cli::{Output, ReplayArgs};
use crate::exit::bad_input;
use crate::inspect::table;

pub(crate) fn run(args: &ReplayArgs, policies: &PolicyRegistry) -> anyhow::Result<()> {
    // One at a time: a tape may be large.
    let replays = args.tapes.iter().map(|path| replay(path, policies)).collect::<anyhow::Result<Vec<_>>>()?;
    match args.output {
        Output::Table => show(&replays),
        Output::Json => println!("{}", serde_json::to_string_pretty(&to_json(&replays))?),
    }
    let differ: Vec<_> =
        replays.iter().filter(|tape| tape.replay.difference.is_some()).map(|tape| &*tape.file).collect();
    anyhow::ensure!(
        differ.is_empty(),
        "{} of {} tapes differ from what is decided now: {}",
        differ.len(),
        replays.len(),
        differ.join(", ")
    );
    Ok(())
}

struct Replayed {
    file: String,
    header: TapeHeader,
    replay: Replay,
}

fn replay(path: &Path, policies: &PolicyRegistry) -> anyhow::Result<Replayed> {
    let file = path.display().to_string();
    let bytes = read(path).map_err(|error| bad_input(format!("{file}: {error}")))?;
    let replayed = |tape: Tape<'_>| Ok((tape.header().clone(), symphony_tape::replay_among(&tape, policies)?));
    let read = Tape::open(&bytes).and_then(replayed);
    let (header, replay) = read.map_err(|error| bad_input(format!("{file}: {error}")))?;
    Ok(Replayed { file, header, replay })
}

/// The bytes of a tape.
pub(super) fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte over the limit distinguishes a file that is too long. The recorder's last record may lie beyond the
    // limit.
    let bytes_max = TAPE_BYTES_MAX + (1 << 10);
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(std::io::Error::other(format!("more than {bytes_max} bytes; no tape is that large")));
    }
    Ok(bytes)
}

fn show(replays: &[Replayed]) {
    let rows: Vec<_> = replays
        .iter()
        .map(|Replayed { file, header, replay: Replay { summary, difference } }| {
            vec![
                file.clone(),
                format!("{} {}", header.origin.subcluster, header.worker),
                summary.records.to_string(),
                summary.models.to_string(),
                summary.arrivals.to_string(),
                summary.batches.to_string(),
                summary.dropped().to_string(),
                summary.grants.to_string(),
                format!("{:.3}", summary.duration().as_secs_f64()),
                summary.ending.label().to_owned(),
                if difference.is_some() { "DIFFERS" } else { "same" }.to_owned(),
            ]
        })
        .collect();
    let columns =
        ["TAPE", "WORKER", "RECORDS", "MODELS", "ARRIVALS", "BATCHES", "DROPS", "GRANTS", "SECONDS", "END", "REPLAY"];
    table::print(&columns, &rows);
    for Replayed { file, replay, .. } in replays {
        for (reason, requests) in &replay.summary.drops {
            println!("{file}: {requests} requests dropped: {reason}");
        }
        if let Some(violation) = &replay.summary.violation {
            println!("{file}: the policy broke {violation}");
        }
        if let Some(difference) = &replay.difference {
            println!("{file}: {difference}");
        }
    }
}

fn to_json(replays: &[Replayed]) -> serde_json::Value {
    let tapes = replays.iter().map(|Replayed { file, header, replay: Replay { summary, difference } }| {
        let origin = &header.origin;
        let drops: serde_json::Map<_, _> =
            summary.drops.iter().map(|(reason, requests)| (reason.label().to_owned(), json!(requests))).collect();
        json!({
            "tape": file,
            "node": origin.node.get(),
            "boot_id": format!("{:x}", origin.boot.get()),
            "subcluster": origin.subcluster.get(),
            "token": origin.token.get(),
            "worker": header.worker,
            "records": summary.records,
            "steps": summary.steps,
            "models": summary.models,
            "arrivals": summary.arrivals,
            "batches": summary.batches,
            "batched_items": summary.batched_items,
            "drops": drops,
            "grants": summary.grants,
            "seconds": summary.duration().as_secs_f64(),
            "violation": summary.violation.as_ref().map(ToString::to_string),
            "end": summary.ending.label(),
            "same": difference.is_none(),
            "difference": difference.as_ref().map(difference_json),
        })
    });
    json!({ "tapes": tapes.collect::<Vec<_>>() })
}

fn difference_json(difference: &Difference) -> serde_json::Value {
    let Difference { record, offset, object, now, input, expected, got } = difference;
    json!({
        "record": record,
        "offset": offset,
        "object": object,
        "now_ns": now.as_nanos(),
        "input": input,
        "expected": expected,
        "got": got,
    })
}
