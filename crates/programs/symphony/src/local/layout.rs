//! What a local cluster consists of.

use std::net::Ipv4Addr;

use symphony_config::{
    Address, BackendConfig, ClusterConfig, FramesConfig, FrontendConfig, LogConfig, NetworkConfig, SchedulerConfig,
    SecurityConfig, TelemetryConfig,
};
use symphony_net::Role;

/// What a local cluster consists of.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) cluster: ClusterConfig,
    /// One per entry of `cluster.scheduler`.
    pub(crate) schedulers: Vec<SchedulerConfig>,
    pub(crate) frontend: FrontendConfig,
    /// In a federation, whose frontend serves all clusters and is not started with this one: the
    /// identities that connect to this cluster from there.
    pub(crate) guests: Option<Vec<(Role, String)>>,
    pub(crate) backends: Vec<BackendConfig>,
    pub(crate) network: NetworkConfig,
    pub(crate) frames: FramesConfig,
    pub(crate) log: LogConfig,
    pub(crate) telemetry: TelemetryConfig,
    /// Only whether it is plaintext; certificates are generated.
    pub(crate) security: SecurityConfig,
}

impl Layout {
    /// This cluster with every process at `host`, and all ports shifted.
    pub(crate) fn moved(mut self, host: Ipv4Addr, ports_above: u16) -> Self {
        let moved = |address: &mut Address| {
            *address = Address::at(host.into(), address.port().saturating_add(ports_above));
        };
        for replica in &mut self.cluster.scheduler {
            [&mut replica.control, &mut replica.dispatch, &mut replica.beat].into_iter().for_each(moved);
        }
        self.schedulers.iter_mut().for_each(|scheduler| moved(&mut scheduler.metrics));
        let frontend = &mut self.frontend;
        [&mut frontend.grpc, &mut frontend.rest, &mut frontend.metrics, &mut frontend.data].into_iter().for_each(moved);
        for backend in &mut self.backends {
            [&mut backend.exec, &mut backend.metrics].into_iter().for_each(moved);
        }
        self
    }

    /// The frontend of this cluster alone.
    pub(super) fn own_frontend(&self) -> Option<&FrontendConfig> {
        self.guests.is_none().then_some(&self.frontend)
    }
}
