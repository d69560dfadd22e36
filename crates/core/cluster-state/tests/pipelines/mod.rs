//! Pipelines: what is loaded, split, kept and refused, by which models, and in which versions.

use symphony_cluster_state::{Action, ClusterState, Command, Effect, PIPELINES_MAX, Refusal, Shadow, Traffic};
use symphony_pipeline::CommittedSplit;
use symphony_types::{DataType, Finite, Level, TensorSpec};

use crate::scene::{Scene, backend, chain, load, node, operate, operation, pipeline, spec, traffic, unload};

fn scene() -> Scene {
    let mut scene = Scene::default();
    scene.state.found_at(Level::WITH_PIPELINES);
    scene.done(&node(1, 10));
    scene.done(&backend("a", 1, "s", &["cpu"]));
    for model in ["m@1", "m@2", "n"] {
        scene.done(&load(model, "s", &["cpu"]));
    }
    scene
}

fn split(version: u64, budgets_ns: &[u64]) -> Command {
    let split =
        CommittedSplit { budgets_ns: budgets_ns.to_vec(), hop_ns: 7, gammas: vec![Finite::ONE], rate_millirps: 1000 };
    Command::SetSplit { pipeline: "p".into(), version, split }
}

fn unload_pipeline(name: &str) -> Command {
    operate(Action::UnloadPipeline { name: name.into() })
}

#[test]
fn a_pipeline_is_loaded_once_split_and_unloaded_with_all_its_versions() {
    let mut scene = scene();
    let epoch = scene.state.epoch();
    let effects = scene.done(&pipeline("p", 1, &["m", "n"]));
    assert_eq!(effects, [Effect::PipelineLoaded { name: "p".into(), version: 1 }]);
    assert!(scene.state.epoch() > epoch, "budgets are a part of the plan");
    assert_eq!(scene.done(&pipeline("p", 1, &["m", "n"])), [], "it is there already");
    let unfit = scene.refused(&pipeline("p", 1, &["m", "m"])).to_string();
    assert!(unfit.contains("version 1 is loaded with another declaration"), "{unfit}");

    assert_eq!(scene.done(&split(1, &[3, 4]))[0].to_string(), "budget of pipeline p@1: 0.000003 ms, 0.000004 ms");
    assert_eq!(scene.done(&split(1, &[3, 4])), []);
    let refused = scene.refused(&split(1, &[3]));
    assert!(matches!(&refused, Refusal::Invalid { field, .. } if field == "split.budgets_ns"), "{refused}");
    let refused = scene.refused(&split(1, &[3, 0]));
    assert!(refused.to_string().contains("0 for stage 1"), "{refused}");
    let restored = ClusterState::restore(&scene.state.snapshot()).unwrap();
    assert_eq!(restored, scene.state);

    // Each version has its own.
    scene.done(&pipeline("p", 2, &["n", "m@2"]));
    assert_eq!(scene.state.pipelines()["p@2"].split, None);
    scene.done(&split(2, &[5, 6]));
    assert_eq!(scene.state.pipelines()["p@1"].split.as_ref().unwrap().budgets_ns, [3, 4]);

    scene.done(&pipeline("pp", 1, &["n"]));
    let gone = |name: &str| Effect::PipelineUnloaded { name: name.into() };
    assert_eq!(scene.done(&unload_pipeline("p")), [gone("p@1"), gone("p@2")]);
    assert_eq!(scene.state.pipelines().keys().collect::<Vec<_>>(), ["pp@1"]);
    assert_eq!(scene.refused(&unload_pipeline("p")), Refusal::UnknownPipeline { name: "p".into() });
    assert_eq!(scene.refused(&split(2, &[3, 4])), Refusal::UnknownPipeline { name: "p@2".into() });
}

#[test]
fn one_version_goes_by_its_name_and_hands_its_share_of_the_traffic_to_the_others() {
    let mut scene = scene();
    for version in 1..=3 {
        scene.done(&pipeline("p", version, &["m", "n"]));
    }
    let effects = scene.done(&traffic("p", &[(1, 19), (2, 1)]));
    assert_eq!(effects[0].to_string(), "traffic of pipeline p: 95 % to version 1, 5 % to version 2");
    assert_eq!(scene.refused(&traffic("p", &[(4, 1)])), Refusal::UnknownPipeline { name: "p@4".into() });
    let copies = Traffic { weights: [].into(), shadow: Some(Shadow { version: 3, percent: 5 }) };
    let refused = scene.refused(&operate(Action::SetTraffic { model: "p".into(), traffic: copies })).to_string();
    assert!(refused.contains("would ask every stage twice"), "{refused}");

    assert_eq!(scene.refused(&unload_pipeline("p@4")), Refusal::UnknownPipeline { name: "p@4".into() });
    let effects = scene.done(&unload_pipeline("p@2"));
    let words: Vec<_> = effects.iter().map(ToString::to_string).collect();
    assert_eq!(words, ["pipeline p@2 unloaded", "traffic of pipeline p: 100 % to version 1"]);
    assert_eq!(scene.state.pipelines().keys().collect::<Vec<_>>(), ["p@1", "p@3"]);

    scene.done(&traffic("p", &[(1, 19), (3, 1)]));
    let last = scene.state.operations().last().unwrap();
    assert_eq!(last.what, "split traffic of pipeline p: 95 % to version 1, 5 % to version 3");
    let words: Vec<_> = scene.done(&unload_pipeline("p")).iter().map(ToString::to_string).collect();
    let split = "traffic of pipeline p: all to the latest version";
    assert_eq!(words, ["pipeline p@1 unloaded", "pipeline p@3 unloaded", split]);
    assert!(scene.state.pipelines().is_empty() && scene.state.traffic().is_empty());
}

#[test]
fn every_version_keeps_its_models() {
    let mut scene = scene();
    scene.done(&pipeline("p", 1, &["n"]));
    scene.done(&pipeline("p", 2, &["m"]));
    let used = Refusal::UsedByPipeline { model: "n".into(), pipeline: "p@1".into() };
    assert_eq!(scene.refused(&unload("n")), used);
    scene.done(&unload_pipeline("p@1"));
    scene.done(&unload("n"));
}

#[test]
fn a_pipeline_keeps_the_last_model_that_answers_a_stage_and_its_name() {
    let mut scene = scene();
    scene.done(&pipeline("p", 1, &["m", "n"]));
    scene.done(&unload("m@1"));
    for model in ["m@2", "n"] {
        let used = Refusal::UsedByPipeline { model: model.into(), pipeline: "p@1".into() };
        assert_eq!(scene.refused(&unload(model)), used);
    }
    for model in ["p", "p@3"] {
        let refused = scene.refused(&load(model, "s", &["cpu"])).to_string();
        assert!(refused.starts_with("pipeline `p`: it has the name of model"), "{refused}");
    }
    let refused = scene.refused(&pipeline("m", 1, &["n", "n"])).to_string();
    assert!(refused.contains("the name is a model's"), "{refused}");
    // Another version that takes other inputs would answer stages wrongly.
    let mut other = spec("m@3", "s", &["cpu"]);
    other.signature.inputs = vec![TensorSpec { name: "x".into(), data_type: DataType::Int64, item_shape: vec![8, 8] }];
    let refused = scene.refused(&operate(Action::LoadModel(other))).to_string();
    assert!(refused.starts_with("pipeline `p`: key `step.0.input_map[\"x\"]`"), "{refused}");
    scene.done(&load("m@3", "s", &["cpu"]));
    scene.done(&unload("m@2"));
    // One version and no other.
    scene.done(&pipeline("p", 2, &["m@3", "n"]));
    scene.done(&unload_pipeline("p@1"));
    scene.done(&load("m@4", "s", &["cpu"]));
    assert!(matches!(scene.refused(&unload("m@3")), Refusal::UsedByPipeline { .. }));
    scene.done(&unload_pipeline("p"));
    scene.done(&unload("m@3"));
}

#[test]
fn an_unload_that_was_refused_for_a_pipeline_needs_another_id_when_the_pipeline_is_gone() {
    let mut scene = scene();
    scene.done(&pipeline("p", 1, &["n"]));
    let unload_as = |id| Command::Operate(operation(id, Action::UnloadModel { name: "n".into() }));
    let used = Refusal::UsedByPipeline { model: "n".into(), pipeline: "p@1".into() };
    assert_eq!(scene.refused(&unload_as(1)), used);
    scene.done(&unload_pipeline("p"));
    assert_eq!(scene.refused(&unload_as(1)), used, "a retry is no second try");
    scene.done(&unload_as(2));
    assert!(scene.state.models().values().all(|model| model.spec.name != "n"));
}

#[test]
fn what_cannot_run_or_is_too_much_is_refused_in_words() {
    let mut scene = scene();
    let refused = scene.refused(&pipeline("p", 1, &["m", "nobody"])).to_string();
    assert!(refused.contains("`nobody`, which is not loaded"), "{refused}");
    let refused = scene.refused(&pipeline("p@1", 1, &["m"])).to_string();
    assert!(refused.contains("expected a name without a version"), "{refused}");
    let mut cycle = chain("p", 1, &["m", "n"]);
    cycle.stages[0].inputs.insert("x".into(), "t2".into());
    let refused = scene.refused(&operate(Action::LoadPipeline(cycle))).to_string();
    assert!(refused.contains("input of a step") || refused.contains("cycle"), "{refused}");

    let mut early = Scene::default();
    early.done(&node(1, 10));
    for command in [pipeline("p", 1, &["m"]), unload_pipeline("p")] {
        let refused = early.refused(&command).to_string();
        assert!(refused.contains("expected level 3 (symphony upgrade finish)"), "{refused}");
    }
    for number in 0..PIPELINES_MAX {
        scene.done(&pipeline(&format!("p{number}"), 1, &["m"]));
    }
    assert!(matches!(scene.refused(&pipeline("one-more", 1, &["m"])), Refusal::Limit { .. }));
    assert!(matches!(scene.refused(&pipeline("p0", 2, &["n"])), Refusal::Limit { .. }), "each version counts");
    scene.done(&unload_pipeline("p1"));
    scene.done(&pipeline("p0", 2, &["n"]));
}
