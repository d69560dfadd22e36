//! A declaration against the models of its stages: inputs, outputs, types, shapes.

use symphony_types::{DataType, Signature, TensorSpec, Transforms};

use super::declared::{InputData, PipelineDeclaration};
use super::wiring::{Source, StageInput, WiredEdge, Wiring};
use crate::refused::Refused;

/// A loaded model.
#[derive(Clone, Copy, Debug)]
pub struct StageModel<'a> {
    /// Its name in the cluster.
    pub loaded_as: &'a str,
    /// Inputs and outputs.
    pub signature: &'a Signature,
    /// What frontends do with them.
    pub transforms: &'a Transforms,
}

impl PipelineDeclaration {
    /// Checks everything: what needs no models, and whether the models of the stages take and give what is connected.
    /// Every version that may answer a stage must.
    ///
    /// # Errors
    /// As [`validate`](Self::validate); or if a model is not there, or a tensor of it is missing or has another type or
    /// shape. The message names the step, the model and what was expected.
    pub fn check(&self, models: &[StageModel<'_>]) -> Result<Wiring, Refused> {
        let wiring = self.validate()?;
        let mut by_stage: Vec<Vec<StageModel<'_>>> = Vec::with_capacity(self.stages.len());
        for (at, stage) in self.stages.iter().enumerate() {
            let versions: Vec<_> = models.iter().copied().filter(|model| stage.asks(model.loaded_as)).collect();
            if versions.is_empty() {
                let key = format!("step.{at}.model_name");
                let got = format!("`{}`, which is not loaded", stage.model);
                return Err(Refused::new(key, "a model of the cluster; load it first", got));
            }
            for model in &versions {
                self.check_names(at, model)?;
            }
            by_stage.push(versions);
        }
        for (at, stage) in wiring.stages.iter().enumerate() {
            for input in &stage.inputs {
                by_stage[at].iter().try_for_each(|model| self.check_input(at, input, model, &wiring, &by_stage))?;
            }
        }
        for edge in &wiring.edges {
            by_stage[edge.from].iter().try_for_each(|model| check_edge(edge, model, &wiring))?;
        }
        for (output, wired) in self.outputs.iter().zip(&wiring.outputs) {
            for model in &by_stage[wired.stage] {
                let Some(got) = tensor(&model.signature.outputs, &wired.output) else { continue };
                let (wanted, key) = (&output.tensor, format!("output `{}`", output.tensor.name));
                if !is_same(got, wanted.data_type, &wanted.item_shape) {
                    return Err(Refused::new(key, shown(wanted.data_type, &wanted.item_shape), of(model, got)));
                }
            }
        }
        Ok(wiring)
    }

    /// Whether the model has the inputs and outputs that its step names, and no other inputs.
    fn check_names(&self, at: usize, model: &StageModel<'_>) -> Result<(), Refused> {
        let stage = &self.stages[at];
        let Signature { inputs, outputs } = model.signature;
        let pairs = [("input_map", "input", &stage.inputs, inputs), ("output_map", "output", &stage.outputs, outputs)];
        for (key, what, map, specs) in pairs {
            if let Some(strange) = map.keys().find(|&name| tensor(specs, name).is_none()) {
                let known: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
                let expected = format!("an {what} of model `{}`: {}", model.loaded_as, known.join(", "));
                return Err(Refused::new(format!("step.{at}.{key}"), expected, format!("`{strange}`")));
            }
        }
        match inputs.iter().find(|spec| !stage.inputs.contains_key(&spec.name)) {
            Some(missing) => {
                let expected = format!("all inputs of model `{}`", model.loaded_as);
                Err(Refused::new(format!("step.{at}.input_map"), expected, format!("none for `{}`", missing.name)))
            }
            None => Ok(()),
        }
    }

    /// Whether an input of a step's model can take what is connected to it.
    fn check_input(
        &self,
        at: usize,
        wired: &StageInput,
        model: &StageModel<'_>,
        wiring: &Wiring,
        by_stage: &[Vec<StageModel<'_>>],
    ) -> Result<(), Refused> {
        let Some(input) = tensor(&model.signature.inputs, &wired.input) else { return Ok(()) };
        let key = || format!("step.{at}.input_map[\"{}\"]", wired.input);
        let expected = || of(model, input);
        match &wired.source {
            Source::Client(place) => {
                let declared = &self.inputs[*place];
                match &declared.data {
                    InputData::Picture if model.transforms.image.as_ref().is_some_and(|i| i.input == input.name) => {
                        Ok(())
                    }
                    InputData::Picture => {
                        let expected = format!("an input of model `{}` that takes pictures", model.loaded_as);
                        Err(Refused::new(key(), expected, format!("`{}`, which has no image transform", input.name)))
                    }
                    InputData::Tensor { data_type, item_shape } if is_same(input, *data_type, item_shape) => Ok(()),
                    InputData::Tensor { data_type, item_shape } => {
                        let got = format!("`{}` of {}", declared.name, shown(*data_type, item_shape));
                        Err(Refused::new(key(), expected(), got))
                    }
                }
            }
            Source::Stage { stage, output } => {
                let per_row = wiring.edge(*stage, at).is_some_and(|edge| edge.spec.per_row);
                for giver in &by_stage[*stage] {
                    let Some(given) = tensor(&giver.signature.outputs, output) else { continue };
                    let shape = if per_row { given.item_shape.get(1..) } else { Some(&given.item_shape[..]) };
                    if !shape.is_some_and(|shape| is_same(input, given.data_type, shape)) {
                        let rows = if per_row { "rows of " } else { "" };
                        return Err(Refused::new(key(), expected(), format!("{rows}{}", of(giver, given))));
                    }
                }
                Ok(())
            }
        }
    }
}

impl Wiring {
    /// The edge between two stages.
    #[must_use]
    pub fn edge(&self, from: usize, to: usize) -> Option<&WiredEdge> {
        self.edges.iter().find(|edge| (edge.from, edge.to) == (from, to))
    }
}

/// Whether a result of the model has rows, and numbers that decide and crops that fit them.
fn check_edge(edge: &WiredEdge, model: &StageModel<'_>, wiring: &Wiring) -> Result<(), Refused> {
    let key = |what: &str| format!("edge {} to {}{what}", edge.spec.from, edge.spec.to);
    let output = |what: &str, name: &str| {
        tensor(&model.signature.outputs, name).ok_or_else(|| {
            let known: Vec<_> = model.signature.outputs.iter().map(|spec| spec.name.as_str()).collect();
            let expected = format!("an output of model `{}`: {}", model.loaded_as, known.join(", "));
            Refused::new(key(what), expected, format!("`{name}`"))
        })
    };
    // Every tensor along the edge, and how many numbers of it belong to a row, if that matters.
    let mut along: Vec<(&TensorSpec, Option<usize>)> = Vec::new();
    for input in &wiring.stages[edge.to].inputs {
        if let Source::Stage { stage, output: name } = &input.source
            && *stage == edge.from
        {
            along.push((output("", name)?, None));
        }
    }
    if let Some(condition) = &edge.spec.condition {
        along.push((output(".where", &condition.output)?, Some(1)));
    }
    if let Some(crop) = &edge.crop {
        along.push((output(".crop", &crop.boxes)?, Some(4)));
    }
    let mut rows = None;
    for (spec, numbers) in along {
        let shape = match edge.spec.per_row {
            true => {
                let first = spec.item_shape.first().copied();
                if first.is_none() || rows.is_some_and(|rows| Some(rows) != first) {
                    let expected = match rows {
                        Some(rows) => format!("{rows} rows, as others along this edge have"),
                        None => "rows: a first dimension".to_owned(),
                    };
                    return Err(Refused::new(key(".for_each"), expected, of(model, spec)));
                }
                rows = first;
                spec.item_shape.get(1..).unwrap_or_default()
            }
            false => &spec.item_shape[..],
        };
        let elements = shape.iter().map(|&side| side as usize).product::<usize>();
        if let Some(numbers) = numbers.filter(|&numbers| numbers != elements) {
            let (what, each) = if numbers == 1 { (".where", "one number") } else { (".crop", "four numbers") };
            let whose = if edge.spec.per_row { "a row" } else { "a result; for_each takes rows" };
            return Err(Refused::new(key(what), format!("{each} for {whose}"), of(model, spec)));
        }
    }
    if edge.spec.per_row && rows.is_none() {
        let expected = "a tensor, a condition or a crop, whose rows can be counted";
        return Err(Refused::new(key(".for_each"), expected, "none"));
    }
    Ok(())
}

fn tensor<'a>(specs: &'a [TensorSpec], name: &str) -> Option<&'a TensorSpec> {
    specs.iter().find(|spec| spec.name == name)
}

/// Whether the bytes are the same: dimensions of one element make no difference.
fn is_same(spec: &TensorSpec, data_type: DataType, item_shape: &[u32]) -> bool {
    let sides = |shape: &[u32]| shape.iter().copied().filter(|&side| side != 1).collect::<Vec<_>>();
    spec.data_type == data_type && sides(&spec.item_shape) == sides(item_shape)
}

fn shown(data_type: DataType, item_shape: &[u32]) -> String {
    format!("{data_type} {item_shape:?}")
}

fn of(model: &StageModel<'_>, spec: &TensorSpec) -> String {
    format!("`{}` of model `{}`, {}", spec.name, model.loaded_as, shown(spec.data_type, &spec.item_shape))
}

#[cfg(test)]
mod tests;
