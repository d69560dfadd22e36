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

use super::coding::{Coding, PACKED_BYTES_MIN};
use super::infer_json::{self, Answer, JSON_LENGTH, respond};
use super::{Shared, reply};
use crate::oip::call::{self, CallContext, model_to_ask};
use crate::oip::limits::BODY_READ_MAX;
use crate::oip::parameters::{CallHeaders, trace_of};
use crate::oip::refusal_text::invalid;
use crate::oip::shared_regions::Regions;
use crate::oip::{
    Caller, CheckedCall, InFlightPermit, InferError, InferenceService, ModelInfo, Receipt, RefusedCall, RequestContext,
};

/// A body with more JSON than this is checked, and an answer that is longer compressed, on a thread for such work: at
/// some 100 MB/s it takes longer than 1 ms, and the threads that serve connections must not stand still for so long.
const INLINE_BYTES_MAX: usize = 128 << 10;

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
    let (receipt, arrived) = (Receipt::default(), Instant::now());
    let caller = match Caller::of(request.extensions()) {
        Ok(caller) => caller,
        Err(refused) => return reply::closing(reply::of_access(&refused)),
    };
    let trace = trace_of(request.headers());
    match take(&shared, arrived, &caller, request).await {
        Ok(taken) => {
            let answered = answer(&shared, &path, taken, &receipt).await;
            reply::named(answered.unwrap_or_else(|refused| reply::of_infer(&refused)), &receipt)
        }
        // What is left of the body ends the connection; the answer must say so, or a client that keeps its connections
        // sends the next request into nothing.
        Err(error) => {
            let context = RequestContext::of(caller, "", trace);
            shared.service.refused(&RefusedCall { model: None, context: &context, arrived, error: &error });
            reply::closing(reply::of_infer(&error))
        }
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

async fn take<S: InferenceService>(
    shared: &Shared<S>,
    arrived: Instant,
    caller: &Caller,
    request: Request,
) -> Result<Taken, InferError> {
    let permit = shared.service.begin_request(caller)?;
    let headers = Headers::parse(request.headers())?;
    let bytes_max = shared.limits.request_bytes_max;
    let body = read_bytes(request, bytes_max).await?;
    let (body, permit) = match headers.packed {
        Some(coding) => {
            let room = shared.unpacked.begin(caller.name());
            let ((body, unpacked), permit) = apart(permit, move || coding.unpack(&body, bytes_max, room)).await?;
            // It may be kept until the answer: an input is a part of it.
            (body, permit.with_unpacked(unpacked))
        }
        None => (body, permit),
    };
    Ok(Taken { arrived, caller: caller.clone(), permit, headers, body })
}

async fn answer<S: InferenceService>(
    shared: &Shared<S>,
    path: &ModelPath,
    taken: Taken,
    receipt: &Receipt,
) -> Result<Response, InferError> {
    let Taken { arrived, caller, permit, headers, body } = taken;
    let context = RequestContext::of(caller.clone(), "", headers.deadline.trace);
    let refused = |model: Option<&ModelInfo>, error: InferError| {
        shared.service.refused(&RefusedCall { model, context: &context, arrived, error: &error });
        error
    };
    let model = model_to_ask(&*shared.service, &path.model, &path.version, headers.deadline);
    let model = model.map_err(|error| refused(None, error))?;
    let checked = check(shared, &model, headers.json_bytes, body, &caller, permit).await;
    let (call, permit) = checked.map_err(|error| refused(Some(&model), error))?;
    let permit = Arc::new(permit);
    let call_context = CallContext { arrived, headers: headers.deadline, receipt, caller: &caller, permit: &permit };
    let answered = call::run(&*shared.service, &model, &call, call_context).await?;
    let answer = respond(&model, &call.id, answered);
    pack(answer, headers.answer, permit).await
}

/// The answer as its client asks for it. Small answers are not worth compressing.
async fn pack(answer: Answer, coding: Option<Coding>, permit: Arc<InFlightPermit>) -> Result<Response, InferError> {
    let coding = coding.filter(|_| answer.len() >= PACKED_BYTES_MIN);
    if coding.is_none() || answer.len() <= INLINE_BYTES_MAX {
        return Ok(answer.into_response(coding));
    }
    let (response, _permit) = apart(permit, move || Ok(answer.into_response(coding))).await?;
    Ok(response)
}

/// Checks the body; on a thread for such work if that takes long, or it may have tensors in shared memory, which waits
/// for a disk where it was swapped out.
async fn check<S: InferenceService>(
    shared: &Shared<S>,
    model: &Arc<ModelInfo>,
    json_bytes: Option<usize>,
    body: Bytes,
    caller: &Caller,
    permit: InFlightPermit,
) -> Result<(CheckedCall, InFlightPermit), InferError> {
    let regions = Regions::of(&*shared.service, caller);
    if regions.is_empty() && json_bytes.unwrap_or(body.len()) <= INLINE_BYTES_MAX {
        return Ok((infer_json::check(model, json_bytes, &body, &shared.limits, regions)?, permit));
    }
    let (shared, model, caller) = (shared.clone(), Arc::clone(model), caller.clone());
    apart(permit, move || {
        infer_json::check(&model, json_bytes, &body, &shared.limits, Regions::of(&*shared.service, &caller))
    })
    .await
}

/// Does what takes long on a thread for such work.
async fn apart<T: Send + 'static, P: Send + 'static>(
    permit: P,
    work: impl FnOnce() -> Result<T, InferError> + Send + 'static,
) -> Result<(T, P), InferError> {
    // The work goes on if the client leaves meanwhile, and so it must keep its place.
    let working = tokio::task::spawn_blocking(move || work().map(|done| (done, permit)));
    // The runtime gives such work up only when it shuts down.
    working.await.map_err(|_| InferError::Failed(FailReason::Draining))?
}

struct Headers {
    /// Of the body as it is once it is unpacked.
    json_bytes: Option<usize>,
    deadline: CallHeaders,
    /// How the body is compressed.
    packed: Option<Coding>,
    /// How the answer is to be compressed.
    answer: Option<Coding>,
}

impl Headers {
    fn parse(headers: &HeaderMap) -> Result<Self, InferError> {
        let (packed, answer) = (Coding::of_request(headers)?, Coding::of_answer(headers));
        let json_bytes = headers
            .get(&JSON_LENGTH)
            .map(|value| value.to_str().ok().and_then(|text| text.trim().parse().ok()))
            .map(|bytes| bytes.ok_or_else(|| invalid(format!("{} is no number of bytes", JSON_LENGTH.as_str()))))
            .transpose()?;
        // The gRPC deadline means nothing here.
        let deadline = CallHeaders { grpc: None, ..CallHeaders::parse(headers)? };
        Ok(Self { json_bytes, deadline, packed, answer })
    }
}

/// Reads the body of a call that is not for inference; only those may be compressed.
pub(crate) async fn read_body(request: Request, bytes_max: usize) -> Result<Bytes, InferError> {
    if Coding::of_request(request.headers())?.is_some() {
        let words = "only requests for inference may have a content-encoding; send this one as it is";
        return Err(InferError::Unsupported(words.into()));
    }
    read_bytes(request, bytes_max).await
}

/// Reads the body; the router's limit on its size applies.
async fn read_bytes(request: Request, bytes_max: usize) -> Result<Bytes, InferError> {
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
