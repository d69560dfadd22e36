//! Each predicate finds its planted fault, and nothing in a healthy state.

use symphony_types::{
    BackendId, BootId, CutDigest, Epoch, GpuId, Invariant, Level, ModelId, NodeId, OperationId, RequestValue,
    Signature, SubclusterId, Token,
};

use super::{check, check_step};
use crate::command::{BackendRegistration, Command, GpuOffer, NodeRegistration};
use crate::epoch_plan::{
    BackendMove, EpochPlan, LeftAlone, ModelMove, MoveCost, MoveProgress, Moved, PlanStatus, PlannedMove, WantedMove,
};
use crate::loaded_pipeline::LoadedPipeline;
use crate::operation::{Action, Operation};
use crate::reply::Reply;
use crate::state::{ClusterState, Event, Model, Successor};
use crate::traffic_split::Traffic;
use crate::trunk::Trunk;
use symphony_pipeline::{CommittedSplit, DeclaredStage, PipelineDeclaration};
use symphony_replicated::operation_book::KeptOperation;
use symphony_replicated::{KindProfile, ModelSource, ModelSpec};

fn healthy() -> ClusterState {
    let mut state = ClusterState::default();
    let node = |id: u64| {
        let (control_addr, dispatch_addr) = (format!("node-{id}:1"), format!("node-{id}:2"));
        let node = NodeId::new(id);
        Command::RegisterNode(NodeRegistration {
            node,
            boot: BootId::new(id),
            control_addr,
            dispatch_addr,
            beat_addr: format!("node-{id}:3"),
            disk: id,
            avoid: None,
        })
    };
    let backend = |name: &str, subcluster: &str| {
        Command::RegisterBackend(BackendRegistration {
            name: name.into(),
            boot: BootId::new(9),
            exec_addr: "backend:1".into(),
            subcluster: subcluster.into(),
            executor: "emulated".into(),
            gpus: vec![GpuOffer { kind: "cpu".into(), memory_bytes: 100 }; 2],
            avoid: None,
        })
    };
    let profile = KindProfile { latency_ns: vec![1, 2], static_memory_bytes: 60, dynamic_memory_bytes: 40 };
    let model = |subcluster: &str| {
        let spec = ModelSpec {
            name: format!("on-{subcluster}"),
            subcluster: subcluster.into(),
            slo_ns: 1,
            source: ModelSource::Emulated,
            signature: Signature::default(),
            transforms: Default::default(),
            profiles: [("cpu".to_owned(), profile.clone())].into(),
            policy: Default::default(),
            value: RequestValue::ONE,
        };
        let (id, actor) = (OperationId::new(subcluster.len() as u128), "operator/ann".to_owned());
        Command::Operate(Operation { id, actor, at_unix_ms: 0, avoid: None, action: Action::LoadModel(spec) })
    };
    let commands = [node(1), node(2), backend("a", "left"), backend("b", "right"), model("left"), model("right")];
    for (index, command) in (10..).zip(commands) {
        assert!(state.apply(index, &command).outcome.is_ok());
    }
    state
}

fn model_one(state: &mut ClusterState) -> &mut Model {
    state.models.get_mut(&ModelId::new(1)).unwrap()
}

#[track_caller]
fn finds(invariant: Invariant, plant: impl FnOnce(&mut ClusterState)) {
    let mut state = healthy();
    assert_eq!(check(&state), Ok(()), "nothing is wrong before the fault is planted");
    plant(&mut state);
    assert_eq!(check(&state).unwrap_err().invariant, invariant, "{:?}", check(&state));
}

#[track_caller]
fn finds_in_step(plant: impl FnOnce(&mut ClusterState)) {
    let before = healthy();
    let mut after = before.clone();
    assert_eq!(check_step(&before, &after), Ok(()), "nothing is wrong before the fault is planted");
    plant(&mut after);
    assert_eq!(check_step(&before, &after).unwrap_err().invariant, Invariant::C1);
}

fn subcluster(state: &mut ClusterState) -> &mut crate::state::Subcluster {
    state.subclusters.get_mut(&SubclusterId::new(1)).unwrap()
}

fn backend(state: &mut ClusterState) -> &mut crate::state::Backend {
    state.backends.get_mut(&BackendId::new(1)).unwrap()
}

#[test]
fn a_removed_replica_that_is_there_and_a_successor_that_is_not_are_found() {
    finds(Invariant::C1, |state| {
        state.removed_nodes.insert(NodeId::new(2));
    });
    let next = |node, boot| Some(Successor { node: NodeId::new(node), boot: BootId::new(boot), since: 11 });
    for successor in [next(2, 9), next(7, 7), next(1, 1)] {
        finds(Invariant::C7, |state| {
            let entry = state.subclusters.get_mut(&SubclusterId::new(1)).unwrap();
            assert_eq!(entry.leader.unwrap().node, NodeId::new(1));
            entry.successor = successor;
        });
    }
    let (mut before, after) = (healthy(), healthy());
    before.removed_nodes.insert(NodeId::new(9));
    assert_eq!(check_step(&before, &after).unwrap_err().invariant, Invariant::C1, "a removal that is forgotten");
}

#[test]
fn a_trunk_that_no_other_model_shares_that_is_none_or_of_no_model_is_found() {
    let trunk = |shared: u128| Trunk { cuts: vec![CutDigest::new(1)], shared: Some(CutDigest::new(shared)) };
    finds(Invariant::S5, |s| drop(s.trunks.insert(ModelId::new(1), trunk(1))));
    finds(Invariant::S5, |s| drop(s.trunks.insert(ModelId::new(1), trunk(2))));
    finds(Invariant::S5, |s| drop(s.trunks.insert(ModelId::new(7), Trunk::default())));
    finds(Invariant::S5, |s| {
        // The models are of different sub-clusters.
        s.trunks.extend([1, 2].map(|id| (ModelId::new(id), trunk(1))));
    });
}

#[test]
fn c1_sees_epochs_and_tokens_that_do_not_grow() {
    finds_in_step(|s| s.epoch = Epoch::new(s.epoch.get() - 1));
    finds_in_step(|s| s.applied_index -= 1);
    finds_in_step(|s| s.level = Level::new(0));
    finds_in_step(|s| subcluster(s).token = Token::new(1));
    finds_in_step(|s| subcluster(s).leader = None);
    finds_in_step(|s| backend(s).gpus[1].binding = Token::new(1));
    finds_in_step(|s| backend(s).boot = BootId::new(77));
    finds_in_step(|s| backend(s).subcluster = SubclusterId::new(2));
    finds(Invariant::C1, |s| subcluster(s).token = Token::new(1000));
    finds(Invariant::C1, |s| backend(s).gpus[0].binding = Token::default());
}

#[test]
fn c1_sees_operations_that_are_forgotten_answered_anew_or_from_the_future() {
    finds_in_step(|s| drop(s.operations.remove(0)));
    finds_in_step(|s| s.operations.clear());
    finds_in_step(|s| s.operations[1].outcome = Ok(Reply::Done));
    finds(Invariant::C1, |s| s.operations.swap(0, 1));
    finds(Invariant::C1, |s| s.operations[1].index = s.applied_index + 1);
}

#[test]
fn s5_sees_a_level_that_nobody_knows() {
    finds(Invariant::S5, |s| s.level = Level::new(Level::NEWEST.get() + 1));
    finds(Invariant::S5, |s| s.level = Level::new(0));
}

#[test]
fn c1_sees_a_new_leader_in_an_old_epoch() {
    finds_in_step(|s| {
        let other = s.subclusters[&SubclusterId::new(2)].leader;
        subcluster(s).leader = other;
        subcluster(s).token = Token::new(s.applied_index);
    });
}

#[test]
fn c2_sees_what_belongs_to_two_or_to_none() {
    finds(Invariant::C2, |s| backend(s).gpus[0].id = GpuId::new(3));
    finds(Invariant::C2, |s| backend(s).subcluster = SubclusterId::new(5));
    finds(Invariant::C2, |s| backend(s).name = "b".into());
    finds(Invariant::C2, |s| model_one(s).subcluster = SubclusterId::new(5));
    finds(Invariant::C2, |s| {
        let model = s.models[&ModelId::new(1)].clone();
        s.models.insert(ModelId::new(7), model);
    });
}

#[test]
fn c2_sees_traffic_that_goes_nowhere() {
    let split = |weights: &[(u64, u32)]| Traffic { weights: weights.iter().copied().collect(), shadow: None };
    finds(Invariant::C2, |s| drop(s.traffic.insert("nobody".into(), split(&[(1, 1)]))));
    finds(Invariant::C2, |s| {
        let name = model_one(s).spec.name.clone();
        s.traffic.insert(name, split(&[]));
    });
}

fn nothing_planned(status: PlanStatus) -> EpochPlan {
    let (cause, summary) = ("c".into(), "s".into());
    let (moves, cost, left_alone) = (Vec::new(), MoveCost::default(), Vec::new());
    EpochPlan { id: 1, cause, summary, moves, cost, left_alone, status }
}

#[test]
fn c2_sees_moves_that_no_plan_knows_and_models_that_go_unprepared() {
    let (here, there) = (SubclusterId::new(1), SubclusterId::new(2));
    let moving = ModelMove { from: here, to: there, since: 3, switched: None };
    finds(Invariant::C2, |s| model_one(s).moving = Some(moving));
    finds(Invariant::C2, |s| model_one(s).moving = Some(ModelMove { switched: Some(4), ..moving }));
    finds(Invariant::C2, |s| {
        backend(s).moving = Some(BackendMove { to: there, since: 3, preloads: true, retiring: None });
    });
    let wanted = WantedMove { what: Moved::Model(ModelId::new(1)), from: here, to: there };
    let planned = PlannedMove { wanted, cost: MoveCost::default(), progress: MoveProgress::UnderWay(3) };
    let plan = |moves| EpochPlan { id: 2, moves, ..nothing_planned(PlanStatus::Running) };
    finds(Invariant::C2, |s| s.plans.push(plan(vec![planned.clone()])));
    finds(Invariant::C2, |s| {
        model_one(s).moving = Some(moving);
        s.plans.push(plan(vec![planned.clone(), planned.clone()]));
    });

    let before = healthy();
    let mut after = before.clone();
    after.epoch = Epoch::new(after.epoch.get() + 1);
    assert_eq!(check_step(&before, &after), Ok(()));
    model_one(&mut after).subcluster = there;
    assert_eq!(check_step(&before, &after).unwrap_err().invariant, Invariant::C2);
}

#[test]
fn c2_sees_pipelines_without_models_with_a_models_name_or_with_other_budgets() {
    let loaded = |model: &str, budgets_ns: Vec<u64>| LoadedPipeline {
        declaration: PipelineDeclaration {
            name: "p".into(),
            version: 1,
            slo_ns: 1,
            value: RequestValue::ONE,
            partial: false,
            items_max: 1,
            inputs: vec![],
            outputs: vec![],
            stages: vec![DeclaredStage {
                name: "s".into(),
                model: model.into(),
                inputs: [].into(),
                outputs: [].into(),
            }],
            edges: vec![],
        },
        epoch: Epoch::default(),
        split: Some(CommittedSplit { budgets_ns, ..CommittedSplit::default() }),
    };
    let model = healthy().models[&ModelId::new(1)].spec.name.clone();
    let mut whole = healthy();
    whole.pipelines.insert("p@1".into(), loaded(&model, vec![1]));
    whole.traffic.insert("p".into(), Traffic { weights: [(1, 1)].into(), shadow: None });
    assert_eq!(check(&whole), Ok(()));
    finds(Invariant::C2, |s| drop(s.pipelines.insert("p@1".into(), loaded("nobody", vec![1]))));
    finds(Invariant::C2, |s| drop(s.pipelines.insert("p@1".into(), loaded(&model, vec![1, 2]))));
    for other in ["q@1", "p@2", "p"] {
        finds(Invariant::C2, |s| drop(s.pipelines.insert(other.into(), loaded(&model, vec![1]))));
    }
    finds(Invariant::C2, |s| {
        let mut taken = loaded(&model, vec![1]);
        taken.declaration.name.clone_from(&model);
        s.pipelines.insert(taken.declaration.versioned().loaded_as(), taken);
    });
}

#[test]
fn c3_sees_models_that_do_not_fit() {
    finds(Invariant::C3, |s| backend(s).gpus[1].memory_bytes = 99);
    finds(Invariant::C3, |s| backend(s).gpus[1].kind = "unmeasured".into());
}

#[test]
fn c7_sees_leaders_and_standbys_that_are_not_alive() {
    finds(Invariant::C7, |s| s.nodes.get_mut(&NodeId::new(1)).unwrap().up = false);
    finds(Invariant::C7, |s| s.nodes.get_mut(&NodeId::new(1)).unwrap().boot = BootId::new(77));
    finds(Invariant::C7, |s| subcluster(s).leader = None);
    finds(Invariant::C7, |s| subcluster(s).standbys.push(NodeId::new(6)));
}

#[test]
fn s5_sees_too_many() {
    finds(Invariant::S5, |s| s.events = vec![Event { index: 1, at_unix_ms: 0, what: String::new() }; 65]);
    finds(Invariant::S5, |s| {
        let kept = s.operations[0].clone();
        s.operations = (1..=1025).map(|index| KeptOperation { index, ..kept.clone() }).collect();
        s.applied_index = 1025;
    });
    finds(Invariant::S5, |s| {
        let (cause, summary) = (String::new(), String::new());
        s.plans = vec![EpochPlan { cause, summary, ..nothing_planned(PlanStatus::Done) }; 9];
    });
    finds(Invariant::S5, |s| {
        let left_alone = vec![LeftAlone { model: ModelId::new(1), reason: String::new() }; 65];
        s.plans = vec![EpochPlan { left_alone, ..nothing_planned(PlanStatus::Done) }];
    });
    finds(Invariant::S5, |s| s.operations[0].what = "x".repeat(513));
    finds(Invariant::S5, |s| s.operations[0].actor = "x".repeat(129));
    finds(Invariant::S5, |s| {
        let gpus =
            (100..165).map(|id| crate::state::Gpu { id: GpuId::new(id), ..backend(s).gpus[0].clone() }).collect();
        backend(s).gpus = gpus;
    });
}
