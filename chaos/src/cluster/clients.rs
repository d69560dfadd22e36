//! One client for each replica there is now, shared by all that talk to the control group.

use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Result;
use symphony_config::Address;
use symphony_net::Net;
use symphony_transport::ControlClient;

use super::Process;

/// A replica as others see it.
#[derive(Clone, Debug)]
struct Replica {
    process: Process,
    control: Address,
    client: ControlClient,
}

/// Clones share it: all see at once which clients come and go.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    net: Net,
    each: Arc<RwLock<Vec<Replica>>>,
}

impl Clients {
    pub(super) fn new(net: &Net, replicas: &[(Process, Address)]) -> Result<Self> {
        let this = Self { net: net.clone(), each: Arc::default() };
        replicas.iter().try_for_each(|(replica, control)| this.add(*replica, control))?;
        Ok(this)
    }

    pub(super) fn add(&self, replica: Process, control: &Address) -> Result<()> {
        let client = ControlClient::new(&self.net, &[control.to_string()])?;
        let known = Replica { process: replica, control: control.clone(), client };
        self.each.write().unwrap_or_else(PoisonError::into_inner).push(known);
        Ok(())
    }

    pub(super) fn remove(&self, replica: Process) {
        self.each.write().unwrap_or_else(PoisonError::into_inner).retain(|known| known.process != replica);
    }

    pub(crate) fn all(&self) -> Vec<(Process, ControlClient)> {
        let each = self.each.read().unwrap_or_else(PoisonError::into_inner);
        each.iter().map(|known| (known.process, known.client.clone())).collect()
    }

    /// The client of that number, counted round and round; there is always a replica.
    pub(crate) fn nth(&self, number: usize) -> ControlClient {
        let all = self.each.read().unwrap_or_else(PoisonError::into_inner);
        all[number % all.len()].client.clone()
    }

    /// That replica, and where its control port is.
    pub(super) fn nth_place(&self, number: usize) -> (Process, Address) {
        let all = self.each.read().unwrap_or_else(PoisonError::into_inner);
        let Replica { process, control, .. } = &all[number % all.len()];
        (*process, control.clone())
    }
}
