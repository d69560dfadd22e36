//! What a declaration's names of tensors connect.

use std::collections::{BTreeMap, BTreeSet};

use symphony_types::{LatencyProfile, Nanos, PROFILE_BATCH_MAX};

use super::declaration_limits::{DECLARATION_BYTES_MAX, DECLARED_NAME_BYTES_MAX, PICTURES_MAX, STAGE_TENSORS_MAX};
use super::declared::{Crop, DeclaredEdge, InputData, PipelineDeclaration};
use crate::limits::{EDGES_MAX, STAGES_MAX};
use crate::pipeline::{EdgeSpec, Pipeline, PipelineSpec, Stage};
use crate::refused::Refused;

/// Where a tensor comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The client: an input of the pipeline, by its index.
    Client(usize),
    /// A stage before it.
    Stage {
        /// Its index.
        stage: usize,
        /// The output of its model.
        output: String,
    },
}

/// An input of a stage's model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageInput {
    /// Its name at the model.
    pub input: String,
    /// Where it comes from.
    pub source: Source,
}

/// What a stage takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageWiring {
    /// By input of its model, in the order of their names.
    pub inputs: Vec<StageInput>,
    /// The input that takes a picture: its place in `inputs`.
    pub picture: Option<usize>,
    /// The edge into it whose rows are regions of that picture.
    pub cropped_by: Option<usize>,
    /// Whether its requests for one item may be none, or several.
    pub any_rows: bool,
}

/// What leads from one stage to the next.
#[derive(Clone, Debug, PartialEq)]
pub struct WiredEdge {
    /// The stage whose results it carries, by its index.
    pub from: usize,
    /// The stage that is asked with them, by its index.
    pub to: usize,
    /// As a [`Pipeline`] takes it.
    pub spec: EdgeSpec,
    /// The regions that its rows stand for.
    pub crop: Option<Crop>,
}

/// Where an output of the pipeline comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputWiring {
    /// The stage, by its index.
    pub stage: usize,
    /// The output of its model.
    pub output: String,
}

/// The connections of a declaration.
#[derive(Clone, Debug, PartialEq)]
pub struct Wiring {
    /// By stage, in the order of the declaration.
    pub stages: Vec<StageWiring>,
    /// By the places of their stages; [`Pipeline::edges`] are in the same order.
    pub edges: Vec<WiredEdge>,
    /// By output, in the order of the declaration.
    pub outputs: Vec<OutputWiring>,
}

impl PipelineDeclaration {
    /// Checks everything that needs no models, and returns what is connected.
    ///
    /// # Errors
    /// If a name, a number or a list is out of bounds, a tensor comes from nowhere or from two places, or what is
    /// connected is no pipeline. The message names the key and what was expected.
    pub fn validate(&self) -> Result<Wiring, Refused> {
        self.check_bounds()?;
        let wiring = Wiring::of(self)?;
        let profile = LatencyProfile::from_table(&[Nanos::new(1)])
            .map_err(|error| Refused::new("stage", "a profile that stands in for others", error))?;
        let pipeline = pipeline(self, &wiring, vec![profile; self.stages.len()])?;
        self.check_rows(&wiring, &pipeline)?;
        Ok(wiring)
    }

    /// The pipeline, with the profile of each stage's model in the order of the stages. Budgets of a
    /// [`CommittedSplit`](super::CommittedSplit) are in that order, too.
    ///
    /// # Errors
    /// As [`validate`](Self::validate), or if there are not as many profiles as stages.
    pub fn pipeline(&self, profiles: Vec<LatencyProfile>) -> Result<Pipeline, Refused> {
        if profiles.len() != self.stages.len() {
            let expected = format!("a profile for each of {} stages", self.stages.len());
            return Err(Refused::new("step", expected, profiles.len()));
        }
        pipeline(self, &Wiring::of(self)?, profiles)
    }

    fn check_bounds(&self) -> Result<(), Refused> {
        check_name("name", &self.name)?;
        if self.version == 0 {
            return Err(Refused::new("version", "a number from 1", 0));
        }
        // Each item is a separate run.
        if !(1..=PROFILE_BATCH_MAX).contains(&self.items_max) {
            let expected = format!("a number from 1 to {PROFILE_BATCH_MAX}");
            return Err(Refused::new("max_batch_size", expected, self.items_max));
        }
        count("input", self.inputs.len(), 1, STAGE_TENSORS_MAX)?;
        count("output", self.outputs.len(), 1, STAGE_TENSORS_MAX)?;
        count("ensemble_scheduling.step", self.stages.len(), 1, STAGES_MAX)?;
        count("edge", self.edges.len(), 0, EDGES_MAX)?;
        let mut names = BTreeSet::new();
        let tensors = self.inputs.iter().map(|input| ("input.name", input.name.as_str()));
        let outputs = self.outputs.iter().map(|output| ("output.name", output.tensor.name.as_str()));
        for (key, name) in tensors.chain(outputs) {
            check_name(key, name)?;
            if !names.insert((key, name)) {
                return Err(Refused::new(key, "another name for each", format!("`{name}` twice")));
            }
        }
        let pictures = self.inputs.iter().filter(|input| input.data == InputData::Picture).count();
        if pictures > PICTURES_MAX {
            let expected = format!("at most {PICTURES_MAX} picture (TYPE_STRING)");
            return Err(Refused::new("input", expected, pictures));
        }
        for (at, stage) in self.stages.iter().enumerate() {
            let key = |what: &str| format!("step.{at}.{what}");
            check_name(&key("name"), &stage.name)?;
            check_name(&key("model_name"), &stage.model)?;
            count(&key("input_map"), stage.inputs.len(), 1, STAGE_TENSORS_MAX)?;
            count(&key("output_map"), stage.outputs.len(), 0, STAGE_TENSORS_MAX)?;
            for (what, map) in [("input_map", &stage.inputs), ("output_map", &stage.outputs)] {
                map.iter().flat_map(|(one, other)| [one, other]).try_for_each(|name| check_name(&key(what), name))?;
            }
        }
        let bytes = self.weight_bytes();
        if bytes > DECLARATION_BYTES_MAX {
            return Err(Refused::new("step", format!("at most {DECLARATION_BYTES_MAX} bytes in all"), bytes));
        }
        Ok(())
    }

    /// Whether each output declares its number of rows rightly, and each crop has a picture.
    fn check_rows(&self, wiring: &Wiring, pipeline: &Pipeline) -> Result<(), Refused> {
        let leads_out = |stage: usize| {
            let mut reached = vec![stage];
            let mut next = 0;
            while let Some(&at) = reached.get(next) {
                if wiring.outputs.iter().any(|output| output.stage == at) {
                    return true;
                }
                for edge in wiring.edges.iter().filter(|edge| edge.from == at) {
                    if !reached.contains(&edge.to) {
                        reached.push(edge.to);
                    }
                }
                next += 1;
            }
            false
        };
        if let Some(&vain) = pipeline.order().iter().find(|&&stage| !leads_out(stage)) {
            let got = format!("`{}`, of which nothing comes to clients", self.stages[vain].name);
            return Err(Refused::new("ensemble_scheduling.step", "steps that lead to an output", got));
        }
        for (output, wired) in self.outputs.iter().zip(&wiring.outputs) {
            let (name, stage) = (&output.tensor.name, &self.stages[wired.stage].name);
            let any_rows = wiring.stages[wired.stage].any_rows;
            if output.any_rows != any_rows {
                let (expected, got) = if any_rows {
                    ("-1 as the first of its dims: its stage may be asked any number of times", "another")
                } else {
                    ("fixed dims: its stage is asked once", "-1")
                };
                return Err(Refused::new("output.dims", expected, format!("{got} for `{name}` of `{stage}`")));
            }
        }
        Ok(())
    }
}

fn count(key: &str, got: usize, least: usize, most: usize) -> Result<(), Refused> {
    if (least..=most).contains(&got) {
        return Ok(());
    }
    Err(Refused::new(key, format!("{least} to {most} of them"), got))
}

fn check_name(key: &str, name: &str) -> Result<(), Refused> {
    let is_bad = |c: char| c.is_whitespace() || c.is_control();
    if !name.is_empty() && name.len() <= DECLARED_NAME_BYTES_MAX && !name.contains(is_bad) {
        return Ok(());
    }
    let expected = format!("a name of 1 to {DECLARED_NAME_BYTES_MAX} bytes without blanks");
    Err(Refused::new(key, expected, format!("{name:?}")))
}

fn pipeline(
    declaration: &PipelineDeclaration,
    wiring: &Wiring,
    profiles: Vec<LatencyProfile>,
) -> Result<Pipeline, Refused> {
    let stages = declaration.stages.iter().zip(profiles);
    let stages = stages.map(|(stage, profile)| Stage { name: stage.name.clone(), model: stage.model.clone(), profile });
    let spec = PipelineSpec {
        name: declaration.name.clone(),
        slo: declaration.slo(),
        value: declaration.value,
        partial: declaration.partial,
        stages: stages.collect(),
        edges: wiring.edges.iter().map(|edge| edge.spec.clone()).collect(),
    };
    Pipeline::new(spec).map_err(|refused| by_stages(refused, wiring))
}

/// Edges are known to authors by their stages, not by their places in a list that no author wrote.
fn by_stages(refused: Refused, wiring: &Wiring) -> Refused {
    let named = refused.key.strip_prefix("edge.").and_then(|rest| {
        let (at, what) = rest.split_once('.').unwrap_or((rest, ""));
        let spec = &wiring.edges.get(at.parse::<usize>().ok()?)?.spec;
        let dot = if what.is_empty() { "" } else { "." };
        Some(format!("edge {} to {}{dot}{what}", spec.from, spec.to))
    });
    Refused { key: named.unwrap_or(refused.key), ..refused }
}

impl Wiring {
    /// What the names connect.
    fn of(declaration: &PipelineDeclaration) -> Result<Self, Refused> {
        let given = given(declaration)?;
        let mut stages = Vec::with_capacity(declaration.stages.len());
        let mut pairs: BTreeMap<(usize, usize), Option<&DeclaredEdge>> = BTreeMap::new();
        for (at, stage) in declaration.stages.iter().enumerate() {
            let mut inputs = Vec::with_capacity(stage.inputs.len());
            for (input, tensor) in &stage.inputs {
                let Some(source) = given.get(tensor.as_str()) else {
                    let known: Vec<_> = given.keys().copied().collect();
                    let expected = format!("a tensor that clients send or a step gives: {}", known.join(", "));
                    let key = format!("step.{at}.input_map[\"{input}\"]");
                    return Err(Refused::new(key, expected, format!("`{tensor}`")));
                };
                if let Source::Stage { stage: from, .. } = source {
                    pairs.insert((*from, at), None);
                }
                inputs.push(StageInput { input: input.clone(), source: source.clone() });
            }
            let is_picture = |input: &StageInput| match input.source {
                Source::Client(at) => declaration.inputs[at].data == InputData::Picture,
                Source::Stage { .. } => false,
            };
            let mut pictures = (0..inputs.len()).filter(|&place| is_picture(&inputs[place]));
            let picture = pictures.next();
            if pictures.next().is_some() {
                let key = format!("step.{at}.input_map");
                return Err(Refused::new(key, "at most one picture for a model", "several"));
            }
            stages.push(StageWiring { inputs, picture, cropped_by: None, any_rows: false });
        }
        check_inputs_are_taken(declaration, &stages)?;
        for (at, edge) in declaration.edges.iter().enumerate() {
            let stage = |key: &str, name: &str| {
                let known: Vec<_> = declaration.stages.iter().map(|stage| stage.name.as_str()).collect();
                let refused = || {
                    let expected = format!("one of the stages {}", known.join(", "));
                    Refused::new(format!("edge.{at}.{key}"), expected, format!("`{name}`"))
                };
                declaration.stage(name).ok_or_else(refused)
            };
            let pair = (stage("from", &edge.from)?, stage("to", &edge.to)?);
            if pairs.insert(pair, Some(edge)).flatten().is_some() {
                let got = format!("a second one from `{}` to `{}`", edge.from, edge.to);
                return Err(Refused::new(format!("edge.{at}"), "at most one edge between two stages", got));
            }
        }
        let edges = pairs.into_iter().map(|(pair, edge)| wired(declaration, pair, edge));
        let mut wiring =
            Self { stages, edges: edges.collect::<Result<_, _>>()?, outputs: outputs(declaration, &given)? };
        wiring.find_crops()?;
        wiring.find_any_rows(declaration.partial);
        Ok(wiring)
    }

    /// The edge into each stage that says which region of its picture it takes.
    fn find_crops(&mut self) -> Result<(), Refused> {
        for (at, edge) in self.edges.iter().enumerate().filter(|(_, edge)| edge.crop.is_some()) {
            let key = format!("edge {} to {}.crop", edge.spec.from, edge.spec.to);
            let picture = |stage: usize| {
                let wired = &self.stages[stage];
                wired.picture.map(|place| &wired.inputs[place].source)
            };
            if picture(edge.from).is_none() || picture(edge.from) != picture(edge.to) {
                let expected = "two stages that take the same picture of the client (an input of TYPE_STRING)";
                return Err(Refused::new(key, expected, "stages that do not"));
            }
            if self.stages[edge.to].cropped_by.is_some() {
                return Err(Refused::new(key, "at most one region for a stage", "a second one"));
            }
            self.stages[edge.to].cropped_by = Some(at);
        }
        let is_nested = |edge: &&WiredEdge| edge.crop.is_some() && self.stages[edge.from].cropped_by.is_some();
        match self.edges.iter().find(is_nested) {
            Some(WiredEdge { spec, .. }) => {
                let key = format!("edge {} to {}.crop", spec.from, spec.to);
                let got = format!("`{}`, which takes a region itself", spec.from);
                Err(Refused::new(key, "boxes of a stage that takes the whole picture", got))
            }
            None => Ok(()),
        }
    }

    /// Which stages are asked other than once for an item.
    fn find_any_rows(&mut self, partial: bool) {
        // Along the longest path without a cycle each round reaches one stage more; what has a cycle is refused later.
        for _ in 0..self.stages.len() {
            for edge in &self.edges {
                let varies = edge.spec.per_row || edge.spec.condition.is_some() || partial;
                let any_rows = varies || self.stages[edge.from].any_rows;
                self.stages[edge.to].any_rows |= any_rows;
            }
        }
    }
}

/// Every tensor of the pipeline, and where it comes from.
fn given(declaration: &PipelineDeclaration) -> Result<BTreeMap<&str, Source>, Refused> {
    let mut given = BTreeMap::new();
    for (at, input) in declaration.inputs.iter().enumerate() {
        given.insert(input.name.as_str(), Source::Client(at));
    }
    for (at, stage) in declaration.stages.iter().enumerate() {
        if declaration.stages[..at].iter().any(|other| other.name == stage.name) {
            let got = format!("`{}` twice", stage.name);
            return Err(Refused::new(format!("step.{at}.name"), "another name for each stage", got));
        }
        for (output, tensor) in &stage.outputs {
            let source = Source::Stage { stage: at, output: output.clone() };
            if given.insert(tensor.as_str(), source).is_some() {
                let key = format!("step.{at}.output_map[\"{output}\"]");
                let expected = "a tensor that nothing else gives";
                return Err(Refused::new(key, expected, format!("`{tensor}`, which is given already")));
            }
        }
    }
    Ok(given)
}

fn check_inputs_are_taken(declaration: &PipelineDeclaration, stages: &[StageWiring]) -> Result<(), Refused> {
    let client = |input: &StageInput| match input.source {
        Source::Client(at) => Some(at),
        Source::Stage { .. } => None,
    };
    let taken: BTreeSet<_> = stages.iter().flat_map(|stage| &stage.inputs).filter_map(client).collect();
    match (0..declaration.inputs.len()).find(|at| !taken.contains(at)) {
        Some(at) => {
            let got = format!("`{}`, which no step takes", declaration.inputs[at].name);
            Err(Refused::new("input.name", "an input of a step", got))
        }
        None => Ok(()),
    }
}

fn outputs(declaration: &PipelineDeclaration, given: &BTreeMap<&str, Source>) -> Result<Vec<OutputWiring>, Refused> {
    let output = |name: &String| match given.get(name.as_str()) {
        Some(Source::Stage { stage, output }) => Ok(OutputWiring { stage: *stage, output: output.clone() }),
        Some(Source::Client(_)) => {
            Err(Refused::new("output.name", "a tensor that a step gives", format!("`{name}`, which clients send")))
        }
        None => {
            let steps = given.iter().filter(|(_, source)| matches!(source, Source::Stage { .. }));
            let steps: Vec<_> = steps.map(|(name, _)| *name).collect();
            let expected = format!("a tensor that a step gives: {}", steps.join(", "));
            Err(Refused::new("output.name", expected, format!("`{name}`")))
        }
    };
    declaration.outputs.iter().map(|declared| output(&declared.tensor.name)).collect()
}

fn wired(
    declaration: &PipelineDeclaration,
    (from, to): (usize, usize),
    edge: Option<&DeclaredEdge>,
) -> Result<WiredEdge, Refused> {
    let name = |stage: usize| declaration.stages[stage].name.clone();
    let mut spec = EdgeSpec { from: name(from), to: name(to), gamma: 1.0, per_row: false, condition: None, most: None };
    let mut crop = None;
    if let Some(edge) = edge {
        spec.gamma = edge.gamma.get();
        // As a pipeline has it: more than one request for a result can only be for its rows.
        spec.per_row = edge.for_each || spec.gamma > 1.0;
        spec.most = edge.most;
        spec.condition = match &edge.condition {
            None => None,
            Some(declared) => {
                let refused = || {
                    let key = format!("edge {} to {}.where", edge.from, edge.to);
                    Refused::new(key, "one of > >= < <= == !=", format!("`{}`", declared.comparison))
                };
                Some(declared.condition().ok_or_else(refused)?)
            }
        };
        crop.clone_from(&edge.crop);
    }
    Ok(WiredEdge { from, to, spec, crop })
}

#[cfg(test)]
mod tests;
