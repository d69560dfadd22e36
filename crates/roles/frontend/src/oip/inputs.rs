//! Checks the inputs of a request against the signature of its model and lays them out as the payload.
//!
//! Pure: bytes in, bytes or an explanation out. Nothing a client sends may panic here.

use bytes::Bytes;
use serde_json::value::RawValue;
use symphony_protocol::inference::InferTensorContents;
use symphony_types::{DataType, TensorSpec};

use super::refusal_text::{invalid, list, shape_text, shorten, spec_dims, spec_shape};
use super::shared_regions::SharedTensor;
use super::{InferError, Limits, ModelInfo, Pictures, byte_strings, json_data, typed_data};

/// The type of encoded pictures.
const BYTES: &str = "BYTES";

/// One input as the client sent it.
#[derive(Clone, Debug)]
pub(crate) struct GivenInput<'a> {
    pub(crate) name: &'a str,
    pub(crate) datatype: &'a str,
    pub(crate) shape: &'a [i64],
    pub(crate) data: GivenData<'a>,
}

/// The elements of an input, row-major.
#[derive(Clone, Debug)]
pub(crate) enum GivenData<'a> {
    /// Little-endian, without gaps.
    Raw(Bytes),
    /// Lists of protobuf.
    Typed(&'a InferTensorContents),
    /// An array of JSON, flat or nested like the shape.
    Json(&'a RawValue),
    /// As [`Self::Raw`], in shared memory.
    Shared(SharedTensor),
}

/// Inputs that fit the signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckedInputs {
    /// From 1 to the model's `batch_max`.
    pub(crate) items: u32,
    /// Inputs in the order of the signature, without the one that is given as pictures.
    pub(crate) payload: Bytes,
    /// Encoded pictures, one for each item; none if no input is given so.
    pub(crate) pictures: Option<Pictures>,
}

/// Checks every input and lays them out in the order of the signature.
///
/// The payload may have at most `request_bytes_max` bytes, with what pictures become. A single raw input is taken over
/// without a copy.
pub(crate) fn check(
    model: &ModelInfo,
    inputs: &[GivenInput<'_>],
    limits: &Limits,
) -> Result<CheckedInputs, InferError> {
    let bytes_max = limits.request_bytes_max;
    check_names(model, inputs)?;
    let specs = &model.signature.inputs;
    let ordered: Vec<(&TensorSpec, &GivenInput<'_>)> = specs
        .iter()
        .map(|spec| {
            let given = inputs.iter().find(|input| input.name == spec.name);
            given.map(|given| (spec, given)).ok_or_else(|| {
                invalid(format!("input `{}` is missing; model `{}` expects {}", spec.name, model.name, list(specs)))
            })
        })
        .collect::<Result<_, _>>()?;

    let mut items = None;
    let mut payload_bytes = 0_usize;
    for (spec, given) in &ordered {
        let of_this = if is_pictures(model, spec, given) {
            check_picture_shape(model, spec, given)?
        } else if model.takes_only_pictures(&spec.name) {
            let got = shorten(given.datatype);
            return Err(invalid(format!(
                "input `{}` has data type {got}; expected {BYTES}, a picture each",
                spec.name
            )));
        } else {
            check_data_type(spec, given)?;
            check_shape(model, spec, given)?
        };
        if let Some((first, of_first)) = items
            && of_first != of_this
        {
            return Err(invalid(format!(
                "input `{first}` has {of_first} items and input `{}` has {of_this}; expected as many in all inputs",
                spec.name
            )));
        }
        items = items.or(Some((&spec.name, of_this)));
        payload_bytes = (of_this as usize)
            .checked_mul(spec.item_bytes())
            .and_then(|bytes| bytes.checked_add(payload_bytes))
            .filter(|&bytes| bytes <= bytes_max)
            .ok_or(InferError::TooLarge { bytes_max })?;
    }
    let items = items.map_or(0, |(_, items)| items);

    if let [(spec, given)] = ordered.as_slice()
        && let GivenData::Raw(bytes) = &given.data
        && !is_pictures(model, spec, given)
    {
        check_raw(spec, bytes, payload_bytes)?;
        return Ok(CheckedInputs { items, payload: bytes.clone(), pictures: None });
    }
    let mut pictures = None;
    // Grown on demand: a short request that claims a large shape must not cost the memory it claims.
    let mut payload = Vec::new();
    for (spec, given) in ordered {
        if is_pictures(model, spec, given) {
            let (encoded, quick) = check_pictures(spec, given, items, limits)?;
            pictures = Some(Pictures { encoded, at: payload.len(), quick });
            continue;
        }
        let expected_bytes = items as usize * spec.item_bytes();
        match &given.data {
            GivenData::Raw(bytes) => {
                check_raw(spec, bytes, expected_bytes)?;
                payload.extend_from_slice(bytes);
            }
            GivenData::Typed(contents) => {
                typed_data::decode(contents, spec.data_type, expected_bytes, &mut payload)
                    .map_err(|reason| invalid(format!("input `{}`: {reason}", spec.name)))?;
            }
            GivenData::Shared(tensor) => {
                let start = payload.len();
                tensor
                    .read(expected_bytes, &mut payload)
                    .map_err(|reason| invalid(format!("input `{}`: {reason}", spec.name)))?;
                check_raw(spec, &payload[start..], expected_bytes)?;
            }
            GivenData::Json(text) => {
                json_data::decode(text, spec.data_type, given.shape, &mut payload)
                    .map_err(|reason| invalid(format!("input `{}`: {reason}", spec.name)))?;
            }
        }
    }
    Ok(CheckedInputs { items, payload: payload.into(), pictures })
}

/// Whether an input is given as pictures, and may be.
fn is_pictures(model: &ModelInfo, spec: &TensorSpec, given: &GivenInput<'_>) -> bool {
    given.datatype == BYTES && model.transforms.image.as_ref().is_some_and(|image| image.input == spec.name)
}

/// An input in metadata: its type and its shape.
pub(crate) fn input_metadata(model: &ModelInfo, spec: &TensorSpec) -> (&'static str, Vec<i64>) {
    match model.takes_only_pictures(&spec.name) {
        true => (BYTES, vec![-1]),
        false => (spec.data_type.name(), spec_dims(spec)),
    }
}

/// The number of pictures by the shape.
fn check_picture_shape(model: &ModelInfo, spec: &TensorSpec, given: &GivenInput<'_>) -> Result<u32, InferError> {
    let (&[items] | &[items, 1]) = given.shape else {
        let got = shape_text(given.shape);
        let name = &spec.name;
        return Err(invalid(format!(
            "input `{name}` has shape {got}; expected [-1] or [-1,1] of {BYTES}, a picture each"
        )));
    };
    check_items(model, spec, items)
}

/// Cuts the pictures out of what was sent, and looks at their headers. Whether all are decoded quickly.
fn check_pictures(
    spec: &TensorSpec,
    given: &GivenInput<'_>,
    items: u32,
    limits: &Limits,
) -> Result<(Vec<Bytes>, bool), InferError> {
    let name = &spec.name;
    let pictures = match &given.data {
        GivenData::Raw(data) => byte_strings::decode(data.clone(), items as usize)
            .map_err(|reason| invalid(format!("input `{name}` of {BYTES}: {reason}")))?,
        GivenData::Typed(contents) => {
            let got = contents.bytes_contents.len();
            if got != items as usize {
                return Err(invalid(format!("input `{name}`: bytes_contents has {got} elements; expected {items}")));
            }
            contents.bytes_contents.iter().map(|picture| Bytes::copy_from_slice(picture)).collect()
        }
        GivenData::Shared(tensor) => {
            let bytes_max = limits.request_bytes_max;
            let bytes = usize::try_from(tensor.bytes).ok().filter(|&bytes| bytes <= bytes_max);
            let mut data = Vec::new();
            tensor
                .read(bytes.ok_or(InferError::TooLarge { bytes_max })?, &mut data)
                .map_err(|reason| invalid(format!("input `{name}`: {reason}")))?;
            byte_strings::decode(data.into(), items as usize)
                .map_err(|reason| invalid(format!("input `{name}` of {BYTES}: {reason}")))?
        }
        GivenData::Json(_) => {
            return Err(invalid(format!("input `{name}` of {BYTES} is in the JSON; expected binary data behind it")));
        }
    };
    let mut quick = true;
    for (index, picture) in pictures.iter().enumerate() {
        let header = symphony_images::inspect(picture, limits.images)
            .map_err(|error| invalid(format!("input `{name}`, picture {index}: {error}")))?;
        quick &= header.is_quick();
    }
    Ok((pictures, quick))
}

fn check_names(model: &ModelInfo, inputs: &[GivenInput<'_>]) -> Result<(), InferError> {
    let specs = &model.signature.inputs;
    // Bounds the quadratic search below by what the model has.
    if inputs.len() > specs.len() {
        return Err(invalid(format!(
            "got {} inputs; model `{}` expects {}: {}",
            inputs.len(),
            model.name,
            specs.len(),
            list(specs)
        )));
    }
    for (index, input) in inputs.iter().enumerate() {
        if !specs.iter().any(|spec| spec.name == input.name) {
            return Err(invalid(format!(
                "model `{}` has no input `{}`; it expects {}",
                model.name,
                shorten(input.name),
                list(specs)
            )));
        }
        if inputs[..index].iter().any(|earlier| earlier.name == input.name) {
            return Err(invalid(format!("input `{}` is given twice", input.name)));
        }
    }
    Ok(())
}

fn check_data_type(spec: &TensorSpec, given: &GivenInput<'_>) -> Result<(), InferError> {
    let expected = spec.data_type;
    if given.datatype == expected.name() {
        return Ok(());
    }
    let name = &spec.name;
    Err(match given.datatype.parse::<DataType>() {
        Ok(got) => invalid(format!("input `{name}` has data type {got}; expected {expected}")),
        Err(_) if given.datatype == BYTES => invalid(format!(
            "input `{name}` has data type BYTES, and the model declares no picture there; expected {expected}"
        )),
        Err(_) => {
            let got = shorten(given.datatype);
            invalid(format!("input `{name}` has the unknown data type `{got}`; expected {expected}"))
        }
    })
}

/// The number of items by the shape.
fn check_shape(model: &ModelInfo, spec: &TensorSpec, given: &GivenInput<'_>) -> Result<u32, InferError> {
    let fits = |(&items, of_item): (&i64, &[i64])| {
        let same = of_item.len() == spec.item_shape.len()
            && of_item.iter().zip(&spec.item_shape).all(|(&got, &expected)| got == i64::from(expected));
        same.then_some(items)
    };
    let items = given.shape.split_first().and_then(fits).ok_or_else(|| {
        let got = shape_text(given.shape);
        invalid(format!("input `{}` has shape {got}; expected {}", spec.name, spec_shape(spec)))
    })?;
    check_items(model, spec, items)
}

fn check_items(model: &ModelInfo, spec: &TensorSpec, items: i64) -> Result<u32, InferError> {
    u32::try_from(items).ok().filter(|items| (1..=model.batch_max).contains(items)).ok_or_else(|| {
        invalid(format!(
            "input `{}` has {items} items; model `{}` takes 1 to {} in one request",
            spec.name, model.name, model.batch_max
        ))
    })
}

fn check_raw(spec: &TensorSpec, bytes: &[u8], expected: usize) -> Result<(), InferError> {
    if bytes.len() != expected {
        return Err(invalid(format!(
            "input `{}` has {} bytes of data; expected {expected}, as its shape and data type say",
            spec.name,
            bytes.len()
        )));
    }
    // An executor may take any other byte for a truth value that is neither true nor false.
    if spec.data_type == DataType::Bool
        && let Some(byte) = bytes.iter().find(|&&byte| byte > 1)
    {
        return Err(invalid(format!("input `{}` of BOOL has a byte {byte}; expected 0 or 1", spec.name)));
    }
    Ok(())
}
