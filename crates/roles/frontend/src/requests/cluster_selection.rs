//! Which cluster serves a model, and what is known of models there.

use std::collections::BTreeSet;
use std::sync::Arc;

use symphony_types::FailReason;

use crate::accounts::collectors::ModelStanding;
use crate::clusters::cluster::Cluster;
use crate::clusters::cluster_order::in_order;
use crate::clusters::routing::{Route, Routes, versions_of};
use crate::frontend::Inner;
use crate::oip::{InferError, ModelInfo, ModelState};

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
        unready(&self.cluster, &self.route).is_none()
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
        let names: BTreeSet<_> = self.clusters().flat_map(|(_, cluster)| names_of(&cluster.routes())).collect();
        names.iter().filter_map(|loaded_as| self.info(loaded_as)).collect()
    }

    /// How things stand with each model, in the same order.
    pub(crate) fn standings(&self) -> Vec<ModelStanding> {
        let draining = self.is_draining();
        let standing = |target: Target| {
            let Target { cluster, route, .. } = target;
            let view = Arc::clone(&cluster.view.borrow());
            let subcluster = view.subclusters.get(&route.subcluster).map(|subcluster| subcluster.name.clone());
            let unready = match draining {
                true => Some(InferError::Failed(FailReason::Draining).face().reason),
                false => unready(&cluster, &route).map(|error| error.face().reason),
            };
            let subcluster = subcluster.unwrap_or_else(|| route.subcluster.to_string());
            ModelStanding { info: route.info, subcluster, unready }
        };
        let names: BTreeSet<_> = self.clusters().flat_map(|(_, cluster)| names_of(&cluster.routes())).collect();
        names.iter().filter_map(|name| self.select_cluster(name, None, &[])).map(standing).collect()
    }

    /// The names that versions of a model have in the clusters, each once.
    pub(crate) fn loaded_as(&self, name: &str) -> BTreeSet<String> {
        let routes = self.clusters().map(|(_, cluster)| cluster.routes());
        routes.flat_map(|routes| versions_of(&routes, name)).collect()
    }
}

fn names_of(routes: &Routes) -> Vec<String> {
    routes.keys().cloned().collect()
}

/// Why a cluster takes no requests for a model now, or none.
pub(super) fn unready(cluster: &Arc<Cluster>, route: &Route) -> Option<InferError> {
    // Nothing new where the frontend shall become empty, else it never does.
    if cluster.is_cordoned() {
        return Some(InferError::Failed(FailReason::Draining));
    }
    match route.info.state {
        ModelState::Ready => {}
        ModelState::NoGpu(why) => return Some(InferError::NoGpu(why)),
        _ => return Some(InferError::Failed(FailReason::ModelNotReady)),
    }
    // A request that waits has its chance until its deadline; no new one shall wait for a leader that has stopped or is
    // gone.
    cluster.is_suspended(route.subcluster).then_some(InferError::Failed(FailReason::ControlPlaneLost))
}
