//! Make before break between clusters, their loss, and operators' commands.

use symphony_federation_state::{Action, Cause, Command, Operation, PLANS_KEPT, Progress, Refusal};
use symphony_types::SLO_MAX;

use crate::scene::{Scene, load, operate, see, unload};

#[test]
fn a_model_is_at_home_in_one_cluster_until_the_other_has_it() {
    let mut scene = Scene::with_a_model();
    let plan = scene.state.plan();
    let since = scene.begins("m", "b", Cause::Operator);
    assert_eq!((scene.home("m"), scene.state.plan()), (Some("a"), plan), "nothing is routed elsewhere yet");
    let loaded = scene.done(&Command::Loaded { model: "m".into(), since });
    assert_eq!((scene.home("m"), scene.leftovers("m")), (Some("b"), vec![("a".to_owned(), loaded)]));
    assert_eq!(scene.state.plan(), plan + 1);
    let again = scene.apply(&Command::Loaded { model: "m".into(), since });
    assert!(matches!(again, Err(Refusal::Over { .. })), "{again:?}");
    let back = Command::BeginMoves { moves: vec![scene.wanted("m", "a")], cause: Cause::Operator };
    let refused = scene.apply(&back).unwrap_err();
    assert!(refused.to_string().contains("being let go of"), "{refused}");
    let gone = Command::CopyGone { model: "m".into(), cluster: "a".into(), since: loaded };
    scene.done(&gone);
    assert!(matches!(scene.apply(&gone), Err(Refusal::Over { .. })));
    scene.goes("m", "a");
    assert_eq!(scene.home("m"), Some("a"));
}

#[test]
fn a_move_that_is_given_up_leaves_the_model_and_what_was_loaded_to_let_go_of() {
    let mut scene = Scene::with_a_model();
    let since = scene.begins("m", "b", Cause::Balance);
    scene.done(&Command::GiveUp { model: "m".into(), since, reason: "no memory".into() });
    assert_eq!(scene.home("m"), Some("a"));
    assert_eq!(scene.leftovers("m").len(), 1);
    assert!(scene.state.events().iter().any(|event| event.what.contains("no memory")));
}

#[test]
fn what_is_out_of_date_is_refused_and_the_rest_of_a_plan_begins() {
    let mut scene = Scene::with_a_model();
    scene.done(&load(2, "n"));
    let (good, mut old) = (scene.wanted("n", "b"), scene.wanted("m", "b"));
    old.from = Some("c".into());
    let outdated = Command::BeginMoves { moves: vec![old.clone()], cause: Cause::Balance };
    assert!(matches!(scene.apply(&outdated), Err(Refusal::CannotMove { .. })));
    scene.done(&Command::BeginMoves { moves: vec![old, good], cause: Cause::Balance });
    assert_eq!(scene.state.moves_under_way(), 1);
    let mut elsewhere = scene.wanted("m", "z");
    let refused = scene.apply(&Command::BeginMoves { moves: vec![elsewhere.clone()], cause: Cause::Balance });
    assert!(matches!(refused, Err(Refusal::UnknownCluster { .. })));
    elsewhere.to = "b".into();
    elsewhere.loaded_at += 1;
    let refused = scene.apply(&Command::BeginMoves { moves: vec![elsewhere], cause: Cause::Balance });
    assert!(matches!(refused, Err(Refusal::UnknownModel { .. })), "another model of that name");
}

#[test]
fn a_lost_cluster_keeps_its_models_until_another_has_them_and_gets_none() {
    let mut scene = Scene::with_a_model();
    let since = scene.begins("m", "b", Cause::Operator);
    scene.lose("b").unwrap();
    assert_eq!((scene.home("m"), scene.leftovers("m").len()), (Some("a"), 1), "what was on its way is called off");
    assert!(matches!(scene.apply(&Command::Loaded { model: "m".into(), since }), Err(Refusal::Over { .. })));
    scene.lose("a").unwrap();
    assert!(matches!(scene.lose("z"), Err(Refusal::UnknownCluster { .. })));
    assert_eq!(scene.home("m"), Some("a"));
    let to_lost = Command::BeginMoves { moves: vec![scene.wanted("m", "c")], cause: Cause::Loss };
    let since = scene.done(&to_lost);
    scene.done(&Command::Loaded { model: "m".into(), since });
    assert_eq!(scene.home("m"), Some("c"));
    scene.back("a").unwrap();
    assert_eq!(scene.leftovers("m").len(), 2, "the stale copies wait to be let go of");
    let stale = scene.apply(&Command::ClusterBack { name: "a".into(), since: 1 });
    assert!(matches!(stale, Err(Refusal::Over { .. })));
}

#[test]
fn a_cluster_that_comes_back_in_time_keeps_what_it_serves() {
    let mut scene = Scene::with_a_model();
    scene.lose("a").unwrap();
    let model = scene.state.models()["m"].clone();
    let unplaced =
        |reason: &str| Command::Unplaced { model: "m".into(), loaded_at: model.loaded_at, reason: reason.into() };
    scene.done(&unplaced("no room"));
    assert_eq!(scene.state.models()["m"].unplaced, "no room");
    let since = scene.begins("m", "b", Cause::Loss);
    assert_eq!(scene.state.models()["m"].unplaced, "");
    scene.back("a").unwrap();
    assert_eq!((scene.home("m"), scene.state.moves_under_way()), (Some("a"), 0));
    assert!(matches!(scene.apply(&Command::Loaded { model: "m".into(), since }), Err(Refusal::Over { .. })));
    assert!(matches!(scene.apply(&unplaced("no room")), Err(Refusal::Over { .. })), "it is served");
    // An operator's move goes on.
    let copy = scene.leftovers("m")[0].1;
    scene.done(&Command::CopyGone { model: "m".into(), cluster: "b".into(), since: copy });
    scene.begins("m", "b", Cause::Operator);
    scene.lose("a").unwrap();
    scene.back("a").unwrap();
    assert_eq!(scene.state.moves_under_way(), 1);
}

#[test]
fn a_model_goes_when_its_last_copy_does_and_its_name_is_free_then() {
    let mut scene = Scene::with_a_model();
    scene.begins("m", "b", Cause::Operator);
    let at = scene.done(&unload(7, "m"));
    assert_eq!(scene.home("m"), None);
    assert!(matches!(scene.apply(&load(8, "m")), Err(Refusal::NameTaken { .. })));
    assert!(matches!(scene.apply(&unload(9, "m")), Err(Refusal::UnknownModel { .. })));
    for cluster in ["a", "b"] {
        scene.done(&Command::CopyGone { model: "m".into(), cluster: cluster.into(), since: at });
    }
    assert!(scene.state.models().is_empty());
    scene.done(&load(10, "m"));
    scene.done(&unload(11, "m"));
    assert!(scene.state.models().is_empty(), "it was nowhere");
}

#[test]
fn a_home_whose_copy_is_gone_is_none() {
    let mut scene = Scene::with_a_model();
    let since = scene.state.models()["m"].home.as_ref().unwrap().since;
    let plan = scene.state.plan();
    scene.done(&Command::CopyGone { model: "m".into(), cluster: "a".into(), since });
    assert_eq!((scene.home("m"), scene.state.plan()), (None, plan + 1));
    scene.goes("m", "b");
}

#[test]
fn an_operators_command_is_done_once() {
    let mut scene = Scene::with_a_model();
    let first = scene.apply(&load(5, "n"));
    let plan = scene.state.plan();
    assert_eq!(scene.apply(&load(5, "n")), first);
    assert_eq!(scene.state.plan(), plan);
    assert!(matches!(scene.apply(&load(5, "o")), Err(Refusal::OperationReused { .. })));
    let moves = vec![scene.wanted("n", "b")];
    scene.done(&operate(6, Action::Move { moves, cause: Cause::Operator }));
    assert_eq!(scene.state.operations().last().unwrap().what, "move n to b");
}

#[test]
fn nonsense_is_refused_with_its_field() {
    let mut scene = Scene::with_a_model();
    let refused = |scene: &mut Scene, command: &Command| match scene.apply(command) {
        Err(Refusal::Invalid { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    let none = Command::BeginMoves { moves: vec![], cause: Cause::Balance };
    assert_eq!(refused(&mut scene, &none), "moves");
    assert_eq!(refused(&mut scene, &see("two words")), "name");
    assert_eq!(refused(&mut scene, &load(0, "n")), "operation_id");
    assert_eq!(refused(&mut scene, &load(3, "")), "spec.name");
    let long = Command::GiveUp { model: "m".into(), since: 1, reason: "x".repeat(300) };
    assert_eq!(refused(&mut scene, &long), "reason");
    let repeated = scene.state.apply(1, &see("d"));
    assert!(matches!(repeated, Err(Refusal::IndexNotNew { .. })));
}

#[test]
fn plans_say_what_became_of_their_moves_and_the_last_of_them_are_kept() {
    let mut scene = Scene::with_a_model();
    let progress = |scene: &Scene| scene.state.plans().back().unwrap().moves[0].progress.clone();
    assert!(matches!(progress(&scene), Progress::Done(_)), "its first place");
    let since = scene.begins("m", "b", Cause::Balance);
    let plan = scene.state.plans().back().unwrap().clone();
    let planned = &plan.moves[0];
    assert_eq!(
        (plan.id, plan.cause, planned.from.as_deref(), planned.to.as_str()),
        (since, Cause::Balance, Some("a"), "b")
    );
    assert_eq!(progress(&scene), Progress::UnderWay);
    // Every way in which a move can end.
    let lost_at = scene.state.clusters()["b"].since;
    let lost = scene.done(&Command::ClusterLost { name: "b".into(), since: lost_at });
    assert_eq!(progress(&scene), Progress::GivenUp("cluster b does not answer".into()));
    scene.done(&Command::ClusterBack { name: "b".into(), since: lost });
    let leftover = scene.leftovers("m")[0].clone();
    scene.done(&Command::CopyGone { model: "m".into(), cluster: leftover.0, since: leftover.1 });
    let since = scene.begins("m", "b", Cause::Operator);
    scene.done(&Command::GiveUp { model: "m".into(), since, reason: "no memory".into() });
    assert_eq!(progress(&scene), Progress::GivenUp("no memory".into()));
    let leftover = scene.leftovers("m")[0].clone();
    scene.done(&Command::CopyGone { model: "m".into(), cluster: leftover.0, since: leftover.1 });
    scene.begins("m", "b", Cause::Operator);
    scene.done(&unload(9, "m"));
    assert_eq!(progress(&scene), Progress::GivenUp("the model is no longer to be served".into()));

    let mut scene = Scene::with_a_model();
    for (there, _) in ["b", "a"].iter().cycle().zip(0..PLANS_KEPT + 3) {
        let old = scene.home("m").unwrap().to_owned();
        scene.goes("m", there);
        for (cluster, since) in scene.leftovers("m") {
            assert_eq!(cluster, old);
            scene.done(&Command::CopyGone { model: "m".into(), cluster, since });
        }
    }
    assert_eq!(scene.state.plans().len(), PLANS_KEPT);
}

#[test]
fn an_slo_above_an_hour_does_not_enter_the_log_and_one_that_stands_there_is_applied() {
    let mut scene = Scene::default();
    scene.done(&see("a"));
    let with_slo = |slo_ns| {
        let mut command = load(1, "m");
        let Command::Operate(Operation { action: Action::LoadModel { spec, .. }, .. }) = &mut command else {
            panic!("{command:?} loads nothing")
        };
        spec.slo_ns = slo_ns;
        command
    };
    assert_eq!(with_slo(SLO_MAX.get()).validate(), Ok(()));
    let refusal = with_slo(SLO_MAX.get() + 1).validate().unwrap_err().to_string();
    assert!(refusal.contains("spec.slo_ns") && refusal.contains("expected at most 3600000 ms"), "{refusal}");
    scene.done(&with_slo(SLO_MAX.get() + 1));
}
