//! What leaders remember of requests and batches, and frontends of requests for pipelines.

use std::time::Duration;

use futures::future::join_all;
use symphony_explain::PipelineExplanation;
use symphony_net::Net;
use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient as Grpc;
use symphony_protocol::control::explain_request::Question;
use symphony_protocol::view::{FrontendView, View};
use symphony_transport::ControlClient;
use symphony_types::RequestId;

/// Addresses of replicas that did not answer, and why.
pub(crate) type Silent = Vec<(String, String)>;

/// Asks every replica, since each records what it decided as a leader. Returns the answers and the replicas that were
/// silent for this long.
pub(crate) async fn ask_all(
    net: &Net,
    view: &View,
    question: Question,
    within: Duration,
) -> (Vec<pb::Explanation>, Silent) {
    let request = pb::ExplainRequest { question: Some(question) };
    let ask = |addr: String| async move {
        let client =
            ControlClient::new(net, std::slice::from_ref(&addr)).map_err(|error| (addr.clone(), error.to_string()))?;
        let call = |mut grpc: Grpc<_>| async move { grpc.explain(request).await };
        client.call(within, call).await.map_err(|error| (addr, error.to_string()))
    };
    let up = view.nodes.values().filter(|node| node.up).map(|node| node.control_addr.clone());
    let (mut explanations, mut silent) = (Vec::new(), Vec::new());
    for answer in join_all(up.map(ask)).await {
        match answer {
            Ok(reply) => explanations.extend(reply.explanations),
            Err(error) => silent.push(error),
        }
    }
    (explanations, silent)
}

/// What the frontend that ran a request for a pipeline remembers of it, as `ask` gets it; or the frontend that did not
/// answer, and why.
pub(crate) async fn of_pipeline<F: Future<Output = anyhow::Result<Option<PipelineExplanation>>>>(
    view: &View,
    id: RequestId,
    ask: impl FnOnce(FrontendView) -> F,
) -> Result<Option<PipelineExplanation>, (String, String)> {
    let Some(frontend) = view.frontends.get(&id.frontend).filter(|frontend| frontend.boot == id.boot) else {
        return Err((format!("frontend {}", id.frontend), "it has ended, or begun anew and forgotten".to_owned()));
    };
    let name = format!("frontend {}", frontend.name);
    ask(frontend.clone()).await.map_err(|error| (name, format!("{error:#}")))
}

/// Why no process has an answer.
pub(crate) fn unknown(what: &str, silent: &Silent) -> String {
    let mut message = format!(
        "no leader remembers {what}: it waits still, or ended before it was queued, or was forgotten (a model worker keeps its \
         last 262144 requests in batches and 32768 drops; a new leader begins with nothing)"
    );
    if what.starts_with("request") {
        message
            .push_str(", nor does its frontend as a pipeline's (it keeps the last 65536, stage requests among them)");
    }
    for (addr, error) in silent {
        message.push_str(&format!("; {addr} did not answer: {error}"));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_frontend_that_is_gone_is_named_and_not_said_to_have_forgotten() {
        let id = RequestId::default();
        let result = of_pipeline(&View::default(), id, |_| async { Ok(None) }).await;
        let message = unknown(&format!("request {id}"), &vec![result.unwrap_err()]);
        assert!(message.contains(&format!("; frontend {} did not answer: it has ended", id.frontend)), "{message}");
    }
}
