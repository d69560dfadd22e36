//! A fault proxy in the middle of every link of a cluster.

use std::collections::BTreeMap;

use anyhow::Result;
use symphony_config::Address;

use super::{OneWay, Proxy, Troubles};
use crate::cluster::{Process, Processes};

/// One proxy for each (who dials, which address).
#[derive(Debug)]
pub(crate) struct Proxies {
    processes: Processes,
    links: BTreeMap<(Process, Process), Vec<Proxy>>,
}

impl Proxies {
    pub(crate) fn new(processes: &Processes) -> Self {
        Self { processes: processes.clone(), links: BTreeMap::new() }
    }

    /// Puts a proxy between all other processes and an address of `owner`; returns the address to dial, by process.
    pub(crate) async fn stand_before(&mut self, owner: Process, address: &Address) -> Result<Vec<(Process, Address)>> {
        let mut through = Vec::new();
        for dialler in self.processes.all().filter(|process| *process != owner) {
            let proxy = Proxy::start(address.to_string()).await?;
            through.push((dialler, Address::loopback(proxy.listens().port())));
            self.links.entry((dialler, owner)).or_default().push(proxy);
        }
        Ok(through)
    }

    pub(crate) fn set(&self, troubles: &Troubles) {
        let way = |from, to| troubles.get(&(from, to)).copied().unwrap_or(OneWay::default());
        for (&(dialler, owner), proxies) in &self.links {
            proxies.iter().for_each(|proxy| proxy.set(way(dialler, owner), way(owner, dialler)));
        }
    }

    pub(crate) fn touched(&self) -> u64 {
        self.links.values().flatten().map(Proxy::touched).sum()
    }
}
