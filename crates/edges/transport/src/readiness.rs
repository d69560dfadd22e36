//! Data links that are known to work, before a backend takes plans again. After a cut TCP sends anew only when its own pause is over, which
//! is about as long as the cut was; a leader that dials anew is back at once, and the inputs of its plans would not come.

use std::time::Duration;

use tokio::time::timeout;

use crate::linked_payloads::{FrontendBoot, LinkedPayloads};

/// A frontend that answers does so in a round trip; over a link that takes longer than this nothing comes in time either.
const ANSWERS_WITHIN: Duration = Duration::from_millis(100);
/// How often a frontend to which no link could be made is tried again.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Resolves once all frontends that did before answer, over the links that there are or over others, at the latest after `within`.
pub(crate) async fn ready(transport: &LinkedPayloads, within: Duration) {
    let frontends = transport.frontends();
    let all = futures::future::join_all(frontends.into_iter().map(|frontend| answers(transport, frontend)));
    if timeout(within, all).await.is_err() {
        let within = within.as_millis();
        tracing::warn!("not all frontends answer within {within} ms; their requests may fail on this backend");
    }
}

async fn answers(transport: &LinkedPayloads, frontend: FrontendBoot) {
    loop {
        match transport.link(frontend).await {
            Some(link) if transport.answers(&link, ANSWERS_WITHIN).await => return,
            Some(link) => transport.replace(frontend, &link).await,
            None => tokio::time::sleep(TRY_AGAIN_AFTER).await,
        }
    }
}

#[cfg(test)]
#[path = "readiness_tests.rs"]
mod tests;
