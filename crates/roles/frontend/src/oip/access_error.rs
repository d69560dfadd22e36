//! Why callers are turned away.

use axum::http::StatusCode;
use symphony_config::Right;
use tonic::Code;

use super::error_status::{ErrorStatus, Retry};

/// Why a caller is turned away before its request is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// It shows nothing.
    #[error("this server needs a key: send the header `authorization: Bearer KEY` or `x-api-key: KEY`")]
    NoKey,
    /// No tenant has this key.
    #[error("the key is not known here")]
    UnknownKey,
    /// No tenant has this certificate.
    #[error("no tenant has the name in this certificate, and no key was sent")]
    UnknownCertificate,
    /// It may not do this.
    #[error("this takes the right {}, which the tenant does not have", words(.0))]
    NoRight(&'static [Right]),
    /// A page of another origin calls through a browser.
    #[error(
        "a page of another origin calls, and shows no key: send one, or add the page's origin to frontend.cors_origins"
    )]
    ForeignOrigin,
    /// It is not of this host, whose shared memory it wants.
    #[error(
        "shared memory is for clients on the frontend's own host that connect over its loopback: call 127.0.0.1, or \
         send the data of tensors with the request"
    )]
    NotLocal,
    /// The call came past the check of callers: its caller is not known, and so it has no rights and no quotas.
    #[error("this server did not identify the caller, which is its own fault")]
    CallerUnknown,
}

fn words(rights: &[Right]) -> String {
    let words: Vec<_> = rights.iter().map(|right| format!("`{}`", right.label())).collect();
    words.join(" or ")
}

impl AccessError {
    /// The reasons of a refused caller that are counted.
    pub(crate) const REASONS: [&str; 4] = ["no_key", "unknown_key", "unknown_certificate", "no_right"];

    /// Status codes and reason.
    #[must_use]
    pub const fn error_status(&self) -> ErrorStatus {
        let [no_key, unknown_key, unknown_certificate, no_right] = Self::REASONS;
        let (http, grpc, reason) = match self {
            Self::NoKey => (StatusCode::UNAUTHORIZED, Code::Unauthenticated, no_key),
            Self::UnknownKey => (StatusCode::UNAUTHORIZED, Code::Unauthenticated, unknown_key),
            Self::UnknownCertificate => (StatusCode::UNAUTHORIZED, Code::Unauthenticated, unknown_certificate),
            Self::NoRight(_) => (StatusCode::FORBIDDEN, Code::PermissionDenied, no_right),
            Self::ForeignOrigin => (StatusCode::FORBIDDEN, Code::PermissionDenied, "foreign_origin"),
            Self::NotLocal => (StatusCode::FORBIDDEN, Code::PermissionDenied, "not_local"),
            Self::CallerUnknown => (StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, "internal"),
        };
        ErrorStatus { http, grpc, reason, retry: Retry::No }
    }
}
