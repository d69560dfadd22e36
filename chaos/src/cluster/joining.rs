//! What a replica needs that joins a cluster which runs already.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use symphony_config::{Address, NodeConfig, ReplicaConfig, SchedulerConfig};
use symphony_types::NodeId;

use super::layout::{Pki, data_dir};
use super::{Process, Processes};
use crate::network::Network;

/// Writes configurations for replicas that come later.
pub(super) struct Joining {
    pub(super) base: NodeConfig,
    pub(super) scheduler: SchedulerConfig,
    pub(super) pki: Arc<Pki>,
    pub(super) dir: PathBuf,
}

impl std::fmt::Debug for Joining {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Joining").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Joining {
    /// The configuration of a replica that comes, and where it is reached. It is told of those that are there now.
    pub(super) fn config(
        &mut self,
        replica: Process,
        there: &Processes,
        network: &mut Network,
    ) -> Result<(NodeConfig, ReplicaConfig)> {
        let Process::Replica(id) = replica else { anyhow::bail!("{replica} is no replica") };
        let mut next = || network.address(replica);
        let id = NodeId::new(id);
        let addresses = ReplicaConfig { id, control: next()?, dispatch: next()?, beat: next()? };
        let metrics: Address = next()?;
        let known: Vec<_> = there.replicas().collect();
        self.base.cluster.scheduler.push(addresses.clone());
        self.base.cluster.scheduler.retain(|one| known.contains(&Process::Replica(one.id.get())));
        let data_dir = data_dir(&self.dir, replica);
        let own = SchedulerConfig { id, data_dir, metrics, join: true, ..self.scheduler.clone() };
        let security = self.pki.of(replica).context("a certificate for who comes")?;
        Ok((NodeConfig { scheduler: Some(own), security, ..self.base.clone() }, addresses))
    }
}
