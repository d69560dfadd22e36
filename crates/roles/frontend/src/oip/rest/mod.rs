//! REST: everything under `/v2`.

mod infer_handler;
mod infer_json;
mod pages;
mod reply;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};

use super::{InferenceService, Limits};

pub use infer_json::check_rest_infer;

/// Most bytes in the body of a call to the repository: a handful of parameters.
const REPOSITORY_BYTES_MAX: usize = 1 << 20;

/// What every handler sees.
#[derive(Debug)]
pub(crate) struct Shared<S> {
    service: Arc<S>,
    limits: Limits,
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self { service: Arc::clone(&self.service), limits: self.limits }
    }
}

/// The REST side of the public surface, ready to be served with [`serve_rest`](super::serve_rest).
pub fn rest_router<S: InferenceService>(service: Arc<S>, limits: Limits) -> Router {
    let shared = Shared { service, limits };
    let infer = Router::new()
        .route("/v2/models/{model}/infer", post(infer_handler::infer::<S>))
        .route("/v2/models/{model}/versions/{version}/infer", post(infer_handler::infer::<S>))
        .layer(DefaultBodyLimit::max(limits.request_bytes_max));
    let repository = Router::new()
        .route("/v2/repository/index", post(pages::index::<S>))
        .route("/v2/repository/models/{model}/load", post(pages::load::<S>))
        .route("/v2/repository/models/{model}/unload", post(pages::unload::<S>))
        .layer(DefaultBodyLimit::max(REPOSITORY_BYTES_MAX));
    Router::new()
        .route("/v2", get(pages::server::<S>))
        .route("/v2/health/live", get(pages::live::<S>))
        .route("/v2/health/ready", get(pages::ready::<S>))
        .route("/v2/models/stats", get(pages::all_statistics::<S>))
        .route("/v2/models/{model}", get(pages::model::<S>))
        .route("/v2/models/{model}/versions/{version}", get(pages::model::<S>))
        .route("/v2/models/{model}/ready", get(pages::model_ready::<S>))
        .route("/v2/models/{model}/versions/{version}/ready", get(pages::model_ready::<S>))
        .route("/v2/models/{model}/config", get(pages::config::<S>))
        .route("/v2/models/{model}/versions/{version}/config", get(pages::config::<S>))
        .route("/v2/models/{model}/stats", get(pages::statistics::<S>))
        .route("/v2/models/{model}/versions/{version}/stats", get(pages::statistics::<S>))
        .merge(infer)
        .merge(repository)
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(shared)
}

async fn unknown_path() -> Response {
    reply::error(StatusCode::NOT_FOUND, "unknown_path", "there is nothing at this path; everything served is under /v2")
}

async fn wrong_method() -> Response {
    reply::error(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "this path is served under another method")
}
