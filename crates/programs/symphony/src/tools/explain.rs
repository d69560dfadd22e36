//! `symphony explain`: the outcome of a request and its reasons, from the records of its sub-cluster's leader, or, if
//! it is a pipeline's, from those of its frontend.

use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::join_all;
use symphony_explain::PipelineExplanation;
use symphony_net::Net;
use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient as Grpc;
use symphony_protocol::control::explain_request::Question;
use symphony_protocol::view::{FrontendView, View};
use symphony_transport::ControlClient;
use symphony_types::RequestId;

use super::frontend_page;
use crate::cli::{ExplainArgs, Output};
use crate::exit::bad_input;

/// The timeouts for finding a replica that answers, and for each replica's answer.
const WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &ExplainArgs) -> anyhow::Result<()> {
    let net = args.cluster.net()?;
    let control = ControlClient::new(&net, &args.cluster.addresses()?).map_err(bad_input)?;
    let request = request(args)?;
    let view = control.get(false, WITHIN).await?;
    let (question, what) = match (request, &args.batch) {
        (Some(id), _) => {
            let asked =
                pb::ExplainedRequest { frontend: id.frontend.get(), boot_id: id.boot.get(), sequence: id.sequence };
            (Question::Request(asked), format!("request {id}"))
        }
        (None, Some(name)) => {
            let (id, _) = view.model_named(name).with_context(|| format!("there is no model `{name}`"))?;
            let asked = pb::LastBatches { model: id.get(), count: args.last };
            (Question::LastBatches(asked), format!("batch of model `{name}`"))
        }
        (None, None) => return Err(bad_input("expected a request, or --batch MODEL")),
    };
    let (explanations, mut silent) = ask_all(&net, &view, question, WITHIN).await;
    if let Some(id) = request.filter(|_| explanations.is_empty()) {
        let pages = frontend_page::client(args.public.access(&args.cluster)?)?;
        let ask = |frontend: FrontendView| async move { frontend_page::explanation(&pages, &frontend, id).await };
        match of_pipeline(&view, id, ask).await {
            Ok(Some(explanation)) => return show_pipeline(&explanation, args.output),
            Ok(None) => {}
            Err(unanswered) => silent.push(unanswered),
        }
    }
    if explanations.is_empty() {
        bail!(unknown(&what, &silent));
    }
    for (addr, error) in &silent {
        eprintln!("symphony: {addr} did not answer: {error}");
    }
    match args.output {
        Output::Table => {
            let texts: Vec<_> = explanations.iter().map(|explanation| explanation.text.as_str()).collect();
            print!("{}", texts.join("\n"));
        }
        Output::Json => {
            let parsed = explanations.iter().map(|explanation| serde_json::from_str(&explanation.json));
            let parsed: Vec<serde_json::Value> = parsed.collect::<Result<_, _>>()?;
            println!("{}", serde_json::to_string_pretty(&parsed)?);
        }
    }
    Ok(())
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

fn show_pipeline(explanation: &PipelineExplanation, output: Output) -> anyhow::Result<()> {
    match output {
        Output::Table => print!("{explanation}"),
        Output::Json => println!("{}", serde_json::to_string_pretty(&[explanation])?),
    }
    Ok(())
}

fn request(args: &ExplainArgs) -> anyhow::Result<Option<RequestId>> {
    let id = match args.request.as_slice() {
        [] => return Ok(None),
        [id] => id,
        [word, id] if word == "request" => id,
        [word, ..] => return Err(bad_input(format!("expected one request id, or `request` before it, got `{word}`"))),
    };
    Ok(Some(id.parse().map_err(bad_input)?))
}

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

pub(crate) fn unknown(what: &str, silent: &Silent) -> String {
    let mut message = format!(
        "no leader remembers {what}: it waits still, or ended before it was queued, or was forgotten (a model thread keeps its \
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
        let asked = of_pipeline(&View::default(), id, |_| async { Ok(None) }).await;
        let said = unknown(&format!("request {id}"), &vec![asked.unwrap_err()]);
        assert!(said.contains(&format!("; frontend {} did not answer: it has ended", id.frontend)), "{said}");
    }
}
