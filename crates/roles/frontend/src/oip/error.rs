//! Everything that can be answered instead of a result, and the one place that maps it to HTTP and gRPC.

use axum::http::StatusCode;
use symphony_protocol::view::NoGpu;
use symphony_types::{DropReason, FailReason, Nanos};
use tonic::Code;

use super::AccessError;
use super::error_status::{ErrorStatus, Fault, Retry};

/// Why a request has no answer. The labels are part of the public surface: clients and alerts match on them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// No model of that name, or not in that version.
    #[error("{0}")]
    UnknownModel(String),
    /// The request is not what the protocol or the model's signature asks for.
    #[error("{0}")]
    InvalidRequest(String),
    /// A picture whose header was right cannot be decoded.
    #[error("{0}")]
    BadPicture(String),
    /// As many pictures wait to be decoded as may.
    #[error("{waiting_max} pictures wait to be decoded, the most this server takes; try again later")]
    DecodersBusy {
        /// The limit.
        waiting_max: usize,
    },
    /// Decoded pictures, and what pipelines hold between their stages, have used up their memory.
    #[error(
        "decoded pictures, and what pipelines hold between their stages, take up to {bytes_max} bytes, the most this \
         server holds; try again later"
    )]
    DecodedFull {
        /// The limit.
        bytes_max: u64,
    },
    /// The request has more bytes than the server takes.
    #[error("the request is larger than {bytes_max} bytes, the most this server takes; send fewer items at once")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// A compressed message of gRPC has more bytes, or becomes more, than the server unpacks.
    #[error(
        "the compressed message has or becomes more than {bytes_max} bytes, the most this server unpacks over gRPC; \
         send it uncompressed, or over REST"
    )]
    PackedTooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// Unpacked requests in flight have used up their memory.
    #[error(
        "compressed requests in flight take up to {bytes_max} bytes unpacked, the most this server holds; try again \
         later, or send the request uncompressed"
    )]
    UnpackedFull {
        /// The limit.
        bytes_max: usize,
    },
    /// The tenant's unpacked requests in flight have used up its part of that memory.
    #[error(
        "compressed requests of tenant `{tenant}` in flight take up to {bytes_max} bytes unpacked, the most it may \
         have here; try again later, or send the request uncompressed"
    )]
    TenantUnpacked {
        /// Name of the tenant.
        tenant: String,
        /// The limit.
        bytes_max: usize,
    },
    /// The client took too long to send the request.
    #[error("the body of the request did not arrive within {} s", super::limits::BODY_READ_MAX.as_secs())]
    BodyTimeout,
    /// Part of the protocol that is not served here.
    #[error("{0}")]
    Unsupported(String),
    /// No region of shared memory of that name, which is shortened.
    #[error("there is no region `{0}` of shared memory here; register it with this frontend")]
    UnknownRegion(String),
    /// There is one already.
    #[error("there is a region `{0}` of shared memory already; unregister it, or choose another name")]
    RegionExists(String),
    /// Another tenant has registered the object of that name, which is shortened.
    #[error("the shared memory `{0}` is registered by others already; give yours another name")]
    ObjectTaken(String),
    /// As many regions are registered as may be.
    #[error("{regions_max} regions of shared memory are registered, the most this server keeps; unregister some")]
    RegionsFull {
        /// The limit.
        regions_max: usize,
    },
    /// The host has no memory left for what is to be written to the region of that name, which is shortened.
    #[error("region `{0}` cannot be written: the frontend's host has no shared memory left; try again later")]
    SharedMemoryFull(String),
    /// The server holds as many requests as it may.
    #[error("{in_flight_max} requests are in flight, the most this server takes; try again later")]
    Busy {
        /// The limit.
        in_flight_max: usize,
    },
    /// Less time is allowed than its batch takes, whatever else there is to do.
    #[error(
        "the deadline leaves {} ms, and a batch of its {items} {} alone takes {} ms by the model's profile: allow more time",
        .allowed.as_millis_f64(), if *.items == 1 { "item" } else { "items" }, .alone.as_millis_f64()
    )]
    TooLittleTime {
        /// The time, by the client's words or the model's SLO.
        allowed: Nanos,
        /// Items of the request.
        items: u32,
        /// ℓ(items) on the fastest kind of GPU.
        alone: Nanos,
    },
    /// Less time is allowed than the stages of a pipeline take one after the other.
    #[error(
        "the deadline leaves {} ms, and the stages of the pipeline take {} ms at least, one after the other, by the \
         profiles of their models: allow more time",
        .allowed.as_millis_f64(), .least.as_millis_f64()
    )]
    TooLittleForStages {
        /// The time, by the client's words or the pipeline's SLO.
        allowed: Nanos,
        /// ℓ(1) of each stage of the longest path, and the hops between them.
        least: Nanos,
    },
    /// A stage of a pipeline cannot be asked, or has lost its request.
    #[error("stage `{stage}`{}: {error}", of_request(.request))]
    Stage {
        /// Name of the stage.
        stage: String,
        /// What `symphony explain` knows its request as; empty if it was none.
        request: String,
        /// The error of the stage.
        error: Box<InferError>,
    },
    /// No backend is there to run it.
    #[error("the model is not ready: {0}; try again later")]
    NoGpu(NoGpu),
    /// The caller of a stream is known no longer, or may no longer ask models.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A quota of the tenant is used up.
    #[error(
        "tenant `{tenant}` has used up its quota of {per_second} {} a second over all frontends; try again in {} ms",
        .kind.words(), .wait.as_millis_f64().ceil()
    )]
    QuotaExceeded {
        /// Name of the tenant.
        tenant: String,
        /// What the quota counts.
        kind: QuotaKind,
        /// The quota.
        per_second: String,
        /// When something may be let in again.
        wait: Nanos,
    },
    /// The tenant has as many requests in flight as it may.
    #[error("tenant `{tenant}` has {in_flight_max} requests in flight, the most it may have here; try again later")]
    TenantBusy {
        /// Name of the tenant.
        tenant: String,
        /// The limit.
        in_flight_max: usize,
    },
    /// The scheduler gave the request up.
    #[error("the request was dropped: {}", explain_drop(*.0))]
    Dropped(DropReason),
    /// The request could not be served.
    #[error("the request failed: {}", explain_failure(*.0))]
    Failed(FailReason),
    /// The answer came after the deadline, and the client does not accept late answers.
    #[error(
        "the answer came after the deadline; allow more time, or set the parameter symphony_accept_late to have it anyway"
    )]
    Late,
    /// The deadline that the client gave has passed and there is no answer yet.
    #[error("the deadline of the call has passed")]
    DeadlinePassed,
    /// The request was withdrawn.
    #[error("the request was cancelled")]
    Cancelled,
}

/// What a quota limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// Items of requests.
    Items,
    /// The GPU time that they take by the model's profile.
    GpuSeconds,
}

impl QuotaKind {
    const fn words(self) -> &'static str {
        match self {
            Self::Items => "items",
            Self::GpuSeconds => "seconds of GPU time",
        }
    }
}

/// Why a repository call was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepositoryError {
    /// No model of that name.
    #[error("{0}")]
    UnknownModel(String),
    /// The caller has not shown that it may.
    #[error(
        "loading and unloading models needs the header `authorization: Bearer TOKEN` with the token of this frontend's operators"
    )]
    Unauthenticated,
    /// The parameters make no sense, or the model is not as it should be.
    #[error("{0}")]
    InvalidRequest(String),
    /// This frontend does not load models.
    #[error("{0}")]
    Unsupported(String),
    /// No replica can decide it.
    #[error("{0}")]
    Unavailable(String),
    /// There is no backend to load it.
    #[error("{0}")]
    NoGpu(String),
    /// It was tried and did not work.
    #[error("{0}")]
    Failed(String),
}

// HTTP has no code of its own for a client that has gone; this one is what web servers write to their logs.
const CLIENT_CLOSED_REQUEST: u16 = 499;

const fn no_retry(http: StatusCode, grpc: Code, reason: &'static str) -> ErrorStatus {
    ErrorStatus { http, grpc, reason, retry: Retry::No }
}

const fn retry_later(http: StatusCode, grpc: Code, reason: &'static str) -> ErrorStatus {
    ErrorStatus { http, grpc, reason, retry: Retry::Later }
}

impl InferError {
    /// Status codes, reason and advice: the only place that knows them.
    #[must_use]
    pub fn error_status(&self) -> ErrorStatus {
        match self {
            Self::UnknownModel(_) => no_retry(StatusCode::NOT_FOUND, Code::NotFound, "unknown_model"),
            Self::InvalidRequest(_) => no_retry(StatusCode::BAD_REQUEST, Code::InvalidArgument, "invalid_request"),
            Self::BadPicture(_) => no_retry(StatusCode::BAD_REQUEST, Code::InvalidArgument, "bad_picture"),
            Self::DecodersBusy { .. } => {
                retry_later(StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted, "decoders_busy")
            }
            Self::DecodedFull { .. } => {
                retry_later(StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted, "decoded_pictures_full")
            }
            Self::TooLarge { .. } | Self::PackedTooLarge { .. } => {
                no_retry(StatusCode::PAYLOAD_TOO_LARGE, Code::ResourceExhausted, "request_too_large")
            }
            Self::BodyTimeout => no_retry(StatusCode::REQUEST_TIMEOUT, Code::DeadlineExceeded, "body_timeout"),
            Self::Unsupported(_) => no_retry(StatusCode::NOT_IMPLEMENTED, Code::Unimplemented, "unsupported"),
            Self::UnknownRegion(_) => no_retry(StatusCode::NOT_FOUND, Code::NotFound, "unknown_region"),
            Self::RegionExists(_) | Self::ObjectTaken(_) => {
                no_retry(StatusCode::CONFLICT, Code::AlreadyExists, "region_exists")
            }
            Self::RegionsFull { .. } => {
                no_retry(StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted, "regions_full")
            }
            Self::SharedMemoryFull(_) => {
                retry_later(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, "shared_memory_full")
            }
            Self::Busy { .. } | Self::UnpackedFull { .. } => {
                retry_later(StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted, "too_many_requests")
            }
            Self::Stage { error, .. } => error.error_status(),
            Self::TooLittleTime { .. } | Self::TooLittleForStages { .. } => {
                no_retry(StatusCode::GATEWAY_TIMEOUT, Code::DeadlineExceeded, DropReason::SloUnreachable.label())
            }
            Self::NoGpu(_) => {
                retry_later(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, FailReason::NoGpu.label())
            }
            Self::Access(refused) => refused.error_status(),
            Self::QuotaExceeded { wait, .. } => {
                let retry = Retry::After(*wait);
                ErrorStatus { retry, ..retry_later(StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted, "quota") }
            }
            Self::TenantBusy { .. } | Self::TenantUnpacked { .. } => {
                retry_later(StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted, "tenant_busy")
            }
            Self::Dropped(reason) => {
                let label = reason.label();
                match reason {
                    DropReason::QueueFull | DropReason::Shed => {
                        retry_later(StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted, label)
                    }
                    // A batch worth running was out of reach of this deadline: with more time it would have been
                    // served.
                    DropReason::SloUnreachable | DropReason::ProtectBatch | DropReason::QueueExpired => {
                        no_retry(StatusCode::GATEWAY_TIMEOUT, Code::DeadlineExceeded, label)
                    }
                }
            }
            Self::Failed(reason) => {
                let label = reason.label();
                match reason {
                    FailReason::ExecutionFailed | FailReason::SchedulerPanicked => {
                        no_retry(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, label)
                    }
                    FailReason::NoAnswer => no_retry(StatusCode::GATEWAY_TIMEOUT, Code::DeadlineExceeded, label),
                    FailReason::NoGpu
                    | FailReason::ModelNotReady
                    | FailReason::PayloadLost
                    | FailReason::ControlPlaneLost
                    | FailReason::OutOfMemory
                    | FailReason::GpuLost
                    | FailReason::Draining => retry_later(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, label),
                }
            }
            Self::Late => no_retry(StatusCode::GATEWAY_TIMEOUT, Code::DeadlineExceeded, "late"),
            Self::DeadlinePassed => no_retry(StatusCode::GATEWAY_TIMEOUT, Code::DeadlineExceeded, "deadline_passed"),
            Self::Cancelled => {
                let http = StatusCode::from_u16(CLIENT_CLOSED_REQUEST).unwrap_or(StatusCode::BAD_REQUEST);
                no_retry(http, Code::Cancelled, "cancelled")
            }
        }
    }

    /// Whose doing it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Stage { error, .. } => error.fault(),
            Self::UnknownModel(_)
            | Self::InvalidRequest(_)
            | Self::BadPicture(_)
            | Self::TooLarge { .. }
            | Self::PackedTooLarge { .. }
            | Self::BodyTimeout
            | Self::Unsupported(_)
            | Self::UnknownRegion(_)
            | Self::RegionExists(_)
            | Self::ObjectTaken(_)
            | Self::RegionsFull { .. }
            | Self::TooLittleTime { .. }
            | Self::TooLittleForStages { .. }
            | Self::QuotaExceeded { .. }
            | Self::TenantBusy { .. }
            | Self::TenantUnpacked { .. }
            | Self::Cancelled => Fault::Client,
            Self::Access(AccessError::CallerUnknown) => Fault::Server,
            Self::Access(_) => Fault::Client,
            Self::DecodersBusy { .. }
            | Self::DecodedFull { .. }
            | Self::SharedMemoryFull(_)
            | Self::Busy { .. }
            | Self::UnpackedFull { .. }
            | Self::NoGpu(_)
            | Self::Dropped(_)
            | Self::Failed(_)
            | Self::Late
            | Self::DeadlinePassed => Fault::Server,
        }
    }
}

impl RepositoryError {
    /// Status codes, reason and advice.
    #[must_use]
    pub const fn error_status(&self) -> ErrorStatus {
        match self {
            Self::UnknownModel(_) => no_retry(StatusCode::NOT_FOUND, Code::NotFound, "unknown_model"),
            Self::Unauthenticated => no_retry(StatusCode::UNAUTHORIZED, Code::Unauthenticated, "unauthenticated"),
            Self::InvalidRequest(_) => no_retry(StatusCode::BAD_REQUEST, Code::InvalidArgument, "invalid_request"),
            Self::Unsupported(_) => no_retry(StatusCode::NOT_IMPLEMENTED, Code::Unimplemented, "unsupported"),
            Self::Unavailable(_) => retry_later(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, "unavailable"),
            Self::NoGpu(_) => {
                retry_later(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, FailReason::NoGpu.label())
            }
            Self::Failed(_) => no_retry(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, "load_failed"),
        }
    }
}

fn of_request(request: &str) -> String {
    if request.is_empty() { String::new() } else { format!(" (request {request})") }
}

const fn explain_drop(reason: DropReason) -> &'static str {
    match reason {
        DropReason::SloUnreachable => "its deadline could not be met even alone on an idle GPU; allow more time",
        DropReason::ProtectBatch => "serving it by its deadline would have cost others theirs; allow more time",
        DropReason::QueueExpired => "its deadline passed while it waited",
        DropReason::QueueFull => "the queue of the model is full; try again later",
        DropReason::Shed => "the models' GPUs are overloaded, and this model gives up its part; try again later",
    }
}

const fn explain_failure(reason: FailReason) -> &'static str {
    match reason {
        FailReason::NoGpu => {
            "no GPU takes the model now: its backends are down, drained or do not answer; try again later"
        }
        FailReason::ExecutionFailed => "the executor reported an error",
        FailReason::NoAnswer => "no answer came within the deadline and the grace that follows it",
        FailReason::ModelNotReady => "the model is not ready",
        FailReason::OutOfMemory => "its batch needed more memory than the GPU has for batches; try again later",
        FailReason::GpuLost => "the GPU failed with its batch, and is given no more; try again",
        FailReason::PayloadLost => "its input did not arrive whole at the backend",
        FailReason::Draining => "the server is shutting down",
        FailReason::ControlPlaneLost => "the schedulers have lost their quorum and serve no longer; try again later",
        FailReason::SchedulerPanicked => {
            "two schedulers in turn panicked while they had it, perhaps because of it; their logs say where"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOO_LITTLE_TIME: InferError =
        InferError::TooLittleTime { allowed: Nanos::from_millis(1), items: 1, alone: Nanos::from_micros(6125) };

    #[test]
    fn too_little_time_is_said_in_numbers() {
        let words = "the deadline leaves 1 ms, and a batch of its 1 item alone takes 6.125 ms by the model's profile";
        assert!(TOO_LITTLE_TIME.to_string().starts_with(words), "{TOO_LITTLE_TIME}");
        assert_eq!(TOO_LITTLE_TIME.error_status().reason, "slo_unreachable");
    }

    const TOO_LITTLE_FOR_STAGES: InferError =
        InferError::TooLittleForStages { allowed: Nanos::from_millis(1), least: Nanos::from_millis(2) };

    fn of_stage(error: InferError) -> InferError {
        InferError::Stage { stage: "detect".into(), request: "f2/9/7".into(), error: Box::new(error) }
    }

    #[test]
    fn a_stage_is_named_with_its_own_reason() {
        let lost = of_stage(InferError::Dropped(DropReason::QueueFull));
        let words = "stage `detect` (request f2/9/7): the request was dropped: the queue of the model is full";
        assert!(lost.to_string().starts_with(words), "{lost}");
        assert_eq!((lost.error_status().reason, lost.fault().label()), ("queue_full", "server"));
        assert_eq!(TOO_LITTLE_FOR_STAGES.error_status().reason, "slo_unreachable");
    }

    fn quota(wait: Nanos) -> InferError {
        InferError::QuotaExceeded { tenant: "a".into(), kind: QuotaKind::Items, per_second: "20".into(), wait }
    }

    #[test]
    fn who_has_used_up_a_quota_is_told_which_and_until_when() {
        let used_up = quota(Nanos::from_micros(1_400_100));
        assert_eq!(
            used_up.to_string(),
            "tenant `a` has used up its quota of 20 items a second over all frontends; try again in 1401 ms"
        );
        assert_eq!(used_up.error_status().retry.after_s_and_ms(), Some((2, 1401)), "no earlier");
        assert_eq!(quota(Nanos::MAX).error_status().retry.after_s_and_ms(), Some((60, 60_000)));
        assert_eq!(Retry::Later.after_s_and_ms(), Some((1, 1000)));
    }

    #[test]
    fn every_end_of_a_request_has_the_status_that_the_documentation_promises() {
        let expected = [
            (InferError::UnknownModel(String::new()), 404, Code::NotFound, Retry::No),
            (InferError::InvalidRequest(String::new()), 400, Code::InvalidArgument, Retry::No),
            (InferError::BadPicture(String::new()), 400, Code::InvalidArgument, Retry::No),
            (InferError::DecodersBusy { waiting_max: 1 }, 429, Code::ResourceExhausted, Retry::Later),
            (InferError::DecodedFull { bytes_max: 1 }, 429, Code::ResourceExhausted, Retry::Later),
            (InferError::TooLarge { bytes_max: 1 }, 413, Code::ResourceExhausted, Retry::No),
            (InferError::PackedTooLarge { bytes_max: 1 }, 413, Code::ResourceExhausted, Retry::No),
            (InferError::UnpackedFull { bytes_max: 1 }, 429, Code::ResourceExhausted, Retry::Later),
            (InferError::BodyTimeout, 408, Code::DeadlineExceeded, Retry::No),
            (InferError::Unsupported(String::new()), 501, Code::Unimplemented, Retry::No),
            (InferError::UnknownRegion(String::new()), 404, Code::NotFound, Retry::No),
            (InferError::RegionExists(String::new()), 409, Code::AlreadyExists, Retry::No),
            (InferError::ObjectTaken(String::new()), 409, Code::AlreadyExists, Retry::No),
            (InferError::RegionsFull { regions_max: 1 }, 429, Code::ResourceExhausted, Retry::No),
            (InferError::SharedMemoryFull(String::new()), 503, Code::Unavailable, Retry::Later),
            (InferError::Access(AccessError::NotLocal), 403, Code::PermissionDenied, Retry::No),
            (InferError::Busy { in_flight_max: 1 }, 429, Code::ResourceExhausted, Retry::Later),
            (TOO_LITTLE_TIME, 504, Code::DeadlineExceeded, Retry::No),
            (TOO_LITTLE_FOR_STAGES, 504, Code::DeadlineExceeded, Retry::No),
            (of_stage(InferError::NoGpu(NoGpu::AllDown)), 503, Code::Unavailable, Retry::Later),
            (of_stage(InferError::Dropped(DropReason::QueueExpired)), 504, Code::DeadlineExceeded, Retry::No),
            (quota(Nanos::from_millis(7)), 429, Code::ResourceExhausted, Retry::After(Nanos::from_millis(7))),
            (
                InferError::TenantBusy { tenant: String::new(), in_flight_max: 1 },
                429,
                Code::ResourceExhausted,
                Retry::Later,
            ),
            (
                InferError::TenantUnpacked { tenant: String::new(), bytes_max: 1 },
                429,
                Code::ResourceExhausted,
                Retry::Later,
            ),
            (InferError::Dropped(DropReason::SloUnreachable), 504, Code::DeadlineExceeded, Retry::No),
            (InferError::Dropped(DropReason::ProtectBatch), 504, Code::DeadlineExceeded, Retry::No),
            (InferError::Dropped(DropReason::QueueExpired), 504, Code::DeadlineExceeded, Retry::No),
            (InferError::Dropped(DropReason::QueueFull), 429, Code::ResourceExhausted, Retry::Later),
            (InferError::Dropped(DropReason::Shed), 429, Code::ResourceExhausted, Retry::Later),
            (InferError::NoGpu(NoGpu::AllDown), 503, Code::Unavailable, Retry::Later),
            (InferError::Failed(FailReason::NoGpu), 503, Code::Unavailable, Retry::Later),
            (InferError::Failed(FailReason::ExecutionFailed), 500, Code::Internal, Retry::No),
            (InferError::Failed(FailReason::NoAnswer), 504, Code::DeadlineExceeded, Retry::No),
            (InferError::Failed(FailReason::ModelNotReady), 503, Code::Unavailable, Retry::Later),
            (InferError::Failed(FailReason::PayloadLost), 503, Code::Unavailable, Retry::Later),
            (InferError::Failed(FailReason::Draining), 503, Code::Unavailable, Retry::Later),
            (InferError::Failed(FailReason::ControlPlaneLost), 503, Code::Unavailable, Retry::Later),
            (InferError::Failed(FailReason::SchedulerPanicked), 500, Code::Internal, Retry::No),
            (InferError::Failed(FailReason::OutOfMemory), 503, Code::Unavailable, Retry::Later),
            (InferError::Failed(FailReason::GpuLost), 503, Code::Unavailable, Retry::Later),
            (InferError::Late, 504, Code::DeadlineExceeded, Retry::No),
            (InferError::DeadlinePassed, 504, Code::DeadlineExceeded, Retry::No),
            (InferError::Cancelled, 499, Code::Cancelled, Retry::No),
        ];
        for (error, http, grpc, retry) in expected {
            let status = error.error_status();
            assert_eq!((status.http.as_u16(), status.grpc, status.retry), (http, grpc, retry), "{error:?}");
        }
    }

    #[test]
    fn a_tenant_beyond_what_it_may_is_told_apart_from_a_full_server_and_wakes_nobody() {
        let tenant = InferError::TenantBusy { tenant: "a".into(), in_flight_max: 1 };
        let full = InferError::Busy { in_flight_max: 1 };
        let seen =
            [&tenant, &quota(Nanos::ZERO), &full].map(|error| (error.error_status().reason, error.fault().label()));
        assert_eq!(seen, [("tenant_busy", "client"), ("quota", "client"), ("too_many_requests", "server")]);
    }

    #[test]
    fn reasons_of_the_scheduler_and_the_backends_go_out_under_their_own_labels() {
        for &reason in DropReason::ALL {
            assert_eq!(InferError::Dropped(reason).error_status().reason, reason.label());
        }
        for &reason in FailReason::ALL {
            assert_eq!(InferError::Failed(reason).error_status().reason, reason.label());
        }
    }
}
