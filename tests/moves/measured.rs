//! GPUs become twice as slow as the profile says; the rates stay. The loop learns it and gives the model more GPUs.

use symphony_protocol::epoch_plan_view::{MovedView, PlanStatus};
use symphony_tests::{phase, tell};

use crate::learning::{AS_GIVEN, set_pace};
use crate::moves::gpus::{backends, four_backends, slow};

const CALM_S: u32 = 12;
/// By the given profile two GPUs are busy for 60 % with `hot`; if they are twice as slow, they cannot do it.
const LOAD: [&str; 4] = ["hot=60", "a=5", "b=5", "c=5"];

#[test]
fn gpus_come_to_a_model_that_takes_twice_as_long_as_its_profile_says() {
    let mut shape = four_backends().with("scheduler.epochs.period_s=600");
    for setting in ["backend.executor=emulated", "backend.pace_file=pace"] {
        shape = shape.with(setting);
    }
    tell("measured", &shape, |cluster| {
        set_pace(cluster, AS_GIVEN);
        for (model, subcluster) in [("hot", "left"), ("a", "right"), ("b", "right"), ("c", "right")] {
            let _ = cluster.cli(&slow(model, subcluster)).ended_with(0);
            cluster.wait_until_it_serves(model).unwrap();
        }
        let failed_before = cluster.failed().unwrap();

        phase("as fast as the profile says, two GPUs are enough");
        let load = cluster.spawn_load("calm", &LOAD, CALM_S).unwrap();
        cluster.load_report(load, CALM_S).unwrap().check_safety().unwrap();
        assert_eq!(backends(cluster), (2, 2));

        phase("all GPUs become twice as slow, at the same load: a third one comes");
        // Each backend has one GPU, and all of them read the same file.
        set_pace(cluster, &[(0, 2.0)]);
        let load = cluster.spawn_load_until_ended("slow", &LOAD).unwrap();
        cluster
            .wait_for_view("a backend has moved, and nothing is on its way", |view| {
                let left = view.subclusters.iter().find(|(_, s)| s.name == "left")?.0;
                let there = view.backends.values().filter(|b| b.subcluster == *left).count();
                let settled = view.backends.values().all(|b| b.moving.is_none());
                (there == 3 && settled).then_some(())
            })
            .unwrap();

        phase("the plan says why, and no request failed");
        assert_eq!(backends(cluster), (3, 1));
        let plans = cluster.view().unwrap().plans;
        cluster.end_load(load).unwrap().check_safety().unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.failed().unwrap(), failed_before);
        let [plan] = &plans[..] else { panic!("{plans:?}") };
        assert_eq!(plan.status, PlanStatus::Done);
        assert!(plan.summary.contains("profiles as they were measured"), "{plan:?}");
        assert!(matches!(&plan.moves[..], [one] if matches!(one.what, MovedView::Backend(_))), "{plan:?}");
    });
}
