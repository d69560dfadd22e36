//! The handler of inference calls: admits, reads, checks, runs and answers them.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequest, FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use symphony_types::FailReason;

use super::infer_json::{JSON_LENGTH, check_rest_infer, respond};
use super::{Shared, reply};
use crate::oip::call::{self, find_model};
use crate::oip::inputs::invalid;
use crate::oip::limits::BODY_READ_MAX;
use crate::oip::parameters::DeadlineHeaders;
use crate::oip::{Caller, InFlightPermit, InferError, InferenceService, Receipt};

/// A body with more JSON than this is checked on a thread for such work: at some 100 MB/s it takes longer than 1 ms,
/// and the threads that serve connections must not stand still for so long.
const INLINE_JSON_BYTES_MAX: usize = 128 << 10;

#[derive(Deserialize)]
pub(crate) struct ModelPath {
    pub(crate) model: String,
    #[serde(default)]
    pub(crate) version: String,
}

// Like axum's own, but a path that is no text is refused in the same words as everything else.
impl<S: Send + Sync> FromRequestParts<S> for ModelPath {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let path = Path::<Self>::from_request_parts(parts, state).await;
        path.map(|Path(path)| path).map_err(|error| reply::of_infer(&invalid(error.body_text())))
    }
}

/// `POST /v2/models/{model}[/versions/{version}]/infer`.
pub(crate) async fn infer<S: InferenceService>(
    State(shared): State<Shared<S>>,
    path: ModelPath,
    request: Request,
) -> Response {
    let receipt = Receipt::default();
    match take(&shared, request).await {
        Ok(taken) => {
            let answered = answer(&shared, &path, taken, &receipt).await;
            reply::named(answered.unwrap_or_else(|refused| reply::of_infer(&refused)), &receipt)
        }
        // What is left of the body ends the connection; that must be said, or a client that keeps its connections
        // sends the next request into nothing.
        Err(refused) => reply::closing(reply::of_infer(&refused)),
    }
}

/// A request that was read.
struct Taken {
    arrived: Instant,
    caller: Caller,
    permit: InFlightPermit,
    headers: Headers,
    body: Bytes,
}

async fn take<S: InferenceService>(shared: &Shared<S>, request: Request) -> Result<Taken, InferError> {
    let arrived = Instant::now();
    // Put there by the door, which stands before this.
    let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
    let permit = shared.service.admit(&caller)?;
    let headers = Headers::parse(request.headers())?;
    let body = read_body(request, shared.limits.request_bytes_max).await?;
    Ok(Taken { arrived, caller, permit, headers, body })
}

async fn answer<S: InferenceService>(
    shared: &Shared<S>,
    path: &ModelPath,
    taken: Taken,
    receipt: &Receipt,
) -> Result<Response, InferError> {
    let Taken { arrived, caller, permit, headers, body } = taken;
    let (mut permit, limits) = (Some(permit), shared.limits);
    let model = find_model(&*shared.service, &path.model, &path.version)?;

    let json_bytes = headers.json_bytes;
    let call = if json_bytes.unwrap_or(body.len()) <= INLINE_JSON_BYTES_MAX {
        check_rest_infer(&model, json_bytes, &body, &limits)?
    } else {
        let model = Arc::clone(&model);
        // The work goes on if the client leaves meanwhile, and so it must keep its place.
        let held = permit.take();
        let checked = tokio::task::spawn_blocking(move || {
            check_rest_infer(&model, json_bytes, &body, &limits).map(|call| (call, held))
        });
        let checked = checked.await;
        // The runtime gives such work up only when it shuts down.
        let (call, held) = checked.map_err(|_| InferError::Failed(FailReason::Draining))??;
        permit = held;
        call
    };
    let answered = call::run(&*shared.service, &model, &call, arrived, headers.deadline, receipt, &caller).await?;
    let response = respond(&model, &call.id, answered);
    drop(permit);
    Ok(response)
}

struct Headers {
    json_bytes: Option<usize>,
    deadline: DeadlineHeaders,
}

impl Headers {
    fn parse(headers: &HeaderMap) -> Result<Self, InferError> {
        if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
            && encoding != "identity"
        {
            return Err(InferError::Unsupported("compressed requests are not supported: send it as it is".into()));
        }
        let json_bytes = headers
            .get(&JSON_LENGTH)
            .map(|value| value.to_str().ok().and_then(|text| text.trim().parse().ok()))
            .map(|bytes| bytes.ok_or_else(|| invalid(format!("{} is no number of bytes", JSON_LENGTH.as_str()))))
            .transpose()?;
        // The gRPC deadline means nothing here.
        let deadline = DeadlineHeaders { grpc: None, ..DeadlineHeaders::parse(headers)? };
        Ok(Self { json_bytes, deadline })
    }
}

/// Reads the body; the router's limit on its size applies.
pub(crate) async fn read_body(request: Request, bytes_max: usize) -> Result<Bytes, InferError> {
    let stated = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if stated.is_some_and(|bytes: u64| bytes > bytes_max as u64) {
        return Err(InferError::TooLarge { bytes_max });
    }
    let body = tokio::time::timeout(BODY_READ_MAX, Bytes::from_request(request, &())).await;
    body.map_err(|_| InferError::BodyTimeout)?.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => InferError::TooLarge { bytes_max },
        _ => invalid("the body did not arrive whole".into()),
    })
}
