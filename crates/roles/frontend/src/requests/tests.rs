//! Which of several clusters a request goes to.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use symphony_protocol::federation::{FederatedClusterView, FederatedModelView};
use symphony_protocol::view::{
    BackendView, FrontendView, HolderView, ModelSource, ModelSpec, ModelView, NoGpu, SubclusterView, Traffic,
};
use symphony_types::{
    BackendId, BootId, DropReason, Duty, FailReason, Filter, FrontendId, ModelId, Nanos, RequestValue, SubclusterId,
};

use crate::access::tenants::Tenants;
use crate::clusters::cluster::{Cluster, FrontendIdentity, Requests};
use crate::clusters::traffic::TrafficSplitter;
use crate::counts::pipeline_counters::PipelineCounters;
use crate::counts::rates::Rates;
use crate::counts::statistics::Statistics;
use crate::inner::{ClusterSlot, Inner};
use crate::oip::InFlightLimit;
use crate::oip::limits::image_limits;
use crate::oip::{
    Caller, InferAnswer, InferError, InferRequest, ModelState, Pictures, Receipt, RepositoryError, RequestContext,
    RequestedDeadline, Shown,
};
use crate::pictures::decoders::Decoders;
use crate::pictures::test_pictures::{SLO, cut_off, model, picture, pictures};
use crate::records::Records;
use crate::records::pipeline_memory::PipelineMemory;
use crate::repository::repository_service::CallEnded;
use crate::repository::repository_service::RepositoryService;
use crate::requests::admission::Admission;
use crate::requests::request_guard::RequestGuard;
use crate::requests::request_table::Ending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use symphony_config::{FrontendConfig, ImagesConfig, KeyHash};
use symphony_protocol::federation::FederationView;
use symphony_protocol::view::View;
use symphony_telemetry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const FRONTEND: FrontendId = FrontendId::new(2);
const BOOT: BootId = BootId::new(3);
const SUBCLUSTER: SubclusterId = SubclusterId::new(1);
const BACKEND: BackendId = BackendId::new(1);

/// A cluster that has the model `m` ready, or no model.
pub(crate) fn view(has_model: bool, duty: Duty) -> View {
    let spec = ModelSpec {
        name: "m".into(),
        subcluster: "s".into(),
        slo: SLO,
        source: ModelSource::Emulated,
        signature: model(1, 0, 0).signature,
        transforms: model(1, 0, 0).transforms,
        profiles: BTreeMap::new(),
        policy: Default::default(),
        value: RequestValue::ONE,
    };
    let holders = [(BACKEND, HolderView { boot: BOOT, state: Ok(()) })].into();
    let model = ModelView { spec, subcluster: SUBCLUSTER, moving: None, holders, trunk: None };
    let backend = BackendView { boot: BOOT, up: true, subcluster: SUBCLUSTER, ..BackendView::default() };
    View {
        frontends: [(FRONTEND, FrontendView { boot: BOOT, duty, ..FrontendView::default() })].into(),
        subclusters: [(SUBCLUSTER, SubclusterView { name: "s".into(), ..SubclusterView::default() })].into(),
        backends: [(BACKEND, backend)].into(),
        models: has_model.then_some((ModelId::new(4), model)).into_iter().collect(),
        ..View::default()
    }
}

/// A frontend of these clusters, which are called a, b, c.
pub(super) fn frontend(views: Vec<View>, federation: FederationView) -> Arc<Inner> {
    federated(views, watch::channel(Arc::new(federation)).1)
}

/// A frontend of these clusters, with a view of the federation that may change.
fn federated(views: Vec<View>, federation_view: watch::Receiver<Arc<FederationView>>) -> Arc<Inner> {
    let identity = FrontendIdentity {
        name: "f".into(),
        boot: BOOT,
        console_addr: String::new(),
        ledger: Arc::default(),
        ended: CancellationToken::new(),
        news: watch::Sender::default(),
        forgotten: watch::Sender::default(),
    };
    let slot = |(name, view): (&str, View)| {
        let cluster = Cluster::showing(FRONTEND, &identity, view);
        let requests = Requests { table: Arc::clone(&cluster.table), inputs: None };
        ClusterSlot { name: name.to_owned(), requests, cluster: OnceLock::from(cluster) }
    };
    let images = ImagesConfig { threads: 1, waiting_max: 4, pixels_max: 1 << 20, decoded_mb_max: 1 };
    Arc::new(Inner {
        grace: Duration::ZERO,
        in_flight_limit: InFlightLimit::new(8),
        ledger: Arc::clone(&identity.ledger),
        statistics: Statistics::new(&Registry::new("frontend")),
        records: Records::default(),
        pipeline_memory: PipelineMemory::default(),
        decoders: Decoders::new(&images, image_limits(&images), &Registry::new("frontend")),
        slots: ["a", "b", "c"].into_iter().zip(views).map(slot).collect(),
        federation_view: Some(federation_view),
        rates: Rates::begin(Instant::now()),
        pipeline_counters: PipelineCounters::new(&Registry::new("frontend")),
        repository: RepositoryService::new(None, &Registry::new("frontend")),
        traffic: TrafficSplitter::default(),
        boot: BOOT,
        tenants: None,
        shared_regions: None,
        draining: AtomicBool::new(false),
        forgotten: identity.forgotten.subscribe(),
        ended: identity.ended,
    })
}

#[tokio::test]
async fn requests_are_split_by_the_cluster_that_serves_the_versions() {
    // A model that was loaded without a version is version 1.
    let split = |weight: u32| Traffic { weights: [(1, weight)].into(), shadow: None };
    let splits = |traffic: Traffic| View { traffic: [("m".to_owned(), traffic)].into(), ..view(true, Duty::Serving) };
    let at = |home: &str| FederationView {
        models: [("m".to_owned(), FederatedModelView { home: Some(home.into()), ..Default::default() })].into(),
        ..FederationView::default()
    };
    for (home, weight) in [("a", 10), ("b", 20)] {
        let frontend = frontend(vec![splits(split(10)), splits(split(20))], at(home));
        assert_eq!(frontend.traffic_of("m"), Some(split(weight)), "{home}");
    }
    let left = frontend(vec![splits(split(10)), view(true, Duty::Serving)], at("b"));
    assert_eq!(left.traffic_of("m"), None, "it has moved away from its split");
    let elsewhere = Traffic { weights: [(2, 1)].into(), shadow: None };
    let unserved = frontend(vec![splits(elsewhere.clone()), splits(split(20))], at("b"));
    assert_eq!(unserved.traffic_of("m"), Some(split(20)), "nobody serves version 2");
    let alone = frontend(vec![splits(elsewhere.clone())], FederationView::default());
    assert_eq!(alone.traffic_of("m"), Some(elsewhere), "a cluster by itself has the only split");
}

async fn infer(frontend: &Arc<Inner>) -> InferError {
    infer_as(frontend, Receipt::default()).await
}

async fn infer_as(frontend: &Arc<Inner>, receipt: Receipt) -> InferError {
    frontend.infer(request(receipt, None)).await.unwrap_err()
}

/// A request for `m`, whose input is pictures of one grey pixel each.
fn request(receipt: Receipt, pictures: Option<Pictures>) -> InferRequest {
    let deadline = RequestedDeadline::unstated(Instant::now());
    let (context, weight) = (RequestContext::of(Caller::anonymous(), "", None), RequestValue::ONE);
    let (model, payload) = (Arc::new(model(1, 0, 0)), Bytes::new());
    InferRequest { model, items: 1, payload, pictures, deadline, receipt, context, weight }
}

/// A request with a picture that may take a minute.
fn patient(receipt: Receipt, pictures: Pictures) -> InferRequest {
    let mut request = request(receipt, Some(pictures));
    (request.deadline.timeout, request.deadline.exceed_slo) = (Some(Nanos::from_millis(60_000)), true);
    request
}

/// What clients ask for, and what was refused, by model and reason.
fn counted(frontend: &Inner) -> (u64, BTreeMap<&'static str, u64>) {
    (frontend.rates.counted("m"), frontend.statistics.refusals("m"))
}

#[tokio::test]
async fn a_refusal_is_counted_and_no_demand_if_nobody_could_serve_it() {
    let frontend = frontend(vec![view(true, Duty::Serving)], FederationView::default());
    let mut hopeless = request(Receipt::default(), None);
    hopeless.deadline.timeout = Some(Nanos::from_millis(7_200_000));
    hopeless.deadline.exceed_slo = true;
    assert!(matches!(frontend.infer(hopeless).await, Err(InferError::InvalidRequest(_))));
    assert_eq!(counted(&frontend), (0, [("invalid_request", 1)].into()));

    // More GPUs could decode no more pictures, but they could serve those that get through.
    let crowd = pictures(vec![picture(&[42]); 4], 0);
    let _busy = Arc::clone(&frontend.decoders.threads).acquire_owned().await.unwrap();
    let _all = asks(&frontend, patient(Receipt::default(), crowd));
    while frontend.in_flight() < 1 {
        tokio::task::yield_now().await;
    }
    let refused = frontend.infer(patient(Receipt::default(), of_42())).await;
    assert!(matches!(refused, Err(InferError::DecodersBusy { .. })));
    let refusals = [("invalid_request", 1), (InferError::DecodersBusy { waiting_max: 4 }.error_status().reason, 1)];
    assert_eq!(counted(&frontend), (2, refusals.into()));
    assert_eq!(frontend.ledger.counts().accepted, 1);
}

#[tokio::test]
async fn what_a_frontend_that_ends_refuses_is_counted() {
    let frontend = frontend(vec![view(true, Duty::Serving)], FederationView::default());
    frontend.draining.store(true, Ordering::Release);
    assert_eq!(infer(&frontend).await, InferError::Failed(FailReason::Draining));
    // Its clients go elsewhere, and are demand there.
    assert_eq!(counted(&frontend), (0, [("draining", 1)].into()));
}

#[tokio::test]
async fn who_goes_when_the_deadline_has_passed_had_no_answer_and_who_goes_before_wanted_none() {
    let frontend = frontend(vec![view(true, Duty::Serving)], FederationView::default());
    let Admission { request: mut accepted, .. } = frontend.admit(request(Receipt::default(), None)).unwrap();
    accepted.deadline = Instant::now() + Duration::from_secs(3600);
    drop(RequestGuard::accept(&frontend, &accepted));
    let counts = frontend.ledger.counts();
    assert_eq!((counts.cancelled, counts.failed), (1, 0));
    // gRPC drops a call at its client's deadline.
    accepted.deadline = Instant::now();
    drop(RequestGuard::accept(&frontend, &accepted));
    let counts = frontend.ledger.counts();
    assert_eq!((counts.cancelled, counts.failed, counts.lost(0)), (1, 1, 0));
}

#[tokio::test]
async fn a_quota_is_not_charged_for_what_is_refused_for_another_reason() {
    let (dir, registry) = (tempfile::tempdir().unwrap(), Registry::new("frontend"));
    let (path, key) = (dir.path().join("tenants.toml"), KeyHash(Sha256::digest("key").into()));
    std::fs::write(&path, format!("[[tenant]]\nname = \"a\"\nkeys = [\"{key}\"]\nitems_per_s = 5\n")).unwrap();
    let config = FrontendConfig { tenants: Some(path), ..FrontendConfig::default() };
    let tenants = Tenants::open(&config, &registry).unwrap().unwrap();
    let headers: HeaderMap =
        [(HeaderName::from_static("x-api-key"), HeaderValue::from_static("key"))].into_iter().collect();
    let caller = tenants.caller(&Shown { headers: &headers, certificate: &[] }).unwrap();
    let mut frontend = frontend(vec![view(true, Duty::Serving)], FederationView::default());
    Arc::get_mut(&mut frontend).unwrap().tenants = Some(tenants);

    let crowd = pictures(vec![picture(&[42]); 4], 0);
    let _busy = Arc::clone(&frontend.decoders.threads).acquire_owned().await.unwrap();
    let _all = asks(&frontend, patient(Receipt::default(), crowd));
    while frontend.in_flight() < 1 {
        tokio::task::yield_now().await;
    }
    let mut refused = patient(Receipt::default(), of_42());
    refused.context.caller = caller;
    assert!(matches!(frontend.infer(refused).await, Err(InferError::DecodersBusy { .. })));
    let text = registry.encode();
    assert!(text.contains("symphony_frontend_tenant_items_total{tenant=\"a\"} 0\n"), "{text}");
}

/// One picture, of value 42.
fn of_42() -> Pictures {
    pictures(vec![picture(&[42])], 0)
}

/// The request's number in the table, once it has one.
async fn sequence(receipt: &Receipt) -> u64 {
    loop {
        match receipt.id() {
            Some(id) => return id.sequence,
            None => tokio::task::yield_now().await,
        }
    }
}

fn asks(frontend: &Arc<Inner>, request: InferRequest) -> tokio::task::JoinHandle<Result<InferAnswer, InferError>> {
    let frontend = Arc::clone(frontend);
    tokio::spawn(async move { frontend.infer(request).await })
}

fn answer() -> Ending {
    Ending::Answer {
        payload: Bytes::new(),
        batch: 1,
        execution_ns: 1,
        at: Instant::now(),
        run: Default::default(),
        backend: None,
    }
}

#[tokio::test]
async fn a_cluster_that_has_cordoned_the_frontend_gets_nothing_new_although_another_takes_it() {
    let views = |duty| vec![view(true, duty), view(false, Duty::Serving)];
    let outcome = |duty| async move {
        let frontend = frontend(views(duty), FederationView::default());
        (infer(&frontend).await, frontend.ledger.counts().accepted)
    };
    for duty in [Duty::Cordoned, Duty::Draining] {
        assert_eq!(outcome(duty).await, (InferError::Failed(FailReason::Draining), 0), "{duty:?}");
    }
    let nobody = (InferError::Failed(FailReason::NoAnswer), 1);
    assert_eq!(outcome(Duty::Serving).await, nobody, "it waits for a leader, and there is none");
}

#[tokio::test]
async fn what_one_cluster_does_not_serve_does_not_go_to_one_that_has_cordoned_the_frontend() {
    let frontend = frontend(vec![view(true, Duty::Serving), view(true, Duty::Draining)], FederationView::default());
    let receipt = Receipt::default();
    let not_served = async {
        while receipt.id().is_none() {
            tokio::task::yield_now().await;
        }
        frontend.slots[0].requests.table.end(receipt.id().unwrap().sequence, Ending::NotHere);
    };
    let (error, ()) = tokio::join!(infer_as(&frontend, receipt.clone()), not_served);
    assert_eq!(error, InferError::Failed(FailReason::Draining));
    assert_eq!(frontend.in_flight(), 0);
}

#[tokio::test]
async fn a_lost_home_is_not_answered_for_by_another_model_of_the_name() {
    let lost = FederatedClusterView { reachable: false, ..FederatedClusterView::default() };
    let model = FederatedModelView { home: Some("b".into()), ..FederatedModelView::default() };
    let federation = FederationView {
        clusters: [("b".to_owned(), lost)].into(),
        models: [("m".to_owned(), model)].into(),
        ..FederationView::default()
    };
    let views = vec![view(true, Duty::Serving), view(false, Duty::Serving)];
    let frontend = frontend(views, federation);
    assert!(matches!(infer(&frontend).await, InferError::UnknownModel(_)));
    assert_eq!(frontend.ledger.counts().accepted, 0);
}

#[tokio::test]
async fn a_request_has_its_name_and_its_place_while_its_picture_waits_and_is_announced_when_that_has_a_thread() {
    let frontend = frontend(vec![view(true, Duty::Serving)], FederationView::default());
    let busy = Arc::clone(&frontend.decoders.threads).acquire_owned().await.unwrap();
    let receipt = Receipt::default();
    let asking = asks(&frontend, patient(receipt.clone(), of_42()));
    let sequence = sequence(&receipt).await;
    assert_eq!((frontend.ledger.counts().accepted, frontend.in_flight()), (1, 1), "a drain waits for it");
    let table = &frontend.slots[0].requests.table;
    assert!(!table.waits_for(SUBCLUSTER), "nobody is told of it");
    drop(busy);
    while !table.waits_for(SUBCLUSTER) {
        tokio::task::yield_now().await;
    }
    let input = match table.payload(sequence) {
        Some(input) => input,
        None => table.pending_input(sequence).unwrap().await.unwrap(),
    };
    assert_eq!(input, &[42][..]);
    assert!(table.end(sequence, answer()));
    asking.await.unwrap().unwrap();
    assert_eq!(frontend.ledger.counts().lost(0), 0);
}

#[tokio::test]
async fn a_request_whose_picture_takes_long_is_announced_with_its_input() {
    let frontend = frontend(vec![view(true, Duty::Serving)], FederationView::default());
    let (receipt, slow) = (Receipt::default(), Pictures { quick: false, ..of_42() });
    let asking = asks(&frontend, patient(receipt.clone(), slow));
    let sequence = sequence(&receipt).await;
    let table = &frontend.slots[0].requests.table;
    while !table.waits_for(SUBCLUSTER) {
        tokio::task::yield_now().await;
    }
    assert_eq!(table.payload(sequence).unwrap(), &[42][..], "no GPU waits for it");
    assert!(table.end(sequence, answer()));
    asking.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_picture_that_cannot_be_decoded_withdraws_its_request_and_one_that_finds_no_thread_expires() {
    let frontend = frontend(vec![view(true, Duty::Serving)], FederationView::default());
    let (receipt, broken) = (Receipt::default(), cut_off(&picture(&[42])));
    let error = frontend.infer(patient(receipt.clone(), pictures(vec![broken], 0))).await.unwrap_err();
    assert!(matches!(error, InferError::BadPicture(_)), "{error}");
    assert!(receipt.id().is_some(), "it was accepted, and its client hears so");
    assert_eq!((frontend.ledger.counts().cancelled, frontend.in_flight()), (1, 0));

    let _busy = Arc::clone(&frontend.decoders.threads).acquire_owned().await.unwrap();
    let receipt = Receipt::default();
    let error = frontend.infer(request(receipt.clone(), Some(of_42()))).await.unwrap_err();
    assert_eq!(error, InferError::Dropped(DropReason::QueueExpired));
    assert!(receipt.id().is_some(), "it was accepted, and its client hears so");
    let counts = frontend.ledger.counts();
    assert_eq!((counts.dropped, counts.lost(0), frontend.in_flight()), (1, 0, 0));
}

#[tokio::test]
async fn who_waited_for_a_thread_goes_where_its_model_is_by_then() {
    let home = |name: &str| {
        let model = FederatedModelView { home: Some(name.into()), ..FederatedModelView::default() };
        let clusters = ["a", "b"].map(|name| {
            let view = FederatedClusterView { reachable: true, ..FederatedClusterView::default() };
            (name.to_owned(), view)
        });
        Arc::new(FederationView {
            clusters: clusters.into(),
            models: [("m".to_owned(), model)].into(),
            ..FederationView::default()
        })
    };
    let (changing, federation_view) = watch::channel(home("a"));
    let frontend = federated(vec![view(true, Duty::Serving), view(true, Duty::Serving)], federation_view);
    let [here, there] = [0, 1].map(|at: usize| Arc::clone(&frontend.slots[at].requests.table));
    let busy = Arc::clone(&frontend.decoders.threads).acquire_owned().await.unwrap();
    let (moves, stays) = (Receipt::default(), Receipt::default());
    let asking = asks(&frontend, patient(moves.clone(), of_42()));
    sequence(&moves).await;
    assert_eq!((here.len(), there.len()), (1, 0));
    // Its model's home is another cluster by the time that a thread is free.
    changing.send_replace(home("b"));
    drop(busy);
    while !there.waits_for(SUBCLUSTER) {
        tokio::task::yield_now().await;
    }
    assert_eq!((here.len(), there.len()), (0, 1));
    assert!(there.end(1, answer()));
    asking.await.unwrap().unwrap();

    // Within its cluster: to another sub-cluster.
    let busy = Arc::clone(&frontend.decoders.threads).acquire_owned().await.unwrap();
    let asking = asks(&frontend, patient(stays.clone(), of_42()));
    let sequence = sequence(&stays).await;
    let other = SubclusterId::new(7);
    let mut moved = view(true, Duty::Serving);
    for model in moved.models.values_mut() {
        model.subcluster = other;
    }
    for backend in moved.backends.values_mut() {
        backend.subcluster = other;
    }
    moved.subclusters = [(other, SubclusterView { name: "t".into(), ..SubclusterView::default() })].into();
    frontend.slots[1].cluster.get().unwrap().show(&moved);
    drop(busy);
    while !there.waits_for(other) {
        tokio::task::yield_now().await;
    }
    assert!(there.end(sequence, answer()));
    asking.await.unwrap().unwrap();
    assert_eq!(frontend.ledger.counts().lost(0), 0);
}

/// The cluster of the other tests, in which the model `m` is loaded again in the meantime, and wants its pictures made
/// another way.
fn loaded_again() -> View {
    let mut again = view(true, Duty::Serving);
    let model = again.models.remove(&ModelId::new(4)).unwrap();
    let model = again.models.entry(ModelId::new(9)).or_insert(model);
    model.spec.transforms.image.as_mut().unwrap().filter = Filter::Bilinear;
    again
}

#[tokio::test]
async fn a_picture_that_was_made_for_a_former_model_of_the_name_is_not_given_to_its_successor() {
    let views = || vec![view(true, Duty::Serving), view(true, Duty::Serving)];
    let frontend = frontend(views(), FederationView::default());
    let [here, there] = [0, 1].map(|at: usize| Arc::clone(&frontend.slots[at].requests.table));
    let [a, b] = [0, 1].map(|at: usize| Arc::clone(frontend.slots[at].cluster.get().unwrap()));

    // Another cluster still has the one that was meant.
    let busy = Arc::clone(&frontend.decoders.threads).acquire_owned().await.unwrap();
    let receipt = Receipt::default();
    let asking = asks(&frontend, patient(receipt.clone(), of_42()));
    sequence(&receipt).await;
    a.show(&loaded_again());
    drop(busy);
    while !there.waits_for(SUBCLUSTER) {
        tokio::task::yield_now().await;
    }
    assert_eq!((here.len(), there.len()), (0, 1));
    assert!(there.end(1, answer()));
    asking.await.unwrap().unwrap();

    // No cluster has it.
    a.show(&view(true, Duty::Serving));
    let busy = Arc::clone(&frontend.decoders.threads).acquire_owned().await.unwrap();
    let receipt = Receipt::default();
    let asking = asks(&frontend, patient(receipt.clone(), of_42()));
    sequence(&receipt).await;
    [a, b].iter().for_each(|cluster| cluster.show(&loaded_again()));
    drop(busy);
    assert_eq!(asking.await.unwrap().unwrap_err(), InferError::Failed(FailReason::ModelNotReady));
    assert_eq!((frontend.in_flight(), frontend.ledger.counts().lost(0)), (0, 0));

    // A client that reads a request by an old description of the model is not answered by the new one.
    let late = frontend.infer(request(Receipt::default(), None)).await.unwrap_err();
    assert!(matches!(late, InferError::UnknownModel(_)), "{late}");
}

#[tokio::test]
async fn a_model_without_a_gpu_is_refused_as_that_and_counts_as_demand() {
    for (up, duty, why) in [(false, Duty::Serving, NoGpu::AllDown), (true, Duty::Draining, NoGpu::AllDraining)] {
        let mut shown = view(true, Duty::Serving);
        shown.backends.values_mut().for_each(|backend| (backend.up, backend.duty) = (up, duty));
        let frontend = frontend(vec![shown], FederationView::default());
        assert_eq!(infer(&frontend).await, InferError::NoGpu(why));
        assert_eq!(counted(&frontend), (1, [("no_gpu", 1)].into()));
        let state = &frontend.info("m").unwrap().state;
        assert_eq!((state.label(), state.reason()), ("UNAVAILABLE", why.words()));
    }
}

#[tokio::test]
async fn who_is_told_that_a_load_failed_does_not_find_the_model_loading() {
    let view_at = |applied_index, state: Option<Result<(), String>>| {
        let mut view = View { applied_index, ..view(true, Duty::Serving) };
        let holder = state.map(|state| (BACKEND, HolderView { boot: BOOT, state }));
        view.models.values_mut().for_each(|model| model.holders = holder.clone().into_iter().collect());
        view
    };
    let frontend = frontend(vec![view_at(6, None)], FederationView::default());
    let state = |frontend: &Inner| frontend.info("m").unwrap().state.clone();
    assert_eq!(state(&frontend), ModelState::Loading);
    let error = RepositoryError::Failed("no such file".into());
    let inner = Arc::clone(&frontend);
    let waiting = tokio::spawn(async move {
        let waiting = inner.result_once_seen(CallEnded { as_of: 7, result: Err(error) }).await;
        (waiting, state(&inner))
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished(), "its own view is older than the failure");
    frontend.slots[0].cluster.get().unwrap().show(&view_at(7, Some(Err("no such file".into()))));
    let (waiting, state) = waiting.await.unwrap();
    assert_eq!(waiting, Err(RepositoryError::Failed("no such file".into())));
    assert_eq!(state, ModelState::Unavailable("no such file".into()));
}
