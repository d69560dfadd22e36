//! gRPC: `inference.GRPCInferenceService` and `grpc.health.v1.Health`.

mod admitted;
mod endpoint;
mod health;
mod infer;
mod pages;
mod status;

use std::sync::Arc;

use symphony_protocol::inference::grpc_inference_service_server::GrpcInferenceServiceServer;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic_health::pb::health_server::HealthServer;

use super::admission::Admission;
use super::limits::{HEADER_BYTES_MAX, STREAMS_PER_CONNECTION_MAX};
use super::{InferenceService, Limits};

pub use infer::check_grpc_infer;

// Windows of HTTP/2 flow control. The protocol's default of 64 KiB costs a round trip for every 64 KiB of a tensor; a
// stream's window holds a batch of small images, a connection's a few of them, and memory stays bounded by
// connections × window.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
// A client that vanished without a word is noticed within interval + timeout.
const KEEPALIVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// The gRPC side of the public surface, ready to be served with [`serve_grpc`](super::serve_grpc).
pub fn grpc_server<S: InferenceService>(service: Arc<S>, limits: Limits) -> Router {
    let endpoint = endpoint::Endpoint::new(Arc::clone(&service), limits);
    let inference = GrpcInferenceServiceServer::new(endpoint).max_decoding_message_size(limits.request_bytes_max);
    let admission = Admission::new(limits.requests_in_flight_max);
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(admitted::Admitted::new(inference, admission, limits.request_bytes_max))
        .add_service(HealthServer::new(health::Health::new(service)))
}
