//! `symphony explain`: the outcome of a request and its reasons, from the records of its sub-cluster's leader, or, if
//! it is a pipeline's, from those of its frontend.

use std::time::Duration;

use anyhow::{Context as _, bail};
use symphony_explain::PipelineExplanation;
use symphony_protocol::control as pb;
use symphony_protocol::control::explain_request::Question;
use symphony_protocol::view::{FrontendView, ModelView, View};
use symphony_transport::ControlClient;
use symphony_types::{ModelId, RequestId, VersionedName};

use crate::cli::{ExplainArgs, Output};
use crate::exit::bad_input;
use crate::inspect::explanations::{ask_all, of_pipeline, unknown};
use crate::inspect::frontend_page;

/// The timeouts for finding a replica that answers, and for each replica's answer.
const WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &ExplainArgs) -> anyhow::Result<()> {
    let net = args.cluster.net()?;
    let control = ControlClient::new(&net, &args.cluster.addresses()?).map_err(bad_input)?;
    let request = request(args)?;
    let view = control.get(false, WITHIN).await?;
    let (question, what) = match (request, &args.batch) {
        (Some(id), _) => {
            let requested =
                pb::ExplainedRequest { frontend: id.frontend.get(), boot_id: id.boot.get(), sequence: id.sequence };
            (Question::Request(requested), format!("request {id}"))
        }
        (None, Some(name)) => {
            let (id, _) = version_asked(&view, name).with_context(|| format!("there is no model `{name}`"))?;
            let requested = pb::LastBatches { model: id.get(), count: args.last };
            (Question::LastBatches(requested), format!("batch of model `{name}`"))
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

/// The model that is loaded under this name, or the latest version of it.
fn version_asked<'a>(view: &'a View, name: &str) -> Option<(ModelId, &'a ModelView)> {
    let versions = view.models.iter().filter(|(_, model)| VersionedName::parse(&model.spec.name).name == name);
    let latest = || versions.max_by_key(|(_, model)| VersionedName::parse(&model.spec.name).version);
    view.model_named(name).or_else(|| latest().map(|(&id, model)| (id, model)))
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
