//! Which service a gRPC call is for. A router for any paths would cost each request more than finding its model does.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use hyper::body::Incoming;
use symphony_config::Right;
use symphony_net::CertificateNames;
use symphony_protocol::inference::grpc_inference_service_server::{GrpcInferenceServiceServer, SERVICE_NAME};
use tonic::Status;
use tonic::body::Body;
use tonic::codec::CompressionEncoding::{Deflate, Gzip};
use tonic::codegen::{BoxFuture, Service as _, http};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;

use super::admitted::{ACCEPTED_ENCODINGS, Admitted};
use super::encoding::{ENCODING, is_packed};
use super::endpoint::Endpoint;
use super::first_frame;
use super::health::Health;
use super::reflection;
use super::status::{of_access, of_infer};
use crate::oip::caller::is_local;
use crate::oip::limits::{BODY_READ_MAX, OPEN_MESSAGE_BYTES_MAX, PACKED_MESSAGE_BYTES_MAX, PLAIN_MESSAGE_BYTES_MAX};
use crate::oip::parameters::trace_of;
use crate::oip::{
    ANY_RIGHT, Caller, InferError, InferenceService, Limits, RefusedCall, RequestContext, Shown, shorten,
};

/// The inference service, for messages of this many bytes.
type Inference<S> = Admitted<GrpcInferenceServiceServer<Endpoint<S>>, S>;

/// The gRPC side of the public surface, ready to be served with [`serve_grpc`](crate::oip::serve_grpc). Cheap to clone.
#[derive(Debug)]
pub struct GrpcServer<S: InferenceService> {
    /// The calls that bring tensors.
    inference: Inference<S>,
    /// The same, if their messages come compressed.
    packed: Inference<S>,
    /// The calls that every caller may make.
    open: Inference<S>,
    /// All other ones.
    plain: Inference<S>,
    health: HealthServer<Health<S>>,
    reflection: Routes,
    service: Arc<S>,
}

impl<S: InferenceService> Clone for GrpcServer<S> {
    fn clone(&self) -> Self {
        let service = Arc::clone(&self.service);
        Self {
            inference: self.inference.clone(),
            packed: self.packed.clone(),
            open: self.open.clone(),
            plain: self.plain.clone(),
            health: self.health.clone(),
            reflection: self.reflection.clone(),
            service,
        }
    }
}

impl<S: InferenceService> GrpcServer<S> {
    /// Answers out of `service`.
    pub fn new(service: Arc<S>, limits: Limits) -> Self {
        let endpoint = Endpoint::new(Arc::clone(&service), limits);
        let inference = GrpcInferenceServiceServer::new(endpoint)
            .accept_compressed(Gzip)
            .accept_compressed(Deflate)
            .send_compressed(Gzip)
            .send_compressed(Deflate);
        let refusing = |bytes_max: usize, too_large: InferError| {
            let inference = inference.clone().max_decoding_message_size(bytes_max);
            Admitted::new(inference, Arc::clone(&service), too_large)
        };
        let of_bytes = |bytes_max: usize| refusing(bytes_max, InferError::TooLarge { bytes_max });
        let packed = match limits.request_bytes_max {
            // It would be too large uncompressed, too.
            bytes_max @ ..=PACKED_MESSAGE_BYTES_MAX => of_bytes(bytes_max),
            _ => {
                let bytes_max = PACKED_MESSAGE_BYTES_MAX;
                refusing(bytes_max, InferError::PackedTooLarge { bytes_max })
            }
        };
        // A client that compresses all its calls checks health so, too.
        let health = HealthServer::new(Health::new(Arc::clone(&service)));
        let health = health.accept_compressed(Gzip).accept_compressed(Deflate);
        Self {
            inference: of_bytes(limits.request_bytes_max),
            packed,
            open: of_bytes(OPEN_MESSAGE_BYTES_MAX),
            plain: of_bytes(PLAIN_MESSAGE_BYTES_MAX.min(limits.request_bytes_max)),
            health: health.max_decoding_message_size(OPEN_MESSAGE_BYTES_MAX),
            reflection: reflection::services(),
            service,
        }
    }

    /// Where a call of the inference service is answered: memory is given to messages before they are understood.
    fn inference_for(&self, path: &str, may_be_packed: bool) -> Inference<S> {
        let inference = match method_of(path) {
            "ModelStreamInfer" if may_be_packed => &self.packed,
            "ModelInfer" | "ModelStreamInfer" => &self.inference,
            "ServerLive" | "ServerReady" => &self.open,
            _ => &self.plain,
        };
        inference.clone()
    }

    /// Answers a call that names an encoding by whether its message comes compressed. In a stream messages may differ:
    /// there the name counts.
    fn infer_as_it_comes(&self, request: http::Request<Incoming>) -> BoxFuture<http::Response<Body>, Infallible> {
        let (packed, plain, service) = (self.packed.clone(), self.inference.clone(), Arc::clone(&self.service));
        let arrived = Instant::now();
        let (mut parts, body) = request.into_parts();
        Box::pin(async move {
            let Ok((is_packed, body)) = tokio::time::timeout(BODY_READ_MAX, first_frame::peek(body)).await else {
                if let Ok(caller) = Caller::of(&parts.extensions) {
                    let context = RequestContext::of(caller, "", trace_of(&parts.headers));
                    let error = &InferError::BodyTimeout;
                    service.refused(&RefusedCall { model: None, context: &context, arrived, error });
                }
                return Ok(not_read_in_time());
            };
            if !is_packed && parts.headers.get(ENCODING).is_some_and(|used| used == "gzip" || used == "deflate") {
                // Bytes behind the message are read to find trailers, and must not be unpacked within the larger bound.
                parts.headers.remove(ENCODING);
            }
            let mut inference = if is_packed { packed } else { plain };
            inference.call(http::Request::from_parts(parts, body)).await
        })
    }

    /// Finds out who calls, if the call is not open to all.
    fn authenticate(&self, request: &mut http::Request<Incoming>) -> Result<(), Status> {
        let Some(rights) = rights_for(request.uri().path()) else { return Ok(()) };
        let names = request.extensions().get::<CertificateNames>();
        let shown = Shown { headers: request.headers(), certificate: names.map_or(&[][..], CertificateNames::get) };
        // No page calls gRPC, but a browser can be made to send what looks like a call.
        let known = shown.check_origin(&[]).and_then(|()| self.service.authenticate(&shown, rights));
        let caller = known.map_err(|refused| of_access(&refused))?;
        let is_local = is_local(request.extensions(), request.headers());
        request.extensions_mut().insert(caller.with_locality(is_local));
        Ok(())
    }
}

/// The rights of which one is needed for a call of the inference service; none for what balancers and clients ask
/// before they ask anything else.
fn rights_for(path: &str) -> Option<&'static [Right]> {
    match method_of(path) {
        "ServerLive" | "ServerReady" => None,
        "ModelInfer" | "ModelStreamInfer" => Some(&[Right::Infer]),
        "SystemSharedMemoryStatus" | "SystemSharedMemoryRegister" | "SystemSharedMemoryUnregister" => {
            Some(&[Right::Infer])
        }
        "CudaSharedMemoryStatus" | "CudaSharedMemoryUnregister" => Some(&[Right::Infer]),
        "ModelStatistics" => Some(&[Right::Status]),
        "RepositoryIndex" => Some(&[Right::Status, Right::Repository]),
        "RepositoryModelLoad" | "RepositoryModelUnload" => Some(&[Right::Repository]),
        _ => Some(ANY_RIGHT),
    }
}

/// The method that a path names.
fn method_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// The service that a path names: what stands between its first slash and its last one.
fn service_of(path: &str) -> Option<&str> {
    Some(path.strip_prefix('/')?.rsplit_once('/')?.0)
}

impl<S: InferenceService> hyper::service::Service<http::Request<Incoming>> for GrpcServer<S> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn call(&self, mut request: http::Request<Incoming>) -> Self::Future {
        let called = request.uri().clone();
        let answering: BoxFuture<Self::Response, Infallible> = match service_of(called.path()) {
            Some(SERVICE_NAME) => match self.authenticate(&mut request) {
                Ok(()) => {
                    let method = method_of(called.path());
                    answer_as_asked(method, request.headers_mut());
                    match (method, is_packed(request.headers())) {
                        ("ModelInfer", true) => self.infer_as_it_comes(request),
                        (_, may_be_packed) => self.inference_for(called.path(), may_be_packed).call(request),
                    }
                }
                Err(refused) => return Box::pin(std::future::ready(Ok(refused.into_http()))),
            },
            Some(name) if name == <HealthServer<Health<S>> as NamedService>::NAME => {
                let answering = tokio::time::timeout(BODY_READ_MAX, self.health.clone().call(request));
                // Its answers begin as soon as the message has arrived.
                Box::pin(async move { answering.await.unwrap_or_else(|_| Ok(not_read_in_time())) })
            }
            Some(name) if reflection::SERVICE_NAMES.contains(&name) => match self.authenticate(&mut request) {
                Ok(()) => {
                    let answering = self.reflection.clone().call(request);
                    Box::pin(async move { answering.await.map(|answer| answer.map(reflection::ending)) })
                }
                Err(refused) => return Box::pin(std::future::ready(Ok(refused.into_http()))),
            },
            _ => return Box::pin(std::future::ready(Ok(not_served(called.path())))),
        };
        Box::pin(async move {
            let answer = answering.await?;
            Ok(if is_unknown_call(&answer) { not_served(called.path()) } else { answer })
        })
    }
}

/// Compresses the answer to a call as its message is, as servers in Go do, and no other: most clients say of themselves
/// that they could read a compressed one, and do not ask for the work. Never in a stream: its answers would be
/// compressed all or none, and large ones must not be.
fn answer_as_asked(method: &str, headers: &mut http::HeaderMap) {
    let Some(could) = headers.remove(ACCEPTED_ENCODINGS) else { return };
    if method == "ModelStreamInfer" {
        return;
    }
    let Some(used) = headers.get(ENCODING) else { return };
    let mut accepted = could.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    if accepted.any(|accepted| accepted == used.as_bytes()) {
        let used = used.clone();
        headers.insert(ACCEPTED_ENCODINGS, used);
    }
}

fn not_read_in_time() -> http::Response<Body> {
    of_infer(&InferError::BodyTimeout).into_http()
}

/// Whether a service has no such call, which is all that its generated code says.
fn is_unknown_call(answer: &http::Response<Body>) -> bool {
    let headers = answer.headers();
    headers.get(Status::GRPC_STATUS).is_some_and(|code| code == "12") && !headers.contains_key(Status::GRPC_MESSAGE)
}

/// Clients know more calls than are served: tritonclient those of traces and logs.
fn not_served(path: &str) -> http::Response<Body> {
    let error = InferError::Unsupported(format!("`{}` is not served here", shorten(path)));
    of_infer(&error).into_http()
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

    #[test]
    fn only_who_compresses_is_answered_so() {
        let left_of = |method: &str, could: &'static str, used: Option<&'static str>| {
            let value = http::HeaderValue::from_static;
            let mut headers = http::HeaderMap::new();
            headers.insert(ACCEPTED_ENCODINGS, value(could));
            if let Some(used) = used {
                headers.insert(ENCODING, value(used));
            }
            answer_as_asked(method, &mut headers);
            headers.get(ACCEPTED_ENCODINGS).map(|value| value.to_str().unwrap().to_owned())
        };
        let left = |could, used| left_of("ModelInfer", could, used);
        assert_eq!(left("identity, deflate, gzip", Some("gzip")).as_deref(), Some("gzip"));
        assert_eq!(left_of("ModelStreamInfer", "identity, deflate, gzip", Some("gzip")), None);
        assert_eq!(left("identity,deflate", Some("gzip")), None);
        assert_eq!(left("identity, deflate, gzip", None), None);
    }

    #[test]
    fn a_path_that_is_not_served_is_named_as_far_as_clients_take_it_back() {
        let named = |path: &str| {
            let answer = not_served(path);
            answer.headers().get(Status::GRPC_MESSAGE).unwrap().to_str().unwrap().to_owned()
        };
        let called = "/inference.GRPCInferenceService/CudaSharedMemoryRegister";
        assert!(named(called).contains(called), "{}", named(called));
        // Clients take 8 KiB of headers.
        assert!(named(&"/%20".repeat(4_000)).len() < 1024);
    }
}
