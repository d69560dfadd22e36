//! A client of `externalscaler.ExternalScaler` that queries it as KEDA does.

use std::collections::HashMap;
use std::time::Duration;

use symphony_net::{Net, Role};
use symphony_protocol::externalscaler as pb;
use symphony_protocol::externalscaler::external_scaler_client::ExternalScalerClient;
use symphony_transport::CONNECT_TIMEOUT;
use tokio::sync::watch;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::horizontal::Measured;
use crate::exit::bad_input;

/// The timeout of a query.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The delay before a broken stream is reopened.
const STREAM_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Queries the replicas in turn until one answers.
#[derive(Clone, Debug)]
pub(crate) struct Scaler {
    replicas: Vec<Channel>,
    reference: pb::ScaledObjectRef,
}

/// What the control plane answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScalerAnswer {
    /// Whether any replica is wanted.
    pub(crate) active: bool,
    pub(crate) measured: Measured,
}

impl Scaler {
    /// For GPUs of one kind in a sub-cluster, with this many per replica.
    pub(crate) fn new(
        net: &Net,
        addrs: &[String],
        subcluster: &str,
        gpu_kind: &str,
        gpus_per_replica: u32,
    ) -> anyhow::Result<Self> {
        let replica = |addr: &String| {
            let endpoint = Endpoint::from_shared(format!("http://{addr}"))
                .map_err(|error| bad_input(format!("control address `{addr}` is not host:port: {error}")))?;
            Ok(net.channel(&endpoint.connect_timeout(CONNECT_TIMEOUT), Role::Scheduler.into()))
        };
        let scaler_metadata = [
            ("subcluster", subcluster.to_owned()),
            ("gpuKind", gpu_kind.to_owned()),
            ("gpusPerReplica", gpus_per_replica.to_string()),
        ];
        let scaler_metadata: HashMap<_, _> = scaler_metadata.map(|(key, value)| (key.to_owned(), value)).into();
        let (name, namespace) = (subcluster.to_owned(), "local".to_owned());
        let replicas = addrs.iter().map(replica).collect::<anyhow::Result<_>>()?;
        Ok(Self { replicas, reference: pb::ScaledObjectRef { name, namespace, scaler_metadata } })
    }

    /// The activity and the metric as they are now.
    ///
    /// # Errors
    /// The answer of the last replica that was asked; the first one that knows decides.
    pub(crate) async fn ask(&self) -> Result<ScalerAnswer, Status> {
        let mut last = Status::unavailable("no control address");
        for replica in &self.replicas {
            match tokio::time::timeout(ANSWER_WITHIN, self.ask_one(replica.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                // An invalid query is invalid for every replica.
                Ok(Err(status)) if status.code() == Code::InvalidArgument => return Err(status),
                Ok(Err(status)) => last = status,
                Err(_) => last = Status::deadline_exceeded(format!("no answer within {} s", ANSWER_WITHIN.as_secs())),
            }
        }
        Err(last)
    }

    async fn ask_one(&self, replica: Channel) -> Result<ScalerAnswer, Status> {
        let mut client = ExternalScalerClient::new(replica);
        let active = client.is_active(self.reference.clone()).await?.into_inner().result;
        let specs = client.get_metric_spec(self.reference.clone()).await?.into_inner().metric_specs;
        let spec = specs.first().ok_or_else(|| Status::internal("the scaler names no metric"))?;
        let metric_name = spec.metric_name.clone();
        let request = pb::GetMetricsRequest { scaled_object_ref: Some(self.reference.clone()), metric_name };
        let values = client.get_metrics(request).await?.into_inner().metric_values;
        let value = values.iter().find(|value| value.metric_name == spec.metric_name);
        let value =
            value.ok_or_else(|| Status::internal(format!("the scaler has no value of {}", spec.metric_name)))?;
        Ok(ScalerAnswer {
            active,
            measured: Measured { value: value.metric_value_float, target: spec.target_size_float },
        })
    }

    /// Whether replicas are wanted, as pushed: a watch that changes when the value does. Ends with its receiver.
    pub(crate) fn activity(&self) -> watch::Receiver<Option<bool>> {
        let (sender, receiver) = watch::channel(None);
        let scaler = self.clone();
        tokio::spawn(async move {
            for replica in scaler.replicas.iter().cycle() {
                let mut client = ExternalScalerClient::new(replica.clone());
                if let Ok(stream) = client.stream_is_active(scaler.reference.clone()).await {
                    let mut stream = stream.into_inner();
                    loop {
                        let news = tokio::select! {
                            news = stream.message() => news,
                            () = sender.closed() => return,
                        };
                        let Ok(Some(news)) = news else { break };
                        sender.send_replace(Some(news.result));
                    }
                }
                tokio::select! {
                    () = tokio::time::sleep(STREAM_AGAIN_AFTER) => {}
                    () = sender.closed() => return,
                }
            }
        });
        receiver
    }
}
