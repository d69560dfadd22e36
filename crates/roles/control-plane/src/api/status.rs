//! The one place that maps errors to gRPC codes.

use symphony_cluster_state::Refusal;
use tonic::{Code, Status};

use crate::error::CallError;
use crate::group::propose::AttemptError;

impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        let code = match &error {
            CallError::Refused(refusal) => code(refusal),
            CallError::Codec(_) => Code::InvalidArgument,
            CallError::Membership(_) => Code::FailedPrecondition,
            CallError::NoLeader { .. } | CallError::Stopped => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<AttemptError> for Status {
    fn from(error: AttemptError) -> Self {
        match error {
            AttemptError::Retry(reason) => Self::unavailable(reason),
            AttemptError::Fatal(error) => error.into(),
        }
    }
}

const fn code(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::Malformed { .. } | Refusal::Invalid { .. } | Refusal::OperationReused { .. } => Code::InvalidArgument,
        Refusal::IndexNotNew { .. } => Code::Internal,
        Refusal::Limit { .. } => Code::ResourceExhausted,
        Refusal::NameTaken { .. } | Refusal::Changed { .. } => Code::AlreadyExists,
        Refusal::UnknownNode { .. }
        | Refusal::UnknownBackend { .. }
        | Refusal::UnknownModel { .. }
        | Refusal::UnknownModelName { .. }
        | Refusal::UnknownFrontend { .. }
        | Refusal::UnknownSubclusterId { .. }
        | Refusal::UnknownSubcluster { .. }
        | Refusal::NoSuchPlan { .. }
        | Refusal::UnknownPipeline { .. } => Code::NotFound,
        Refusal::StaleBoot { .. }
        | Refusal::WhichSubcluster { .. }
        | Refusal::ProfileMissing { .. }
        | Refusal::OutOfMemory { .. }
        | Refusal::NotInSubcluster { .. }
        | Refusal::AssignmentOver { .. }
        | Refusal::CannotSucceed { .. }
        | Refusal::HandoverUnderWay { .. }
        | Refusal::HandoverOver { .. }
        | Refusal::NotDraining { .. }
        | Refusal::TakesRequests { .. }
        | Refusal::MoveOutdated { .. }
        | Refusal::NobodyLeft { .. }
        | Refusal::MoveOver { .. }
        | Refusal::PlanOutdated { .. }
        | Refusal::NodeRemoved { .. }
        | Refusal::DiskLost { .. }
        | Refusal::PipelineUnfit { .. }
        | Refusal::UsedByPipeline { .. } => Code::FailedPrecondition,
    }
}
