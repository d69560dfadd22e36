//! Fields of a configuration without effect here, with the reasons to tell an operator who set them.

use crate::text::wire::ModelConfig;

const WARMUP: &str = "a load ends with a batch of zeros of the largest size, before the model is ready";
const FORMAT: &str =
    "inputs are tensors with the shape that dims say; pictures are declared by the parameter `transforms`";
const OPTIMIZATION: &str = "how ONNX Runtime runs models is set for a backend, not for a model";
const CACHE: &str = "no answer is kept for a later request";

/// A sentence for each such field.
pub(crate) fn notes(config: &ModelConfig) -> Vec<String> {
    let fields = [
        ("model_warmup", !config.model_warmup.is_empty(), WARMUP),
        ("input.format", config.input.iter().any(|input| input.format != 0), FORMAT),
        ("optimization", config.optimization.is_some(), OPTIMIZATION),
        ("response_cache", config.response_cache.is_some_and(|cache| cache.enable), CACHE),
    ];
    let said = fields.into_iter().filter(|(_, is_there, _)| *is_there);
    said.map(|(field, _, why)| format!("{field} makes no difference: {why}")).collect()
}
