//! Checks of the `federation` section: its replicas and its clusters.

use std::collections::BTreeSet;

use super::{Check, limits};
use crate::{FederationConfig, NodeConfig, Role};

impl Check {
    pub(super) fn federation(&mut self, config: &NodeConfig, federation: &FederationConfig, role: Role) {
        if !matches!(role, Role::Federation | Role::Frontend) {
            let who = "only `symphony federation` and frontends have this section";
            self.say("federation", format!("a {role} belongs to one cluster; {who}"));
            return;
        }
        let replicas = federation.replica.len();
        if !limits::REPLICAS.contains(&replicas) {
            self.say("federation.replica", format!("{replicas} replicas; expected 1, 3, 5 or 7"));
        }
        let mut ids = BTreeSet::new();
        for (index, replica) in federation.replica.iter().enumerate() {
            if replica.id.get() == 0 || !ids.insert(replica.id) {
                let got = replica.id.get();
                self.say(
                    format!("federation.replica.{index}.id"),
                    format!("{got}; expected a number from 1, each once"),
                );
            }
        }
        if role == Role::Federation {
            if federation.replica(federation.id).is_none() {
                let id = federation.id.get();
                self.say("federation.id", format!("{id} is not among the ids of federation.replica"));
            }
            if federation.data_dir.as_os_str().is_empty() {
                self.say("federation.data_dir", "no directory is given; name one that survives restarts");
            }
            let [min, max] = limits::UNREACHABLE_MS;
            self.range("federation.unreachable_ms", federation.unreachable_ms, min, max);
        }
        self.federated_clusters(config, federation, role);
    }

    fn federated_clusters(&mut self, config: &NodeConfig, federation: &FederationConfig, role: Role) {
        let clusters = &federation.clusters;
        if clusters.is_empty() || clusters.len() > limits::CLUSTERS_MAX {
            let (got, max) = (clusters.len(), limits::CLUSTERS_MAX);
            self.say("federation.clusters", format!("{got} clusters; expected 1 to {max}"));
        }
        let mut names = BTreeSet::new();
        for (index, cluster) in clusters.iter().enumerate() {
            let key = |name: &str| format!("federation.clusters.{index}.{name}");
            self.name(key("name"), &cluster.name);
            if !names.insert(&cluster.name) {
                self.say(key("name"), format!("`{}` is given twice; names are unique", cluster.name));
            }
            if cluster.control.is_empty() || cluster.control.len() > limits::CONTROLS_MAX {
                let (got, max) = (cluster.control.len(), limits::CONTROLS_MAX);
                self.say(key("control"), format!("{got} addresses; expected 1 to {max}"));
            }
            match (&cluster.data, role) {
                (None, Role::Frontend) => self.say(
                    key("data"),
                    "must be given: where the cluster's backends reach this frontend, a port of its own per cluster",
                ),
                (Some(data), Role::Federation) => {
                    self.say(key("data"), format!("{data}: only frontends serve backends; leave it out"));
                }
                _ => {}
            }
            for (name, file) in [("ca", &cluster.ca), ("cert", &cluster.cert), ("key", &cluster.key)] {
                match (file, config.security.insecure_dev) {
                    (None, false) => self.say(key(name), "must be given: every cluster has an authority of its own"),
                    (Some(file), true) => {
                        let file = file.display();
                        self.say(key(name), format!("{file} with security.insecure_dev, which uses none"));
                    }
                    _ => {}
                }
            }
        }
    }
}
