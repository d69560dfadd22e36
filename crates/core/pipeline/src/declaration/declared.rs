//! What is declared.

use std::collections::BTreeMap;
use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{DataType, Finite, Nanos, RequestValue, TensorSpec, VersionedName};

use crate::condition::{Comparison, Condition};

/// A pipeline as a cluster loads it. Its stages are connected by the names of tensors, as the steps of Triton's
/// ensembles are: what one gives under a name, others take under it. [`Wiring`](super::Wiring) is what follows.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct PipelineDeclaration {
    /// Its name, without a version; no model's.
    pub name: String,
    /// Its version, from 1: others may stand beside it.
    pub version: u64,
    /// The latency budget of a request, from its arrival to its answer.
    pub slo_ns: u64,
    /// What a request is worth against others under overload.
    pub value: RequestValue,
    /// Whether a request is answered without the rows of stages that were dropped or failed.
    pub partial: bool,
    /// The most items of one request; each goes through the stages separately.
    pub items_max: u32,
    /// What clients send.
    pub inputs: Vec<PipelineInput>,
    /// What they get.
    pub outputs: Vec<PipelineOutput>,
    /// What it computes, one model each.
    pub stages: Vec<DeclaredStage>,
    /// Edges that do more than carry a whole result to the next stage.
    pub edges: Vec<DeclaredEdge>,
}

/// One tensor or picture that clients send.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct PipelineInput {
    /// Its name, as clients send it and stages take it.
    pub name: String,
    /// A tensor or a picture.
    pub data: InputData,
}

/// What clients send as an input.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum InputData {
    /// An encoded picture (`BYTES`), which the image transform of each stage that takes it makes a tensor of.
    Picture,
    /// A tensor, sent as models get it.
    Tensor {
        /// Type of its elements.
        data_type: DataType,
        /// Shape of an item, without the dimension of items.
        item_shape: Vec<u32>,
    },
}

/// One tensor that clients get.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct PipelineOutput {
    /// Name, type, and the shape that its stage gives one stage request.
    pub tensor: TensorSpec,
    /// Whether an item has any number of such rows, one for each request of its stage, in the order in which they were
    /// asked; otherwise it has one.
    pub any_rows: bool,
}

/// One model of the pipeline, with what it takes and gives.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct DeclaredStage {
    /// Its name in the pipeline.
    pub name: String,
    /// The model that it asks: `NAME`, whichever version answers requests that name none, or `NAME@VERSION`.
    pub model: String,
    /// Which tensor of the pipeline each input of the model takes.
    pub inputs: BTreeMap<String, String>,
    /// As which tensor of the pipeline each output of the model is known; others are left out.
    pub outputs: BTreeMap<String, String>,
}

/// What an edge does besides.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct DeclaredEdge {
    /// The stage whose results it carries.
    pub from: String,
    /// The stage that is asked with them.
    pub to: String,
    /// γ: the expected number of stage requests per result.
    pub gamma: Finite,
    /// Whether each row of a result becomes a separate stage request.
    pub for_each: bool,
    /// Which rows lead to a stage request; all if not given.
    pub condition: Option<DeclaredCondition>,
    /// The most stage requests that one result leads to.
    pub most: Option<u32>,
    /// Which region of the client's picture each row stands for; `to` takes that instead of the whole picture.
    pub crop: Option<Crop>,
}

/// `scores > 0.5`, of an output of the model of the edge's first stage.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct DeclaredCondition {
    /// The output whose rows are compared: its name at the model.
    pub output: String,
    /// How: the sign as it is written.
    pub comparison: String,
    /// The value that it is compared with.
    pub threshold: Finite,
}

/// Regions of a picture.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Crop {
    /// The output with left, top, right and bottom of each row's region: its name at the model of the edge's first
    /// stage.
    pub boxes: String,
    /// Their unit.
    pub unit: BoxUnit,
}

/// The unit of a box's edges.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BoxUnit {
    /// 0 is the left or upper edge of what the detector sees, 1 the right or lower one.
    #[default]
    Share,
    /// Pixels of what the detector sees, after its image transform.
    Pixel,
}

impl BoxUnit {
    /// The word in files and messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Pixel => "pixel",
        }
    }

    /// The unit of that word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Share, Self::Pixel].into_iter().find(|unit| unit.word() == word)
    }
}

impl PipelineDeclaration {
    /// The latency budget of a request.
    #[must_use]
    pub const fn slo(&self) -> Nanos {
        Nanos::new(self.slo_ns)
    }

    /// Name and version, as models have them.
    #[must_use]
    pub fn versioned(&self) -> VersionedName<'_> {
        VersionedName { name: &self.name, version: self.version }
    }

    /// Index of a stage in [`stages`](Self::stages), by its name.
    #[must_use]
    pub fn stage(&self, name: &str) -> Option<usize> {
        self.stages.iter().position(|stage| stage.name == name)
    }

    /// Whether a stage asks this model and none of the others among the loaded ones. A cluster does not unload a model
    /// that one of its pipelines needs.
    #[must_use]
    pub fn needs<'a>(&self, loaded_as: &str, loaded: impl Iterator<Item = &'a str> + Clone) -> bool {
        let others = loaded.filter(|name| *name != loaded_as);
        let has_no_other = |stage: &DeclaredStage| !others.clone().any(|name| stage.asks(name));
        self.stages.iter().any(|stage| stage.asks(loaded_as) && has_no_other(stage))
    }

    /// Bytes of this declaration in a snapshot, accurate to 256.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        const PER_LIST: usize = 64;
        let shape = |item_shape: &[u32]| 4 * item_shape.len();
        let input = |input: &PipelineInput| {
            let data = if let InputData::Tensor { item_shape, .. } = &input.data { shape(item_shape) } else { 0 };
            PER_LIST + input.name.len() + data
        };
        let output = |output: &PipelineOutput| PER_LIST + output.tensor.name.len() + shape(&output.tensor.item_shape);
        let map = |map: &BTreeMap<String, String>| -> usize {
            map.iter().map(|(one, other)| PER_LIST + one.len() + other.len()).sum()
        };
        let stage = |stage: &DeclaredStage| {
            let names = stage.name.len() + stage.model.len();
            3 * PER_LIST + names + map(&stage.inputs) + map(&stage.outputs)
        };
        let edge = |edge: &DeclaredEdge| {
            let condition = edge.condition.as_ref().map_or(0, |condition| condition.output.len());
            let crop = edge.crop.as_ref().map_or(0, |crop| crop.boxes.len());
            3 * PER_LIST + edge.from.len() + edge.to.len() + condition + crop
        };
        let tensors = self.inputs.iter().map(input).sum::<usize>() + self.outputs.iter().map(output).sum::<usize>();
        let stages = self.stages.iter().map(stage).sum::<usize>();
        2 * PER_LIST + self.name.len() + tensors + stages + self.edges.iter().map(edge).sum::<usize>()
    }
}

impl DeclaredStage {
    /// Whether it asks the model that is loaded under this name.
    #[must_use]
    pub fn asks(&self, loaded_as: &str) -> bool {
        self.model == loaded_as || (!self.names_a_version() && VersionedName::parse(loaded_as).name == self.model)
    }

    /// Whether it asks one version and no other.
    #[must_use]
    pub fn names_a_version(&self) -> bool {
        let VersionedName { name, .. } = VersionedName::parse(&self.model);
        name != self.model
    }
}

impl From<&Condition> for DeclaredCondition {
    fn from(condition: &Condition) -> Self {
        let Condition { output, comparison, threshold } = condition;
        // A condition's threshold is finite.
        let threshold = Finite::try_from(*threshold).unwrap_or(Finite::ONE);
        Self { output: output.clone(), comparison: comparison.sign().to_owned(), threshold }
    }
}

impl fmt::Display for DeclaredCondition {
    /// As it is written in a file, and read from it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.output, self.comparison, self.threshold.get())
    }
}

impl DeclaredCondition {
    /// The condition; none if the comparison is not known.
    #[must_use]
    pub fn condition(&self) -> Option<Condition> {
        let comparison = Comparison::of_sign(&self.comparison)?;
        Some(Condition { output: self.output.clone(), comparison, threshold: self.threshold.get() })
    }
}
