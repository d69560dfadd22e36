//! What operators ask for is done once, remembered with who asked, and forgotten in the order of the log.

use symphony_cluster_state::{Action, ClusterState, Command, NewReplica, OPERATIONS_KEPT, Operation, Refusal, Reply};
use symphony_types::{BackendId, Duty, Epoch, FrontendId, Member, NodeId, OperationId};

use crate::scene;
use crate::scene::{Scene, backend, load, operate, operation, spec};

fn scene() -> Scene {
    let mut scene = Scene::with_three_nodes();
    scene.done(&backend("a", 5, "s", &["cpu"]));
    scene
}

fn unload() -> Action {
    Action::UnloadModel { name: "m".into() }
}

fn with_id(id: u64, action: Action) -> Command {
    Command::Operate(operation(id, action))
}

#[test]
fn a_repetition_is_answered_as_the_first_time_and_changes_nothing() {
    let mut scene = scene();
    let first = with_id(1, Action::LoadModel(spec("m", "", &["cpu"])));
    let loaded = scene.apply(&first).0;
    assert!(matches!(loaded, Ok(Reply::Model { .. })), "{loaded:?}");
    let unloaded = scene.apply(&with_id(2, unload())).0;
    let epoch = scene.state.epoch();
    assert_eq!(unloaded, Ok(Reply::Unloaded { epoch }));

    assert_eq!(
        scene.apply(&with_id(2, unload())),
        (Ok(Reply::Unloaded { epoch }), vec![]),
        "and not: there is no such model"
    );
    assert_eq!(scene.apply(&first), (loaded, vec![]), "what was unloaded since does not come back");
    assert!(scene.state.models().is_empty());

    scene.done(&load("m", "s", &["cpu"]));
    assert_eq!(scene.apply(&with_id(2, unload())).0, Ok(Reply::Unloaded { epoch }));
    assert_eq!(scene.state.models().len(), 1, "what somebody else loaded since stays");
    assert!(scene.state.epoch() > epoch);

    // Neither time nor the replica that proposes makes it another command.
    let later = Operation { at_unix_ms: 7, avoid: Some(NodeId::new(3)), ..operation(2, unload()) };
    assert_eq!(scene.apply(&Command::Operate(later)), (Ok(Reply::Unloaded { epoch }), vec![]));
    assert_eq!(scene.state.operations().len(), 3);
}

#[test]
fn a_refusal_is_repeated_even_if_it_could_be_done_by_now() {
    let mut scene = scene();
    let missing = Refusal::UnknownModelName { name: "m".into() };
    assert_eq!(scene.refused(&with_id(1, unload())), missing);
    scene.done(&load("m", "s", &["cpu"]));
    assert_eq!(scene.refused(&with_id(1, unload())), missing);
    assert_eq!(scene.state.models().len(), 1);
}

#[test]
fn an_id_stands_for_one_command_of_one_operator() {
    let mut scene = scene();
    let member = Member::Backend(BackendId::new(1));
    let cordon = || Action::SetDuty { member, duty: Duty::Cordoned };
    scene.done(&with_id(1, cordon()));
    let index = scene.index;
    let reused = Refusal::OperationReused { id: OperationId::new(1), index };
    assert_eq!(scene.refused(&with_id(1, Action::SetDuty { member, duty: Duty::Serving })), reused);
    let bob = Operation { actor: "operator/bob".into(), ..operation(1, cordon()) };
    assert_eq!(scene.refused(&Command::Operate(bob.clone())), reused);
    let words = format!("{reused}");
    assert!(words.contains("00000000000000000000000000000001") && words.contains("fresh id"), "{words}");

    let answer = |operation: &Operation| scene.state.answer_to(operation);
    assert_eq!(answer(&operation(1, cordon())), Some(Ok(Reply::Done)));
    assert_eq!(answer(&operation(1, unload())), Some(Err(reused.clone())), "nobody begins what will be refused");
    assert_eq!(answer(&operation(2, unload())), None);

    let kept = scene.state.operations().len();
    assert_eq!(scene.refused(&Command::Operate(bob)), reused, "the refusal is an answer too");
    assert_eq!(scene.state.operations().len(), kept);
    assert_eq!(scene.apply(&with_id(1, cordon())).0, Ok(Reply::Done), "the first command still counts");
}

#[test]
fn who_asked_for_what_and_what_came_of_it_is_remembered() {
    let mut scene = scene();
    scene.done(&with_id(1, Action::LoadModel(spec("m", "", &["cpu"]))));
    scene.refused(&with_id(2, Action::UnloadModel { name: "n".into() }));
    let gone = Action::ChangeReplicas {
        add: Some(NewReplica { node: NodeId::new(4), control_addr: "node-4:7000".into() }),
        remove: Some(NodeId::new(3)),
    };
    scene.done(&with_id(3, gone));
    let kept: Vec<_> = scene.state.operations().iter().map(|kept| (kept.index, kept.what.as_str())).collect();
    assert_eq!(kept, [(5, "load model m"), (6, "unload model n"), (7, "replace scheduler n3 with n4 at node-4:7000")]);
    let [loaded, refused, _] = scene.state.operations() else { panic!("three") };
    assert_eq!((loaded.actor.as_str(), loaded.at_unix_ms), ("operator/ann", 1_700_000_000_000));
    assert!(matches!(loaded.outcome, Ok(Reply::Model { .. })));
    assert_eq!(refused.outcome, Err(Refusal::UnknownModelName { name: "n".into() }));
    assert!(!scene.state.nodes().contains_key(&NodeId::new(3)));
    let words = |action: Action| action.to_string();
    assert_eq!(words(Action::ChangeReplicas { add: None, remove: Some(NodeId::new(3)) }), "remove scheduler n3");
    let duty = Action::SetDuty { member: Member::Scheduler(NodeId::new(2)), duty: Duty::Draining };
    assert_eq!(words(duty), "make scheduler n2 draining");
}

#[test]
fn a_frontend_is_removed_once_it_takes_nothing_new() {
    let mut scene = scene();
    scene.done(&scene::frontend("f", 3));
    let frontend = FrontendId::new(1);
    let remove = Action::RemoveFrontend { frontend };
    assert_eq!(remove.to_string(), "remove frontend f1");
    let refusal = scene.refused(&with_id(1, remove.clone()));
    assert!(refusal.to_string().ends_with("have it take no more first: symphony drain f1"), "{refusal}");
    scene.done(&with_id(2, Action::SetDuty { member: Member::Frontend(frontend), duty: Duty::Draining }));
    scene.done(&with_id(3, remove.clone()));
    assert!(scene.state.frontends().is_empty());
    assert_eq!(scene.refused(&with_id(4, remove)), Refusal::UnknownFrontend { frontend });
    scene.done(&scene::frontend("f", 4));
    assert!(!scene.state.frontends().contains_key(&frontend), "an id is never given again");
    let last = &scene.state.operations()[2];
    assert_eq!((last.actor.as_str(), last.what.as_str()), ("operator/ann", "remove frontend f1"));
}

#[test]
fn the_oldest_operation_is_forgotten_first_and_only_then() {
    let mut scene = scene();
    let duty = |duty| Action::SetDuty { member: Member::Backend(BackendId::new(1)), duty };
    for id in 1..=OPERATIONS_KEPT as u64 {
        scene.done(&with_id(id, duty(if id % 2 == 1 { Duty::Cordoned } else { Duty::Serving })));
    }
    let serves = |scene: &Scene| scene.state.backends()[&BackendId::new(1)].standing.duty() == Duty::Serving;
    assert_eq!(scene.done(&with_id(1, duty(Duty::Cordoned))), [], "the last moment at which it is known");
    assert!(serves(&scene));
    scene.done(&operate(duty(Duty::Serving)));
    assert_eq!(scene.state.operations().len(), OPERATIONS_KEPT);
    assert_eq!(scene.state.operations()[0].id, OperationId::new(2));
    assert_eq!(scene.done(&with_id(1, duty(Duty::Cordoned))).len(), 1, "a new command, as far as anybody knows");
    assert!(!serves(&scene));
}

#[test]
fn what_was_answered_survives_a_snapshot() {
    let mut scene = scene();
    scene.done(&load("m", "s", &["cpu"]));
    let unloaded = scene.apply(&with_id(1, unload())).0;
    let mut other = ClusterState::restore(&scene.state.snapshot()).unwrap();
    assert_eq!(other.state_hash(), scene.state.state_hash());
    let again = other.apply(scene.index + 1, &with_id(1, unload()));
    assert_eq!((again.outcome, again.effects), (unloaded, vec![]));
    assert_eq!(other.operations(), scene.state.operations());
    assert_eq!(other.epoch(), Epoch::new(3));
}

#[test]
fn what_is_no_operation_is_refused_and_not_remembered() {
    let mut scene = scene();
    let change = |add: Option<(u64, &str)>, remove: Option<u64>| Action::ChangeReplicas {
        add: add.map(|(node, addr)| NewReplica { node: NodeId::new(node), control_addr: addr.into() }),
        remove: remove.map(NodeId::new),
    };
    let nameless = Operation { actor: String::new(), ..operation(1, unload()) };
    let endless = Operation { actor: "x".repeat(129), ..operation(1, unload()) };
    let cases = [
        (with_id(0, unload()), "operation_id", "128 random bits"),
        (Command::Operate(nameless), "actor", "0 bytes"),
        (Command::Operate(endless), "actor", "129 bytes"),
        (with_id(1, change(None, None)), "add", "add: 0, remove: 0; expected two different ids"),
        (with_id(1, change(Some((3, "a:1")), Some(3))), "add", "3, remove: 3"),
        (with_id(1, change(Some((0, "a:1")), None)), "node", "ids start at 1"),
        (with_id(1, change(Some((4, "nowhere")), None)), "add_control_addr", "host:port"),
    ];
    for (command, expected, words) in cases {
        let refusal = scene.refused(&command);
        let Refusal::Invalid { field, .. } = &refusal else { panic!("{command:?} refused as {refusal}") };
        assert_eq!(field, expected);
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
    assert!(scene.state.operations().is_empty());
}
