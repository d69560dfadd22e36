//! Checks data links before a backend takes plans again. After a cut TCP retransmits only when its own pause is over,
//! which is about as long as the cut was. A leader that dials again is back at once, but the inputs of its plans would
//! not come.

use std::time::Duration;

use tokio::time::timeout;

use crate::linked_payloads::{FrontendBoot, LinkedPayloads};

/// A frontend answers within a round trip. A link that takes longer than this is replaced by another one, which gets
/// twice the time, and so on: a frontend that is slow itself would otherwise lose every link just before it answers.
const ANSWERS_WITHIN: Duration = Duration::from_millis(100);
/// Pause between attempts to link a frontend that could not be linked.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Resolves once all frontends that answered before answer again, over existing links or new ones, at the latest after
/// `within`.
pub(crate) async fn ready(transport: &LinkedPayloads, within: Duration) {
    let frontends = transport.frontends();
    let all = futures::future::join_all(frontends.into_iter().map(|frontend| answers(transport, frontend)));
    if timeout(within, all).await.is_err() {
        let within = within.as_millis();
        tracing::warn!("not all frontends answer within {within} ms; their requests may fail on this backend");
    }
}

async fn answers(transport: &LinkedPayloads, frontend: FrontendBoot) {
    let mut within = ANSWERS_WITHIN;
    loop {
        match transport.link(frontend).await {
            Some(link) if transport.answers(&link, within).await => return,
            Some(link) => {
                transport.replace(frontend, &link).await;
                within *= 2;
            }
            None => tokio::time::sleep(TRY_AGAIN_AFTER).await,
        }
    }
}

#[cfg(test)]
#[path = "readiness_tests.rs"]
mod tests;
