//! `grpc.health.v1.Health`, answered from the same readiness as everything else.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, stream};
use symphony_protocol::inference::grpc_inference_service_server::SERVICE_NAME;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_server};

use crate::oip::InferenceService;

/// How often a watched status is checked; load balancers allow seconds.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);

/// Serving means ready: a server that drains is alive and must not get new requests.
#[derive(Debug)]
pub(crate) struct Health<S> {
    service: Arc<S>,
}

impl<S> Health<S> {
    pub(crate) fn new(service: Arc<S>) -> Self {
        Self { service }
    }
}

fn is_known(service: &str) -> bool {
    service.is_empty() || service == SERVICE_NAME
}

fn status_of<S: InferenceService>(service: &S) -> ServingStatus {
    if service.server().ready { ServingStatus::Serving } else { ServingStatus::NotServing }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl<S: InferenceService> health_server::Health for Health<S> {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        if !is_known(&service) {
            return Err(Status::not_found(format!("unknown service; expected `{SERVICE_NAME}` or nothing")));
        }
        Ok(Response::new(response(status_of(&*self.service))))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    // The health protocol wants an unknown service to be watched as such: it may come to exist.
    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let known = is_known(&request.into_inner().service);
        let service = Arc::clone(&self.service);
        let ticks = tokio::time::interval(WATCH_INTERVAL);
        let changes = stream::unfold((ticks, None), move |(mut ticks, last)| {
            let service = Arc::clone(&service);
            async move {
                loop {
                    ticks.tick().await;
                    let now = if known { status_of(&*service) } else { ServingStatus::ServiceUnknown };
                    if last != Some(now) {
                        return Some((Ok(response(now)), (ticks, Some(now))));
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(changes)))
    }
}
