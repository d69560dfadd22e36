//! Families: which models share a trunk follows from what backends report.

use symphony_cluster_state::{Action, Command, HolderState, KindProfile, ModelSource, ModelSpec};
use symphony_types::{CutDigest, Level, ModelId};

use crate::scene::{Scene, backend, cuts, load, model_move, node, operate, plan, report, spec, unload};

fn head(name: &str, subcluster: &str, source: fn(String) -> ModelSource) -> Command {
    let small = KindProfile { latency_ns: vec![1_000], static_memory_bytes: 10, dynamic_memory_bytes: 1 };
    let mut spec = ModelSpec { source: source(format!("{name}.onnx")), ..spec(name, subcluster, &["cpu"]) };
    spec.profiles.values_mut().for_each(|profile| profile.clone_from(&small));
    operate(Action::LoadModel(spec))
}

/// Two sub-clusters of one backend each, and models 1 to 4 on the first.
fn scene() -> Scene {
    let mut scene = Scene::default();
    scene.state.found_at(Level::WITH_FAMILIES);
    scene.done(&node(1, 10));
    scene.done(&backend("a", 1, "s", &["cpu"]));
    scene.done(&backend("b", 2, "t", &["cpu"]));
    for name in ["m1", "m2", "m3", "m4"] {
        scene.done(&head(name, "s", ModelSource::Onnx));
    }
    scene
}

/// What each model shares; 0 is nothing.
fn shared(scene: &Scene) -> Vec<u128> {
    let of = |id| scene.state.trunks().get(&ModelId::new(id)).and_then(|trunk| trunk.shared).map_or(0, CutDigest::get);
    (1..=4).map(of).collect()
}

fn family(scene: &Scene, model: u32) -> Vec<u32> {
    scene.state.family_of(ModelId::new(model)).into_iter().map(ModelId::get).collect()
}

#[test]
fn models_share_the_deepest_trunk_that_they_have_in_common_and_newcomers_join() {
    let mut scene = scene();
    scene.done(&cuts(1, 1, 1, &[7, 8, 9]));
    assert_eq!((shared(&scene), family(&scene, 1)), (vec![0, 0, 0, 0], vec![]), "with nobody");
    let effects: Vec<_> = scene.done(&cuts(2, 1, 1, &[7, 8, 11])).iter().map(ToString::to_string).collect();
    assert_eq!(shared(&scene), [8, 8, 0, 0]);
    assert!(effects.contains(&"model m1 shares the trunk 00000000".to_owned()), "{effects:?}");
    scene.done(&cuts(3, 1, 1, &[7, 12]));
    assert_eq!(shared(&scene), [8, 8, 0, 0], "a shallower trunk would cost them theirs");
    scene.done(&cuts(4, 1, 1, &[7, 8, 9]));
    assert_eq!(shared(&scene), [8, 8, 0, 8], "nor is one of them taken away for a deeper one");
    assert_eq!(family(&scene, 4), [1, 2, 4]);
    assert_eq!(scene.done(&cuts(4, 1, 1, &[7, 8, 9])), [], "it is known already");

    scene.done(&unload("m4"));
    scene.done(&unload("m2"));
    assert_eq!(shared(&scene), [7, 0, 7, 0], "who is left alone finds others");
    scene.done(&unload("m3"));
    assert_eq!(shared(&scene), [0, 0, 0, 0]);
    assert_eq!(scene.state.trunks().len(), 1);
}

#[test]
fn a_cut_that_a_backend_takes_back_is_none_and_the_family_goes_on_without_the_model() {
    let mut scene = scene();
    for model in 1..=3 {
        scene.done(&cuts(model, 1, 1, &[5, 6]));
    }
    assert_eq!(shared(&scene), [6, 6, 6, 0]);
    // It answers differently when it is cut there.
    let effects: Vec<_> = scene.done(&cuts(2, 1, 1, &[5])).iter().map(ToString::to_string).collect();
    assert!(effects.contains(&"model m2 shares the trunk 00000000 no more".to_owned()), "{effects:?}");
    assert_eq!(shared(&scene), [6, 0, 6, 0]);
    scene.done(&cuts(2, 1, 1, &[5, 6]));
    assert_eq!(shared(&scene), [6, 0, 6, 0], "what one backend took back, no other gives");
    scene.done(&cuts(1, 1, 1, &[]));
    assert_eq!(shared(&scene), [0, 5, 5, 0], "a family of one ends, and the two share what they have left");
}

#[test]
fn a_model_that_moves_joins_where_it_arrives() {
    let mut scene = scene();
    for model in 1..=3 {
        scene.done(&cuts(model, 1, 1, &[5]));
    }
    scene.done(&plan(0, &[model_move(3, 1, 2), model_move(2, 1, 2)]));
    assert_eq!(shared(&scene), [5, 5, 5, 0], "until it is served there");
    scene.done(&report(3, 2, 2, HolderState::Ready));
    assert_eq!(shared(&scene), [5, 5, 0, 0]);
    scene.done(&report(2, 2, 2, HolderState::Ready));
    assert_eq!(shared(&scene), [0, 5, 5, 0]);
    assert_eq!(family(&scene, 3), [2, 3]);
}

#[test]
fn reports_on_models_that_share_nothing_of_strangers_and_below_the_level_are_refused() {
    let mut scene = scene();
    scene.done(&head("alone", "s", ModelSource::OnnxUnshared));
    scene.done(&load("emulated", "s", &["cpu"]));
    for (command, words) in [
        (cuts(5, 1, 1, &[5]), "model alone shares its trunk with no other"),
        (cuts(6, 1, 1, &[5]), "model emulated shares its trunk with no other"),
        (cuts(1, 2, 2, &[5]), "is not in the sub-cluster of model"),
        (cuts(1, 1, 7, &[5]), "runs in boot"),
        (cuts(9, 1, 1, &[5]), "unknown model"),
        (cuts(1, 1, 1, &[5, 5]), "one twice"),
        (cuts(1, 1, 1, &(0..17).collect::<Vec<_>>()), "cuts: 17 entries"),
    ] {
        let refused = scene.refused(&command).to_string();
        assert!(refused.contains(words), "{command:?}: {refused}");
    }
    let mut older = Scene::default();
    older.done(&node(1, 10));
    older.done(&backend("a", 1, "s", &["cpu"]));
    older.done(&head("m1", "s", ModelSource::Onnx));
    for command in [cuts(1, 1, 1, &[5]), head("alone", "s", ModelSource::OnnxUnshared)] {
        let refused = older.refused(&command).to_string();
        assert!(refused.contains("expected level 3"), "{refused}");
    }
}
