//! Reads a model's signature and refuses models that cannot be batched.

use ort::value::{Outlet, ValueType};
use symphony_types::{DataType, Signature, TensorSpec};

use crate::element::data_type_of;

/// The most bytes one item of one tensor may have. Larger than any image or sequence that is served one by one, and
/// small enough that a batch of [`symphony_types::PROFILE_BATCH_MAX`] of them can still be counted in a `usize`.
pub(crate) const ITEM_BYTES_MAX: usize = 1 << 30;

/// The signature of a model with these inputs and outputs, or what is wrong with it.
pub(crate) fn read(inputs: &[Outlet], outputs: &[Outlet]) -> Result<Signature, String> {
    let specs = |kind: &str, outlets: &[Outlet]| {
        if outlets.is_empty() {
            return Err(format!("the model has no {kind}; expected at least one"));
        }
        outlets
            .iter()
            .map(|outlet| {
                tensor(outlet.name(), outlet.dtype()).map_err(|problem| format!("{kind} `{}` {problem}", outlet.name()))
            })
            .collect()
    };
    Ok(Signature { inputs: specs("input", inputs)?, outputs: specs("output", outputs)? })
}

/// Bytes of one item; `None` if they exceed [`ITEM_BYTES_MAX`]. [`TensorSpec::item_bytes`] trusts its shape.
pub(crate) fn item_bytes(data_type: DataType, item_shape: &[u32]) -> Option<usize> {
    let grow = |bytes: usize, &dimension: &u32| bytes.checked_mul(dimension as usize).filter(|&b| b <= ITEM_BYTES_MAX);
    item_shape.iter().try_fold(data_type.size_bytes(), grow)
}

fn tensor(name: &str, value_type: &ValueType) -> Result<TensorSpec, String> {
    let ValueType::Tensor { ty, shape, .. } = value_type else {
        return Err(format!("is a {value_type}; expected a tensor"));
    };
    let data_type = data_type_of(*ty).ok_or_else(|| {
        let known: Vec<_> = DataType::ALL.iter().filter(|&&t| t != DataType::Fp16).map(|t| t.name()).collect();
        format!("has elements of type {ty}; expected one of {}", known.join(", "))
    })?;
    let Some((&batch, item)) = shape.split_first() else {
        return Err("has no dimension; expected a dynamic first one, the batch".into());
    };
    if batch != -1 {
        return Err(format!(
            "has a first dimension of {batch}; expected a dynamic one (a name such as \"N\"), since batches of all sizes \
             run on one model: export the model with a dynamic batch dimension"
        ));
    }
    let mut item_shape = Vec::with_capacity(item.len());
    for (index, &dimension) in (1..).zip(item) {
        let Ok(fixed @ 1..) = u32::try_from(dimension) else {
            let problem = if dimension == -1 { "is dynamic".to_owned() } else { format!("is {dimension}") };
            return Err(format!(
                "has a dimension {index} that {problem}; expected a fixed size of at least 1, since only the first \
                 dimension may vary"
            ));
        };
        item_shape.push(fixed);
    }
    if item_bytes(data_type, &item_shape).is_none() {
        return Err(format!("has items of more than {ITEM_BYTES_MAX} bytes"));
    }
    Ok(TensorSpec { name: name.to_owned(), data_type, item_shape })
}

#[cfg(test)]
mod tests {
    use ort::value::{Shape, SymbolicDimensions, TensorElementType};

    use super::*;

    fn tensor_type(ty: TensorElementType, shape: &[i64]) -> ValueType {
        let dimension_symbols = SymbolicDimensions::new(shape.iter().map(|_| String::new()));
        ValueType::Tensor { ty, shape: Shape::new(shape.iter().copied()), dimension_symbols }
    }

    #[test]
    fn a_dynamic_first_dimension_and_fixed_others_make_a_signature() {
        let spec = tensor("x", &tensor_type(TensorElementType::Float32, &[-1, 3, 8])).unwrap();
        assert_eq!(spec, TensorSpec { name: "x".into(), data_type: DataType::Fp32, item_shape: vec![3, 8] });
        let spec = tensor("x", &tensor_type(TensorElementType::Int64, &[-1])).unwrap();
        assert_eq!(spec.item_bytes(), 8);
    }

    #[test]
    fn what_cannot_be_batched_is_refused_with_the_reason() {
        let float = |shape: &[i64]| tensor("x", &tensor_type(TensorElementType::Float32, shape)).unwrap_err();
        assert!(float(&[]).starts_with("has no dimension"));
        assert!(float(&[1, 3]).starts_with("has a first dimension of 1; expected a dynamic one"));
        assert!(float(&[-1, 3, -1]).starts_with("has a dimension 2 that is dynamic; expected a fixed size"));
        assert!(float(&[-1, 0]).starts_with("has a dimension 1 that is 0"));
        assert!(float(&[-1, 1 << 30, 1 << 30]).starts_with("has items of more than"));
        assert!(float(&[-1, 1 << 40]).starts_with("has a dimension 1 that is 1099511627776"));
        let text = tensor("x", &tensor_type(TensorElementType::String, &[-1, 1])).unwrap_err();
        assert!(text.contains("expected one of BOOL, UINT8"), "{text}");
        let sequence = ValueType::Sequence(Box::new(tensor_type(TensorElementType::Float32, &[-1])));
        assert!(tensor("x", &sequence).unwrap_err().ends_with("expected a tensor"));
    }
}
