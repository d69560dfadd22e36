//! Allocation that knows nothing of batches that share a GPU: what the Nexus paper compares with (section 7.2).

use symphony_types::Nanos;

use crate::node::{PackedNode, PackedSession};
use crate::session::Session;

/// What rounding leaves of a node's share.
const ROUNDING: f64 = 1e-9;

/// Gives each session a share of the nodes in proportion to its rate over what one node does of it alone; the largest
/// share first, cut where a node is full. A session runs the largest batch that its SLO allows alone, 2·ℓ(b) ≤ L,
/// whatever shares its node. No nodes without a rate.
#[must_use]
pub fn batch_oblivious(sessions: &[Session<'_>], nodes: usize) -> Vec<PackedNode> {
    let batch = |session: &Session<'_>| {
        let fits = session.profile.table().partition_point(|latency| latency.saturating_mul(2) <= session.slo);
        (fits as u32).max(1)
    };
    let need = |session: &Session<'_>| {
        let batch = batch(session);
        session.rate_per_second * session.profile.latency(batch).as_secs_f64() / f64::from(batch)
    };
    let needs: Vec<f64> = sessions.iter().map(need).collect();
    let all: f64 = needs.iter().sum();
    if nodes == 0 || !(all > 0.0 && all.is_finite()) {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..sessions.len()).collect();
    order.sort_by(|&a, &b| needs[b].total_cmp(&needs[a]));
    let empty = PackedNode { duty: Nanos::ZERO, sessions: Vec::new(), occupancy: 0.0 };
    let mut packed = vec![empty; nodes];
    let mut node = 0;
    for index in order {
        let session = &sessions[index];
        let share = needs[index] / all * nodes as f64;
        let mut left = share;
        while left > ROUNDING {
            if 1.0 - packed[node].occupancy <= ROUNDING && node + 1 < nodes {
                node += 1;
            }
            // The last node takes what rounding leaves over.
            let free = if node + 1 < nodes { 1.0 - packed[node].occupancy } else { left };
            let part = left.min(free);
            let batch = batch(session);
            packed[node].sessions.push(PackedSession {
                session: index,
                batch,
                rate_per_second: session.rate_per_second * part / share,
            });
            packed[node].duty += session.profile.latency(batch);
            packed[node].occupancy += part;
            left -= part;
        }
    }
    packed
}

#[cfg(test)]
mod tests {
    use symphony_types::LatencyProfile;

    use super::*;

    #[test]
    fn shares_follow_the_need_and_batches_the_slo_alone() {
        let profile = LatencyProfile::from_line(1.0, 9.0, 64).unwrap();
        let session =
            |slo_ms, rate_per_second| Session { profile: &profile, slo: Nanos::from_millis(slo_ms), rate_per_second };
        // Batches of 11 in 20 ms and of 41 in 50 ms: 550 and 820 per second.
        let packed = batch_oblivious(&[session(40, 550.0), session(100, 2460.0), session(40, 0.0)], 2);
        let of = |node: usize| packed[node].sessions.iter().map(|s| (s.session, s.batch)).collect::<Vec<_>>();
        // Needs of 1 and 3: half a node and one and a half.
        assert_eq!((of(0), of(1)), (vec![(1, 41)], vec![(1, 41), (0, 11)]));
        let rates: Vec<f64> = packed.iter().flat_map(|node| &node.sessions).map(|s| s.rate_per_second).collect();
        assert!(rates.iter().zip([1640.0, 820.0, 550.0]).all(|(a, b)| (a - b).abs() < 1e-6), "{rates:?}");
        assert_eq!(packed[1].duty, Nanos::from_millis(70));
        assert_eq!(
            (batch_oblivious(&[session(40, 0.0)], 2).len(), batch_oblivious(&[session(40, 1.0)], 0).len()),
            (0, 0)
        );
    }
}
