//! Fields of a configuration without effect here, with the reasons to tell an operator who set them.

use crate::text::wire::ModelConfig;

const WARMUP: &str = "a load ends with a batch of zeros of the largest size, before the model is ready";
const FORMAT: &str =
    "inputs are tensors with the shape that dims say; pictures are declared by the parameter `transforms`";
const OPTIMIZATION: &str = "how ONNX Runtime runs models is set for a backend, not for a model";
const CACHE: &str = "no answer is kept for a later request";

/// Parameters by which Triton's ONNX Runtime backend sets sessions of a model.
pub(crate) const OF_ONNX_RUNTIME: [&str; 11] = [
    "intra_op_thread_count",
    "inter_op_thread_count",
    "execution_mode",
    "enable_mem_arena",
    "enable_mem_pattern",
    "memory.enable_memory_arena_shrinkage",
    "session.use_device_allocator_for_initializers",
    "cudnn_conv_algo_search",
    "gpu_mem_limit",
    "arena_extend_strategy",
    "do_copy_in_default_stream",
];

/// A sentence for each such field.
pub(crate) fn notes(config: &ModelConfig) -> Vec<String> {
    let fields = [
        ("model_warmup", !config.model_warmup.is_empty(), WARMUP),
        ("input.format", config.input.iter().any(|input| input.format != 0), FORMAT),
        ("optimization", config.optimization.is_some(), OPTIMIZATION),
        ("response_cache", config.response_cache.is_some_and(|cache| cache.enable), CACHE),
    ];
    let without_effect = fields.into_iter().filter(|(_, is_there, _)| *is_there);
    let without_effect = without_effect.map(|(field, _, why)| format!("{field} makes no difference: {why}"));
    let parameters = config.parameters.iter().map(|parameter| parameter.key.as_str());
    let parameters = parameters.filter(|key| OF_ONNX_RUNTIME.contains(key));
    without_effect
        .chain(parameters.map(|key| format!("parameters[\"{key}\"] makes no difference: {OPTIMIZATION}")))
        .collect()
}
