//! A pipeline with load: a detector that finds as many rows each time, and a stage that is asked for each of them.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use symphony_executor::{default_signature, item_checksum};
use symphony_load::{EmulatedInputs, InputSet, OutputCheck, OutputTensor, Sample};
use symphony_pipeline::{DeclaredEdge, DeclaredStage, InputData, PipelineDeclaration, PipelineInput, PipelineOutput};
use symphony_protocol::view::ModelSpec;
use symphony_types::{DataType, Finite, Nanos, RequestValue, Signature, TensorSpec};

use crate::load::emulated_model;
use crate::scenario::{Model, PipelineShape};

/// Its name.
const NAME: &str = "staged";
/// Names of its stages, and of their models.
const STAGES: [&str; 2] = ["stage-1", "stage-2"];
/// The tensor between them, the input of the second one, and its output.
const FOUND: &str = "found";
const ROW: &str = "row";
const LABEL: &str = "label";

/// The pipeline, its models, and what is sent to it.
pub(crate) struct Staged {
    pub(crate) models: [ModelSpec; 2],
    pub(crate) declaration: PipelineDeclaration,
    pub(crate) inputs: Arc<dyn InputSet>,
}

impl Staged {
    /// With a stage in each of the first two sub-clusters.
    pub(crate) fn new(shape: &PipelineShape, model: &Model, subclusters: &[String], seed: u64) -> Result<Self> {
        let [first, second] = subclusters.first_chunk::<2>().context("a pipeline needs two sub-clusters")?;
        let input = default_signature().inputs.into_iter().next().context("emulated models have an input")?;
        let tensor = |name: &str, item_shape: Vec<u32>| TensorSpec {
            name: name.into(),
            data_type: DataType::Uint32,
            item_shape,
        };
        let signatures = [
            Signature { inputs: vec![input.clone()], outputs: vec![tensor(FOUND, vec![shape.rows, 1])] },
            Signature { inputs: vec![tensor(ROW, vec![1])], outputs: vec![tensor(LABEL, vec![1])] },
        ];
        let [one, other] = signatures;
        let models = [
            emulated_model(model, STAGES[0].to_owned(), first, one)?,
            emulated_model(model, STAGES[1].to_owned(), second, other)?,
        ];
        let stage = |name: &str, (input, takes): (&str, &str), output: &str| DeclaredStage {
            name: name.to_owned(),
            model: name.to_owned(),
            inputs: [(input.to_owned(), takes.to_owned())].into(),
            outputs: [(output.to_owned(), output.to_owned())].into(),
        };
        let declaration = PipelineDeclaration {
            name: NAME.to_owned(),
            version: 1,
            slo_ns: Nanos::from_millis_f64(shape.slo_ms).get(),
            value: RequestValue::ONE,
            partial: false,
            items_max: 1,
            inputs: vec![PipelineInput {
                name: input.name.clone(),
                data: InputData::Tensor { data_type: input.data_type, item_shape: input.item_shape.clone() },
            }],
            outputs: vec![PipelineOutput { tensor: tensor(LABEL, vec![1]), any_rows: true }],
            stages: vec![
                stage(STAGES[0], (input.name.as_str(), input.name.as_str()), FOUND),
                stage(STAGES[1], (ROW, FOUND), LABEL),
            ],
            edges: vec![DeclaredEdge {
                from: STAGES[0].to_owned(),
                to: STAGES[1].to_owned(),
                gamma: Finite::try_from(f64::from(shape.rows))?,
                for_each: true,
                condition: None,
                most: Some(shape.rows),
                crop: None,
            }],
        };
        let emulated = EmulatedInputs::new(&models[0].signature, 1, seed);
        let inputs = Arc::new(StagedInputs { emulated, rows: shape.rows as usize });
        Ok(Self { models, declaration, inputs })
    }
}

/// Inputs of which each result tells by its checksum: that of the last stage is one of the first stage's.
#[derive(Debug)]
struct StagedInputs {
    emulated: EmulatedInputs,
    rows: usize,
}

impl InputSet for StagedInputs {
    fn sample(&self, n: u64) -> Sample {
        self.emulated.sample(n)
    }

    fn check(&self, n: u64, outputs: &[OutputTensor]) -> OutputCheck {
        let sample = self.sample(n);
        // Of one item.
        let found = item_checksum(sample.inputs.iter().map(|(_, data)| &data[..]));
        // An emulated model repeats it in all of its output: each row is the same.
        let label = item_checksum([&found.to_le_bytes()[..]]).to_le_bytes();
        let is_right = outputs.first().is_some_and(|output| output.data == label.repeat(self.rows));
        if is_right { OutputCheck::Right } else { OutputCheck::Foreign }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_pipeline_whose_answers_are_those_of_both_stages() {
        let shape = PipelineShape { slo_ms: 500.0, rows: 3 };
        let pools = ["pool-1".to_owned(), "pool-2".to_owned(), "pool-3".to_owned()];
        let Staged { models, declaration, inputs } = Staged::new(&shape, &Model::default(), &pools, 1).unwrap();
        assert_eq!(models.each_ref().map(|model| &*model.subcluster), ["pool-1", "pool-2"]);
        declaration.validate().unwrap();
        assert!(Staged::new(&shape, &Model::default(), &pools[..1], 1).is_err());

        let checksum = |bytes: &[u8]| item_checksum([bytes]).to_le_bytes();
        let label = |n| checksum(&checksum(&inputs.sample(n).inputs[0].1));
        let answer = |label: [u8; 4], rows| [OutputTensor { name: LABEL.into(), data: label.repeat(rows).into() }];
        assert_eq!(inputs.check(7, &answer(label(7), 3)), OutputCheck::Right);
        assert_eq!(inputs.check(7, &answer(label(7), 2)), OutputCheck::Foreign, "a row is missing");
        assert_eq!(inputs.check(7, &answer(label(8), 3)), OutputCheck::Foreign, "of another request");
        assert_eq!(inputs.check(7, &[]), OutputCheck::Foreign);
    }
}
