//! Checks of addresses: ports that are taken twice, what others cannot reach, and routes.

use std::collections::BTreeSet;

use super::{Check, limits};
use crate::{Address, NodeConfig};

/// An address and its key.
struct KeyedAddress<'a> {
    key: String,
    address: &'a Address,
    /// Other nodes dial it, so it must mean the same everywhere.
    dialled: bool,
}

/// Every address of the configuration.
fn addresses(config: &NodeConfig) -> Vec<KeyedAddress<'_>> {
    let mut all = Vec::new();
    for (index, replica) in config.cluster.scheduler.iter().enumerate() {
        for (name, address) in replica.addresses() {
            all.push(KeyedAddress { key: format!("cluster.scheduler.{index}.{name}"), address, dialled: true });
        }
    }
    let mut own = |key: &str, address, dialled| all.push(KeyedAddress { key: key.to_owned(), address, dialled });
    if let Some(scheduler) = &config.scheduler {
        own("scheduler.metrics", &scheduler.metrics, false);
    }
    if let Some(frontend) = &config.frontend {
        own("frontend.grpc", &frontend.grpc, false);
        own("frontend.rest", &frontend.rest, false);
        own("frontend.metrics", &frontend.metrics, false);
        if config.federation.is_none() {
            own("frontend.data", &frontend.data, true);
        }
    }
    if let Some(backend) = &config.backend {
        own("backend.exec", &backend.exec, true);
        own("backend.metrics", &backend.metrics, false);
    }
    if let Some(federation) = &config.federation {
        if config.frontend.is_none() {
            own("federation.metrics", &federation.metrics, false);
        }
        for (index, replica) in federation.replica.iter().enumerate() {
            let key = format!("federation.replica.{index}.control");
            all.push(KeyedAddress { key, address: &replica.control, dialled: true });
        }
        for (index, cluster) in federation.clusters.iter().enumerate() {
            let key = |name: &str| format!("federation.clusters.{index}.{name}");
            let control =
                cluster.control.iter().map(|address| KeyedAddress { key: key("control"), address, dialled: true });
            let data = cluster.data.iter().map(|address| KeyedAddress { key: key("data"), address, dialled: true });
            all.extend(control.chain(data));
        }
    }
    all
}

impl Check {
    pub(super) fn network(&mut self, config: &NodeConfig) {
        let routes = &config.network.routes;
        if routes.len() > limits::ROUTES_MAX {
            self.say("network.routes", format!("{} routes; expected at most {}", routes.len(), limits::ROUTES_MAX));
        }
        let mut known = BTreeSet::new();
        for (index, route) in routes.iter().enumerate() {
            let key = format!("network.routes.{index}");
            if !known.insert(&route.to) {
                self.say(format!("{key}.to"), format!("{} is routed twice; keep one of them", route.to));
            }
            if route.via.port() == 0 || route.via.is_wildcard() {
                self.say(format!("{key}.via"), format!("{} cannot be dialled; give a host and a port", route.via));
            }
        }
    }

    pub(super) fn ports(&mut self, config: &NodeConfig) {
        let all = addresses(config);
        for (index, one) in all.iter().enumerate() {
            let port = one.address.port();
            if port == 0 {
                if one.dialled && (one.key.starts_with("cluster.") || one.key.starts_with("federation.")) {
                    self.say(&one.key, "port 0 is chosen at start, so no process could dial it; give a fixed port");
                }
                continue;
            }
            // A wildcard takes the port on every address of this machine, but replicas may live on others.
            let same_host = |other: &KeyedAddress<'_>| {
                let elsewhere = ["cluster.", "federation.replica.", "federation.clusters."];
                let local = |s: &KeyedAddress<'_>| !elsewhere.iter().any(|section| s.key.starts_with(section));
                one.address.host() == other.address.host()
                    || (one.address.is_loopback() && other.address.is_loopback())
                    || (local(one) && local(other) && (one.address.is_wildcard() || other.address.is_wildcard()))
            };
            for other in all[..index].iter().filter(|o| o.address.port() == port) {
                if same_host(other) {
                    self.say(&one.key, format!("{} is taken by {} = {}", one.address, other.key, other.address));
                }
            }
        }
    }

    pub(super) fn reach(&mut self, config: &NodeConfig) {
        for KeyedAddress { key, address, dialled } in addresses(config) {
            if dialled && address.is_wildcard() {
                let advice = "give the address by which other nodes reach this one";
                self.say(&key, format!("{address} means every address of a machine and cannot be dialled; {advice}"));
            }
            if !address.is_loopback() && config.security.insecure_dev {
                self.say(
                    &key,
                    format!(
                        "{address} is not a loopback address, and with security.insecure_dev anything that reaches \
                         it commands the cluster; use loopback, or certificates (`symphony certs`)"
                    ),
                );
            }
        }
    }
}
