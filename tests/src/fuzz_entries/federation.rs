//! Bytes that replicas of a federation's top-level group, its frontends and its tools parse.

use std::collections::BTreeMap;

use prost::Message as _;
use symphony_cluster_state::{KindProfile, ModelSource, ModelSpec};
use symphony_federation_state::{
    Action, Cause, Command, FederationState, HomeMove, KindCapacity, Operation, Outcome, Refusal, Reply,
    decode_outcome, encode_outcome,
};
use symphony_protocol::control as pb;
use symphony_protocol::federation::FederationView;
use symphony_types::{OperationId, RequestValue};

use super::with_envelope_checksum;

/// A command of the top-level group: decoded, checked, and applied to a small federation.
pub fn federation_command(bytes: &[u8]) {
    let Ok(command) = Command::decode(&with_envelope_checksum(bytes)) else { return };
    let encoded = command.encode().expect("what was decoded fits its limit");
    assert_eq!(Command::decode(&encoded).as_ref(), Ok(&command));
    let mut state = small_federation();
    let before = state.clone();
    let outcome = state.apply(state.applied_index() + 1, &command);
    symphony_federation_state::check(&state).expect("no command breaks an invariant");
    symphony_federation_state::check_step(&before, &state).expect("no command breaks an invariant");
    assert_eq!(FederationState::restore(&state.snapshot()), Ok(state), "whatever was applied can be restored");
    assert_eq!(decode_outcome(&encode_outcome(&outcome)), Ok(outcome));
}

/// A snapshot of the federation's state: refused, or a state like any other, that goes on from there.
pub fn federation_snapshot(bytes: &[u8]) {
    let Ok(mut state) = FederationState::restore(&with_envelope_checksum(bytes)) else { return };
    assert_eq!(FederationState::restore(&state.snapshot()).as_ref(), Ok(&state));
    for command in commands() {
        let Some(index) = state.applied_index().checked_add(1) else { return };
        let _ = state.apply(index, &command);
        symphony_federation_state::check(&state).expect("no command breaks an invariant");
    }
}

/// The group's answer to a command.
pub fn federation_answer(bytes: &[u8]) {
    let Ok(outcome) = decode_outcome(&with_envelope_checksum(bytes)) else { return };
    assert_eq!(decode_outcome(&encode_outcome(&outcome)).as_ref(), Ok(&outcome));
    if let Err(refusal) = outcome {
        assert!(!refusal.to_string().is_empty());
    }
}

/// Messages between replicas, frontends and tools: the first byte selects the message type.
pub fn federation_messages(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 4 {
        0 => {
            let Ok(message) = pb::FederationView::decode(bytes) else { return };
            let lists = (message.clusters.len(), message.models.len(), message.events.len());
            // Refused if an operation has no id, or a move of a plan no progress.
            let Ok(view) = FederationView::try_from(message) else { return };
            assert!(view.clusters.len() <= lists.0 && view.models.len() <= lists.1 && view.events.len() == lists.2);
        }
        1 => {
            let Ok(pb::FederationLoadRequest { spec: Some(spec), .. }) = pb::FederationLoadRequest::decode(bytes)
            else {
                return;
            };
            if let Ok(spec) = ModelSpec::try_from(spec) {
                let action = Action::LoadModel { spec, wanted_mrps: 0, cluster: String::new() };
                let _ = small_federation().apply(u64::MAX, &operate(99, action));
            }
        }
        2 => {
            let Ok(pb::FederationMoveRequest { model, to, .. }) = pb::FederationMoveRequest::decode(bytes) else {
                return;
            };
            let mut state = small_federation();
            let home_move = HomeMove { model, to, ..wanted(None, "") };
            let _ = state.movable(&home_move);
            let _ =
                state.apply(u64::MAX, &operate(99, Action::Move { moves: vec![home_move], cause: Cause::Operator }));
        }
        _ => drop(pb::FederationRatesRequest::decode(bytes)),
    }
}

fn operate(id: u128, action: Action) -> Command {
    let (id, actor) = (OperationId::new(id), "operator/admin".to_owned());
    Command::Operate(Operation { id, actor, at_unix_ms: 1_700_000_000_000, action })
}

fn spec() -> ModelSpec {
    let profile = KindProfile { latency_ns: vec![1_000_000, 2_000_000], ..KindProfile::default() };
    ModelSpec {
        name: "model".into(),
        subcluster: String::new(),
        slo_ns: 50_000_000,
        source: ModelSource::Emulated,
        signature: symphony_executor::default_signature(),
        profiles: [("emulated".to_owned(), profile)].into(),
        policy: Default::default(),
        value: RequestValue::ONE,
        transforms: Default::default(),
    }
}

fn wanted(from: Option<&str>, to: &str) -> HomeMove {
    HomeMove {
        model: "model".into(),
        loaded_at: 3,
        from: from.map(str::to_owned),
        to: to.into(),
        subcluster: "s".into(),
    }
}

/// Every command, in an order in which each is done at the index that is its place, from 1.
pub(super) fn commands() -> Vec<Command> {
    let see = |name: &str| {
        let kinds = BTreeMap::from([("emulated".to_owned(), KindCapacity { gpus: 2, memory_bytes: 1 << 30 })]);
        Command::SeeCluster { name: name.into(), control: vec![format!("{name}:7001")], kinds }
    };
    let (model, name) = ("model".to_owned(), "west".to_owned());
    vec![
        see("east"),
        see("west"),
        operate(1, Action::LoadModel { spec: spec(), wanted_mrps: 2_500, cluster: String::new() }),
        Command::Unplaced { model: model.clone(), loaded_at: 3, reason: "no room".into() },
        Command::BeginMoves { moves: vec![wanted(None, "east")], cause: Cause::Place },
        Command::Loaded { model: model.clone(), since: 5 },
        Command::BeginMoves { moves: vec![wanted(Some("east"), "west")], cause: Cause::Balance },
        Command::GiveUp { model: model.clone(), since: 7, reason: "no memory".into() },
        Command::CopyGone { model: model.clone(), cluster: name.clone(), since: 8 },
        Command::ClusterLost { name: name.clone(), since: 2 },
        Command::ClusterBack { name, since: 10 },
        operate(2, Action::Move { moves: vec![wanted(Some("east"), "west")], cause: Cause::Operator }),
        Command::Loaded { model: model.clone(), since: 12 },
        operate(3, Action::UnloadModel { name: model }),
        Command::SeeReplica { replica: 1 },
    ]
}

/// Two clusters, and a model that moves from one to the other.
pub(super) fn small_federation() -> FederationState {
    let mut state = FederationState::default();
    for (index, command) in (1..).zip(&commands()[..12]) {
        state.apply(index, command).expect("each is done");
    }
    state
}

pub(super) fn federation_command_seeds() -> Vec<Vec<u8>> {
    commands().iter().map(|command| command.encode().expect("it is small")).collect()
}

pub(super) fn federation_snapshot_seeds() -> Vec<Vec<u8>> {
    vec![FederationState::default().snapshot(), small_federation().snapshot()]
}

pub(super) fn federation_answer_seeds() -> Vec<Vec<u8>> {
    let answers: [Outcome; 4] = [
        Ok(Reply { plan: 7 }),
        Err(Refusal::OperationReused { id: OperationId::new(1 << 100), index: 9 }),
        Err(Refusal::Limit { what: "models".into(), max: 4096 }),
        Err(Refusal::CannotMove { model: "model".into(), why: "is on its way to west already".into() }),
    ];
    answers.iter().map(encode_outcome).collect()
}

pub(super) fn federation_messages_seeds() -> Vec<Vec<u8>> {
    let kind = pb::FederatedKind { gpu_kind: "emulated".into(), gpus: 2, memory_bytes: 1 << 30 };
    let cluster = pb::FederatedCluster {
        name: "east".into(),
        control: vec!["east:7001".into()],
        reachable: true,
        since: 1,
        kinds: vec![kind],
    };
    let model = pb::FederatedModel {
        name: "model".into(),
        home: "east".into(),
        moves_to: "west".into(),
        cause: "operator".into(),
        leftovers: vec!["north".into()],
        slo_ns: 50_000_000,
        value_thousandths: 1000,
        wanted_rps: 2.5,
        no_gpu: vec![pb::FederatedNoGpu { cluster: "east".into(), why: pb::NoGpu::AllDown.into() }],
        ..Default::default()
    };
    let planned = pb::FederatedPlannedMove {
        model: "model".into(),
        from: "east".into(),
        to: "west".into(),
        progress: pb::MoveProgress::UnderWay.into(),
        index: 12,
        reason: String::new(),
    };
    let view = pb::FederationView {
        federation: "world".into(),
        applied_index: 12,
        plan: 5,
        replica: 1,
        leader: 2,
        clusters: vec![cluster],
        models: vec![model],
        events: vec![pb::Event {
            index: 12,
            at_unix_ms: 5,
            what: "model model goes from east to west (operator)".into(),
        }],
        operations: Vec::new(),
        plans: vec![pb::FederatedPlan { id: 12, cause: "operator".into(), moves: vec![planned] }],
        log_entries: 14,
        replicas: vec![1, 2],
        members: vec![1, 2, 3],
    };
    let load = pb::FederationLoadRequest {
        spec: Some((&spec()).into()),
        wanted_rps: 2.5,
        cluster: "east".into(),
        operation_id: OperationId::new(7).to_string(),
    };
    let r#move = pb::FederationMoveRequest {
        model: "model".into(),
        to: "west".into(),
        operation_id: OperationId::new(8).to_string(),
    };
    let rates = vec![pb::ModelRate { model: "model".into(), rps: 12.5 }];
    let rates = pb::FederationRatesRequest { rates, frontend: "frontend".into() };
    let with = |which: u8, message: Vec<u8>| [vec![which], message].concat();
    vec![
        with(0, view.encode_to_vec()),
        with(1, load.encode_to_vec()),
        with(2, r#move.encode_to_vec()),
        with(3, rates.encode_to_vec()),
    ]
}
