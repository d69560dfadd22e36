//! Types of values: what of them counts, and whether the batch may come first.

use prost::Message as _;

use super::sum::{Sum, ValueHash};
use crate::onnx::tensor_shape_proto::dimension;
use crate::onnx::{TypeProto, type_proto};

/// The type, with its fixed dimensions. The name of a free dimension does not count.
pub(super) fn of_type(value_type: Option<&TypeProto>) -> ValueHash {
    let Some(value_type) = value_type else { return Sum::of("no type").hash() };
    let Some(tensor) = tensor_type(value_type) else {
        return Sum::of("type").bytes(&value_type.encode_to_vec()).hash();
    };
    let sum = Sum::of("tensor type").int(tensor.elem_type().into());
    match &tensor.shape {
        None => sum.int(0),
        Some(shape) => {
            let dims = shape.dim.iter().map(|dim| fixed(dim.value.as_ref()));
            let dims: Vec<i64> = dims.flat_map(|dim| [i64::from(dim.is_some()), dim.unwrap_or_default()]).collect();
            sum.int(1).ints(&dims)
        }
    }
    .hash()
}

/// The type as that of a tensor, if it is one.
fn tensor_type(value_type: &TypeProto) -> Option<&type_proto::Tensor> {
    match &value_type.value {
        Some(type_proto::Value::TensorType(tensor)) => Some(tensor),
        _ => None,
    }
}

/// Whether the first dimension may be the batch, as far as the model states: a tensor whose first dimension is not
/// fixed, or whose shape is not given. Only a run shows whether it is the batch indeed.
pub(crate) fn batch_may_come_first(value_type: Option<&TypeProto>) -> bool {
    let Some(value_type) = value_type.filter(|value_type| value_type.value.is_some()) else { return true };
    let Some(tensor) = tensor_type(value_type) else { return false };
    let Some(shape) = &tensor.shape else { return true };
    // Exporters write a negative number for a dimension that they do not know, too.
    shape.dim.first().is_some_and(|dim| fixed(dim.value.as_ref()).is_none_or(|size| size < 0))
}

fn fixed(dim: Option<&dimension::Value>) -> Option<i64> {
    match dim {
        Some(&dimension::Value::DimValue(size)) => Some(size),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::TensorShapeProto;
    use crate::onnx::tensor_shape_proto::Dimension;

    fn tensor(elem_type: i32, dims: &[dimension::Value]) -> TypeProto {
        let dim = dims.iter().map(|value| Dimension { value: Some(value.clone()), denotation: None }).collect();
        let shape = Some(TensorShapeProto { dim });
        let tensor = type_proto::Tensor { elem_type: Some(elem_type), shape };
        TypeProto { value: Some(type_proto::Value::TensorType(tensor)), denotation: None }
    }

    fn size(size: i64) -> dimension::Value {
        dimension::Value::DimValue(size)
    }

    fn free(name: &str) -> dimension::Value {
        dimension::Value::DimParam(name.to_owned())
    }

    #[test]
    fn sizes_count_and_the_names_of_free_dimensions_do_not() {
        let hash = |dims: &[dimension::Value]| of_type(Some(&tensor(1, dims)));
        assert_eq!(hash(&[free("N"), size(4)]), hash(&[free("batch"), size(4)]));
        assert_ne!(hash(&[free("N"), size(4)]), hash(&[free("N"), size(5)]));
        assert_ne!(hash(&[free("N"), size(4)]), hash(&[size(0), size(4)]));
        assert_ne!(hash(&[]), of_type(None));
        assert_ne!(hash(&[size(4)]), of_type(Some(&tensor(7, &[size(4)]))));
    }

    #[test]
    fn the_batch_comes_first_unless_the_model_says_otherwise() {
        assert!(batch_may_come_first(None));
        assert!(batch_may_come_first(Some(&TypeProto::default())));
        assert!(batch_may_come_first(Some(&tensor(1, &[free("N"), size(4)]))));
        assert!(batch_may_come_first(Some(&tensor(1, &[size(-1)]))));
        assert!(!batch_may_come_first(Some(&tensor(1, &[size(8), free("N")]))));
        assert!(!batch_may_come_first(Some(&tensor(1, &[]))), "a single number has no batch");
        let opaque = type_proto::Value::OpaqueType(type_proto::Opaque::default());
        assert!(!batch_may_come_first(Some(&TypeProto { value: Some(opaque), denotation: None })));
    }
}
