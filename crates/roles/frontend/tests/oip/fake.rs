//! An inference service in memory, and both servers in front of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use symphony_config::Right;
use symphony_frontend::oip::{
    AccessError, Caller, Credential, GrpcServer, InFlightLimit, InFlightPermit, IndexEntry, InferAnswer, InferError,
    InferRequest, InferenceService, Limits, ModelInfo, ModelState, ModelStatistics, OutputRows, Parameter,
    PipelineAnswer, PipelineInfo, PipelineStep, QuotaKind, RefusedCall, RepositoryError, ServerInfo, SharedRegions,
    Shown, Span, Timeliness, rest_router, serve_grpc, serve_rest,
};
use symphony_telemetry::TraceContext;
use symphony_types::{
    BootId, Colour, DataType, DropReason, FailReason, Filter, Finite, Fit, FrontendId, ImageInput, Layout, Nanos,
    RequestId, Signature, TensorSpec, Transforms,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A call that shows another token may not load models.
pub(crate) const TOKEN: &str = "open sesame";

/// More requests in flight than any test has that is not about them.
pub(crate) const IN_FLIGHT_MAX: usize = 1024;

/// Items that the models take at most.
pub(crate) const BATCH_MAX: u32 = 8;

/// Each of these models refuses every request with its error.
pub(crate) fn refusals() -> Vec<(String, InferError)> {
    let drops = DropReason::ALL.iter().map(|&reason| (reason.label(), InferError::Dropped(reason)));
    let failures = FailReason::ALL.iter().map(|&reason| (reason.label(), InferError::Failed(reason)));
    let used_up = InferError::QuotaExceeded {
        tenant: "search".into(),
        kind: QuotaKind::Items,
        per_second: "20".into(),
        wait: Nanos::from_millis(1400),
    };
    let quota = [("quota", used_up), ("cancelled", InferError::Cancelled)];
    drops.chain(failures).chain(quota).map(|(label, error)| (format!("refuse-{label}"), error)).collect()
}

/// Inputs and outputs of the model `every-type`: one of each type, two elements an item, passed through.
pub(crate) fn every_type() -> Vec<TensorSpec> {
    let spec =
        |data_type: DataType| TensorSpec { name: data_type.name().to_lowercase(), data_type, item_shape: vec![2] };
    DataType::ALL.into_iter().map(spec).collect()
}

fn model(name: &str, inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>) -> Arc<ModelInfo> {
    Arc::new(ModelInfo {
        name: name.to_owned(),
        version: 1,
        loaded_as: name.to_owned(),
        signature: Signature { inputs, outputs },
        transforms: Transforms::default(),
        batch_max: BATCH_MAX,
        platform: "fake".to_owned(),
        slo: Nanos::from_millis(50),
        sheds: true,
        state: ModelState::Ready,
        pipeline: None,
    })
}

fn numbers(name: &str) -> Vec<TensorSpec> {
    vec![TensorSpec { name: name.to_owned(), data_type: DataType::Fp32, item_shape: vec![2, 2] }]
}

/// The model `double`, for tests that check requests without a server.
pub(crate) fn double() -> Arc<ModelInfo> {
    model("double", numbers("x"), numbers("y"))
}

/// The model `pictures`: its input may be given as pictures, its output has labels.
fn pictures() -> Arc<ModelInfo> {
    let image = ImageInput {
        input: "x".into(),
        width: 2,
        height: 2,
        colour: Colour::Grey,
        layout: Layout::default(),
        fit: Fit::default(),
        crop_share: Finite::ONE,
        filter: Filter::default(),
        scale: Finite::ONE,
        mean: vec![],
        deviation: vec![],
    };
    let labels = ["cat", "dog", "cow", "ant"].map(str::to_owned).to_vec();
    let mut info = ModelInfo::clone(&model("pictures", numbers("x"), numbers("y")));
    info.transforms = Transforms { image: Some(image), labels: [("y".to_owned(), labels)].into() };
    Arc::new(info)
}

/// The pipeline `rows`: beside the doubled numbers, as many labels as it has found.
fn rows() -> Arc<ModelInfo> {
    let label = TensorSpec { name: "label".to_owned(), data_type: DataType::Uint8, item_shape: vec![] };
    let outputs = numbers("y").into_iter().chain([label]).collect();
    let step = PipelineStep {
        model: "double".to_owned(),
        version: None,
        inputs: [("x".to_owned(), "x".to_owned())].into(),
        outputs: [("y".to_owned(), "y".to_owned())].into(),
    };
    let mut info = ModelInfo::clone(&model("rows", numbers("x"), outputs));
    info.platform = "ensemble".to_owned();
    info.pipeline = Some(Arc::new(PipelineInfo { picture: None, any_rows: vec![false, true], steps: vec![step] }));
    Arc::new(info)
}

/// Doubles, passes through, refuses, answers late, or never answers: by the name of the model.
pub(crate) struct FakeService {
    ready: AtomicBool,
    /// No key is good any more.
    revoked: AtomicBool,
    in_flight: InFlightLimit,
    /// None where shared memory is not allowed.
    shared_regions: Option<SharedRegions>,
    models: Vec<Arc<ModelInfo>>,
    seen: Mutex<Vec<InferRequest>>,
    /// Calls that were refused before they were given to it: the model, if it was known, and the reason.
    pub(crate) refused: Mutex<Vec<(String, &'static str)>>,
    /// The traces of these calls.
    pub(crate) refused_traces: Mutex<Vec<Option<TraceContext>>>,
    /// Requests that the model `stuck` holds.
    stuck: watch::Sender<usize>,
}

impl FakeService {
    fn new(in_flight: InFlightLimit, shared_regions: Option<SharedRegions>) -> Self {
        let mut models = vec![
            double(),
            model("every-type", every_type(), every_type()),
            model("late", numbers("x"), numbers("y")),
            model("short", numbers("x"), numbers("y")),
            model("stuck", numbers("x"), numbers("y")),
        ];
        models.extend(refusals().iter().map(|(name, _)| model(name, numbers("x"), numbers("y"))));
        let mut loading = ModelInfo::clone(&double());
        loading.name = "loading".to_owned();
        loading.state = ModelState::Loading;
        models.push(Arc::new(loading));
        models.push(pictures());
        models.push(rows());
        let mut by_deadline = ModelInfo::clone(&double());
        (by_deadline.name, by_deadline.sheds) = ("by-deadline".to_owned(), false);
        models.push(Arc::new(by_deadline));
        models.sort_by(|left, right| left.name.cmp(&right.name));
        let (stuck, _) = watch::channel(0);
        Self {
            ready: AtomicBool::new(true),
            revoked: AtomicBool::new(false),
            in_flight,
            shared_regions,
            models,
            seen: Mutex::new(Vec::new()),
            refused: Mutex::default(),
            refused_traces: Mutex::default(),
            stuck,
        }
    }

    /// From now on the server is alive but does not want requests.
    pub(crate) fn drain(&self) {
        self.ready.store(false, Ordering::SeqCst);
    }

    /// From now on no key is good any more, for streams that are open.
    pub(crate) fn revoke(&self) {
        self.revoked.store(true, Ordering::SeqCst);
    }

    /// The request that came last.
    pub(crate) fn last(&self) -> InferRequest {
        self.seen.lock().unwrap().last().expect("no request has come").clone()
    }

    /// Requests that came.
    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Waits until the model `stuck` holds this many requests.
    pub(crate) async fn stuck_is(&self, count: usize) {
        self.stuck.subscribe().wait_for(|&now| now == count).await.expect("the service is gone");
    }
}

/// Counts a request of the model `stuck` until its future is dropped.
struct Stuck<'a>(&'a watch::Sender<usize>);

impl<'a> Stuck<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|now| *now += 1);
        Self(count)
    }
}

impl Drop for Stuck<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|now| *now -= 1);
    }
}

fn doubled(payload: &[u8]) -> Bytes {
    payload.as_chunks().0.iter().flat_map(|&chunk| (2.0 * f32::from_le_bytes(chunk)).to_le_bytes()).collect()
}

impl InferenceService for FakeService {
    fn server(&self) -> ServerInfo {
        let ready = self.ready.load(Ordering::SeqCst);
        ServerInfo { name: "fake".to_owned(), version: "7".to_owned(), live: true, ready }
    }

    fn models(&self) -> Vec<Arc<ModelInfo>> {
        self.models.clone()
    }

    fn model(&self, name: &str, version: Option<u64>) -> Option<Arc<ModelInfo>> {
        let is = |model: &&Arc<ModelInfo>| model.name == name && version.is_none_or(|version| version == model.version);
        self.models.iter().filter(is).max_by_key(|model| model.version).cloned()
    }

    fn versions(&self, name: &str) -> Vec<u64> {
        self.models.iter().filter(|model| model.name == name).map(|model| model.version).collect()
    }

    async fn index(&self, _: &Caller) -> Result<Vec<IndexEntry>, RepositoryError> {
        let entry = |model: &Arc<ModelInfo>| IndexEntry {
            name: model.name.clone(),
            version: Some(model.version),
            state: model.state.clone(),
        };
        Ok(self.models.iter().map(entry).collect())
    }

    fn statistics(&self, of: Option<(&str, Option<u64>)>) -> Vec<ModelStatistics> {
        let span = |count, millis| Span { count, total: Nanos::from_millis(millis) };
        let counters = |info: &Arc<ModelInfo>| ModelStatistics {
            model: info.name.clone(),
            version: info.version,
            last_inference_ms: 1_700_000_000_000,
            inference_count: 12,
            execution_count: 3,
            success: span(6, 60),
            fail: span(1, 5),
            queue: span(6, 20),
            compute: span(3, 30),
            batches: vec![(4, span(3, 30))],
        };
        let wanted = |info: &&Arc<ModelInfo>| {
            of.is_none_or(|(name, version)| name == info.name && version.is_none_or(|v| v == info.version))
        };
        self.models.iter().filter(wanted).map(counters).collect()
    }

    fn authenticate(&self, shown: &Shown<'_>, rights: &'static [Right]) -> Result<Caller, AccessError> {
        // Keys that name a right have it and no other; a call without a key, or with the token, is served.
        let has = |label: &str| Right::ALL.iter().any(|right| right.label() == label);
        let credential = Credential::of(shown.headers);
        match credential.token() {
            Some("none") => Err(AccessError::NoKey),
            Some(key) if key != TOKEN && !has(key) => Err(AccessError::UnknownKey),
            Some(label) if has(label) && rights.iter().all(|right| right.label() != label) => {
                Err(AccessError::NoRight(rights))
            }
            _ => Ok(Caller::anonymous().showing(credential)),
        }
    }

    fn reauthenticate(&self, caller: &Caller) -> Result<Caller, AccessError> {
        if self.revoked.load(Ordering::SeqCst) { Err(AccessError::UnknownKey) } else { Ok(caller.clone()) }
    }

    fn begin_request(&self, _: &Caller) -> Result<InFlightPermit, InferError> {
        self.in_flight.acquire()
    }

    fn shared_regions(&self) -> Option<&SharedRegions> {
        self.shared_regions.as_ref()
    }

    fn refused(&self, call: &RefusedCall<'_>) {
        let model = call.model.map(|model| model.name.clone()).unwrap_or_default();
        self.refused.lock().unwrap().push((model, call.error.error_status().reason));
        self.refused_traces.lock().unwrap().push(call.context.trace);
    }

    async fn infer(&self, request: InferRequest) -> Result<InferAnswer, InferError> {
        let sequence = {
            let mut seen = self.seen.lock().unwrap();
            seen.push(request.clone());
            seen.len() as u64
        };
        let name = request.model.name.as_str();
        if name != "loading" {
            let (frontend, boot) = (FrontendId::new(3), BootId::new(0xab));
            request.receipt.accepted(RequestId { frontend, boot, sequence });
        }
        if let Some(trace) = request.context.trace {
            request.receipt.traced(trace);
        }
        if let Some((_, error)) = refusals().into_iter().find(|(refuses, _)| refuses == name) {
            return Err(error);
        }
        let mut answer = InferAnswer {
            payload: doubled(&request.payload),
            batch: request.items + 1,
            execution: Nanos::from_micros(1_500),
            timeliness: Timeliness::InTime,
            pipeline: None,
        };
        match name {
            "every-type" => answer.payload = request.payload,
            // The same for each item, whatever is in its picture.
            "pictures" => {
                let item = [0.1_f32, 0.4, 0.3, 0.2];
                answer.payload = (0..request.items).flat_map(|_| item).flat_map(f32::to_le_bytes).collect();
            }
            "rows" => {
                answer.payload = [&answer.payload[..], &b"\x07\x09"[..]].concat().into();
                let outputs = vec![
                    OutputRows { count: request.items, places: None },
                    OutputRows { count: 2, places: Some("0.1,0.4".to_owned()) },
                ];
                let stages = "double=f3/ab/9".to_owned();
                answer.pipeline = Some(PipelineAnswer { outputs, is_partial: true, stages });
            }
            "late" => answer.timeliness = Timeliness::Late,
            "short" => answer.payload = answer.payload.slice(1..),
            "loading" => return Err(InferError::Failed(FailReason::ModelNotReady)),
            "stuck" => {
                let _held = Stuck::new(&self.stuck);
                std::future::pending::<()>().await;
            }
            _ => {}
        }
        Ok(answer)
    }

    async fn load_model(
        &self,
        model: &str,
        parameters: BTreeMap<String, Parameter>,
        caller: Caller,
    ) -> Result<(), RepositoryError> {
        match parameters.get("config") {
            Some(_) => Err(RepositoryError::InvalidRequest("parameter config is not taken".to_owned())),
            None => self.unload_model(model, caller).await,
        }
    }

    async fn unload_model(&self, model: &str, caller: Caller) -> Result<(), RepositoryError> {
        if caller.token().is_some_and(|token| token != TOKEN) {
            return Err(RepositoryError::Unauthenticated);
        }
        match self.model(model, None) {
            Some(_) => Ok(()),
            None => Err(RepositoryError::UnknownModel(format!("there is no model `{model}`"))),
        }
    }
}

/// Both servers on ports of the system's choice.
pub(crate) struct Running {
    pub(crate) service: Arc<FakeService>,
    pub(crate) grpc: SocketAddr,
    pub(crate) rest: SocketAddr,
    stop: CancellationToken,
    servers: Vec<JoinHandle<()>>,
}

impl Running {
    pub(crate) async fn start() -> Self {
        Self::start_with(Limits::default()).await
    }

    pub(crate) async fn start_with(limits: Limits) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), limits, IN_FLIGHT_MAX).await
    }

    /// A server with at most this many requests in flight.
    pub(crate) async fn start_for(in_flight_max: usize) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), Limits::default(), in_flight_max).await
    }

    /// For pages of these origins.
    pub(crate) async fn start_for_pages(origins: &[String]) -> Self {
        Self::start_all(SocketAddr::from(([127, 0, 0, 1], 0)), Limits::default(), IN_FLIGHT_MAX, origins, None).await
    }

    /// For clients that may register shared memory.
    pub(crate) async fn start_with_shared_memory() -> Self {
        let (grpc, regions) = (SocketAddr::from(([127, 0, 0, 1], 0)), SharedRegions::default());
        Self::start_all(grpc, Limits::default(), IN_FLIGHT_MAX, &[], Some(regions)).await
    }

    /// With gRPC at that address.
    pub(crate) async fn start_at(grpc: SocketAddr, limits: Limits, in_flight_max: usize) -> Self {
        Self::start_all(grpc, limits, in_flight_max, &[], None).await
    }

    async fn start_all(
        grpc: SocketAddr,
        limits: Limits,
        in_flight_max: usize,
        origins: &[String],
        regions: Option<SharedRegions>,
    ) -> Self {
        let service = Arc::new(FakeService::new(InFlightLimit::new(in_flight_max), regions));
        let stop = CancellationToken::new();
        let grpc_listener = TcpListener::bind(grpc).await.unwrap();
        let rest_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (grpc, rest) = (grpc_listener.local_addr().unwrap(), rest_listener.local_addr().unwrap());

        let server = GrpcServer::new(Arc::clone(&service), limits);
        let over_grpc = tokio::spawn(serve_grpc(server, grpc_listener, None, limits, stop.clone().cancelled_owned()));
        let router = rest_router(Arc::clone(&service), limits, origins);
        let over_rest = tokio::spawn(serve_rest(router, rest_listener, None, limits, stop.clone().cancelled_owned()));
        Self { service, grpc, rest, stop, servers: vec![over_grpc, over_rest] }
    }

    /// Tells both servers to stop and waits until they have.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        for server in self.servers {
            server.await.unwrap();
        }
    }

    /// The address of a page.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.rest)
    }
}
