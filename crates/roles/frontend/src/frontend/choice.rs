//! Which cluster serves a model, and what is known of models there.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Inner;
use super::door::takes;
use crate::cluster::Cluster;
use crate::oip::ModelInfo;
use crate::plan::in_order;
use crate::routing::{Route, versions_of};

impl Inner {
    /// Where a request for the model goes, by the newest plan, without those clusters that have turned it away, or in which its input
    /// is none of the model's (`made_for`): where it is ready, if it is anywhere.
    pub(super) fn choose(
        &self,
        model: &str,
        made_for: Option<&ModelInfo>,
        not: &[usize],
    ) -> Option<(Arc<Cluster>, usize, Route)> {
        let plan = self.plan.as_ref().map(|plan| Arc::clone(&plan.borrow()));
        let order = match &plan {
            Some(plan) => in_order(plan, model, self.places.iter().map(|place| place.name.as_str())),
            None => (0..self.places.len()).collect(),
        };
        let mut second = None;
        for index in order.into_iter().filter(|index| !not.contains(index)) {
            let Some(cluster) = self.places[index].cluster.get() else { continue };
            let Some(route) = cluster.route(model) else { continue };
            if made_for.is_some_and(|made_for| !route.info.reads_and_answers_as(made_for)) {
                continue;
            }
            let takes = takes(cluster, &route);
            let found = (Arc::clone(cluster), index, route);
            if takes {
                return Some(found);
            }
            second.get_or_insert(found);
        }
        second
    }

    /// What is known of the model of that name in the cluster that would be asked.
    pub(crate) fn info(&self, loaded_as: &str) -> Option<Arc<ModelInfo>> {
        self.choose(loaded_as, None, &[]).map(|(.., route)| route.info)
    }

    /// The same of all models, in the order of those names.
    pub(crate) fn infos(&self) -> Vec<Arc<ModelInfo>> {
        let all = self.clusters().flat_map(|(_, cluster)| cluster.routes().keys().cloned().collect::<Vec<_>>());
        let names: BTreeSet<_> = all.collect();
        names.iter().filter_map(|loaded_as| self.info(loaded_as)).collect()
    }

    /// The names that versions of a model have in the clusters, each once.
    pub(super) fn loaded_as(&self, name: &str) -> BTreeSet<String> {
        let routes = self.clusters().map(|(_, cluster)| cluster.routes());
        routes.flat_map(|routes| versions_of(&routes, name)).collect()
    }
}
