//! Whatever is proposed: invariants hold, replicas agree byte for byte, snapshots change nothing, bytes never panic.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use symphony_cluster_state::{
    Action, Applied, ClusterState, Command, HolderState, LeadTransfer, ModelSource, ModelSpec, Moved, POLICY_OF_MODELS,
    PlanProposal, PolicyFailure, Refusal, Reply, Shadow, Traffic, WantedMove, check, check_step, decode_outcome,
    encode_outcome,
};
use symphony_types::{BackendId, BootId, Duty, Epoch, FrontendId, Level, Member, ModelId, NodeId, SubclusterId, Token};

use crate::scene;
use crate::scene::{backend, backend_down, frontend, node, node_down, operation, report};

const KINDS: [&str; 2] = ["cpu", "gpu"];

/// Policies with and without options.
const POLICIES: [&str; 4] = [
    "symphony",
    "{ name = 'timeout', share = 0.1, drop = { window = 0.75 } }",
    "{ name = 'auto', drop = { window = 0.5 }, shed = 'none' }",
    "{ name = 'symphony', trigger = { timeout_ms = 2.5 }, drop = 'prune' }",
];

fn loaded(id: u64, name: &str, subcluster: &str, kinds: &[&str]) -> Command {
    let policy = POLICIES[id as usize % POLICIES.len()].parse().unwrap();
    let source = if id.is_multiple_of(3) { ModelSource::Emulated } else { ModelSource::Onnx("m.onnx".into()) };
    let spec = ModelSpec { policy, source, ..scene::spec(name, subcluster, kinds) };
    Command::Operate(operation(id, Action::LoadModel(spec)))
}

/// Few names and few boots, so that commands meet each other.
fn any_command() -> impl Strategy<Value = Command> {
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    let subcluster = || prop::sample::select(vec!["left", "right"]);
    let kinds = || prop::sample::subsequence(KINDS.to_vec(), 0..=2);
    let boot = || 0_u64..4;
    // Zero is no id; the others meet themselves, with the same words and with others.
    let id = || 0_u64..12;
    let state = prop_oneof![Just(HolderState::Ready), Just(HolderState::Failed("broken".into()))];
    let command = prop_oneof![
        3 => (0_u64..4, boot()).prop_map(|(n, b)| node(n, b)),
        3 => (1_u64..4, boot()).prop_map(|(n, b)| node_down(n, b)),
        4 => (name(), boot(), subcluster(), kinds()).prop_map(|(n, b, s, k)| backend(n, b, s, &k)),
        2 => (1_u32..4, boot()).prop_map(|(n, b)| backend_down(n, b)),
        1 => (name(), boot()).prop_map(|(n, b)| frontend(n, b)),
        3 => (id(), name(), subcluster(), kinds()).prop_map(|(id, n, s, k)| loaded(id, n, s, &k)),
        1 => (id(), name(), kinds()).prop_map(|(id, n, k)| loaded(id, n, "", &k)),
        1 => (id(), name()).prop_map(|(id, n)| {
            Command::Operate(operation(id, Action::UnloadModel { name: n.into() }))
        }),
        1 => (id(), name(), 1_u64..9).prop_map(|(id, n, slo_ms)| {
            let (slo_ns, value) = (Some(slo_ms * 1_000_000), symphony_types::RequestValue::from_number(slo_ms as f64));
            Command::Operate(operation(id, Action::ChangeModel { name: n.into(), slo_ns, policy: None, value }))
        }),
        1 => (id(), name(), 1_u64..3, 0_u32..3).prop_map(|(id, n, version, weight)| {
            let shadow = (version == 2).then_some(Shadow { version: 1, percent: 5 });
            let weights = (weight > 0).then_some((1, weight)).into_iter().collect();
            Command::Operate(operation(id, Action::SetTraffic { model: n.into(), traffic: Traffic { weights, shadow } }))
        }),
        2 => (1_u32..8, 1_u32..4, boot(), state).prop_map(|(m, b, boot, state)| report(m, b, boot, state)),
        4 => any_move(),
        4 => any_step_of_a_plan(),
        2 => any_about_policies(),
        3 => any_cuts(),
        2 => any_about_pipelines(),
    ];
    (command, prop::option::of(1_u64..4)).prop_map(|(command, avoid)| match avoid {
        Some(proposer) => command.avoiding(NodeId::new(proposer)),
        None => command,
    })
}

/// Policies for whole sub-clusters: of every program, added, unknown, of models; and how they fail.
fn any_about_policies() -> impl Strategy<Value = Command> {
    let subcluster = || prop::sample::select(vec!["left", "right"]);
    let policy = prop::sample::select(vec!["nexus", "mine", "eager", POLICY_OF_MODELS]);
    let names = prop::sample::subsequence(vec!["mine", "other"], 0..=2);
    let boot = || (0_u64..4).prop_map(BootId::new);
    let node = || (1_u64..4).prop_map(NodeId::new);
    let why = prop::sample::select(vec![PolicyFailure::Panicked, PolicyFailure::Hung]);
    prop_oneof![
        3 => (0_u64..12, subcluster(), policy).prop_map(|(id, subcluster, policy)| {
            let (subcluster, policy) = (subcluster.to_owned(), policy.to_owned());
            Command::Operate(operation(id, Action::SetPolicy { subcluster, policy }))
        }),
        2 => (node(), boot(), names).prop_map(|(node, boot, names)| {
            Command::KnowPolicies { node, boot, names: names.into_iter().map(str::to_owned).collect() }
        }),
        2 => (1_u32..3, 1_u64..40, node(), boot(), why).prop_map(|(subcluster, token, node, boot, why)| {
            let (subcluster, token) = (SubclusterId::new(subcluster), Token::new(token));
            Command::PolicyFailed { subcluster, token, node, boot, why, avoid: None }
        }),
    ]
}

/// Few cut points, so that models share some; of models that are loaded or not.
fn any_cuts() -> impl Strategy<Value = Command> {
    let found = prop::sample::subsequence(vec![1_u128, 2, 3, 4], 0..=4);
    (1_u32..8, 1_u32..4, 0_u64..4, found)
        .prop_map(|(model, backend, boot, found)| scene::cuts(model, backend, boot, &found))
}

/// Pipelines of the models that there may be, and their splits.
fn any_about_pipelines() -> impl Strategy<Value = Command> {
    let model = || prop::sample::select(vec!["a", "b", "c"]);
    let id = || 0_u64..12;
    prop_oneof![
        3 => (id(), 1_u64..3, prop::collection::vec(model(), 1..3)).prop_map(|(id, version, models)| {
            Command::Operate(operation(id, Action::LoadPipeline(scene::chain("p", version, &models))))
        }),
        1 => (id(), prop::sample::select(vec!["p", "p@1", "p@2", "a"])).prop_map(|(id, name)| {
            Command::Operate(operation(id, Action::UnloadPipeline { name: name.into() }))
        }),
        1 => (id(), 1_u64..3).prop_map(|(id, version)| {
            let traffic = Traffic { weights: [(version, 1)].into(), shadow: None };
            Command::Operate(operation(id, Action::SetTraffic { model: "p".into(), traffic }))
        }),
        1 => (1_u64..3, prop::collection::vec(0_u64..9, 1..3)).prop_map(|(version, budgets_ns)| {
            let split = symphony_pipeline::CommittedSplit { budgets_ns, ..Default::default() };
            Command::SetSplit { pipeline: "p".into(), version, split }
        }),
    ]
}

/// Plans, and what makes their moves go on or end. Epochs are few, as are the indexes at which moves begin.
fn any_step_of_a_plan() -> impl Strategy<Value = Command> {
    let what = || {
        prop_oneof![
            3 => (1_u32..5).prop_map(|id| Moved::Model(ModelId::new(id))),
            2 => (1_u32..4).prop_map(|id| Moved::Backend(BackendId::new(id))),
        ]
    };
    let subcluster = || (1_u32..3).prop_map(SubclusterId::new);
    let wanted = || (what(), subcluster(), subcluster()).prop_map(|(what, from, to)| WantedMove { what, from, to });
    let moves = prop::collection::vec(wanted(), 1..4);
    let index = || 1_u64..40;
    let propose = (0_u64..12, moves, any::<bool>()).prop_map(|(epoch, moves, adopt)| {
        let (cause, summary) = (String::new(), String::new());
        Command::ProposePlan(PlanProposal {
            epoch: Epoch::new(epoch),
            cause,
            summary,
            moves,
            adopt,
            ..PlanProposal::default()
        })
    });
    prop_oneof![
        6 => propose,
        2 => (1_u32..5, index()).prop_map(|(model, since)| Command::FinishMove { model: ModelId::new(model), since }),
        1 => (what(), index()).prop_map(|(what, since)| Command::CancelMove { what, since, reason: "late".into() }),
        1 => (1_u64..12, index(), any::<bool>()).prop_map(|(id, plan, approve)| {
            Command::Operate(operation(id, Action::ReviewPlan { plan, approve }))
        }),
    ]
}

/// Commands about duties and planned moves. Sub-clusters are few and logs short, so that numbers often fit.
fn any_move() -> impl Strategy<Value = Command> {
    let boot = || (0_u64..4).prop_map(BootId::new);
    let node = || (1_u64..4).prop_map(NodeId::new);
    let subcluster = || (1_u32..3).prop_map(SubclusterId::new);
    let member = || {
        prop_oneof![
            (1_u64..4).prop_map(|id| Member::Scheduler(NodeId::new(id))),
            (1_u32..4).prop_map(|id| Member::Backend(BackendId::new(id))),
            (1_u32..3).prop_map(|id| Member::Frontend(FrontendId::new(id))),
        ]
    };
    let duty = prop::sample::select(vec![Duty::Serving, Duty::Cordoned, Duty::Draining]);
    let index = || 1_u64..40;
    prop_oneof![
        2 => (1_u64..6, member(), duty).prop_map(|(id, member, duty)| {
            Command::Operate(operation(id, Action::SetDuty { member, duty }))
        }),
        1 => (member(), boot()).prop_map(|(member, boot)| Command::Leave { member, boot }),
        1 => (member(), boot()).prop_map(|(member, boot)| Command::ReportDrained { member, boot }),
        6 => (subcluster(), index(), node(), boot()).prop_map(|(subcluster, token, to, boot)| {
            Command::BeginHandover { subcluster, token: Token::new(token), to, boot }
        }),
        4 => (subcluster(), index(), node(), boot()).prop_map(|(subcluster, since, node, boot)| {
            Command::CompleteHandover { subcluster, since, node, boot }
        }),
        1 => (subcluster(), index()).prop_map(|(subcluster, since)| Command::CancelHandover { subcluster, since }),
        2 => (subcluster(), index(), node(), boot()).prop_map(|(subcluster, token, node, boot)| {
            Command::CedeLead { subcluster, token: Token::new(token), node, boot, avoid: None }
        }),
        1 => (1_u64..6, node()).prop_map(|(id, node)| {
            Command::Operate(operation(id, Action::ChangeReplicas { add: None, remove: Some(node) }))
        }),
        1 => (1_u64..6, 1_u32..3).prop_map(|(id, frontend)| {
            Command::Operate(operation(id, Action::RemoveFrontend { frontend: FrontendId::new(frontend) }))
        }),
        1 => (1_u32..3, boot()).prop_map(|(frontend, boot)| {
            Command::ForgetFrontend { frontend: FrontendId::new(frontend), boot }
        }),
        1 => (1_u64..6, 0_u16..4).prop_map(|(id, level)| {
            Command::Operate(operation(id, Action::RaiseLevel { level: Level::new(level) }))
        }),
    ]
}

#[test]
fn every_kind_of_command_is_drawn() {
    // The rarest is one in some 140.
    const DRAWN: usize = 4000;
    let mut runner = TestRunner::deterministic();
    let drawn: BTreeSet<_> =
        (0..DRAWN).map(|_| scene::label(&any_command().new_tree(&mut runner).unwrap().current())).collect();
    assert_eq!(drawn, scene::LABELS.into());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn replicas_agree_and_invariants_hold(
        commands in prop::collection::vec((1_u64..4, any_command()), 1..60),
        cut in 0_usize..60,
    ) {
        let (mut one, mut other) = (ClusterState::default(), ClusterState::default());
        let mut index = 0;
        for (step, (gap, command)) in commands.iter().enumerate() {
            index += gap;
            let before = one.clone();
            let applied = one.apply(index, command);
            prop_assert_eq!(check(&one), Ok(()));
            prop_assert_eq!(check_step(&before, &one), Ok(()));

            // The other replica reads the command from its log, as the cluster's level has it written, and is restored
            // from a snapshot on the way.
            let read = Command::decode(&command.encode_at(before.level()).unwrap()).unwrap();
            prop_assert_eq!(&read, command);
            if step == cut {
                other = ClusterState::restore(&other.snapshot()).unwrap();
            }
            prop_assert_eq!(&other.apply(index, &read), &applied);
            prop_assert_eq!(decode_outcome(&encode_outcome(&applied.outcome, one.level())), Ok(applied.outcome));
        }
        prop_assert_eq!(&one, &other);
        prop_assert_eq!(one.snapshot(), other.snapshot());
        prop_assert_eq!(one.state_hash(), other.state_hash());
        prop_assert_eq!(ClusterState::restore(&one.snapshot()), Ok(one));
    }

    /// Proposals whose fate was unknown are made again, and both come through, the second one however late.
    #[test]
    fn an_operation_that_is_in_the_log_twice_is_done_once(
        commands in prop::collection::vec((any_command(), 0_usize..10), 1..60),
    ) {
        let (mut once, mut twice) = (ClusterState::default(), ClusterState::default());
        let mut late: Vec<(usize, Command, Applied)> = Vec::new();
        for (step, (command, delay)) in commands.iter().enumerate() {
            // Room for what comes again, so that the indexes of the rest are the same.
            let index = 100 * (step as u64 + 1);
            let applied = once.apply(index, command);
            prop_assert_eq!(&twice.apply(index, command), &applied);
            if matches!(command, Command::Operate(_)) {
                late.push((step + delay, command.clone(), applied));
            }
            let (due, rest) = late.into_iter().partition(|(at, ..)| *at <= step);
            late = rest;
            for (offset, (_, command, applied)) in (1..).zip::<Vec<_>>(due) {
                let again = twice.apply(index + offset, &command);
                prop_assert_eq!((again.outcome, again.effects), (applied.outcome, vec![]));
            }
        }
        prop_assert_eq!(once.operations(), twice.operations());
        prop_assert_eq!((once.models(), once.nodes(), once.backends()), (twice.models(), twice.nodes(), twice.backends()));
        prop_assert_eq!((once.subclusters(), once.epoch()), (twice.subclusters(), twice.epoch()));
    }

    /// Moves that the state itself names are taken, lead to rest, and leave a load that is spread.
    #[test]
    fn moves_are_taken_and_come_to_rest(
        commands in prop::collection::vec((1_u64..4, any_command()), 1..60),
        avoid in prop::option::of(1_u64..4),
    ) {
        let (mut state, mut index) = (ClusterState::default(), 0);
        for (gap, command) in &commands {
            index += gap;
            state.apply(index, command);
        }
        let avoid = avoid.map(NodeId::new);
        let mut moves = 0;
        while let Some(LeadTransfer { subcluster, token, to, boot }) = state.next_drain(avoid, &|_| false).or_else(|| state.next_rebalance(avoid, &|_| false)) {
            moves += 1;
            prop_assert!(moves < 20, "moves do not come to rest");
            let since = index + 1;
            index += 2;
            let begin = Command::BeginHandover { subcluster, token, to, boot };
            prop_assert!(state.apply(since, &begin).outcome.is_ok());
            let complete = Command::CompleteHandover { subcluster, since, node: to, boot };
            prop_assert!(state.apply(index, &complete).outcome.is_ok());
            prop_assert_eq!(check(&state), Ok(()));
        }
    }

    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Command::decode(&bytes).is_err());
        prop_assert!(decode_outcome(&bytes).is_err());
        prop_assert!(ClusterState::restore(&bytes).is_err());
    }

    /// Damage that the checksum would hide is put under a checksum of its own, so that rkyv's validation is reached.
    #[test]
    fn damage_under_a_good_checksum_never_panics(
        command in any_command(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in 0_usize..8,
    ) {
        let mut state = ClusterState::default();
        state.apply(1, &command);
        for mut bytes in [command.encode().unwrap(), state.snapshot(), encode_outcome(&Ok(Reply::Done), Level::NEWEST)] {
            let body = bytes.split_off(16);
            let mut body = body[..body.len().saturating_sub(cut)].to_vec();
            for (at, value) in &damage {
                if !body.is_empty() {
                    let at = at.index(body.len());
                    body[at] = *value;
                }
            }
            bytes[8..12].copy_from_slice(&crc32c::crc32c(&body).to_le_bytes());
            bytes[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&body);
            if let Ok(command) = Command::decode(&bytes) {
                ClusterState::default().apply(1, &command);
            }
            let _ = decode_outcome(&bytes);
            let _ = ClusterState::restore(&bytes);
        }
    }
}

#[test]
fn bytes_of_another_kind_version_or_length_are_told_apart() {
    let bytes = node(1, 1).encode().unwrap();
    let error = |bytes: &[u8]| Command::decode(bytes).unwrap_err().to_string();
    assert!(decode_outcome(&bytes).unwrap_err().to_string().contains("kind 1 where answer was expected"));
    let mut newer = bytes.clone();
    newer[4] += 1;
    assert!(error(&newer).contains(&format!("version {}", newer[4])));
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(error(&damaged).contains("checksum"));
    assert!(error(&bytes[..bytes.len() - 1]).contains("both must agree"));
    assert!(error(&bytes[..7]).contains("header"));
}

#[test]
fn a_command_larger_than_the_log_takes_is_not_encoded() {
    let mut spec = scene::spec("m", "s", &["cpu"]);
    spec.profiles.get_mut("cpu").unwrap().latency_ns = vec![1; 200_000];
    let error = scene::operate(Action::LoadModel(spec)).encode().unwrap_err().to_string();
    assert!(error.contains("at most 1048560 are allowed"), "{error}");
}

#[test]
fn the_hash_tells_states_apart() {
    let mut one = ClusterState::default();
    let empty = one.state_hash();
    one.apply(1, &node(1, 1));
    assert_ne!(one.state_hash(), empty);
    let mut other = ClusterState::default();
    assert!(matches!(other.apply(1, &node(0, 1)).outcome, Err(Refusal::Invalid { .. })));
    assert_ne!(one.state_hash(), other.state_hash());
    assert_ne!(empty, other.state_hash(), "a refused command still moves the applied index");
}
