//! How a policy compares with the best of its rivals, over many regimes.

/// A goodput below this, in requests per second, is a trickle: ratios of two such are meaningless.
const TRICKLE_RPS: f64 = 1.0;

/// Our goodput over the best of theirs.
pub(crate) fn ratio(ours: f64, theirs: &[f64]) -> f64 {
    let best = theirs.iter().copied().fold(0.0, f64::max);
    if ours.max(best) < TRICKLE_RPS { 1.0 } else { ours / best.max(TRICKLE_RPS) }
}

/// The head of a table of [`row`]s.
pub(crate) const HEAD: &str = "| regimes | number | least | 1 % | 5 % | 25 % | median | mean | below 0.98 | below 0.95 |\n\
                               | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

/// Ratios as a row of a table.
pub(crate) fn row(of: &str, mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios.get((share * ratios.len() as f64) as usize).or(ratios.last()).copied();
    let quantiles: Vec<String> =
        [0.0, 0.01, 0.05, 0.25, 0.5].map(|share| format!("{:.3}", at(share).unwrap_or(f64::NAN))).into();
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    let below = |least: f64| ratios.iter().filter(|&&ratio| ratio < least).count();
    let (number, quantiles) = (ratios.len(), quantiles.join(" | "));
    format!("| {of} | {number} | {quantiles} | {mean:.3} | {} | {} |", below(0.98), below(0.95))
}
