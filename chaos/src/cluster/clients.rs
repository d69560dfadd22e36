//! One client for each replica there is now, shared by all that talk to the control group.

use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Result;
use symphony_config::Address;
use symphony_net::Net;
use symphony_transport::ControlClient;

use super::Process;

/// Clones share it: who comes and goes is known to all at once.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    net: Net,
    each: Arc<RwLock<Vec<(Process, ControlClient)>>>,
}

impl Clients {
    pub(super) fn new(net: &Net, replicas: &[(Process, Address)]) -> Result<Self> {
        let this = Self { net: net.clone(), each: Arc::default() };
        replicas.iter().try_for_each(|(replica, control)| this.add(*replica, control))?;
        Ok(this)
    }

    pub(super) fn add(&self, replica: Process, control: &Address) -> Result<()> {
        let client = ControlClient::new(&self.net, &[control.to_string()])?;
        self.each.write().unwrap_or_else(PoisonError::into_inner).push((replica, client));
        Ok(())
    }

    pub(super) fn remove(&self, replica: Process) {
        self.each.write().unwrap_or_else(PoisonError::into_inner).retain(|(of, _)| *of != replica);
    }

    pub(crate) fn all(&self) -> Vec<(Process, ControlClient)> {
        self.each.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The client of that number, counted round and round; there is always a replica.
    pub(crate) fn nth(&self, number: usize) -> ControlClient {
        let all = self.each.read().unwrap_or_else(PoisonError::into_inner);
        all[number % all.len()].1.clone()
    }
}
