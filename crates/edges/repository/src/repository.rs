//! A folder of models, laid out as Triton's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use symphony_executor::profile::ProfileFile;
use symphony_executor::{check_within, open_regular, read_text};
use symphony_protocol::view::{KindProfile, ModelSource, ModelSpec};
use symphony_types::{LatencyProfile, Nanos, TensorSpec, Transforms, VersionedName, parse_version};

use crate::labels::read_labels;
use crate::model_config::{Device, Engine, ModelConfig};
use crate::pipeline::{RepositoryPipeline, is_ensemble, parse_pipeline};
use crate::{CONFIG_FILE, PIPELINE_FILE, RepositoryError, read_transforms};

/// The largest configuration accepted: written by hand, they have some kilobytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Models of one repository that are listed: as many as a cluster holds.
const MODELS_MAX: usize = 4096;
/// The most entries of one folder that are read.
const ENTRIES_MAX: usize = 4 * MODELS_MAX;

/// A folder of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    dir: PathBuf,
}

/// A model of a repository, as a cluster can be asked to load it.
#[derive(Clone, Debug, PartialEq)]
pub struct RepositoryModel {
    /// Name of its folder, by which clients ask for it.
    pub name: String,
    /// The served versions, at least one. Their names in the cluster are `NAME@VERSION`.
    pub versions: BTreeMap<u64, ModelSpec>,
    /// The required device.
    pub device: Device,
    /// Fields of its configuration that have no effect here, as text.
    pub notes: Vec<String>,
}

/// What a folder of a repository is.
#[derive(Clone, Debug, PartialEq)]
pub enum RepositoryEntry {
    /// A model, in each of its served versions.
    Model(RepositoryModel),
    /// A pipeline of models.
    Pipeline(RepositoryPipeline),
}

impl Repository {
    /// The repository in `dir`.
    ///
    /// # Errors
    /// If there is no such folder.
    pub fn open(dir: &Path) -> Result<Self, RepositoryError> {
        let io = |source| RepositoryError::Io { path: dir.to_owned(), source };
        if !fs::metadata(dir).map_err(io)?.is_dir() {
            return Err(io(io::Error::new(
                io::ErrorKind::NotADirectory,
                "expected a folder with a folder for each model",
            )));
        }
        Ok(Self { dir: dir.to_owned() })
    }

    /// The names of all models, sorted: of every folder in it that is not hidden, whether it can be loaded or not.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn names(&self) -> Result<Vec<String>, RepositoryError> {
        let folders = folders(&self.dir)?;
        let mut names: Vec<_> = folders.into_iter().filter(|name| VersionedName::is_base_name(name)).collect();
        names.sort_unstable();
        names.truncate(MODELS_MAX);
        Ok(names)
    }

    /// What the folder of that name is, by its platform: a model if its configuration cannot be read.
    ///
    /// # Errors
    /// As [`model`](Self::model) and [`pipeline`](Self::pipeline).
    pub fn entry(&self, name: &str) -> Result<RepositoryEntry, RepositoryError> {
        let folder = self.folder(name)?;
        match is_ensemble(&folder.text) {
            true => self.pipeline_in(name, &folder).map(RepositoryEntry::Pipeline),
            false => self.model_in(name, &folder).map(RepositoryEntry::Model),
        }
    }

    /// One model, checked as far as that can be done without loading it.
    ///
    /// # Errors
    /// If there is none of that name, or it cannot be served as its configuration says.
    pub fn model(&self, name: &str) -> Result<RepositoryModel, RepositoryError> {
        self.model_in(name, &self.folder(name)?)
    }

    fn model_in(&self, name: &str, Folder { dir, path, text }: &Folder) -> Result<RepositoryModel, RepositoryError> {
        let config = ModelConfig::parse(path, name, text)?;
        let there = folders(dir)?.iter().filter_map(|folder| parse_version(folder)).collect::<BTreeSet<_>>();
        let refuse = |problem| RepositoryError::Versions { dir: dir.clone(), name: name.to_owned(), problem };
        let chosen = config.versions.choose(&there).map_err(refuse)?;
        let spec = |version| Ok((version, spec(&self.dir, name, version, &config)?));
        let versions = chosen.into_iter().map(spec).collect::<Result<_, RepositoryError>>()?;
        Ok(RepositoryModel { name: name.to_owned(), versions, device: config.device, notes: config.notes })
    }

    /// One pipeline, checked as far as that can be done without the models of its steps: its newest version that is to
    /// be served, 1 if it has no folders of versions.
    ///
    /// # Errors
    /// If there is none of that name, or it is none that can be run.
    pub fn pipeline(&self, name: &str) -> Result<RepositoryPipeline, RepositoryError> {
        self.pipeline_in(name, &self.folder(name)?)
    }

    fn pipeline_in(
        &self,
        name: &str,
        Folder { dir, path, text }: &Folder,
    ) -> Result<RepositoryPipeline, RepositoryError> {
        let extras_path = within(&self.dir, dir.join(PIPELINE_FILE))?;
        let extras = match read_text(&extras_path, CONFIG_BYTES_MAX) {
            Ok(extras) => extras,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(RepositoryError::Io { path: extras_path, source }),
        };
        let there = folders(dir)?.iter().filter_map(|folder| parse_version(folder)).collect::<BTreeSet<_>>();
        // Git keeps no empty folders, and a pipeline has no files of its own.
        let there = if there.is_empty() { BTreeSet::from([1]) } else { there };
        parse_pipeline(name, (path, text), (&extras_path, &extras), &there)
    }

    /// The folder of that name, and the text of its configuration.
    fn folder(&self, name: &str) -> Result<Folder, RepositoryError> {
        let missing = |problem: &str| {
            let (dir, name) = (self.dir.clone(), name.to_owned());
            RepositoryError::NoModel { dir, name, problem: problem.to_owned() }
        };
        if !VersionedName::is_base_name(name) {
            return Err(missing("expected the name of a folder, without a version"));
        }
        let dir = self.dir.join(name);
        if !dir.is_dir() {
            return Err(missing("it has no folder of that name"));
        }
        let path = within(&self.dir, dir.join(CONFIG_FILE))?;
        let text = read_text(&path, CONFIG_BYTES_MAX);
        let text = text.map_err(|source| RepositoryError::Io { path: path.clone(), source })?;
        Ok(Folder { dir, path, text })
    }
}

/// A folder with a configuration.
struct Folder {
    dir: PathBuf,
    path: PathBuf,
    text: String,
}

/// What a cluster is asked for to serve one version.
fn spec(root: &Path, name: &str, version: u64, config: &ModelConfig) -> Result<ModelSpec, RepositoryError> {
    let (dir, folder) = (root.join(name), version.to_string());
    let source = match &config.engine {
        Engine::Emulated => ModelSource::Emulated,
        Engine::Onnx { file } => {
            let path = within(root, dir.join(&folder).join(file))?;
            // Backends read it themselves; this check reports an error early.
            open_regular(&path).map_err(|source| RepositoryError::Io { path, source })?;
            // Where a backend finds it is the backend's to know: the path begins at the repository.
            let path = format!("{name}/{folder}/{file}");
            if config.own_trunk { ModelSource::OnnxUnshared(path) } else { ModelSource::Onnx(path) }
        }
    };
    // A version's own, or else the model's.
    let beside = |file: &str| {
        let own = dir.join(&folder).join(file);
        within(root, if own.exists() { own } else { dir.join(file) })
    };
    let path = beside(&config.profile)?;
    let profile = ProfileFile::read(&path)?;
    let signature = match &config.signature {
        None => profile.signature.clone(),
        Some(signature) => {
            same_tensors("input", &signature.inputs, &profile.signature.inputs)
                .and_then(|()| same_tensors("output", &signature.outputs, &profile.signature.outputs))
                .map_err(|problem| RepositoryError::OtherProfile { path: path.clone(), problem })?;
            signature.clone()
        }
    };
    let mut transforms = match &config.transforms {
        Some(file) => read_transforms(&beside(file)?, &signature)?,
        None => Transforms::default(),
    };
    for (output, file) in &config.label_files {
        let path = beside(file)?;
        let labels = read_labels(&path)?;
        if transforms.labels.insert(output.clone(), labels).is_some() {
            let problem =
                format!("of `{output}` is `{file}`, and its transforms have labels of it too; expected one of both");
            let field = "output.label_filename".to_owned();
            return Err(RepositoryError::Field { path: dir.join(CONFIG_FILE), field, problem });
        }
        // After each, so that the file is named in which there are too many or too few.
        transforms.check(&signature).map_err(|problem| RepositoryError::Text { path, line: 0, problem })?;
    }
    let kinds = profile.gpus.iter().map(|(kind, gpu)| {
        let profile = KindProfile {
            latency: up_to(&gpu.latency, config.batch_max),
            static_memory_bytes: gpu.static_memory_bytes,
            dynamic_memory_bytes: gpu.dynamic_memory_bytes,
        };
        (kind.clone(), profile)
    });
    let profiles: BTreeMap<_, _> = kinds.collect();
    let fastest = profiles.values().map(|profile| profile.latency.latency(1)).min().unwrap_or(Nanos::ZERO);
    if config.slo < fastest {
        let (slo, alone) = (config.slo.as_millis_f64(), fastest.as_millis_f64());
        let problem = format!("one item alone takes {alone} ms; expected less than the slo_ms of {CONFIG_FILE}, {slo}");
        return Err(RepositoryError::OtherProfile { path, problem });
    }
    Ok(ModelSpec {
        name: VersionedName { name, version }.loaded_as(),
        subcluster: config.subcluster.clone(),
        slo: config.slo,
        source,
        signature,
        transforms,
        profiles,
        policy: config.policy,
        value: config.value,
    })
}

/// A path within the repository. Files elsewhere are refused: users that may write here need not be allowed to read
/// them.
fn within(root: &Path, path: PathBuf) -> Result<PathBuf, RepositoryError> {
    match check_within(root, &path) {
        Ok(()) => Ok(path),
        // The later read reports it.
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(path),
        Err(source) => Err(RepositoryError::Io { path, source }),
    }
}

/// The profile without batches of more than `batch_max` items.
fn up_to(latency: &LatencyProfile, batch_max: u32) -> LatencyProfile {
    let table = latency.table();
    let kept = &table[..table.len().min(batch_max as usize)];
    LatencyProfile::from_table(kept).expect("a part of a profile from its beginning is a profile")
}

/// Whether the profiled model has the tensors of the configuration. The configuration sets the order; it may omit
/// outputs, and use other shapes with as many elements.
fn same_tensors(what: &str, declared: &[TensorSpec], profiled: &[TensorSpec]) -> Result<(), String> {
    for spec in declared {
        let Some(known) = profiled.iter().find(|known| known.name == spec.name) else {
            let known: Vec<_> = profiled.iter().map(|known| known.name.as_str()).collect();
            return Err(format!("has no {what} `{}`, which {CONFIG_FILE} names, but {}", spec.name, known.join(", ")));
        };
        if (known.data_type, known.item_bytes()) != (spec.data_type, spec.item_bytes()) {
            let (name, has, says) = (&spec.name, known, spec);
            return Err(format!(
                "has {what} `{name}` as {} {:?}, {CONFIG_FILE} as {} {:?}; expected the same type and number of elements",
                has.data_type, has.item_shape, says.data_type, says.item_shape
            ));
        }
    }
    match profiled.iter().find(|known| what == "input" && !declared.iter().any(|spec| spec.name == known.name)) {
        Some(unsaid) => Err(format!("has an {what} `{}`, which {CONFIG_FILE} does not name", unsaid.name)),
        None => Ok(()),
    }
}

/// The names of the folders in a folder; links to folders count.
fn folders(dir: &Path) -> Result<Vec<String>, RepositoryError> {
    let io = |source| RepositoryError::Io { path: dir.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(io)?.take(ENTRIES_MAX) {
        let entry = entry.map_err(io)?;
        let is_folder = fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir());
        if let (true, Ok(name)) = (is_folder, entry.file_name().into_string()) {
            names.push(name);
        }
    }
    Ok(names)
}
