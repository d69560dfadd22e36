//! Answers that are not tensors.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use symphony_telemetry::TRACEPARENT;

use crate::oip::parameters::REQUEST_ID_HEADER;
use crate::oip::{AccessError, ErrorStatus, InferError, Receipt, RepositoryError};

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: &'a str,
    reason: &'static str,
}

pub(crate) fn error(status: StatusCode, reason: &'static str, message: &str) -> Response {
    (status, Json(ErrorBody { error: message, reason })).into_response()
}

pub(crate) fn of_infer(refused: &InferError) -> Response {
    of_error_status(refused.error_status(), &refused.to_string())
}

/// This answer with the name of its request, if it was accepted, and its trace, if it is traced.
pub(crate) fn named(mut response: Response, receipt: &Receipt) -> Response {
    if let Some(id) = receipt.id()
        && let Ok(value) = HeaderValue::try_from(id.to_string())
    {
        response.headers_mut().insert(REQUEST_ID_HEADER, value);
    }
    if let Some(value) = receipt.trace().and_then(|trace| HeaderValue::try_from(trace.to_string()).ok()) {
        response.headers_mut().insert(TRACEPARENT, value);
    }
    response
}

/// This answer, as the last one on its connection.
pub(crate) fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

pub(crate) fn of_repository(refused: &RepositoryError) -> Response {
    of_error_status(refused.error_status(), &refused.to_string())
}

pub(crate) fn of_access(refused: &AccessError) -> Response {
    of_error_status(refused.error_status(), &refused.to_string())
}

fn of_error_status(status: ErrorStatus, message: &str) -> Response {
    let mut response = error(status.http, status.reason, message);
    if let Some((s, _)) = status.retry.after_s_and_ms() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(s));
    }
    if status.http == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
