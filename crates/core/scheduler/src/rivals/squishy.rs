//! Squishy bin packing: which models share a GPU, with which duty cycle and batch sizes.

use symphony_types::{LatencyProfile, Nanos};

/// Bisection steps for the best factor: the remaining error is far too small to change a batch size.
const HALVINGS: u32 = 40;
/// Rounding error that is tolerated in a product that should be an integer.
const ROUNDING: f64 = 1e-9;

/// A stream of requests for one model under one SLO.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    /// ℓ(b).
    pub profile: &'a LatencyProfile,
    /// L: the SLO, from arrival to answer.
    pub slo: Nanos,
    /// R: items per second.
    pub rate_per_second: f64,
}

/// A session's share of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackedSession {
    /// Index of the session.
    pub session: usize,
    /// Its batch size in each duty cycle.
    pub batch: u32,
    /// The rate that it sends here, in items per second.
    pub rate_per_second: f64,
}

/// A GPU that runs one batch of each of its sessions in turn.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedNode {
    /// The duty cycle: the period in which each session runs once.
    pub duty: Nanos,
    /// The sessions.
    pub sessions: Vec<PackedSession>,
    /// Occupancy: the share of the duty cycle with execution.
    pub occupancy: f64,
}

/// A residual load as Algorithm 1 carries it: ⟨b, d, occ⟩ of one session alone.
struct Residue {
    packed: PackedSession,
    duty: Nanos,
    occupancy: f64,
}

/// Algorithm 1 of Nexus (the Nexus paper, section 6.1): `ScheduleSaturate`, then `ScheduleResidue`. Sessions without a
/// rate get no place.
///
/// In the paper a merged session has a batch of d·r items, possibly fractional. A GPU runs whole batches, so they are
/// rounded up, and a merge that would then break an SLO is refused. A session that cannot gather even one item in time
/// (its gap is longer than the SLO allows) runs single items in the longest duty cycle, L − ℓ(1). A session with
/// L < 2·ℓ(1), for which the paper's condition on whole GPUs fails, gets GPUs that run single items.
#[must_use]
pub fn squishy_bin_packing(sessions: &[Session<'_>]) -> Vec<PackedNode> {
    let mut nodes = Vec::new();
    let mut residues = Vec::new();
    for (index, session) in sessions.iter().enumerate() {
        if session.rate_per_second > 0.0 {
            residues.extend(saturate(index, session, &mut nodes));
        }
    }
    nodes.extend(pack_residues(sessions, residues));
    nodes
}

/// Whole GPUs for a session, and its residual load.
fn saturate(index: usize, session: &Session<'_>, nodes: &mut Vec<PackedNode>) -> Option<Residue> {
    let profile = session.profile;
    let batch = largest_batch(profile, |batch| profile.latency(batch).saturating_mul(2) <= session.slo).max(1);
    let duty = profile.latency(batch);
    let throughput = f64::from(batch) / duty.as_secs_f64();
    let whole = (session.rate_per_second / throughput + ROUNDING).floor();
    for _ in 0..whole as u64 {
        let packed = PackedSession { session: index, batch, rate_per_second: throughput };
        nodes.push(PackedNode { duty, sessions: vec![packed], occupancy: 1.0 });
    }
    let rate = session.rate_per_second - whole * throughput;
    if rate <= throughput * ROUNDING {
        return None;
    }
    // The largest b with ℓ(b) + b/r ≤ L.
    let gathers = |batch: u32| Nanos::from_secs_f64(f64::from(batch) / rate) + profile.latency(batch) <= session.slo;
    let (batch, duty) = match largest_batch(profile, gathers) {
        0 => (1, session.slo - profile.latency(1)),
        batch => (batch, Nanos::from_secs_f64(f64::from(batch) / rate)),
    };
    let packed = PackedSession { session: index, batch, rate_per_second: rate };
    Some(Residue { packed, duty, occupancy: share(profile.latency(batch), duty) })
}

/// The largest batch that fits, zero if none does. `fits` must hold for a prefix of 1, 2, …
fn largest_batch(profile: &LatencyProfile, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, profile.batch_max() + 1);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

fn share(busy: Nanos, duty: Nanos) -> f64 {
    busy.as_secs_f64() / duty.as_secs_f64().max(ROUNDING)
}

/// Best fit, largest occupancy first.
fn pack_residues(sessions: &[Session<'_>], mut residues: Vec<Residue>) -> Vec<PackedNode> {
    residues.sort_by(|a, b| b.occupancy.total_cmp(&a.occupancy));
    let mut nodes: Vec<PackedNode> = Vec::new();
    for residue in residues {
        let mut best: Option<(usize, PackedNode)> = None;
        for (place, node) in nodes.iter().enumerate() {
            if let Some(merged) = merge(sessions, node, &residue)
                && best.as_ref().is_none_or(|(_, best)| merged.occupancy > best.occupancy)
            {
                best = Some((place, merged));
            }
        }
        match best {
            Some((place, merged)) => nodes[place] = merged,
            None => {
                let (duty, occupancy) = (residue.duty, residue.occupancy);
                nodes.push(PackedNode { duty, sessions: vec![residue.packed], occupancy });
            }
        }
    }
    nodes
}

/// The node with an additional session, in the shorter of both duty cycles; `None` if it does not fit (Figure 7 of the
/// paper).
fn merge(sessions: &[Session<'_>], node: &PackedNode, residue: &Residue) -> Option<PackedNode> {
    let duty = node.duty.min(residue.duty);
    let mut busy = Nanos::ZERO;
    let mut merged = Vec::with_capacity(node.sessions.len() + 1);
    for packed in node.sessions.iter().chain([&residue.packed]) {
        let session = &sessions[packed.session];
        let gathered = duty.as_secs_f64() * packed.rate_per_second;
        let batch = (gathered - ROUNDING).ceil().max(1.0) as u32;
        let latency = session.profile.latency(batch);
        busy += latency;
        if busy > duty || duty + latency > session.slo {
            return None;
        }
        merged.push(PackedSession { batch, ..*packed });
    }
    Some(PackedNode { duty, sessions: merged, occupancy: share(busy, duty) })
}

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Table 2 of the paper: measured at 4, 8 and 16; straight lines between, the smallest latency below.
    fn table_2(at_4: f64, at_8: f64, at_16: f64) -> LatencyProfile {
        let line = |batch: f64, from: (f64, f64), to: (f64, f64)| {
            from.1 + (to.1 - from.1) * (batch - from.0) / (to.0 - from.0)
        };
        let latency = |batch: u32| match f64::from(batch) {
            b if b <= 4.0 => at_4,
            b if b <= 8.0 => line(b, (4.0, at_4), (8.0, at_8)),
            b => line(b, (8.0, at_8), (16.0, at_16)),
        };
        LatencyProfile::from_table(&(1..=16).map(|b| Nanos::from_millis_f64(latency(b))).collect::<Vec<_>>()).unwrap()
    }

    fn models() -> [LatencyProfile; 3] {
        [table_2(50.0, 75.0, 100.0), table_2(50.0, 90.0, 125.0), table_2(60.0, 95.0, 125.0)]
    }

    fn sessions(models: &[LatencyProfile; 3], rates: [f64; 3]) -> Vec<Session<'_>> {
        let slos = [200, 250, 250].map(Nanos::from_millis);
        let session = |i: usize| Session { profile: &models[i], slo: slos[i], rate_per_second: rates[i] };
        (0..3).map(session).collect()
    }

    #[test]
    fn figure_2a_high_rates_get_whole_gpus_with_the_largest_batch_in_half_the_slo() {
        // A does 160 r/s on a GPU with batches of 16, B and C do 128 r/s.
        let models = models();
        let nodes = squishy_bin_packing(&sessions(&models, [320.0, 128.0, 256.0]));
        let whole: Vec<_> = nodes.iter().map(|node| (node.sessions[0].session, node.sessions[0].batch)).collect();
        assert_eq!(whole, [(0, 16), (0, 16), (1, 16), (2, 16), (2, 16)]);
        assert!(nodes.iter().all(|node| node.sessions.len() == 1 && node.occupancy == 1.0));
        assert_eq!(nodes[0].duty, Nanos::from_millis(100));
    }

    #[test]
    fn figure_2b_a_and_b_share_a_gpu_in_a_duty_cycle_of_125_ms_and_c_does_not_fit() {
        let models = models();
        let nodes = squishy_bin_packing(&sessions(&models, [64.0, 32.0, 32.0]));
        assert_eq!(nodes.len(), 2);
        // C asks for more than B, comes first, and would need 75 + 60 of 125 ms.
        let packed = |node: &PackedNode| node.sessions.iter().map(|s| (s.session, s.batch)).collect::<Vec<_>>();
        assert_eq!((packed(&nodes[0]), nodes[0].duty), (vec![(0, 8), (1, 4)], Nanos::from_millis(125)));
        assert_eq!(nodes[0].occupancy, 1.0, "75 and 50 of 125 ms");
        assert_eq!(packed(&nodes[1])[0].0, 2);
    }

    #[test]
    fn a_residue_takes_what_is_left_of_a_large_session() {
        // 1.5 GPUs of A: one whole, then 80 r/s alone: 10 items gather in 125 ms, and 81.25 ms more is too long; 9 in
        // 112.5.
        let models = models();
        let nodes = squishy_bin_packing(&sessions(&models, [240.0, 0.0, 0.0]));
        let got: Vec<_> = nodes.iter().map(|node| (node.sessions[0].batch, node.duty)).collect();
        assert_eq!(got, [(16, Nanos::from_millis(100)), (9, Nanos::from_micros(112_500))]);
        assert!((nodes[1].sessions[0].rate_per_second - 80.0).abs() < 1e-9);
    }

    #[test]
    fn a_trickle_runs_single_items_in_the_longest_duty_cycle_its_slo_allows() {
        let models = models();
        let nodes = squishy_bin_packing(&sessions(&models, [1.0, 1.0, 1.0]));
        assert_eq!(nodes.len(), 2, "50, 50 and 60 ms do not fit into 150 ms");
        assert_eq!(nodes[0].duty, Nanos::from_millis(150));
        assert!(nodes.iter().flat_map(|node| &node.sessions).all(|packed| packed.batch == 1));
    }

    #[test]
    fn eight_gpus_are_filled_as_seed_000_computes_without_coordination() {
        // 2·ℓ(7) = 24.9 ms of 25: eight times 7 / 12.443 ms = 4501 r/s, whatever the rate asked for.
        let profile = LatencyProfile::from_line(1.053, 5.072, 18).unwrap();
        for rate_per_second in [10.0, 4400.0, 9000.0] {
            let nodes = fit_nodes(&[Session { profile: &profile, slo: Nanos::from_millis(25), rate_per_second }], 8);
            assert_eq!(nodes.len(), 8);
            assert!(nodes.iter().all(|node| node.sessions[0].batch == 7), "{nodes:?}");
        }
    }

    proptest! {
        #[test]
        fn every_session_has_its_rate_and_no_node_breaks_a_promise(
            lines in prop::collection::vec((0.1..5.0_f64, 0.1..20.0_f64, 20.0..200.0_f64, 0.1..900.0_f64), 1..12),
            gpus in 12_usize..40,
        ) {
            let profiles: Vec<_> = lines.iter().map(|l| LatencyProfile::from_line(l.0, l.1, 64).unwrap()).collect();
            let sessions: Vec<_> = lines.iter().zip(&profiles).map(|(line, profile)| Session {
                profile, slo: Nanos::from_millis_f64(line.2), rate_per_second: line.3,
            }).collect();
            let nodes = squishy_bin_packing(&sessions);
            let mut rates = vec![0.0; sessions.len()];
            for node in &nodes {
                let mut busy = Nanos::ZERO;
                for packed in &node.sessions {
                    let session = &sessions[packed.session];
                    let latency = session.profile.latency(packed.batch);
                    busy += latency;
                    rates[packed.session] += packed.rate_per_second;
                    if session.profile.latency(1).saturating_mul(2) <= session.slo {
                        prop_assert!(node.duty + latency <= session.slo + Nanos::new(2), "{node:?}");
                        // What gathers in a duty cycle fits into the batch.
                        let gathered = node.duty.as_secs_f64() * packed.rate_per_second;
                        prop_assert!(gathered <= f64::from(packed.batch) + 1e-6, "{node:?}");
                    }
                }
                prop_assert!(busy <= node.duty + Nanos::new(2) || node.sessions.len() == 1, "{node:?}");
            }
            for (session, rate) in sessions.iter().zip(rates) {
                prop_assert!((session.rate_per_second - rate).abs() < 1e-6 * rate.max(1.0));
            }
            let fitted = fit_nodes(&sessions, gpus);
            prop_assert_eq!(fitted.len(), gpus);
        }
    }
}
