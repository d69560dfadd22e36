//! What parses bytes from outside, each as one function that takes any bytes. The fuzz targets in `tests/fuzz` and the
//! smoke test run the very same functions.
//!
//! Not here, because they are private to their crates and fuzzed there by property tests: the log and snapshot frames
//! and the wire messages of `consensus`, and the heartbeat of `control-plane`. The whole of both is also fed garbage
//! over sockets by the integration tests.

mod federation;

use std::path::Path;

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message as _;
use symphony_cluster_state::{
    Action, BackendRegistration, ClusterState, Command, GpuOffer, NewReplica, NodeRegistration, Operation,
};
use symphony_config::{NodeConfig, Role};
use symphony_executor::profile::ProfileFile;
use symphony_frontend::oip::{InferError, Limits, ModelInfo, ModelState, check_grpc_infer, check_rest_infer};
use symphony_images::{ImageLimits, Pipeline, inspect};
use symphony_protocol::data::{
    FromOwner, RdmaEndpoint, RdmaKey, RdmaOffer, RequestResult, ResultBytes, SharingOffer, SharingSecret, ToOwner,
};
use symphony_protocol::dispatch::{EndReason, RequestHeader, ToFrontend, ToLeader};
use symphony_protocol::execute::{Done, Execute, FromBackend, PlannedRequest, Refusal, ToBackend};
use symphony_protocol::inference::ModelInferRequest;
use symphony_protocol::inference::model_infer_request::InferInputTensor;
use symphony_protocol::{FRAME_HEADER_BYTES, Frame, FrameHeader, Message};
use symphony_rdma::{SEGMENT_HEADER_BYTES, Segment, SegmentKind};
use symphony_repository::ModelConfig;
use symphony_shared_memory::{ENTRY_BYTES, RemoteLayout};
use symphony_tape::Tape;
use symphony_types::{
    BackendId, BootId, Colour, DataType, DropReason, Duty, FailReason, Filter, Finite, Fit, FrontendId, GpuClass,
    GpuId, ImageInput, Layout, Member, ModelId, Nanos, NodeId, OperationId, RequestId, Signature, SubclusterId,
    TensorSpec, Token, Transforms,
};
use symphony_workload::Scenario;

pub use federation::{federation_answer, federation_command, federation_messages, federation_snapshot};

/// The largest request that the checks of inference requests allow here.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Where the headers of frames, and of the values of replicated states, keep their checksum.
const FRAME_CHECKSUM_AT: usize = 12;
const ENVELOPE_CHECKSUM_AT: usize = 8;
/// Magic and version of a tape; length and checksum of its chunks.
const TAPE_PREAMBLE_BYTES: usize = 8;
const CHUNK_HEADER_BYTES: usize = 8;

/// One parser.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name, and that of its fuzz target.
    pub name: &'static str,
    /// Takes any bytes; panics only for a defect.
    pub run: fn(&[u8]),
    /// Inputs that it accepts, to mutate.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// All of them.
pub const ALL: [Entry; 17] = [
    Entry { name: "picture", run: picture, seeds: picture_seeds },
    Entry { name: "frames", run: frames, seeds: frame_seeds },
    Entry { name: "command", run: command, seeds: command_seeds },
    Entry { name: "snapshot", run: snapshot, seeds: snapshot_seeds },
    Entry { name: "scenario", run: scenario, seeds: scenario_seeds },
    Entry { name: "config", run: config, seeds: config_seeds },
    Entry { name: "profile", run: profile, seeds: profile_seeds },
    Entry { name: "model_config", run: model_config, seeds: model_config_seeds },
    Entry { name: "grpc_infer", run: grpc_infer, seeds: grpc_infer_seeds },
    Entry { name: "rest_infer", run: rest_infer, seeds: rest_infer_seeds },
    Entry { name: "view", run: view, seeds: view_seeds },
    Entry { name: "tape", run: tape, seeds: tape_seeds },
    Entry { name: "rdma", run: rdma, seeds: rdma_seeds },
    Entry { name: "federation_command", run: federation_command, seeds: federation::federation_command_seeds },
    Entry { name: "federation_snapshot", run: federation_snapshot, seeds: federation::federation_snapshot_seeds },
    Entry { name: "federation_answer", run: federation_answer, seeds: federation::federation_answer_seeds },
    Entry { name: "federation_messages", run: federation_messages, seeds: federation::federation_messages_seeds },
];

/// A frame of any link. The checksum is made right, or nothing but that would ever be tested.
pub fn frames(bytes: &[u8]) {
    fn read<M: Message + std::fmt::Debug + PartialEq>(header: FrameHeader, body: &Bytes) {
        let Ok(frame) = Frame::<M>::decode(header, body.clone()) else { return };
        let again = encode(&frame.message, std::slice::from_ref(&frame.tail));
        let (head, body) = again.split_first_chunk::<FRAME_HEADER_BYTES>().expect("a frame has a header");
        let header = FrameHeader::parse(*head).expect("what was encoded can be read");
        let back = Frame::<M>::decode(header, Bytes::copy_from_slice(body));
        assert_eq!(back, Ok(frame), "a frame that was read is written and read again");
    }
    let Some((head, body)) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>() else { return };
    let mut head = *head;
    head[FRAME_CHECKSUM_AT..].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    let Ok(header) = FrameHeader::parse(head) else { return };
    let body = Bytes::copy_from_slice(body);
    read::<ToLeader>(header, &body);
    read::<ToFrontend>(header, &body);
    read::<ToBackend>(header, &body);
    read::<FromBackend>(header, &body);
    read::<ToOwner>(header, &body);
    read::<FromOwner>(header, &body);
}

/// A command of the control group: decoded, checked, and applied to a small cluster.
pub fn command(bytes: &[u8]) {
    let Ok(command) = Command::decode(&with_envelope_checksum(bytes)) else { return };
    let encoded = command.encode().expect("what was decoded fits its limit");
    assert_eq!(Command::decode(&encoded).as_ref(), Ok(&command));
    let (mut state, index) = small_cluster();
    let _ = state.apply(index + 1, &command);
    symphony_cluster_state::check(&state).expect("no command breaks an invariant");
}

/// A snapshot of the cluster's state: refused, or a state like any other.
pub fn snapshot(bytes: &[u8]) {
    let Ok(state) = ClusterState::restore(&with_envelope_checksum(bytes)) else { return };
    assert_eq!(ClusterState::restore(&state.snapshot()), Ok(state));
}

/// A scenario's text, and a CSV for whatever file it names.
pub fn scenario(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (text, csv) = text.split_once('\u{1e}').unwrap_or((&text, "gpu_kind,batch,latency_ms\ng,1,1.0\n"));
    if let Err(error) = Scenario::parse("fuzz.toml", text, &[], &|_| Ok(csv.to_owned())) {
        assert!(error.to_string().contains("fuzz.toml") || !error.to_string().is_empty());
    }
}

/// A node's configuration, for every role.
pub fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for role in [Role::Scheduler, Role::Frontend, Role::Backend, Role::Up] {
        let path = Path::new("fuzz.toml");
        if let Ok(config) = NodeConfig::from_layers(role, Some((path, &text)), [], &[]) {
            let again = NodeConfig::from_layers(role, Some((path, &config.to_toml())), [], &[]);
            assert_eq!(again.ok(), Some(config), "what --dump-config prints is read again");
        }
    }
}

/// A profile file.
pub fn profile(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(profile) = ProfileFile::parse(Path::new("fuzz.profile.toml"), &text) {
        assert!(profile.gpus.values().all(|gpu| gpu.latency.table().is_sorted()), "a profile is monotone");
    }
}

/// A model's configuration in a repository.
pub fn model_config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match ModelConfig::parse(Path::new("fuzz.pbtxt"), "digits", &text) {
        Ok(config) => assert!(config.batch_max > 0 && config.slo > Nanos::ZERO),
        Err(error) => assert!(error.to_string().starts_with("fuzz.pbtxt")),
    }
}

fn model_config_seeds() -> Vec<Vec<u8>> {
    let sample = include_str!("../../deploy/models/repository/digits/config.pbtxt");
    let batching =
        "dynamic_batching { default_queue_policy { timeout_action: REJECT } } instance_group { kind: KIND_CPU }";
    let reshape = "input { name: 'x' data_type: TYPE_INT8 dims: 4 reshape: < shape: [2, 2]; > } output { name: \"y\" data_type: 11 }";
    let least =
        "backend: \"emulated\" max_batch_size: 0x8 parameters { key: \"slo_ms\" value { string_value: \"5\" \"0\" } }";
    [sample.to_owned(), format!("{sample} {batching}"), format!("{least} {reshape}")].map(String::into_bytes).into()
}

/// An inference request over gRPC.
pub fn grpc_infer(bytes: &[u8]) {
    let Ok(request) = ModelInferRequest::decode(bytes) else { return };
    let checked = check_grpc_infer(&model(), &request, &limits());
    judge(checked.map(|call| (call.items(), call.payload().len())));
}

/// An inference request over REST: the first two bytes say where its JSON ends, if that is within the body.
pub fn rest_infer(bytes: &[u8]) {
    let Some((split, body)) = bytes.split_first_chunk::<2>() else { return };
    let split = usize::from(u16::from_le_bytes(*split));
    let body = Bytes::copy_from_slice(body);
    for json_bytes in [None, Some(split)] {
        let checked = check_rest_infer(&model(), json_bytes, &body, &limits());
        judge(checked.map(|call| (call.items(), call.payload().len())));
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

/// A request that passed fits its model; one that did not is refused with words and as the client's fault.
fn judge(checked: Result<(u32, usize), InferError>) {
    let model = model();
    match checked {
        Ok((items, payload_bytes)) => {
            assert!((1..=model.batch_max).contains(&items));
            assert_eq!(payload_bytes, items as usize * model.signature.input_item_bytes());
        }
        Err(error) => {
            let face = error.face();
            assert!(face.http.is_client_error() || face.http.as_u16() == 501, "{error}: {face:?}");
            assert!(!error.to_string().is_empty());
        }
    }
}

/// A picture as clients send it: as an input of a request, and through the declared pipelines.
///
/// The first byte says how it is to become a tensor.
pub fn picture(bytes: &[u8]) {
    let Some((&how, picture)) = bytes.split_first() else { return };
    let input = &image_model().signature.inputs[0];
    let spec = ImageInput {
        colour: [Colour::Rgb, Colour::Bgr, Colour::Grey][usize::from(how) % 3],
        layout: [Layout::Nchw, Layout::Nhwc][usize::from(how >> 2) % 2],
        fit: [Fit::Stretch, Fit::Crop][usize::from(how >> 3) % 2],
        filter: [Filter::Nearest, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos][usize::from(how >> 4) % 4],
        ..image_input()
    };
    let elements = spec.elements() as u32;
    let pipeline = Pipeline::new(&spec, &TensorSpec { item_shape: vec![elements], ..input.clone() }).expect("it fits");
    let (header, mut item) = (inspect(picture, IMAGE_LIMITS), Vec::new());
    match pipeline.append(picture, IMAGE_LIMITS, &mut item) {
        Ok(()) => assert_eq!((header.is_ok(), item.len()), (true, elements as usize * 4)),
        Err(error) => assert!(item.is_empty() && !error.to_string().is_empty()),
    }
    let request = ModelInferRequest {
        model_name: "image".into(),
        inputs: vec![InferInputTensor {
            name: input.name.clone(),
            datatype: "BYTES".into(),
            shape: vec![1],
            ..InferInputTensor::default()
        }],
        raw_input_contents: vec![[&(picture.len() as u32).to_le_bytes(), picture].concat().into()],
        ..ModelInferRequest::default()
    };
    let checked = check_grpc_infer(&image_model(), &request, &Limits { images: IMAGE_LIMITS, ..limits() });
    assert_eq!(checked.is_ok(), header.is_ok(), "what is taken is what has a right header");
    if let Ok(call) = checked {
        assert_eq!((call.items(), call.pictures()[0].as_ref()), (1, picture));
    }
}

/// Small, so that claims beyond it are met often.
const IMAGE_LIMITS: ImageLimits = ImageLimits { bytes_max: 1 << 16, pixels_max: 1 << 12 };

fn image_input() -> ImageInput {
    ImageInput {
        input: "x".into(),
        width: 7,
        height: 5,
        colour: Colour::Rgb,
        layout: Layout::Nchw,
        fit: Fit::Stretch,
        crop_share: Finite::ONE,
        filter: Filter::Bilinear,
        scale: Finite::ONE,
        mean: vec![],
        deviation: vec![],
    }
}

fn image_model() -> ModelInfo {
    let tensor = |name: &str| TensorSpec { name: name.into(), data_type: DataType::Fp32, item_shape: vec![3, 5, 7] };
    ModelInfo {
        signature: Signature { inputs: vec![tensor("x")], outputs: vec![tensor("y")] },
        transforms: Transforms { image: Some(image_input()), ..Transforms::default() },
        ..model()
    }
}

fn picture_seeds() -> Vec<Vec<u8>> {
    use image::{DynamicImage, ImageBuffer, ImageFormat, Luma, Rgb, Rgba};
    let noise = |x: u32, y: u32| (x.wrapping_mul(37) ^ y.wrapping_mul(91)) as u8;
    let rgb: ImageBuffer<Rgb<u8>, _> = ImageBuffer::from_fn(24, 17, |x, y| Rgb([noise(x, y), x as u8, y as u8]));
    let grey: ImageBuffer<Luma<u8>, _> = ImageBuffer::from_fn(9, 30, |x, y| Luma([noise(x, y)]));
    let deep: ImageBuffer<Rgba<u16>, _> = ImageBuffer::from_fn(5, 5, |x, y| Rgba([x as u16 * 999, y as u16, 7, 9]));
    let images: [(DynamicImage, &[ImageFormat]); 3] = [
        (rgb.into(), &[ImageFormat::Png, ImageFormat::Jpeg]),
        (grey.into(), &[ImageFormat::Png, ImageFormat::Jpeg]),
        (deep.into(), &[ImageFormat::Png]),
    ];
    let encode = |(how, (image, format)): (usize, (&DynamicImage, &ImageFormat))| {
        let mut bytes = std::io::Cursor::new(vec![how as u8 * 23]);
        bytes.set_position(1);
        image.write_to(&mut bytes, *format).expect("it is small");
        bytes.into_inner()
    };
    let each = images.iter().flat_map(|(image, formats)| formats.iter().map(move |format| (image, format)));
    each.enumerate().map(encode).collect()
}

fn limits() -> Limits {
    Limits { request_bytes_max: REQUEST_BYTES_MAX, ..Limits::default() }
}

fn model() -> ModelInfo {
    ModelInfo {
        name: "model".into(),
        version: 1,
        loaded_as: "model".into(),
        signature: symphony_executor::default_signature(),
        transforms: Transforms::default(),
        batch_max: 8,
        platform: "fuzz".into(),
        slo: Nanos::from_millis(50),
        state: ModelState::Ready,
    }
}

fn with_envelope_checksum(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some((head, body)) = bytes.split_first_chunk_mut::<16>() {
        head[ENVELOPE_CHECKSUM_AT..][..4].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    }
    bytes
}

fn encode<M: Message>(message: &M, tail: &[Bytes]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    Frame::encode(message, tail, &mut bytes).expect("it is small");
    bytes.to_vec()
}

/// A tape: read, and decided again. The checksums are made right, so that records are tested and not CRC32C.
pub fn tape(bytes: &[u8]) {
    let bytes = with_chunk_checksums(bytes);
    let Ok(tape) = Tape::open(&bytes) else { return };
    let replayed = symphony_tape::replay(&tape);
    assert_eq!(replayed, symphony_tape::replay(&tape), "a replay is a function of its tape");
    if let Ok(replay) = replayed {
        assert!(replay.summary.steps <= replay.summary.records);
    }
}

/// The tape with the checksums that its chunks should have, as far as their lengths hold.
fn with_chunk_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut at = TAPE_PREAMBLE_BYTES;
    while let Some((header, rest)) = bytes.get(at..).and_then(|rest| rest.split_first_chunk::<CHUNK_HEADER_BYTES>()) {
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(records) = rest.get(..length) else { break };
        let checksum = crc32c::crc32c(records).to_le_bytes();
        bytes[at + 4..at + CHUNK_HEADER_BYTES].copy_from_slice(&checksum);
        at += CHUNK_HEADER_BYTES + length;
    }
    bytes
}

/// Two models and a ranker that decide a few times each.
fn tape_seeds() -> Vec<Vec<u8>> {
    use symphony_scheduler::{
        DataDelay, Delays, GpuChoice, GpuRanker, GrantWhy, ModelActions, ModelInput, ModelQueue, ModelQueueConfig,
        Policy, RankInput, ReadyOrder, Request,
    };
    use symphony_tape::{Chunk, TapeEnd, TapeHeader, TapeOrigin};
    let line = |alpha_ms| symphony_types::LatencyProfile::from_line(alpha_ms, 2.0, 4).expect("a line");
    let (first, second) = (GpuClass::FIRST, GpuClass::new(5).expect("a class"));
    let config = |policy| ModelQueueConfig {
        profiles: line(1.0).into(),
        slo: Nanos::from_millis(20),
        policy,
        delays: Delays::default(),
        requests_max: 3,
    };
    let tape = |policy: Policy, end: TapeEnd| {
        let mut chunks = [Chunk::with_capacity(0), Chunk::with_capacity(0)];
        let (mut queue, mut actions) = (ModelQueue::new(config(policy)), ModelActions::default());
        chunks[0].model(1, ModelId::new(4), 0, &config(policy));
        queue.set_profile(second, line(3.0));
        chunks[0].profile(1, second, &line(3.0));
        let data = DataDelay::each_item(Nanos::from_micros(30));
        queue.set_data_delay(data);
        chunks[0].data_delay(1, &data);
        let id = |sequence| RequestId { frontend: FrontendId::new(1), boot: BootId::new(2), sequence };
        let arrive = |sequence| {
            let deadline = symphony_types::Time::from_nanos(20_000_000 + sequence);
            ModelInput::Arrive(Request { id: id(sequence), deadline, items: 1 + sequence as u32 % 2 })
        };
        let free_at = symphony_types::Time::ZERO;
        let (gpu, millisecond) = (GpuId::new(0), Nanos::from_millis(1));
        let done = ModelInput::Done { start_late: millisecond, latency: millisecond, predicted: Nanos::ZERO };
        let inputs = [
            arrive(1),
            arrive(2),
            ModelInput::CancelWithNext(id(2)),
            ModelInput::Cancel(id(1)),
            arrive(3),
            ModelInput::Grant { gpu, class: first, free_at, why: GrantWhy::default() },
            ModelInput::Classes([first, second].into_iter().collect()),
            done,
            arrive(4),
            ModelInput::Return(Request { id: id(3), deadline: free_at, items: 1 }),
            ModelInput::Withdraw { frontend: FrontendId::new(1), boot: BootId::new(2) },
            ModelInput::Wake,
        ];
        for (now, input) in (1..).zip(inputs) {
            let now = symphony_types::Time::from_nanos(now * 1_000_000);
            actions.clear();
            queue.step(now, input, &mut actions);
            chunks[0].model_step(1, now, &input, &actions);
        }
        chunks[0].gone(1);
        let mut ranker = GpuRanker::new(1, 1, GpuChoice::LowestId);
        chunks[1].ranker(0, 1, 1, GpuChoice::LowestId, ReadyOrder::Latest);
        let inputs = [
            RankInput::Add { gpu, class: second, free_at },
            RankInput::BusyUntil { gpu, free_at },
            RankInput::Offer { model: 0, answered: 0, class: first, candidate: None },
            RankInput::Release { model: 0, gpu, free_at },
            RankInput::Remove(gpu),
            RankInput::Forget(0),
            RankInput::Wake,
        ];
        for input in inputs {
            let mut actions = Vec::new();
            ranker.step(free_at, input, &mut actions);
            chunks[1].rank_step(0, free_at, &input, &actions);
        }
        chunks[1].end(end);
        let mut bytes = TapeHeader { origin: TapeOrigin::default(), worker: "decide".into() }.to_bytes();
        chunks.iter_mut().for_each(|chunk| bytes.extend_from_slice(chunk.seal()));
        bytes
    };
    vec![
        tape(Policy::SYMPHONY, TapeEnd::Stopped),
        tape(Policy::AUTO, TapeEnd::Full),
        tape(Policy::CLIPPER, TapeEnd::Overflow),
    ]
}

fn frame_seeds() -> Vec<Vec<u8>> {
    let (token, boot, gpu, model) = (Token::new(9), BootId::new(3), GpuId::new(1), ModelId::new(2));
    let header = RequestHeader { sequence: 7, model: 3, items: 2, budget: 25_000_000, attempt: 1 };
    let id = RequestId { frontend: FrontendId::new(1), boot, sequence: 4 };
    let (frontend, subcluster) = (FrontendId::new(1), SubclusterId::new(1));
    let order = Execute {
        gpu,
        token,
        backend_boot: boot,
        sequence: 1,
        start_in: 5,
        latency: 6,
        model,
        requests: vec![PlannedRequest { id, items: 2 }; 3],
    };
    let done = Done {
        gpu,
        token,
        sequence: 1,
        model,
        start_late: 1,
        latency: 2,
        free_in: 3,
        failed: vec![(id, FailReason::PayloadLost)],
    };
    let refusal = Refusal::Fenced { promised: token };
    let result = RequestResult { sequence: 4, outcome: ResultBytes::Answer(3), batch: 2, execution: 9 };
    let endpoint = RdmaEndpoint { queue_pair: 17, first_packet: 1 << 23, mtu: 5, lid: 0, gid: [1; 16] };
    let rdma = RdmaOffer { endpoint, key: RdmaKey(7), address: 1 << 40, bytes: 1 << 20, entries: 64 };
    let offer = SharingOffer { name: "symphony-0".into(), secret: SharingSecret([7; 32]) };
    let ended = vec![(1, EndReason::Dropped(DropReason::QueueFull)), (2, EndReason::Failed(FailReason::NoAnswer))];
    vec![
        encode(&ToLeader::Hello { frontend, boot, subcluster, token }, &[]),
        encode(&ToLeader::Submit { token, requests: vec![header; 3] }, &[]),
        encode(&ToLeader::Redrive { token, requests: vec![header], last: true }, &[]),
        encode(&ToLeader::Cancel { requests: vec![(1, 2), (3, 4)] }, &[]),
        encode(&ToFrontend::Ended { requests: ended }, &[]),
        // For a sub-cluster that no test has: a seal is no rubbish, and seeds are also sent to real backends.
        encode(&ToBackend::Seal { subcluster: SubclusterId::new(99), gpus: vec![(gpu, token); 2] }, &[]),
        encode(&ToBackend::Execute(order), &[]),
        encode(&ToBackend::Retired { gpus: vec![gpu; 2] }, &[]),
        encode(&FromBackend::Done(done), &[]),
        encode(&FromBackend::PayloadDelay { fixed: 200_000, per_mib: 900_000 }, &[]),
        encode(&FromBackend::Refused { gpu, sequence: 1, token, model, refusal }, &[]),
        encode(
            &ToOwner::Hello {
                backend: BackendId::new(1),
                boot,
                frontend_boot: boot,
                shares: true,
                rdma: Some(rdma.endpoint),
            },
            &[],
        ),
        encode(&ToOwner::Joined { shares: true }, &[]),
        encode(&ToOwner::Read { read: 1, sequences: vec![1, 2, 3] }, &[]),
        encode(&ToOwner::Results { results: vec![result; 2] }, &[Bytes::from_static(b"abcdef")]),
        encode(&ToOwner::Results { results: vec![RequestResult { outcome: ResultBytes::Shared, ..result }] }, &[]),
        encode(&FromOwner::Welcome { boot, sharing: Some(offer), rdma: Some(rdma) }, &[]),
        encode(&FromOwner::Taken { sequences: vec![1, 2] }, &[]),
        encode(&FromOwner::Payloads { read: 1, lengths: vec![Some(2), None] }, &[Bytes::from_static(b"ab")]),
    ]
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
        policy: String::new(),
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

fn command_seeds() -> Vec<Vec<u8>> {
    commands().iter().map(|command| command.encode().expect("it is small")).collect()
}

fn snapshot_seeds() -> Vec<Vec<u8>> {
    vec![ClusterState::default().snapshot(), small_cluster().0.snapshot()]
}

fn scenario_seeds() -> Vec<Vec<u8>> {
    let texts = [
        include_str!("../../deploy/scenarios/table4-resnet50.toml").to_owned(),
        include_str!("../../deploy/scenarios/zipf-20-models.toml").to_owned(),
        include_str!("../../deploy/scenarios/rough-day.toml").to_owned(),
        "name = \"x\"\npolicy = { name = \"symphony\", trigger = \"eager\" }\nduration_s = 1\nwarmup_s = 0\nseeds = [1]\n\
         [[gpu]]\nkind = \"g\"\ncount = 1\n[[model]]\nname = \"m\"\nprofile_csv = \"p.csv\"\nslo_ms = 25.0\n\
         [workload]\nrate_rps = 5.0\narrival = { gamma = 0.5 }\n\u{1e}gpu_kind,batch,latency_ms\ng,1,1.0\ng,2,2.0\n"
            .to_owned(),
        "name = \"t\"\n[[gpu]]\nkind = \"g\"\ncount = 1\n[[model]]\nname = \"m\"\nalpha_ms = 1.0\nbeta_ms = 5.0\nslo_ms = 25.0\n\
         [workload]\narrival = { trace_csv = \"t.csv\" }\n\u{1e}time_s,model,items,slo_ms\n0.5,m,2,30.0\n0.7,,,\n"
            .to_owned(),
    ];
    texts.map(String::into_bytes).into()
}

fn config_seeds() -> Vec<Vec<u8>> {
    let texts = [
        include_str!("../../deploy/config/dev.toml"),
        include_str!("../../deploy/config/production.toml"),
        include_str!("../../deploy/config/federation.toml"),
        include_str!("../../deploy/config/federated-frontend.toml"),
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

fn profile_seeds() -> Vec<Vec<u8>> {
    let text = "format = 1\nmodel = \"m\"\n[[inputs]]\nname = \"x\"\ndata_type = \"FP32\"\nitem_shape = [2, 2]\n\
                [[outputs]]\nname = \"y\"\ndata_type = \"INT64\"\nitem_shape = []\n[gpu.cpu]\nmachine = \"here\"\n\
                static_memory_bytes = 100\ndynamic_memory_bytes = 50\nlatency_ms = [1.0, 2.0, 2.5]\n";
    vec![text.as_bytes().to_vec()]
}

fn grpc_infer_seeds() -> Vec<Vec<u8>> {
    let input =
        InferInputTensor { name: "INPUT0".into(), datatype: "FP32".into(), shape: vec![2, 16], ..Default::default() };
    let raw = ModelInferRequest {
        model_name: "model".into(),
        inputs: vec![input.clone()],
        raw_input_contents: vec![Bytes::from(vec![1; 128])],
        ..Default::default()
    };
    let contents =
        symphony_protocol::inference::InferTensorContents { fp32_contents: vec![0.5; 32], ..Default::default() };
    let typed = ModelInferRequest {
        model_name: "model".into(),
        inputs: vec![InferInputTensor { contents: Some(contents), ..input }],
        ..Default::default()
    };
    vec![raw.encode_to_vec(), typed.encode_to_vec()]
}

fn rest_infer_seeds() -> Vec<Vec<u8>> {
    let numbers = vec!["1.5"; 16].join(",");
    let json = format!(
        "{{\"id\":\"7\",\"inputs\":[{{\"name\":\"INPUT0\",\"datatype\":\"FP32\",\"shape\":[1,16],\"data\":[{numbers}]}}]}}"
    );
    let binary = "{\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP32\",\"shape\":[1,16],\"parameters\":\
                  {\"binary_data_size\":64}}],\"outputs\":[{\"name\":\"OUTPUT0\",\"parameters\":{\"binary_data\":true}}]}";
    let seed = |json: &str, tail: &[u8]| {
        let mut bytes = BytesMut::new();
        bytes.put_u16_le(json.len() as u16);
        bytes.put_slice(json.as_bytes());
        bytes.put_slice(tail);
        bytes.to_vec()
    };
    vec![seed(&json, &[]), seed(binary, &[7; 64])]
}

fn view_seeds() -> Vec<Vec<u8>> {
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

/// What another host's memory may say: a segment of a stream, and the entry of a pool of 64 KiB.
pub fn rdma(bytes: &[u8]) {
    if let Ok((segment, data)) = Segment::parse(bytes) {
        let mut again = [&[0; SEGMENT_HEADER_BYTES][..], data].concat();
        segment.write(&mut again);
        assert_eq!(again, bytes, "a segment that was parsed is written again");
    }
    let Some((entry, rest)) = bytes.split_first_chunk::<ENTRY_BYTES>() else { return };
    let (bytes, number) = (64 << 10, u64::from_le_bytes(*entry[8..].first_chunk().expect("an entry is longer")));
    let layout = RemoteLayout::new(bytes, 16).expect("there is such a pool");
    if let Ok(found) = layout.find(number, entry, 1 << 20) {
        assert!(found.at() + found.length() as u64 <= bytes, "nothing beyond the pool is fetched");
        let _ = found.holds(rest);
    }
}

fn rdma_seeds() -> Vec<Vec<u8>> {
    let mut segment = [&[0; SEGMENT_HEADER_BYTES][..], b"some data"].concat();
    Segment { kind: SegmentKind::Data, number: 7, credits: 3 }.write(&mut segment);
    let entry = [2_u64, 5, 256, 100 | 7 << 32].iter().flat_map(|word| word.to_le_bytes()).collect();
    vec![segment, entry]
}

/// Bytes of a mutation. No seed is longer, or nothing behind that would ever be tested.
pub const MUTATION_BYTES_MAX: usize = 4096;

/// A mutation of `seed`, as fuzzers make them: flipped bits, bytes changed, removed, inserted, repeated, or all anew.
#[must_use]
pub fn mutate(seed: &[u8], random: &mut impl rand::Rng) -> Vec<u8> {
    const STEPS_MAX: usize = 8;
    if random.random_ratio(1, 16) {
        let length = random.random_range(0..256);
        return (0..length).map(|_| random.random()).collect();
    }
    let mut bytes = seed.to_vec();
    for _ in 0..random.random_range(1..=STEPS_MAX) {
        if bytes.is_empty() {
            bytes.push(random.random());
        }
        let at = random.random_range(0..bytes.len());
        match random.random_range(0..6) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => bytes[at] = random.random(),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.random_range(0..5)],
            3 => {
                bytes.remove(at);
            }
            4 => bytes.insert(at, random.random()),
            _ => {
                let end = random.random_range(at..bytes.len().min(at + 64));
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
        bytes.truncate(MUTATION_BYTES_MAX);
    }
    bytes
}
