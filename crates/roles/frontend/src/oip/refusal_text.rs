//! The texts of refusals of inputs and outputs.

use symphony_types::TensorSpec;

use super::InferError;

/// Names, types and shapes of tensors, for messages.
pub(crate) fn list(specs: &[TensorSpec]) -> String {
    let words: Vec<String> =
        specs.iter().map(|spec| format!("`{}` {}{}", spec.name, spec.data_type, spec_shape(spec))).collect();
    words.join(", ")
}

/// The shape with -1 for the dimension that counts items, as metadata shows it.
pub(crate) fn spec_dims(spec: &TensorSpec) -> Vec<i64> {
    std::iter::once(-1).chain(spec.item_shape.iter().map(|&dim| i64::from(dim))).collect()
}

pub(crate) fn spec_shape(spec: &TensorSpec) -> String {
    shape_text(&spec_dims(spec))
}

// A message must not carry back whatever a client made up.
const SHAPE_SHOWN_DIMS: usize = 8;
const NAME_SHOWN_CHARS: usize = 64;

pub(crate) fn shape_text(shape: &[i64]) -> String {
    let mut words: Vec<String> = shape.iter().take(SHAPE_SHOWN_DIMS).map(i64::to_string).collect();
    if shape.len() > SHAPE_SHOWN_DIMS {
        words.push(format!("… {} in all", shape.len()));
    }
    format!("[{}]", words.join(","))
}

/// At most [`NAME_SHOWN_CHARS`] characters of what a client called something.
pub(crate) fn shorten(name: &str) -> String {
    let mut shown: String = name.chars().take(NAME_SHOWN_CHARS).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown
}

/// A request that the protocol or the signature forbids.
pub(crate) fn invalid(message: String) -> InferError {
    InferError::InvalidRequest(message)
}
