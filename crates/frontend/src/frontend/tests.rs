//! Which of several clusters a request goes to.

use symphony_protocol::federation::{FederatedClusterView, FederatedModelView};
use symphony_protocol::view::{
    BackendView, FrontendView, ModelSource, ModelSpec, ModelView, ReplicaView, SubclusterView,
};
use symphony_types::{
    BackendId, Colour, DataType, Duty, Filter, Finite, Fit, FrontendId, ImageInput, Layout, ModelId, RequestValue,
    Signature, SubclusterId, TensorSpec, Transforms,
};

use super::*;
use crate::oip::{Pictures, Receipt, RequestedDeadline};

const FRONTEND: FrontendId = FrontendId::new(2);
const BOOT: BootId = BootId::new(3);
const SUBCLUSTER: SubclusterId = SubclusterId::new(1);
const BACKEND: BackendId = BackendId::new(1);
const SLO: Nanos = Nanos::from_millis(50);

/// A cluster that has the model `m` ready, or no model.
fn view(has_model: bool, duty: Duty) -> View {
    let spec = ModelSpec {
        name: "m".into(),
        subcluster: "s".into(),
        slo: SLO,
        source: ModelSource::Emulated,
        signature: Signature { inputs: vec![], outputs: vec![] },
        transforms: Default::default(),
        profiles: BTreeMap::new(),
        policy: String::new(),
        value: RequestValue::ONE,
    };
    let replicas = [(BACKEND, ReplicaView { boot: BOOT, state: Ok(()) })].into();
    let model = ModelView { spec, subcluster: SUBCLUSTER, moving: None, replicas };
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
fn frontend(views: Vec<View>, plan: FederationView) -> Arc<Inner> {
    let own = Own {
        name: "f".into(),
        boot: BOOT,
        console_addr: String::new(),
        ledger: Arc::default(),
        ended: CancellationToken::new(),
        news: watch::Sender::default(),
    };
    let place = |(name, view): (&str, View)| {
        let cluster = Cluster::showing(FRONTEND, &own, view);
        let requests = Requests { table: Arc::clone(&cluster.table), inputs: None };
        Place { name: name.to_owned(), requests, cluster: OnceLock::from(cluster) }
    };
    let images = ImagesConfig { threads: 1, waiting_max: 4, pixels_max: 1 << 20 };
    Arc::new(Inner {
        grace: Duration::ZERO,
        in_flight_max: 8,
        ledger: Arc::clone(&own.ledger),
        statistics: Statistics::new(&Registry::new("frontend")),
        decoders: Decoders::new(&images, image_limits(&images), &Registry::new("frontend")),
        places: ["a", "b", "c"].into_iter().zip(views).map(place).collect(),
        plan: Some(watch::channel(Arc::new(plan)).1),
        rates: Rates::default(),
        repository: RepositoryDesk::new(None, &Registry::new("frontend")),
        draining: AtomicBool::new(false),
        ended: own.ended,
    })
}

async fn ask(frontend: &Arc<Inner>) -> InferError {
    ask_as(frontend, Receipt::default()).await
}

async fn ask_as(frontend: &Arc<Inner>, receipt: Receipt) -> InferError {
    frontend.infer(request(receipt, None)).await.unwrap_err()
}

/// A request for `m`, whose input is pictures of one grey pixel each.
fn request(receipt: Receipt, pictures: Option<Pictures>) -> InferRequest {
    let image = ImageInput {
        input: "x".into(),
        width: 1,
        height: 1,
        colour: Colour::Grey,
        layout: Layout::Nchw,
        fit: Fit::Stretch,
        crop_share: Finite::ONE,
        filter: Filter::Nearest,
        scale: Finite::ONE,
        mean: vec![],
        deviation: vec![],
    };
    let pixel = TensorSpec { name: "x".into(), data_type: DataType::Uint8, item_shape: vec![1] };
    let model = ModelInfo {
        name: "m".into(),
        version: 1,
        loaded_as: "m".into(),
        signature: Signature { inputs: vec![pixel], outputs: vec![] },
        transforms: Transforms { image: Some(image), ..Transforms::default() },
        batch_max: 1,
        platform: String::new(),
        slo: SLO,
        state: ModelState::Ready,
    };
    let deadline = RequestedDeadline::unstated(Instant::now());
    InferRequest { model: Arc::new(model), items: 1, payload: Bytes::new(), pictures, deadline, receipt }
}

/// A request with a picture that may take a minute.
fn patient(receipt: Receipt, picture: Bytes) -> InferRequest {
    let mut request = request(receipt, of(picture));
    (request.deadline.timeout, request.deadline.exceed_slo) = (Some(Nanos::from_millis(60_000)), true);
    request
}

fn picture() -> Bytes {
    let image: image::ImageBuffer<image::Luma<u8>, _> = image::ImageBuffer::from_pixel(1, 1, image::Luma([42]));
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::DynamicImage::from(image).write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner().into()
}

fn of(picture: Bytes) -> Option<Pictures> {
    Some(Pictures { encoded: vec![picture], at: 0 })
}

#[tokio::test]
async fn a_cluster_that_turns_the_frontend_away_gets_nothing_new_although_another_takes_it() {
    let views = |duty| vec![view(true, duty), view(false, Duty::Serving)];
    let asked = |duty| async move {
        let frontend = frontend(views(duty), FederationView::default());
        (ask(&frontend).await, frontend.ledger.counts().accepted)
    };
    for duty in [Duty::Cordoned, Duty::Draining] {
        assert_eq!(asked(duty).await, (InferError::Failed(FailReason::Draining), 0), "{duty:?}");
    }
    let nobody = (InferError::Failed(FailReason::NoAnswer), 1);
    assert_eq!(asked(Duty::Serving).await, nobody, "it waits for a leader, and there is none");
}

#[tokio::test]
async fn what_one_cluster_turns_away_does_not_go_to_one_that_shall_become_empty() {
    let frontend = frontend(vec![view(true, Duty::Serving), view(true, Duty::Draining)], FederationView::default());
    let receipt = Receipt::default();
    let turn_away = async {
        while receipt.id().is_none() {
            tokio::task::yield_now().await;
        }
        frontend.places[0].requests.table.end(receipt.id().unwrap().sequence, Ending::NotHere);
    };
    let (error, ()) = tokio::join!(ask_as(&frontend, receipt.clone()), turn_away);
    assert_eq!(error, InferError::Failed(FailReason::Draining));
    assert_eq!(frontend.in_flight(), 0);
}

#[tokio::test]
async fn a_lost_home_is_not_answered_for_by_another_model_of_the_name() {
    let lost = FederatedClusterView { reachable: false, ..FederatedClusterView::default() };
    let model = FederatedModelView { home: Some("b".into()), ..FederatedModelView::default() };
    let plan = FederationView {
        clusters: [("b".to_owned(), lost)].into(),
        models: [("m".to_owned(), model)].into(),
        ..FederationView::default()
    };
    let views = vec![view(true, Duty::Serving), view(false, Duty::Serving)];
    let frontend = frontend(views, plan);
    assert!(matches!(ask(&frontend).await, InferError::UnknownModel(_)));
    assert_eq!(frontend.ledger.counts().accepted, 0);
}

#[tokio::test]
async fn a_request_is_announced_when_its_picture_has_a_thread_and_its_input_reaches_who_waits() {
    let frontend = frontend(vec![view(true, Duty::Serving)], FederationView::default());
    let busy = Arc::clone(&frontend.decoders.threads).acquire_owned().await.unwrap();
    let receipt = Receipt::default();
    let asking = {
        let (frontend, request) = (Arc::clone(&frontend), patient(receipt.clone(), picture()));
        tokio::spawn(async move { frontend.infer(request).await })
    };
    while frontend.ledger.counts().accepted == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!((receipt.id(), frontend.in_flight()), (None, 0), "accepted, and nobody is told of it");
    drop(busy);
    while receipt.id().is_none() {
        tokio::task::yield_now().await;
    }
    let (table, sequence) = (&frontend.places[0].requests.table, receipt.id().unwrap().sequence);
    let input = match table.payload(sequence) {
        Some(input) => input,
        None => table.coming(sequence).unwrap().await.unwrap(),
    };
    assert_eq!(input, &[42][..]);
    let answer = Ending::Answer { payload: Bytes::new(), batch: 1, execution_ns: 1, at: Instant::now() };
    assert!(table.end(sequence, answer));
    asking.await.unwrap().unwrap();
    assert_eq!(frontend.ledger.counts().lost(0), 0);
}

#[tokio::test]
async fn a_picture_that_cannot_be_decoded_withdraws_its_request_and_one_that_finds_no_thread_expires() {
    let frontend = frontend(vec![view(true, Duty::Serving)], FederationView::default());
    let broken = picture().slice(..45);
    let error = frontend.infer(patient(Receipt::default(), broken)).await.unwrap_err();
    assert!(matches!(error, InferError::BadPicture(_)), "{error}");
    assert_eq!((frontend.ledger.counts().cancelled, frontend.in_flight()), (1, 0));

    let _busy = Arc::clone(&frontend.decoders.threads).acquire_owned().await.unwrap();
    let error = frontend.infer(request(Receipt::default(), of(picture()))).await.unwrap_err();
    assert_eq!(error, InferError::Dropped(DropReason::QueueExpired));
    let counts = frontend.ledger.counts();
    assert_eq!((counts.dropped, counts.lost(0), frontend.in_flight()), (1, 0, 0));
}
