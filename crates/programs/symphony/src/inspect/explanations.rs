//! What leaders remember of requests and batches.

use std::time::Duration;

use futures::future::join_all;
use symphony_net::Net;
use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient as Grpc;
use symphony_protocol::control::explain_request::Question;
use symphony_protocol::view::View;
use symphony_transport::ControlClient;

/// Addresses of replicas that did not answer, and why.
pub(crate) type Silent = Vec<(String, String)>;

/// Asks every replica, since each records what it decided as a leader. Returns the answers and the replicas that were
/// silent for so long.
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

/// Why no leader has an answer.
pub(crate) fn unknown(what: &str, silent: &Silent) -> String {
    let mut message = format!(
        "no leader remembers {what}: it waits still, or ended before it was queued, or was forgotten (a model thread keeps its \
         last 262144 requests in batches and 32768 drops; a new leader begins with nothing)"
    );
    if what.starts_with("request") {
        message
            .push_str(", or it is a pipeline's: ask for its stage requests, which its answer names (symphony_stages)");
    }
    for (addr, error) in silent {
        message.push_str(&format!("; {addr} did not answer: {error}"));
    }
    message
}
