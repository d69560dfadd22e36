//! The models and GPUs of each sub-cluster by name, now or after the moves of a plan.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use symphony_protocol::epoch_plan_view::{MoveProgressView, MovedView, PlannedMoveView};
use symphony_protocol::view::View;
use symphony_types::{BackendId, GpuId, ModelId, SubclusterId};

/// The most names in a table cell; JSON has all.
const NAMES_SHOWN: usize = 8;

/// A sub-cluster with its models and GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) models: Vec<String>,
    pub(super) gpus: Vec<GpuId>,
}

impl Part {
    /// Name, models and GPUs.
    pub(super) fn cells(&self) -> [String; 3] {
        let gpus: Vec<_> = self.gpus.iter().map(ToString::to_string).collect();
        [self.name.clone(), listed("model", &self.models), listed("GPU", &gpus)]
    }

    pub(super) fn json(&self) -> Value {
        let gpus: Vec<_> = self.gpus.iter().map(|gpu| gpu.get()).collect();
        json!({ "subcluster": self.name, "models": self.models, "gpus": gpus })
    }
}

/// Their number, and the first few names.
pub(super) fn listed(what: &str, names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMES_SHOWN);
    let named = names[..names.len() - more].join(", ");
    match (names.len(), more) {
        (0, _) => format!("no {what}s"),
        (1, _) => format!("1 {what}: {named}"),
        (all, 0) => format!("{all} {what}s: {named}"),
        (all, more) => format!("{all} {what}s: {named} and {more} more"),
    }
}

/// Every sub-cluster after these moves; cancelled moves change nothing.
pub(super) fn parts(view: &View, moves: &[PlannedMoveView]) -> Vec<Part> {
    let ends = moves.iter().filter(|planned| !matches!(planned.progress, MoveProgressView::GivenUp(_)));
    let (mut models, mut backends) = (BTreeMap::<ModelId, _>::new(), BTreeMap::<BackendId, _>::new());
    for planned in ends {
        match planned.what {
            MovedView::Model(id) => {
                models.insert(id, planned.to);
            }
            MovedView::Backend(id) => {
                backends.insert(id, planned.to);
            }
        }
    }
    let part = |&id: &SubclusterId| {
        let here = view.models.iter().filter(|(model, known)| *models.get(*model).unwrap_or(&known.subcluster) == id);
        let hosts =
            view.backends.iter().filter(|(host, known)| *backends.get(*host).unwrap_or(&known.subcluster) == id);
        Part {
            name: view.subclusters[&id].name.clone(),
            models: here.map(|(_, model)| model.spec.name.clone()).collect(),
            gpus: hosts.flat_map(|(_, backend)| &backend.gpus).map(|gpu| gpu.id).collect(),
        }
    };
    view.subclusters.keys().map(part).collect()
}

#[cfg(test)]
mod tests {
    use symphony_protocol::epoch_plan_view::MoveCostView;
    use symphony_protocol::view::{BackendView, GpuView, ModelSource, ModelSpec, ModelView, SubclusterView};
    use symphony_types::{Nanos, RequestValue, Signature, Token};

    use super::*;

    const LEFT: SubclusterId = SubclusterId::new(1);
    const RIGHT: SubclusterId = SubclusterId::new(2);

    fn view() -> View {
        let subcluster = |name: &str| SubclusterView { name: name.into(), ..SubclusterView::default() };
        let model = |name: &str| {
            let spec = ModelSpec {
                name: name.into(),
                subcluster: String::new(),
                slo: Nanos::from_millis(1),
                source: ModelSource::Emulated,
                signature: Signature { inputs: vec![], outputs: vec![] },
                transforms: Default::default(),
                profiles: BTreeMap::new(),
                policy: Default::default(),
                value: RequestValue::ONE,
            };
            ModelView { spec, subcluster: LEFT, moving: None, holders: BTreeMap::new(), trunk: None }
        };
        let backend = |gpu: u32, subcluster| {
            let gpu = GpuView { id: GpuId::new(gpu), kind: "k".into(), memory_bytes: 0, binding: Token::default() };
            BackendView { subcluster, gpus: vec![gpu], ..BackendView::default() }
        };
        View {
            subclusters: [(LEFT, subcluster("left")), (RIGHT, subcluster("right"))].into(),
            models: [(ModelId::new(1), model("m")), (ModelId::new(2), model("n"))].into(),
            backends: [(BackendId::new(1), backend(7, LEFT)), (BackendId::new(2), backend(8, RIGHT))].into(),
            ..View::default()
        }
    }

    #[test]
    fn parts_have_their_models_and_gpus_by_name_also_after_a_plan() {
        let view = view();
        let shown = |moves: &[PlannedMoveView]| parts(&view, moves).iter().map(Part::json).collect::<Vec<_>>();
        let left = json!({ "subcluster": "left", "models": ["m", "n"], "gpus": [7] });
        assert_eq!(shown(&[]), [left, json!({ "subcluster": "right", "models": [], "gpus": [8] })]);
        let cost = MoveCostView::default();
        let moves = |what, progress| PlannedMoveView { what, from: LEFT, to: RIGHT, cost, progress };
        let planned = [
            moves(MovedView::Model(ModelId::new(1)), MoveProgressView::Waiting),
            moves(MovedView::Model(ModelId::new(2)), MoveProgressView::GivenUp("no room".into())),
            moves(MovedView::Backend(BackendId::new(1)), MoveProgressView::UnderWay(3)),
        ];
        let left = json!({ "subcluster": "left", "models": ["n"], "gpus": [] });
        assert_eq!(shown(&planned), [left, json!({ "subcluster": "right", "models": ["m"], "gpus": [7, 8] })]);
    }

    #[test]
    fn a_cell_counts_all_and_names_the_first() {
        let names: Vec<_> = (0..NAMES_SHOWN + 2).map(|n| format!("m{n}")).collect();
        assert_eq!(listed("model", &[]), "no models");
        assert_eq!(listed("GPU", &names[..1]), "1 GPU: m0");
        assert_eq!(listed("model", &names[..2]), "2 models: m0, m1");
        let many = listed("model", &names);
        assert!(many.starts_with("10 models: m0, m1") && many.ends_with("m7 and 2 more"), "{many}");
    }
}
