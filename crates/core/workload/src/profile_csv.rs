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

/// Without a kind of GPU.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchRow {
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
    let mut kinds: Vec<String> = Vec::new();
    let mut points: Vec<(u32, Nanos)> = Vec::new();
    for row in reader(text).deserialize::<Row>() {
        let row = row.map_err(|error| format!("expected columns gpu_kind,batch,latency_ms: {error}"))?;
        check_batch(row.batch)?;
        if row.gpu_kind == gpu_kind {
            points.push((row.batch, latency(row.batch, row.latency_ms)?));
        }
        if !kinds.contains(&row.gpu_kind) {
            kinds.push(row.gpu_kind);
        }
    }
    if points.is_empty() {
        return Err(format!("has no rows for gpu_kind `{gpu_kind}`; it knows: {}", kinds.join(", ")));
    }
    from_points(points, &format!("gpu_kind `{gpu_kind}`"))
}

/// The same for a file with columns `batch,latency_ms`, where the kind of GPU goes without saying.
///
/// # Errors
/// As [`profile_from_csv`].
pub fn profile_from_batches(text: &str) -> Result<LatencyProfile, String> {
    let mut points: Vec<(u32, Nanos)> = Vec::new();
    for row in reader(text).deserialize::<BatchRow>() {
        let row = row.map_err(|error| format!("expected columns batch,latency_ms: {error}"))?;
        check_batch(row.batch)?;
        points.push((row.batch, latency(row.batch, row.latency_ms)?));
    }
    if points.is_empty() {
        return Err("has no rows; expected columns batch,latency_ms".to_owned());
    }
    from_points(points, "the GPU")
}

fn reader(text: &str) -> csv::Reader<&[u8]> {
    csv::ReaderBuilder::new().trim(csv::Trim::All).comment(Some(b'#')).from_reader(text.as_bytes())
}

fn check_batch(batch: u32) -> Result<(), String> {
    if (1..=PROFILE_BATCH_MAX).contains(&batch) {
        Ok(())
    } else {
        Err(format!("expected batch sizes 1 to {PROFILE_BATCH_MAX}, got {batch}"))
    }
}

fn latency(batch: u32, latency_ms: f64) -> Result<Nanos, String> {
    if latency_ms.is_finite() && latency_ms > 0.0 {
        Ok(Nanos::from_millis_f64(latency_ms))
    } else {
        Err(format!("batch {batch}: expected a positive latency_ms, got {latency_ms}"))
    }
}

/// From at least one measured point. `of` is whose they are.
fn from_points(mut points: Vec<(u32, Nanos)>, of: &str) -> Result<LatencyProfile, String> {
    points.sort_unstable();
    if let Some(twice) = points.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(format!("batch {} of {of} is measured twice; expected one row each", twice[0].0));
    }
    if let Some(pair) = points.windows(2).find(|pair| pair[1].1 < pair[0].1) {
        let ((small, slow), (large, fast)) = (pair[0], pair[1]);
        return Err(format!(
            "{of} is not monotone: batch {large} takes {} ms, less than the {} ms of batch {small}; \
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

    #[test]
    fn the_kind_may_go_without_saying() {
        let profile = profile_from_batches("batch,latency_ms\n8,14\n4, 10\n").unwrap();
        assert_eq!(profile, profile_from_csv(MEASURED, "a100").unwrap());
        for (text, words) in [
            ("batch,latency_ms\n", "has no rows"),
            ("gpu_kind,batch,latency_ms\na100,1,1\n", "expected columns batch,latency_ms"),
            ("batch,latency_ms\n5000,1\n", "batch sizes 1 to 4096, got 5000"),
            ("batch,latency_ms\n1,nan\n", "a positive latency_ms, got NaN"),
            ("batch,latency_ms\n1,2\n2,1\n", "the GPU is not monotone: batch 2 takes 1 ms"),
        ] {
            let error = profile_from_batches(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
