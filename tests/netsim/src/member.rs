//! A process that registers with the cluster and watches it: a backend with a GPU, or a frontend.

use std::time::Duration;

use symphony_protocol::control as pb;
use symphony_protocol::view::BackendScope;
use symphony_transport::{ControlClient, ControlError, ViewReceiver};
use symphony_types::{BackendId, BootId, FrontendId, GpuId, SubclusterId, Token};

use crate::cluster::{CONSOLE_PORT, Cluster, DATA_PORT, EXEC_PORT};
use crate::dispatch::gpus::Registered;
use crate::dispatch::{frontend, gpus};

/// How long a registration is tried before it is begun again.
const REGISTER_WITHIN: Duration = Duration::from_secs(2);
/// Pause after a failed registration, and between looks at the own standing.
const POLL_EVERY: Duration = Duration::from_millis(200);

/// One boot of a backend; ends with its host.
pub(crate) async fn live_as_backend(cluster: Cluster, name: &'static str) -> turmoil::Result {
    let boot = cluster.fresh_boot();
    cluster.trace.note(format_args!("{name} starts as boot {boot}"));
    let client = ControlClient::new(&cluster.links.net(name), &Cluster::control_addrs())?;
    let reply = until_registered(|| register_backend(&client, name, boot)).await;
    cluster.trace.note(format_args!("{name} is backend {} with token {}", reply.backend, reply.token));
    let me = Registered {
        backend: BackendId::new(reply.backend),
        boot: BootId::new(boot),
        gpu: GpuId::new(reply.gpus[0]),
        token: Token::new(reply.token),
    };
    let scope = BackendScope { backend: me.backend, subcluster: SubclusterId::new(reply.subcluster) };
    let views = client.watch_as_backend(name, scope, me.boot);
    tokio::select! {
        biased;
        ended = gpus::run(cluster.clone(), name, me, views.clone()) => ended,
        ended = stay_registered(&cluster, &client, name, boot, views) => ended,
    }
}

/// One boot of a frontend; ends with its host.
pub(crate) async fn live_as_frontend(cluster: Cluster, name: &'static str) -> turmoil::Result {
    let boot = cluster.fresh_boot();
    cluster.trace.note(format_args!("{name} starts as boot {boot}"));
    let client = ControlClient::new(&cluster.links.net(name), &Cluster::control_addrs())?;
    let reply = until_registered(|| register_frontend(&client, name, boot)).await;
    cluster.trace.note(format_args!("{name} is frontend {}", reply.frontend));
    let me = (FrontendId::new(reply.frontend), BootId::new(boot));
    frontend::run(cluster, name, me, client.watch(name)).await
}

async fn until_registered<T>(register: impl AsyncFn() -> Result<T, ControlError>) -> T {
    loop {
        match register().await {
            Ok(reply) => return reply,
            Err(error) => {
                tracing::debug!(%error, "not registered");
                tokio::time::sleep(POLL_EVERY).await;
            }
        }
    }
}

/// Registers again whenever the view shows the backend as down.
async fn stay_registered(
    cluster: &Cluster,
    client: &ControlClient,
    name: &str,
    boot: u64,
    mut views: ViewReceiver,
) -> turmoil::Result {
    let mut last = 0;
    loop {
        tokio::select! {
            biased;
            changed = views.changed() => changed?,
            () = tokio::time::sleep(POLL_EVERY) => {}
        }
        let view = views.borrow_and_update().clone();
        // A watcher of several replicas keeps the newest view and never goes back.
        assert!(view.applied_index >= last, "{name} watched {} after {last}", view.applied_index);
        last = view.applied_index;
        let down = view.backends.values().any(|b| b.name == name && b.boot.get() == boot && !b.up);
        if down && register_backend(client, name, boot).await.is_ok() {
            cluster.trace.note(format_args!("{name} registered again"));
        }
    }
}

async fn register_backend(
    client: &ControlClient,
    name: &str,
    boot: u64,
) -> Result<pb::RegisterBackendReply, ControlError> {
    let request = pb::RegisterBackendRequest {
        name: name.into(),
        boot_id: boot,
        exec_addr: format!("{name}:{EXEC_PORT}"),
        // Each in a sub-cluster of its own: two leads to place.
        subcluster: format!("s-{name}"),
        executor: "emulated".into(),
        gpus: vec![pb::GpuOffer { kind: "gpu".into(), memory_bytes: 1 << 30 }],
        level: client.newest_level(),
    };
    let call = |mut client: pb::control_client::ControlClient<_>| {
        let request = request.clone();
        async move { client.register_backend(request).await }
    };
    client.call(REGISTER_WITHIN, call).await
}

async fn register_frontend(
    client: &ControlClient,
    name: &str,
    boot: u64,
) -> Result<pb::RegisterFrontendReply, ControlError> {
    let request = pb::RegisterFrontendRequest {
        name: name.into(),
        boot_id: boot,
        data_addr: format!("{name}:{DATA_PORT}"),
        console_addr: format!("{name}:{CONSOLE_PORT}"),
        level: client.newest_level(),
    };
    let call = |mut client: pb::control_client::ControlClient<_>| {
        let request = request.clone();
        async move { client.register_frontend(request).await }
    };
    client.call(REGISTER_WITHIN, call).await
}
