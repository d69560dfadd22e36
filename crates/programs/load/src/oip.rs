//! What the gRPC and REST targets share of the Open Inference Protocol: reasons, and descriptions of inputs.

use std::borrow::Cow;

use symphony_types::{DataType, DropReason, TensorSpec};

use crate::target::End;

/// Reasons with which a frontend refuses requests that it could otherwise take in.
const REFUSALS: [&str; 3] = ["too_many_requests", "quota", "tenant_busy"];
/// The reason, besides the scheduler's own, for which a server gives up a request.
const DEADLINE_PASSED: &str = "deadline_passed";

/// The end that a machine-readable reason means; without a reason, the status decides.
pub(super) fn end_of(reason: Option<&str>, status: impl FnOnce() -> String) -> End {
    match reason {
        None | Some("") => End::Failed(Cow::Owned(status())),
        Some("late") => End::Late,
        Some(reason) if REFUSALS.contains(&reason) => End::Refused(Cow::Owned(reason.to_owned())),
        Some(reason) if reason == DEADLINE_PASSED || DropReason::ALL.iter().any(|r| r.label() == reason) => {
            End::Dropped(Cow::Owned(reason.to_owned()))
        }
        Some(reason) => End::Failed(Cow::Owned(reason.to_owned())),
    }
}

/// A server says what the items of an input are, and this program makes some of them: a request with larger ones could
/// not be sent in one piece.
const ITEM_BYTES_MAX: usize = 63 << 20;
/// The type of encoded pictures.
const BYTES: &str = "BYTES";

/// An input as metadata describe it: `shape` begins with the dimension that counts items. Encoded pictures have no
/// description.
pub(super) fn input_description(
    name: String,
    datatype: &str,
    shape: &[i64],
) -> Result<(String, Option<TensorSpec>), String> {
    if datatype == BYTES {
        return Ok((name, None));
    }
    let data_type = datatype.parse::<DataType>().map_err(|error| format!("input `{name}`: {error}"))?;
    let item_shape: Option<Vec<_>> = shape.iter().skip(1).map(|&dim| u32::try_from(dim).ok()).collect();
    let Some(item_shape) = item_shape.filter(|item_shape| !item_shape.contains(&0)) else {
        return Err(format!("input `{name}` has the shape {shape:?}; expected fixed dimensions behind the first one"));
    };
    let element = data_type.size_bytes();
    let bytes = item_shape.iter().try_fold(element, |bytes, &dim| bytes.checked_mul(dim as usize));
    if bytes.is_none_or(|bytes| bytes > ITEM_BYTES_MAX) {
        return Err(format!(
            "input `{name}` has the shape {shape:?}; expected items of at most {ITEM_BYTES_MAX} bytes"
        ));
    }
    Ok((name.clone(), Some(TensorSpec { name, data_type, item_shape })))
}

#[cfg(test)]
mod tests {
    use symphony_types::FailReason;

    use super::*;

    #[test]
    fn reasons_are_told_apart() {
        let end = |reason| end_of(reason, || "http_500".to_owned());
        for reason in DropReason::ALL {
            assert_eq!(end(Some(reason.label())), End::Dropped(reason.label().into()));
        }
        for reason in FailReason::ALL {
            assert_eq!(end(Some(reason.label())), End::Failed(reason.label().into()));
        }
        assert_eq!(end(Some("late")), End::Late);
        assert_eq!(end(Some("deadline_passed")), End::Dropped("deadline_passed".into()));
        for reason in REFUSALS {
            assert_eq!(end(Some(reason)), End::Refused(reason.into()));
        }
        assert_eq!(end(None), End::Failed("http_500".into()));
    }

    #[test]
    fn inputs_are_tensors_of_a_fixed_size_or_pictures() {
        let read = |datatype, shape: &[i64]| input_description("x".into(), datatype, shape);
        let spec = TensorSpec { name: "x".into(), data_type: DataType::Fp32, item_shape: vec![2, 3] };
        assert_eq!(read("FP32", &[-1, 2, 3]), Ok(("x".into(), Some(spec))));
        assert_eq!(read("BYTES", &[-1]), Ok(("x".into(), None)));
        assert!(read("COMPLEX", &[-1]).unwrap_err().starts_with("input `x`: unknown data type `COMPLEX`"));
        for shape in [&[-1, -1][..], &[-1, 0], &[-1, 1 << 40]] {
            assert!(read("INT8", shape).unwrap_err().contains("expected fixed dimensions"), "{shape:?}");
        }
        assert!(read("INT8", &[-1, 63, 1 << 20]).is_ok());
        for (datatype, shape) in [("INT16", &[-1, 63, 1 << 20][..]), ("INT8", &[-1, 1 << 31, 1 << 31, 1 << 31])] {
            assert!(read(datatype, shape).unwrap_err().contains("of at most 66060288 bytes"), "{shape:?}");
        }
    }
}
