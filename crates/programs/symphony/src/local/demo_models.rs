//! The models of the demo: digits, a detector of them and a wide MLP on the CPU, ResNet-50's profile on emulated GPUs;
//! and a pipeline of the first two.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use symphony_config::ExecutorKind;
use symphony_executor::profile::MeasureOptions;
use symphony_executor::{OnnxOptions, canvas, default_signature, digits};
use symphony_pipeline::PipelineDeclaration;
use symphony_protocol::view::{KindProfile, ModelSource, ModelSpec};
use symphony_repository::{CONFIG_FILE, PIPELINE_FILE, parse_pipeline, parse_transforms};
use symphony_types::{LatencyProfile, Nanos, RequestValue, Transforms, VersionedName};
use symphony_zoo::Architecture;

use super::layout::Layout;
use crate::tools::profile::measure_onnx;
use crate::tools::requested_model::kind_profiles;

/// The classifier of handwritten digits: answers are right or wrong.
pub(crate) const DIGITS: &str = "digits";
/// The detector of handwritten digits on a canvas.
const DETECT: &str = "detect";
/// Finds the digits on a canvas, and recognises each: of the sample repository.
pub(crate) const CANVAS: &str = "canvas";
const CANVAS_CONFIG: &str = include_str!("../../../../../deploy/models/repository/canvas/config.pbtxt");
const CANVAS_EXTRAS: &str = include_str!("../../../../../deploy/models/repository/canvas/pipeline.toml");
/// A wide MLP whose weights exceed the cache, so that batching pays on a CPU.
pub(crate) const MLP: &str = "mlp";
/// ResNet-50 with the profile of the Symphony paper, Table 4 (α 1.053 ms, β 5.072 ms), on emulated GPUs.
pub(crate) const RESNET: &str = "resnet50";

/// SLOs. The paper's 25 ms assume dedicated machines; here seven processes and the load share a few cores with other
/// programs, and a pause of the machine must not look like a scheduler's mistake.
const CPU_SLO: Nanos = Nanos::from_millis(500);
const EMULATED_SLO: Nanos = Nanos::from_millis(300);
/// Largest batch measured.
const CPU_BATCH_MAX: u32 = 16;
const EMULATED_BATCH_MAX: u32 = 64;

/// Writes the model files, measures their profiles, and describes what to load on the layout's backends.
pub(crate) fn prepare(layout: &Layout, dir: &Path) -> anyhow::Result<Vec<ModelSpec>> {
    let mut specs = Vec::new();
    if let Some(cpu) = layout.backends.iter().find(|b| b.executor == ExecutorKind::OrtCpu) {
        let models = dir.join("models");
        std::fs::create_dir_all(&models).with_context(|| format!("cannot make {}", models.display()))?;
        let (digits_path, detect_path) = (models.join("digits.onnx"), models.join("detect.onnx"));
        for (path, model) in [(&digits_path, digits::MODEL), (&detect_path, canvas::DETECTOR)] {
            std::fs::write(path, model).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let mlp_path = models.join("mlp.onnx");
        Architecture::by_name("mlp").context("the zoo has an mlp")?.build(1)?.write(&mlp_path)?;
        let kind = &cpu.gpus.first().context("a backend has GPUs")?.kind;
        for (name, path) in [(DIGITS, &digits_path), (DETECT, &detect_path), (MLP, &mlp_path)] {
            let options = OnnxOptions { batch_max: CPU_BATCH_MAX, ..OnnxOptions::default() };
            let measure = MeasureOptions { batch_max: CPU_BATCH_MAX, ..MeasureOptions::default() };
            let (profile, _) = measure_onnx(path, name, kind, cpu.onnxruntime.as_deref(), &options, &measure)?;
            profile.write(&path.with_extension("profile.toml"))?;
            // The digits may be sent as pictures, too, and canvases are.
            let transforms = match name {
                DIGITS => Some(digits::TRANSFORMS),
                DETECT => Some(canvas::TRANSFORMS),
                _ => None,
            };
            let transforms = match transforms {
                Some(text) => parse_transforms(Path::new("transforms.toml"), text, &profile.signature)?,
                None => Transforms::default(),
            };
            specs.push(ModelSpec {
                name: name.to_owned(),
                subcluster: cpu.subcluster.clone(),
                slo: CPU_SLO,
                source: ModelSource::Onnx(path.to_string_lossy().into_owned()),
                signature: profile.signature.clone(),
                transforms,
                profiles: kind_profiles(&profile),
                policy: Default::default(),
                value: RequestValue::ONE,
            });
        }
    }
    if let Some(emulated) = layout.backends.iter().find(|b| b.executor == ExecutorKind::Emulated) {
        let kind = emulated.gpus.first().context("a backend has GPUs")?.kind.clone();
        let latency = LatencyProfile::from_line(1.053, 5.072, EMULATED_BATCH_MAX)?;
        // Static and dynamic memory from the Symphony paper, Table 1.
        let profile = KindProfile { latency, static_memory_bytes: 170 << 20, dynamic_memory_bytes: 2798 << 20 };
        specs.push(ModelSpec {
            name: RESNET.to_owned(),
            subcluster: emulated.subcluster.clone(),
            slo: EMULATED_SLO,
            source: ModelSource::Emulated,
            signature: default_signature(),
            transforms: Transforms::default(),
            profiles: [(kind, profile)].into(),
            policy: Default::default(),
            value: RequestValue::ONE,
        });
    }
    Ok(specs)
}

/// The pipeline, if the models of its stages are among these.
pub(crate) fn pipeline(models: &[ModelSpec]) -> anyhow::Result<Option<PipelineDeclaration>> {
    if ![DETECT, DIGITS].iter().all(|stage| models.iter().any(|model| model.name == *stage)) {
        return Ok(None);
    }
    let (config, extras) = ((Path::new(CONFIG_FILE), CANVAS_CONFIG), (Path::new(PIPELINE_FILE), CANVAS_EXTRAS));
    let there = BTreeSet::from([VersionedName::UNVERSIONED]);
    Ok(Some(parse_pipeline(CANVAS, config, extras, &there)?.declaration))
}
