//! Reads a model's signature, refuses models that cannot be batched, and finds the tensors of a requested signature.

use ort::value::{Outlet, ValueType};
use symphony_types::{DataType, Signature, TENSOR_ITEM_BYTES_MAX, TensorSpec};

use crate::element::data_type_of;

/// The signature of a model with these inputs and outputs, and its batch size if its first dimensions are fixed; or
/// what is wrong with it.
pub(crate) fn read(inputs: &[Outlet], outputs: &[Outlet]) -> Result<(Signature, Option<u32>), String> {
    let mut batch = None;
    let mut same_batch = |spec: TensorSpec, own: Option<u32>| {
        let first = *batch.get_or_insert(own);
        let words = |batch: Option<u32>| batch.map_or("a dynamic one".to_owned(), |batch| batch.to_string());
        if first == own {
            return Ok(spec);
        }
        let (own, first) = (words(own), words(first));
        Err(format!("has the first dimension {own}, and others have {first}; expected one batch for all"))
    };
    let mut specs = |kind: &str, outlets: &[Outlet]| {
        if outlets.is_empty() {
            return Err(format!("the model has no {kind}; expected at least one"));
        }
        outlets
            .iter()
            .map(|outlet| {
                let read = tensor(outlet.name(), outlet.dtype()).and_then(|(spec, batch)| same_batch(spec, batch));
                read.map_err(|problem| format!("{kind} `{}` {problem}", outlet.name()))
            })
            .collect::<Result<_, _>>()
    };
    let signature = Signature { inputs: specs("input", inputs)?, outputs: specs("output", outputs)? };
    Ok((signature, batch.flatten()))
}

/// Where the model has each tensor of `expected`: the same names and types, shapes of as many elements. Every input
/// that the model has must be among them.
pub(crate) fn places(kind: &str, expected: &[TensorSpec], has: &[TensorSpec]) -> Result<Vec<usize>, String> {
    if kind == "input"
        && let Some(spec) = has.iter().find(|spec| !expected.iter().any(|expected| expected.name == spec.name))
    {
        let expected: Vec<_> = expected.iter().map(|expected| expected.name.as_str()).collect();
        let (name, expected) = (&spec.name, expected.join(", "));
        return Err(format!(
            "has an input `{name}`, which its profile or configuration does not know; expected {expected}"
        ));
    }
    let place = |wanted: &TensorSpec| {
        let Some(place) = has.iter().position(|spec| spec.name == wanted.name) else {
            let has: Vec<_> = has.iter().map(|spec| spec.name.as_str()).collect();
            return Err(format!("has no {kind} `{}`, but {}", wanted.name, has.join(", ")));
        };
        let spec = &has[place];
        if (spec.data_type, spec.item_bytes()) != (wanted.data_type, wanted.item_bytes()) {
            return Err(format!(
                "has {kind} `{}` as {} {:?}; asked for was {} {:?}",
                wanted.name, spec.data_type, spec.item_shape, wanted.data_type, wanted.item_shape
            ));
        }
        Ok(place)
    };
    expected.iter().map(place).collect()
}

/// Bytes of one item; `None` if they exceed [`TENSOR_ITEM_BYTES_MAX`]. [`TensorSpec::item_bytes`] trusts its shape.
pub(crate) fn item_bytes(data_type: DataType, item_shape: &[u32]) -> Option<usize> {
    let grow =
        |bytes: usize, &dimension: &u32| bytes.checked_mul(dimension as usize).filter(|&b| b <= TENSOR_ITEM_BYTES_MAX);
    item_shape.iter().try_fold(data_type.size_bytes(), grow)
}

/// One tensor without its first dimension, and that if it is fixed.
fn tensor(name: &str, value_type: &ValueType) -> Result<(TensorSpec, Option<u32>), String> {
    let ValueType::Tensor { ty, shape, .. } = value_type else {
        return Err(format!("is a {value_type}; expected a tensor"));
    };
    let data_type = data_type_of(*ty).ok_or_else(|| {
        let known: Vec<_> = DataType::ALL.iter().map(|t| t.name()).collect();
        format!("has elements of type {ty}; expected one of {}", known.join(", "))
    })?;
    let Some((&batch, item)) = shape.split_first() else {
        return Err("has no dimension; expected a first one, the batch".into());
    };
    let batch = match (batch, u32::try_from(batch)) {
        (-1, _) => None,
        (_, Ok(fixed @ 1..)) => Some(fixed),
        _ => return Err(format!("has a first dimension of {batch}; expected a dynamic one, or a size from 1")),
    };
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
        return Err(format!("has items of more than {TENSOR_ITEM_BYTES_MAX} bytes"));
    }
    Ok((TensorSpec { name: name.to_owned(), data_type, item_shape }, batch))
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
        let (spec, batch) = tensor("x", &tensor_type(TensorElementType::Float32, &[-1, 3, 8])).unwrap();
        assert_eq!(batch, None);
        assert_eq!(spec, TensorSpec { name: "x".into(), data_type: DataType::Fp32, item_shape: vec![3, 8] });
        let (spec, batch) = tensor("x", &tensor_type(TensorElementType::Int64, &[4])).unwrap();
        assert_eq!((spec.item_bytes(), batch), (8, Some(4)), "a fixed first dimension is the batch");
    }

    #[test]
    fn tensors_are_found_by_name_whatever_their_order_and_shape() {
        let spec = |name: &str, item_shape: &[u32]| TensorSpec {
            name: name.into(),
            data_type: DataType::Fp32,
            item_shape: item_shape.to_vec(),
        };
        let has = [spec("a", &[2, 3]), spec("b", &[4])];
        assert_eq!(places("input", &[spec("b", &[4]), spec("a", &[6])], &has), Ok(vec![1, 0]));
        assert_eq!(places("output", &[spec("b", &[2, 2])], &has), Ok(vec![1]));
        let refusal = |kind, expected: &[TensorSpec]| places(kind, expected, &has).unwrap_err();
        assert_eq!(
            refusal("input", &[spec("a", &[6])]),
            "has an input `b`, which its profile or configuration does not know; expected a"
        );
        assert_eq!(refusal("output", &[spec("c", &[6])]), "has no output `c`, but a, b");
        assert_eq!(refusal("output", &[spec("a", &[5])]), "has output `a` as FP32 [2, 3]; asked for was FP32 [5]");
    }

    #[test]
    fn what_cannot_be_batched_is_refused_with_the_reason() {
        let float = |shape: &[i64]| tensor("x", &tensor_type(TensorElementType::Float32, shape)).unwrap_err();
        assert!(float(&[]).starts_with("has no dimension"));
        assert!(float(&[0, 3]).starts_with("has a first dimension of 0; expected a dynamic one"));
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
