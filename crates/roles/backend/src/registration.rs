//! The registration of a backend.

use std::time::Duration;

use symphony_config::BackendConfig;
use symphony_protocol::control as pb;
use symphony_transport::{ControlClient, ControlError};
use symphony_types::{BackendId, BootId, GpuId, Level, SubclusterId, Token};

use crate::plan_intake::BackendIdentity;

/// How long registration may take: a cluster that starts together elects its leader first.
pub(crate) const REGISTER_WITHIN: Duration = Duration::from_secs(30);

/// What a backend registers with.
pub(crate) fn registration(
    config: &BackendConfig,
    executor: &str,
    boot: BootId,
    level: u32,
) -> pb::RegisterBackendRequest {
    let gpus = config.gpus.iter().flat_map(|gpu| {
        let offer = pb::GpuOffer { kind: gpu.kind.clone(), memory_bytes: gpu.memory_bytes() };
        std::iter::repeat_n(offer, gpu.count as usize)
    });
    pb::RegisterBackendRequest {
        name: config.name.clone(),
        boot_id: boot.get(),
        exec_addr: config.exec.to_string(),
        subcluster: config.subcluster.clone(),
        executor: executor.to_owned(),
        gpus: gpus.collect(),
        level,
    }
}

/// Registers it, and tells the client the level of the cluster.
pub(crate) async fn register(
    control: &ControlClient,
    request: &pb::RegisterBackendRequest,
    within: Duration,
) -> Result<BackendIdentity, ControlError> {
    let call = |mut client: pb::control_client::ControlClient<_>| {
        let request = request.clone();
        async move { client.register_backend(request).await }
    };
    let reply = control.call(within, call).await?;
    control.update_level(Level::from_message(reply.level));
    Ok(BackendIdentity {
        backend: BackendId::new(reply.backend),
        boot: BootId::new(request.boot_id),
        subcluster: SubclusterId::new(reply.subcluster),
        gpus: reply.gpus.into_iter().map(GpuId::new).collect(),
        token: Token::new(reply.token),
    })
}
