//! A detector of three boxes and a recogniser of each whose score is above five, answered by hand.

mod fork_join;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt as _;
use symphony_pipeline::{
    Action, Ask, AskId, BoxUnit, CommittedSplit, Condition, Crop, DeclaredEdge, DeclaredStage, Event, InputData,
    PipelineDeclaration, PipelineInput, PipelineOutput, PipelineRun, RunCheck,
};
use symphony_protocol::dispatch::EndReason;
use symphony_protocol::federation::{FederatedModelView, FederationView};
use symphony_protocol::view::{KindProfile, PipelineCounts, PipelineView, Traffic, View};
use symphony_telemetry::{Registry, Traces};
use symphony_types::{
    BootId, DataType, DropReason, Duty, Epoch, Finite, FrontendId, Invariant, LatencyProfile, ModelId, Nanos,
    RequestId, RequestValue, Signature, TensorSpec, Time, Transforms,
};

use super::checked_run::{report_open, report_violation};
use super::host::longest_way;
use super::stage_request::{StageInput, StageRequest};
use crate::clusters::live_pipeline::LivePipeline;
use crate::counts::pipeline_counters::PipelineCounters;
use crate::inner::Inner;
use crate::oip::{
    Caller, InferAnswer, InferError, InferRequest, ModelState, PipelineAnswer, Receipt, RequestContext,
    RequestedDeadline, Timeliness,
};
use crate::pictures::test_pictures::{cut_off, model as of_pictures, picture, pictures};
use crate::requests::request_table::{Ending, RequestTable};
use crate::requests::tests::{frontend, view};

const SLO: Nanos = Nanos::from_millis(60_000);

fn tensor(name: &str, item_shape: &[u32]) -> TensorSpec {
    TensorSpec { name: name.into(), data_type: DataType::Uint8, item_shape: item_shape.to_vec() }
}

fn declaration(partial: bool) -> PipelineDeclaration {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|&(one, other)| (one.to_owned(), other.to_owned())).collect()
    };
    let stage = |name: &str, inputs: &[(&str, &str)], outputs: &[(&str, &str)]| DeclaredStage {
        name: name.into(),
        model: name.into(),
        inputs: map(inputs),
        outputs: map(outputs),
    };
    let condition: Condition = "scores > 5".parse().unwrap();
    PipelineDeclaration {
        name: "p".into(),
        version: 3,
        slo_ns: SLO.get(),
        value: RequestValue::ONE,
        partial,
        items_max: 2,
        inputs: vec![PipelineInput {
            name: "x".into(),
            data: InputData::Tensor { data_type: DataType::Uint8, item_shape: vec![2] },
        }],
        outputs: vec![
            PipelineOutput { tensor: tensor("scores", &[3]), any_rows: false },
            PipelineOutput { tensor: tensor("label", &[1]), any_rows: true },
        ],
        stages: vec![
            stage("detect", &[("image", "x")], &[("boxes", "found"), ("scores", "scores")]),
            stage("recognise", &[("box", "found"), ("image", "x")], &[("y", "label")]),
        ],
        edges: vec![DeclaredEdge {
            from: "detect".into(),
            to: "recognise".into(),
            gamma: Finite::ONE,
            for_each: true,
            condition: Some((&condition).into()),
            most: Some(2),
            crop: None,
        }],
    }
}

/// A cluster that has the pipeline and its models.
fn pipeline_view(partial: bool) -> View {
    let mut view = view(true, Duty::Serving);
    let model = view.models.values().next().unwrap().clone();
    let loaded = |id, name: &str, inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>| {
        let mut model = model.clone();
        model.spec.name = name.into();
        (model.spec.signature, model.spec.transforms) = (Signature { inputs, outputs }, Transforms::default());
        let latency = LatencyProfile::from_line(1.0, 1.0, 8).unwrap();
        let kind = KindProfile { latency, static_memory_bytes: 1, dynamic_memory_bytes: 1 };
        model.spec.profiles = [("t4".to_owned(), kind)].into();
        (ModelId::new(id), model)
    };
    let boxes = vec![tensor("boxes", &[3, 2]), tensor("scores", &[3])];
    view.models = [
        loaded(4, "detect", vec![tensor("image", &[2])], boxes),
        loaded(5, "recognise", vec![tensor("image", &[2]), tensor("box", &[2])], vec![tensor("y", &[1])]),
    ]
    .into();
    let split = CommittedSplit {
        budgets_ns: vec![20_000_000_000, 39_000_000_000],
        hop_ns: 0,
        gammas: vec![Finite::ONE],
        rate_millirps: 1000,
    };
    let (declaration, epoch) = (declaration(partial), Epoch::new(1));
    let pipeline = PipelineView { declaration, epoch, split: Some(split), load: None };
    view.pipelines = [("p@3".to_owned(), pipeline)].into();
    view
}

fn served(partial: bool) -> (Arc<Inner>, Arc<RequestTable>) {
    let frontend = frontend(vec![pipeline_view(partial)], FederationView::default());
    let table = Arc::clone(&frontend.slots[0].requests.table);
    (frontend, table)
}

fn request(frontend: &Inner, items: u32) -> InferRequest {
    let payload = Bytes::from_static(b"abcd").slice(..2 * items as usize);
    InferRequest {
        model: frontend.model("p", None).unwrap(),
        items,
        payload,
        pictures: None,
        deadline: RequestedDeadline::unstated(Instant::now()),
        receipt: Receipt::default(),
        context: RequestContext::of(Caller::anonymous(), "", None),
        weight: RequestValue::ONE,
    }
}

/// What is counted of the pipeline's version 3.
fn counted(frontend: &Inner) -> PipelineCounts {
    frontend.pipeline_counters.counted(Instant::now(), |loaded_as| loaded_as == "p@3").remove("p@3").unwrap()
}

fn named(sequence: u64) -> RequestId {
    RequestId { frontend: FrontendId::new(2), boot: BootId::new(3), sequence }
}

type Asking = tokio::task::JoinHandle<Result<InferAnswer, InferError>>;

fn asks(frontend: &Arc<Inner>, items: u32) -> Asking {
    let (frontend, request) = (Arc::clone(frontend), request(frontend, items));
    tokio::spawn(async move { frontend.infer(request).await })
}

async fn open(table: &RequestTable, stages: usize) {
    while table.stages() != stages {
        tokio::task::yield_now().await;
    }
}

fn answer(payload: &'static [u8]) -> Ending {
    Ending::Answer {
        payload: Bytes::from_static(payload),
        batch: 1,
        execution_ns: 1_000_000,
        at: Instant::now(),
        run: Default::default(),
        backend: None,
    }
}

/// Boxes 01, 23 and 45; of these the first and the last one are above five.
const FOUND: &[u8] = b"012345\x09\x01\x07";

#[tokio::test]
async fn rows_above_the_condition_are_asked_and_the_answer_says_which_they_were() {
    let (frontend, table) = served(false);
    let asking = asks(&frontend, 1);
    open(&table, 1).await;
    assert_eq!((table.len(), frontend.in_flight(), frontend.ledger.counts().accepted), (1, 1, 1));
    assert_eq!(table.payload(2).unwrap(), "ab");
    assert!(table.end(2, answer(FOUND)));
    open(&table, 2).await;
    let inputs: BTreeMap<_, _> = [3, 4].map(|sequence| (table.payload(sequence).unwrap(), sequence)).into();
    let inputs: Vec<_> = inputs.into_iter().collect();
    assert_eq!((&inputs[0].0[..], &inputs[1].0[..]), (&b"ab01"[..], &b"ab45"[..]), "by the model's signature");
    // The second one first.
    assert!(table.end(inputs[1].1, answer(b"5")) && table.end(inputs[0].1, answer(b"1")));
    let answered = asking.await.unwrap().unwrap();
    assert_eq!((&answered.payload[..], answered.timeliness), (&b"\x09\x01\x0715"[..], Timeliness::InTime));
    let PipelineAnswer { outputs, is_partial, stages } = answered.pipeline.unwrap();
    let rows: Vec<_> = outputs.iter().map(|output| (output.count, output.places.as_deref())).collect();
    assert_eq!((rows, is_partial), (vec![(1, None), (2, Some("0.0,0.2"))], false));
    assert!(stages.starts_with("detect=f2/3/2,recognise=f2/3/"), "{stages}");
    let counts = frontend.ledger.counts();
    assert_eq!((counts.accepted, counts.in_time, counts.lost(0), frontend.in_flight()), (1, 1, 0, 0));
    assert!(table.is_empty());

    let statistics = |name: &str| frontend.statistics.of(Some((name, None))).remove(0);
    assert_eq!((statistics("p").success.count, statistics("recognise").success.count), (1, 2));
    let counts = counted(&frontend);
    assert_eq!((counts.version, counts.items, counts.edges, counts.hop_count), (3, 1, vec![(1, 2)], 2));
    assert_eq!((counts.ended, counts.bad), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_stage_request_of_a_traced_request_has_its_spans() {
    let (frontend, table) = served(false);
    // Nobody takes them, so that they are counted.
    let traces = Arc::new(Traces::start("http://127.0.0.1:1", 1.0, "symphony-test", "t").unwrap());
    frontend.records.trace_by(Arc::clone(&traces));
    let asking = asks(&frontend, 1);
    open(&table, 1).await;
    table.end(2, answer(FOUND));
    open(&table, 2).await;
    assert!(table.end(3, answer(b"1")) && table.end(4, answer(b"5")));
    asking.await.unwrap().unwrap();
    let (frontend, lost) = (Arc::clone(&frontend), traces.lost());
    tokio::task::spawn_blocking(move || frontend.records.finish()).await.unwrap();
    // The request and that it was read; of three stage requests each and its five steps; one batch.
    assert_eq!(lost.get(), 2 + 3 * 6 + 1);
}

#[tokio::test]
async fn every_item_goes_by_itself_and_nothing_found_is_an_answer() {
    let (frontend, table) = served(false);
    let asking = asks(&frontend, 2);
    open(&table, 2).await;
    let both: BTreeMap<_, _> = [2, 3].map(|sequence| (table.payload(sequence).unwrap(), sequence)).into();
    assert!(table.end(both[&b"ab"[..]], answer(b"012345\x00\x00\x00")));
    assert!(table.end(both[&b"cd"[..]], answer(b"012345\x00\x00\x06")));
    while table.payload(4).is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(table.payload(4).unwrap(), "cd45");
    assert!(table.end(4, answer(b"7")));
    let answered = asking.await.unwrap().unwrap();
    assert_eq!(&answered.payload[..], b"\x00\x00\x00\x00\x00\x067");
    let outputs = answered.pipeline.unwrap().outputs;
    assert_eq!((outputs[0].count, outputs[1].count, outputs[1].places.as_deref()), (2, 1, Some("1.2")));
}

#[tokio::test]
async fn a_stage_is_asked_in_the_cluster_where_its_model_is_at_home() {
    // The second one has the model of the second stage, and knows of no pipeline.
    let mut other = pipeline_view(false);
    other.pipelines.clear();
    other.models.remove(&ModelId::new(4));
    let at = |cluster: &str| FederatedModelView { home: Some(cluster.into()), ..FederatedModelView::default() };
    // It came from the first one, which keeps its copy as long as it has the pipeline.
    let moved = FederatedModelView { leftovers: vec!["a".into()], ..at("b") };
    let models = [("detect".to_owned(), at("a")), ("recognise".to_owned(), moved)].into();
    let plan = FederationView { models, ..FederationView::default() };
    let frontend = frontend(vec![pipeline_view(false), other], plan);
    let [here, there] = [0, 1].map(|slot: usize| Arc::clone(&frontend.slots[slot].requests.table));
    let asking = asks(&frontend, 1);
    open(&here, 1).await;
    assert!(here.end(2, answer(FOUND)));
    open(&there, 2).await;
    assert_eq!((here.len(), here.stages(), there.len()), (1, 0, 0), "the request itself has its place in the first");
    for sequence in [1, 2] {
        let label = if there.payload(sequence).unwrap() == "ab01" { b"1" } else { b"5" };
        assert!(there.end(sequence, answer(label)));
    }
    let answered = asking.await.unwrap().unwrap();
    assert_eq!(&answered.payload[..], b"\x09\x01\x0715");
    assert!(here.is_empty() && there.is_empty());
}

#[tokio::test]
async fn a_lost_stage_request_ends_the_request_with_its_reason_and_withdraws_the_others() {
    let (frontend, table) = served(false);
    let asking = asks(&frontend, 1);
    open(&table, 1).await;
    table.end(2, answer(FOUND));
    open(&table, 2).await;
    table.end(3, Ending::NoResult(EndReason::Dropped(DropReason::QueueFull)));
    let error = asking.await.unwrap().unwrap_err();
    assert!(error.to_string().starts_with("stage `recognise` (request f2/3/3): the request was dropped"), "{error}");
    assert_eq!(error.error_status().reason, "queue_full");
    let counts = frontend.ledger.counts();
    assert_eq!((counts.dropped, counts.lost(0)), (1, 0));
    let report = counted(&frontend);
    assert_eq!((report.ended, report.bad), (1, 1));
    assert!(table.is_empty(), "its sibling is withdrawn");

    let explanation = frontend.pipeline_memory.explain(named(1)).unwrap();
    assert_eq!(
        (explanation.pipeline.as_str(), explanation.outcome.as_str(), explanation.reason.as_str()),
        ("p@3", "dropped", "queue_full")
    );
    let stages = explanation.stages.iter().map(|stage| {
        let request = stage.request.as_deref().unwrap();
        (stage.stage.as_str(), stage.model.as_str(), request, stage.outcome.as_str())
    });
    let mut stages: Vec<_> = stages.collect();
    stages.sort_unstable();
    assert_eq!(
        stages,
        [
            ("detect", "detect", "f2/3/2", "in_time"),
            ("recognise", "recognise", "f2/3/3", "dropped"),
            ("recognise", "recognise", "f2/3/4", "withdrawn"),
        ]
    );
    let ended_it = explanation.stages.iter().filter(|stage| stage.ended_request).map(|stage| stage.request.as_deref());
    assert_eq!(ended_it.collect::<Vec<_>>(), [Some("f2/3/3")]);
    let detect = explanation.stages.iter().find(|stage| stage.stage == "detect").unwrap();
    assert!(detect.asked_ms <= detect.ended_ms && detect.ended_ms <= explanation.ended_ms, "{explanation:?}");
    assert!(detect.deadline_ms < explanation.deadline_ms && detect.execution_ms == Some(1.0), "{explanation:?}");
    assert!(frontend.pipeline_memory.explain(named(2)).is_none(), "leaders know of stage requests");
}

#[tokio::test]
async fn a_partial_pipeline_answers_without_what_was_lost() {
    let (frontend, table) = served(true);
    let asking = asks(&frontend, 1);
    open(&table, 1).await;
    table.end(2, answer(FOUND));
    open(&table, 2).await;
    let of_45 = if table.payload(3).unwrap() == "ab45" { 3 } else { 4 };
    table.end(7 - of_45, Ending::NoResult(EndReason::Dropped(DropReason::Shed)));
    table.end(of_45, answer(b"5"));
    let answered = asking.await.unwrap().unwrap();
    let pipeline = answered.pipeline.unwrap();
    assert_eq!((pipeline.is_partial, pipeline.outputs[1].places.as_deref()), (true, Some("0.2")));
    assert_eq!(&answered.payload[..], b"\x09\x01\x075");
    let explanation = frontend.pipeline_memory.explain(named(1)).unwrap();
    assert!(explanation.stages.iter().any(|stage| stage.outcome == "dropped"), "{explanation:?}");
    assert!(explanation.stages.iter().all(|stage| !stage.ended_request), "{explanation:?}");
}

/// The same pipeline of pictures of four grey pixels: each box is a region of two.
fn picture_view() -> View {
    let mut view = pipeline_view(false);
    let declared = &mut view.pipelines.get_mut("p@3").unwrap().declaration;
    declared.inputs[0].data = InputData::Picture;
    declared.outputs.remove(0);
    let stages = declared.stages.iter_mut();
    stages.for_each(|stage| stage.inputs = [("x".to_owned(), "x".to_owned())].into());
    declared.stages[0].outputs.clear();
    let edge = &mut declared.edges[0];
    (edge.condition, edge.crop) = (None, Some(Crop { boxes: "boxes".into(), unit: BoxUnit::Pixel }));
    for (id, width) in [(4, 4), (5, 2)] {
        let spec = &mut view.models.get_mut(&ModelId::new(id)).unwrap().spec;
        let like = of_pictures(width, 0, 0);
        (spec.signature.inputs, spec.transforms) = (like.signature.inputs, like.transforms);
    }
    view.models.get_mut(&ModelId::new(4)).unwrap().spec.signature.outputs = vec![tensor("boxes", &[3, 4])];
    view
}

async fn input(table: &RequestTable, sequence: u64) -> Bytes {
    loop {
        match table.payload(sequence) {
            Some(payload) => return payload,
            None => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn boxes_become_regions_of_the_clients_picture() {
    let frontend = frontend(vec![picture_view()], FederationView::default());
    let table = Arc::clone(&frontend.slots[0].requests.table);
    let asks = |bytes: Bytes| {
        let encoded = Some(pictures(vec![bytes], 0));
        let infer_request = InferRequest { payload: Bytes::new(), pictures: encoded, ..request(&frontend, 1) };
        let frontend = Arc::clone(&frontend);
        tokio::spawn(async move { frontend.infer(infer_request).await })
    };
    let asking = asks(picture(&[10, 20, 30, 40]));
    assert_eq!(&input(&table, 2).await[..], [10, 20, 30, 40]);
    // At most two of them lead on.
    assert!(table.end(2, answer(&[0, 0, 2, 1, 2, 0, 4, 1, 9, 9, 9, 9])));
    let mut regions = [input(&table, 3).await, input(&table, 4).await];
    regions.sort();
    assert_eq!((&regions[0][..], &regions[1][..]), (&[10, 20][..], &[30, 40][..]));
    assert!(table.end(3, answer(b"7")) && table.end(4, answer(b"7")));
    let answered = asking.await.unwrap().unwrap();
    assert_eq!((&answered.payload[..], answered.pipeline.unwrap().outputs[0].count), (&b"77"[..], 2));

    let error = asks(cut_off(&picture(&[10, 20, 30, 40]))).await.unwrap().unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("stage `detect` (request f2/3/") && message.contains("item 0: input `x`"), "{message}");
    assert_eq!(error.error_status().reason, "bad_picture");
    assert_eq!((frontend.ledger.counts().cancelled, table.is_empty()), (1, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_a_stage_request_waits_for_its_region_is_in_its_span() {
    let frontend = frontend(vec![picture_view()], FederationView::default());
    let table = Arc::clone(&frontend.slots[0].requests.table);
    // Nobody takes them, so that they are counted.
    let traces = Arc::new(Traces::start("http://127.0.0.1:1", 1.0, "symphony-test", "t").unwrap());
    frontend.records.trace_by(Arc::clone(&traces));
    let encoded = Some(pictures(vec![picture(&[10, 20, 30, 40])], 0));
    let infer_request = InferRequest { payload: Bytes::new(), pictures: encoded, ..request(&frontend, 1) };
    let asks = Arc::clone(&frontend);
    let asking = tokio::spawn(async move { asks.infer(infer_request).await });
    assert_eq!(input(&table, 2).await.len(), 4);
    assert!(table.end(2, answer(&[0, 0, 2, 1, 2, 0, 4, 1, 9, 9, 9, 9])));
    assert_eq!((input(&table, 3).await.len(), input(&table, 4).await.len()), (2, 2));
    assert!(table.end(3, answer(b"7")) && table.end(4, answer(b"7")));
    asking.await.unwrap().unwrap();
    let lost = traces.lost();
    tokio::task::spawn_blocking(move || frontend.records.finish()).await.unwrap();
    // As of tensors, and that two of them were cut out.
    assert_eq!(lost.get(), 2 + 3 * 6 + 2 + 1);
}

#[tokio::test]
async fn what_goes_with_a_region_counts_among_what_is_held() {
    // Two of them are more than the frontend holds.
    const BYTES: u32 = 600 << 10;
    let mut view = picture_view();
    let declared = &mut view.pipelines.get_mut("p@3").unwrap().declaration;
    let data = InputData::Tensor { data_type: DataType::Uint8, item_shape: vec![BYTES] };
    declared.inputs.push(PipelineInput { name: "more".into(), data });
    declared.stages[1].inputs.insert("more".into(), "more".into());
    let recognise = view.models.get_mut(&ModelId::new(5)).unwrap();
    recognise.spec.signature.inputs.push(tensor("more", &[BYTES]));
    let frontend = frontend(vec![view], FederationView::default());
    let table = Arc::clone(&frontend.slots[0].requests.table);
    let encoded = Some(pictures(vec![picture(&[10, 20, 30, 40])], 0));
    let payload = Bytes::from(vec![0_u8; BYTES as usize]);
    let infer_request = InferRequest { payload, pictures: encoded, ..request(&frontend, 1) };
    let asking = tokio::spawn(async move { frontend.infer(infer_request).await });
    assert_eq!(input(&table, 2).await.len(), 4);
    assert!(table.end(2, answer(&[0, 0, 2, 1, 2, 0, 4, 1, 9, 9, 9, 9])));
    let error = asking.await.unwrap().unwrap_err();
    assert_eq!((error.error_status().reason, table.is_empty()), ("decoded_pictures_full", true), "{error}");
}

#[tokio::test]
async fn a_stage_request_whose_region_is_not_there_by_its_deadline_is_dropped() {
    let (frontend, table) = served(false);
    let regions = futures::future::pending::<Result<Arc<Vec<Bytes>>, InferError>>().boxed().shared();
    let stage_request = StageRequest {
        pipeline: frontend.pipeline("p@3").unwrap().1,
        stage: 1,
        model: frontend.model("recognise", None).unwrap(),
        input: StageInput::Region { regions, nth: 0, payload: Bytes::new(), at: 0 },
        deadline: Instant::now(),
        weight: RequestValue::ONE,
        context: RequestContext::of(Caller::anonymous(), "", None),
        receipt: Receipt::default(),
        span: None,
        fed_at: None,
        open: Arc::default(),
    };
    let receipt = stage_request.receipt.clone();
    let ended = tokio::time::timeout(Duration::from_secs(30), frontend.ask_stage(stage_request)).await;
    let error = ended.unwrap().unwrap_err();
    assert_eq!((receipt.id(), error), (None, InferError::Dropped(DropReason::QueueExpired)));
    assert!(table.is_empty());
}

#[test]
fn branches_run_side_by_side() {
    let executions = [1, 5, 3, 2].map(Nanos::from_millis);
    // The second and the third stage meet in the last one; the edges are not in the order of the stages.
    let edges = [(2, 3), (1, 3), (0, 1), (0, 2)];
    assert_eq!(longest_way(&executions, edges.into_iter()), Nanos::from_millis(8));
    assert_eq!(longest_way(&executions[..1], std::iter::empty()), Nanos::from_millis(1));
}

#[tokio::test]
async fn a_profile_that_says_more_than_was_measured_takes_no_time_from_stages() {
    let mut view = pipeline_view(false);
    // One millisecond is enough as measured; the profiles say two.
    view.pipelines.get_mut("p@3").unwrap().split.as_mut().unwrap().budgets_ns = vec![1_000_000; 2];
    let frontend = frontend(vec![view], FederationView::default());
    let plan = frontend.pipeline("p@3").unwrap().1.plan.clone().unwrap();
    assert_eq!(plan.least(), Nanos::from_micros(500));
}

#[tokio::test]
async fn a_client_that_goes_reaches_all_stages() {
    let (frontend, table) = served(false);
    let asking = asks(&frontend, 2);
    open(&table, 2).await;
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    assert!(table.is_empty());
    let counts = frontend.ledger.counts();
    assert_eq!((counts.accepted, counts.cancelled), (1, 1));
    let report = counted(&frontend);
    assert_eq!((report.ended, report.bad), (0, 0), "it says nothing of the version");
    let explanation = frontend.pipeline_memory.explain(named(1)).unwrap();
    let stages: Vec<_> = explanation.stages.iter().map(|stage| (stage.item, stage.outcome.as_str())).collect();
    assert_eq!(explanation.outcome, "cancelled");
    assert!(stages.len() == 2 && stages.iter().all(|(_, outcome)| *outcome == "withdrawn"), "{stages:?}");
}

#[tokio::test]
async fn what_cannot_be_met_is_refused_on_arrival_and_names_the_stage() {
    let (frontend, table) = served(false);
    let mut hasty = request(&frontend, 1);
    hasty.deadline.timeout = Some(Nanos::from_millis(3));
    let error = frontend.infer(hasty).await.unwrap_err();
    assert!(matches!(error, InferError::TooLittleForStages { least, .. } if least == Nanos::from_millis(4)), "{error}");

    let mut without = pipeline_view(false);
    without.backends.values_mut().for_each(|backend| backend.up = false);
    let cluster = frontend.slots[0].cluster.get().unwrap();
    let infer_request = request(&frontend, 1);
    cluster.show(&without);
    let error = frontend.infer(infer_request).await.unwrap_err();
    assert!(error.to_string().starts_with("stage `detect`: the model is not ready"), "{error}");
    assert_eq!(error.error_status().reason, "no_gpu");
    // A canary would pass while all of its requests are refused.
    assert_eq!((counted(&frontend).ended, counted(&frontend).bad), (2, 2));
    let mut bad_input = request(&frontend, 1);
    bad_input.deadline.exceed_slo = true;
    bad_input.deadline.timeout = Some(Nanos::from_millis(100 * 60 * 60 * 1000));
    cluster.show(&pipeline_view(false));
    assert!(matches!(frontend.infer(bad_input).await, Err(InferError::InvalidRequest(_))));
    assert_eq!(counted(&frontend).ended, 2, "that tells nothing of the version");
    let mut unsplit = pipeline_view(false);
    unsplit.pipelines.values_mut().for_each(|pipeline| pipeline.split = None);
    cluster.show(&unsplit);
    let state = frontend.model("p", Some(3)).unwrap().state.clone();
    assert!(matches!(&state, ModelState::Unavailable(why) if why.contains("split")), "{state:?}");
    assert_eq!((frontend.ledger.counts().accepted, table.len()), (0, 0));
}

/// The cluster with another version beside it, which has budgets or has none yet.
fn with_version_4(is_split: bool) -> View {
    let mut view = pipeline_view(false);
    let mut newer = view.pipelines["p@3"].clone();
    newer.declaration.version = 4;
    newer.split = newer.split.filter(|_| is_split);
    view.pipelines.insert("p@4".into(), newer);
    view
}

#[tokio::test]
async fn a_request_gets_the_version_that_it_names_or_that_the_traffic_says_or_the_latest_that_is_ready() {
    let chosen = |frontend: &Inner| frontend.model_for_request("p").unwrap().version;
    let named = |frontend: &Inner, version| frontend.model("p", Some(version)).map(|info| info.version);
    let early = frontend(vec![with_version_4(false)], FederationView::default());
    assert_eq!(chosen(&early), 3, "the other one cannot be asked yet");
    assert_eq!([3, 4, 5].map(|version| named(&early, version)), [Some(3), Some(4), None]);
    assert_eq!(early.loaded_as("p").into_iter().collect::<Vec<_>>(), ["p@3", "p@4"]);
    let ready = frontend(vec![with_version_4(true)], FederationView::default());
    assert_eq!(chosen(&ready), 4);

    let mut split = with_version_4(true);
    split.traffic.insert("p".into(), Traffic { weights: [(3, 3), (4, 1)].into(), shadow: None });
    let split = frontend(vec![split], FederationView::default());
    let newer = (0..100).filter(|_| chosen(&split) == 4).count();
    assert!((24..=26).contains(&newer), "{newer}");
    assert_eq!(named(&split, 3), Some(3));
    // Who serves the versions splits the requests.
    let mut elsewhere = pipeline_view(false);
    elsewhere.pipelines.clear();
    elsewhere.traffic.insert("p".into(), Traffic { weights: [(4, 1)].into(), shadow: None });
    let of_two = frontend(vec![elsewhere.clone(), with_version_4(true)], FederationView::default());
    assert_eq!(of_two.traffic_of("p"), None);
    let mut with_both = with_version_4(true);
    with_both.traffic.clone_from(&elsewhere.traffic);
    let of_two = frontend(vec![pipeline_view(false), with_both], FederationView::default());
    assert_eq!(of_two.traffic_of("p"), elsewhere.traffic.get("p").cloned());
}

#[tokio::test]
async fn a_version_that_goes_takes_the_series_that_no_other_counts_in() {
    let frontend = frontend(vec![with_version_4(true)], FederationView::default());
    let [older, newer] = ["p@3", "p@4"].map(|loaded_as| frontend.pipeline(loaded_as).unwrap().1);
    let registry = Registry::new("frontend");
    let counters = PipelineCounters::new(&registry);
    let ends = |pipeline: &LivePipeline, stage| {
        counters.stage_ended(pipeline, stage, ("in_time", ""), Some(Duration::from_secs(1)))
    };
    ends(&older, 0);
    ends(&older, 1);
    ends(&newer, 0);
    counters.led_on(&older, 0, 2);
    counters.hop(&older, Instant::now(), Instant::now());
    counters.forget_unloaded(|loaded_as| loaded_as == "p@4");
    let shown = registry.encode();
    assert!(shown.contains("stage=\"detect\"") && shown.contains("hop_seconds_count"), "{shown}");
    assert!(!shown.contains("recognise"), "versions with other stages would add series for ever: {shown}");
    counters.forget_unloaded(|_| false);
    let shown = registry.encode();
    assert!(!shown.contains("pipeline=\"p\""), "{shown}");
}

#[tokio::test]
async fn a_version_that_is_loaded_anew_with_other_edges_is_counted_anew() {
    let frontend = frontend(vec![pipeline_view(false)], FederationView::default());
    let before = frontend.pipeline("p@3").unwrap().1;
    frontend.pipeline_counters.led_on(&before, 0, 2);
    frontend.pipeline_counters.request_refused(&before);
    let mut other = pipeline_view(false);
    let loaded = other.pipelines.get_mut("p@3").unwrap();
    loaded.declaration.stages.truncate(1);
    loaded.declaration.outputs.truncate(1);
    loaded.declaration.edges.clear();
    loaded.split.as_mut().unwrap().budgets_ns.truncate(1);
    loaded.split.as_mut().unwrap().gammas.clear();
    frontend.slots[0].cluster.get().unwrap().show(&other);
    let (begun, after) = (counted(&frontend).begun_unix_ns, frontend.pipeline("p@3").unwrap().1);
    frontend.pipeline_counters.count_items(&after, 5);
    let counts = counted(&frontend);
    assert_eq!((counts.items, counts.edges.len(), counts.ended), (5, 0, 0));
    assert!(counts.begun_unix_ns != begun);
}

#[tokio::test]
async fn a_request_ends_by_the_version_that_it_began_with() {
    let frontend = frontend(vec![with_version_4(false)], FederationView::default());
    let table = Arc::clone(&frontend.slots[0].requests.table);
    let asking = asks(&frontend, 1);
    open(&table, 1).await;
    let mut only_newer = with_version_4(true);
    only_newer.pipelines.remove("p@3");
    frontend.slots[0].cluster.get().unwrap().show(&only_newer);
    frontend.forget_unloaded(Instant::now());
    assert!(table.end(2, answer(FOUND)));
    open(&table, 2).await;
    assert!(table.end(3, answer(b"1")) && table.end(4, answer(b"5")));
    assert!(asking.await.unwrap().is_ok());
    assert_eq!(frontend.pipeline_memory.explain(named(1)).unwrap().pipeline, "p@3");
    assert_eq!(frontend.model("p", None).unwrap().version, 4);
}

/// P1 to P3, planted: what a run did is changed on its way to the check, as a host with a fault would.
#[tokio::test]
async fn a_host_that_breaks_an_invariant_is_found_out() {
    let (frontend, _) = served(false);
    let plan = frontend.pipeline("p@3").unwrap().1.plan.clone().unwrap();
    let at = |ms| Time::ZERO + Nanos::from_millis(ms);
    let counted = || [Invariant::P1, Invariant::P2, Invariant::P3].map(symphony_telemetry::violations);
    let before = counted();
    let (mut check, mut actions) = (RunCheck::new(Arc::clone(&plan), at(60_000)), Vec::new());
    let mut run = PipelineRun::begin(Arc::clone(&plan), at(0), at(60_000), &mut actions);
    report_violation(check.began(&actions));
    report_open(&AtomicUsize::new(0));
    assert_eq!(counted(), before);
    // A stage request whose attempt goes on after the end.
    report_open(&AtomicUsize::new(1));
    // A stage that may take all the time there is.
    let ask = Ask { stage: 0, first: AskId::new(0), rows: 1, deadline: at(60_000) };
    report_violation(RunCheck::new(plan, at(60_000)).began(&[Action::Ask(ask)]));
    // A result that is used twice.
    let done = Event::StageDone { ask: AskId::new(0), rows: &[0] };
    actions.clear();
    assert!(run.step(at(1), done, &mut actions));
    report_violation(check.stepped(&done, true, &actions));
    report_violation(check.stepped(&done, true, &[]));
    assert_eq!(counted(), before.map(|count| count + 1));
}
