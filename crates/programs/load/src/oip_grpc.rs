//! The Open Inference Protocol over gRPC, through the client crate.

use std::time::Duration;

use symphony_client as client;
use symphony_client::{Balance, Client, ElementType, Tensor};

use crate::access::Access;
use crate::load_plan::IN_FLIGHT_MAX;
use crate::oip::{end_of, input_description};
use crate::target::{Answer, ConnectError, DescribeModel, End, ModelDescription, OutputTensor, Request, Target};

/// The engine decides how long to wait for answers.
const TIMEOUT: Duration = client::limits::TIMEOUT_MAX;

/// A frontend's gRPC port; requests take turns on several connections.
#[derive(Debug)]
pub struct GrpcTarget {
    client: Client,
}

impl GrpcTarget {
    /// Connects to `addr` (`host:port`) with this many connections, 1 to 256.
    ///
    /// # Errors
    /// If the address is invalid or does not answer.
    pub async fn connect(addr: &str, connections: usize) -> Result<Self, ConnectError> {
        Self::connect_as(addr, connections, &Access::default()).await
    }

    /// The same with a key, or over TLS.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), or if the key or the authority is invalid.
    pub async fn connect_as(addr: &str, connections: usize, access: &Access) -> Result<Self, ConnectError> {
        let fail = |reason: String| ConnectError { addr: addr.to_owned(), reason };
        access.check(addr).map_err(fail)?;
        let mut builder = Client::builder();
        if let Some(bearer) = access.bearer() {
            builder = builder.metadata("authorization", bearer);
        }
        if let Some(pem) = &access.authority {
            builder = builder.authority(pem.clone());
        }
        let client = builder
            .frontend(format!("{}://{addr}", access.scheme()))
            .connections(connections.clamp(1, client::limits::CONNECTIONS_MAX))
            .balance(Balance::RoundRobin)
            .in_flight_max(IN_FLIGHT_MAX)
            .timeout(TIMEOUT)
            .answer_grace(TIMEOUT)
            // A run measures what happens while a frontend is away: the client must not work around it.
            .unwatched()
            .build()
            .map_err(|error| fail(error.to_string()))?;
        if let Err(error) = client.server_live().await {
            return Err(fail(access.why_not(addr).await.unwrap_or_else(|| error.to_string())));
        }
        Ok(Self { client })
    }
}

impl Target for GrpcTarget {
    async fn send(&self, request: Request) -> Answer {
        let id = request.id;
        let Some(request) = client_request(request) else { return Answer::ended(End::Failed("bad_input".into())) };
        match self.client.infer(request).await {
            Ok(answer) => answered(answer),
            Err(client::Error::Misdirected { got, .. }) => {
                Answer { id: got.parse().ok(), ..Answer::ended(End::Failed("misdirected".into())) }
            }
            Err(error) => {
                tracing::debug!(id, %error, "no answer");
                Answer::ended(end(&error))
            }
        }
    }
}

impl DescribeModel for GrpcTarget {
    async fn describe(&self, model: &str) -> Result<ModelDescription, String> {
        let metadata = self.client.model_metadata(model).await.map_err(|error| error.to_string())?;
        let config = self.client.model_config(model).await.map_err(|error| error.to_string())?;
        let input = |input: client::TensorMetadata| input_description(input.name, input.element.name(), &input.shape);
        Ok(ModelDescription {
            name: metadata.name,
            platform: metadata.platform,
            slo: config.slo.ok_or("its configuration has no slo_ms; expected a frontend of Symphony")?,
            inputs: metadata.inputs.into_iter().map(input).collect::<Result<_, _>>()?,
            outputs: metadata.outputs.into_iter().map(|output| output.name).collect(),
        })
    }
}

/// The request in the client's types; none if an input does not have the size of its description, or a picture is
/// missing.
fn client_request(request: Request) -> Option<client::Request> {
    let mut asks = client::Request::new(&*request.model).id(request.id.to_string()).accept_late();
    if let Some(timeout) = request.timeout {
        asks = asks.within(timeout).exceed_slo();
    }
    for (spec, data) in request.inputs {
        let shape: Vec<_> = std::iter::once(request.items).chain(spec.item_shape).map(u64::from).collect();
        asks = asks.input(Tensor::raw(spec.name, ElementType::Fixed(spec.data_type), &shape, data).ok()?);
    }
    if let Some(pictures) = request.pictures {
        let shape = [u64::from(request.items)];
        asks = asks.input(Tensor::bytes(&*pictures.input, &shape, &pictures.encoded).ok()?);
    }
    Some(asks)
}

fn answered(answer: client::Answer) -> Answer {
    let outputs: Vec<_> = answer.outputs.into_iter().map(output).collect();
    Answer {
        end: if answer.late { End::Late } else { End::Ok },
        id: answer.id.parse().ok(),
        bytes: outputs.iter().map(|output| output.data.len() as u64).sum(),
        outputs,
        batch: answer.batch,
    }
}

fn output(tensor: Tensor) -> OutputTensor {
    OutputTensor { name: tensor.name().to_owned(), data: tensor.into_data() }
}

fn end(error: &client::Error) -> End {
    match error {
        client::Error::Refused(refusal) => {
            end_of(Some(&refusal.reason), || format!("grpc_{:?}", refusal.code).to_lowercase())
        }
        client::Error::Unreachable(_) => End::Failed("cannot_connect".into()),
        client::Error::Lost { .. } => End::Failed("connection_lost".into()),
        client::Error::NoAnswer { .. } => End::Failed("no_answer".into()),
        client::Error::BadAnswer { .. } | client::Error::Misdirected { .. } => End::Failed("bad_answer".into()),
        client::Error::InvalidRequest(_) | client::Error::TooManyInFlight { .. } => End::Failed("not_sent".into()),
    }
}
