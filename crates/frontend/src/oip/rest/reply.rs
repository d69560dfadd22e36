//! Answers that are not tensors.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::oip::limits::RETRY_AFTER;
use crate::oip::{Face, InferError, RepositoryError, Retry};

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: &'a str,
    reason: &'static str,
}

pub(crate) fn error(status: StatusCode, reason: &'static str, message: &str) -> Response {
    (status, Json(ErrorBody { error: message, reason })).into_response()
}

pub(crate) fn of_infer(refused: &InferError) -> Response {
    of_face(refused.face(), &refused.to_string())
}

/// The same answer, as the last one on its connection.
pub(crate) fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

pub(crate) fn of_repository(refused: &RepositoryError) -> Response {
    of_face(refused.face(), &refused.to_string())
}

fn of_face(face: Face, message: &str) -> Response {
    let mut response = error(face.http, face.reason, message);
    if face.retry == Retry::Later {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER.as_secs()));
    }
    response
}
