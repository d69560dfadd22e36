//! REST: everything under `/v2`.

mod coding;
mod infer_handler;
mod infer_json;
mod pages;
mod regions;
mod reply;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{any, get, post};
use symphony_config::Right;
use symphony_net::CertificateNames;
use symphony_telemetry::TRACEPARENT;
use tower_http::cors::CorsLayer;

use super::caller::is_local;
use super::in_flight::UnpackedLimit;
use super::limits::{PLAIN_MESSAGE_BYTES_MAX, UNPACKED_REQUESTS_MAX};
use super::parameters::{SLO_HEADER, VERSION_HEADER};
use super::{ANY_RIGHT, InferenceService, Limits, Shown};

pub use infer_json::check_rest_infer;

/// Most bytes in the body of a call to the repository: a handful of parameters.
const REPOSITORY_BYTES_MAX: usize = 1 << 20;

/// What every handler sees.
#[derive(Debug)]
pub(crate) struct Shared<S> {
    service: Arc<S>,
    limits: Limits,
    /// For bodies that come compressed.
    unpacked: UnpackedLimit,
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self { service: Arc::clone(&self.service), limits: self.limits, unpacked: self.unpacked.clone() }
    }
}

/// The REST side of the public surface, ready to be served with [`serve_rest`](super::serve_rest). Browsers let pages
/// of `cors_origins` call it, and their calls are served; those of other pages are not.
pub fn rest_router<S: InferenceService>(service: Arc<S>, limits: Limits, cors_origins: &[String]) -> Router {
    let origins: Arc<[String]> = cors_origins.into();
    let unpacked = UnpackedLimit::new(UNPACKED_REQUESTS_MAX, limits.request_bytes_max);
    // Calls that balancers and clients make before any other are open to all.
    let open =
        Router::new().route("/v2/health/live", get(pages::live::<S>)).route("/v2/health/ready", get(pages::ready::<S>));
    let infer = Router::new()
        .route("/v2/models/{model}/infer", post(infer_handler::infer::<S>))
        .route("/v2/models/{model}/versions/{version}/infer", post(infer_handler::infer::<S>))
        .layer(DefaultBodyLimit::max(limits.request_bytes_max));
    let regions = Router::new()
        .route("/v2/systemsharedmemory/status", get(regions::status::<S>))
        .route("/v2/systemsharedmemory/region/{region}/status", get(regions::status::<S>))
        .route("/v2/systemsharedmemory/region/{region}/register", post(regions::register::<S>))
        .route("/v2/systemsharedmemory/unregister", post(regions::unregister::<S>))
        .route("/v2/systemsharedmemory/region/{region}/unregister", post(regions::unregister::<S>))
        .route("/v2/cudasharedmemory/status", get(regions::cuda_status))
        .route("/v2/cudasharedmemory/region/{region}/status", get(regions::cuda_status))
        .route("/v2/cudasharedmemory/unregister", post(regions::cuda_unregister))
        .route("/v2/cudasharedmemory/region/{region}/unregister", post(regions::cuda_unregister))
        .route("/v2/cudasharedmemory/{*call}", any(regions::no_cuda))
        .layer(DefaultBodyLimit::max(PLAIN_MESSAGE_BYTES_MAX));
    let about = Router::new()
        .route("/v2", get(pages::server::<S>))
        .route("/v2/models/{model}", get(pages::model::<S>))
        .route("/v2/models/{model}/versions/{version}", get(pages::model::<S>))
        .route("/v2/models/{model}/ready", get(pages::model_ready::<S>))
        .route("/v2/models/{model}/versions/{version}/ready", get(pages::model_ready::<S>))
        .route("/v2/models/{model}/config", get(pages::config::<S>))
        .route("/v2/models/{model}/versions/{version}/config", get(pages::config::<S>))
        .route("/v2/trace/setting", any(pages::no_settings))
        .route("/v2/models/{model}/trace/setting", any(pages::no_settings))
        .route("/v2/logging", any(pages::no_settings))
        .route("/v1/{*call}", any(pages::no_first_protocol));
    let status = Router::new()
        .route("/v2/models/stats", get(pages::all_statistics::<S>))
        .route("/v2/models/{model}/stats", get(pages::statistics::<S>))
        .route("/v2/models/{model}/versions/{version}/stats", get(pages::statistics::<S>));
    let index = Router::new()
        .route("/v2/repository/index", post(pages::index::<S>))
        .layer(DefaultBodyLimit::max(REPOSITORY_BYTES_MAX));
    let repository = Router::new()
        .route("/v2/repository/models/{model}/load", post(pages::load::<S>))
        .route("/v2/repository/models/{model}/unload", post(pages::unload::<S>))
        .layer(DefaultBodyLimit::max(REPOSITORY_BYTES_MAX));
    let behind = |routes: Router<Shared<S>>, rights: &'static [Right]| {
        let check = CallerCheck { service: Arc::clone(&service), rights, origins: Arc::clone(&origins) };
        routes.route_layer(from_fn_with_state(check, check_caller::<S>))
    };
    let router = open
        .merge(behind(infer, &[Right::Infer]))
        .merge(behind(regions, &[Right::Infer]))
        .merge(behind(about, ANY_RIGHT))
        .merge(behind(status, &[Right::Status]))
        .merge(behind(index, &[Right::Status, Right::Repository]))
        .merge(behind(repository, &[Right::Repository]))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Shared { service: Arc::clone(&service), limits, unpacked });
    with_cors(router, &origins)
}

/// The same for pages of these origins, which browsers would not let read the answers.
fn with_cors(router: Router, origins: &[String]) -> Router {
    if origins.is_empty() {
        return router;
    }
    let origins = origins.iter().filter_map(|origin| origin.parse().ok()).collect::<Vec<_>>();
    let allowed = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([axum::http::Method::GET, axum::http::Method::POST])
        .allow_headers(CORS_HEADERS.map(HeaderName::from_static))
        .expose_headers(CORS_EXPOSED.map(HeaderName::from_static));
    router.layer(allowed)
}

/// Headers that pages may send.
const CORS_HEADERS: [&str; 8] = [
    "authorization",
    "x-api-key",
    "content-type",
    "content-encoding",
    "inference-header-content-length",
    SLO_HEADER,
    VERSION_HEADER,
    TRACEPARENT,
];
/// Headers of answers that pages may read.
const CORS_EXPOSED: [&str; 4] = ["symphony-request-id", "inference-header-content-length", "retry-after", TRACEPARENT];

/// Finds out who calls the routes behind it.
struct CallerCheck<S> {
    service: Arc<S>,
    /// Rights of which the caller needs one.
    rights: &'static [Right],
    /// Their pages may call.
    origins: Arc<[String]>,
}

impl<S> Clone for CallerCheck<S> {
    fn clone(&self) -> Self {
        Self { service: Arc::clone(&self.service), rights: self.rights, origins: Arc::clone(&self.origins) }
    }
}

/// Finds out who calls before the body is read.
async fn check_caller<S: InferenceService>(
    State(check): State<CallerCheck<S>>,
    mut request: Request,
    next: Next,
) -> Response {
    let names = request.extensions().get::<CertificateNames>();
    let shown = Shown { headers: request.headers(), certificate: names.map_or(&[][..], CertificateNames::get) };
    let known = shown.check_origin(&check.origins).and_then(|()| check.service.authenticate(&shown, check.rights));
    match known {
        Ok(caller) => {
            let is_local = is_local(request.extensions(), request.headers());
            request.extensions_mut().insert(caller.with_locality(is_local));
            next.run(request).await
        }
        // The body is not read, which ends the connection.
        Err(refused) => reply::closing(reply::of_access(&refused)),
    }
}

async fn unknown_path() -> Response {
    reply::error(StatusCode::NOT_FOUND, "unknown_path", "there is nothing at this path; everything served is under /v2")
}

async fn wrong_method() -> Response {
    reply::error(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "this path is served under another method")
}
