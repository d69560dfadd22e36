//! Two releases in one cluster: processes that act as older ones (`SYMPHONY_TEST_LEVEL`) are replaced one at a time.

use std::time::Duration;

use symphony_config::ExecutorKind;
use symphony_protocol::view::View;
use symphony_tests::{BackendShape, Shape, TestCluster, emulated_model, phase, tell};
use symphony_types::{BackendId, BootId, Level};

/// The newest level that a process of a debug build knows.
const TEST_LEVEL: &str = "SYMPHONY_TEST_LEVEL";
/// As in a rolling restart.
const STOPS_WITHIN: Duration = Duration::from_secs(60);
/// As in a rolling restart: late, or shed for the SLO.
const BAD_MOST: f64 = 0.05;

/// Three schedulers, two backends of one sub-cluster, two frontends, all of the release before.
fn shape() -> Shape {
    let backend = |name: &str| BackendShape {
        name: name.to_owned(),
        subcluster: "default".to_owned(),
        executor: ExecutorKind::Emulated,
        gpus: 1,
    };
    let shape = Shape { backends: vec![backend("backend-a"), backend("backend-b")], ..Shape::emulated(&[]) };
    shape.with_frontends(2).with_env(vec![(TEST_LEVEL.to_owned(), Level::OLDEST.get().to_string())])
}

/// Replaces a process by one of that level, and waits until it does its part.
fn replace(cluster: &mut TestCluster, name: &str, level: Level) {
    let status = cluster.stop(name, STOPS_WITHIN).unwrap();
    assert_eq!(status.code(), Some(0), "{name} ended with {status}");
    cluster.restart_with(name, TEST_LEVEL, &level.get().to_string()).unwrap();
    cluster.wait_until_whole().unwrap();
    cluster.wait_for_view("a model that is ready on both backends", |view| everywhere(view).then_some(())).unwrap();
    cluster.wait_for_view("what it knows", |view| (level_of(view, name) == Some(level)).then_some(())).unwrap();
}

fn everywhere(view: &View) -> bool {
    let ready = |id: &BackendId, boot: BootId| {
        view.models.values().all(|model| model.holders.get(id).is_some_and(|r| r.boot == boot && r.state.is_ok()))
    };
    view.backends.iter().all(|(id, backend)| ready(id, backend.boot))
}

fn level_of(view: &View, name: &str) -> Option<Level> {
    if let Some(id) = name.strip_prefix("scheduler-") {
        return view.group.iter().find(|(node, _)| node.get().to_string() == id)?.1.level;
    }
    let backend = view.backends.values().find(|backend| backend.name == name).and_then(|backend| backend.level);
    backend.or_else(|| view.frontends.values().find(|frontend| frontend.name == name)?.level)
}

#[test]
fn processes_are_replaced_one_at_a_time_and_the_level_is_raised_when_all_know_it() {
    let (old, new) = (Level::OLDEST, Level::NEWEST);
    tell("upgrade", &shape(), |cluster| {
        let _ = cluster.cli(&emulated_model("m", "default")).ended_with(0);
        cluster.wait_until_it_serves("m").unwrap();
        let view = cluster
            .wait_for_view("both backends", |view| (everywhere(view) && view.level == old).then(|| view.clone()))
            .unwrap();
        assert!(view.backends.values().all(|backend| backend.level == Some(old)), "{:?}", view.backends);

        phase("schedulers and backends are replaced under load; the first is rolled back and comes again");
        let accepted = cluster.accepted().unwrap();
        let load = cluster.spawn_load_until_ended("load", &["m=40"]).unwrap();
        cluster.wait_for_accepted(accepted + 50).unwrap();
        replace(cluster, "scheduler-1", new);
        replace(cluster, "scheduler-1", old);
        for name in ["scheduler-1", "scheduler-2", "scheduler-3", "backend-a", "frontend-2"] {
            replace(cluster, name, new);
        }

        phase("the upgrade is not finished, and whoever is older is named");
        let words = ["level 3", "backend backend-b (b", "frontend frontend (f", "knows level 2"];
        let _ = cluster.cli(&["upgrade", "finish"]).ended_with(2).complains(&words);
        let shown = cluster.cli(&["upgrade", "show", "-o", "json"]).ended_with(0).json();
        assert_eq!((&shown["level"], &shown["known"]), (&2.into(), &3.into()), "{shown}");
        assert_eq!(shown["behind"].as_array().map(Vec::len), Some(2), "{shown}");
        assert_eq!(cluster.view().unwrap().level, old, "the refusal has changed nothing");
        replace(cluster, "backend-b", new);
        let report = cluster.end_load(load).unwrap();
        report.check_safety().unwrap();
        report.check_nothing_failed().unwrap();
        report.check_served(BAD_MOST).unwrap();
        replace(cluster, "frontend", new);

        phase("every process knows the level: it is raised, under load, and requests pass as before");
        let load = cluster.spawn_load_until_ended("raised", &["m=40"]).unwrap();
        cluster.wait_for_more(50).unwrap();
        let raised = cluster.cli(&["upgrade", "finish"]).ended_with(0).out;
        assert!(raised.contains(&format!("at level {new}:")), "{raised}");
        let _ = cluster.cli(&["upgrade", "finish"]).ended_with(0);
        cluster.wait_for_view("a raised cluster", |view| (view.level == new).then_some(())).unwrap();
        cluster.wait_for_metric("scheduler-2", &format!("symphony_control_level {}", new.get())).unwrap();
        cluster.wait_for_more(50).unwrap();
        let report = cluster.end_load(load).unwrap();
        report.check_safety().unwrap();
        report.check_nothing_failed().unwrap();
        report.check_served(BAD_MOST).unwrap();
        let events = cluster.cli(&["get", "events"]).ended_with(0).out;
        assert!(events.contains("the upgrade is finished") && events.contains("operator/admin"), "{events}");

        phase("older processes can join no more, and say why");
        for (name, words) in [
            ("backend-b", "the cluster's upgrade to level 3 (release 0.3.0) is finished"),
            ("scheduler-3", "of version 11; this release reads versions 9 to 10"),
        ] {
            let _ = cluster.stop(name, STOPS_WITHIN).unwrap();
            cluster.restart_with(name, TEST_LEVEL, &old.get().to_string()).unwrap();
            let (code, tail) = cluster.ends_by_itself(name).unwrap();
            let log = std::fs::read_to_string(cluster.workspace.file(&format!("{name}.err"))).unwrap();
            assert!(code != Some(0) && log.contains(words), "{name} ended with {code:?}: {tail}");
        }
        cluster.one_good_request("m").unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
    });
}
