//! A checked model configuration: which fields are honoured, ignored or refused here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use symphony_policy::ModelPolicy;
use symphony_types::{
    DataType, Nanos, PROFILE_BATCH_MAX, RequestValue, SLO_MAX, Signature, TENSOR_DIMENSIONS_MAX, TENSOR_ITEM_BYTES_MAX,
    TensorSpec,
};

use crate::text::{self, wire};
use crate::version_policy::VersionPolicy;
use crate::{RepositoryError, no_difference};

/// Parameters that a configuration may have; Triton hands them to its backends, and ignores these.
pub mod parameters {
    /// Latency objective from arrival to answer, in milliseconds; must be given.
    pub const SLO_MS: &str = "slo_ms";
    /// The profile's file name, `profile.toml` if not given; looked for in the version's folder, then in the model's.
    pub const PROFILE: &str = "profile";
    /// Name of the file that describes what frontends do with pictures and labels; looked for as the profile is.
    /// Nothing if not given.
    pub const TRANSFORMS: &str = "transforms";
    /// Scheduling policy, in the one text that policies have.
    pub const POLICY: &str = "policy";
    /// What a request is worth against those of other models.
    pub const VALUE: &str = "value";
    /// Name of the sub-cluster; the only one if not given.
    pub const SUBCLUSTER: &str = "subcluster";
    /// `true` if it is to share its trunk with no other model; `false` if not given.
    pub const OWN_TRUNK: &str = "own_trunk";
    /// Every key.
    pub const ALL: [&str; 7] = [SLO_MS, PROFILE, TRANSFORMS, POLICY, VALUE, SUBCLUSTER, OWN_TRUNK];
}

/// The model's file, unless the configuration says otherwise.
const MODEL_FILE: &str = "model.onnx";
/// The platform of pipelines.
pub(crate) const ENSEMBLE: &str = "ensemble";
/// The profile's file, unless the configuration says otherwise.
const PROFILE_FILE: &str = "profile.toml";

/// The contents of a `config.pbtxt`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// What runs it.
    pub engine: Engine,
    /// Most items in one batch, at least 1.
    pub batch_max: u32,
    /// Inputs and outputs, in the order of the file; none if the file leaves both to the profile.
    pub signature: Option<Signature>,
    /// Which versions are served.
    pub versions: VersionPolicy,
    /// The required device.
    pub device: Device,
    /// Latency objective from arrival to answer.
    pub slo: Nanos,
    /// File name of the profile.
    pub profile: String,
    /// File name of what frontends do for its clients; none if nothing.
    pub transforms: Option<String>,
    /// File names of the labels of outputs, by output.
    pub label_files: BTreeMap<String, String>,
    /// How it is scheduled.
    pub policy: ModelPolicy,
    /// What a request is worth against those of other models.
    pub value: RequestValue,
    /// Name of its sub-cluster; empty for the only one.
    pub subcluster: String,
    /// Whether it is to share its trunk with no other model.
    pub own_trunk: bool,
    /// Fields of the file that have no effect here, as text.
    pub notes: Vec<String>,
}

/// What runs a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// ONNX Runtime, with this file in each version's folder.
    Onnx {
        /// File name.
        file: String,
    },
    /// The profile alone: emulated GPUs.
    Emulated,
}

/// On what a model must run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Any device of its sub-cluster.
    Any,
    /// GPUs, real or emulated.
    Gpu,
    /// Processors.
    Cpu,
}

pub(crate) type Checked<T> = Result<T, Problem>;

/// A field and its defect.
pub(crate) struct Problem {
    pub(crate) field: String,
    pub(crate) problem: String,
}

pub(crate) fn refuse<T>(field: impl Into<String>, problem: impl Into<String>) -> Checked<T> {
    Err(Problem { field: field.into(), problem: problem.into() })
}

impl ModelConfig {
    /// Reads the text of the configuration of model `name`; `path` is for error messages.
    ///
    /// # Errors
    /// If the text is malformed, uses a field that is not supported, or describes a model that cannot be served.
    pub fn parse(path: &Path, name: &str, text: &str) -> Result<Self, RepositoryError> {
        let config = text::read(text).map_err(|bad| RepositoryError::Text {
            path: path.to_owned(),
            line: bad.line,
            problem: bad.problem,
        })?;
        refuse_ensemble(&config)
            .and_then(|()| check(config, name))
            .map_err(|Problem { field, problem }| RepositoryError::Field { path: path.to_owned(), field, problem })
    }
}

/// Ensembles are pipelines, and read as such.
fn refuse_ensemble(config: &wire::ModelConfig) -> Checked<()> {
    if config.platform == ENSEMBLE {
        let instead = "load it with `symphony pipeline load`, after the models of its steps";
        return refuse("platform", format!("is `{ENSEMBLE}`, which is a pipeline and no model: {instead}"));
    }
    match config.ensemble_scheduling {
        Some(_) => refuse("ensemble_scheduling", format!("is set; expected platform \"{ENSEMBLE}\" beside it")),
        None => Ok(()),
    }
}

fn check(config: wire::ModelConfig, name: &str) -> Checked<ModelConfig> {
    if !config.name.is_empty() && config.name != name {
        return refuse("name", format!("is `{}`; expected `{name}` as its folder, or nothing", config.name));
    }
    let batch_max = match u32::try_from(config.max_batch_size) {
        Ok(max @ 1..=PROFILE_BATCH_MAX) => max,
        _ => {
            let got = config.max_batch_size;
            let why = "requests are batched along a first dimension that dims leave out";
            return refuse("max_batch_size", format!("is {got}; expected 1 to {PROFILE_BATCH_MAX}: {why}"));
        }
    };
    let mut notes = no_difference::notes(&config);
    if config.model_transaction_policy.is_some_and(|policy| policy.decoupled) {
        return refuse("model_transaction_policy.decoupled", "is true; expected false: a request has one answer");
    }
    let label_files = label_files(&config.output)?;
    let parameters = Parameters::read(config.parameters)?;
    let (slo, policy) = (parameters.slo()?, parameters.policy()?);
    Ok(ModelConfig {
        engine: engine(&config.platform, &config.backend, config.default_model_filename)?,
        batch_max,
        signature: signature(config.input, config.output)?,
        versions: versions(config.version_policy)?,
        device: device(&config.instance_group, &mut notes)?,
        slo,
        profile: parameters.file(parameters::PROFILE)?.unwrap_or_else(|| PROFILE_FILE.to_owned()),
        transforms: parameters.file(parameters::TRANSFORMS)?,
        label_files,
        value: parameters.value(&policy)?,
        policy,
        subcluster: parameters.text(parameters::SUBCLUSTER).to_owned(),
        own_trunk: parameters.own_trunk()?,
        notes: config
            .dynamic_batching
            .map_or(Ok(notes.clone()), |batching| dynamic_batching(batching, batch_max, slo, notes))?,
    })
}

fn engine(platform: &str, backend: &str, file: String) -> Checked<Engine> {
    let onnx = |file: String| {
        let file = if file.is_empty() { MODEL_FILE.to_owned() } else { file };
        file_name("default_model_filename", &file)?;
        Ok(Engine::Onnx { file })
    };
    match (platform, backend) {
        ("onnxruntime_onnx", "" | "onnxruntime") | ("", "onnxruntime") => onnx(file),
        ("" | "emulated", "emulated") | ("emulated", "") if file.is_empty() => Ok(Engine::Emulated),
        ("" | "emulated", "emulated") | ("emulated", "") => {
            refuse("default_model_filename", format!("is `{file}`; an emulated model has no file"))
        }
        ("", "") => refuse("backend", "is missing; expected \"onnxruntime\", or \"emulated\" for emulated GPUs"),
        _ => refuse(
            if backend.is_empty() { "platform" } else { "backend" },
            format!(
                "is platform `{platform}` and backend `{backend}`; expected platform \"onnxruntime_onnx\" or backend \
                 \"onnxruntime\", or \"emulated\" for emulated GPUs"
            ),
        ),
    }
}

/// A file beside others: no way out of its folder.
fn file_name(field: &str, name: &str) -> Checked<()> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) => Ok(()),
        _ => refuse(field, format!("is `{name}`; expected the name of a file, without a folder")),
    }
}

fn signature(inputs: Vec<wire::ModelInput>, outputs: Vec<wire::ModelOutput>) -> Checked<Option<Signature>> {
    if inputs.is_empty() && outputs.is_empty() {
        return Ok(None);
    }
    let inputs = inputs.into_iter().map(|i| (i.name, i.data_type, i.dims, i.reshape));
    let outputs = outputs.into_iter().map(|o| (o.name, o.data_type, o.dims, o.reshape));
    Ok(Some(Signature { inputs: tensors("input", inputs)?, outputs: tensors("output", outputs)? }))
}

fn label_files(outputs: &[wire::ModelOutput]) -> Checked<BTreeMap<String, String>> {
    let named = outputs.iter().filter(|output| !output.label_filename.is_empty());
    let file = |output: &wire::ModelOutput| {
        file_name("output.label_filename", &output.label_filename)?;
        Ok((output.name.clone(), output.label_filename.clone()))
    };
    named.map(file).collect()
}

type Tensor = (String, i32, Vec<i64>, Option<wire::ModelTensorReshape>);

fn tensors(field: &str, tensors: impl Iterator<Item = Tensor>) -> Checked<Vec<TensorSpec>> {
    let mut specs: Vec<TensorSpec> = Vec::new();
    for (name, data_type, dims, reshape) in tensors {
        if name.is_empty() || specs.iter().any(|spec| spec.name == name) {
            return refuse(format!("{field}.name"), format!("`{name}` is empty or given twice"));
        }
        let Some(data_type) = data_type_of(data_type) else {
            let got = wire::DataType::try_from(data_type).map_or("?", |t| t.as_str_name());
            let expected = "expected TYPE_BOOL, TYPE_UINT8–64, TYPE_INT8–64, TYPE_FP16, TYPE_FP32 or TYPE_FP64";
            return refuse(format!("{field}.data_type"), format!("of `{name}` is {got}; {expected}"));
        };
        let item_shape = shape(&format!("{field}.dims"), &name, data_type, &dims)?;
        if let Some(reshape) = reshape {
            let inside = shape(&format!("{field}.reshape.shape"), &name, data_type, &reshape.shape)?;
            let elements = |shape: &[u32]| shape.iter().map(|&d| u64::from(d)).product::<u64>();
            let (outside, inside) = (elements(&item_shape), elements(&inside));
            if outside != inside {
                let problem = format!("of `{name}` has {inside} elements; expected as many as dims have, {outside}");
                return refuse(format!("{field}.reshape.shape"), problem);
            }
        }
        specs.push(TensorSpec { name, data_type, item_shape });
    }
    if specs.is_empty() {
        return refuse(
            field,
            "is missing; expected at least one, or neither input nor output: then the profile says them",
        );
    }
    Ok(specs)
}

pub(crate) fn shape(field: &str, name: &str, data_type: DataType, dims: &[i64]) -> Checked<Vec<u32>> {
    if dims.len() > TENSOR_DIMENSIONS_MAX {
        return refuse(
            field,
            format!("of `{name}` has {} dimensions; expected at most {TENSOR_DIMENSIONS_MAX}", dims.len()),
        );
    }
    let mut bytes = data_type.size_bytes();
    let mut shape = Vec::with_capacity(dims.len());
    for &dim in dims {
        let Ok(fixed @ 1..) = u32::try_from(dim) else {
            let why = "only the dimension that counts items, which dims leave out, may vary";
            return refuse(field, format!("of `{name}` has {dim}; expected fixed sizes from 1: {why}"));
        };
        bytes = bytes.saturating_mul(fixed as usize);
        shape.push(fixed);
    }
    if bytes > TENSOR_ITEM_BYTES_MAX {
        return refuse(field, format!("of `{name}` make items of more than {TENSOR_ITEM_BYTES_MAX} bytes"));
    }
    Ok(shape)
}

pub(crate) fn data_type_of(data_type: i32) -> Option<DataType> {
    Some(match wire::DataType::try_from(data_type).ok()? {
        wire::DataType::TypeBool => DataType::Bool,
        wire::DataType::TypeUint8 => DataType::Uint8,
        wire::DataType::TypeUint16 => DataType::Uint16,
        wire::DataType::TypeUint32 => DataType::Uint32,
        wire::DataType::TypeUint64 => DataType::Uint64,
        wire::DataType::TypeInt8 => DataType::Int8,
        wire::DataType::TypeInt16 => DataType::Int16,
        wire::DataType::TypeInt32 => DataType::Int32,
        wire::DataType::TypeInt64 => DataType::Int64,
        wire::DataType::TypeFp16 => DataType::Fp16,
        wire::DataType::TypeFp32 => DataType::Fp32,
        wire::DataType::TypeFp64 => DataType::Fp64,
        wire::DataType::TypeInvalid | wire::DataType::TypeString | wire::DataType::TypeBf16 => return None,
    })
}

pub(crate) fn versions(policy: Option<wire::ModelVersionPolicy>) -> Checked<VersionPolicy> {
    use wire::model_version_policy::PolicyChoice;
    Ok(match policy.and_then(|policy| policy.policy_choice) {
        None => VersionPolicy::Latest(1),
        Some(PolicyChoice::Latest(latest)) => VersionPolicy::Latest(latest.num_versions.max(1) as usize),
        Some(PolicyChoice::All(_)) => VersionPolicy::All,
        Some(PolicyChoice::Specific(specific)) => {
            let mut wanted = BTreeSet::new();
            for version in specific.versions {
                match u64::try_from(version) {
                    Ok(version @ 1..) => wanted.insert(version),
                    _ => return refuse("version_policy.specific", format!("has {version}; expected versions from 1")),
                };
            }
            if wanted.is_empty() {
                return refuse("version_policy.specific", "names no version; expected at least one");
            }
            VersionPolicy::Specific(wanted)
        }
    })
}

fn device(groups: &[wire::ModelInstanceGroup], notes: &mut Vec<String>) -> Checked<Device> {
    use wire::model_instance_group::Kind;
    let group = match groups {
        [] => return Ok(Device::Any),
        [group] => group,
        _ => return refuse("instance_group", "is given more than once; a model runs on one kind of device"),
    };
    if !group.gpus.is_empty() {
        return refuse(
            "instance_group.gpus",
            "names GPUs; GPUs are given to sub-clusters, name one with parameter subcluster",
        );
    }
    if group.count > 1 {
        let why = "the GPUs of its sub-cluster hold one instance each, and are shared by its models";
        notes.push(format!("instance_group.count = {} makes no difference: {why}", group.count));
    }
    match group.kind() {
        Kind::Auto => Ok(Device::Any),
        Kind::Gpu => Ok(Device::Gpu),
        Kind::Cpu => Ok(Device::Cpu),
        Kind::Model => refuse("instance_group.kind", "is KIND_MODEL; expected KIND_AUTO, KIND_GPU or KIND_CPU"),
    }
}

fn dynamic_batching(
    batching: wire::ModelDynamicBatching,
    batch_max: u32,
    slo: Nanos,
    mut notes: Vec<String>,
) -> Checked<Vec<String>> {
    let key = |field: &str| format!("dynamic_batching.{field}");
    for &size in &batching.preferred_batch_size {
        if !u32::try_from(size).is_ok_and(|size| (1..=batch_max).contains(&size)) {
            let field = key("preferred_batch_size");
            return refuse(field, format!("has {size}; expected 1 to max_batch_size, {batch_max}"));
        }
    }
    if !batching.preferred_batch_size.is_empty() {
        let why = "sizes follow from the profile and the deadlines";
        notes.push(format!("{} makes no difference: {why}", key("preferred_batch_size")));
    }
    if batching.max_queue_delay_microseconds > 0 {
        let wait_ms = batching.max_queue_delay_microseconds as f64 / 1e3;
        let why = "how long a batch waits follows from load and deadlines; a fixed wait is parameter policy =";
        let policy = format!("{{ name = \"timeout\", trigger = {{ timeout_ms = {wait_ms} }} }}");
        notes.push(format!("{} makes no difference: {why} {policy}", key("max_queue_delay_microseconds")));
    }
    if batching.preserve_ordering {
        return refuse(key("preserve_ordering"), "is true; expected false: answers go out as batches end");
    }
    if batching.priority_levels > 0 || batching.default_priority_level > 0 {
        return refuse(
            key("priority_levels"),
            "is set; expected none: urgency is a request's deadline, weight is parameter value",
        );
    }
    let Some(queue) = batching.default_queue_policy else { return Ok(notes) };
    if queue.timeout_action() == wire::model_queue_policy::TimeoutAction::Delay {
        let why = "a request whose deadline cannot be met is answered with an error at once";
        return refuse(key("default_queue_policy.timeout_action"), format!("is DELAY; expected REJECT: {why}"));
    }
    if queue.max_queue_size > 0 {
        let why = "queues end with the deadlines of those who wait";
        return refuse(
            key("default_queue_policy.max_queue_size"),
            format!("is {}; expected 0: {why}", queue.max_queue_size),
        );
    }
    let timeout = Nanos::from_micros(queue.default_timeout_microseconds);
    if timeout > Nanos::ZERO && timeout < slo {
        let (timeout, slo) = (timeout.as_millis_f64(), slo.as_millis_f64());
        let problem = format!(
            "is {timeout} ms, less than slo_ms = {slo}; expected at least as much, or nothing: requests wait as long as their \
             deadlines allow, so say the shorter time as slo_ms"
        );
        return refuse(key("default_queue_policy.default_timeout_microseconds"), problem);
    }
    Ok(notes)
}

/// The parameters by key.
pub(crate) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    pub(crate) fn read(given: Vec<wire::model_config::Parameter>) -> Checked<Self> {
        let mut all = std::collections::BTreeMap::new();
        for parameter in given {
            let key = parameter.key;
            if no_difference::OF_ONNX_RUNTIME.contains(&key.as_str()) {
                continue;
            }
            let field = format!("parameters[\"{key}\"]");
            if !parameters::ALL.contains(&key.as_str()) {
                return refuse(field, format!("is not known; expected one of {}", parameters::ALL.join(", ")));
            }
            let value = parameter.value.unwrap_or_default().string_value;
            if value.is_empty() {
                return refuse(field, "is empty; expected value { string_value: \"…\" }");
            }
            if all.insert(key, value).is_some() {
                return refuse(field, "is given twice");
            }
        }
        Ok(Self(all))
    }

    /// Whether there is such a parameter.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    fn text(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    pub(crate) fn number(&self, key: &str, expected: &str) -> Checked<Option<f64>> {
        let Some(text) = self.0.get(key) else { return Ok(None) };
        match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => refuse(format!("parameters[\"{key}\"]"), format!("is `{text}`; expected {expected}")),
        }
    }

    pub(crate) fn slo(&self) -> Checked<Nanos> {
        let (key, expected) = (parameters::SLO_MS, "a positive number of milliseconds");
        match self.number(key, expected)? {
            None => refuse(format!("parameters[\"{key}\"]"), format!("is missing; expected {expected}")),
            Some(ms) => match Nanos::from_millis_f64(ms) {
                slo if slo > Nanos::ZERO && slo <= SLO_MAX => Ok(slo),
                _ => {
                    let most = SLO_MAX.as_millis_f64();
                    refuse(format!("parameters[\"{key}\"]"), format!("is {ms}; expected {expected}, {most} at most"))
                }
            },
        }
    }

    /// What requests are worth, where the policy asks.
    fn value(&self, policy: &ModelPolicy) -> Checked<RequestValue> {
        let key = parameters::VALUE;
        let expected = format!("a number from {} to {}", RequestValue::MIN, RequestValue::MAX);
        let Some(number) = self.number(key, &expected)? else { return Ok(RequestValue::ONE) };
        match RequestValue::from_number(number) {
            Some(value) if value == RequestValue::ONE || policy.looks_at_values() => Ok(value),
            Some(_) => {
                let problem = format!(
                    "is {number}; expected policy `auto` or one with shed = \"proportional\" beside it, others look at no values"
                );
                refuse(format!("parameters[\"{key}\"]"), problem)
            }
            None => refuse(format!("parameters[\"{key}\"]"), format!("is {number}; expected {expected}")),
        }
    }

    fn policy(&self) -> Checked<ModelPolicy> {
        let Some(text) = self.0.get(parameters::POLICY) else { return Ok(ModelPolicy::default()) };
        let field = || format!("parameters[\"{}\"]", parameters::POLICY);
        text.parse().or_else(|error| refuse(field(), format!("is `{text}`: {error}")))
    }

    fn own_trunk(&self) -> Checked<bool> {
        let key = parameters::OWN_TRUNK;
        match self.text(key) {
            "" | "false" => Ok(false),
            "true" => Ok(true),
            text => refuse(format!("parameters[\"{key}\"]"), format!("is `{text}`; expected true or false")),
        }
    }

    fn file(&self, key: &str) -> Checked<Option<String>> {
        let Some(name) = self.0.get(key) else { return Ok(None) };
        file_name(&format!("parameters[\"{key}\"]"), name)?;
        Ok(Some(name.clone()))
    }
}
