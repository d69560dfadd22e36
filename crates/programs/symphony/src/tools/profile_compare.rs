//! `symphony profile compare`: the differences between two profiles.

use anyhow::bail;
use serde_json::json;
use symphony_executor::profile::{Comparison, ProfileFile, compare};
use symphony_types::Nanos;

use crate::cli::{Output, ProfileCompareArgs};
use crate::exit::bad_input;
use crate::inspect::table;

pub(crate) fn run(args: &ProfileCompareArgs) -> anyhow::Result<()> {
    let [before, now] = [&args.before, &args.now].map(|path| ProfileFile::read(path).map_err(bad_input));
    let (before, now) = (before?, now?);
    let compared: Vec<_> =
        before.gpus.iter().filter_map(|(kind, before)| Some((kind, compare(before, now.gpus.get(kind)?)))).collect();
    if compared.is_empty() {
        let kinds = |file: &ProfileFile| file.gpus.keys().cloned().collect::<Vec<_>>().join(", ");
        return Err(bad_input(format!("no GPU kind is in both: {} and {}", kinds(&before), kinds(&now))));
    }
    match args.output {
        Output::Table => compared.iter().for_each(|(kind, comparison)| show(kind, comparison)),
        Output::Json => {
            let kinds: serde_json::Map<_, _> = compared.iter().map(|(kind, c)| ((*kind).clone(), as_json(c))).collect();
            println!("{}", serde_json::to_string_pretty(&kinds)?);
        }
    }
    let slowest = compared.iter().map(|(_, comparison)| percent(comparison.slowest_ratio)).fold(f64::MIN, f64::max);
    match args.fail_above {
        Some(allowed) if slowest > f64::from(allowed) => {
            bail!("a batch takes {slowest:.1} % longer than before; allowed are {allowed} %")
        }
        _ => Ok(()),
    }
}

/// By how much a ratio is above one.
fn percent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

fn show(kind: &str, comparison: &Comparison) {
    println!("GPU kind {kind}");
    let ms = |latency: Nanos| format!("{:.3}", latency.as_millis_f64());
    let row = |&(batch, before, now): &(u32, Nanos, Nanos)| {
        let change = percent(now.get() as f64 / before.get() as f64);
        vec![batch.to_string(), ms(before), ms(now), format!("{change:+.1} %")]
    };
    let rows: Vec<_> = comparison.batches.iter().map(row).collect();
    table::print(&["BATCH", "BEFORE MS", "NOW MS", "CHANGE"], &rows);
    let Comparison { slowest_ratio, fastest_ratio, batch_max, static_memory_bytes, dynamic_memory_bytes, .. } =
        comparison;
    let mb = |(before, now): (u64, u64)| format!("{} -> {} MB", before >> 20, now >> 20);
    println!(
        "all sizes: {:+.1} % to {:+.1} %; largest batch {} -> {}; memory: static {}, dynamic {}",
        percent(*fastest_ratio),
        percent(*slowest_ratio),
        batch_max.0,
        batch_max.1,
        mb(*static_memory_bytes),
        mb(*dynamic_memory_bytes),
    );
}

fn as_json(comparison: &Comparison) -> serde_json::Value {
    let batches = comparison.batches.iter().map(|(batch, before, now)| {
        json!({ "batch": batch, "before_ms": before.as_millis_f64(), "now_ms": now.as_millis_f64() })
    });
    json!({
        "batches": batches.collect::<Vec<_>>(),
        "slowest_ratio": comparison.slowest_ratio,
        "fastest_ratio": comparison.fastest_ratio,
        "batch_max": comparison.batch_max,
        "static_memory_bytes": comparison.static_memory_bytes,
        "dynamic_memory_bytes": comparison.dynamic_memory_bytes,
    })
}
