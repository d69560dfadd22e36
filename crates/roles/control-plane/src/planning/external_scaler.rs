//! `externalscaler.ExternalScaler`: KEDA's interface to the advice, served by any replica
//! (docs/operating/autoscaling.md). Like the advice, its answers are computed from the demand.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt};
use symphony_controllers::{Advice, ScalerMetric, scaler_metric};
use symphony_protocol::externalscaler as pb;
use symphony_protocol::externalscaler::external_scaler_server::ExternalScaler;
use tokio_stream::wrappers::IntervalStream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

use crate::group::propose::{FORWARDED, Proposer};
use crate::group::state_machine::SharedState;
use crate::planning::reported::Reported;

/// How often a stream checks whether its answer has changed.
const STREAM_EVERY: Duration = Duration::from_secs(1);
/// Values of a trigger's settings are names; longer ones are a mistake.
const METADATA_BYTES_MAX: usize = 256;
/// GPUs of one Kubernetes replica.
const GPUS_PER_REPLICA_MAX: u32 = 64;

/// Answers KEDA.
#[derive(Clone, Debug)]
pub(crate) struct ScalerService {
    pub(crate) proposer: Proposer,
    pub(crate) state: SharedState,
    pub(crate) reported: Arc<Mutex<Reported>>,
    pub(crate) stop: CancellationToken,
}

/// The subject of a trigger's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ScalerTarget {
    subcluster: String,
    kind: Option<String>,
    gpus_per_replica: u32,
}

impl ScalerTarget {
    fn read(reference: Option<&pb::ScaledObjectRef>) -> Result<Self, Status> {
        let empty = HashMap::new();
        let metadata = reference.map_or(&empty, |reference| &reference.scaler_metadata);
        let bad = |words: String| Err(Status::invalid_argument(words));
        if let Some((key, _)) = metadata.iter().find(|(_, value)| value.len() > METADATA_BYTES_MAX) {
            return bad(format!("scalerMetadata.{key}: more than {METADATA_BYTES_MAX} bytes"));
        }
        let Some(subcluster) = metadata.get("subcluster").filter(|name| !name.is_empty()) else {
            return bad("scalerMetadata.subcluster: missing; expected the name of a sub-cluster".into());
        };
        let gpus = metadata.get("gpusPerReplica").map_or("1", String::as_str);
        let gpus_per_replica = match gpus.parse() {
            Ok(gpus @ 1..=GPUS_PER_REPLICA_MAX) => gpus,
            _ => return bad(format!("scalerMetadata.gpusPerReplica: {gpus:?}; expected 1 to {GPUS_PER_REPLICA_MAX}")),
        };
        let kind = metadata.get("gpuKind").filter(|kind| !kind.is_empty()).cloned();
        Ok(Self { subcluster: subcluster.clone(), kind, gpus_per_replica })
    }

    fn metric_name(&self) -> String {
        let kind = self.kind.as_ref().map(|kind| format!("-{kind}")).unwrap_or_default();
        format!("symphony-gpus-{}{kind}", self.subcluster)
    }

    /// What the advice for these kinds says of the target's.
    fn metric(&self, kinds: &[String], advice: &Advice) -> Result<ScalerMetric, Status> {
        let known = kinds.join(", ");
        let place = match (&self.kind, kinds) {
            (None, [_]) => Some(0),
            (None, _) => {
                let words = format!("scalerMetadata.gpuKind: missing, and there are {known}; name one");
                return Err(Status::invalid_argument(words));
            }
            (Some(kind), kinds) => kinds.iter().position(|known| known == kind),
        };
        place.and_then(|place| scaler_metric(advice, place, self.gpus_per_replica)).ok_or_else(|| {
            Status::not_found(format!("sub-cluster `{}` has no such GPUs; it has {known}", self.subcluster))
        })
    }
}

impl ScalerService {
    fn metric(&self, target: &ScalerTarget) -> Result<ScalerMetric, Status> {
        let id = self.state.read().subcluster_named(&target.subcluster).map(|(id, _)| id);
        let id = id.ok_or_else(|| Status::not_found(format!("no sub-cluster is named `{}`", target.subcluster)))?;
        let advised = self.reported.lock().unwrap_or_else(PoisonError::into_inner).scaling.advice(id);
        let advised = advised.ok_or_else(|| {
            Status::unavailable(format!(
                "nothing is known of sub-cluster `{}` yet: its lead reports every second",
                target.subcluster
            ))
        })?;
        target.metric(&advised.kinds, &advised.advice)
    }

    /// The Raft leader's answer, whichever replica that is.
    async fn query_leader(
        &self,
        target: ScalerTarget,
        reference: Option<pb::ScaledObjectRef>,
        forwarded: bool,
    ) -> Result<ScalerMetric, Status> {
        let Some(leader) = self.proposer.leader_elsewhere()?.filter(|_| !forwarded) else {
            return self.metric(&target);
        };
        let mut client = self.proposer.scaler_client(leader)?;
        let mut request =
            Request::new(pb::GetMetricsRequest { scaled_object_ref: reference, metric_name: target.metric_name() });
        request.metadata_mut().insert(FORWARDED, MetadataValue::from_static("1"));
        let values = client.get_metrics(request).await?.into_inner().metric_values;
        let value = values.first().map(|value| value.metric_value);
        let value = value.ok_or_else(|| Status::internal(format!("{leader} answered no value")))?;
        let per_replica = i64::from(target.gpus_per_replica);
        Ok(ScalerMetric { value, per_replica, active: value > 0 })
    }
}

fn forwarded<T>(request: &Request<T>) -> bool {
    request.metadata().contains_key(FORWARDED)
}

#[tonic::async_trait]
impl ExternalScaler for ScalerService {
    type StreamIsActiveStream = Pin<Box<dyn Stream<Item = Result<pb::IsActiveResponse, Status>> + Send>>;

    async fn is_active(&self, request: Request<pb::ScaledObjectRef>) -> Result<Response<pb::IsActiveResponse>, Status> {
        let (forwarded, reference) = (forwarded(&request), request.into_inner());
        let target = ScalerTarget::read(Some(&reference))?;
        let metric = self.query_leader(target, Some(reference), forwarded).await?;
        Ok(Response::new(pb::IsActiveResponse { result: metric.active }))
    }

    async fn stream_is_active(
        &self,
        request: Request<pb::ScaledObjectRef>,
    ) -> Result<Response<Self::StreamIsActiveStream>, Status> {
        let reference = request.into_inner();
        let target = ScalerTarget::read(Some(&reference))?;
        let (service, mut last) = (self.clone(), None);
        let answers = IntervalStream::new(tokio::time::interval(STREAM_EVERY)).then(move |_| {
            let (service, target, reference) = (service.clone(), target.clone(), reference.clone());
            async move { service.query_leader(target, Some(reference), false).await.ok().map(|metric| metric.active) }
        });
        let changes = answers.filter_map(move |active| {
            // An answer that is not available has not changed.
            let news = active.filter(|_| active != last);
            last = active.or(last);
            futures::future::ready(news.map(|result| Ok(pb::IsActiveResponse { result })))
        });
        Ok(Response::new(Box::pin(changes.take_until(self.stop.clone().cancelled_owned()))))
    }

    async fn get_metric_spec(
        &self,
        request: Request<pb::ScaledObjectRef>,
    ) -> Result<Response<pb::GetMetricSpecResponse>, Status> {
        let target = ScalerTarget::read(Some(request.get_ref()))?;
        let per_replica = target.gpus_per_replica;
        let spec = pb::MetricSpec {
            metric_name: target.metric_name(),
            target_size: i64::from(per_replica),
            target_size_float: f64::from(per_replica),
        };
        Ok(Response::new(pb::GetMetricSpecResponse { metric_specs: vec![spec] }))
    }

    async fn get_metrics(
        &self,
        request: Request<pb::GetMetricsRequest>,
    ) -> Result<Response<pb::GetMetricsResponse>, Status> {
        let (forwarded, request) = (forwarded(&request), request.into_inner());
        let target = ScalerTarget::read(request.scaled_object_ref.as_ref())?;
        let metric_name = target.metric_name();
        let metric = self.query_leader(target, request.scaled_object_ref, forwarded).await?;
        let value =
            pb::MetricValue { metric_name, metric_value: metric.value, metric_value_float: metric.value as f64 };
        Ok(Response::new(pb::GetMetricsResponse { metric_values: vec![value] }))
    }
}

#[cfg(test)]
mod tests {
    use symphony_controllers::{KindAdvice, Reason};

    use super::*;

    fn reference(metadata: &[(&str, &str)]) -> pb::ScaledObjectRef {
        let scaler_metadata = metadata.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        pb::ScaledObjectRef { name: "pool".into(), namespace: "default".into(), scaler_metadata }
    }

    #[test]
    fn a_triggers_settings_are_read_and_mistakes_named() {
        let target = ScalerTarget::read(Some(&reference(&[("subcluster", "pool"), ("gpusPerReplica", "4")]))).unwrap();
        assert_eq!(target, ScalerTarget { subcluster: "pool".into(), kind: None, gpus_per_replica: 4 });
        assert_eq!(target.metric_name(), "symphony-gpus-pool");
        let refused = |metadata: &[(&str, &str)], word: &str| {
            let error = ScalerTarget::read(Some(&reference(metadata))).unwrap_err();
            assert!(error.message().contains(word), "{error}");
        };
        refused(&[], "subcluster");
        refused(&[("subcluster", "pool"), ("gpusPerReplica", "0")], "gpusPerReplica");
        refused(&[("subcluster", "pool"), ("gpusPerReplica", "many")], "1 to 64");
        refused(&[("subcluster", &"x".repeat(300))], "256 bytes");
        assert!(ScalerTarget::read(None).is_err());
    }

    #[test]
    fn each_kind_of_gpu_has_a_trigger_of_its_own() {
        let kind = |target| KindAdvice { target, ..KindAdvice::default() };
        let advice = Advice {
            reason: Reason::Fleet,
            kinds: vec![kind(3), kind(5)],
            bad_rate: 0.0,
            idle_fraction: 0.0,
            pressure: 0.0,
        };
        let kinds = ["a100".to_owned(), "t4".to_owned()];
        let metric = |metadata: &[(&str, &str)]| {
            let target = ScalerTarget::read(Some(&reference(&[&[("subcluster", "pool")], metadata].concat()))).unwrap();
            target.metric(&kinds, &advice)
        };
        assert_eq!(metric(&[("gpuKind", "t4")]).unwrap(), ScalerMetric { value: 5, per_replica: 1, active: true });
        assert_eq!(metric(&[("gpuKind", "a100"), ("gpusPerReplica", "2")]).unwrap().value, 3);
        assert!(metric(&[]).unwrap_err().message().contains("gpuKind: missing, and there are a100, t4; name one"));
        assert!(metric(&[("gpuKind", "h100")]).unwrap_err().message().contains("no such GPUs; it has a100, t4"));
    }
}
