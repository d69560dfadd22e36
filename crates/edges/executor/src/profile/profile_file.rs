//! The profile file: a model's signature, and its latency and memory on each kind of GPU.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use symphony_types::{LatencyProfile, Nanos, Signature, TENSOR_ITEM_BYTES_MAX, TensorSpec};

use crate::files::read_text;
use crate::model_signature::item_bytes;

/// The version of the format that is written and read.
const FORMAT: u32 = 1;
/// The largest file read. The longest tables of [`GPU_KINDS_MAX`] kinds, at 20 characters per latency, take 5 MB.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// GPU kinds in one file: more than any fleet mixes.
const GPU_KINDS_MAX: usize = 64;
/// The longest latency that is plausible for a batch, one hour: beyond it is a mistaken unit.
const LATENCY_MS_MAX: f64 = 3_600_000.0;

/// What is known of a model: what `symphony profile` writes and `symphony model load` reads.
///
/// ```toml
/// format = 1
/// model = "resnet50"
///
/// [[inputs]]
/// name = "image"
/// data_type = "FP32"
/// item_shape = [3, 224, 224]     # without the batch dimension
///
/// [[outputs]]
/// name = "logits"
/// data_type = "FP32"
/// item_shape = [1000]
///
/// [gpu.1080ti]
/// machine = "rack 7"             # where it was measured, for people
/// static_memory_bytes = 102400000
/// dynamic_memory_bytes = 52000000
/// latency_ms = [6.125, 7.178]    # of batches of 1, 2, … items
/// raised_batches = [2]           # sizes that were measured faster than a smaller one and raised to it; left out if there are none
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileFile {
    /// The model's name.
    pub model: String,
    /// What it takes and gives.
    pub signature: Signature,
    /// What is known of it on each kind of GPU, by kind.
    pub gpus: BTreeMap<String, GpuProfile>,
}

/// A model on one kind of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuProfile {
    /// ℓ(b).
    pub latency: LatencyProfile,
    /// Memory held while the model is loaded.
    pub static_memory_bytes: u64,
    /// Memory needed on top of it while the largest batch runs.
    pub dynamic_memory_bytes: u64,
    /// The machine it was measured on, in free words.
    pub machine: String,
    /// Batch sizes that were measured faster than a smaller one and raised to it, ascending: their latencies were not
    /// measured. None in a file that was written by hand.
    pub raised_batches: Vec<u32>,
}

/// Why a profile file was not read or written: names file, key, and what was expected.
#[derive(Debug, thiserror::Error)]
pub enum ProfileFileError {
    /// The file system refused.
    #[error("profile `{}` cannot be {verb}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// `read` or `written`.
        verb: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
    /// It is not TOML, lacks a key, or has one that is unknown or of the wrong type.
    #[error("profile `{}`, line {line}: {problem}", .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The parser's message, without the text of the line: its readers need not be allowed to read the file.
        problem: String,
    },
    /// A value makes no sense.
    #[error("profile `{}`, key `{key}`: {problem}", .path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Dotted path of the key in the file.
        key: String,
        /// What is wrong and what was expected.
        problem: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    format: u32,
    model: String,
    inputs: Vec<TensorForm>,
    outputs: Vec<TensorForm>,
    gpu: BTreeMap<String, GpuForm>,
}

/// [`TensorSpec`] that refuses unknown keys.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorForm {
    name: String,
    data_type: symphony_types::DataType,
    item_shape: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuForm {
    #[serde(default)]
    machine: String,
    static_memory_bytes: u64,
    dynamic_memory_bytes: u64,
    latency_ms: Vec<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    raised_batches: Vec<u32>,
}

/// A key and what is wrong with its value.
type Problem = (String, String);

impl ProfileFile {
    /// Reads and checks a profile file.
    ///
    /// # Errors
    /// If the file cannot be read or is no valid profile.
    pub fn read(path: &Path) -> Result<Self, ProfileFileError> {
        let io = |source| ProfileFileError::Io { path: path.to_owned(), verb: "read", source };
        Self::parse(path, &read_text(path, FILE_BYTES_MAX).map_err(io)?)
    }

    /// Checks the text of a profile file; `path` is for error messages.
    ///
    /// # Errors
    /// If the text is no valid profile.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ProfileFileError> {
        let form: FileForm = toml::from_str(text).map_err(|error| {
            let before = text.bytes().take(error.span().map_or(0, |span| span.start));
            let line = 1 + before.filter(|&byte| byte == b'\n').count();
            ProfileFileError::Syntax { path: path.to_owned(), line, problem: error.message().to_owned() }
        })?;
        form.check().map_err(|(key, problem)| ProfileFileError::Value { path: path.to_owned(), key, problem })
    }

    /// Writes the file, whole or not at all: beside its place first, then moved.
    ///
    /// # Errors
    /// If the profile would not be read again, or the file system refuses.
    pub fn write(&self, path: &Path) -> Result<(), ProfileFileError> {
        let text = self.to_toml();
        Self::parse(path, &text)?;
        let io = |source| ProfileFileError::Io { path: path.to_owned(), verb: "written", source };
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        fs::write(&beside, text).and_then(|()| fs::rename(&beside, path)).map_err(io)
    }

    /// The text of the file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let tensors = |specs: &[TensorSpec]| {
            let form = |s: &TensorSpec| TensorForm {
                name: s.name.clone(),
                data_type: s.data_type,
                item_shape: s.item_shape.clone(),
            };
            specs.iter().map(form).collect()
        };
        let gpu = self.gpus.iter().map(|(kind, gpu)| {
            let form = GpuForm {
                machine: gpu.machine.clone(),
                // TOML's integers are signed.
                static_memory_bytes: gpu.static_memory_bytes.min(i64::MAX as u64),
                dynamic_memory_bytes: gpu.dynamic_memory_bytes.min(i64::MAX as u64),
                latency_ms: gpu.latency.table().iter().map(|latency| latency.as_millis_f64()).collect(),
                raised_batches: gpu.raised_batches.clone(),
            };
            (kind.clone(), form)
        });
        let form = FileForm {
            format: FORMAT,
            model: self.model.clone(),
            inputs: tensors(&self.signature.inputs),
            outputs: tensors(&self.signature.outputs),
            gpu: gpu.collect(),
        };
        toml::to_string(&form).expect("the form has only keys and values that TOML can write")
    }
}

impl FileForm {
    fn check(self) -> Result<ProfileFile, Problem> {
        let problem = |key: &str, problem: String| Err((key.to_owned(), problem));
        if self.format != FORMAT {
            return problem("format", format!("is {}; expected {FORMAT}", self.format));
        }
        if self.model.trim().is_empty() {
            return problem("model", "is empty; expected the model's name".into());
        }
        if self.gpu.is_empty() || self.gpu.len() > GPU_KINDS_MAX {
            return problem("gpu", format!("has {} GPU kinds; expected 1 to {GPU_KINDS_MAX}", self.gpu.len()));
        }
        let inputs = tensors("inputs", self.inputs)?;
        let outputs = tensors("outputs", self.outputs)?;
        let gpus = self.gpu.into_iter().map(|(kind, form)| form.check(&kind).map(|gpu| (kind, gpu)));
        Ok(ProfileFile {
            model: self.model,
            signature: Signature { inputs, outputs },
            gpus: gpus.collect::<Result<_, _>>()?,
        })
    }
}

impl GpuForm {
    fn check(self, kind: &str) -> Result<GpuProfile, Problem> {
        let key = || format!("gpu.{kind}.latency_ms");
        for (batch, &latency) in (1..).zip(&self.latency_ms) {
            if !(latency > 0.0 && latency <= LATENCY_MS_MAX) {
                let expected = format!("expected milliseconds, more than 0 and at most {LATENCY_MS_MAX}");
                return Err((key(), format!("batch {batch} takes {latency}; {expected}")));
            }
        }
        let (raised, batch_max) = (&self.raised_batches, self.latency_ms.len());
        // Nothing is smaller than a batch of one item.
        let within = raised.iter().all(|&batch| batch > 1 && batch as usize <= batch_max);
        if !within || !raised.is_sorted_by(|a, b| a < b) {
            let expected = format!("expected ascending batch sizes from 2 to {batch_max}");
            return Err((format!("gpu.{kind}.raised_batches"), format!("{raised:?}; {expected}")));
        }
        let table: Vec<_> = self.latency_ms.iter().map(|&ms| Nanos::from_millis_f64(ms)).collect();
        Ok(GpuProfile {
            latency: LatencyProfile::from_table(&table).map_err(|error| (key(), error.to_string()))?,
            static_memory_bytes: self.static_memory_bytes,
            dynamic_memory_bytes: self.dynamic_memory_bytes,
            machine: self.machine,
            raised_batches: self.raised_batches,
        })
    }
}

fn tensors(key: &str, forms: Vec<TensorForm>) -> Result<Vec<TensorSpec>, Problem> {
    if forms.is_empty() {
        return Err((key.to_owned(), "is empty; expected at least one tensor".into()));
    }
    for (index, form) in forms.iter().enumerate() {
        if form.name.is_empty() || forms[..index].iter().any(|before| before.name == form.name) {
            return Err((format!("{key}.name"), format!("`{}` is empty or not the only one", form.name)));
        }
        if form.item_shape.contains(&0) || item_bytes(form.data_type, &form.item_shape).is_none() {
            let expected = format!("expected positive dimensions and at most {TENSOR_ITEM_BYTES_MAX} bytes per item");
            return Err((format!("{key}.item_shape"), format!("{:?} of `{}`; {expected}", form.item_shape, form.name)));
        }
    }
    let spec =
        |form: TensorForm| TensorSpec { name: form.name, data_type: form.data_type, item_shape: form.item_shape };
    Ok(forms.into_iter().map(spec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::default_signature;

    fn sample() -> ProfileFile {
        let gpu = |latency| GpuProfile {
            latency,
            static_memory_bytes: 21_000_000,
            dynamic_memory_bytes: 1_500_000,
            machine: "a \"quoted\" machine".into(),
            raised_batches: vec![3, 8],
        };
        let gpus = [
            ("1080ti".to_owned(), gpu(LatencyProfile::from_line(1.053, 5.072, 16).unwrap())),
            ("cpu, one core".to_owned(), gpu(LatencyProfile::from_line(0.093, 1.78, 64).unwrap())),
        ];
        ProfileFile { model: "mlp".into(), signature: default_signature(), gpus: gpus.into() }
    }

    fn refusal(from: &str, to: &str) -> String {
        let text = sample().to_toml();
        assert!(text.contains(from), "{text}");
        ProfileFile::parse(Path::new("mlp.toml"), &text.replacen(from, to, 1)).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read_again_to_the_nanosecond() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mlp.toml");
        sample().write(&path).unwrap();
        assert_eq!(ProfileFile::read(&path).unwrap(), sample());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside the file");
    }

    #[test]
    fn sizes_that_were_raised_are_told_only_where_there_are_any() {
        let mut sample = sample();
        assert_eq!(sample.to_toml().matches("raised_batches = [3, 8]").count(), 2, "{}", sample.to_toml());
        for gpu in sample.gpus.values_mut() {
            gpu.raised_batches.clear();
        }
        let text = sample.to_toml();
        assert!(!text.contains("raised_batches"), "{text}");
        assert_eq!(ProfileFile::parse(Path::new("mlp.toml"), &text).unwrap(), sample, "files without them are read");
    }

    #[test]
    fn a_table_that_is_not_monotone_is_refused_with_file_key_and_both_values() {
        let text = refusal("6.125, ", "9.5, ");
        assert!(text.starts_with("profile `mlp.toml`, key `gpu.1080ti.latency_ms`: "), "{text}");
        assert!(text.contains("batch 2 takes 7.178 ms, less than the 9.5 ms of batch 1"), "{text}");
    }

    #[test]
    fn mistakes_are_named_with_what_was_expected() {
        for (from, to, words) in [
            ("format = 1", "format = 2", "key `format`: is 2; expected 1"),
            ("model = \"mlp\"", "model = \" \"", "key `model`: is empty"),
            ("model = \"mlp\"", "modle = \"mlp\"", "unknown field `modle`"),
            ("[gpu.1080ti]", "[gpu.1080ti]\nlatency_s = 1", "unknown field `latency_s`"),
            ("6.125, ", "-1.0, ", "batch 1 takes -1; expected milliseconds, more than 0"),
            ("6.125, ", "nan, ", "batch 1 takes NaN"),
            ("\"FP32\"", "\"FLOAT\"", "unknown variant `FLOAT`"),
            ("[16]", "[0]", "[0] of `INPUT0`; expected positive dimensions"),
            ("[16]", "[65536, 65536, 65536, 65536]", "at most 1073741824 bytes per item"),
            (
                "[3, 8]",
                "[1, 8]",
                "key `gpu.1080ti.raised_batches`: [1, 8]; expected ascending batch sizes from 2 to 16",
            ),
            ("[3, 8]", "[8, 3]", "[8, 3]; expected ascending batch sizes"),
            ("[3, 8]", "[3, 17]", "[3, 17]; expected ascending batch sizes from 2 to 16"),
            ("static_memory_bytes = 21000000", "", "missing field `static_memory_bytes`"),
        ] {
            let text = refusal(from, to);
            assert!(text.contains(words) && text.contains("mlp.toml"), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_profile_is_refused_by_line_and_not_shown() {
        let text =
            ProfileFile::parse(Path::new("m.toml"), "format = 1\n0123456789abcdef secret\n").unwrap_err().to_string();
        assert!(text.starts_with("profile `m.toml`, line 2: ") && !text.contains("abcdef"), "{text}");
    }

    #[test]
    fn a_missing_file_is_an_error_that_names_it() {
        let text = ProfileFile::read(Path::new("nowhere/mlp.toml")).unwrap_err().to_string();
        assert!(text.contains("`nowhere/mlp.toml` cannot be read"), "{text}");
    }
}
