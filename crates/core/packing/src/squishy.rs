//! Algorithm 1.

use crate::load::Load;
use crate::node::PackedNode;
use crate::session::Session;
use crate::slots::{Slot, Slots, pack_residues};

/// Algorithm 1 of Nexus (the Nexus paper, section 6.1): `ScheduleSaturate`, then `ScheduleResidue`. Sessions without a
/// rate get no place.
///
/// In the paper a merged session has a batch of d·r items, possibly fractional. A GPU runs whole batches, so they are
/// rounded up, and a merge that would then break an SLO is refused. The paper's largest batch of a residue can be none,
/// or one that takes longer to run than to gather; then the next larger batch runs, not quite filled, in the longest
/// duty cycle that the SLO allows. A session with L < 2·ℓ(1), for which the paper's condition on whole GPUs fails, gets
/// GPUs that run single items.
#[must_use]
pub fn squishy_bin_packing(sessions: &[Session<'_>]) -> Vec<PackedNode> {
    let (mut slots, mut residues) = (Slots::new(), Vec::new());
    for (index, session) in sessions.iter().enumerate() {
        let load = Load::of(index, session);
        slots.extend((0..load.whole).map(|_| Some(Slot { node: load.full.clone(), from: None, full: true })));
        residues.extend(load.residue);
    }
    pack_residues(sessions, &mut slots, residues);
    slots.into_iter().flatten().map(|slot| slot.node).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use symphony_types::{LatencyProfile, Nanos};

    use super::*;
    use crate::fit_nodes;

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
    fn a_residue_for_which_batches_that_gather_in_time_are_too_small_runs_larger_ones_not_quite_filled() {
        // Two take 20.1 ms, 42.9 within the SLO: a GPU does 99.5 r/s. At 80, two gather in 25 ms, too long; one gathers
        // in 12.5, and runs 17.6.
        let profile = LatencyProfile::from_line(2.55, 15.0, 32).unwrap();
        let session = Session { profile: &profile, slo: Nanos::from_micros(42_900), rate_per_second: 80.0 };
        let nodes = squishy_bin_packing(&[session]);
        assert_eq!((nodes.len(), nodes[0].sessions[0].batch, nodes[0].duty), (1, 2, Nanos::from_micros(22_800)));
        assert!(nodes[0].occupancy <= 1.0, "{nodes:?}");
    }

    #[test]
    fn a_duty_cycle_that_is_rounded_up_gathers_no_item_more() {
        // Three items in 42.857143 ms, 0.3 ns too long. Four would not fit beside the other session.
        let profile = LatencyProfile::from_line(3.0, 5.0, 32).unwrap();
        let session =
            |rate_per_second, slo_ms| Session { profile: &profile, slo: Nanos::from_millis(slo_ms), rate_per_second };
        let nodes = squishy_bin_packing(&[session(70.0, 57), session(140.0, 72)]);
        let batches: Vec<_> =
            nodes.iter().map(|node| node.sessions.iter().map(|s| s.batch).collect::<Vec<_>>()).collect();
        assert_eq!(batches, [[6, 3]], "{nodes:?}");
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
                    } else {
                        // Nothing helps there.
                        prop_assert_eq!((node.sessions.len(), packed.batch), (1, 1));
                        busy = Nanos::ZERO;
                    }
                }
                prop_assert!(busy <= node.duty + Nanos::new(2), "{node:?}");
            }
            for (session, rate) in sessions.iter().zip(rates) {
                prop_assert!((session.rate_per_second - rate).abs() < 1e-6 * rate.max(1.0));
            }
            let fitted = fit_nodes(&sessions, gpus);
            prop_assert_eq!(fitted.len(), gpus);
        }
    }
}
