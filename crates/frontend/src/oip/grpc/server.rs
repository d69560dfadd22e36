//! Which service a gRPC call is for. A router for any paths would cost each request more than finding its model does.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::Incoming;
use symphony_protocol::inference::grpc_inference_service_server::{GrpcInferenceServiceServer, SERVICE_NAME};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service as _, http};
use tonic::server::NamedService;
use tonic::{Code, Status};
use tonic_health::pb::health_server::HealthServer;

use super::admitted::Admitted;
use super::endpoint::Endpoint;
use super::health::Health;
use crate::oip::admission::Admission;
use crate::oip::{InferenceService, Limits};

/// The gRPC side of the public surface, ready to be served with [`serve_grpc`](crate::oip::serve_grpc). Cheap to clone.
#[derive(Debug)]
pub struct GrpcServer<S: InferenceService> {
    inference: Admitted<GrpcInferenceServiceServer<Endpoint<S>>>,
    health: HealthServer<Health<S>>,
}

impl<S: InferenceService> Clone for GrpcServer<S> {
    fn clone(&self) -> Self {
        Self { inference: self.inference.clone(), health: self.health.clone() }
    }
}

impl<S: InferenceService> GrpcServer<S> {
    /// Answers out of `service`.
    pub fn new(service: Arc<S>, limits: Limits) -> Self {
        let endpoint = Endpoint::new(Arc::clone(&service), limits);
        let inference = GrpcInferenceServiceServer::new(endpoint).max_decoding_message_size(limits.request_bytes_max);
        let admission = Admission::new(limits.requests_in_flight_max);
        Self {
            inference: Admitted::new(inference, admission, limits.request_bytes_max),
            health: HealthServer::new(Health::new(service)),
        }
    }
}

/// The service that a path names: what stands between its first slash and its last one.
fn service_of(path: &str) -> Option<&str> {
    Some(path.strip_prefix('/')?.rsplit_once('/')?.0)
}

impl<S: InferenceService> hyper::service::Service<http::Request<Incoming>> for GrpcServer<S> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let service = service_of(request.uri().path());
        if service == Some(SERVICE_NAME) {
            self.inference.clone().call(request)
        } else if service == Some(<HealthServer<Health<S>> as NamedService>::NAME) {
            self.health.clone().call(request)
        } else {
            let unknown = Status::new(Code::Unimplemented, "");
            Box::pin(std::future::ready(Ok(unknown.into_http())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_service_or_none() {
        assert_eq!(service_of("/inference.GRPCInferenceService/ModelInfer"), Some(SERVICE_NAME));
        for path in ["", "/", "inference.GRPCInferenceService/ModelInfer", "/inference.GRPCInferenceService", "*"] {
            assert_eq!(service_of(path), None, "{path}");
        }
        assert_eq!(service_of("/a/b/c"), Some("a/b"));
    }
}
