//! Validation by values and by text agree, also for values that only decoded bytes can hold.

use proptest::prelude::*;
use symphony_types::Nanos;

use super::*;

/// The verdict by text: a policy is expressible if formatting and parsing reproduce it.
fn passes_as_text(policy: &ModelPolicy) -> bool {
    policy.to_string().parse() == Ok(*policy)
}

fn triggers() -> impl Strategy<Value = TriggerChoice> {
    let named = prop::sample::select(TriggerChoice::WORDS.map(|(_, trigger)| trigger).to_vec());
    let limit = SPAN_MAX.get();
    let wait = prop_oneof![0..=limit, limit - 3..=limit + 3, any::<u64>()];
    let share = prop_oneof![0..=1_000_000_u32, 999_997..=1_000_003_u32, any::<u32>()];
    prop_oneof![
        named,
        wait.prop_map(|ns| TriggerChoice::Timeout(Nanos::new(ns))),
        share.prop_map(|millionths| TriggerChoice::TimeoutShare(SloShare::unchecked(millionths))),
    ]
}

fn policies() -> impl Strategy<Value = ModelPolicy> {
    let percent = prop_oneof![1..=100_u8, any::<u8>()];
    let drop = prop_oneof![
        percent.prop_map(|percent| DropRule::Window(TargetShare::unchecked(percent))),
        Just(DropRule::Prune),
        Just(DropRule::Window(TargetShare::unchecked(0))),
    ];
    (
        prop::sample::select(ModelPolicyName::WORDS.map(|(_, name)| name).to_vec()),
        triggers(),
        drop,
        prop::sample::select(ShedChoice::WORDS.map(|(_, choice)| choice).to_vec()),
    )
        .prop_map(|(name, trigger, drop, shed)| ModelPolicy { name, trigger, drop, shed })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn values_and_text_agree_on_what_can_be_written(policy in policies()) {
        prop_assert_eq!(policy.check().is_ok(), passes_as_text(&policy), "{}: {:?}", policy, policy.check());
    }
}

#[test]
fn refused_values_are_answered_with_the_key_and_the_limit() {
    let wait = TriggerChoice::Timeout(Nanos::new(SPAN_MAX.get() + 1_000_000));
    let share = TriggerChoice::TimeoutShare(SloShare::unchecked(1_500_000));
    let window = DropRule::Window(TargetShare::unchecked(0));
    let [symphony, timeout] = [ModelPolicyName::Symphony, ModelPolicyName::Timeout].map(ModelPolicy::of);
    for (policy, message) in [
        (
            ModelPolicy { trigger: wait, ..symphony },
            "key `trigger.timeout_ms`: expected milliseconds, 0 to 1e9, got 1000000001000000 ns",
        ),
        (
            ModelPolicy { trigger: share, ..timeout },
            "key `share`: expected a share of the SLO, 0 to 1, got 1500000 millionths",
        ),
        (
            ModelPolicy { drop: window, ..symphony },
            "key `drop.window`: expected a share of the target batch, 0.01 to 1, got 0 %",
        ),
    ] {
        assert_eq!(policy.check().unwrap_err().to_string(), message);
    }
    for name in [ModelPolicyName::Symphony, ModelPolicyName::Eager] {
        let other = ModelPolicy { trigger: share, ..ModelPolicy::of(name) }.check().unwrap_err().to_string();
        assert!(
            other.starts_with("key `share`: expected only trigger") && other.ends_with("another policy"),
            "{other}"
        );
    }
}
