//! Backends, frontends and models: what each command answers and changes, exactly.

mod contract;
mod families;
mod skeleton;

use symphony_cluster_state::{
    Action, ClusterState, Command, EVENTS_MAX, Effect, GPUS_PER_BACKEND_MAX, HolderState, ModelSpec, NODES_MAX,
    Refusal, Reply,
};
use symphony_policy::{ModelPolicy, ModelPolicyName, SloShare, TriggerChoice};
use symphony_types::{
    BackendId, BootId, Epoch, FrontendId, GpuId, ModelId, NodeId, RequestValue, SLO_MAX, SubclusterId, Token,
};

use crate::scene::{Scene, backend, backend_down, frontend, load, node, operate, report, spec, unload};

const SUBCLUSTER: SubclusterId = SubclusterId::new(1);

fn backend_reply(gpus: &[u32], token: u64) -> Reply {
    let gpus = gpus.iter().map(|&g| GpuId::new(g)).collect();
    Reply::Backend { backend: BackendId::new(1), subcluster: SUBCLUSTER, gpus, token: Token::new(token) }
}

fn bound(gpu: u32, token: u64) -> Effect {
    Effect::GpuBound { gpu: GpuId::new(gpu), subcluster: SUBCLUSTER, token: Token::new(token) }
}

#[test]
fn a_backend_keeps_its_ids_over_restarts_and_every_boot_has_new_bindings() {
    let mut scene = Scene::default();
    scene.done(&node(1, 10));
    let up = |boot| Effect::BackendUp { backend: BackendId::new(1), name: "a".into(), boot: BootId::new(boot) };

    let (reply, effects) = scene.apply(&backend("a", 5, "s", &["cpu", "cpu"]));
    assert_eq!(reply, Ok(backend_reply(&[1, 2], 2)));
    let created = Effect::SubclusterCreated { subcluster: SUBCLUSTER, name: "s".into() };
    let led = Effect::LeaderChanged {
        subcluster: SUBCLUSTER,
        name: "s".into(),
        leader: Some(NodeId::new(1)),
        token: Token::new(2),
    };
    assert_eq!(effects, [created, led, up(5), bound(1, 2), bound(2, 2)]);
    assert_eq!(scene.state.epoch(), Epoch::new(1));

    let (reply, effects) = scene.apply(&backend("a", 5, "s", &["cpu", "cpu"]));
    assert_eq!((reply, effects), (Ok(backend_reply(&[1, 2], 2)), vec![]), "repeating a registration is harmless");
    assert_eq!(scene.state.epoch(), Epoch::new(1));

    let (reply, effects) = scene.apply(&backend("a", 6, "s", &["cpu", "gpu"]));
    assert_eq!(reply, Ok(backend_reply(&[1, 3], 4)), "another kind of GPU is another GPU");
    assert_eq!(effects, [up(6), bound(1, 4), bound(3, 4), Effect::GpuReleased { gpu: GpuId::new(2) }]);

    let named = scene.refused(&backend("a", 5, "s", &["cpu", "cpu"]));
    assert!(matches!(named, Refusal::StaleBoot { named, .. } if named == BootId::new(5)), "{named}");
    let changed = scene.refused(&backend("a", 6, "s", &["cpu"]));
    assert!(matches!(changed, Refusal::Changed { .. }), "a boot does not change its GPUs: {changed}");
}

#[test]
fn a_backend_declared_down_in_error_comes_back_under_new_bindings() {
    let mut scene = Scene::with_three_nodes();
    scene.done(&backend("a", 5, "s", &["cpu"]));
    scene.done(&load("m", "s", &["cpu"]));
    scene.done(&report(1, 1, 5, HolderState::Ready));
    let effects = scene.done(&backend_down(1, 5));
    let down = Effect::BackendDown { backend: BackendId::new(1), name: "a".into(), boot: BootId::new(5) };
    assert_eq!(effects, [down]);
    assert_eq!(scene.done(&backend_down(1, 5)), [], "saying it again changes nothing");

    scene.done(&backend("a", 5, "s", &["cpu"]));
    let state = &scene.state;
    assert!(state.backends()[&BackendId::new(1)].up());
    assert_eq!(state.gpus_of(SUBCLUSTER).next().unwrap().binding, Token::new(scene.index));
    assert_eq!(state.models()[&ModelId::new(1)].holders.len(), 1, "the same boot still holds its models");

    scene.done(&backend("a", 6, "s", &["cpu"]));
    assert_eq!(scene.state.models()[&ModelId::new(1)].holders.len(), 0, "a new boot has loaded nothing");
    assert!(matches!(scene.refused(&backend_down(1, 5)), Refusal::StaleBoot { .. }));
    assert!(matches!(scene.refused(&backend_down(7, 5)), Refusal::UnknownBackend { .. }));
}

#[test]
fn a_backend_that_restarts_elsewhere_moves_its_gpus_under_a_new_token() {
    let mut scene = Scene::with_three_nodes();
    scene.done(&backend("a", 5, "left", &["cpu"]));
    scene.done(&backend("b", 5, "right", &["cpu"]));
    let effects = scene.done(&backend("a", 6, "right", &["cpu"]));
    let moved =
        Effect::GpuBound { gpu: GpuId::new(1), subcluster: SubclusterId::new(2), token: Token::new(scene.index) };
    assert_eq!(effects[1..], [moved]);
    assert_eq!(scene.state.gpus_of(SUBCLUSTER).count(), 0);
    assert_eq!(scene.state.gpus_of(SubclusterId::new(2)).count(), 2);
}

#[test]
fn a_frontend_keeps_its_id_over_restarts() {
    let mut scene = Scene::default();
    let reply = Ok(Reply::Frontend { frontend: FrontendId::new(1) });
    assert_eq!(scene.apply(&frontend("f", 1)).0, reply);
    assert_eq!(scene.apply(&frontend("f", 1)), (reply.clone(), vec![]));
    assert_eq!(scene.apply(&frontend("f", 2)).0, reply);
    assert_eq!(scene.state.frontends()[&FrontendId::new(1)].boot, BootId::new(2));
    assert!(matches!(scene.refused(&frontend("f", 1)), Refusal::StaleBoot { .. }));
    assert_eq!(scene.apply(&frontend("g", 1)).0, Ok(Reply::Frontend { frontend: FrontendId::new(2) }));
    assert_eq!(scene.state.epoch(), Epoch::default(), "frontends are no part of the plan");
}

#[test]
fn a_model_is_loaded_reported_and_unloaded() {
    let mut scene = Scene::with_three_nodes();
    scene.done(&backend("a", 5, "s", &["cpu"]));
    let epoch = scene.state.epoch().get();

    let (reply, effects) = scene.apply(&load("m", "", &["cpu"]));
    let loaded = Ok(Reply::Model { model: ModelId::new(1), epoch: Epoch::new(epoch + 1) });
    assert_eq!(reply, loaded, "no name of a sub-cluster means the only one");
    assert_eq!(effects, [Effect::ModelLoaded { model: ModelId::new(1), name: "m".into(), subcluster: SUBCLUSTER }]);
    assert_eq!(scene.apply(&load("m", "s", &["cpu"])), (loaded.clone(), vec![]), "the same by its full name");
    assert_eq!(scene.apply(&load("m", "", &["cpu"])), (loaded, vec![]));
    let other = ModelSpec { slo_ns: 7, ..spec("m", "s", &["cpu"]) };
    let other = operate(Action::LoadModel(other));
    assert_eq!(scene.refused(&other), Refusal::NameTaken { name: "m".into() });

    let failed = HolderState::Failed("no such file".into());
    for state in [failed, HolderState::Ready] {
        let effects = scene.done(&report(1, 1, 5, state.clone()));
        let (model, backend) = (ModelId::new(1), BackendId::new(1));
        let reported = Effect::ModelReported { model, name: "m".into(), backend, state: state.clone() };
        assert_eq!(effects, [reported]);
        assert_eq!(scene.done(&report(1, 1, 5, state)), []);
    }
    assert!(matches!(scene.refused(&report(1, 1, 4, HolderState::Ready)), Refusal::StaleBoot { .. }));
    assert!(matches!(scene.refused(&report(2, 1, 5, HolderState::Ready)), Refusal::UnknownModel { .. }));
    assert!(matches!(scene.refused(&report(1, 2, 5, HolderState::Ready)), Refusal::UnknownBackend { .. }));
    scene.done(&backend("b", 5, "elsewhere", &["cpu"]));
    assert!(matches!(scene.refused(&report(1, 2, 5, HolderState::Ready)), Refusal::NotInSubcluster { .. }));

    let epoch = scene.state.epoch().get();
    assert_eq!(scene.apply(&unload("m")).0, Ok(Reply::Unloaded { epoch: Epoch::new(epoch + 1) }));
    assert_eq!(scene.refused(&unload("m")), Refusal::UnknownModelName { name: "m".into() });
    let again = scene.apply(&load("m", "s", &["cpu"])).0;
    assert!(matches!(again, Ok(Reply::Model { model, .. }) if model == ModelId::new(2)), "ids are never reused");
}

#[test]
fn models_go_only_where_they_can_run() {
    let mut scene = Scene::with_three_nodes();
    assert_eq!(scene.refused(&load("m", "", &["cpu"])), Refusal::WhichSubcluster { count: 0 });
    scene.done(&backend("a", 5, "left", &["cpu"]));
    scene.done(&backend("b", 5, "right", &["gpu"]));
    assert_eq!(scene.refused(&load("m", "", &["cpu"])), Refusal::WhichSubcluster { count: 2 });
    assert_eq!(scene.refused(&load("m", "up", &["cpu"])), Refusal::UnknownSubcluster { name: "up".into() });
    let missing = |kind: &str, subcluster: &str| Refusal::ProfileMissing {
        model: "m".into(),
        kind: kind.into(),
        subcluster: subcluster.into(),
    };
    assert_eq!(scene.refused(&load("m", "right", &["cpu"])), missing("gpu", "right"));

    scene.done(&load("m", "left", &["cpu"]));
    assert_eq!(scene.refused(&backend("c", 5, "left", &["gpu"])), missing("gpu", "left"), "nor GPUs to such models");

    // 300 bytes loaded each, 100 more while one runs: three fit 1000 bytes exactly, four do not.
    scene.done(&load("m2", "left", &["cpu"]));
    scene.done(&load("m3", "left", &["cpu"]));
    let full = scene.refused(&load("m4", "left", &["cpu"]));
    assert!(matches!(full, Refusal::OutOfMemory { needed_bytes: 1300, memory_bytes: 1000, .. }), "{full}");
}

#[test]
fn a_policy_with_options_is_kept_and_survives_log_and_snapshot() {
    let mut scene = Scene::with_three_nodes();
    scene.done(&backend("a", 5, "s", &["cpu"]));
    let text = "{ name = \"timeout\", share = 0.1, drop = { window = 0.5 }, shed = \"proportional\" }";
    let policy: ModelPolicy = text.parse().unwrap();
    let command = operate(Action::LoadModel(ModelSpec { policy, ..spec("m", "s", &["cpu"]) }));
    scene.done(&Command::decode(&command.encode().unwrap()).unwrap());
    let restored = ClusterState::restore(&scene.state.snapshot()).unwrap();
    let kept: Vec<_> = restored.models().values().map(|model| model.spec.policy.to_string()).collect();
    assert_eq!(kept, [text]);
    assert_eq!(restored, scene.state);
}

#[test]
fn what_no_command_may_say_is_refused_with_its_field() {
    let mut scene = Scene::with_three_nodes();
    scene.done(&backend("a", 5, "s", &["cpu"]));
    let long = "x".repeat(129);
    let model = |change: fn(&mut ModelSpec)| {
        let mut spec = spec("m", "s", &["cpu"]);
        change(&mut spec);
        operate(Action::LoadModel(spec))
    };
    let cases: [(Command, &str, &str); 17] = [
        (node(0, 1), "node", "ids start at 1"),
        (node(1, 0), "boot_id", "fresh number"),
        (backend(&long, 1, "s", &["cpu"]), "name", "129 bytes; expected 1 to 128"),
        (backend("two words", 1, "s", &["cpu"]), "name", "blanks"),
        (backend("b", 1, "", &["cpu"]), "subcluster", "0 bytes"),
        (backend("b", 1, "s", &[]), "gpus", "0 entries"),
        (backend("b", 1, "s", &["cpu"; GPUS_PER_BACKEND_MAX + 1]), "gpus", "65 entries; expected 1 to 64"),
        (frontend("f\n", 1), "name", "control characters"),
        (unload(""), "name", "0 bytes"),
        (report(1, 1, 5, HolderState::Failed("x".repeat(257))), "error", "257 bytes"),
        (model(|m| m.slo_ns = 0), "spec.slo_ns", "positive"),
        (model(|m| m.profiles.clear()), "spec.profiles", "0 entries"),
        // Values that have no text form come as bytes only.
        (
            model(|m| m.policy.trigger = TriggerChoice::TimeoutShare(SloShare::QUARTER)),
            "spec.policy",
            "key `share`: expected only trigger, drop",
        ),
        (
            model(|m| {
                m.policy = ModelPolicy { trigger: TriggerChoice::Frontrun, ..ModelPolicy::of(ModelPolicyName::Eager) }
            }),
            "spec.policy",
            "\"eager\" for policy \"eager\"",
        ),
        (
            model(|m| m.profiles.get_mut("cpu").unwrap().latency_ns = vec![2, 1]),
            "spec.profiles.latency_ns",
            "not monotone",
        ),
        (model(|m| m.signature.inputs[0].item_shape = vec![u32::MAX; 8]), "spec.inputs.item_shape", "bytes per item"),
        (model(|m| m.signature.outputs[0].item_shape = vec![0]), "spec.outputs.item_shape", "bytes per item"),
    ];
    for (command, expected, words) in cases {
        match scene.refused(&command) {
            Refusal::Invalid { field, reason } => {
                assert_eq!(field, expected);
                assert!(reason.contains(words), "{field}: {reason}");
            }
            other => panic!("{command:?} refused as {other}"),
        }
    }
    for address in ["nowhere", ":1", "host:0", "host:99999", "two words:1"] {
        let registration = symphony_cluster_state::FrontendRegistration {
            name: "f".into(),
            boot: BootId::new(1),
            data_addr: address.into(),
            console_addr: "host:1".into(),
        };
        let refusal = scene.refused(&Command::RegisterFrontend(registration));
        assert!(refusal.to_string().contains("expected host:port"), "{refusal}");
    }
}

#[test]
fn an_slo_above_an_hour_does_not_enter_the_log_and_one_that_stands_there_is_applied() {
    let mut scene = Scene::with_three_nodes();
    scene.done(&backend("a", 5, "s", &["cpu"]));
    let load = |slo_ns| operate(Action::LoadModel(ModelSpec { slo_ns, ..spec("m", "s", &["cpu"]) }));
    assert_eq!(load(SLO_MAX.get()).validate(), Ok(()));
    let beyond = load(SLO_MAX.get() + 1);
    let refusal = beyond.validate().unwrap_err().to_string();
    assert!(
        refusal.contains("spec.slo_ns") && refusal.contains("3600001 ms; expected at most 3600000 ms"),
        "{refusal}"
    );
    scene.done(&beyond);
    assert_eq!(ClusterState::restore(&scene.state.snapshot()).unwrap(), scene.state);
}

#[test]
fn the_log_does_not_go_backwards() {
    let mut scene = Scene::with_three_nodes();
    let before = scene.state.clone();
    let applied = scene.state.apply(3, &node(1, 11));
    assert_eq!(applied.outcome, Err(Refusal::IndexNotNew { index: 3, applied: 3 }));
    assert_eq!(scene.state, before);
}

#[test]
fn there_is_room_for_so_many_and_no_more() {
    let mut scene = Scene::default();
    for id in 1..=NODES_MAX as u64 {
        scene.done(&node(id, 1));
    }
    assert!(matches!(scene.refused(&node(1000, 1)), Refusal::Limit { max: 64, .. }));
    assert_eq!(scene.state.events().len(), EVENTS_MAX);
    scene.done(&node(1, 2));
    assert_eq!(scene.state.events().len(), EVENTS_MAX, "the oldest events make room");
    assert_eq!(scene.state.events().last().unwrap().index, scene.index);
}

#[test]
fn a_model_is_changed_in_place() {
    let mut scene = Scene::with_three_nodes();
    scene.done(&backend("a", 5, "s", &["cpu"]));
    scene.done(&load("m", "", &["cpu"]));
    let change = |name: &str, slo_ns, policy: Option<&str>, value: Option<f64>| {
        operate(Action::ChangeModel {
            name: name.into(),
            slo_ns,
            policy: policy.map(|policy| policy.parse().unwrap()),
            value: value.and_then(RequestValue::from_number),
        })
    };
    let (before, epoch) = (scene.state.models()[&ModelId::new(1)].clone(), scene.state.epoch());
    let effects = scene.done(&change("m", Some(80_000_000), Some("eager"), None));
    assert_eq!(effects[0].to_string(), "model m (m1) changed: SLO 80 ms, policy eager");
    let after = &scene.state.models()[&ModelId::new(1)];
    let spec = ModelSpec { slo_ns: 80_000_000, policy: "eager".parse().unwrap(), ..before.spec.clone() };
    assert_eq!((&after.spec, &after.holders, after.epoch), (&spec, &before.holders, before.epoch));
    assert_eq!(scene.state.epoch(), epoch, "it stays where it is");
    assert_eq!(scene.done(&change("m", Some(80_000_000), None, None)), [], "it is so already");
    assert_eq!(scene.refused(&change("n", Some(1), None, None)), Refusal::UnknownModelName { name: "n".into() });
    let valued = scene.refused(&change("m", None, None, Some(4.0)));
    assert!(matches!(&valued, Refusal::Invalid { field, .. } if field == "value"), "{valued}");
    scene.done(&change("m", None, Some("auto"), Some(4.0)));
    for slo_ns in [0, u64::MAX] {
        assert!(matches!(scene.refused(&change("m", Some(slo_ns), None, None)), Refusal::Invalid { .. }), "{slo_ns}");
    }
}
