//! The Open Inference Protocol over gRPC.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use symphony_protocol::inference as pb;
use symphony_protocol::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use symphony_protocol::inference::infer_parameter::ParameterChoice;
use tonic::transport::{Channel, Endpoint};

use super::oip::{ACCEPT_LATE, BATCH, EXCEED_SLO, LATE, TIMEOUT, end_of};
use super::target::{Answer, ConnectError, End, OutputTensor, Request, Target};

/// Trailer with the machine-readable reason of an error.
const REASON_TRAILER: &str = "symphony-reason";
/// How long one connection may take to come up.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Connections of one target: a server allows some hundred requests at once on each.
const CONNECTIONS: std::ops::RangeInclusive<usize> = 1..=256;

/// A frontend's gRPC port; requests take turns on several connections.
#[derive(Debug)]
pub struct GrpcTarget {
    clients: Vec<GrpcInferenceServiceClient<Channel>>,
    next: AtomicUsize,
}

impl GrpcTarget {
    /// Connects to `addr` (`host:port`) with that many connections, at least 1 and at most 256.
    ///
    /// # Errors
    /// If the address is none or nobody answers there.
    pub async fn connect(addr: &str, connections: usize) -> Result<Self, ConnectError> {
        let fail = |error: tonic::transport::Error| ConnectError {
            addr: addr.to_owned(),
            reason: std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string),
        };
        let endpoint = Endpoint::from_shared(format!("http://{addr}"))
            .map_err(fail)?
            .connect_timeout(CONNECT_MAX)
            .tcp_nodelay(true);
        let mut clients = Vec::new();
        for _ in 0..connections.clamp(*CONNECTIONS.start(), *CONNECTIONS.end()) {
            let channel = endpoint.connect().await.map_err(fail)?;
            clients.push(GrpcInferenceServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX));
        }
        Ok(Self { clients, next: AtomicUsize::new(0) })
    }
}

impl Target for GrpcTarget {
    async fn send(&self, request: Request) -> Answer {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.clients.len();
        match self.clients[turn].clone().model_infer(message(request)).await {
            Ok(response) => answer(response.into_inner()),
            Err(status) => {
                let reason = status.metadata().get(REASON_TRAILER).and_then(|value| value.to_str().ok());
                Answer::ended(end_of(reason, || format!("grpc_{:?}", status.code()).to_lowercase()))
            }
        }
    }
}

fn parameter(choice: ParameterChoice) -> pb::InferParameter {
    pb::InferParameter { parameter_choice: Some(choice) }
}

fn message(request: Request) -> pb::ModelInferRequest {
    let mut parameters = HashMap::from([(ACCEPT_LATE.to_owned(), parameter(ParameterChoice::BoolParam(true)))]);
    if let Some(timeout) = request.timeout {
        let micros = i64::try_from(timeout.as_micros()).unwrap_or(i64::MAX);
        parameters.insert(TIMEOUT.to_owned(), parameter(ParameterChoice::Int64Param(micros)));
        parameters.insert(EXCEED_SLO.to_owned(), parameter(ParameterChoice::BoolParam(true)));
    }
    let (inputs, raw_input_contents) = request
        .inputs
        .into_iter()
        .map(|(spec, data)| {
            let dimensions = spec.item_shape.iter().map(|&d| i64::from(d));
            let tensor = pb::model_infer_request::InferInputTensor {
                shape: std::iter::once(i64::from(request.items)).chain(dimensions).collect(),
                datatype: spec.data_type.name().to_owned(),
                name: spec.name,
                ..Default::default()
            };
            (tensor, data)
        })
        .unzip();
    pb::ModelInferRequest {
        model_name: request.model.to_string(),
        id: request.id.to_string(),
        parameters,
        inputs,
        raw_input_contents,
        ..Default::default()
    }
}

fn answer(response: pb::ModelInferResponse) -> Answer {
    let choice = |name: &str| response.parameters.get(name).and_then(|p| p.parameter_choice.as_ref());
    let late = matches!(choice(LATE), Some(ParameterChoice::BoolParam(true)));
    let batch = match choice(BATCH) {
        Some(ParameterChoice::Int64Param(items)) => u32::try_from(*items).ok(),
        Some(ParameterChoice::Uint64Param(items)) => u32::try_from(*items).ok(),
        _ => None,
    };
    let bytes = response.raw_output_contents.iter().map(|data| data.len() as u64).sum();
    let outputs = response.outputs.into_iter().zip(response.raw_output_contents);
    Answer {
        end: if late { End::Late } else { End::Ok },
        id: response.id.parse().ok(),
        bytes,
        outputs: outputs.map(|(tensor, data)| OutputTensor { name: tensor.name, data }).collect(),
        batch,
    }
}
