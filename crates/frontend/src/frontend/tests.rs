//! Which of several clusters a request goes to.

use symphony_protocol::federation::{FederatedClusterView, FederatedModelView};
use symphony_protocol::view::{
    BackendView, FrontendView, ModelSource, ModelSpec, ModelView, ReplicaView, SubclusterView,
};
use symphony_types::{BackendId, Duty, FrontendId, ModelId, RequestValue, Signature, SubclusterId, Transforms};

use super::*;
use crate::oip::{Receipt, RequestedDeadline};

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
    let images = ImagesConfig { threads: 1, waiting_max: 1, pixels_max: 1 };
    Arc::new(Inner {
        grace: Duration::ZERO,
        in_flight_max: 8,
        ledger: Arc::clone(&own.ledger),
        statistics: Statistics::new(&Registry::new("frontend")),
        decoders: Decoders::new(&images, image_limits(&images), &Registry::new("frontend")),
        places: ["a", "b", "c"].into_iter().zip(views).map(place).collect(),
        plan: Some(watch::channel(Arc::new(plan)).1),
        rates: Rates::default(),
        draining: AtomicBool::new(false),
        ended: own.ended,
    })
}

async fn ask(frontend: &Arc<Inner>) -> InferError {
    ask_as(frontend, Receipt::default()).await
}

async fn ask_as(frontend: &Arc<Inner>, receipt: Receipt) -> InferError {
    let model = ModelInfo {
        name: "m".into(),
        signature: Signature { inputs: vec![], outputs: vec![] },
        transforms: Transforms::default(),
        batch_max: 1,
        platform: String::new(),
        slo: SLO,
        state: ModelState::Ready,
    };
    let deadline = RequestedDeadline::unstated(Instant::now());
    let payload = bytes::Bytes::new();
    frontend
        .infer(InferRequest { model: Arc::new(model), items: 1, payload, pictures: None, deadline, receipt })
        .await
        .unwrap_err()
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
