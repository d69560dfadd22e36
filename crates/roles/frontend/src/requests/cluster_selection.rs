//! Which cluster serves a model, and what is known of models there.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::clusters::cluster::Cluster;
use crate::clusters::cluster_order::in_order;
use crate::clusters::routing::{Route, versions_of};
use crate::frontend::Inner;
use crate::oip::{ModelInfo, ModelState};

/// Where a request goes.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) cluster: Arc<Cluster>,
    /// Which of the frontend's slots holds the cluster.
    pub(super) slot: usize,
    /// Of the request's model in that cluster.
    pub(super) route: Route,
}

impl Target {
    /// Whether the cluster takes requests for the model now.
    pub(super) fn takes_requests(&self) -> bool {
        let stopped = self.cluster.is_suspended(self.route.subcluster);
        self.route.info.state == ModelState::Ready && !stopped && !self.cluster.is_cordoned()
    }
}

impl Inner {
    /// Where a request for the model goes, by the newest plan of the federation: to a cluster that takes it, if any
    /// does. Leaves out the clusters in the slots `tried`, and those whose model of the name reads other inputs than
    /// `made_for`.
    pub(super) fn select_cluster(&self, model: &str, made_for: Option<&ModelInfo>, tried: &[usize]) -> Option<Target> {
        let plan = self.plan.as_ref().map(|plan| Arc::clone(&plan.borrow()));
        let order = match &plan {
            Some(plan) => in_order(plan, model, self.slots.iter().map(|slot| slot.name.as_str())),
            None => (0..self.slots.len()).collect(),
        };
        let mut second = None;
        for slot in order.into_iter().filter(|slot| !tried.contains(slot)) {
            let Some(cluster) = self.slots[slot].cluster.get() else { continue };
            let Some(route) = cluster.route(model) else { continue };
            if made_for.is_some_and(|made_for| !route.info.reads_and_answers_as(made_for)) {
                continue;
            }
            let target = Target { cluster: Arc::clone(cluster), slot, route };
            if target.takes_requests() {
                return Some(target);
            }
            second.get_or_insert(target);
        }
        second
    }

    /// What is known of the model of that name in the cluster that would be asked.
    pub(crate) fn info(&self, loaded_as: &str) -> Option<Arc<ModelInfo>> {
        self.select_cluster(loaded_as, None, &[]).map(|target| target.route.info)
    }

    /// What is known of all models, in the order of the names that they are loaded as.
    pub(crate) fn infos(&self) -> Vec<Arc<ModelInfo>> {
        let all = self.clusters().flat_map(|(_, cluster)| cluster.routes().keys().cloned().collect::<Vec<_>>());
        let names: BTreeSet<_> = all.collect();
        names.iter().filter_map(|loaded_as| self.info(loaded_as)).collect()
    }

    /// The names that versions of a model have in the clusters, each once.
    pub(crate) fn loaded_as(&self, name: &str) -> BTreeSet<String> {
        let routes = self.clusters().map(|(_, cluster)| cluster.routes());
        routes.flat_map(|routes| versions_of(&routes, name)).collect()
    }
}
