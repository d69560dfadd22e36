//! The models of a federation, and whether each is where it should be.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use symphony_executor::default_signature;
use symphony_protocol::control as pb;
use symphony_protocol::federation::FederationView;
use symphony_protocol::view::{KindProfile, ModelSource, ModelSpec, View};
use symphony_transport::{FederationClient, fresh_operation_id};
use symphony_types::{LatencyProfile, Nanos, RequestValue};

use super::scenario::FederationScenario;
use crate::cluster::GPU_KIND;

/// Names of models with load, and of those without, begin so.
const LOADED: &str = "loaded-";
const HEAVY: &str = "heavy-";
/// All of them fit a GPU's 16 GiB in one cluster, beside three of those that admin clients load there.
const STATIC_BYTES: u64 = 128 << 20;
const DYNAMIC_BYTES: u64 = 64 << 20;
/// How long loading one may be asked for.
const CALL_WITHIN: Duration = Duration::from_secs(20);

/// A model, and where it begins.
#[derive(Clone, Debug)]
pub(super) struct FederatedModel {
    pub(super) spec: ModelSpec,
    wanted_rps: f64,
    cluster: String,
}

/// Whether it has load.
pub(super) fn is_loaded(name: &str) -> bool {
    name.starts_with(LOADED)
}

/// The models with load first.
pub(super) fn models(scenario: &FederationScenario, clusters: &[String]) -> Result<Vec<FederatedModel>> {
    let (shape, model) = (&scenario.federation, &scenario.model);
    let latency = LatencyProfile::from_line(model.alpha_ms, model.beta_ms, model.batch_max)?;
    let profile = KindProfile { latency, static_memory_bytes: STATIC_BYTES, dynamic_memory_bytes: DYNAMIC_BYTES };
    let spec = |name: String, value: f64| {
        Ok::<_, anyhow::Error>(ModelSpec {
            name,
            subcluster: String::new(),
            slo: Nanos::from_millis_f64(model.slo_ms),
            source: ModelSource::Emulated,
            signature: default_signature(),
            profiles: [(GPU_KIND.to_owned(), profile.clone())].into(),
            policy: model.policy,
            value: RequestValue::from_number(value).context("a value that a request may have")?,
            transforms: Default::default(),
        })
    };
    let mut all = Vec::new();
    for (number, cluster) in (1..=shape.models).zip(clusters.iter().cycle()) {
        let (spec, wanted_rps) = (spec(format!("{LOADED}{number}"), 2.0)?, scenario.load.rate_rps);
        all.push(FederatedModel { spec, wanted_rps, cluster: cluster.clone() });
    }
    for (number, cluster) in (1..).zip(clusters).filter(|_| shape.heavy_rps > 0.0) {
        let spec = spec(format!("{HEAVY}{number}"), 1.0)?;
        all.push(FederatedModel { spec, wanted_rps: shape.heavy_rps, cluster: cluster.clone() });
    }
    Ok(all)
}

impl FederatedModel {
    /// Has the federation load it.
    pub(super) async fn load(&self, client: &FederationClient) -> Result<()> {
        let request = pb::FederationLoadRequest {
            spec: Some((&self.spec).into()),
            wanted_rps: self.wanted_rps,
            cluster: self.cluster.clone(),
            operation_id: fresh_operation_id().to_string(),
        };
        let call = |mut client: pb::federation_client::FederationClient<_>| {
            let request = request.clone();
            async move { client.load(request).await }
        };
        client.call(CALL_WITHIN, call).await?;
        Ok(())
    }
}

/// Whether all clusters answer, every model has one home and is on no way, and no copy is to be let go of.
pub(super) fn settled(view: &FederationView) -> Result<(), String> {
    if let Some((name, _)) = view.clusters.iter().find(|(_, cluster)| !cluster.reachable) {
        return Err(format!("{name} does not answer"));
    }
    for (name, model) in &view.models {
        if let Some(why) = &model.unplaced {
            return Err(format!("{name} has no place: {why}"));
        }
        if model.home.is_none() || model.moves_to.is_some() || !model.leftovers.is_empty() {
            return Err(format!("{name} is not settled: {model:?}"));
        }
    }
    Ok(())
}

/// Whether each cluster has those models that are at home there, ready, and no other of the federation's (F3).
pub(super) fn in_place(view: &FederationView, clusters: &[(String, Arc<View>)]) -> Result<(), String> {
    for (cluster, own) in clusters {
        for (name, model) in &view.models {
            let (here, there) = (model.home.as_ref() == Some(cluster), own.model_named(name));
            match there {
                Some(_) if !here => return Err(format!("F3: {cluster} holds an unknown copy of {name}")),
                Some((_, copy)) if copy.is_ready(own) => {}
                _ if here => return Err(format!("{cluster} is home to {name} and does not serve it")),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Whether what was at home in a lost cluster is served elsewhere as far as there is room: all models with load, and of
/// the others those without a stated reason.
pub(super) fn rehomed(view: &FederationView, lost: &str) -> Result<(), String> {
    for (name, model) in view.models.iter().filter(|(_, model)| model.home.as_deref() == Some(lost)) {
        match &model.unplaced {
            Some(_) if !is_loaded(name) => {}
            Some(why) => return Err(format!("{name} has no place beside {lost}: {why}")),
            None => return Err(format!("{name} is at home in {lost} still")),
        }
    }
    match view.models.iter().find(|(_, model)| model.home.is_none() && model.unplaced.is_none()) {
        Some((name, _)) => Err(format!("{name} is at home nowhere")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use symphony_protocol::federation::{FederatedClusterView, FederatedModelView};
    use symphony_protocol::view::{BackendView, HolderView, ModelView};
    use symphony_types::{BackendId, BootId, ModelId, SubclusterId};

    use super::*;

    fn plan(name: &str, change: impl FnOnce(&mut FederatedModelView)) -> FederationView {
        let mut model = FederatedModelView { home: Some("a".into()), ..FederatedModelView::default() };
        change(&mut model);
        let cluster = FederatedClusterView { reachable: true, ..FederatedClusterView::default() };
        FederationView {
            models: [(name.to_owned(), model)].into(),
            clusters: ["a", "b"].map(|name| (name.to_owned(), cluster.clone())).into(),
            ..FederationView::default()
        }
    }

    #[test]
    fn what_is_under_way_or_unserved_is_not_settled() {
        assert_eq!(settled(&plan("m", |_| {})), Ok(()));
        let plants: [fn(&mut FederatedModelView); 4] = [
            |model| model.home = None,
            |model| model.moves_to = Some("b".into()),
            |model| model.leftovers.push("b".into()),
            |model| model.unplaced = Some("no room".into()),
        ];
        plants.into_iter().for_each(|plant| assert!(settled(&plan("m", plant)).is_err()));
        let mut lost = plan("m", |_| {});
        lost.clusters.get_mut("b").unwrap().reachable = false;
        assert!(settled(&lost).is_err());
    }

    #[test]
    fn of_a_lost_cluster_only_models_without_load_may_be_without_a_place_and_are_told_why() {
        let without = |model: &mut FederatedModelView| model.unplaced = Some("no room".into());
        assert!(rehomed(&plan("loaded-1", |_| {}), "a").is_err());
        assert!(rehomed(&plan("loaded-1", without), "a").is_err());
        assert!(rehomed(&plan("heavy-1", |_| {}), "a").is_err());
        assert!(rehomed(&plan("loaded-1", |model| model.home = None), "a").is_err());
        assert_eq!(rehomed(&plan("heavy-1", without), "a"), Ok(()));
        assert_eq!(rehomed(&plan("loaded-1", |_| {}), "b"), Ok(()));
    }

    #[test]
    fn copies_that_nobody_knows_of_and_homes_that_serve_nothing_are_found() {
        let spec = ModelSpec {
            name: "m".into(),
            subcluster: String::new(),
            slo: Nanos::from_millis(100),
            source: ModelSource::Emulated,
            signature: default_signature(),
            profiles: BTreeMap::new(),
            policy: Default::default(),
            value: RequestValue::ONE,
            transforms: Default::default(),
        };
        let (boot, subcluster, backend) = (BootId::new(1), SubclusterId::new(1), BackendId::new(1));
        let holders = [(backend, HolderView { boot, state: Ok(()) })].into();
        let model = ModelView { spec, subcluster, moving: None, holders, trunk: None };
        let host = BackendView { boot, up: true, subcluster, ..BackendView::default() };
        let (models, backends) = ([(ModelId::new(1), model)].into(), [(backend, host)].into());
        let there = Arc::new(View { models, backends, ..View::default() });
        let mut loading = View::clone(&there);
        loading.models.values_mut().for_each(|model| model.holders.clear());
        let (loading, empty) = (Arc::new(loading), Arc::new(View::default()));
        let judged = |a: &Arc<View>, b: &Arc<View>| {
            let clusters = [("a".to_owned(), Arc::clone(a)), ("b".to_owned(), Arc::clone(b))];
            in_place(&plan("m", |_| {}), &clusters)
        };
        assert_eq!(judged(&there, &empty), Ok(()));
        assert!(judged(&there, &there).unwrap_err().starts_with("F3: b holds an unknown copy of m"));
        assert!(judged(&empty, &empty).is_err() && judged(&loading, &empty).is_err());
    }
}
