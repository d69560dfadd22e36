//! A pipeline in a folder: an ensemble as Triton's users write it, and `pipeline.toml` beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use symphony_pipeline::{
    DeclaredStage, InputData, PipelineDeclaration, PipelineExtras, PipelineInput, PipelineOutput, Refused,
};
use symphony_types::{Nanos, PROFILE_BATCH_MAX, RequestValue, TensorSpec, VersionedName};

use crate::model_config::{Checked, ENSEMBLE, Parameters, Problem, data_type_of, parameters, refuse, shape, versions};
use crate::text::{self, wire};
use crate::{RepositoryError, no_difference};

/// A pipeline of a repository, as a cluster can be asked to load it.
#[derive(Clone, Debug, PartialEq)]
pub struct RepositoryPipeline {
    /// Stages, edges and SLO.
    pub declaration: PipelineDeclaration,
    /// Fields of its configuration that have no effect here, as text.
    pub notes: Vec<String>,
}

/// A file: where it is, for error messages, and its text.
type File<'a> = (&'a Path, &'a str);

/// Whether the text is the configuration of a pipeline.
pub(crate) fn is_ensemble(text: &str) -> bool {
    text::read(text).is_ok_and(|config| config.platform == ENSEMBLE)
}

/// Reads the configuration of the pipeline `name`, of which there are these versions.
///
/// # Errors
/// If a text is malformed, uses a field that is not supported, or describes no pipeline that can be run. The cluster
/// decides whether the models of its steps fit.
pub fn parse_pipeline(
    name: &str,
    (path, config): File<'_>,
    (extras_path, extras): File<'_>,
    there: &BTreeSet<u64>,
) -> Result<RepositoryPipeline, RepositoryError> {
    let config = text::read(config).map_err(|bad| RepositoryError::Text {
        path: path.to_owned(),
        line: bad.line,
        problem: bad.problem,
    })?;
    let in_field = |Problem { field, problem }| RepositoryError::Field { path: path.to_owned(), field, problem };
    let extras = PipelineExtras::parse(&extras_path.display().to_string(), extras)
        .map_err(|error| RepositoryError::Pipeline(Box::new(error)))?;
    let notes = notes(&config);
    let policy = versions(config.version_policy.clone()).map_err(in_field)?;
    let dir = path.parent().unwrap_or(path).to_owned();
    let chosen =
        policy.choose(there).map_err(|problem| RepositoryError::Versions { dir, name: name.to_owned(), problem })?;
    // At least one is chosen.
    let version = chosen.last().copied().unwrap_or(VersionedName::UNVERSIONED);
    let declaration = declaration(name, version, config, extras).map_err(in_field)?;
    declaration.validate().map_err(|Refused { key, expected, got }| RepositoryError::Field {
        path: if key.starts_with("edge") { extras_path.to_owned() } else { path.to_owned() },
        field: key,
        problem: format!("is {got}; expected {expected}"),
    })?;
    Ok(RepositoryPipeline { declaration, notes })
}

/// Notes on fields that have no effect.
fn notes(config: &wire::ModelConfig) -> Vec<String> {
    let mut notes = no_difference::notes(config);
    let fields = [
        ("dynamic_batching", config.dynamic_batching.is_some()),
        ("instance_group", !config.instance_group.is_empty()),
        ("output.label_filename", config.output.iter().any(|output| !output.label_filename.is_empty())),
    ];
    let present = fields.into_iter().filter(|(_, is_there)| *is_there);
    notes.extend(
        present.map(|(field, _)| format!("{field} makes no difference: the models of its steps have their own")),
    );
    notes
}

fn declaration(
    name: &str,
    version: u64,
    config: wire::ModelConfig,
    extras: PipelineExtras,
) -> Checked<PipelineDeclaration> {
    if config.platform != ENSEMBLE {
        let got = if config.platform.is_empty() { "missing".to_owned() } else { format!("`{}`", config.platform) };
        return refuse("platform", format!("is {got}; expected \"{ENSEMBLE}\": everything else is a model"));
    }
    if !config.name.is_empty() && config.name != name {
        return refuse("name", format!("is `{}`; expected `{name}` as its folder, or nothing", config.name));
    }
    if !config.backend.is_empty() || !config.default_model_filename.is_empty() {
        return refuse("backend", "or default_model_filename is set; a pipeline has no file of its own");
    }
    if config.model_transaction_policy.is_some_and(|policy| policy.decoupled) {
        return refuse("model_transaction_policy.decoupled", "is true; expected false: a request has one answer");
    }
    let Ok(items_max @ 1..=PROFILE_BATCH_MAX) = u32::try_from(config.max_batch_size) else {
        let why = "its first dimension, which dims leave out, counts the items of a request";
        return refuse(
            "max_batch_size",
            format!("is {}; expected 1 to {PROFILE_BATCH_MAX}: {why}", config.max_batch_size),
        );
    };
    let (slo, value) = objective(Parameters::read(config.parameters)?, &extras)?;
    let Some(ensemble) = config.ensemble_scheduling else {
        return refuse("ensemble_scheduling", "is missing; expected its steps");
    };
    Ok(PipelineDeclaration {
        name: name.to_owned(),
        version,
        slo_ns: slo.get(),
        value,
        partial: extras.partial,
        items_max,
        inputs: config.input.into_iter().map(input).collect::<Checked<_>>()?,
        outputs: config.output.into_iter().map(output).collect::<Checked<_>>()?,
        stages: stages(ensemble.step)?,
        edges: extras.edges,
    })
}

/// SLO and value: in `pipeline.toml`, or as parameters as models have them.
fn objective(parameters: Parameters, extras: &PipelineExtras) -> Checked<(Nanos, RequestValue)> {
    let of_pipelines = [parameters::SLO_MS, parameters::VALUE];
    if let Some(other) = parameters::ALL.into_iter().find(|&key| !of_pipelines.contains(&key) && parameters.has(key)) {
        let problem = "is a model's; expected slo_ms and value, and everything else at the models of the steps";
        return refuse(format!("parameters[\"{other}\"]"), problem);
    }
    let given = [(parameters::SLO_MS, extras.slo.is_some()), (parameters::VALUE, extras.value.is_some())];
    if let Some((key, _)) = given.into_iter().find(|&(key, in_extras)| in_extras && parameters.has(key)) {
        return refuse(format!("parameters[\"{key}\"]"), "is given in pipeline.toml, too; expected one of both");
    }
    let slo = extras.slo.map_or_else(|| parameters.slo(), Ok)?;
    let expected = format!("a number from {} to {}", RequestValue::MIN, RequestValue::MAX);
    let value = match (extras.value, parameters.number(parameters::VALUE, &expected)?) {
        (Some(value), _) => value,
        (None, None) => RequestValue::ONE,
        (None, Some(number)) => match RequestValue::from_number(number) {
            Some(value) => value,
            None => {
                return refuse(
                    format!("parameters[\"{}\"]", parameters::VALUE),
                    format!("is {number}; expected {expected}"),
                );
            }
        },
    };
    Ok((slo, value))
}

fn input(input: wire::ModelInput) -> Checked<PipelineInput> {
    let name = input.name;
    if input.reshape.is_some() {
        return refuse("input.reshape", format!("of `{name}` is set; expected the shape that the step's model has"));
    }
    if wire::DataType::try_from(input.data_type).is_ok_and(|t| t == wire::DataType::TypeString) {
        if !matches!(input.dims[..], [] | [1]) {
            return refuse("input.dims", format!("of `{name}` are of several; expected [ 1 ]: one picture"));
        }
        return Ok(PipelineInput { name, data: InputData::Picture });
    }
    let tensor = tensor("input", name, input.data_type, &input.dims)?;
    let TensorSpec { name, data_type, item_shape } = tensor;
    Ok(PipelineInput { name, data: InputData::Tensor { data_type, item_shape } })
}

fn output(output: wire::ModelOutput) -> Checked<PipelineOutput> {
    if output.reshape.is_some() {
        let name = output.name;
        return refuse("output.reshape", format!("of `{name}` is set; expected the shape that the step's model has"));
    }
    let (any_rows, dims) = match &output.dims[..] {
        [-1, dims @ ..] => (true, dims),
        dims => (false, dims),
    };
    Ok(PipelineOutput { tensor: tensor("output", output.name, output.data_type, dims)?, any_rows })
}

fn tensor(what: &str, name: String, data_type: i32, dims: &[i64]) -> Checked<TensorSpec> {
    let Some(data_type) = data_type_of(data_type) else {
        let got = wire::DataType::try_from(data_type).map_or("?", |t| t.as_str_name());
        let picture = if what == "input" { ", or TYPE_STRING for a picture" } else { "" };
        let expected =
            format!("expected TYPE_BOOL, TYPE_UINT8–64, TYPE_INT8–64, TYPE_FP16, TYPE_FP32 or TYPE_FP64{picture}");
        return refuse(format!("{what}.data_type"), format!("of `{name}` is {got}; {expected}"));
    };
    let item_shape = shape(&format!("{what}.dims"), &name, data_type, dims)?;
    Ok(TensorSpec { name, data_type, item_shape })
}

/// The steps as stages. A stage has the name of its model; those that ask the same one are counted from the second on.
fn stages(steps: Vec<wire::model_ensembling::Step>) -> Checked<Vec<DeclaredStage>> {
    let mut stages: Vec<DeclaredStage> = Vec::with_capacity(steps.len().min(symphony_pipeline::STAGES_MAX));
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for (at, step) in steps.into_iter().enumerate() {
        let field = |name: &str| format!("step.{at}.{name}");
        let base = step.model_name;
        if !VersionedName::is_base_name(&base) {
            return refuse(field("model_name"), format!("is `{base}`; expected a model's name without a version"));
        }
        let model = match step.model_version {
            // Not given, or Triton's number for the latest.
            0 | -1 => base.clone(),
            version => match u64::try_from(version) {
                Ok(version) => VersionedName { name: &base, version }.loaded_as(),
                Err(_) => {
                    return refuse(field("model_version"), format!("is {version}; expected a version from 1, or -1"));
                }
            },
        };
        let times = uses.entry(base.clone()).or_insert(0);
        *times += 1;
        let name = if *times == 1 { base } else { format!("{base}.{times}") };
        stages.push(DeclaredStage {
            name,
            model,
            inputs: map(&field("input_map"), step.input_map)?,
            outputs: map(&field("output_map"), step.output_map)?,
        });
    }
    Ok(stages)
}

fn map(field: &str, tensors: Vec<wire::model_ensembling::step::Tensor>) -> Checked<BTreeMap<String, String>> {
    let mut map = BTreeMap::new();
    for wire::model_ensembling::step::Tensor { key, value } in tensors {
        if key.is_empty() || value.is_empty() {
            return refuse(
                field,
                format!("has `{key}`: `{value}`; expected the name of a tensor as key, and as value"),
            );
        }
        if map.contains_key(&key) {
            return refuse(field, format!("has `{key}` twice"));
        }
        map.insert(key, value);
    }
    Ok(map)
}
