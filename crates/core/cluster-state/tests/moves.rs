//! Plans and their moves: nothing is taken away before its successor is ready.

use symphony_cluster_state::{
    Action, Command, Effect, HolderState, LOADS_PER_BACKEND_MAX, LeftAlone, MoveCost, MoveProgress, Moved,
    PlanProposal, PlanStatus, Refusal,
};
use symphony_types::{BackendId, BootId, Duty, Epoch, Member, ModelId, SubclusterId, Token};

use crate::scene;
use crate::scene::{Scene, backend, backend_down, backend_move, load, model_move, node, operate, plan, report, unload};

const LEFT: SubclusterId = SubclusterId::new(1);
const RIGHT: SubclusterId = SubclusterId::new(2);

/// Sub-clusters left (backends 1 and 2) and right (backend 3) with GPUs of 1000 bytes; a model takes 300, and 100 to
/// run. Model 1 is on the left and ready there.
fn two_subclusters() -> Scene {
    let mut scene = Scene::with_three_nodes();
    for (name, subcluster) in [("l1", "left"), ("l2", "left"), ("r1", "right")] {
        scene.done(&backend(name, 1, subcluster, &["gpu"]));
    }
    scene.done(&load("m", "left", &["gpu"]));
    scene.done(&report(1, 1, 1, HolderState::Ready));
    scene.done(&report(1, 2, 1, HolderState::Ready));
    scene
}

fn adopt(scene: &mut Scene, moves: &[symphony_cluster_state::WantedMove]) -> Vec<Effect> {
    scene.done(&plan(0, moves))
}

fn home(scene: &Scene, model: u32) -> SubclusterId {
    scene.state.models()[&ModelId::new(model)].subcluster
}

fn progress(scene: &Scene) -> Vec<MoveProgress> {
    scene.state.plans().last().unwrap().moves.iter().map(|m| m.progress.clone()).collect()
}

#[test]
fn a_model_is_served_where_it_was_until_the_new_backends_hold_it_and_the_old_copies_go_last() {
    let mut scene = two_subclusters();
    let epoch = scene.state.epoch();
    adopt(&mut scene, &[model_move(1, 1, 2)]);
    let begun = scene.index;
    assert_eq!(home(&scene, 1), LEFT);
    assert_eq!(scene.state.epoch(), epoch, "nobody routes differently yet");
    let model = &scene.state.models()[&ModelId::new(1)];
    assert!(model.is_held_by(LEFT) && model.is_held_by(RIGHT) && !model.is_served_by(RIGHT));

    let effects = scene.done(&report(1, 3, 1, HolderState::Ready));
    assert!(effects.iter().any(|e| matches!(e, Effect::ModelSwitched { to: RIGHT, .. })), "{effects:?}");
    assert_eq!(home(&scene, 1), RIGHT);
    assert!(scene.state.epoch() > epoch);
    let model = &scene.state.models()[&ModelId::new(1)];
    assert!(model.is_served_by(LEFT), "what came before is served to its end");
    assert_eq!(model.holders.len(), 3);

    scene.done(&Command::FinishMove { model: ModelId::new(1), since: begun });
    let model = &scene.state.models()[&ModelId::new(1)];
    assert!(!model.is_held_by(LEFT));
    assert_eq!(model.holders.keys().copied().collect::<Vec<_>>(), [BackendId::new(3)]);
    assert_eq!(progress(&scene), [MoveProgress::Done(scene.index)]);
    assert_eq!(scene.state.plans()[0].status, PlanStatus::Done);
    let again = Command::FinishMove { model: ModelId::new(1), since: begun };
    assert!(matches!(scene.refused(&again), Refusal::MoveOver { .. }));
}

#[test]
fn a_model_that_cannot_be_loaded_where_it_should_go_stays_where_it_is() {
    let mut scene = two_subclusters();
    adopt(&mut scene, &[model_move(1, 1, 2)]);
    scene.done(&report(1, 3, 1, HolderState::Failed("no such file".into())));
    assert_eq!(home(&scene, 1), LEFT);
    assert!(!scene.state.models()[&ModelId::new(1)].is_held_by(RIGHT));
    assert!(
        matches!(&progress(&scene)[0], MoveProgress::GivenUp(why) if why.contains("r1") && why.contains("no such file"))
    );
    assert_eq!(scene.state.models()[&ModelId::new(1)].holders.len(), 2, "the failure is forgotten with the move");
}

#[test]
fn a_move_that_takes_too_long_is_called_off_until_it_is_switched() {
    let mut scene = two_subclusters();
    adopt(&mut scene, &[model_move(1, 1, 2)]);
    let cancel =
        Command::CancelMove { what: Moved::Model(ModelId::new(1)), since: scene.index, reason: "too slow".into() };
    scene.done(&cancel);
    assert_eq!(progress(&scene), [MoveProgress::GivenUp("too slow".into())]);
    assert!(matches!(scene.refused(&cancel), Refusal::MoveOver { .. }));

    adopt(&mut scene, &[model_move(1, 1, 2)]);
    let cancel = Command::CancelMove { what: Moved::Model(ModelId::new(1)), since: scene.index, reason: String::new() };
    scene.done(&report(1, 3, 1, HolderState::Ready));
    assert!(matches!(scene.refused(&cancel), Refusal::MoveOver { .. }), "it is there");
}

#[test]
fn a_backend_loads_finishes_and_is_bound_anew_with_a_larger_token() {
    let mut scene = two_subclusters();
    scene.done(&load("n", "right", &["gpu"]));
    scene.done(&report(2, 3, 1, HolderState::Ready));
    let before = scene.state.backends()[&BackendId::new(2)].gpus[0].binding;
    adopt(&mut scene, &[backend_move(2, 1, 2)]);
    assert!(scene.state.backends()[&BackendId::new(2)].duty().takes_work(), "it serves while it loads");
    scene.done(&report(2, 2, 1, HolderState::Ready));
    assert_eq!(scene.state.backends()[&BackendId::new(2)].duty(), Duty::Draining, "no more plans from the left");

    let drained = Command::ReportDrained { member: Member::Backend(BackendId::new(2)), boot: BootId::new(1) };
    let effects = scene.done(&drained);
    assert!(effects.iter().any(|e| matches!(e, Effect::BackendMoved { to: RIGHT, .. })), "{effects:?}");
    let moved = &scene.state.backends()[&BackendId::new(2)];
    assert_eq!((moved.subcluster, moved.duty()), (RIGHT, Duty::Serving));
    assert!(moved.gpus[0].binding > before);
    assert_eq!(moved.gpus[0].binding, Token::new(scene.index));
    let holders = |model: u32| scene.state.models()[&ModelId::new(model)].holders.keys().copied().collect::<Vec<_>>();
    assert_eq!((holders(1), holders(2)), (vec![BackendId::new(1)], vec![BackendId::new(2), BackendId::new(3)]));
    assert_eq!(progress(&scene), [MoveProgress::Done(scene.index)]);

    // Its configuration still names the left one; a plan decided differently.
    scene.done(&backend("l2", 2, "left", &["gpu"]));
    assert_eq!(scene.state.backends()[&BackendId::new(2)].subcluster, RIGHT);
    scene.done(&backend("l2", 3, "centre", &["gpu"]));
    assert_eq!(scene.state.backends()[&BackendId::new(2)].subcluster, SubclusterId::new(3), "an operator decides anew");
}

#[test]
fn a_backend_without_room_for_both_loads_when_it_is_there() {
    let mut scene = two_subclusters();
    for name in ["n", "o"] {
        scene.done(&load(name, "right", &["gpu"]));
    }
    scene.done(&load("p", "left", &["gpu"]));
    scene.done(&report(4, 1, 1, HolderState::Ready));
    adopt(&mut scene, &[backend_move(2, 1, 2)]);
    let moving = scene.state.backends()[&BackendId::new(2)].moving.unwrap();
    assert!(!moving.preloads && moving.retiring.is_some(), "four models of 300 bytes are too many: {moving:?}");
    // What is loaded meanwhile must fit where it will be, too.
    scene.done(&Command::ReportDrained { member: Member::Backend(BackendId::new(2)), boot: BootId::new(1) });
    assert_eq!(scene.state.backends()[&BackendId::new(2)].subcluster, RIGHT);
}

#[test]
fn what_is_loaded_while_a_backend_moves_must_fit_both_ways() {
    let mut scene = two_subclusters();
    scene.done(&load("n", "right", &["gpu"]));
    adopt(&mut scene, &[backend_move(2, 1, 2)]);
    assert!(scene.state.backends()[&BackendId::new(2)].moving.unwrap().preloads);
    scene.done(&load("o", "right", &["gpu"]));
    for side in ["left", "right"] {
        let refusal = scene.refused(&load("p", side, &["gpu"]));
        assert!(matches!(refusal, Refusal::OutOfMemory { .. }), "{side}: {refusal}");
    }
}

#[test]
fn a_backend_that_restarts_while_it_loads_stays_and_one_that_only_finished_has_arrived() {
    let mut scene = two_subclusters();
    scene.done(&load("n", "right", &["gpu"]));
    adopt(&mut scene, &[backend_move(2, 1, 2)]);
    scene.done(&backend_down(2, 1));
    scene.done(&backend("l2", 1, "left", &["gpu"]));
    assert!(scene.state.backends()[&BackendId::new(2)].moving.is_some(), "it only seemed dead");
    scene.done(&backend("l2", 2, "left", &["gpu"]));
    let stayed = &scene.state.backends()[&BackendId::new(2)];
    assert_eq!((stayed.subcluster, stayed.moving), (LEFT, None));
    assert!(matches!(&progress(&scene)[0], MoveProgress::GivenUp(why) if why.contains("restarted")));

    adopt(&mut scene, &[backend_move(2, 1, 2)]);
    scene.done(&report(2, 2, 2, HolderState::Ready));
    assert_eq!(scene.state.backends()[&BackendId::new(2)].duty(), Duty::Draining);
    scene.done(&backend("l2", 3, "left", &["gpu"]));
    let moved = &scene.state.backends()[&BackendId::new(2)];
    assert_eq!((moved.subcluster, moved.moving), (RIGHT, None));
    assert_eq!(progress(&scene), [MoveProgress::Done(scene.index)]);
}

#[test]
fn a_backend_stays_as_long_as_nobody_else_serves_what_it_does() {
    let mut scene = two_subclusters();
    scene.done(&load("n", "right", &["gpu"]));
    scene.done(&report(2, 3, 1, HolderState::Ready));
    // The only one on the right.
    adopt(&mut scene, &[backend_move(3, 2, 1)]);
    assert!(
        matches!(&progress(&scene)[0], MoveProgress::GivenUp(why) if why.contains("no other backend")),
        "{:?}",
        progress(&scene)
    );

    // Its model goes first, in the same plan.
    adopt(&mut scene, &[backend_move(3, 2, 1), model_move(2, 2, 1)]);
    let begun = scene.index;
    assert_eq!(progress(&scene), [MoveProgress::Waiting, MoveProgress::UnderWay(begun)]);
    for backend in 1..=2 {
        scene.done(&report(2, backend, 1, HolderState::Ready));
    }
    assert_eq!(home(&scene, 2), LEFT);
    assert_eq!(progress(&scene)[0], MoveProgress::Waiting, "what came before is served on the right");
    scene.done(&Command::FinishMove { model: ModelId::new(2), since: begun });
    assert!(matches!(progress(&scene)[0], MoveProgress::UnderWay(_)), "{:?}", progress(&scene));

    // Two that would leave at once: the second one stays until the first is gone, and then it is alone.
    let mut scene = two_subclusters();
    adopt(&mut scene, &[backend_move(1, 1, 2), backend_move(2, 1, 2)]);
    let duties = |scene: &Scene| [1, 2].map(|id| scene.state.backends()[&BackendId::new(id)].duty());
    assert_eq!(duties(&scene), [Duty::Draining, Duty::Serving]);
    scene.done(&Command::ReportDrained { member: Member::Backend(BackendId::new(1)), boot: BootId::new(1) });
    assert_eq!(scene.state.backends()[&BackendId::new(2)].subcluster, LEFT);
    assert!(matches!(&progress(&scene)[1], MoveProgress::GivenUp(why) if why.contains("no other backend")));
}

#[test]
fn what_the_new_backends_hold_already_is_switched_at_once() {
    let mut scene = two_subclusters();
    scene.done(&backend("r2", 1, "right", &["gpu"]));
    scene.done(&load("n", "left", &["gpu"]));
    for backend in 1..=2 {
        scene.done(&report(2, backend, 1, HolderState::Ready));
    }
    // The right's backend 3 is on its way to the left and holds one of its two models.
    adopt(&mut scene, &[backend_move(3, 2, 1)]);
    scene.done(&report(1, 3, 1, HolderState::Ready));
    scene.done(&backend_down(4, 1));
    let epoch = scene.state.epoch();
    adopt(&mut scene, &[model_move(1, 1, 2)]);
    assert_eq!(home(&scene, 1), RIGHT, "its only living backend there has it");
    assert!(scene.state.epoch() > epoch);
}

#[test]
fn a_plan_that_is_only_proposed_takes_nothing_from_one_that_runs() {
    let mut scene = two_subclusters();
    for name in ["a", "b", "c"] {
        scene.done(&load(name, "right", &["gpu"]));
    }
    adopt(&mut scene, &[model_move(1, 1, 2), model_move(2, 2, 1)]);
    let mut proposal = plan(0, &[model_move(3, 2, 1)]);
    let Command::ProposePlan(waits) = &mut proposal else { unreachable!() };
    waits.adopt = false;
    scene.done(&proposal);
    let second = scene.index;
    assert_eq!(scene.state.plans()[0].moves[0].progress, MoveProgress::Waiting);
    let effects = scene.done(&operate(Action::ReviewPlan { plan: second, approve: true }));
    assert!(matches!(scene.state.plans()[0].moves[0].progress, MoveProgress::GivenUp(_)));
    assert!(effects.iter().any(|e| matches!(e, Effect::MoveGivenUp { .. })), "{effects:?}");
}

#[test]
fn a_move_waits_for_memory_that_another_one_frees_and_is_given_up_if_none_will() {
    let mut scene = two_subclusters();
    for name in ["a", "b", "c"] {
        scene.done(&load(name, "right", &["gpu"]));
    }
    for model in 2..=4 {
        scene.done(&report(model, 3, 1, HolderState::Ready));
    }
    // The right is full: model 1 can come only after model 2 has gone.
    adopt(&mut scene, &[model_move(1, 1, 2), model_move(2, 2, 1)]);
    let begun = scene.index;
    assert_eq!(progress(&scene), [MoveProgress::Waiting, MoveProgress::UnderWay(begun)]);
    scene.done(&report(2, 1, 1, HolderState::Ready));
    scene.done(&report(2, 2, 1, HolderState::Ready));
    assert_eq!(home(&scene, 2), LEFT);
    scene.done(&Command::FinishMove { model: ModelId::new(2), since: begun });
    assert_eq!(progress(&scene), [MoveProgress::UnderWay(scene.index), MoveProgress::Done(scene.index)]);

    scene.done(&Command::CancelMove { what: Moved::Model(ModelId::new(1)), since: scene.index, reason: "no".into() });
    scene.done(&load("d", "right", &["gpu"]));
    adopt(&mut scene, &[model_move(1, 1, 2)]);
    assert!(
        matches!(&progress(&scene)[0], MoveProgress::GivenUp(why) if why.contains("bytes")),
        "nothing will free it"
    );
}

#[test]
fn a_plan_says_what_its_moves_load_and_which_memory_they_take_twice() {
    let mut scene = two_subclusters();
    scene.done(&load("n", "right", &["gpu"]));
    // The model takes 300 bytes on the GPU of the right, where one more runs no more at a time; backend 2 loads `n`.
    let (alone, pair) = (model_move(1, 1, 2), [model_move(1, 1, 2), backend_move(2, 1, 2)]);
    adopt(&mut scene, &[alone]);
    let cost = MoveCost { bytes: 300, backend_bytes: 300, backend_ms: 0, gpu_bytes: 300 };
    let planned = scene.state.plans().last().unwrap();
    assert_eq!((planned.moves[0].cost, planned.cost), (cost, cost));
    let since = scene.index;
    scene.done(&Command::CancelMove { what: Moved::Model(ModelId::new(1)), since, reason: "no".into() });
    adopt(&mut scene, &pair);
    let planned = scene.state.plans().last().unwrap();
    assert_eq!((planned.moves[1].cost, planned.cost), (cost, MoveCost { bytes: 600, ..cost }));
}

#[test]
fn a_plan_tells_time_by_what_backends_have_been_measured_to_load_and_else_by_what_is_configured() {
    const MB: u64 = 1 << 20;
    // GPUs without a limit of memory.
    let vast = |name: &str, boot: u64, subcluster: &str| {
        let Command::RegisterBackend(mut registration) = backend(name, boot, subcluster, &["gpu"]) else { panic!() };
        registration.gpus.iter_mut().for_each(|gpu| gpu.memory_bytes = 0);
        Command::RegisterBackend(registration)
    };
    let mut scene = Scene::default();
    for command in [node(1, 10), vast("a", 1, "left"), vast("b", 2, "right")] {
        scene.done(&command);
    }
    let sized = |name: &str, subcluster: &str, mb: u64| {
        let mut spec = scene::spec(name, subcluster, &["gpu"]);
        spec.profiles.values_mut().for_each(|profile| profile.static_memory_bytes = mb * MB);
        operate(Action::LoadModel(spec))
    };
    for command in [sized("small", "right", 1), sized("big", "right", 64), sized("moves", "left", 128)] {
        scene.done(&command);
    }
    scene.done(&report(3, 1, 1, HolderState::Ready));
    let mut loaded = |model: u32, load_ns: u64| {
        let (model, backend, boot) = (ModelId::new(model), BackendId::new(2), BootId::new(2));
        scene.done(&Command::ReportModel { model, backend, boot, state: HolderState::Ready, load_ns });
        let proposal =
            PlanProposal { load_bytes_per_s: 64 * MB, moves: vec![model_move(3, 1, 2)], ..Default::default() };
        scene.done(&Command::ProposePlan(proposal));
        let plan = scene.state.plans().last().unwrap();
        assert_eq!(plan.moves[0].cost, plan.cost);
        plan.cost.backend_ms
    };
    assert_eq!(loaded(1, 1_000_000_000), 2000, "a megabyte says nothing: 64 MB/s are configured");
    assert_eq!(loaded(2, 2_000_000_000), 4000, "32 MB/s");
    assert_eq!(loaded(2, 1), 4000, "what is said again is not measured again");
    // A new boot loads again, twice as fast, which counts for a quarter: 40 MB/s.
    scene.done(&vast("b", 3, "right"));
    let (model, id, boot) = (ModelId::new(2), BackendId::new(2), BootId::new(3));
    let ready = HolderState::Ready;
    scene.done(&Command::ReportModel { model, backend: id, boot, state: ready, load_ns: 1_000_000_000 });
    assert_eq!(scene.state.backends()[&id].load_bytes_per_s, 40 * MB);
}

#[test]
fn backends_load_a_few_models_at_a_time_and_the_next_begins_when_one_is_there() {
    let mut scene = two_subclusters();
    let small = |name: &str| {
        let mut spec = scene::spec(name, "left", &["gpu"]);
        spec.profiles
            .values_mut()
            .for_each(|profile| (profile.static_memory_bytes, profile.dynamic_memory_bytes) = (1, 1));
        operate(Action::LoadModel(spec))
    };
    for at in 0..=LOADS_PER_BACKEND_MAX {
        scene.done(&small(&format!("s{at}")));
    }
    let models = 2..=2 + LOADS_PER_BACKEND_MAX as u32;
    adopt(&mut scene, &models.map(|model| model_move(model, 1, 2)).collect::<Vec<_>>());
    let waiting = |scene: &Scene| progress(scene).iter().filter(|p| **p == MoveProgress::Waiting).count();
    assert_eq!((waiting(&scene), scene.state.moves_under_way()), (1, LOADS_PER_BACKEND_MAX));
    scene.done(&report(2, 3, 1, HolderState::Ready));
    assert_eq!(waiting(&scene), 0);
}

#[test]
fn a_plan_may_only_name_what_fits_nowhere() {
    let mut scene = two_subclusters();
    let mut proposal = plan(0, &[]);
    scene.refused(&proposal);
    let Command::ProposePlan(named) = &mut proposal else { unreachable!() };
    named.left_alone = vec![LeftAlone { model: ModelId::new(1), reason: "too slow".into() }];
    scene.done(&proposal);
    let planned = scene.state.plans().last().unwrap();
    assert_eq!((planned.status, planned.left_alone.len()), (PlanStatus::Done, 1));
}

#[test]
fn a_plan_that_was_solved_for_does_not_end_what_an_operator_approved_meanwhile() {
    let mut scene = two_subclusters();
    let epoch = scene.state.epoch().get();
    scene.done(&plan(0, &[model_move(1, 1, 2)]));
    let approved = scene.state.plans().to_vec();
    let mut names = plan(epoch, &[]);
    let Command::ProposePlan(named) = &mut names else { unreachable!() };
    named.left_alone = vec![LeftAlone { model: ModelId::new(1), reason: "too slow".into() }];
    for solved in [names, plan(epoch, &[model_move(1, 1, 2)])] {
        let refused = scene.refused(&solved);
        assert!(refused.to_string().contains("another plan runs"), "{refused}");
    }
    assert_eq!(scene.state.plans(), approved);
    // A plan without an epoch means the present state, and replaces the plan in force.
    scene.done(&plan(0, &[model_move(1, 1, 2)]));
}

#[test]
fn a_plan_is_for_its_epoch_and_the_younger_one_counts() {
    let mut scene = two_subclusters();
    let epoch = scene.state.epoch().get();
    let late = scene.refused(&plan(epoch - 1, &[model_move(1, 1, 2)]));
    assert_eq!(late, Refusal::PlanOutdated { planned: Epoch::new(epoch - 1), current: Epoch::new(epoch) });

    let mut proposal = plan(epoch, &[model_move(1, 1, 2)]);
    let Command::ProposePlan(waits) = &mut proposal else { unreachable!() };
    waits.adopt = false;
    scene.done(&proposal);
    let first = scene.index;
    assert_eq!(progress(&scene), [MoveProgress::Waiting]);
    scene.done(&proposal);
    assert_eq!(scene.state.plans()[0].status, PlanStatus::Dropped, "superseded");
    let review = |plan, approve| operate(Action::ReviewPlan { plan, approve });
    let gone = scene.apply(&review(first, true)).0;
    assert_eq!(gone, Err(Refusal::NoSuchPlan { plan: first }));
    let second = first + 1;
    scene.done(&review(second, true));
    assert_eq!(progress(&scene), [MoveProgress::UnderWay(scene.index)]);
}

#[test]
fn what_is_gone_or_elsewhere_does_not_move() {
    let mut scene = two_subclusters();
    scene.done(&load("n", "left", &["gpu"]));
    adopt(&mut scene, &[model_move(1, 2, 1), model_move(9, 1, 2), backend_move(9, 1, 2), model_move(2, 1, 2)]);
    let begun = scene.index;
    let given_up = |progress: &MoveProgress| matches!(progress, MoveProgress::GivenUp(_));
    assert!(progress(&scene)[..3].iter().all(given_up), "{:?}", progress(&scene));
    assert_eq!(progress(&scene)[3], MoveProgress::UnderWay(begun));
    scene.done(&unload("n"));
    assert!(given_up(&progress(&scene)[3]));
    assert_eq!(scene.state.plans()[0].status, PlanStatus::Done);
}

#[test]
fn an_empty_target_is_waited_for_and_a_cordoned_backend_is_not() {
    let mut scene = two_subclusters();
    scene.done(&backend("r2", 1, "right", &["gpu"]));
    let duty = |duty| operate(Action::SetDuty { member: Member::Backend(BackendId::new(4)), duty });
    scene.done(&duty(Duty::Cordoned));
    scene.done(&backend_down(3, 1));
    adopt(&mut scene, &[model_move(1, 1, 2)]);
    scene.done(&report(1, 4, 1, HolderState::Ready));
    assert_eq!(home(&scene, 1), LEFT, "nobody there takes work");
    scene.done(&backend("r1", 1, "right", &["gpu"]));
    scene.done(&report(1, 3, 1, HolderState::Ready));
    assert_eq!(home(&scene, 1), RIGHT);
}
