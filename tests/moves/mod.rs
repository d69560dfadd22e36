//! Models and backends move between sub-clusters under load, and no request fails; GPUs are asked for when they are
//! missing.

mod gpus;
mod keda;
mod measured;
mod memory;
mod plan_commands;
mod popularity;
mod under_load;

use std::time::Duration;

use symphony_executor::default_signature;
use symphony_protocol::control as pb;
use symphony_protocol::view::{KindProfile, ModelSource, ModelSpec};
use symphony_tests::TestCluster;
use symphony_types::{LatencyProfile, Nanos, OperationId, RequestValue};

/// Loads an emulated model, by name and sub-cluster, with this memory, which the command line cannot set.
fn load_sized(cluster: &TestCluster, (name, subcluster): (&str, &str), memory_mb: u64, latency: LatencyProfile) {
    let profile = KindProfile { latency, static_memory_bytes: memory_mb << 20, dynamic_memory_bytes: 1 << 20 };
    let spec = ModelSpec {
        name: name.into(),
        subcluster: subcluster.into(),
        slo: Nanos::from_millis(800),
        source: ModelSource::Emulated,
        signature: default_signature(),
        profiles: [("emulated".to_owned(), profile)].into(),
        policy: Default::default(),
        value: RequestValue::ONE,
        transforms: Default::default(),
    };
    let operation_id = OperationId::new(rand::random()).to_string();
    let request = pb::LoadModelRequest { spec: Some((&spec).into()), operation_id };
    let load = |mut client: pb::control_client::ControlClient<_>| {
        let request = request.clone();
        async move { client.load_model(request).await }
    };
    cluster.block_on(cluster.control().call(Duration::from_secs(60), load)).unwrap();
}
