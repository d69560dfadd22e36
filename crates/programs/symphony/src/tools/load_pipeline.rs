//! What `symphony load` sends to a pipeline.

use std::sync::Arc;

use symphony_load::{CanvasInputs, InputSet, ModelDescription, RandomInputs};
use symphony_pipeline::{InputData, PipelineDeclaration, PipelineInput};
use symphony_protocol::view::View;
use symphony_types::TensorSpec;

use super::load_trace::LoadedModel;
use crate::cli::LoadInputs;
use crate::exit::bad_input;

/// The pipeline of that name: the latest version, or the one that the name spells out as `NAME@VERSION`.
pub(super) fn pipeline_in<'a>(view: &'a View, name: &str) -> Option<&'a PipelineDeclaration> {
    view.pipeline_versions(name).last().map(|latest| &latest.declaration)
}

/// What clients may know of it.
pub(super) fn description(pipeline: &PipelineDeclaration) -> ModelDescription {
    ModelDescription {
        name: pipeline.name.clone(),
        platform: ModelDescription::PIPELINE.to_owned(),
        slo: pipeline.slo().into(),
        inputs: pipeline.inputs.iter().map(|input| (input.name.clone(), tensor(input))).collect(),
        outputs: pipeline.outputs.iter().map(|output| output.tensor.name.clone()).collect(),
    }
}

/// Its inputs: random tensors, or the canvases of the demo if it takes pictures.
///
/// # Errors
/// If the pipeline does not take the requested inputs.
pub(super) fn inputs(
    requested: Option<LoadInputs>,
    given: &LoadedModel,
    pipeline: &ModelDescription,
    seed: u64,
) -> anyhow::Result<Arc<dyn InputSet>> {
    let (command, name) = (&given.given, &pipeline.name);
    match (requested, pipeline.tensors()) {
        (None | Some(LoadInputs::Random), Some(signature)) => {
            Ok(Arc::new(RandomInputs::with_items(&signature, Arc::clone(&given.items), seed)))
        }
        (Some(LoadInputs::Digits | LoadInputs::Canvases), Some(_)) => {
            Err(bad_input(format!("{command}: pipeline `{name}` takes no pictures; expected --inputs random")))
        }
        (None | Some(LoadInputs::Canvases), None) if requested.is_some() || name == "canvas" => {
            if given.items.iter().any(|&items| items != 1) {
                let words = "canvases are sent one in each request, and it has more";
                return Err(bad_input(format!("{command}: {words}")));
            }
            if !takes_canvases(pipeline) {
                let (input, scores, labels) = (CanvasInputs::INPUT, CanvasInputs::SCORES, CanvasInputs::LABELS);
                let expected = format!("canvases are for one with the input {input} and outputs {scores} and {labels}");
                return Err(bad_input(format!("{command}: pipeline `{name}` is not the demo's; {expected}")));
            }
            Ok(Arc::new(CanvasInputs::new()?))
        }
        (_, None) => Err(bad_input(format!(
            "{command}: pipeline `{name}` takes pictures; expected --inputs canvases, which are those of the demo"
        ))),
    }
}

/// Whether its answers can be judged: of another pipeline they would all look like those to other requests.
fn takes_canvases(pipeline: &ModelDescription) -> bool {
    let answers = |name: &str| pipeline.outputs.iter().any(|output| output == name);
    let inputs: Vec<_> = pipeline.inputs.iter().map(|(name, _)| name.as_str()).collect();
    inputs == [CanvasInputs::INPUT] && answers(CanvasInputs::SCORES) && answers(CanvasInputs::LABELS)
}

/// None of a picture.
fn tensor(input: &PipelineInput) -> Option<TensorSpec> {
    match &input.data {
        InputData::Tensor { data_type, item_shape } => {
            Some(TensorSpec { name: input.name.clone(), data_type: *data_type, item_shape: item_shape.clone() })
        }
        InputData::Picture => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use symphony_protocol::view::PipelineView;
    use symphony_repository::parse_pipeline;
    use symphony_types::{DataType, Epoch};

    use super::*;

    fn canvas() -> PipelineDeclaration {
        let config = include_str!("../../../../../deploy/models/repository/canvas/config.pbtxt");
        let extras = include_str!("../../../../../deploy/models/repository/canvas/pipeline.toml");
        let (config, extras) = ((Path::new("config.pbtxt"), config), (Path::new("pipeline.toml"), extras));
        parse_pipeline("canvas", config, extras, &BTreeSet::from([3])).unwrap().declaration
    }

    #[test]
    fn a_pipeline_is_found_by_its_name_with_or_without_the_version() {
        let known = |version| {
            let declaration = PipelineDeclaration { version, ..canvas() };
            let loaded_as = declaration.versioned().loaded_as();
            (loaded_as, PipelineView { declaration, epoch: Epoch::new(1), split: None, load: None })
        };
        let view = View { pipelines: [3, 10, 9].map(known).into(), ..View::default() };
        let found = |name| pipeline_in(&view, name).map(|found| found.version);
        assert_eq!(
            [found("canvas"), found("canvas@3"), found("canvas@2"), found("c")],
            [Some(10), Some(3), None, None]
        );
    }

    #[test]
    fn pictures_are_canvases_and_tensors_are_random() {
        let given = |items: u32| LoadedModel {
            given: "--model canvas=5".into(),
            name: "canvas".into(),
            rate_rps: 5.0,
            recorded: None,
            items: [items].into(),
        };
        let sent = |requested, items, pipeline: &PipelineDeclaration| {
            inputs(requested, &given(items), &description(pipeline), 1)
                .map(|inputs| inputs.sample(0))
                .map_err(|error| error.to_string())
        };
        let mut pipeline = canvas();
        assert!(sent(None, 1, &pipeline).unwrap().pictures.is_some());
        assert!(sent(None, 2, &pipeline).unwrap_err().contains("one in each request"));
        assert!(sent(Some(LoadInputs::Random), 1, &pipeline).unwrap_err().contains("expected --inputs canvases"));
        pipeline.name = "other".into();
        assert!(sent(None, 1, &pipeline).unwrap_err().contains("takes pictures"));
        assert!(sent(Some(LoadInputs::Canvases), 1, &pipeline).is_ok());
        let label = pipeline.outputs.pop().unwrap();
        assert!(sent(Some(LoadInputs::Canvases), 1, &pipeline).unwrap_err().contains("outputs SCORES and LABEL"));
        pipeline.outputs.push(label);
        pipeline.inputs[0].data = InputData::Tensor { data_type: DataType::Fp32, item_shape: vec![4] };
        let sample = sent(None, 3, &pipeline).unwrap();
        assert_eq!((sample.items, sample.inputs[0].1.len()), (3, 48));
        assert!(sent(Some(LoadInputs::Canvases), 1, &pipeline).unwrap_err().contains("takes no pictures"));
    }
}
