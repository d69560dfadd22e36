//! Requests without the public ports: the load generator is itself a frontend of the cluster.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use symphony_config::{Address, FrontendConfig, NodeConfig, Role};
use symphony_frontend::Frontend;
use symphony_frontend::oip::{
    Caller, InferAnswer, InferError, InferRequest, InferenceService, ModelInfo, Pictures, Receipt, RequestContext,
    RequestedDeadline, Timeliness,
};
use symphony_net::Net;
use symphony_telemetry::Registry;
use symphony_transport::ControlClient;
use symphony_types::{BootId, RequestValue, TensorSpec};
use tokio::net::TcpListener;

use crate::target::{Answer, EncodedPictures, End, OutputTensor, Request, Target};

/// How long unanswered requests may delay the end.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);

/// Joins a cluster as a frontend and announces requests over its own links.
#[derive(Debug)]
pub struct NativeTarget {
    frontend: Frontend,
}

impl NativeTarget {
    /// Registers as the frontend that the certificate names, or in plaintext under a name made of the process id.
    ///
    /// # Errors
    /// If no port is free or the cluster refuses.
    pub async fn join(net: &Net, control: &ControlClient, boot: BootId) -> anyhow::Result<Self> {
        let data = TcpListener::bind("127.0.0.1:0").await?;
        let name = match net.credentials() {
            Some(credentials) => credentials.facts().identity.name,
            None => format!("load-{}", std::process::id()),
        };
        let config = config(&name, data.local_addr()?.port())?;
        let frontend =
            Frontend::start(&config, boot, data, net.clone(), control, None, None, &Registry::new("load")).await?;
        Ok(Self { frontend })
    }

    /// Leaves the cluster, so that it no longer counts this process as a frontend.
    pub async fn leave(&self) {
        self.frontend.leave(LEAVE_WITHIN).await;
        self.frontend.stop();
    }
}

/// A frontend's defaults, with this name and port.
fn config(name: &str, port: u16) -> anyhow::Result<FrontendConfig> {
    let data = Address::loopback(port);
    let own = [
        format!("frontend.name={name}"),
        format!("frontend.data={data}"),
        // The configuration requires a cluster; the joining client has its own addresses.
        "cluster.scheduler=[{ id = 1, control = \"127.0.0.1:1\", dispatch = \"127.0.0.1:2\", beat = \"127.0.0.1:3\" }]"
            .to_owned(),
        // The caller configures its connections.
        "security.insecure_dev=true".to_owned(),
    ];
    let config = NodeConfig::load(Role::Frontend, None, [], &own)?;
    config.frontend.ok_or_else(|| anyhow::anyhow!("the defaults hold a frontend"))
}

impl Target for NativeTarget {
    async fn send(&self, request: Request) -> Answer {
        let arrived = Instant::now();
        let Some(model) = self.frontend.model(&request.model, None) else {
            return Answer::ended(End::Failed(Cow::Borrowed("unknown_model")));
        };
        let mut deadline = RequestedDeadline::unstated(arrived);
        deadline.timeout = request.timeout.map(Into::into);
        deadline.exceed_slo = request.timeout.is_some();
        let outputs = model.signature.outputs.clone();
        let (items, payload, receipt) = (request.items, payload(&request), Receipt::default());
        let pictures = request.pictures.map(|pictures| in_place(pictures, &model, items));
        let (context, weight) = (RequestContext::of(Caller::anonymous(), "", None), RequestValue::ONE);
        let infer = InferRequest { model, items, payload, pictures, deadline, receipt, context, weight };
        // In flight until it is answered.
        let _permit = match self.frontend.begin_request(&Caller::anonymous()) {
            Ok(permit) => permit,
            Err(refused) => return Answer::ended(End::Refused(Cow::Borrowed(refused.error_status().reason))),
        };
        match self.frontend.infer(infer).await {
            Ok(answer) => Answer {
                end: match answer.timeliness {
                    Timeliness::InTime => End::Ok,
                    Timeliness::Late => End::Late,
                },
                id: Some(request.id),
                bytes: answer.payload.len() as u64,
                outputs: split(&outputs, items, &answer),
                batch: Some(answer.batch),
            },
            Err(InferError::Dropped(reason)) => Answer::ended(End::Dropped(Cow::Borrowed(reason.label()))),
            Err(error) => Answer::ended(End::Failed(Cow::Borrowed(error.error_status().reason))),
        }
    }
}

/// All inputs, one after the other.
fn payload(request: &Request) -> Bytes {
    match request.inputs.as_slice() {
        [(_, only)] => only.clone(),
        many => {
            let mut all = BytesMut::with_capacity(many.iter().map(|(_, data)| data.len()).sum());
            many.iter().for_each(|(_, data)| all.extend_from_slice(data));
            all.freeze()
        }
    }
}

/// Encoded pictures, and where among the other inputs what they become has its place.
fn in_place(EncodedPictures { input, encoded }: EncodedPictures, model: &ModelInfo, items: u32) -> Pictures {
    let before = model.signature.inputs.iter().take_while(|spec| spec.name != *input);
    let at = before.map(|spec| spec.item_bytes() * items as usize).sum();
    // Their headers were not checked.
    Pictures { encoded, at, quick: false }
}

/// The outputs of an answer: of a pipeline as many rows as it says.
fn split(specs: &[TensorSpec], items: u32, answer: &InferAnswer) -> Vec<OutputTensor> {
    let (mut payload, pipeline) = (answer.payload.clone(), answer.pipeline.as_ref());
    let rows = |at: usize| pipeline.and_then(|pipeline| pipeline.outputs.get(at)).map_or(items, |output| output.count);
    let output = |(at, spec): (usize, &TensorSpec)| {
        let size = (spec.item_bytes() * rows(at) as usize).min(payload.len());
        OutputTensor { name: spec.name.clone(), data: payload.split_to(size) }
    };
    specs.iter().enumerate().map(output).collect()
}
