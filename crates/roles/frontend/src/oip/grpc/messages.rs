//! Everything that only describes: metadata, configuration, statistics, the repository's index.

use std::collections::{BTreeMap, HashMap};

use symphony_protocol::inference::model_metadata_response::TensorMetadata;
use symphony_protocol::inference::model_repository_parameter::ParameterChoice;
use symphony_protocol::inference::repository_index_response::ModelIndex;
use symphony_protocol::inference::system_shared_memory_status_response::RegionStatus;
use symphony_protocol::inference::{
    self as wire, InferBatchStatistics, InferStatistics, ModelConfig, ModelDynamicBatching, ModelInput,
    ModelMetadataResponse, ModelOutput, ModelParameter, ModelRepositoryParameter, ServerMetadataResponse,
    StatisticDuration,
};
use symphony_types::{DataType, TensorSpec};

use crate::oip::inputs::input_metadata;
use crate::oip::refusal_text::spec_dims;
use crate::oip::shared_regions::Region;
use crate::oip::{
    IMAGE_PARAMETER, IndexEntry, InferenceService, ModelInfo, ModelStatistics, Parameter, RepositoryError,
    SLO_PARAMETER, ServerInfo, Span, extensions,
};

pub(crate) fn server_metadata<S: InferenceService>(service: &S) -> ServerMetadataResponse {
    let ServerInfo { name, version, .. } = service.server();
    let extensions = extensions(service).into_iter().map(str::to_owned).collect();
    ServerMetadataResponse { name, version, extensions }
}

pub(crate) fn region(region: &Region) -> RegionStatus {
    let Region { name, key, offset, bytes, .. } = region;
    RegionStatus { name: name.clone(), key: key.clone(), offset: *offset, byte_size: *bytes }
}

/// `versions` are all there are of the model.
pub(crate) fn model_metadata(model: &ModelInfo, versions: &[u64]) -> ModelMetadataResponse {
    let tensor = |spec: &TensorSpec| TensorMetadata {
        name: spec.name.clone(),
        datatype: spec.data_type.name().to_owned(),
        shape: spec_dims(spec),
    };
    let input = |spec: &TensorSpec| {
        let (datatype, shape) = input_metadata(model, spec);
        TensorMetadata { name: spec.name.clone(), datatype: datatype.to_owned(), shape }
    };
    ModelMetadataResponse {
        name: model.name.clone(),
        versions: versions.iter().map(u64::to_string).collect(),
        platform: model.platform.clone(),
        inputs: model.signature.inputs.iter().map(input).collect(),
        outputs: model.signature.outputs.iter().map(tensor).collect(),
    }
}

pub(crate) fn model_config(model: &ModelInfo) -> ModelConfig {
    let dims = |spec: &TensorSpec| spec.item_shape.iter().map(|&dim| i64::from(dim)).collect::<Vec<_>>();
    let input = |spec: &TensorSpec| {
        let (data_type, dims) = match model.takes_only_pictures(&spec.name) {
            true => (wire::DataType::TypeString, vec![1]),
            false => (wire_type(spec.data_type), dims(spec)),
        };
        ModelInput { name: spec.name.clone(), data_type: data_type.into(), dims }
    };
    let output = |(at, spec): (usize, &TensorSpec)| ModelOutput {
        name: spec.name.clone(),
        data_type: wire_type(spec.data_type).into(),
        dims: if model.has_any_rows(at) { spec_dims(spec) } else { dims(spec) },
    };
    let parameter = |name: &str, string_value: String| (name.to_owned(), ModelParameter { string_value });
    let image = model.transforms.image.as_ref().map(|image| parameter(IMAGE_PARAMETER, image.input.clone()));
    let slo = parameter(SLO_PARAMETER, model.slo.as_millis_f64().to_string());
    ModelConfig {
        name: model.name.clone(),
        platform: model.platform.clone(),
        backend: String::new(),
        max_batch_size: i32::try_from(model.batch_max).unwrap_or(i32::MAX),
        input: model.signature.inputs.iter().map(input).collect(),
        output: model.signature.outputs.iter().enumerate().map(output).collect(),
        // Shows that the server batches; there is no preferred size and no fixed delay to name. Stages batch, pipelines
        // do not.
        dynamic_batching: model.pipeline.is_none().then(ModelDynamicBatching::default),
        parameters: image.into_iter().chain([slo]).collect(),
    }
}

pub(crate) fn statistics(of: ModelStatistics) -> wire::ModelStatistics {
    let compute = Some(duration(of.compute));
    let beside = Some(duration(of.compute.beside()));
    wire::ModelStatistics {
        name: of.model,
        version: of.version.to_string(),
        last_inference: of.last_inference_ms,
        inference_count: of.inference_count,
        execution_count: of.execution_count,
        inference_stats: Some(InferStatistics {
            success: Some(duration(of.success)),
            fail: Some(duration(of.fail)),
            queue: Some(duration(of.queue)),
            compute_input: beside,
            compute_infer: compute,
            compute_output: beside,
        }),
        batch_stats: of
            .batches
            .into_iter()
            .map(|(size, span)| InferBatchStatistics {
                batch_size: size.into(),
                compute_input: Some(duration(span.beside())),
                compute_infer: Some(duration(span)),
                compute_output: Some(duration(span.beside())),
            })
            .collect(),
    }
}

pub(crate) fn index(entry: &IndexEntry) -> ModelIndex {
    ModelIndex {
        name: entry.name.clone(),
        version: entry.version_text(),
        state: entry.state.label().to_owned(),
        reason: entry.state.reason().to_owned(),
    }
}

pub(crate) fn repository_parameters(
    parameters: HashMap<String, ModelRepositoryParameter>,
) -> Result<BTreeMap<String, Parameter>, RepositoryError> {
    let read = |(name, parameter): (String, ModelRepositoryParameter)| {
        let value = match parameter.parameter_choice {
            Some(ParameterChoice::BoolParam(value)) => Parameter::Bool(value),
            Some(ParameterChoice::Int64Param(value)) => Parameter::Int(value),
            Some(ParameterChoice::StringParam(value)) => Parameter::Text(value),
            Some(ParameterChoice::BytesParam(_)) => {
                return Some(Err(RepositoryError::Unsupported(
                    "files cannot be sent with a load: put the model where the backends find it".into(),
                )));
            }
            None => return None,
        };
        Some(Ok((name, value)))
    };
    parameters.into_iter().filter_map(read).collect()
}

const fn duration(span: Span) -> StatisticDuration {
    StatisticDuration { count: span.count, ns: span.total.get() }
}

pub(crate) const fn wire_type(data_type: DataType) -> wire::DataType {
    match data_type {
        DataType::Bool => wire::DataType::TypeBool,
        DataType::Uint8 => wire::DataType::TypeUint8,
        DataType::Uint16 => wire::DataType::TypeUint16,
        DataType::Uint32 => wire::DataType::TypeUint32,
        DataType::Uint64 => wire::DataType::TypeUint64,
        DataType::Int8 => wire::DataType::TypeInt8,
        DataType::Int16 => wire::DataType::TypeInt16,
        DataType::Int32 => wire::DataType::TypeInt32,
        DataType::Int64 => wire::DataType::TypeInt64,
        DataType::Fp16 => wire::DataType::TypeFp16,
        DataType::Fp32 => wire::DataType::TypeFp32,
        DataType::Fp64 => wire::DataType::TypeFp64,
    }
}
