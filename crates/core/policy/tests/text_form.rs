//! Every policy survives its text, and no text does any harm.

use proptest::prelude::*;
use symphony_policy::{
    DropRule, GpuChoice, ModelPolicy, ModelPolicyName, PolicyError, PolicySpec, ReadyOrder, ResearchChoices,
    ResearchTrigger, ShedChoice, SimulatedPolicy, SloShare, TargetShare, TriggerChoice, UnmergedPolicy,
};
use symphony_types::Nanos;

fn triggers() -> impl Strategy<Value = TriggerChoice> {
    prop_oneof![
        Just(TriggerChoice::Eager),
        Just(TriggerChoice::Frontrun),
        Just(TriggerChoice::Adaptive),
        (0..=1_000_000_000_000_000_u64).prop_map(|ns| TriggerChoice::Timeout(Nanos::new(ns))),
        (0.0..=1.0).prop_map(|share| TriggerChoice::TimeoutShare(SloShare::from_share(share).unwrap())),
    ]
}

/// Any choices, also those that no text can ask for.
fn policies() -> impl Strategy<Value = ModelPolicy> {
    let name = prop_oneof![
        Just(ModelPolicyName::Symphony),
        Just(ModelPolicyName::Auto),
        Just(ModelPolicyName::Eager),
        Just(ModelPolicyName::Timeout),
        Just(ModelPolicyName::Clipper),
    ];
    let window = (1_u32..=100).prop_map(|percent| DropRule::Window(TargetShare::from_percent(percent).unwrap()));
    let drop = prop_oneof![window, Just(DropRule::Prune)];
    let shed = prop_oneof![Just(ShedChoice::None), Just(ShedChoice::Proportional)];
    (name, triggers(), drop, shed).prop_map(|(name, trigger, drop, shed)| ModelPolicy { name, trigger, drop, shed })
}

fn research() -> impl Strategy<Value = ResearchChoices> {
    let trigger = prop_oneof![Just(None), Just(Some(ResearchTrigger::Latest)), Just(Some(ResearchTrigger::BetaLambda))];
    let order = prop_oneof![
        Just(ReadyOrder::Latest),
        Just(ReadyOrder::Frontrun),
        Just(ReadyOrder::Start),
        Just(ReadyOrder::Deadline),
    ];
    let gpu = prop_oneof![Just(GpuChoice::LowestId), Just(GpuChoice::EarliestFree)];
    (trigger, order, gpu).prop_map(|(trigger, ready_order, gpu_choice)| ResearchChoices {
        trigger,
        ready_order,
        gpu_choice,
    })
}

/// What a name may be combined with.
const fn can_be_written(policy: &ModelPolicy) -> bool {
    match (policy.name, policy.trigger) {
        (ModelPolicyName::Timeout, trigger) => {
            matches!(trigger, TriggerChoice::Timeout(_) | TriggerChoice::TimeoutShare(_))
        }
        (_, TriggerChoice::TimeoutShare(_)) => false,
        (ModelPolicyName::Symphony | ModelPolicyName::Auto, _)
        | (ModelPolicyName::Eager | ModelPolicyName::Clipper, TriggerChoice::Eager) => true,
        (ModelPolicyName::Eager | ModelPolicyName::Clipper, _) => false,
    }
}

proptest! {
    #[test]
    fn what_can_be_written_is_read_back_as_itself_and_nothing_else_passes(policy in policies()) {
        let text = policy.to_string();
        prop_assert_eq!(policy.check().is_ok(), can_be_written(&policy), "{}", text);
        if can_be_written(&policy) {
            prop_assert_eq!(text.parse::<ModelPolicy>(), Ok(policy), "{}", &text);
            prop_assert_eq!(text.parse::<PolicySpec>(), Ok(PolicySpec::Queues(policy.into())), "{}", &text);
            prop_assert!(3 * text.len() <= symphony_policy::POLICY_TEXT_BYTES_MAX, "{} bytes: {}", text.len(), text);
        }
    }

    #[test]
    fn choices_for_experiments_are_read_back_in_scenarios_and_refused_by_clusters(
        model in policies(), research in research(),
    ) {
        // A trigger for experiments takes the place of a trigger that the name leaves open.
        let named = ModelPolicy::of(model.name);
        let is_open = matches!(model.name, ModelPolicyName::Symphony | ModelPolicyName::Auto);
        let model = match research.trigger {
            Some(_) if is_open => ModelPolicy { trigger: named.trigger, ..model },
            _ => model,
        };
        let policy = SimulatedPolicy { model, research };
        let text = policy.to_string();
        if can_be_written(&model) && (is_open || research.trigger.is_none()) {
            prop_assert_eq!(text.parse::<PolicySpec>(), Ok(PolicySpec::Queues(policy)), "{}", &text);
            prop_assert!(3 * text.len() <= symphony_policy::POLICY_TEXT_BYTES_MAX, "{} bytes: {}", text.len(), text);
            let is_for_clusters = research == ResearchChoices::default();
            prop_assert_eq!(text.parse::<ModelPolicy>().is_ok(), is_for_clusters, "{}", &text);
        } else if research.trigger.is_some() {
            prop_assert!(text.parse::<PolicySpec>().is_err(), "{}", &text);
        }
    }

    #[test]
    fn cluster_policies_are_read_back_as_themselves(
        commit in 0..1_000_000_000_000_u64, early in 0..1_000_000_000_000_u64, frontends in 1_u32..=1024, factor in 1.0..=1e9,
    ) {
        let (commit, early) = (Nanos::new(commit), Nanos::new(early));
        for policy in [
            PolicySpec::Clockwork { commit, early },
            PolicySpec::Nexus { frontends },
            PolicySpec::Shepherd { preempt_factor: factor },
            PolicySpec::Unmerged(UnmergedPolicy::Kairos { learn: frontends % 2 == 0 }),
            PolicySpec::Unmerged(UnmergedPolicy::Drs { threshold: (frontends > 9).then_some(frontends) }),
        ] {
            prop_assert_eq!(policy.to_string().parse::<PolicySpec>(), Ok(policy.clone()), "{}", policy);
        }
    }

    #[test]
    fn no_text_makes_it_panic_and_what_is_read_can_be_written(
        text in prop_oneof![
            ".{0,600}",
            "[{\"']? ?(name|trigger|drop|share|window|symphony|auto|timeout|[{}=\",.0-9\n -])*",
        ],
    ) {
        if let Ok(policy) = text.parse::<ModelPolicy>() {
            prop_assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let _ = text.parse::<PolicySpec>();
    }
}

#[track_caller]
fn refused(text: &str, words: &[&str]) {
    let error = text.parse::<ModelPolicy>().expect_err(text).to_string();
    for word in words {
        assert!(error.contains(word), "`{word}` is not in the answer to {text}: {error}");
    }
}

#[test]
fn the_forms_of_a_policy_are_one() {
    let timeout = ModelPolicy {
        trigger: TriggerChoice::TimeoutShare(SloShare::from_share(0.1).unwrap()),
        ..ModelPolicy::of(ModelPolicyName::Timeout)
    };
    for text in [
        "{ name = \"timeout\", share = 0.1 }",
        "{name='timeout',share=0.1}",
        "  { name = \"timeout\", share = 0.10, drop = \"prune\" } ",
    ] {
        assert_eq!(text.parse(), Ok(timeout), "{text}");
    }
    assert_eq!(timeout.to_string(), "{ name = \"timeout\", share = 0.1 }");
    for text in ["auto", "\"auto\"", " 'auto' ", "{ name = \"auto\" }", "{ name = \"auto\", drop = { window = 0.75 } }"]
    {
        let policy: ModelPolicy = text.parse().unwrap();
        assert_eq!((policy.to_string().as_str(), policy), ("auto", ModelPolicy::of(ModelPolicyName::Auto)));
    }
    assert_eq!(ModelPolicy::default().to_string(), "auto");
}

#[test]
fn mistakes_are_answered_with_the_key_what_was_expected_and_what_was_there() {
    refused("magic", &["expected one of \"symphony\", \"auto\"", "got \"magic\""]);
    refused("", &["expected one of \"symphony\"", "got \"\""]);
    refused("Eager", &["got \"Eager\""]);
    refused("{ name = 'magic' }", &["key `name`: expected one of", "got \"magic\""]);
    refused("{ name = 'auto', drop = { window = 2 } }", &["key `drop.window`", "0.01 to 1", "got 2"]);
    refused("{ name = 'timeout', share = 1.5 }", &["key `share`", "0 to 1", "got 1.5"]);
    refused("{ name = 'timeout', share = nan }", &["key `share`", "got NaN"]);
    refused("{ name = 'timeout', share = 0.1, trigger = { timeout_ms = 1 } }", &["either share or trigger"]);
    refused("{ name = 'timeout', trigger = 'eager' }", &["key `trigger`", "{ timeout_ms = x }"]);
    refused("{ name = 'symphony', share = 0.1 }", &["key `share`", "a key of another policy"]);
    refused("{ name = 'symphony', tigger = 'eager' }", &["key `tigger`: expected only trigger, drop", "no policy has"]);
    refused("{ name = 'magic', tigger = 'eager' }", &["key `name`: expected one of"]);
    refused("{ name = 'auto', drop = { windw = 0.5 } }", &["a drop rule in quotes, or { window = share }"]);
    refused("{ name = 'symphony', }, x = 1", &["a policy is its name, or a table such as { name ="]);
    refused("{ trigger = 'eager' }", &["missing field `name`", "a table such as { name ="]);
    refused("{ name = 'symphony', gpu_choice = 1 }", &["invalid type: integer `1`, expected a string"]);
    refused("{ name = 'symphony' }\npolicy2 = 1", &["a line break"]);
    refused(&"x".repeat(513), &["513 bytes; at most 512"]);
    assert_eq!("'auto' # why".parse(), Ok(ModelPolicy::of(ModelPolicyName::Auto)), "a comment is none of a policy");
}

#[test]
fn choices_for_experiments_are_refused_for_a_model_with_the_reason() {
    for (option, key, expected) in [
        ("trigger = 'latest'", "trigger", "one of \"eager\", \"frontrun\", \"adaptive\", { timeout_ms = x }"),
        ("trigger = 'beta_lambda'", "trigger", "one of \"eager\", \"frontrun\", \"adaptive\", { timeout_ms = x }"),
        ("ready_order = 'start'", "ready_order", "only trigger, drop and shed"),
        // Even what a cluster does anyway: it has no such option.
        ("ready_order = 'latest'", "ready_order", "only trigger, drop and shed"),
        ("gpu_choice = 'earliest_free'", "gpu_choice", "only trigger, drop and shed"),
    ] {
        let text = format!("{{ name = 'symphony', {option} }}");
        assert!(text.parse::<PolicySpec>().is_ok(), "{text}");
        refused(
            &text,
            &[&format!("key `{key}`: expected {expected}"), "a choice for experiments", "`symphony sim` only"],
        );
    }
    let wrong = |option: &str, words: &[&str]| {
        let text = format!("{{ name = 'symphony', {option} }}");
        let error = text.parse::<PolicySpec>().expect_err(&text).to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    wrong("ready_order = 'first'", &["key `ready_order`", "\"deadline\"", "got \"first\""]);
    wrong("gpu_choice = 'any'", &["key `gpu_choice`", "\"earliest_free\"", "got \"any\""]);
    wrong("trigger = 'late'", &["key `trigger`", "\"beta_lambda\"", "got \"late\""]);
    for name in ["eager", "clipper", "timeout"] {
        let text = format!("{{ name = '{name}', trigger = 'latest' }}");
        let error = text.parse::<PolicySpec>().expect_err(&text).to_string();
        assert!(error.contains("use name = \"symphony\" to choose one"), "{error}");
    }
}

#[test]
fn policies_of_whole_clusters_are_refused_for_a_model_with_the_reason() {
    for (text, name) in [
        ("clockwork", "clockwork"),
        ("{ name = 'shepherd', preempt_factor = 2 }", "shepherd"),
        ("{ name = 'nexus', frontends = 8 }", "nexus"),
        ("{ name = 'kairos', learn = true }", "kairos"),
        ("{ name = 'drs', threshold = 8 }", "drs"),
    ] {
        assert!(text.parse::<PolicySpec>().is_ok(), "{text}");
        refused(text, &["expected one of \"symphony\"", name, "`symphony subcluster policy` sets it"]);
    }
    assert!(matches!("clockwork".parse::<ModelPolicy>(), Err(PolicyError::Value(_))));
}

#[test]
fn policies_that_a_program_adds_are_read_back_and_unknown_ones_are_told_the_known() {
    let added = ["mine", "other"];
    for (text, shown) in [
        ("mine", "mine"),
        ("{ name = 'mine' }", "mine"),
        ("{ name = 'mine', depth = 3, share = 0.5, fast = true, how = 'x' }", ""),
        ("{ name = 'mine', frontends = 2, threshold = 7 }", "{ name = \"mine\", frontends = 2, threshold = 7 }"),
    ] {
        let policy = PolicySpec::parse_among(text, &added).unwrap();
        assert!(matches!(&policy, PolicySpec::Registered(registered) if registered.name == "mine"), "{policy}");
        assert!(shown.is_empty() || policy.to_string() == shown, "{policy}");
        assert_eq!(PolicySpec::parse_among(&policy.to_string(), &added), Ok(policy));
    }
    let refused = |text: &str| PolicySpec::parse_among(text, &added).unwrap_err().to_string();
    assert!(refused("mien").contains("\"clkwrk\", \"mine\", \"other\", got \"mien\""), "{}", refused("mien"));
    assert!(refused("{ name = 'mine', a = [1] }").contains("key `a`"), "{}", refused("{ name = 'mine', a = [1] }"));
    let trigger = "{ name = 'mine', trigger = 'eager' }";
    assert!(refused(trigger).contains("key `trigger`"), "{}", refused(trigger));
    assert!("mine".parse::<PolicySpec>().is_err(), "without the program's names it is unknown");
}

#[test]
fn kairos_and_its_rivals_merge_no_requests_and_what_is_not_known_may() {
    for policy in ["kairos", "{ name = \"kairos\", learn = true }", "ribbon", "drs", "clkwrk"] {
        assert!(!PolicySpec::text_merges(policy), "{policy}");
    }
    for policy in ["auto", "nexus", "shepherd", "clockwork", "of-ones-own"] {
        assert!(PolicySpec::text_merges(policy), "{policy}");
    }
}
