//! The parameters of the Open Inference Protocol that the gRPC and REST targets share.

use std::borrow::Cow;

use symphony_types::DropReason;

use crate::target::End;

/// Reasons with which a frontend refuses requests that it could otherwise take in.
const REFUSALS: [&str; 3] = ["too_many_requests", "quota", "tenant_busy"];
/// The reason, besides the scheduler's own, for which a server gives up a request.
const DEADLINE_PASSED: &str = "deadline_passed";

/// The end that a machine-readable reason means; without a reason, the status decides.
pub(super) fn end_of(reason: Option<&str>, status: impl FnOnce() -> String) -> End {
    match reason {
        None | Some("") => End::Failed(Cow::Owned(status())),
        Some("late") => End::Late,
        Some(reason) if REFUSALS.contains(&reason) => End::Refused(Cow::Owned(reason.to_owned())),
        Some(reason) if reason == DEADLINE_PASSED || DropReason::ALL.iter().any(|r| r.label() == reason) => {
            End::Dropped(Cow::Owned(reason.to_owned()))
        }
        Some(reason) => End::Failed(Cow::Owned(reason.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::FailReason;

    use super::*;

    #[test]
    fn reasons_are_told_apart() {
        let end = |reason| end_of(reason, || "http_500".to_owned());
        for reason in DropReason::ALL {
            assert_eq!(end(Some(reason.label())), End::Dropped(reason.label().into()));
        }
        for reason in FailReason::ALL {
            assert_eq!(end(Some(reason.label())), End::Failed(reason.label().into()));
        }
        assert_eq!(end(Some("late")), End::Late);
        assert_eq!(end(Some("deadline_passed")), End::Dropped("deadline_passed".into()));
        for reason in REFUSALS {
            assert_eq!(end(Some(reason)), End::Refused(reason.into()));
        }
        assert_eq!(end(None), End::Failed("http_500".into()));
    }
}
