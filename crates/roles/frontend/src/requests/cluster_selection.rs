//! Which cluster serves a model, and what is known of models there.

use std::collections::BTreeSet;
use std::sync::Arc;

use symphony_types::{FailReason, VersionedName};

use crate::clusters::cluster::Cluster;
use crate::clusters::cluster_order::in_order;
use crate::clusters::live_pipeline::LivePipeline;
use crate::clusters::routing::{Route, Routes, versions_of};
use crate::counts::collectors::ListedModel;
use crate::inner::Inner;
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
    /// Where a request for the model goes, by the newest view of the federation: to a cluster that takes it, if any
    /// does. Leaves out the clusters in the slots `tried`, and those whose model of the name reads other inputs than
    /// `made_for`.
    pub(super) fn select_cluster(&self, model: &str, made_for: Option<&ModelInfo>, tried: &[usize]) -> Option<Target> {
        let view = self.federation_view.as_ref().map(|view| Arc::clone(&view.borrow()));
        let order = match &view {
            Some(view) => in_order(view, model, self.slots.iter().map(|slot| slot.name.as_str())),
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

    /// Whether requests for this version of a model or pipeline go to the cluster in that slot.
    pub(crate) fn is_version_served_in(&self, slot: usize, name: &str, version: u64) -> bool {
        let versioned = VersionedName { name, version }.loaded_as();
        if let (Some((asked, _)), Some(here)) = (self.pipeline(&versioned), self.slots[slot].cluster.get()) {
            return Arc::ptr_eq(asked, here);
        }
        let unversioned = (version == VersionedName::UNVERSIONED).then_some(name);
        let mut names = [Some(versioned.as_str()), unversioned].into_iter().flatten();
        names.any(|loaded_as| self.select_cluster(loaded_as, None, &[]).is_some_and(|target| target.slot == slot))
    }

    /// What is known of the model or pipeline of that name in the cluster that would be asked.
    pub(crate) fn info(&self, loaded_as: &str) -> Option<Arc<ModelInfo>> {
        let model = self.select_cluster(loaded_as, None, &[]).map(|target| target.route.info);
        model.or_else(|| self.pipeline(loaded_as).map(|(_, pipeline)| Arc::clone(&pipeline.info)))
    }

    /// The version of a pipeline of that name, and a cluster that has it: one where it is ready, if it is anywhere.
    pub(crate) fn pipeline(&self, loaded_as: &str) -> Option<(&Arc<Cluster>, Arc<LivePipeline>)> {
        let known = self.clusters().filter_map(|(_, cluster)| Some((cluster, cluster.pipeline(loaded_as)?)));
        // The last of several with the same key would be taken.
        let known: Vec<_> = known.collect();
        known.into_iter().rev().max_by_key(|(_, pipeline)| pipeline.info.state == ModelState::Ready)
    }

    /// Every version of every pipeline, in the order of their names.
    fn pipelines(&self) -> Vec<Arc<LivePipeline>> {
        let all = self.clusters().flat_map(|(_, cluster)| cluster.pipelines().keys().cloned().collect::<Vec<_>>());
        let names: BTreeSet<_> = all.collect();
        names.iter().filter_map(|name| Some(self.pipeline(name)?.1)).collect()
    }

    /// What is known of all models in the order of the names that they are loaded as, and then of all pipelines.
    pub(crate) fn infos(&self) -> Vec<Arc<ModelInfo>> {
        let names: BTreeSet<_> = self.clusters().flat_map(|(_, cluster)| names_of(&cluster.routes())).collect();
        let models = names.iter().filter_map(|loaded_as| self.info(loaded_as));
        models.chain(self.pipelines().into_iter().map(|pipeline| Arc::clone(&pipeline.info))).collect()
    }

    /// The model or pipeline that gets the next request which names no version, or the one that the name has in the
    /// cluster.
    pub(crate) fn model_for_request(&self, name: &str) -> Option<Arc<ModelInfo>> {
        let split = self.traffic_of(name);
        let ready = |version| self.model(name, Some(version)).filter(|info| info.state == ModelState::Ready);
        let turn = split.and_then(|traffic| self.traffic.next(name, &traffic, |version| ready(version).is_some()));
        turn.and_then(ready).or_else(|| self.model(name, None))
    }

    /// One version of a model or pipeline; without a version the latest that is ready, or else the latest.
    pub(crate) fn model(&self, name: &str, version: Option<u64>) -> Option<Arc<ModelInfo>> {
        if let Some(version) = version {
            let versioned = self.info(&VersionedName { name, version }.loaded_as());
            return versioned.or_else(|| self.info(name).filter(|info| info.version == version));
        }
        // Also under the name that the cluster has for a version, which people see in its tools.
        let exact = self.info(name);
        let versioned = self.loaded_as(name).into_iter().filter_map(|loaded_as| self.info(&loaded_as));
        versioned.chain(exact).max_by_key(|info| (info.state == ModelState::Ready, info.version))
    }

    /// Each model and pipeline, and whether it can be asked, in the same order.
    pub(crate) fn listed_models(&self) -> Vec<ListedModel> {
        let draining = self.is_draining();
        let listed = |target: Target| {
            let Target { cluster, route, .. } = target;
            let view = Arc::clone(&cluster.view.borrow());
            let subcluster = view.subclusters.get(&route.subcluster).map(|subcluster| subcluster.name.clone());
            let unready = match draining {
                true => Some(InferError::Failed(FailReason::Draining).error_status().reason),
                false => unready(&cluster, &route).map(|error| error.error_status().reason),
            };
            let subcluster = subcluster.unwrap_or_else(|| route.subcluster.to_string());
            ListedModel { info: route.info, subcluster, unready }
        };
        let names: BTreeSet<_> = self.clusters().flat_map(|(_, cluster)| names_of(&cluster.routes())).collect();
        let models = names.iter().filter_map(|name| self.select_cluster(name, None, &[])).map(listed);
        let of_pipeline = |pipeline: Arc<LivePipeline>| {
            let unready = match draining {
                true => Some(InferError::Failed(FailReason::Draining).error_status().reason),
                false => self.pipeline_unready(&pipeline).map(|error| error.error_status().reason),
            };
            // Its stages may be in several.
            ListedModel { info: Arc::clone(&pipeline.info), subcluster: String::new(), unready }
        };
        models.chain(self.pipelines().into_iter().map(of_pipeline)).collect()
    }

    /// Why a pipeline takes no requests now, or none: a stage's own reason, with its name.
    pub(super) fn pipeline_unready(&self, pipeline: &LivePipeline) -> Option<InferError> {
        for stage in &pipeline.declaration.stages {
            let target = self.model(&stage.model, None);
            let target = target.and_then(|info| self.select_cluster(&info.loaded_as, None, &[]));
            let error = match target {
                None => Some(InferError::Failed(FailReason::ModelNotReady)),
                Some(target) => unready_model(&target.cluster, &target.route),
            };
            if let Some(error) = error {
                let (stage, request) = (stage.name.clone(), String::new());
                return Some(InferError::Stage { stage, request, error: Box::new(error) });
            }
        }
        let is_ready = pipeline.plan.is_some() && pipeline.info.state == ModelState::Ready;
        (!is_ready).then_some(InferError::Failed(FailReason::ModelNotReady))
    }

    /// The names that versions of a model or pipeline have in the clusters, each once.
    pub(crate) fn loaded_as(&self, name: &str) -> BTreeSet<String> {
        let versions = |cluster: &Cluster| {
            versions_of(&cluster.routes(), name).into_iter().chain(versions_of(&cluster.pipelines(), name))
        };
        self.clusters().flat_map(|(_, cluster)| versions(cluster)).collect()
    }
}

fn names_of(routes: &Routes) -> Vec<String> {
    routes.keys().cloned().collect()
}

/// Why a cluster takes no requests for a model now, or none.
pub(super) fn unready(cluster: &Arc<Cluster>, route: &Route) -> Option<InferError> {
    // Nothing new in a cluster that drains the frontend, or that would never end.
    if cluster.is_cordoned() {
        return Some(InferError::Failed(FailReason::Draining));
    }
    unready_model(cluster, route)
}

/// The same of a cluster that may have cordoned this frontend: what was taken in goes on, and so do its stages.
pub(super) fn unready_model(cluster: &Arc<Cluster>, route: &Route) -> Option<InferError> {
    match route.info.state {
        ModelState::Ready => {}
        ModelState::NoGpu(why) => return Some(InferError::NoGpu(why)),
        _ => return Some(InferError::Failed(FailReason::ModelNotReady)),
    }
    // A request that waits has its chance until its deadline; no new one may wait for a leader that has stopped or is
    // gone.
    cluster.is_suspended(route.subcluster).then_some(InferError::Failed(FailReason::ControlPlaneLost))
}
