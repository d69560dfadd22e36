//! Models that share a trunk: windows go by what a batch takes at worst, plans by what their variants take.

use symphony_scheduler::{Plan, Request};
use symphony_types::FamilyProfile;

use super::*;

/// Three variants: ℓ_T(b) = 1·b + 4 ms, and each suffix 0.5·b + 1 ms.
fn family() -> FamilyProfile {
    let line = |alpha_ms, beta_ms| LatencyProfile::from_line(alpha_ms, beta_ms, 16).unwrap();
    FamilyProfile::alike(line(1.0, 4.0), line(0.5, 1.0), 3).unwrap()
}

/// What a queue of the family orders for requests of these variants when it is granted a GPU at once.
fn planned(variants: &[u32]) -> (Plan, Vec<ModelAction>) {
    let mut host = Host::symphony();
    host.queue.share_trunk(CLASS, family());
    for (sequence, &variant) in (0..).zip(variants) {
        host.step(ms(0), ModelInput::Arrive(Request { variant, ..request(sequence, ms(25)) }));
    }
    let actions = host.grant(0, ms(0));
    let plan = actions.iter().find_map(|action| match action {
        ModelAction::Execute(plan) => Some(*plan),
        _ => None,
    });
    (plan.expect("a GPU was granted"), actions)
}

fn us(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

#[test]
fn a_plan_takes_what_its_variants_take_and_its_window_what_any_could_take() {
    for (variants, exact_us) in [([0, 2, 0], 10_500), ([1, 1, 1], 9_500), ([0, 1, 2], 11_500)] {
        let (plan, actions) = planned(&variants);
        // At worst three rows take 3 + 4 + 1.5 + 3·1 ms, and four 4 + 4 + 2 + 3·1 ms.
        let why = plan.why.unwrap();
        assert_eq!((why.latest, why.frontrun), (ms(25) - us(11_500), ms(25) - us(13_000)), "{variants:?}");
        assert_eq!((plan.batch, plan.start, plan.end), (3, ms(12), ms(12) + us(exact_us)), "{variants:?}");
        let released = ModelAction::Release { gpu: plan.gpu, free_at: plan.end };
        assert!(actions.contains(&released), "the GPU does not idle: {actions:?}");
    }
}

#[test]
fn a_variant_that_is_not_there_is_planned_at_worst() {
    let (plan, _) = planned(&[0, 0, 9]);
    assert_eq!(plan.end, plan.start + us(11_500));
}

#[test]
fn variants_may_be_named_otherwise_than_by_their_places() {
    let mut host = Host::symphony();
    host.queue.name_variants(&[70, 80, 95]);
    host.queue.share_trunk(CLASS, family());
    for (sequence, variant) in [(0, 95), (1, 70), (2, 95)] {
        host.step(ms(0), ModelInput::Arrive(Request { variant, ..request(sequence, ms(25)) }));
    }
    assert_eq!(host.queue.waiting().map(|request| request.variant).collect::<Vec<_>>(), [95, 70, 95]);
    let actions = host.grant(0, ms(0));
    let plan = actions.iter().find_map(|action| match action {
        ModelAction::Execute(plan) => Some(plan.end.since(plan.start)),
        _ => None,
    });
    assert_eq!(plan, Some(us(10_500)), "of two variants");
}
