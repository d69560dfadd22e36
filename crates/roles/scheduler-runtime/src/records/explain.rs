//! Answers questions from the workers' flight recorders.

use std::collections::HashMap;
use std::sync::PoisonError;

use symphony_explain::{BatchRecord, Explainer, Explanation, Finding, LAST_BATCHES_MAX, Names, Question, Since};
use symphony_protocol::view::View;
use symphony_types::{GpuClass, GpuId, ModelId};

use crate::records::recorder_queue::read;
use crate::workers::subcluster_workers::Workers;

struct ViewNames<'a> {
    view: &'a View,
    ordinals: HashMap<u32, ModelId>,
    kinds: Vec<String>,
}

impl Names for ViewNames<'_> {
    fn model(&self, model: u32) -> String {
        let id = ModelId::new(model);
        self.view.models.get(&id).map_or_else(|| format!("{id} (unloaded)"), |model| model.spec.name.clone())
    }

    fn policy(&self, model: u32) -> Option<String> {
        // The view is cut to the sub-cluster or whole: the model says which one decides.
        let model_view = self.view.models.get(&ModelId::new(model))?;
        let decides = self.view.subclusters.get(&model_view.subcluster).and_then(|own| own.policy.as_ref());
        if let Some(policy) = decides.filter(|policy| policy.failed.is_none()) {
            return Some(policy.text.clone());
        }
        self.view.models.get(&ModelId::new(model)).map(|model| model.spec.policy.to_string())
    }

    fn rival(&self, slot: u32) -> String {
        self.ordinals.get(&slot).map_or_else(|| "a former model".to_owned(), |id| self.model(id.get()))
    }

    fn gpu(&self, gpu: GpuId) -> String {
        let of = |backend: &symphony_protocol::view::BackendView| backend.gpus.iter().any(|other| other.id == gpu);
        let backend = self.view.backends.values().find(|backend| of(backend));
        backend.map_or_else(|| gpu.to_string(), |backend| format!("{gpu} of {}", backend.name))
    }

    fn gpu_kind(&self, gpu: GpuId) -> Option<String> {
        let gpus = self.view.backends.values().flat_map(|backend| &backend.gpus);
        gpus.filter(|other| other.id == gpu).map(|found| found.kind.clone()).next()
    }

    fn class_kind(&self, class: GpuClass) -> Option<String> {
        self.kinds.get(class.index()).cloned()
    }
}

/// The matching records of all workers, in the order of the decisions.
pub(crate) fn explain(workers: &Workers, view: &View, question: &Question) -> Vec<Explanation> {
    let found = workers.recorders.iter().flat_map(|recorder| match *question {
        Question::Request(id) => read(recorder, |recorder| recorder.find(id)),
        Question::Last { model, count } => {
            read(recorder, |recorder| recorder.last(model.get(), count.min(LAST_BATCHES_MAX)))
        }
    });
    let ordinals = workers.ordinals.read().unwrap_or_else(PoisonError::into_inner).clone();
    let kinds = workers.kinds.read().unwrap_or_else(PoisonError::into_inner).clone();
    let names = ViewNames { view, ordinals, kinds };
    let explainer = Explainer { names: &names, since: Since::Now(workers.clock.now()) };
    found.map(of_its_model).map(|found| explainer.explain(&found)).collect()
}

/// A batch of several models counts as one of the first; a request that is asked about is of its own.
fn of_its_model(found: Finding) -> Finding {
    match found {
        Finding::Batch { number, record, request: Some(request), requests } if request.variant != 0 => {
            let record = BatchRecord { model: request.variant, ..record };
            Finding::Batch { number, record, request: Some(request), requests }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use symphony_explain::BatchEnd;
    use symphony_scheduler::{Plan, Request};
    use symphony_types::{RequestId, RequestValue, Time};

    use super::*;

    #[test]
    fn a_request_of_a_batch_of_several_models_is_of_its_own() {
        let (gpu, start, end) = (GpuId::new(0), Time::ZERO, Time::ZERO);
        let plan = Plan { gpu, start, end, batch: 1, must_end_by: end, first: 0, requests: 1, why: None };
        let record = BatchRecord { model: 3, decided: Time::ZERO, plan, end: BatchEnd::Running };
        let of = |request| match of_its_model(Finding::Batch { number: 1, record, request, requests: vec![] }) {
            Finding::Batch { record, .. } => record.model,
            Finding::Drop(_) => panic!("it was planned"),
        };
        let (id, deadline, weight) = (RequestId::default(), Time::ZERO, RequestValue::ONE);
        assert_eq!(of(Some(Request { id, deadline, items: 1, weight, variant: 9 })), 9);
        assert_eq!(of(None), 3, "the batch is asked about");
    }
}
