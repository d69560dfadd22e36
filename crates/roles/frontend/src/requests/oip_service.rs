//! The frontend as the public surface sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use symphony_config::Right;
use symphony_protocol::view::Shadow;
use symphony_types::{RequestValue, VersionedName};

use crate::frontend::Frontend;
use crate::inner::Inner;
use crate::oip::{
    AccessError, Caller, Credential, InFlightPermit, IndexEntry, InferAnswer, InferError, InferRequest,
    InferenceService, ModelInfo, ModelState, ModelStatistics, Parameter, Receipt, RefusedCall, RepositoryError,
    RequestContext, ServerInfo, SharedRegions, Shown, shorten,
};
use crate::repository::repository_service::CallEnded;

/// What logs and traces call the client of a copy.
const SHADOW: &str = "shadow";

/// How long this frontend may be behind another watcher of its cluster.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

impl Frontend {
    /// A copy of the request for the version on trial, if it is to get one, and the place that it takes. It counts for
    /// no tenant, and is the first to be shed.
    fn shadow(&self, request: &InferRequest) -> Option<(InferRequest, InFlightPermit)> {
        let name = &request.model.name;
        let Shadow { version, percent } = self.inner.traffic_of(name)?.shadow?;
        let info = self.model(name, Some(version)).filter(|info| info.state == ModelState::Ready)?;
        let is_for_it = info.loaded_as != request.model.loaded_as && info.reads_and_answers_as(&request.model);
        // The other half is for requests whose answers are awaited.
        let has_room = self.inner.in_flight_limit.is_half_free();
        if !is_for_it || !has_room || request.items > info.batch_max || !self.inner.traffic.is_copied(name, percent) {
            return None;
        }
        let permit = self.inner.in_flight_limit.acquire().ok()?;
        let context = RequestContext { is_copy: true, ..RequestContext::of(Caller::anonymous(), SHADOW, None) };
        let (receipt, weight) = (Receipt::default(), RequestValue::MIN);
        Some((InferRequest { model: info, receipt, context, weight, ..request.clone() }, permit))
    }
}

impl InferenceService for Frontend {
    fn server(&self) -> ServerInfo {
        let known = self.inner.clusters().any(|(_, cluster)| cluster.view.borrow().applied_index > 0);
        ServerInfo {
            name: "symphony".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            live: true,
            ready: known && !self.inner.is_draining(),
        }
    }

    fn models(&self) -> Vec<Arc<ModelInfo>> {
        let mut models = self.inner.infos();
        models.sort_by(|a, b| (&a.name, a.version).cmp(&(&b.name, b.version)));
        models
    }

    fn model(&self, name: &str, version: Option<u64>) -> Option<Arc<ModelInfo>> {
        self.inner.model(name, version)
    }

    fn versions(&self, name: &str) -> Vec<u64> {
        let exact = self.inner.info(name).map(|info| info.version);
        let loaded_as = self.inner.loaded_as(name);
        let versions = loaded_as.iter().map(|loaded_as| VersionedName::parse(loaded_as).version).chain(exact);
        versions.collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn statistics(&self, of: Option<(&str, Option<u64>)>) -> Vec<ModelStatistics> {
        self.inner.statistics.of(of)
    }

    async fn index(&self, caller: &Caller) -> Result<Vec<IndexEntry>, RepositoryError> {
        let known = |info: Arc<ModelInfo>| IndexEntry {
            name: info.name.clone(),
            version: Some(info.version),
            state: info.state.clone(),
        };
        let mut entries: Vec<_> = self.models().into_iter().map(known).collect();
        for listed in self.inner.repository.listed().await.iter() {
            if !entries.iter().any(|entry| entry.name == listed.name && entry.version == listed.version) {
                entries.push(listed.clone());
            }
        }
        entries.sort_by(|a, b| (&a.name, a.version).cmp(&(&b.name, b.version)));
        self.inner.repository.keep_reasons(&mut entries, caller);
        Ok(entries)
    }

    fn authenticate(&self, shown: &Shown<'_>, rights: &'static [Right]) -> Result<Caller, AccessError> {
        let Some(tenants) = &self.inner.tenants else {
            return Ok(Caller::anonymous().showing(Credential::of(shown.headers)));
        };
        let caller = tenants.caller(shown)?;
        tenants.check(&caller, rights)?;
        Ok(caller)
    }

    fn reauthenticate(&self, caller: &Caller) -> Result<Caller, AccessError> {
        match &self.inner.tenants {
            Some(tenants) => tenants.reauthenticate(caller, &[Right::Infer]),
            None => Ok(caller.clone()),
        }
    }

    fn begin_request(&self, caller: &Caller) -> Result<InFlightPermit, InferError> {
        let place = caller.take_place(self.inner.tenants.as_deref())?;
        Ok(self.inner.in_flight_limit.acquire()?.with(place))
    }

    fn shared_regions(&self) -> Option<&SharedRegions> {
        self.inner.shared_regions.as_ref()
    }

    fn refused(&self, call: &RefusedCall<'_>) {
        self.inner.refused_call(call);
    }

    fn model_for_request(&self, name: &str) -> Option<Arc<ModelInfo>> {
        self.inner.model_for_request(name)
    }

    async fn infer(&self, request: InferRequest) -> Result<InferAnswer, InferError> {
        if let Some(copy) = self.shadow(&request) {
            let inner = Arc::clone(&self.inner);
            // Nobody waits for it.
            tokio::spawn(async move { inner.infer(copy.0).await.map(|_| drop(copy.1)) });
        }
        self.inner.infer(request).await
    }

    async fn load_model(
        &self,
        model: &str,
        parameters: BTreeMap<String, Parameter>,
        caller: Caller,
    ) -> Result<(), RepositoryError> {
        if let Some(name) = parameters.keys().next() {
            return Err(RepositoryError::Unsupported(format!(
                "parameter `{name}` is not taken: a model is loaded as its folder in the repository says"
            )));
        }
        self.inner.result_once_seen(self.inner.repository.load(model, &caller).await).await
    }

    async fn unload_model(&self, model: &str, caller: Caller) -> Result<(), RepositoryError> {
        if self.versions(model).is_empty() {
            return Err(RepositoryError::UnknownModel(format!("there is no model `{}`", shorten(model))));
        }
        self.inner.result_once_seen(self.inner.repository.unload(model, &caller).await).await
    }
}

impl Inner {
    /// Waits until requests are routed by a view of this log index, or a little longer than that ever takes: a caller
    /// that was told that a model is ready asks for it at once.
    async fn seen(&self, index: u64) {
        let routed = async {
            for (_, cluster) in self.clusters() {
                cluster.routed(index).await;
            }
        };
        let _ = tokio::time::timeout(SEEN_WITHIN, routed).await;
    }

    /// What a caller is told of a load or unload, once this frontend has seen it itself: an index asked for after that
    /// does not show the state before, whether it worked or not.
    pub(crate) async fn result_once_seen(&self, ended: CallEnded) -> Result<(), RepositoryError> {
        self.seen(ended.as_of).await;
        ended.result
    }
}
