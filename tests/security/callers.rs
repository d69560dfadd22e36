//! Which callers the public ports admit, as which tenant, and with which quotas.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use symphony_client::{Client, ElementType, Request, Tensor};
use symphony_frontend::oip::SLO_HEADER;
use symphony_net::{Authority, CredentialFiles, Identity, Role};
use symphony_protocol::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use symphony_protocol::inference::infer_parameter::ParameterChoice;
use symphony_protocol::inference::model_infer_request::InferInputTensor;
use symphony_protocol::inference::{InferParameter, ModelInferRequest, ModelReadyRequest};
use symphony_protocol::parameters::{ACCEPT_LATE, EXCEED_SLO, TIMEOUT};
use symphony_tests::{Shape, TestCluster, emulated_model, phase, tell};
use symphony_types::DataType;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

/// How long something may take over loopback on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// SHA-256 of the keys `key-of-ann`, `key-of-bob`, `key-of-cat` and `key-of-dan`.
pub(super) const ANN: (&str, &str) = ("key-of-ann", "ca64daa8b294dc4835d29ca02a6a47427ebc6a225ea3ac2e15f8417fb6601db2");
pub(super) const BOB: (&str, &str) = ("key-of-bob", "808a1d81b5de08d72083995df738947d519d230a20c236003268f0f4b65ee475");
const DAN: (&str, &str) = ("key-of-dan", "4e913e35f9933a915f6f793e9e3a9e63075f2d247f4b98e79b3e5ee7e1e2f2c4");
const CAT: (&str, &str) = ("key-of-cat", "77b6af72f834491b4215dd9e49c6cbd5ad03c5ffb3558cb899f4c828c7f63e97");

/// A folder of this test's own, for files that must be there before the cluster is.
pub(super) struct Files(PathBuf);

impl Files {
    pub(super) fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("symphony-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// Writes the file of tenants: name, hash of the key, and further lines of each.
    pub(super) fn tenants(&self, tenants: &[(&str, &str, &str)]) -> String {
        let one = |(name, hash, more): &(&str, &str, &str)| {
            format!("[[tenant]]\nname = \"{name}\"\nkeys = [\"sha256:{hash}\"]\n{more}\n")
        };
        let path = self.0.join("tenants.toml");
        // As editors and secret stores do it: no process reads half a file.
        let beside = self.0.join("tenants.new");
        std::fs::write(&beside, tenants.iter().map(one).collect::<String>()).unwrap();
        std::fs::rename(&beside, &path).unwrap();
        path.display().to_string()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a request for the emulated model was answered with.
#[derive(Debug)]
struct Answer {
    status: u16,
    reason: String,
    retry_after: Option<u64>,
}

async fn ask(http: &reqwest::Client, base: &str, key: Option<&str>) -> Answer {
    let data: Vec<f32> = (0..16).map(|n| n as f32).collect();
    let body = json!({
        "inputs": [{ "name": "INPUT0", "datatype": "FP32", "shape": [1, 16], "data": data }],
        "parameters": { "symphony_accept_late": true, "symphony_exceed_slo": true },
    });
    let mut request = http.post(format!("{base}/v2/models/resnet/infer")).header(SLO_HEADER, "5000").json(&body);
    if let Some(key) = key {
        request = request.header("x-api-key", key);
    }
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let retry_after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    let body: Value = answer.json().await.unwrap_or_default();
    Answer { status, reason: body["reason"].as_str().unwrap_or_default().to_owned(), retry_after }
}

/// A request for the emulated model as gRPC has it.
fn message() -> ModelInferRequest {
    let data: Vec<u8> = (0..16).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let parameters = [
        (TIMEOUT, ParameterChoice::Int64Param(5_000_000)),
        (EXCEED_SLO, ParameterChoice::BoolParam(true)),
        (ACCEPT_LATE, ParameterChoice::BoolParam(true)),
    ];
    let parameter = |(name, choice): (&str, _)| (name.to_owned(), InferParameter { parameter_choice: Some(choice) });
    let (name, datatype) = ("INPUT0".to_owned(), "FP32".to_owned());
    ModelInferRequest {
        model_name: "resnet".into(),
        parameters: parameters.map(parameter).into(),
        inputs: vec![InferInputTensor { name, datatype, shape: vec![1, 16], ..InferInputTensor::default() }],
        raw_input_contents: vec![data.into()],
        ..ModelInferRequest::default()
    }
}

/// Asks again until the answer has this status.
async fn until(http: &reqwest::Client, base: &str, key: Option<&str>, status: u16) {
    let began = Instant::now();
    loop {
        let answer = ask(http, base, key).await;
        if answer.status == status {
            return;
        }
        assert!(began.elapsed() < SOON, "{answer:?} instead of {status}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn status_of(http: &reqwest::Client, url: String, key: Option<&str>) -> u16 {
    let mut request = http.get(url);
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    request.send().await.unwrap().status().as_u16()
}

fn load_model(cluster: &mut TestCluster) {
    let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
}

#[test]
fn callers_are_known_by_keys_and_certificates_over_tls_and_the_file_of_tenants_is_followed() {
    let files = Files::new("callers");
    let authority = Authority::create(&files.0, "clients").unwrap();
    let issue = |name: &str| {
        let identity = Identity::new("clients", Role::Operator, name).unwrap();
        authority.issue_at(&identity, &["127.0.0.1".parse().unwrap()], 1).unwrap().files
    };
    let CredentialFiles { ca, cert, key } = issue("server");
    let eve = issue("eve");
    let by_certificate = "certificates = [\"spiffe://clients/operator/eve\"]";
    let dan = ("dan", DAN.1, "rights = [\"console\"]");
    let everybody = [("ann", ANN.1, by_certificate), ("bob", BOB.1, "rights = [\"status\"]"), dan];
    let tenants = files.tenants(&everybody);
    let shape = Shape::emulated(&["default"])
        .with(&format!("frontend.tenants={tenants}"))
        .with(&format!("frontend.tls.cert={}", cert.display()))
        .with(&format!("frontend.tls.key={}", key.display()))
        .with(&format!("frontend.tls.client_ca={}", ca.display()));
    tell("door", &shape, |cluster| {
        load_model(cluster);

        phase("a load generator that speaks plaintext is told what to give");
        for (protocol, port) in [("grpc", "grpc"), ("rest", "rest")] {
            let frontend = cluster.address("frontend", port);
            let load = ["load", "--model", "resnet=5", "--protocol", protocol, "--frontend", &frontend];
            let _ = cluster.cli(&load).ended_with(1).complains(&["it speaks TLS", "--public-ca"]);
        }

        files.tenants(&everybody);
        let pem = std::fs::read(&ca).unwrap();
        let builder = || {
            let root = reqwest::Certificate::from_pem(&pem).unwrap();
            reqwest::Client::builder().no_proxy().add_root_certificate(root)
        };
        let http = builder().build().unwrap();
        let base = format!("https://{}", cluster.address("frontend", "rest"));
        let pages = format!("https://{}", cluster.address("frontend", "metrics"));
        let grpc = format!("https://{}", cluster.address("frontend", "grpc"));
        let ready = || ModelReadyRequest { name: "resnet".into(), version: String::new() };
        let (mut eve_calls, _stranger, say, mut answers) = cluster.block_on(async {
            phase("a key is good for what its tenant may");
            until(&http, &base, Some(ANN.0), 200).await;
            let refused = async |key| {
                let Answer { status, reason, .. } = ask(&http, &base, key).await;
                (status, reason)
            };
            assert_eq!(refused(None).await, (401, "no_key".into()));
            assert_eq!(refused(Some("guess")).await, (401, "unknown_key".into()));
            assert_eq!(refused(Some(BOB.0)).await, (403, "no_right".into()));

            phase("so is a certificate");
            let (cert, key) = (std::fs::read(&eve.cert).unwrap(), std::fs::read(&eve.key).unwrap());
            let identity = reqwest::Identity::from_pem(&[cert.clone(), key.clone()].concat()).unwrap();
            let with_certificate = builder().identity(identity).build().unwrap();
            assert_eq!(ask(&with_certificate, &base, None).await.status, 200);

            phase("status pages are for those who may, metrics and health for all");
            for (page, expected) in [
                ("/api/view", [401, 403, 200, 403]),
                ("/", [401, 403, 200, 200]),
                ("/api/console", [401, 403, 403, 200]),
                ("/api/history", [401, 403, 403, 200]),
                ("/api/explain?request=f1/2/3", [401, 403, 403, 200]),
                ("/metrics", [200, 200, 200, 200]),
                ("/health/live", [200, 200, 200, 200]),
            ] {
                for (key, expected) in [None, Some(ANN.0), Some(BOB.0), Some(DAN.0)].into_iter().zip(expected) {
                    assert_eq!(status_of(&http, format!("{pages}{page}"), key).await, expected, "{page} by {key:?}");
                }
            }
            assert_eq!(status_of(&http, format!("{base}/v2/health/ready"), None).await, 200);
            let typed = http.get(format!("{pages}/api/view")).basic_auth("bob", Some(BOB.0)).send().await.unwrap();
            assert_eq!(typed.status(), 200, "a browser sends the key as a password");

            phase("gRPC over TLS, by the client library");
            let client = Client::builder().frontend(&grpc).authority(pem.clone()).key(ANN.0).build().unwrap();
            let data: Vec<u8> = (0..16).flat_map(|n| (n as f32).to_le_bytes()).collect();
            let input = Tensor::raw("INPUT0", ElementType::Fixed(DataType::Fp32), &[1, 16], data.into()).unwrap();
            let request = Request::new("resnet").input(input).within(Duration::from_secs(5)).exceed_slo();
            client.infer(request.accept_late()).await.unwrap();

            phase("gRPC by a certificate, and a stream by a key");
            let connect = async |shown: Option<tonic::transport::Identity>| {
                let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&pem));
                let tls = shown.into_iter().fold(tls, ClientTlsConfig::identity);
                let endpoint = Endpoint::from_shared(grpc.clone()).unwrap().tls_config(tls).unwrap();
                GrpcInferenceServiceClient::new(endpoint.connect().await.unwrap())
            };
            let mut eve_calls = connect(Some(tonic::transport::Identity::from_pem(&cert, &key))).await;
            assert!(eve_calls.model_ready(ready()).await.unwrap().into_inner().ready);
            let mut stranger = connect(None).await;
            assert_eq!(stranger.model_ready(ready()).await.unwrap_err().code(), Code::Unauthenticated);
            let (say, receiver) = tokio::sync::mpsc::channel(1);
            let mut call = tonic::Request::new(ReceiverStream::new(receiver));
            call.metadata_mut().insert("x-api-key", ANN.0.parse().unwrap());
            say.send(message()).await.unwrap();
            let mut answers = stranger.model_stream_infer(call).await.unwrap().into_inner();
            let first = answers.message().await.unwrap().unwrap();
            assert_eq!(first.error_message, "");

            phase("plaintext gets nothing");
            let plain = http.get(format!("http://{}/v2", cluster.address("frontend", "rest"))).send().await;
            assert!(plain.is_err(), "{plain:?}");

            phase("the file is followed, and one that cannot be used changes nothing");
            std::fs::write(files.0.join("tenants.toml"), "[[tenant]]\nname = \"ann\"\n").unwrap();
            (eve_calls, stranger, say, answers)
        });
        cluster.wait_for_log("frontend", "the changed file of tenants cannot be used").unwrap();
        cluster.block_on(async {
            assert_eq!(ask(&http, &base, Some(ANN.0)).await.status, 200);
            files.tenants(&[("bob", BOB.1, ""), ("cat", CAT.1, "")]);
            until(&http, &base, Some(CAT.0), 200).await;
            assert_eq!(ask(&http, &base, Some(ANN.0)).await.status, 401, "the key was taken out");
            assert_eq!(ask(&http, &base, Some(BOB.0)).await.status, 200, "the right is new");

            phase("also on connections and in streams that were there before");
            let refused = eve_calls.model_ready(ready()).await.unwrap_err();
            assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
            // A stream may have ended by itself.
            let _ = say.send(message()).await;
            let served = answers.message().await.is_ok_and(|answer| answer.is_some_and(|a| a.error_message.is_empty()));
            assert!(!served, "the key of the stream was taken out");
        });
        let counted = "symphony_frontend_callers_refused_total{tenant=\"\",reason=\"unknown_key\"}";
        let metrics =
            cluster.block_on(async { http.get(format!("{pages}/metrics")).send().await.unwrap().text().await });
        assert!(metrics.unwrap().contains(counted));
        assert_eq!(cluster.ended().unwrap(), None);
    });
}

/// Items that the tenant with a quota may ask for in a second, over both frontends.
const QUOTA: f64 = 40.0;

/// Asks one after the other, each as soon as the previous one is answered, for this time; returns when each was let in,
/// and what else came of the others.
async fn flood(http: reqwest::Client, base: String, key: &'static str, lasts: Duration) -> (Vec<Instant>, Vec<Answer>) {
    let (began, mut let_in, mut refused) = (Instant::now(), Vec::new(), Vec::new());
    while began.elapsed() < lasts {
        let answer = ask(&http, &base, Some(key)).await;
        match answer.status {
            200 => let_in.push(Instant::now()),
            _ => refused.push(answer),
        }
    }
    (let_in, refused)
}

#[test]
fn two_frontends_share_a_quota_and_the_flood_of_one_tenant_harms_no_other() {
    let files = Files::new("quota");
    let tenants = files.tenants(&[("ann", ANN.1, &format!("items_per_s = {QUOTA}")), ("bob", BOB.1, "")]);
    let shape = Shape::emulated(&["default"]).with_frontends(2).with(&format!("frontend.tenants={tenants}"));
    tell("quota", &shape, |cluster| {
        load_model(cluster);
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let bases = ["frontend", "frontend-2"].map(|name| format!("http://{}", cluster.address(name, "rest")));
        let pages = ["frontend", "frontend-2"].map(|name| format!("http://{}", cluster.address(name, "metrics")));
        let share = async |page: &String| {
            let metrics = http.get(format!("{page}/metrics")).send().await.unwrap().text().await.unwrap();
            let of = "symphony_frontend_tenant_quota_share_ratio{tenant=\"ann\",quota=\"items\"} ";
            metrics.lines().find_map(|line| line.strip_prefix(of)?.parse::<f64>().ok()).unwrap()
        };
        let shares_are = async |what: &str, wanted: &dyn Fn([f64; 2]) -> bool| {
            let began = Instant::now();
            loop {
                let shares = [share(&pages[0]).await, share(&pages[1]).await];
                if wanted(shares) {
                    return;
                }
                assert!(began.elapsed() < SOON, "{what}: {shares:?}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        cluster.block_on(async {
            for base in &bases {
                until(&http, base, Some(BOB.0), 200).await;
            }
            // They begin with halves: what comes of itself shows nothing.
            phase("only one is asked: it gives nearly all");
            let asking = tokio::spawn(flood(http.clone(), bases[1].clone(), ANN.0, 2 * SOON));
            shares_are("nearly all", &|[one, other]| other > 0.8 && one + other < 1.01).await;
            asking.abort();

            phase("both are asked for more than there is: each gives a half");
            let lasts = Duration::from_secs(12);
            let began = Instant::now();
            let floods: Vec<_> = bases
                .iter()
                .flat_map(|base| std::iter::repeat_n(base.clone(), 4))
                .map(|base| tokio::spawn(flood(http.clone(), base, ANN.0, lasts)))
                .collect();
            shares_are("halves", &|[one, other]| (one - 0.5).abs() < 0.1 && (other - 0.5).abs() < 0.1).await;

            phase("meanwhile the other tenant is served, at either");
            let mut served = 0;
            while began.elapsed() < lasts {
                for base in &bases {
                    let answer = ask(&http, base, Some(BOB.0)).await;
                    assert_eq!(answer.status, 200, "{answer:?}");
                    served += 1;
                }
            }
            assert!(served > 10, "{served}");
            let mut let_in = Vec::new();
            let mut refused = Vec::new();
            for flood in floods {
                let (one, others) = flood.await.unwrap();
                let_in.extend(one);
                refused.extend(others);
            }
            // Neither the burst at the beginning nor what was saved then.
            let counts = |at: &&Instant| at.duration_since(began) > Duration::from_secs(3);
            let per_second = let_in.iter().filter(counts).count() as f64 / (lasts.as_secs_f64() - 3.0);
            assert!(per_second < 1.2 * QUOTA, "{per_second} items a second were let in");
            assert!(per_second > 0.5 * QUOTA, "{per_second} items a second were let in");
            assert!(
                refused.iter().all(|answer| answer.reason == "quota" && answer.retry_after.is_some_and(|s| s >= 1))
            );
            assert!(refused.len() > let_in.len(), "{} refused, {} let in", refused.len(), let_in.len());
        });

        phase("one leaves, and the other gives all, although nobody asks for more");
        assert!(cluster.stop("frontend-2", SOON).unwrap().success());
        cluster.block_on(async {
            let began = Instant::now();
            loop {
                let share = share(&pages[0]).await;
                if share > 0.99 {
                    break;
                }
                assert!(began.elapsed() < SOON, "{share}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        assert_eq!(cluster.ended().unwrap(), None);
    });
}
