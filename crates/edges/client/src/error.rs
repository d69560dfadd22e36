//! Errors of requests, and whether a failed request may have run.

use std::time::Duration;

use symphony_protocol::parameters::{PUSHBACK_TRAILER, REASON_TRAILER, REQUEST_ID_HEADER};
use tonic::{Code, ConnectError, Status};

use crate::answer::BadAnswer;
use crate::limits;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is invalid, and was not sent.
    #[error("invalid request: {0}")]
    InvalidRequest(String),
    /// This client has reached its limit of requests in flight; the request was not sent.
    #[error(
        "{in_flight_max} requests are in flight, the most this client has at once; wait for answers, or raise in_flight_max"
    )]
    TooManyInFlight {
        /// The limit.
        in_flight_max: usize,
    },
    /// No frontend takes requests; none of them got it.
    #[error("no frontend can be asked: {0}")]
    Unreachable(String),
    /// A frontend answered with an error.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The connection ended before the answer came.
    #[error("the connection to {frontend} ended before the answer came ({reason}); the request may have run")]
    Lost {
        /// The frontend that had it.
        frontend: String,
        /// What went wrong.
        reason: String,
    },
    /// No answer came in time, not even the frontend's answer about the deadline.
    #[error("{frontend} said nothing within {} ms; the request may have run", .within.as_millis())]
    NoAnswer {
        /// The frontend that had it.
        frontend: String,
        /// How long it was waited for.
        within: Duration,
    },
    /// The answer is invalid.
    #[error("{frontend} sent no answer of the protocol: {source}")]
    BadAnswer {
        /// The frontend that sent it.
        frontend: String,
        /// The defect.
        source: BadAnswer,
    },
    /// The answer is that to another request.
    #[error("{frontend} answered request `{got}` instead of `{asked}`")]
    Misdirected {
        /// The frontend that sent it.
        frontend: String,
        /// This request.
        asked: String,
        /// The one it names.
        got: String,
    },
}

/// A frontend's refusal.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Address of the frontend that refused.
    pub frontend: String,
    /// The status of gRPC.
    pub code: Code,
    /// The machine-readable reason, for example `slo_unreachable`; empty if a proxy answered.
    pub reason: String,
    /// The message, as text.
    pub message: String,
    /// What `symphony explain` knows the request as; none if it was not accepted.
    pub request_id: Option<String>,
    /// When the same request may succeed, if the frontend says that it may.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// Whether it is certain that the frontend did not accept the request: the error came from a frontend, and the
    /// request was given no name.
    #[must_use]
    pub fn was_not_accepted(&self) -> bool {
        !self.reason.is_empty() && self.request_id.is_none()
    }
}

impl Error {
    /// Whether it is certain that no frontend accepted the request: it has not run and will not.
    #[must_use]
    pub fn was_not_accepted(&self) -> bool {
        match self {
            Self::InvalidRequest(_) | Self::TooManyInFlight { .. } | Self::Unreachable(_) => true,
            Self::Refused(refusal) => refusal.was_not_accepted(),
            Self::Lost { .. } | Self::NoAnswer { .. } | Self::BadAnswer { .. } | Self::Misdirected { .. } => false,
        }
    }

    /// The frontend's refusal, if it is one.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    pub(crate) fn no_connection() -> Self {
        Self::Unreachable(format!("no connection came up in {} attempts", limits::ATTEMPTS_MAX))
    }

    /// Whether another frontend may be asked at once: this one has not accepted the request, because of its own state
    /// and not because of the request.
    pub(crate) fn another_may_be_asked(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.was_not_accepted() && refusal.retry_after.is_some())
    }
}

/// The meaning of a failed call.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There was no connection: no frontend has read the request.
    NotSent(String),
    /// A frontend or a proxy has answered.
    Said(Refusal),
    /// There was no answer, and the request may have been read.
    Lost(String),
}

impl Failure {
    pub(crate) fn of(status: &Status, frontend: &str) -> Self {
        if let Some(connect) = chain(status).find_map(|cause| cause.downcast_ref::<ConnectError>()) {
            return Self::NotSent(innermost(connect));
        }
        // A status made by the transport has a local cause; a received one has none.
        if std::error::Error::source(status).is_some() {
            return Self::Lost(innermost(status));
        }
        let text = |name: &str| status.metadata().get(name).and_then(|value| value.to_str().ok());
        let pushback = text(PUSHBACK_TRAILER).and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
        Self::Said(Refusal {
            frontend: frontend.to_owned(),
            code: status.code(),
            reason: text(REASON_TRAILER).unwrap_or_default().to_owned(),
            message: status.message().to_owned(),
            request_id: text(REQUEST_ID_HEADER).map(str::to_owned),
            retry_after: pushback,
        })
    }
}

fn chain<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// The text of the innermost cause, which is the most precise.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    chain(error).last().map_or_else(String::new, ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_with(trailers: &[(&'static str, &str)]) -> Refusal {
        let mut status = Status::new(Code::Unavailable, "no");
        for (name, value) in trailers {
            status.metadata_mut().insert(*name, value.parse().unwrap());
        }
        match Failure::of(&status, "f:1") {
            Failure::Said(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_was_certainly_not_accepted_may_go_to_another_frontend() {
        let reason = (REASON_TRAILER, "draining");
        let pushback = (PUSHBACK_TRAILER, "1000");
        let named = (REQUEST_ID_HEADER, "f1/2/3");
        let cases = [
            (vec![reason, pushback], true, true),
            (vec![reason], true, false),
            (vec![reason, pushback, named], false, false),
            // A proxy in between, which cannot know.
            (vec![pushback], false, false),
            (vec![], false, false),
        ];
        for (trailers, not_accepted, another) in cases {
            let error = Error::Refused(Box::new(refusal_with(&trailers)));
            assert_eq!(
                (error.was_not_accepted(), error.another_may_be_asked()),
                (not_accepted, another),
                "{trailers:?}"
            );
        }
        assert_eq!(refusal_with(&[pushback]).retry_after, Some(Duration::from_secs(1)));
        assert!(Error::Unreachable(String::new()).was_not_accepted());
        let lost = Error::Lost { frontend: String::new(), reason: String::new() };
        assert!(!lost.was_not_accepted() && !lost.another_may_be_asked());
    }

    #[test]
    fn a_connection_that_was_not_made_is_told_from_one_that_was_lost() {
        let refused = || std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "nobody listens");
        let not_made = Status::from_error(Box::new(ConnectError(Box::new(refused()))));
        assert!(matches!(Failure::of(&not_made, ""), Failure::NotSent(reason) if reason == "nobody listens"));
        let lost = Status::from_error(Box::new(refused()));
        assert!(matches!(Failure::of(&lost, ""), Failure::Lost(reason) if reason == "nobody listens"));
    }
}
