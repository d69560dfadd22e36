//! Traffic splits among the versions of a model.

use symphony_cluster_state::{Action, Effect, Refusal, Shadow, TRAFFIC_SPLITS_MAX, Traffic};

use crate::scene::{Scene, backend, load, operate, spec, traffic, unload};

fn scene() -> Scene {
    let mut scene = Scene::with_three_nodes();
    scene.done(&backend("a", 5, "s", &["cpu"]));
    for name in ["m@1", "m@2", "other"] {
        scene.done(&load(name, "", &["cpu"]));
    }
    scene
}

#[test]
fn traffic_is_split_among_versions_that_are_loaded() {
    let mut scene = scene();
    let epoch = scene.state.epoch();
    let effects = scene.done(&traffic("m", &[(1, 19), (2, 1)]));
    let [Effect::TrafficSet { model, traffic: set }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((model.as_str(), set.to_string().as_str()), ("m", "95 % to version 1, 5 % to version 2"));
    assert_eq!(scene.state.traffic()["m"], *set);
    assert_eq!(scene.state.epoch(), epoch, "it is no part of the plan");
    assert_eq!(scene.done(&traffic("m", &[(1, 19), (2, 1)])), [], "it is so already");

    assert_eq!(scene.refused(&traffic("m", &[(3, 1)])), Refusal::UnknownModelName { name: "m@3".into() });
    assert_eq!(scene.refused(&traffic("m@1", &[(1, 1)])), Refusal::UnknownModelName { name: "m@1@1".into() });
    scene.done(&traffic("other", &[(1, 1)]));
    for (weights, words) in [
        (&[(1, 0)][..], "version 1 has 0; expected 1 to 1000000"),
        (&[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)], "expected 0 to 4"),
    ] {
        let Refusal::Invalid { field, reason } = scene.refused(&traffic("m", weights)) else { panic!("{weights:?}") };
        assert!(field == "traffic.weights" && reason.contains(words), "{field}: {reason}");
    }
    let shadow = Some(Shadow { version: 1, percent: 101 });
    let absurd = operate(Action::SetTraffic { model: "m".into(), traffic: Traffic { shadow, ..Traffic::default() } });
    assert!(matches!(scene.refused(&absurd), Refusal::Invalid { field, .. } if field == "traffic.shadow.percent"));

    assert_eq!(scene.done(&traffic("m", &[])).len(), 1);
    assert!(!scene.state.traffic().contains_key("m"));
    assert_eq!(scene.done(&traffic("m", &[])), []);
}

#[test]
fn what_a_version_got_goes_to_the_others_when_it_is_unloaded() {
    let mut scene = scene();
    let shadow = Some(Shadow { version: 2, percent: 10 });
    let both = Traffic { weights: [(1, 1), (2, 1)].into(), shadow };
    let refused = scene.refused(&operate(Action::SetTraffic { model: "m".into(), traffic: both }));
    assert!(matches!(&refused, Refusal::Invalid { field, .. } if field == "traffic.shadow.version"), "{refused}");
    let split = Traffic { weights: [(1, 1)].into(), shadow };
    scene.done(&operate(Action::SetTraffic { model: "m".into(), traffic: split }));
    let effects = scene.done(&unload("m@2"));
    assert_eq!(effects[1].to_string(), "traffic of model m: 100 % to version 1");
    assert_eq!(scene.state.traffic()["m"], Traffic { weights: [(1, 1)].into(), shadow: None });
    scene.done(&unload("m@1"));
    assert!(scene.state.traffic().is_empty());
}

#[test]
fn splits_are_as_many_as_may_be() {
    let mut scene = scene();
    for number in 0..TRAFFIC_SPLITS_MAX {
        let mut small = spec(&format!("x{number}"), "", &["cpu"]);
        small.profiles.values_mut().for_each(|profile| profile.static_memory_bytes = 0);
        scene.done(&operate(Action::LoadModel(small)));
        scene.done(&traffic(&format!("x{number}"), &[(1, 1)]));
    }
    assert!(matches!(scene.refused(&traffic("m", &[(1, 1)])), Refusal::Limit { .. }));
    scene.done(&traffic("x0", &[(1, 2)]));
    scene.done(&traffic("x0", &[]));
    scene.done(&traffic("m", &[(1, 1)]));
}
