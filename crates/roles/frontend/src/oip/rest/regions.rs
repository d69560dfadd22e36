//! Shared memory that clients register.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::infer_handler::read_body;
use super::{Shared, reply};
use crate::oip::limits::PLAIN_MESSAGE_BYTES_MAX;
use crate::oip::refusal_text::invalid;
use crate::oip::shared_regions::{Region, Regions, close};
use crate::oip::{Caller, InferError, InferenceService, shared_memory_calls};

/// The region in a path; empty in those that mean all.
#[derive(Deserialize)]
pub(crate) struct RegionPath {
    #[serde(default)]
    region: String,
}

// Like axum's own, but a path that is no text is refused in the same words as everything else.
impl<S: Send + Sync> FromRequestParts<S> for RegionPath {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let path = Path::<Self>::from_request_parts(parts, state).await;
        path.map(|Path(path)| path).map_err(|error| reply::of_infer(&invalid(error.body_text())))
    }
}

#[derive(Deserialize)]
struct RegisterBody {
    key: String,
    #[serde(default)]
    offset: u64,
    byte_size: u64,
}

/// The caller, as the check of callers has found out.
fn caller(request: &Request) -> Result<Caller, InferError> {
    Ok(Caller::of(request.extensions())?)
}

fn answered(done: Result<Value, InferError>) -> Response {
    done.map_or_else(|refused| reply::of_infer(&refused), |answer| Json(answer).into_response())
}

/// `GET /v2/systemsharedmemory[/region/{region}]/status`.
pub(crate) async fn status<S: InferenceService>(
    State(shared): State<Shared<S>>,
    RegionPath { region }: RegionPath,
    request: Request,
) -> Response {
    let listed = caller(&request).and_then(|caller| Regions::of(&*shared.service, &caller).status(&region));
    answered(listed.map(|regions| {
        let one = |region: &Arc<Region>| {
            json!({ "name": region.name, "key": region.key, "offset": region.offset, "byte_size": region.bytes })
        };
        regions.iter().map(one).collect()
    }))
}

/// `POST /v2/systemsharedmemory/region/{region}/register`.
pub(crate) async fn register<S: InferenceService>(
    State(shared): State<Shared<S>>,
    RegionPath { region }: RegionPath,
    request: Request,
) -> Response {
    let registered = async {
        let caller = caller(&request)?;
        let body = read_body(request, PLAIN_MESSAGE_BYTES_MAX).await?;
        let expected = |error: serde_json::Error| {
            invalid(format!("the body is not what this path expects, key, byte_size and perhaps offset: {error}"))
        };
        let RegisterBody { key, offset, byte_size } = serde_json::from_slice(&body).map_err(expected)?;
        shared_memory_calls::register(&shared.service, caller, region, key, offset, byte_size).await
    };
    answered(registered.await.map(|()| json!({})))
}

/// `POST /v2/systemsharedmemory[/region/{region}]/unregister`.
pub(crate) async fn unregister<S: InferenceService>(
    State(shared): State<Shared<S>>,
    RegionPath { region }: RegionPath,
    request: Request,
) -> Response {
    let unregistered = async {
        let caller = caller(&request)?;
        // It carries nothing; unread it would end the connection.
        read_body(request, PLAIN_MESSAGE_BYTES_MAX).await?;
        let taken = Regions::of(&*shared.service, &caller).unregister(&region)?;
        close(taken).await;
        Ok::<_, InferError>(())
    };
    answered(unregistered.await.map(|()| json!({})))
}

/// `GET /v2/cudasharedmemory[/region/{region}]/status`: there is none.
pub(crate) async fn cuda_status() -> Response {
    Json(json!([])).into_response()
}

/// `POST /v2/cudasharedmemory[/region/{region}]/unregister`: clients begin with it, whether they register any or not.
pub(crate) async fn cuda_unregister(request: Request) -> Response {
    answered(read_body(request, PLAIN_MESSAGE_BYTES_MAX).await.map(|_| json!({})))
}

/// Everything else below `/v2/cudasharedmemory`.
pub(crate) async fn no_cuda() -> Response {
    let words = "CUDA shared memory is not served: its handles are for processes that use the same GPU, and requests \
                 may run on any; use system shared memory, or send the data of tensors with the request";
    reply::of_infer(&InferError::Unsupported(words.into()))
}
