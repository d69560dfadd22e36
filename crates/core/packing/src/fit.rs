//! The packing for a given number of GPUs.

use crate::load::ROUNDING;
use crate::node::PackedNode;
use crate::session::Session;
use crate::squishy::squishy_bin_packing;

/// Bisection steps for the best factor: the remaining error is far too small to change a batch size.
const HALVINGS: u32 = 40;

/// The packing for exactly the given number of GPUs: the rates are multiplied by the largest factor whose packing fits,
/// and each GPU left over takes half of the fullest one's load, one after the other. If even the smallest factor does
/// not fit, the packing has more nodes than GPUs.
#[must_use]
pub fn fit_nodes(sessions: &[Session<'_>], nodes: usize) -> Vec<PackedNode> {
    let scaled = |factor: f64| {
        let mut scaled = sessions.to_vec();
        scaled.iter_mut().for_each(|session| session.rate_per_second *= factor);
        squishy_bin_packing(&scaled)
    };
    if sessions.iter().all(|session| session.rate_per_second <= 0.0) {
        return Vec::new();
    }
    // An upper bound: if one GPU each would do nothing else, the packing is far too large.
    let most = |session: &Session<'_>| session.rate_per_second * session.profile.latency(1).as_secs_f64();
    let alone: f64 = sessions.iter().map(most).sum();
    let (mut fits, mut too_much) = (0.0, 2.0 * nodes as f64 / alone.max(ROUNDING) * batching_gain(sessions));
    let mut packing = None;
    for _ in 0..HALVINGS {
        let factor = f64::midpoint(fits, too_much);
        let candidate = scaled(factor);
        if candidate.len() <= nodes {
            fits = factor;
            packing = Some(candidate);
        } else {
            too_much = factor;
        }
    }
    let mut packing = packing.unwrap_or_else(|| scaled(too_much));
    while packing.len() < nodes {
        let by_load = |&(_, a): &(usize, &PackedNode), &(_, b): &(usize, &PackedNode)| {
            a.occupancy.total_cmp(&b.occupancy).then(std::cmp::Ordering::Less)
        };
        let Some((fullest, _)) = packing.iter().enumerate().max_by(by_load) else { break };
        packing[fullest].occupancy /= 2.0;
        for packed in &mut packing[fullest].sessions {
            packed.rate_per_second /= 2.0;
        }
        packing.push(packing[fullest].clone());
    }
    packing
}

/// The largest throughput gain of batching over single items among the sessions.
fn batching_gain(sessions: &[Session<'_>]) -> f64 {
    let gain = |session: &Session<'_>| {
        let largest = session.profile.batch_max();
        let batched = f64::from(largest) / session.profile.latency(largest).as_secs_f64();
        batched * session.profile.latency(1).as_secs_f64()
    };
    sessions.iter().map(gain).fold(1.0, f64::max)
}
