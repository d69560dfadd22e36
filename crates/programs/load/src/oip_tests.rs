//! Both OIP targets against the real public ports, over real sockets, in front of a service of a few lines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use symphony_config::Right;
use symphony_executor::{default_signature, item_checksum};
use symphony_frontend::oip::{
    AccessError, Caller, GrpcServer, InFlightLimit, InFlightPermit, IndexEntry, InferAnswer, InferError, InferRequest,
    InferenceService, Limits, ModelInfo, ModelState, ModelStatistics, Parameter, RefusedCall, RepositoryError,
    ServerInfo, Shown, Timeliness, rest_router, serve_grpc, serve_rest,
};
use symphony_types::{DropReason, FailReason, Nanos, Transforms};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    Answer, ArrivalKind, DescribeModel, EmulatedInputs, End, GrpcTarget, InputSet, LagLimits, LoadPlan,
    ModelDescription, ModelLoad, OutputCheck, Request, RestTarget, Sample, Target, run,
};

/// Computes checksums. The timeout of a request, in milliseconds, can select another end instead.
#[derive(Debug)]
struct Checksums;

impl Checksums {
    fn info() -> Arc<ModelInfo> {
        Arc::new(ModelInfo {
            name: "sums".into(),
            version: 1,
            loaded_as: "sums".into(),
            signature: default_signature(),
            transforms: Transforms::default(),
            batch_max: 8,
            platform: "emulated".into(),
            slo: Nanos::from_millis(50),
            sheds: true,
            state: ModelState::Ready,
            pipeline: None,
        })
    }
}

impl InferenceService for Checksums {
    fn server(&self) -> ServerInfo {
        ServerInfo { name: "test".into(), version: "0".into(), live: true, ready: true }
    }

    fn models(&self) -> Vec<Arc<ModelInfo>> {
        vec![Self::info()]
    }

    fn model(&self, name: &str, _: Option<u64>) -> Option<Arc<ModelInfo>> {
        (name == "sums").then(Self::info)
    }

    fn versions(&self, name: &str) -> Vec<u64> {
        self.model(name, None).map(|model| model.version).into_iter().collect()
    }

    async fn index(&self, _: &Caller) -> Result<Vec<IndexEntry>, RepositoryError> {
        Ok(Vec::new())
    }

    fn statistics(&self, _: Option<(&str, Option<u64>)>) -> Vec<ModelStatistics> {
        Vec::new()
    }

    fn authenticate(&self, _: &Shown<'_>, _: &'static [Right]) -> Result<Caller, AccessError> {
        Ok(Caller::anonymous())
    }

    fn reauthenticate(&self, caller: &Caller) -> Result<Caller, AccessError> {
        Ok(caller.clone())
    }

    fn begin_request(&self, _: &Caller) -> Result<InFlightPermit, InferError> {
        // Its own instance for each: no request is refused.
        InFlightLimit::new(1).acquire()
    }

    fn refused(&self, _: &RefusedCall<'_>) {}

    async fn infer(&self, request: InferRequest) -> Result<InferAnswer, InferError> {
        let size = request.model.signature.input_item_bytes();
        let sums = request.payload.chunks(size).flat_map(|item| item_checksum([item]).to_le_bytes());
        let mut answer = InferAnswer {
            payload: sums.collect::<Vec<_>>().into(),
            batch: 5,
            execution: Nanos::from_millis(1),
            timeliness: Timeliness::InTime,
            pipeline: None,
        };
        // A client that sends a timeout beyond the SLO sets the parameter that allows it.
        assert_eq!(request.deadline.timeout.is_some(), request.deadline.exceed_slo);
        // A client may send what is left of the time, which is a moment less.
        match request.deadline.timeout.map_or(0, |timeout| timeout.get().div_ceil(1_000_000)) {
            1001 => answer.timeliness = Timeliness::Late,
            1002 => return Err(InferError::Dropped(DropReason::SloUnreachable)),
            1003 => return Err(InferError::Failed(FailReason::NoGpu)),
            1004 => return Err(InferError::Late),
            _ => {}
        }
        Ok(answer)
    }

    async fn load_model(&self, name: &str, _: BTreeMap<String, Parameter>, _: Caller) -> Result<(), RepositoryError> {
        Err(RepositoryError::UnknownModel(name.into()))
    }

    async fn unload_model(&self, name: &str, _: Caller) -> Result<(), RepositoryError> {
        Err(RepositoryError::UnknownModel(name.into()))
    }
}

/// Addresses of the two ports; they serve until the token is cancelled.
async fn serve(stop: &CancellationToken) -> (String, String) {
    let (grpc, rest) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let addrs = (grpc.local_addr().unwrap().to_string(), rest.local_addr().unwrap().to_string());
    let (service, limits) = (Arc::new(Checksums), Limits::default());
    let (grpc_router, rest_router) = (GrpcServer::new(Arc::clone(&service), limits), rest_router(service, limits, &[]));
    let (stop_grpc, stop_rest) = (stop.clone(), stop.clone());
    tokio::spawn(async move { serve_grpc(grpc_router, grpc, None, limits, stop_grpc.cancelled()).await });
    tokio::spawn(async move { serve_rest(rest_router, rest, None, limits, stop_rest.cancelled()).await });
    addrs
}

async fn ask(target: &impl Target, model: &str, timeout_ms: Option<u64>) -> Answer {
    let timeout = timeout_ms.map(Duration::from_millis);
    let Sample { items, inputs, pictures } = EmulatedInputs::new(&default_signature(), 2, 1).sample(3);
    let request = Request { id: 77, model: model.into(), items, inputs, pictures, timeout };
    target.send(request).await
}

/// The whole story, for one target.
async fn speaks_the_protocol<T: Target + DescribeModel>(target: T) {
    // Phase 1: the port says what the model is, and an answer arrives complete, under its id, with the server's data on
    // it.
    let described = target.describe("sums").await.unwrap();
    let (platform, slo) = (described.platform.as_str(), described.slo);
    assert_eq!(
        (described.name.as_str(), platform, slo),
        ("sums", ModelDescription::EMULATED, Duration::from_millis(50))
    );
    assert_eq!(described.tensors().unwrap().inputs, default_signature().inputs);
    assert_eq!(
        described.outputs,
        default_signature().outputs.into_iter().map(|output| output.name).collect::<Vec<_>>()
    );
    assert!(target.describe("nothing").await.unwrap_err().contains("nothing"));
    let answer = ask(&target, "sums", None).await;
    assert_eq!((&answer.end, answer.id, answer.batch, answer.bytes), (&End::Ok, Some(77), Some(5), 8));
    let inputs = EmulatedInputs::new(&default_signature(), 2, 1);
    assert_eq!(inputs.check(3, &answer.outputs), OutputCheck::Right);

    // Phase 2: every other end is understood.
    let late = ask(&target, "sums", Some(1001)).await;
    assert_eq!((&late.end, inputs.check(3, &late.outputs)), (&End::Late, OutputCheck::Right), "late, but an answer");
    assert_eq!(ask(&target, "sums", Some(1002)).await.end, End::Dropped("slo_unreachable".into()));
    assert_eq!(ask(&target, "sums", Some(1003)).await.end, End::Failed("no_gpu".into()));
    assert_eq!(ask(&target, "sums", Some(1004)).await.end, End::Late);
    assert_eq!(ask(&target, "nothing", None).await.end, End::Failed("unknown_model".into()));

    // Phase 3: under load every answer belongs to its request.
    let load = ModelLoad {
        model: "sums".into(),
        rate_rps: 200.0,
        arrival: ArrivalKind::Poisson,
        recorded: None,
        slo: Duration::from_secs(60),
        slack: Duration::ZERO,
        timeout: None,
        inputs: Arc::new(EmulatedInputs::new(&default_signature(), 2, 9)),
    };
    let plan = LoadPlan {
        seed: 3,
        warmup: Duration::ZERO,
        duration: Duration::from_millis(500),
        grace: Duration::from_secs(60),
        lag: LagLimits { p99: Duration::from_secs(2), max: Duration::from_secs(4) },
        models: vec![load],
    };
    let report = run(plan, Arc::new(target), CancellationToken::new()).await.unwrap();
    let total = &report.total;
    assert!(total.sent > 50 && total.good == total.sent, "{}", report.table());
    assert_eq!((total.accuracy, total.foreign, total.answered_twice, total.lost), (Some(1.0), 0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_grpc_target_speaks_the_protocol() {
    let stop = CancellationToken::new();
    let (grpc, _) = serve(&stop).await;
    speaks_the_protocol(GrpcTarget::connect(&grpc, 2).await.unwrap()).await;
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rest_target_speaks_the_protocol() {
    let stop = CancellationToken::new();
    let (_, rest) = serve(&stop).await;
    speaks_the_protocol(RestTarget::connect(&rest).await.unwrap()).await;
    stop.cancel();
}

#[tokio::test]
async fn a_port_that_nobody_serves_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    drop(listener);
    for error in [GrpcTarget::connect(&addr, 1).await.unwrap_err(), RestTarget::connect(&addr).await.unwrap_err()] {
        assert!(error.to_string().contains(&format!("cannot reach {addr}")), "{error}");
    }
    assert!(GrpcTarget::connect("no address", 1).await.is_err());
}
