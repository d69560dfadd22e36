//! What this release writes at a level is what every release wrote at it: committed bytes of frames of every message,
//! and of what travels in protobuf, which is only ever added to. To change a message, add a level, keep the old layout
//! beside the new one, and write new files: `cargo test -p symphony-protocol --test format -- --ignored`.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use prost::Message as _;
use symphony_protocol::carrier::{CarrierMessage, CarrierOffer};
use symphony_protocol::control as pb;
use symphony_protocol::data::{
    BatchRun, FromDataServer, RdmaEndpoint, RdmaKey, RdmaOffer, RequestResult, ResultBytes, SharingOffer,
    SharingSecret, ToDataServer,
};
use symphony_protocol::dispatch::{EndReason, RequestHeader, ToFrontend, ToLeader};
use symphony_protocol::execute::{
    Done, EndedPlan, Execute, FromBackend, HostedModel, PlannedRequest, Refusal, SealedGpu, ToBackend,
};
use symphony_protocol::view::{
    BackendView, EventView, FrontendView, GpuView, GroupMemberView, GroupRole, NodeView, SubclusterView, SuccessorView,
    Traffic, View,
};
use symphony_protocol::{Echo, FRAME_HEADER_BYTES, Frame, FrameHeader, Message};
use symphony_testkit::{FormatFile, NamedBytes};
use symphony_types::{
    BackendId, BootId, DropReason, Duty, Epoch, FailReason, FrontendId, GpuId, Level, ModelId, NodeId, RequestId,
    SubclusterId, Token,
};

/// What this release writes and reads at.
const LEVELS: [Level; 2] = [Level::OLDEST, Level::NEWEST];

const BOOT: BootId = BootId::new(3);
const TOKEN: Token = Token::new(9);
const GPU: GpuId = GpuId::new(1);
const MODEL: ModelId = ModelId::new(2);
const ID: RequestId = RequestId { frontend: FrontendId::new(1), boot: BOOT, sequence: 4 };

fn to_leader() -> Vec<ToLeader> {
    let header = RequestHeader { sequence: 7, model: 3, items: 2, budget: 25_000_000, attempt: 1, weight: 1000 };
    let (frontend, subcluster) = (FrontendId::new(1), SubclusterId::new(1));
    vec![
        ToLeader::Hello { frontend, boot: BOOT, subcluster, token: TOKEN },
        ToLeader::Announce { token: TOKEN, requests: vec![header; 2] },
        ToLeader::Redrive { token: TOKEN, requests: vec![header], last: true },
        ToLeader::Cancel { requests: vec![(1, 2), (3, 4)] },
    ]
}

fn to_frontend() -> Vec<ToFrontend> {
    let dropped = DropReason::ALL.iter().map(|&reason| EndReason::Dropped(reason));
    let failed = FailReason::ALL.iter().map(|&reason| EndReason::Failed(reason));
    vec![
        ToFrontend::Welcome { token: TOKEN },
        ToFrontend::NotLeader { token: TOKEN },
        ToFrontend::Suspended,
        ToFrontend::Ended { requests: (1..).zip(dropped.chain(failed)).collect() },
        ToFrontend::Panicked,
    ]
}

fn to_backend() -> Vec<ToBackend> {
    let requests = vec![PlannedRequest { id: ID, items: 2, model: ModelId::default() }; 2];
    let order = Execute {
        gpu: GPU,
        token: TOKEN,
        backend_boot: BOOT,
        sequence: 1,
        start_in: 5,
        latency: 6,
        model: MODEL,
        requests,
    };
    vec![
        ToBackend::Hello { node: NodeId::new(2), boot: BOOT },
        ToBackend::Seal { subcluster: SubclusterId::new(1), gpus: vec![(GPU, TOKEN); 2] },
        ToBackend::Execute(order),
        ToBackend::Retired { gpus: vec![GPU; 2] },
    ]
}

fn from_backend() -> Vec<FromBackend> {
    let refusals = [
        Refusal::Fenced { promised: TOKEN },
        Refusal::NeedSeal { promised: TOKEN },
        Refusal::WrongBoot { boot: BOOT },
        Refusal::OutOfSequence { expected: 8 },
        Refusal::QueueFull,
        Refusal::UnknownGpu,
        Refusal::ModelNotReady,
    ];
    let refused = |refusal| FromBackend::Refused { gpu: GPU, sequence: 1, token: TOKEN, model: MODEL, refusal };
    let sealed = SealedGpu { gpu: GPU, promised: TOKEN, free_in: 5, in_flight: vec![ID] };
    let done = Done {
        gpu: GPU,
        token: TOKEN,
        sequence: 1,
        model: MODEL,
        start_late: 1,
        latency: 2,
        free_in: 3,
        failed: vec![(ID, FailReason::PayloadLost)],
    };
    let plans = vec![EndedPlan { longer: 1, predicted: 2 }];
    let mut all = vec![
        FromBackend::Welcome { backend: BackendId::new(1), boot: BOOT },
        FromBackend::Sealed { boot: BOOT, gpus: vec![sealed], finished: vec![ID], plans },
        FromBackend::Done(done),
        FromBackend::PayloadDelay { fixed: 200_000, per_mib: 900_000 },
    ];
    all.extend(refusals.map(refused));
    let hosted = HostedModel { model: MODEL, trunk_share: 900_000, suffix_share: 150_000, trunk: [8; 16] };
    all.push(FromBackend::Hosts { models: vec![hosted; 2] });
    all
}

const ENDPOINT: RdmaEndpoint = RdmaEndpoint { queue_pair: 17, first_packet: 1 << 23, mtu: 5, lid: 0, gid: [1; 16] };

fn sharing() -> SharingOffer {
    SharingOffer { name: "symphony-0".into(), secret: SharingSecret([7; 32]) }
}

fn to_data_server() -> Vec<ToDataServer> {
    let run = BatchRun { gpu: GPU, token: TOKEN, plan: 6, planned_us: 40, inputs_us: 30, started_us: 20, ended_us: 10 };
    let result = |outcome| RequestResult { sequence: 4, outcome, batch: 2, execution: 9, run };
    let outcomes = [ResultBytes::Answer(3), ResultBytes::Shared, ResultBytes::Failed(FailReason::NoAnswer)];
    let backend = BackendId::new(1);
    vec![
        ToDataServer::Hello { backend, boot: BOOT, frontend_boot: BOOT, shares: true, rdma: Some(ENDPOINT) },
        ToDataServer::Hello { backend, boot: BOOT, frontend_boot: BOOT, shares: false, rdma: None },
        ToDataServer::Joined { shares: true },
        ToDataServer::Read { read: 1, sequences: vec![1, 2, 3] },
        ToDataServer::Results { results: outcomes.map(result).to_vec() },
    ]
}

fn from_data_server() -> Vec<FromDataServer> {
    let rdma = RdmaOffer { endpoint: ENDPOINT, key: RdmaKey(7), address: 1 << 40, bytes: 1 << 20, entries: 64 };
    vec![
        FromDataServer::Welcome { boot: BOOT, sharing: Some(sharing()), rdma: Some(rdma) },
        FromDataServer::Welcome { boot: BOOT, sharing: None, rdma: None },
        FromDataServer::MustShare,
        FromDataServer::MustUseRdma,
        FromDataServer::Taken { sequences: vec![1, 2] },
        FromDataServer::Payloads { read: 1, lengths: vec![Some(2), None], waited: 7_000_000 },
    ]
}

fn carrier() -> Vec<CarrierMessage> {
    vec![
        CarrierMessage::Ask,
        CarrierMessage::Offer(CarrierOffer { sharing: Some(sharing()), rdma: true }),
        CarrierMessage::Refuse,
        CarrierMessage::Join(ENDPOINT),
        CarrierMessage::Joined(ENDPOINT),
        CarrierMessage::Decline,
        CarrierMessage::Switch,
        CarrierMessage::Required,
    ]
}

const ECHOES: [Echo; 2] = [Echo::Ask(7), Echo::Answer(7)];

/// Every frame at a level, by name.
fn frames(level: Level) -> NamedBytes {
    fn of<M: Message>(level: Level, what: &str, messages: &[M], all: &mut NamedBytes) {
        for (at, message) in messages.iter().enumerate() {
            let mut bytes = BytesMut::new();
            Frame::encode(message, &[Bytes::from_static(b"tail")], level, &mut bytes).unwrap();
            all.insert(format!("{what} {at:02}"), bytes.to_vec());
        }
    }
    let mut all = NamedBytes::new();
    of(level, "to leader", &to_leader(), &mut all);
    of(level, "to frontend", &to_frontend(), &mut all);
    of(level, "to backend", &to_backend(), &mut all);
    of(level, "from backend", &from_backend(), &mut all);
    of(level, "to data server", &to_data_server(), &mut all);
    of(level, "from data server", &from_data_server(), &mut all);
    of(level, "carrier", &carrier(), &mut all);
    for (at, echo) in ECHOES.into_iter().enumerate() {
        let mut bytes = BytesMut::new();
        echo.encode(level, &mut bytes);
        all.insert(format!("echo {at:02}"), bytes.to_vec());
    }
    all
}

fn read<M: Message + PartialEq + std::fmt::Debug>(what: &str, messages: &[M], of: &NamedBytes) {
    for (at, message) in messages.iter().enumerate() {
        let name = format!("{what} {at:02}");
        let (head, body) = of[&name].split_first_chunk::<FRAME_HEADER_BYTES>().unwrap();
        let header = FrameHeader::parse(*head, Level::NEWEST).unwrap();
        let frame = Frame::<M>::decode(header, Bytes::copy_from_slice(body)).unwrap();
        assert_eq!((&frame.message, &*frame.tail), (message, &b"tail"[..]), "{name}");
    }
}

/// A view with something in every list that processes route by.
fn view() -> View {
    let gpu = GpuView { id: GPU, kind: "cpu".into(), memory_bytes: 9, binding: TOKEN };
    let node = NodeView {
        boot: Some(BOOT),
        up: true,
        control_addr: "a:1".into(),
        dispatch_addr: "a:2".into(),
        beat_addr: "a:3".into(),
        duty: Duty::Cordoned,
    };
    let subcluster = SubclusterView {
        name: "s".into(),
        leader: Some((NodeId::new(1), BOOT)),
        token: TOKEN,
        standbys: vec![NodeId::new(2)],
        successor: Some(SuccessorView { node: NodeId::new(2), boot: BOOT, since: 8 }),
        ..SubclusterView::default()
    };
    let backend = BackendView {
        name: "b".into(),
        boot: BOOT,
        up: true,
        exec_addr: "b:1".into(),
        subcluster: SubclusterId::new(1),
        executor: "emulated".into(),
        gpus: vec![gpu],
        duty: Duty::Draining,
        drained: true,
        moving: None,
        level: Some(Level::new(2)),
    };
    let frontend = FrontendView {
        name: "f".into(),
        boot: BOOT,
        data_addr: "f:1".into(),
        console_addr: "f:2".into(),
        leaving: true,
        level: Some(Level::new(2)),
        ..FrontendView::default()
    };
    let member = GroupMemberView {
        control_addr: "a:1".into(),
        role: GroupRole::Voter,
        applied_index: 30,
        lag: 1,
        level: Some(Level::new(2)),
        silent: None,
        stuck: None,
    };
    View {
        cluster: "blue".into(),
        applied_index: 31,
        epoch: Epoch::new(3),
        level: Level::new(2),
        replica: NodeId::new(2),
        control_leader: Some(NodeId::new(1)),
        nodes: [(NodeId::new(1), node)].into(),
        subclusters: [(SubclusterId::new(1), subcluster)].into(),
        backends: [(BackendId::new(1), backend)].into(),
        frontends: [(FrontendId::new(1), frontend)].into(),
        traffic: [("m".to_owned(), Traffic { weights: [(1, 9), (2, 1)].into(), shadow: None })].into(),
        events: vec![EventView { index: 31, at_unix_ms: 1_700_000_000_001, what: "a model came".into() }],
        group: [(NodeId::new(1), member)].into(),
        removed_nodes: [NodeId::new(7)].into(),
        ..View::default()
    }
}

/// What travels in protobuf between releases, by name.
fn control() -> NamedBytes {
    let (what, member) = ("text".to_owned(), Some(symphony_types::Member::Backend(BackendId::new(1)).into()));
    let process = Some(pb::WatchingProcess { member, boot_id: 3, level: 2 });
    let scope = Some(pb::BackendScope { backend: 1, subcluster: 2 });
    let frontend_boot = Some(pb::FrontendBoot { frontend: 1, boot_id: 3 });
    let watch = pb::WatchRequest { watcher: what.clone(), backend: scope, frontend: frontend_boot, process };
    let backend = pb::RegisterBackendRequest {
        name: what.clone(),
        boot_id: 3,
        exec_addr: what.clone(),
        subcluster: what.clone(),
        executor: what.clone(),
        gpus: vec![pb::GpuOffer { kind: what.clone(), memory_bytes: 4 }],
        level: 2,
    };
    let (data_addr, console_addr) = (what.clone(), what.clone());
    let frontend = pb::RegisterFrontendRequest { name: what.clone(), boot_id: 3, data_addr, console_addr, level: 2 };
    let forward = pb::ForwardRequest { cluster: what, command: vec![1, 2, 3] };
    [
        ("view", pb::ClusterView::from(&view()).encode_to_vec()),
        ("watch", watch.encode_to_vec()),
        ("register backend", backend.encode_to_vec()),
        ("register frontend", frontend.encode_to_vec()),
        ("forward", forward.encode_to_vec()),
    ]
    .into_iter()
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .collect()
}

fn file(what: &str, number: u16) -> FormatFile {
    FormatFile::new(format!("{}/tests/format/{what}-{number}.txt", env!("CARGO_MANIFEST_DIR")))
}

#[test]
fn frames_at_a_level_have_not_changed_and_are_read() {
    for level in LEVELS {
        let file = file("frames", level.formats().frames);
        file.check(&frames(level), "keep its layout at that level, and add another one");
        let committed = file.read();
        read("to leader", &to_leader(), &committed);
        read("to frontend", &to_frontend(), &committed);
        read("to backend", &to_backend(), &committed);
        read("from backend", &from_backend(), &committed);
        read("to data server", &to_data_server(), &committed);
        read("from data server", &from_data_server(), &committed);
        read("carrier", &carrier(), &committed);
        for (at, echo) in ECHOES.into_iter().enumerate() {
            let (head, body) = committed[&format!("echo {at:02}")].split_first_chunk::<FRAME_HEADER_BYTES>().unwrap();
            assert_eq!(Echo::decode(FrameHeader::parse(*head, Level::NEWEST).unwrap(), body), Ok(echo));
        }
    }
}

/// By hand: length, version, link 0, no message, checksum; question 7.
#[test]
fn an_echo_of_version_12_is_what_it_always_was() {
    let mut bytes = BytesMut::new();
    Echo::Ask(7).encode(Level::new(1), &mut bytes);
    let body = [0, 7, 0, 0, 0, 0, 0, 0, 0];
    let head = [9, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(bytes[..], [&head[..], &crc32c::crc32c(&body).to_le_bytes(), &body].concat());
}

/// The compiler leads here when a message is added; what is added needs a frame above.
#[test]
fn every_message_has_a_frame() {
    let mut names = BTreeSet::new();
    for message in to_leader() {
        names.insert(match message {
            ToLeader::Hello { .. } => "dispatch hello",
            ToLeader::Announce { .. } => "submit",
            ToLeader::Redrive { .. } => "redrive",
            ToLeader::Cancel { .. } => "cancel",
        });
    }
    for message in to_frontend() {
        names.insert(match message {
            ToFrontend::Welcome { .. } => "dispatch welcome",
            ToFrontend::NotLeader { .. } => "not leader",
            ToFrontend::Suspended => "suspended",
            ToFrontend::Ended { .. } => "ended",
            ToFrontend::Panicked => "panicked",
        });
    }
    for message in to_backend() {
        names.insert(match message {
            ToBackend::Hello { .. } => "execute hello",
            ToBackend::Seal { .. } => "seal",
            ToBackend::Execute(_) => "execute",
            ToBackend::Retired { .. } => "retired",
        });
    }
    for message in from_backend() {
        names.insert(match message {
            FromBackend::Welcome { .. } => "execute welcome",
            FromBackend::Sealed { .. } => "sealed",
            FromBackend::Done(_) => "done",
            FromBackend::PayloadDelay { .. } => "payload delay",
            FromBackend::Hosts { .. } => "hosts",
            FromBackend::Refused { refusal, .. } => match refusal {
                Refusal::Fenced { .. } => "fenced",
                Refusal::NeedSeal { .. } => "need seal",
                Refusal::WrongBoot { .. } => "wrong boot",
                Refusal::OutOfSequence { .. } => "out of sequence",
                Refusal::QueueFull => "queue full",
                Refusal::UnknownGpu => "unknown gpu",
                Refusal::ModelNotReady => "model not ready",
            },
        });
    }
    for message in to_data_server() {
        names.insert(match message {
            ToDataServer::Hello { .. } => "data hello",
            ToDataServer::Joined { .. } => "joined",
            ToDataServer::Read { .. } => "read",
            ToDataServer::Results { .. } => "results",
        });
    }
    for message in from_data_server() {
        names.insert(match message {
            FromDataServer::Welcome { .. } => "data welcome",
            FromDataServer::MustShare => "must share",
            FromDataServer::MustUseRdma => "must use rdma",
            FromDataServer::Taken { .. } => "taken",
            FromDataServer::Payloads { .. } => "payloads",
        });
    }
    for message in carrier() {
        names.insert(match message {
            CarrierMessage::Ask => "ask",
            CarrierMessage::Offer(_) => "offer",
            CarrierMessage::Refuse => "refuse",
            CarrierMessage::Join(_) => "join",
            CarrierMessage::Joined(_) => "carrier joined",
            CarrierMessage::Decline => "decline",
            CarrierMessage::Switch => "switch",
            CarrierMessage::Required => "required",
        });
    }
    assert_eq!(names.len(), 4 + 5 + 4 + 5 + 7 + 4 + 5 + 8, "{names:?}");
}

#[test]
fn what_releases_have_said_in_protobuf_is_read_as_they_meant_it() {
    let file = file("control", 2);
    file.check(&control(), "fields are only added, with new numbers");
    let committed = file.read();
    let decoded = pb::ClusterView::decode(&committed["view"][..]).unwrap();
    assert_eq!(View::try_from(decoded), Ok(view()));
    // The release before tells no levels: its view is of the first one, and of its processes nothing is known.
    let before =
        pb::ClusterView { cluster: "blue".into(), backends: vec![pb::Backend::default()], ..Default::default() };
    let before = View::try_from(pb::ClusterView::decode(&before.encode_to_vec()[..]).unwrap()).unwrap();
    assert_eq!(before.level, Level::new(1));
    assert!(before.backends.values().all(|backend| backend.level.is_none()));
}

/// Writes the files that are not there; never changes one.
#[test]
#[ignore = "writes the files of a new level"]
fn write_the_files_of_a_new_level() {
    let frames = LEVELS.map(|level| (file("frames", level.formats().frames), frames(level)));
    for (file, written) in frames.into_iter().chain([(file("control", 2), control())]) {
        if file.write_if_missing(&written) {
            println!("{file:?} is new");
        }
    }
}
