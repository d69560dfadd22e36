//! gRPC: `inference.GRPCInferenceService` and `grpc.health.v1.Health`.

mod admitted;
mod endpoint;
mod health;
mod infer;
mod pages;
mod status;

use std::sync::Arc;

use symphony_protocol::inference::grpc_inference_service_server::GrpcInferenceServiceServer;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;

use super::admission::Admission;
use super::{InferenceService, Limits};

pub use infer::check_grpc_infer;

/// The gRPC side of the public surface, ready to be served with [`serve_grpc`](super::serve_grpc).
pub fn grpc_server<S: InferenceService>(service: Arc<S>, limits: Limits) -> axum::Router {
    let endpoint = endpoint::Endpoint::new(Arc::clone(&service), limits);
    let inference = GrpcInferenceServiceServer::new(endpoint).max_decoding_message_size(limits.request_bytes_max);
    let admission = Admission::new(limits.requests_in_flight_max);
    let inference = admitted::Admitted::new(inference, admission, limits.request_bytes_max);
    Routes::new(inference).add_service(HealthServer::new(health::Health::new(service))).into_axum_router()
}
