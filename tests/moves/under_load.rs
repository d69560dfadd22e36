//! Moves under load, each from begin to end, one of them while the leader of the control group dies.

use symphony_protocol::epoch_plan_view::PlanStatus;
use symphony_tests::{Shape, TestCluster, emulated_model, phase, tell};
use symphony_types::LatencyProfile;

use super::load_sized;

/// A model that takes a second and a half to load, and to move: long enough to be seen on its way.
const MODEL_MB: u64 = 1500;
const LOADED_MB_PER_S: u64 = 1000;

/// Left has two backends, right has one. Only the test plans.
fn three_backends() -> Shape {
    let mut shape = Shape::emulated(&["left", "right"]);
    let mut third = shape.backends[0].clone();
    third.name = "backend-third".into();
    shape.backends.push(third);
    let shape = shape.with("scheduler.epochs.mode=off").with("backend.executor=emulated");
    shape.with(&format!("backend.emulated_load_mb_per_s={LOADED_MB_PER_S}"))
}

fn home(cluster: &TestCluster, model: &str) -> String {
    let view = cluster.view().unwrap();
    let (_, model) = view.model_named(model).unwrap();
    view.subclusters[&model.subcluster].name.clone()
}

#[test]
fn models_and_backends_move_while_requests_come_and_none_fails() {
    tell("moves", &three_backends(), |cluster| {
        load_sized(cluster, ("wanders", "left"), MODEL_MB, LatencyProfile::from_line(1.0, 5.0, 32).unwrap());
        for (model, subcluster) in [("stays", "left"), ("other", "right")] {
            let _ = cluster.cli(&emulated_model(model, subcluster)).ended_with(0);
        }
        for model in ["wanders", "stays", "other"] {
            cluster.wait_until_it_serves(model).unwrap();
        }
        let failed_before = cluster.failed().unwrap();
        let load = cluster.spawn_load_until_ended("load", &["wanders=60", "stays=40", "other=40"]).unwrap();
        cluster.wait_for_more(100).unwrap();

        phase("a model moves");
        let output = cluster.cli(&["plan", "move", "--model", "wanders", "--to", "right"]).ended_with(0);
        assert!(output.out.contains("model wanders is in right"), "{output:?}");
        assert_eq!(home(cluster, "wanders"), "right");
        cluster.one_good_request("wanders").unwrap();

        phase("a backend moves, with its GPU");
        let output = cluster.cli(&["plan", "move", "--backend", "backend-third", "--to", "right"]).ended_with(0);
        assert!(output.out.contains("backend backend-third is in right"), "{output:?}");
        cluster
            .wait_for_view("the moved backend holds what is served there", |view| {
                let (&id, backend) = view.backends.iter().find(|(_, b)| b.name == "backend-third")?;
                let (_, model) = view.model_named("other")?;
                (model.holders.contains_key(&id) && backend.duty.takes_work()).then_some(())
            })
            .unwrap();

        phase("the model moves back while the leader of the control group dies");
        let mover = cluster.spawn_cli("mover", &["plan", "move", "--model", "wanders", "--to", "left"]).unwrap();
        cluster
            .wait_for_view("the move has begun", |view| {
                let (_, model) = view.model_named("wanders")?;
                model.moving.is_some().then_some(())
            })
            .unwrap();
        let leader = cluster.view().unwrap().control_leader.unwrap();
        let name = format!("scheduler-{}", leader.get());
        cluster.kill(&name).unwrap();
        cluster
            .wait_for_view("it is where it was before, and nothing is on its way", |view| {
                let (_, model) = view.model_named("wanders")?;
                let left = view.subclusters.get(&model.subcluster)?.name == "left";
                (left && model.moving.is_none()).then_some(())
            })
            .unwrap();
        drop(mover);
        cluster.restart(&name).unwrap();
        cluster.wait_for_more(500).unwrap();

        phase("no request failed");
        let report = cluster.end_load(load).unwrap();
        report.check_safety().unwrap();
        for model in ["wanders", "stays", "other"] {
            report.check_bad_rate(model, 0.05).unwrap();
        }
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.failed().unwrap(), failed_before);
        let plans = cluster.view().unwrap().plans;
        assert_eq!(plans.len(), 3);
        assert!(plans.iter().all(|plan| plan.status == PlanStatus::Done), "{plans:?}");
        eprintln!("longest gap: {} ms", report.json["total"]["longest_gap_ms"]);
    });
}
