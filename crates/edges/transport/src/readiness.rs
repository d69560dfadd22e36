//! Data links that are known to work, before a backend takes plans again. After a cut TCP sends anew only when its own
//! pause is over, which is about as long as the cut was; a leader that dials anew is back at once, and the inputs of
//! its plans would not come.

use std::time::Duration;

use tokio::time::timeout;

use crate::linked_payloads::{FrontendBoot, LinkedPayloads};

/// A frontend that answers does so in a round trip; a link that takes longer than this is replaced by another one,
/// which is given twice as long, and so on: a frontend that is slow itself, and not its link, would lose every link
/// that it is about to answer on.
const ANSWERS_WITHIN: Duration = Duration::from_millis(100);
/// How often a frontend to which no link could be made is tried again.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Resolves once all frontends that did before answer, over the links that there are or over others, at the latest
/// after `within`.
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
