//! Frontends that only register. Each has a certificate of its own: no process registers under another's name.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use symphony_net::{Net, Role};
use symphony_transport::ControlClient;

use super::layout::Pki;
use super::{Clients, Process};

/// Makes writers.
#[derive(Clone, Debug)]
pub(crate) struct Writers {
    pki: Arc<Pki>,
    replicas: Clients,
}

/// One frontend, with its connections.
#[derive(Debug)]
pub(crate) struct Writer {
    name: String,
    net: Net,
    replicas: Clients,
    clients: BTreeMap<Process, ControlClient>,
}

impl Writers {
    pub(super) const fn new(pki: Arc<Pki>, replicas: Clients) -> Self {
        Self { pki, replicas }
    }

    pub(crate) fn writer(&self, name: String) -> Result<Writer> {
        let net = self.pki.net(Role::Frontend, &name)?;
        Ok(Writer { name, net, replicas: self.replicas.clone(), clients: BTreeMap::new() })
    }
}

impl Writer {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its client of the replica of that number, counted round and round over those that there are.
    pub(crate) fn nth(&mut self, number: usize) -> Result<ControlClient> {
        let (replica, control) = self.replicas.nth_place(number);
        if let Some(known) = self.clients.get(&replica) {
            return Ok(known.clone());
        }
        let client = ControlClient::new(&self.net, &[control.to_string()])?;
        self.clients.insert(replica, client.clone());
        Ok(client)
    }
}
