//! Whatever a client makes up: an answer or an explanation, never a panic.

use bytes::Bytes;
use proptest::prelude::*;
use symphony_frontend::oip::{InferError, Limits, check_grpc_infer, check_rest_infer};
use symphony_protocol::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use symphony_protocol::inference::{InferTensorContents, ModelInferRequest};

use super::fake::double;

fn limits() -> Limits {
    Limits { request_bytes_max: 1 << 20, ..Limits::default() }
}

/// JSON that looks like a request in places.
fn json_value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("1e400".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| value.to_string()),
        any::<u64>().prop_map(|value| value.to_string()),
        (-4_i64..10).prop_map(|value| value.to_string()),
        prop::sample::select(vec!["x", "y", "FP32", "BYTES", "\\ud800", "é"]).prop_map(|text| format!("\"{text}\"")),
    ];
    leaf.prop_recursive(4, 64, 6, |inner| {
        let key = prop::sample::select(vec![
            "id",
            "inputs",
            "outputs",
            "name",
            "datatype",
            "shape",
            "data",
            "parameters",
            "binary_data_size",
            "binary_data",
            "timeout",
            "sequence_id",
            "shared_memory_region",
            "shared_memory_byte_size",
        ]);
        let pair = (key, inner.clone()).prop_map(|(key, value)| format!("\"{key}\":{value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(pair, 0..8).prop_map(|pairs| format!("{{{}}}", pairs.join(","))),
        ]
    })
}

/// A request with one input, whose parts are arbitrary.
fn near_request() -> impl Strategy<Value = String> {
    let parts = (json_value(), json_value(), json_value(), json_value());
    let good =
        |value: &'static str| move |made_up: String| prop_oneof![3 => Just(value.to_owned()), 1 => Just(made_up)];
    parts.prop_flat_map(move |(name, datatype, shape, data)| {
        let parts = (good("\"x\"")(name), good("\"FP32\"")(datatype), good("[1,2,2]")(shape), good("[1,2,3,4]")(data));
        parts.prop_map(|(name, datatype, shape, data)| {
            format!("{{\"inputs\":[{{\"name\":{name},\"datatype\":{datatype},\"shape\":{shape},\"data\":{data}}}]}}")
        })
    })
}

fn contents() -> impl Strategy<Value = InferTensorContents> {
    let lists = (
        prop::collection::vec(any::<bool>(), 0..3),
        prop::collection::vec(any::<i32>(), 0..3),
        prop::collection::vec(any::<f32>(), 0..10),
        prop::collection::vec(any::<f64>(), 0..2),
    );
    lists.prop_map(|(bool_contents, int_contents, fp32_contents, fp64_contents)| InferTensorContents {
        bool_contents,
        int_contents,
        fp32_contents,
        fp64_contents,
        ..InferTensorContents::default()
    })
}

fn message() -> impl Strategy<Value = ModelInferRequest> {
    let dim = prop_oneof![4 => Just(2_i64), 1 => any::<i64>(), 1 => -1_i64..10];
    let name = prop::sample::select(vec!["x", "x", "x", "y", ""]);
    let datatype = prop::sample::select(vec!["FP32", "FP32", "FP16", "BYTES", ""]);
    let input = (name, datatype, prop::collection::vec(dim, 0..5), prop::option::of(contents()));
    let input = input.prop_map(|(name, datatype, shape, contents)| InferInputTensor {
        name: name.to_owned(),
        datatype: datatype.to_owned(),
        shape,
        contents,
        ..InferInputTensor::default()
    });
    let raw = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from), 0..3);
    let output = prop::sample::select(vec!["y", "z"]);
    let output = output.prop_map(|name| InferRequestedOutputTensor { name: name.to_owned(), ..Default::default() });
    let parts = (prop::collection::vec(input, 0..3), raw, prop::collection::vec(output, 0..3));
    parts.prop_map(|(inputs, raw_input_contents, outputs)| ModelInferRequest {
        inputs,
        raw_input_contents,
        outputs,
        ..ModelInferRequest::default()
    })
}

/// What was let through has as many bytes as its items need; what was not says why.
fn is_sound(checked: Result<symphony_frontend::oip::CheckedCall, InferError>) -> bool {
    match checked {
        Ok(call) => (1..=8).contains(&call.items()) && call.payload().len() == call.items() as usize * 16,
        Err(error) => !error.to_string().is_empty(),
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_as_a_rest_body(body in prop::collection::vec(any::<u8>(), 0..200), split in prop::option::of(0_usize..300)) {
        prop_assert!(is_sound(check_rest_infer(&double(), split, &body.into(), &limits())));
    }

    #[test]
    fn arbitrary_json_as_a_rest_body(body in json_value(), behind in prop::collection::vec(any::<u8>(), 0..40)) {
        let length = body.len();
        let body = [body.as_bytes(), &behind].concat();
        prop_assert!(is_sound(check_rest_infer(&double(), Some(length), &body.into(), &limits())));
    }

    #[test]
    fn nearly_a_request_as_a_rest_body(body in near_request()) {
        prop_assert!(is_sound(check_rest_infer(&double(), None, &body.into(), &limits())));
    }

    #[test]
    fn arbitrary_messages_over_grpc(message in message()) {
        prop_assert!(is_sound(check_grpc_infer(&double(), &message, &limits())));
    }
}

#[test]
fn a_payload_over_the_limit_is_refused_by_its_shape_alone() {
    let body = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[8,2,2],"data":[]}]}"#;
    let refused = check_rest_infer(&double(), None, &body.into(), &Limits { request_bytes_max: 100, ..limits() });
    assert_eq!(refused, Err(InferError::TooLarge { bytes_max: 100 }));
}
