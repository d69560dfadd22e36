//! A pipeline in a view: what it is, by which budgets it runs, and whether all its stages can be asked.

use std::collections::BTreeMap;

use symphony_pipeline::{
    BoxUnit, CommittedSplit, Condition, Crop, DeclaredCondition, DeclaredEdge, DeclaredStage, InputData,
    PipelineDeclaration, PipelineInput, PipelineOutput,
};
use symphony_types::{Epoch, Finite, Nanos, RequestValue, TensorSpec};

use super::{ModelView, Readiness, View, ViewError, tensors_to_pb};
use crate::control as pb;

/// As what an input is known that takes encoded pictures.
const PICTURE: &str = "BYTES";

/// A version of a pipeline, and the budgets by which it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineView {
    /// Stages, edges and SLO.
    pub declaration: PipelineDeclaration,
    /// The epoch in which it was loaded.
    pub epoch: Epoch,
    /// By which budgets it runs; none before the leader of the group has found any.
    pub split: Option<CommittedSplit>,
    /// How its requests have ended; only in linearizable answers.
    pub load: Option<PipelineLoadView>,
}

/// How the requests for a version of a pipeline have ended, by the reports of all frontends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipelineLoadView {
    /// Log index as of which they are counted: another leader of the group begins anew.
    pub since: u64,
    /// Requests with an end; not those whose clients have gone.
    pub ended: u64,
    /// Of these: refused since the version was not ready or too slow, given up, late or failed.
    pub bad: u64,
}

/// Whether a stage can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageReadiness {
    /// Name of the stage in the declaration.
    pub stage: String,
    /// The model that it asks.
    pub model: String,
    /// The readiness of the readiest version; none if there is no such model.
    pub readiness: Option<Readiness>,
}

/// What a frontend has counted of a pipeline: since its last report, and how requests ended since it was first asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipelineCounts {
    /// The version that was counted; the counts of another are not comparable.
    pub version: u64,
    /// Since when ends are counted, in nanoseconds since 1970. If it is another time, they began at 0 again.
    pub begun_unix_ns: u64,
    /// Over which time.
    pub within: Nanos,
    /// Items whose source was asked.
    pub items: u64,
    /// By edge, in the order of the wiring: results of the stage before it, and stage requests that they led to.
    pub edges: Vec<(u64, u64)>,
    /// The times from results to the next stage's requests together.
    pub hops: Nanos,
    /// How many of these there were.
    pub hop_count: u64,
    /// Requests that have ended since `begun_unix_ns`, without those whose clients have gone.
    pub ended: u64,
    /// Of these: refused since the version was not ready or too slow, given up, late or failed.
    pub bad: u64,
}

impl StageReadiness {
    /// Why it cannot be asked; none if it can.
    #[must_use]
    pub fn unready(&self) -> Option<String> {
        match &self.readiness {
            Some(Readiness::Ready) => None,
            Some(Readiness::Loading) => Some("loading".to_owned()),
            Some(Readiness::Failed(reason)) => Some(format!("failed: {reason}")),
            Some(Readiness::NoGpu(why)) => Some(why.to_string()),
            None => Some("no such model".to_owned()),
        }
    }
}

impl PipelineView {
    /// Why it cannot be asked; none if it can.
    #[must_use]
    pub fn unready(&self, view: &View) -> Option<String> {
        let waits = |stage: &StageReadiness| Some(format!("stage {}: {}", stage.stage, stage.unready()?));
        self.readiness(view).iter().find_map(waits).or_else(|| {
            let none = "its budget is not split: the leader has just changed, or its SLO is too short";
            self.split.is_none().then(|| none.to_owned())
        })
    }

    /// Of each stage, whether its model can be asked.
    #[must_use]
    pub fn readiness(&self, view: &View) -> Vec<StageReadiness> {
        let stage = |stage: &DeclaredStage| {
            let versions = models_of(stage, view).map(|model| model.readiness(view));
            let readiness = versions.reduce(|one, other| if one == Readiness::Ready { one } else { other });
            StageReadiness { stage: stage.name.clone(), model: stage.model.clone(), readiness }
        };
        self.declaration.stages.iter().map(stage).collect()
    }

    /// Whether each stage can be asked, and there are budgets for them.
    #[must_use]
    pub fn is_ready(&self, view: &View) -> bool {
        let ready = |stage| models_of(stage, view).any(|model| model.is_ready(view));
        self.split.is_some() && self.declaration.stages.iter().all(ready)
    }
}

impl View {
    /// The versions of a pipeline, the latest one last, or only the one that `name` spells out as `NAME@VERSION`.
    #[must_use]
    pub fn pipeline_versions(&self, name: &str) -> Vec<&PipelineView> {
        let of = |(loaded_as, known): &(&String, &PipelineView)| *loaded_as == name || known.declaration.name == name;
        let mut versions: Vec<_> = self.pipelines.iter().filter(of).map(|(_, known)| known).collect();
        versions.sort_unstable_by_key(|known| known.declaration.version);
        versions
    }

    /// Whether a pipeline needs the model that is loaded under this name: then the cluster refuses to unload it.
    #[must_use]
    pub fn pipelines_need(&self, loaded_as: &str) -> bool {
        let loaded = self.models.values().map(|model| model.spec.name.as_str());
        self.pipelines.values().any(|pipeline| pipeline.declaration.needs(loaded_as, loaded.clone()))
    }
}

/// The models that may answer a stage.
fn models_of<'a>(stage: &'a DeclaredStage, view: &'a View) -> impl Iterator<Item = &'a ModelView> {
    view.models.values().filter(|model| stage.asks(&model.spec.name))
}

impl TryFrom<pb::PipelineSpec> for PipelineDeclaration {
    type Error = ViewError;

    /// What is well-formed; whether it can be served, [`PipelineDeclaration::check`] says.
    fn try_from(spec: pb::PipelineSpec) -> Result<Self, ViewError> {
        let name = spec.name;
        let value = match spec.value_thousandths {
            0 => RequestValue::ONE,
            got => RequestValue::from_thousandths(got).ok_or_else(|| {
                let (min, max) = (RequestValue::MIN.thousandths(), RequestValue::MAX.thousandths());
                refused(&name, "value_thousandths", format!("{got}; expected 0, or {min} to {max}"))
            })?,
        };
        let input = |input: pb::TensorSpec| {
            let data = match input.data_type.as_str() {
                PICTURE => InputData::Picture,
                _ => {
                    let TensorSpec { data_type, item_shape, .. } = tensor(&name, input.clone())?;
                    InputData::Tensor { data_type, item_shape }
                }
            };
            Ok(PipelineInput { name: input.name, data })
        };
        let output = |output: pb::PipelineOutput| {
            let missing = || ViewError::Missing { what: format!("an output of pipeline `{name}`"), field: "tensor" };
            let tensor = tensor(&name, output.tensor.ok_or_else(missing)?)?;
            Ok(PipelineOutput { tensor, any_rows: output.any_rows })
        };
        let stage = |stage: pb::PipelineStage| DeclaredStage {
            name: stage.name,
            model: stage.model,
            inputs: stage.inputs.into_iter().collect(),
            outputs: stage.outputs.into_iter().collect(),
        };
        Ok(Self {
            version: spec.version,
            slo_ns: spec.slo_ns,
            value,
            partial: spec.partial,
            items_max: spec.items_max,
            inputs: spec.inputs.into_iter().map(input).collect::<Result<_, ViewError>>()?,
            outputs: spec.outputs.into_iter().map(output).collect::<Result<_, ViewError>>()?,
            stages: spec.stages.into_iter().map(stage).collect(),
            edges: spec.edges.into_iter().map(|edge| declared_edge(&name, edge)).collect::<Result<_, _>>()?,
            name,
        })
    }
}

fn refused(pipeline: &str, field: &'static str, reason: String) -> ViewError {
    ViewError::Pipeline { pipeline: pipeline.to_owned(), field, reason }
}

fn tensor(pipeline: &str, spec: pb::TensorSpec) -> Result<TensorSpec, ViewError> {
    let data_type = spec.data_type.parse().map_err(|source| ViewError::Tensor {
        model: pipeline.to_owned(),
        tensor: spec.name.clone(),
        source,
    })?;
    Ok(TensorSpec { name: spec.name, data_type, item_shape: spec.item_shape })
}

fn declared_edge(pipeline: &str, edge: pb::PipelineEdge) -> Result<DeclaredEdge, ViewError> {
    let gamma = Finite::try_from(edge.gamma)
        .map_err(|error| refused(pipeline, "edges.gamma", format!("{error}; expected a number above 0")))?;
    let condition = match edge.condition.as_str() {
        "" => None,
        text => {
            let parsed = text.parse::<Condition>();
            let parsed = parsed
                .map_err(|expected| refused(pipeline, "edges.condition", format!("{text:?}; expected {expected}")))?;
            Some(DeclaredCondition::from(&parsed))
        }
    };
    let crop = match edge.crop.as_str() {
        "" => None,
        boxes => {
            let unit = BoxUnit::of_word(&edge.crop_unit).ok_or_else(|| {
                let reason = format!("{:?}; expected `share` or `pixel`", edge.crop_unit);
                refused(pipeline, "edges.crop_unit", reason)
            })?;
            Some(Crop { boxes: boxes.to_owned(), unit })
        }
    };
    Ok(DeclaredEdge {
        from: edge.from,
        to: edge.to,
        gamma,
        for_each: edge.for_each,
        condition,
        most: (edge.most != 0).then_some(edge.most),
        crop,
    })
}

impl From<&PipelineDeclaration> for pb::PipelineSpec {
    fn from(declaration: &PipelineDeclaration) -> Self {
        let input = |input: &PipelineInput| {
            let (data_type, item_shape) = match &input.data {
                InputData::Picture => (PICTURE.to_owned(), Vec::new()),
                InputData::Tensor { data_type, item_shape } => (data_type.name().to_owned(), item_shape.clone()),
            };
            pb::TensorSpec { name: input.name.clone(), data_type, item_shape }
        };
        let output = |output: &PipelineOutput| pb::PipelineOutput {
            tensor: tensors_to_pb(std::slice::from_ref(&output.tensor)).pop(),
            any_rows: output.any_rows,
        };
        let map = |map: &BTreeMap<String, String>| map.clone().into_iter().collect();
        let stage = |stage: &DeclaredStage| pb::PipelineStage {
            name: stage.name.clone(),
            model: stage.model.clone(),
            inputs: map(&stage.inputs),
            outputs: map(&stage.outputs),
        };
        let edge = |edge: &DeclaredEdge| pb::PipelineEdge {
            from: edge.from.clone(),
            to: edge.to.clone(),
            gamma: edge.gamma.get(),
            for_each: edge.for_each,
            condition: edge.condition.as_ref().map(ToString::to_string).unwrap_or_default(),
            most: edge.most.unwrap_or(0),
            crop: edge.crop.as_ref().map(|crop| crop.boxes.clone()).unwrap_or_default(),
            crop_unit: edge.crop.as_ref().map(|crop| crop.unit.word().to_owned()).unwrap_or_default(),
        };
        Self {
            name: declaration.name.clone(),
            version: declaration.version,
            slo_ns: declaration.slo_ns,
            value_thousandths: declaration.value.thousandths(),
            partial: declaration.partial,
            items_max: declaration.items_max,
            inputs: declaration.inputs.iter().map(input).collect(),
            outputs: declaration.outputs.iter().map(output).collect(),
            stages: declaration.stages.iter().map(stage).collect(),
            edges: declaration.edges.iter().map(edge).collect(),
        }
    }
}

impl TryFrom<pb::Pipeline> for (String, PipelineView) {
    type Error = ViewError;

    fn try_from(pipeline: pb::Pipeline) -> Result<Self, ViewError> {
        let spec = pipeline.spec.ok_or(ViewError::Missing { what: "pipeline".into(), field: "spec" })?;
        let declaration = PipelineDeclaration::try_from(spec)?;
        let split = pipeline.split.map(|split| {
            let gammas = split.gammas.into_iter().map(Finite::try_from).collect::<Result<_, _>>();
            let gammas = gammas
                .map_err(|error| refused(&declaration.name, "split.gammas", format!("{error}; expected numbers")))?;
            let (budgets_ns, hop_ns, rate_millirps) = (split.budgets_ns, split.hop_ns, split.rate_millirps);
            Ok::<_, ViewError>(CommittedSplit { budgets_ns, hop_ns, gammas, rate_millirps })
        });
        let split = split.transpose()?;
        let load = pipeline.load.map(|pb::PipelineLoad { since, ended, bad }| PipelineLoadView { since, ended, bad });
        let view = PipelineView { declaration, epoch: Epoch::new(pipeline.epoch), split, load };
        Ok((view.declaration.versioned().loaded_as(), view))
    }
}

impl From<&PipelineView> for pb::Pipeline {
    fn from(view: &PipelineView) -> Self {
        let split = view.split.as_ref().map(|split| pb::PipelineSplit {
            budgets_ns: split.budgets_ns.clone(),
            hop_ns: split.hop_ns,
            gammas: split.gammas.iter().map(|gamma| gamma.get()).collect(),
            rate_millirps: split.rate_millirps,
        });
        let load = view.load.map(|PipelineLoadView { since, ended, bad }| pb::PipelineLoad { since, ended, bad });
        Self { spec: Some((&view.declaration).into()), epoch: view.epoch.get(), split, load }
    }
}

impl From<pb::PipelineCounts> for (String, PipelineCounts) {
    fn from(counts: pb::PipelineCounts) -> Self {
        let counted = PipelineCounts {
            version: counts.version,
            begun_unix_ns: counts.begun_unix_ns,
            within: Nanos::new(counts.within_ns),
            items: counts.items,
            edges: counts.results.into_iter().zip(counts.led_to).collect(),
            hops: Nanos::new(counts.hops_ns),
            hop_count: counts.hops,
            ended: counts.ended,
            bad: counts.bad,
        };
        (counts.name, counted)
    }
}

impl From<(&String, &PipelineCounts)> for pb::PipelineCounts {
    fn from((name, counts): (&String, &PipelineCounts)) -> Self {
        let (results, led_to) = counts.edges.iter().copied().unzip();
        Self {
            name: name.clone(),
            version: counts.version,
            begun_unix_ns: counts.begun_unix_ns,
            within_ns: counts.within.get(),
            items: counts.items,
            results,
            led_to,
            hops_ns: counts.hops.get(),
            hops: counts.hop_count,
            ended: counts.ended,
            bad: counts.bad,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use symphony_types::DataType;

    use super::*;

    pub(crate) fn pipeline() -> PipelineView {
        let shape = vec![4, 4];
        let tensor = TensorSpec { name: "label".into(), data_type: DataType::Int64, item_shape: vec![] };
        let names = |one: &str, other: &str| BTreeMap::from([(one.to_owned(), other.to_owned())]);
        let stage = |name: &str| DeclaredStage {
            name: name.into(),
            model: format!("{name}@2"),
            inputs: names("x", "a"),
            outputs: names("y", "label"),
        };
        let condition: Condition = "scores >= 0.5".parse().unwrap();
        let declaration = PipelineDeclaration {
            name: "p".into(),
            version: 3,
            slo_ns: 5_000_000,
            value: RequestValue::from_thousandths(2_500).unwrap(),
            partial: true,
            items_max: 4,
            inputs: vec![
                PipelineInput { name: "a".into(), data: InputData::Picture },
                PipelineInput {
                    name: "b".into(),
                    data: InputData::Tensor { data_type: DataType::Fp32, item_shape: shape },
                },
            ],
            outputs: vec![PipelineOutput { tensor, any_rows: true }],
            stages: vec![stage("detect"), stage("recognise")],
            edges: vec![DeclaredEdge {
                from: "detect".into(),
                to: "recognise".into(),
                gamma: Finite::try_from(1.5).unwrap(),
                for_each: true,
                condition: Some((&condition).into()),
                most: Some(9),
                crop: Some(Crop { boxes: "boxes".into(), unit: BoxUnit::Pixel }),
            }],
        };
        let split = CommittedSplit {
            budgets_ns: vec![3_000_000, 2_000_000],
            hop_ns: 7,
            gammas: vec![Finite::ONE],
            rate_millirps: 1,
        };
        let load = Some(PipelineLoadView { since: 31, ended: 9, bad: 2 });
        PipelineView { declaration, epoch: Epoch::new(6), split: Some(split), load }
    }

    #[test]
    fn a_view_shows_which_models_its_pipelines_need() {
        let view = View { pipelines: [("p@3".to_owned(), pipeline())].into(), ..View::default() };
        assert!(view.pipelines_need("detect@2") && view.pipelines_need("recognise@2"));
        assert!(!view.pipelines_need("detect@3") && !view.pipelines_need("detect"));
        assert!(!View::default().pipelines_need("detect@2"));
    }

    #[test]
    fn a_pipeline_survives_the_wire_and_words_without_meaning_do_not() {
        let view = pipeline();
        let message = pb::Pipeline::from(&view);
        assert_eq!(<(String, PipelineView)>::try_from(message.clone()), Ok(("p@3".to_owned(), view)));

        let spec = message.spec.unwrap();
        let edge = spec.edges[0].clone();
        for (edge, words) in [
            (pb::PipelineEdge { gamma: f64::NAN, ..edge.clone() }, "pipeline `p`: edges.gamma: NaN is not a finite"),
            (pb::PipelineEdge { condition: "often".into(), ..edge.clone() }, "edges.condition: \"often\"; expected an"),
            (pb::PipelineEdge { crop_unit: "inch".into(), ..edge }, "edges.crop_unit: \"inch\"; expected `share` or"),
        ] {
            let refused = PipelineDeclaration::try_from(pb::PipelineSpec { edges: vec![edge], ..spec.clone() });
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
        let mut counts = PipelineCounts { version: 3, items: 2, edges: vec![(2, 3)], ..PipelineCounts::default() };
        (counts.ended, counts.bad, counts.begun_unix_ns) = (5, 1, 8);
        let name = "p".to_owned();
        assert_eq!(<(String, PipelineCounts)>::from(pb::PipelineCounts::from((&name, &counts))), (name, counts));
    }
}
