//! A file with slowdowns and failures of emulated GPUs: for tests of the reactions to such GPUs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use symphony_executor::Pace;
use tokio_util::sync::CancellationToken;

/// How often the file is read.
const READ_EVERY: Duration = Duration::from_millis(200);
/// The largest file accepted: a line for each of 64 GPUs is a hundredth of that.
const FILE_BYTES_MAX: u64 = 1 << 16;

/// Stands in place of a factor for a GPU that fails.
const FAILS: &str = "fails";

/// Factors of `gpus` GPUs; 1 for GPUs that the file does not name, none for those that fail.
fn parse(text: &str, gpus: usize) -> Result<Vec<Option<f64>>, String> {
    let mut factors = vec![Some(1.0); gpus];
    for (line, number) in text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty()) {
        let words: Vec<_> = line.split_whitespace().collect();
        let read = match words.as_slice() {
            [gpu, FAILS] => gpu.parse::<usize>().ok().map(|gpu| (gpu, None)),
            [gpu, factor] => gpu.parse::<usize>().ok().zip(factor.parse::<f64>().ok().map(Some)),
            _ => None,
        };
        let in_range = |factor: Option<f64>| factor.is_none_or(|factor| (0.01..=Pace::FACTOR_MAX).contains(&factor));
        let sound = read.filter(|&(gpu, factor)| gpu < gpus && in_range(factor));
        let Some((gpu, factor)) = sound else {
            return Err(format!(
                "line {number}: `{line}`; expected a GPU from 0 to {} and a factor, 0.01 to 100, or `{FAILS}`",
                gpus - 1
            ));
        };
        factors[gpu] = factor;
    }
    Ok(factors)
}

/// Follows the file until the backend ends. While it cannot be read or parsed, nothing changes.
pub(crate) async fn watch(path: PathBuf, paces: Arc<[Arc<Pace>]>, ended: CancellationToken) {
    let mut last_error = None;
    loop {
        let read = match tokio::fs::metadata(&path).await {
            Ok(known) if known.len() > FILE_BYTES_MAX => Err(format!("more than {FILE_BYTES_MAX} bytes")),
            Ok(_) => tokio::fs::read_to_string(&path).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match read.and_then(|text| parse(&text, paces.len())) {
            Ok(factors) => {
                last_error = None;
                for (pace, factor) in paces.iter().zip(factors) {
                    match factor {
                        Some(factor) => pace.set(factor),
                        None => pace.fail(),
                    }
                }
            }
            Err(what) if last_error.as_ref() != Some(&what) => {
                tracing::warn!(file = %path.display(), what, "backend.pace_file is not followed");
                last_error = Some(what);
            }
            Err(_) => {}
        }
        tokio::select! {
            () = ended.cancelled() => return,
            () = tokio::time::sleep(READ_EVERY) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn named_gpus_are_slow_and_mistakes_are_named() {
        assert_eq!(parse("", 2), Ok(vec![Some(1.0), Some(1.0)]));
        assert_eq!(parse("1 2.5\n\n0 fails", 3), Ok(vec![None, Some(2.5), Some(1.0)]));
        for wrong in ["2 2.0", "0", "0 fast", "0 0", "0 1e9", "0 1 2", "-1 1"] {
            let error = parse(wrong, 2).unwrap_err();
            assert!(error.contains("line 1") && error.contains("from 0 to 1"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn whatever_it_says_factors_are_in_range(text in "([0-9 .e\\-\n]|.){0,80}") {
            if let Ok(factors) = parse(&text, 4) {
                prop_assert_eq!(factors.len(), 4);
                prop_assert!(factors.iter().flatten().all(|factor| (0.01..=100.0).contains(factor)));
            }
        }
    }
}
