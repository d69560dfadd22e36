//! Bytes that replicas of a control group, nodes and tools parse.

use prost::Message as _;
use symphony_cluster_state::{
    Action, BackendRegistration, Backup, ClusterState, Command, GpuOffer, IDS_SKIPPED_MIN, LogEntry, NewGroup,
    NewReplica, NodeRegistration, Operation,
};
use symphony_types::{BackendId, BootId, CutDigest, Duty, Member, ModelId, NodeId, OperationId, SubclusterId, Token};

use super::with_envelope_checksum;

/// A command of the control group: decoded, checked, and applied to a small cluster.
pub fn command(bytes: &[u8]) {
    let Ok(command) = Command::decode(&with_envelope_checksum(bytes)) else { return };
    let encoded = command.encode().expect("what was decoded fits its limit");
    assert_eq!(Command::decode(&encoded).as_ref(), Ok(&command));
    let (mut state, index) = small_cluster();
    let entry = LogEntry { at_unix_ms: index, command };
    assert_eq!(LogEntry::decode(&entry.encode().expect("a command leaves room for the time")).as_ref(), Ok(&entry));
    let _ = state.apply_entry(index + 1, &entry);
    symphony_cluster_state::check(&state).expect("no command breaks an invariant");
}

/// An entry of the control group's log: decoded, and applied to a small cluster.
pub fn log_entry(bytes: &[u8]) {
    let Ok(entry) = LogEntry::decode(&with_envelope_checksum(bytes)) else { return };
    let (mut state, index) = small_cluster();
    let _ = state.apply_entry(index + 1, &entry);
    symphony_cluster_state::check(&state).expect("no command breaks an invariant");
}

/// A snapshot of the cluster's state: refused, or a state like any other.
pub fn snapshot(bytes: &[u8]) {
    let Ok(state) = ClusterState::restore(&with_envelope_checksum(bytes)) else { return };
    assert_eq!(ClusterState::restore(&state.snapshot()), Ok(state));
}

/// A backup of the cluster's state: refused, or one with which a cluster begins like any other.
pub fn backup(bytes: &[u8]) {
    let Ok(mut backup) = Backup::decode(&with_envelope_checksum(bytes)) else { return };
    let encoded = backup.encode().expect("what was decoded fits its limit");
    assert_eq!(Backup::decode(&encoded).as_ref(), Ok(&backup));
    backup.state = with_envelope_checksum(&backup.state);
    let new = NewGroup {
        replicas: [NodeId::new(1)].into(),
        at_unix_ms: 1_800_000_000_000,
        ids_skipped: IDS_SKIPPED_MIN,
        chance: 0,
    };
    if let Ok((state, number)) = backup.begin_anew(&backup.cluster, &new) {
        assert!(state.applied_index() == number && number > backup.index && number > backup.term);
        assert_eq!(ClusterState::restore(&state.snapshot()), Ok(state));
    }
}

/// The cluster's view as nodes and tools receive it.
pub fn view(bytes: &[u8]) {
    use symphony_protocol::control::ClusterView;
    use symphony_protocol::view::View;
    let Ok(message) = ClusterView::decode(bytes) else { return };
    if let Ok(view) = View::try_from(message) {
        assert_eq!(View::try_from(ClusterView::from(&view)), Ok(view));
    }
}

fn commands() -> Vec<Command> {
    let subcluster = SubclusterId::new(1);
    let node = |id| {
        let port = 7000 + id;
        let (control_addr, dispatch_addr) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{}", port + 1000));
        let (node, boot, beat_addr) = (NodeId::new(id), BootId::new(id), format!("127.0.0.1:{}", port + 2000));
        let disk = id;
        Command::RegisterNode(NodeRegistration {
            node,
            boot,
            control_addr,
            dispatch_addr,
            beat_addr,
            disk,
            avoid: None,
        })
    };
    let backend = BackendRegistration {
        name: "backend".into(),
        boot: BootId::new(5),
        exec_addr: "127.0.0.1:7101".into(),
        subcluster: "default".into(),
        executor: "emulated".into(),
        gpus: vec![GpuOffer { kind: "emulated".into(), memory_bytes: 1 << 30 }; 2],
        avoid: None,
    };
    let operate = |id, action| {
        let (id, actor) = (OperationId::new(id), "operator/admin".to_owned());
        Command::Operate(Operation { id, actor, at_unix_ms: 1_700_000_000_000, avoid: None, action })
    };
    let new = NewReplica { node: NodeId::new(3), control_addr: "127.0.0.1:7003".into() };
    let model = symphony_cluster_state::ModelSpec {
        name: "model".into(),
        subcluster: String::new(),
        slo_ns: 50_000_000,
        source: symphony_cluster_state::ModelSource::Emulated,
        signature: symphony_executor::default_signature(),
        transforms: Default::default(),
        profiles: [(
            "emulated".to_owned(),
            symphony_cluster_state::KindProfile { latency_ns: vec![1_000_000, 2_000_000], ..Default::default() },
        )]
        .into(),
        policy: "{ name = \"timeout\", share = 0.1, drop = \"window\" }".parse().expect("a policy"),
        value: symphony_types::RequestValue::ONE,
    };
    vec![
        node(1),
        node(2),
        Command::RegisterBackend(backend),
        operate(1, Action::LoadModel(model)),
        Command::NodeDown { node: NodeId::new(1), boot: BootId::new(1), avoid: None },
        Command::BackendDown { backend: BackendId::new(1), boot: BootId::new(5) },
        operate(2, Action::UnloadModel { name: "model".into() }),
        operate(3, Action::SetDuty { member: Member::Backend(BackendId::new(1)), duty: Duty::Draining }),
        Command::Leave { member: Member::Scheduler(NodeId::new(1)), boot: BootId::new(1) },
        Command::ReportDrained { member: Member::Backend(BackendId::new(1)), boot: BootId::new(5) },
        Command::BeginHandover { subcluster, token: Token::new(3), to: NodeId::new(2), boot: BootId::new(2) },
        Command::CompleteHandover { subcluster, since: 5, node: NodeId::new(2), boot: BootId::new(2) },
        Command::CancelHandover { subcluster, since: 5 },
        Command::CedeLead { subcluster, token: Token::new(3), node: NodeId::new(1), boot: BootId::new(1), avoid: None },
        operate(4, Action::ChangeReplicas { add: Some(new), remove: Some(NodeId::new(2)) }),
        Command::ReportCuts {
            model: ModelId::new(1),
            backend: BackendId::new(1),
            boot: BootId::new(5),
            cuts: vec![CutDigest::new(1), CutDigest::new(u128::MAX)],
        },
    ]
}

/// Two replicas, a backend and a model, and the log index they came with.
fn small_cluster() -> (ClusterState, u64) {
    let mut state = ClusterState::default();
    for (index, command) in (1..).zip(&commands()[..4]) {
        let _ = state.apply(index, command);
    }
    (state, 4)
}

pub(super) fn command_seeds() -> Vec<Vec<u8>> {
    commands().iter().map(|command| command.encode().expect("it is small")).collect()
}

pub(super) fn log_entry_seeds() -> Vec<Vec<u8>> {
    let entry = |command| LogEntry { at_unix_ms: 1_700_000_000_000, command };
    commands().into_iter().map(|command| entry(command).encode().expect("it is small")).collect()
}

pub(super) fn snapshot_seeds() -> Vec<Vec<u8>> {
    vec![ClusterState::default().snapshot(), small_cluster().0.snapshot()]
}

pub(super) fn backup_seeds() -> Vec<Vec<u8>> {
    let (state, index) = small_cluster();
    let backup = Backup {
        cluster: "test".into(),
        release: "0.1.0".into(),
        taken_at_unix_ms: 1_700_000_000_000,
        node: NodeId::new(2),
        index,
        term: 3,
        state: state.snapshot(),
        confirmed: true,
    };
    vec![backup.encode().expect("it is small")]
}

pub(super) fn view_seeds() -> Vec<Vec<u8>> {
    use symphony_protocol::control as pb;
    let gpu = pb::Gpu { id: 1, kind: "emulated".into(), memory_bytes: 1 << 30, ..Default::default() };
    let backend = pb::Backend {
        id: 1,
        name: "backend".into(),
        boot_id: 5,
        up: true,
        exec_addr: "127.0.0.1:7101".into(),
        subcluster: 1,
        executor: "emulated".into(),
        gpus: vec![gpu],
        duty: 2,
        drained: true,
        moving: Some(pb::BackendMove { to: 2, since: 7, preloads: true, retiring: 8 }),
        level: 2,
    };
    let node = pb::Node {
        id: 1,
        boot_id: 2,
        up: true,
        control_addr: "a:1".into(),
        dispatch_addr: "a:2".into(),
        beat_addr: "a:3".into(),
        duty: 1,
    };
    let subcluster =
        pb::Subcluster { id: 1, name: "default".into(), leader: 1, leader_boot_id: 2, ..Default::default() };
    let wanted = pb::PlannedMove {
        what: Some(pb::planned_move::What::Model(1)),
        from: 1,
        to: 2,
        progress: pb::MoveProgress::UnderWay.into(),
        index: 8,
        reason: String::new(),
        cost: Some(pb::MoveCost { bytes: 3, backend_bytes: 2, gpu_bytes: 1, backend_ms: 4 }),
    };
    let status = pb::PlanStatus::Running.into();
    let left_alone = vec![pb::LeftAlone { model: 2, reason: "too slow".into() }];
    let (cause, summary, moves) = ("why".into(), "what for".into(), vec![wanted]);
    let plan = pb::Plan { id: 7, status, cause, summary, moves, cost: None, left_alone, dropped: String::new() };
    let view = pb::ClusterView {
        cluster: "test".into(),
        applied_index: 9,
        nodes: vec![node],
        subclusters: vec![subcluster],
        backends: vec![backend],
        plans: vec![plan],
        ..Default::default()
    };
    vec![view.encode_to_vec()]
}
