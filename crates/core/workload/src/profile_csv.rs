//! Latency profiles from measurements: columns `gpu_kind,batch,latency_ms`.

use serde::Deserialize;
use symphony_types::{LatencyProfile, Nanos, PROFILE_BATCH_MAX};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    gpu_kind: String,
    batch: u32,
    latency_ms: f64,
}

/// The profile of one GPU kind: measured batch sizes as they are, straight lines between them, and below the smallest
/// measured one its latency (never an optimistic guess). Nothing is extrapolated above the largest.
///
/// # Errors
/// If the columns are not `gpu_kind,batch,latency_ms`, the kind is not in the file, a batch size appears twice or is
/// out of range, or the latencies are not positive and monotone. The message names the line or batch size.
pub fn profile_from_csv(text: &str, gpu_kind: &str) -> Result<LatencyProfile, String> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).comment(Some(b'#')).from_reader(text.as_bytes());
    let mut kinds: Vec<String> = Vec::new();
    let mut points: Vec<(u32, Nanos)> = Vec::new();
    for row in reader.deserialize::<Row>() {
        let row = row.map_err(|error| format!("expected columns gpu_kind,batch,latency_ms: {error}"))?;
        if row.batch == 0 || row.batch > PROFILE_BATCH_MAX {
            return Err(format!("expected batch sizes 1 to {PROFILE_BATCH_MAX}, got {}", row.batch));
        }
        if row.gpu_kind == gpu_kind {
            if !(row.latency_ms.is_finite() && row.latency_ms > 0.0) {
                return Err(format!("batch {}: expected a positive latency_ms, got {}", row.batch, row.latency_ms));
            }
            points.push((row.batch, Nanos::from_millis_f64(row.latency_ms)));
        }
        if !kinds.contains(&row.gpu_kind) {
            kinds.push(row.gpu_kind);
        }
    }
    if points.is_empty() {
        return Err(format!("has no rows for gpu_kind `{gpu_kind}`; it knows: {}", kinds.join(", ")));
    }
    points.sort_unstable();
    if let Some(twice) = points.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(format!("batch {} of gpu_kind `{gpu_kind}` is measured twice; expected one row each", twice[0].0));
    }
    if let Some(pair) = points.windows(2).find(|pair| pair[1].1 < pair[0].1) {
        let ((small, slow), (large, fast)) = (pair[0], pair[1]);
        return Err(format!(
            "gpu_kind `{gpu_kind}` is not monotone: batch {large} takes {} ms, less than the {} ms of batch {small}; \
             measure again, or keep the larger value",
            fast.as_millis_f64(),
            slow.as_millis_f64(),
        ));
    }
    LatencyProfile::from_table(&interpolate(&points)).map_err(|error| error.to_string())
}

/// ℓ(1) … ℓ(largest measured) from points with rising batch sizes.
fn interpolate(points: &[(u32, Nanos)]) -> Vec<Nanos> {
    let (first_batch, first) = points[0];
    let mut table = vec![first; first_batch as usize];
    for pair in points.windows(2) {
        let ((from, low), (to, high)) = (pair[0], pair[1]);
        let rise = u128::from((high - low).get());
        for step in 1..=to - from {
            // Integer arithmetic: the table is monotone and meets the measured points exactly. The quotient is at most
            // `rise`, so it fits.
            let part = rise * u128::from(step) / u128::from(to - from);
            table.push(low + Nanos::new(part as u64));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURED: &str = "gpu_kind,batch,latency_ms\na100,4,10\na100,8,14\nt4,1,7.5\n";

    #[test]
    fn lines_join_the_measured_batches_and_the_smallest_reaches_down() {
        let profile = profile_from_csv(MEASURED, "a100").unwrap();
        let ms: Vec<f64> = profile.table().iter().map(|l| l.as_millis_f64()).collect();
        assert_eq!(ms, [10.0, 10.0, 10.0, 10.0, 11.0, 12.0, 13.0, 14.0]);
        assert_eq!(profile_from_csv(MEASURED, "t4").unwrap().batch_max(), 1);
    }

    #[test]
    fn files_that_make_no_profile_are_refused_with_the_reason() {
        let refused = |text: &str, words: &str| {
            let error = profile_from_csv(text, "a100").unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        refused("gpu_kind,batch,latency_ms\nt4,1,7\n", "no rows for gpu_kind `a100`; it knows: t4");
        refused("gpu_kind,batch,latency_ms\na100,2,7\na100,4,6\n", "batch 4 takes 6 ms, less than the 7 ms of batch 2");
        refused("gpu_kind,batch,latency_ms\na100,2,7\na100,2,7\n", "measured twice");
        refused("gpu_kind,batch,latency_ms\na100,0,7\n", "batch sizes 1 to 4096, got 0");
        refused("gpu_kind,batch,latency_ms\na100,1,-7\n", "a positive latency_ms, got -7");
        refused("kind,b\na100,1\n", "expected columns gpu_kind,batch,latency_ms");
        refused("", "no rows");
    }
}
