//! Inference calls: from protobuf to a checked call, and from an answer back.

use std::collections::HashMap;

use symphony_protocol::inference::infer_parameter::ParameterChoice;
use symphony_protocol::inference::model_infer_request::InferInputTensor;
use symphony_protocol::inference::model_infer_response::InferOutputTensor;
use symphony_protocol::inference::{InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse};
use symphony_types::{DataType, RequestId};

use crate::oip::call::{Answered, CheckedCall};
use crate::oip::inputs::{self, GivenData, GivenInput};
use crate::oip::outputs::{Content, Encoding, Form, Selection};
use crate::oip::parameters::{self, InputParameters, OutputParameters, RequestParameters};
use crate::oip::refusal_text::{invalid, shorten};
use crate::oip::shared_regions::{Regions, SharedOutput, SharedTensor};
use crate::oip::{InferError, Limits, ModelInfo, Parameter, Receipt, Timeliness, typed_data};

/// Checks a gRPC request against its model. Pure, and panics on nothing that a client can send.
///
/// # Errors
///
/// Says which part of the request is not as expected.
pub fn check_grpc_infer(
    model: &ModelInfo,
    request: &ModelInferRequest,
    limits: &Limits,
) -> Result<CheckedCall, InferError> {
    check(model, request, limits, Regions::Off)
}

/// The same, with tensors in these regions.
pub(crate) fn check(
    model: &ModelInfo,
    request: &ModelInferRequest,
    limits: &Limits,
    regions: Regions<'_>,
) -> Result<CheckedCall, InferError> {
    let placed_of = |input: &InferInputTensor| {
        InputParameters::parse(&input.name, read(&input.parameters)).map(|parameters| parameters.placed)
    };
    let placed = request.inputs.iter().map(placed_of).collect::<Result<Vec<_>, _>>()?;
    // Outputs in shared memory have no entry.
    let sent = placed.iter().filter(|placed| placed.is_none()).count();
    let raw = !request.raw_input_contents.is_empty();
    if raw && request.raw_input_contents.len() != sent {
        return Err(invalid(format!(
            "raw_input_contents has {} entries for {sent} inputs; expected one for each",
            request.raw_input_contents.len()
        )));
    }
    let nothing = InferTensorContents::default();
    let mut raw_contents = request.raw_input_contents.iter();
    let mut given = Vec::with_capacity(request.inputs.len());
    for (input, placed) in request.inputs.iter().zip(placed) {
        if (raw || placed.is_some()) && input.contents.is_some() {
            let (name, other) = (shorten(&input.name), if raw { "raw_input_contents" } else { "shared memory" });
            return Err(invalid(format!("input `{name}` has contents beside {other}; expected only one")));
        }
        let data = match placed {
            Some(placed) => GivenData::Shared(regions.tensor(&placed)?),
            None => match raw_contents.next() {
                Some(bytes) => GivenData::Raw(bytes.clone()),
                None => GivenData::Typed(input.contents.as_ref().unwrap_or(&nothing)),
            },
        };
        given.push(GivenInput { name: &input.name, datatype: &input.datatype, shape: &input.shape, data });
    }
    let encoding = if raw || sent < request.inputs.len() { Encoding::Raw } else { Encoding::Typed };
    let (mut wanted, mut shared) = (Vec::with_capacity(request.outputs.len()), Vec::new());
    for (at, output) in request.outputs.iter().enumerate() {
        let OutputParameters { classes, placed, .. } = OutputParameters::parse(read(&output.parameters))?;
        if let Some(placed) = placed {
            shared.push(SharedOutput { at, tensor: regions.output(&placed)? });
        }
        wanted.push((output.name.as_str(), Form { encoding, classes }));
    }
    let outputs = match wanted.is_empty() {
        true => Selection::all(model, encoding),
        false => Selection::of(model, wanted.into_iter())?,
    };
    let inputs = inputs::check(model, &given, limits)?;
    outputs.check_room(model, &shared, inputs.items)?;
    let parameters = RequestParameters::parse(read(&request.parameters))?;
    parameters.check_for(model)?;
    Ok(CheckedCall { id: request.id.clone(), inputs, outputs, shared, parameters })
}

/// Parameters in our words; those without a value are left out.
pub(crate) fn read(parameters: &HashMap<String, InferParameter>) -> impl Iterator<Item = (&str, Parameter)> {
    parameters.iter().filter_map(|(name, parameter)| {
        let value = match parameter.parameter_choice.as_ref()? {
            ParameterChoice::BoolParam(value) => Parameter::Bool(*value),
            ParameterChoice::Int64Param(value) => Parameter::Int(*value),
            ParameterChoice::Uint64Param(value) => {
                i64::try_from(*value).map_or(Parameter::Uint(*value), Parameter::Int)
            }
            ParameterChoice::DoubleParam(value) => Parameter::Double(*value),
            ParameterChoice::StringParam(value) => Parameter::Text(value.clone()),
        };
        Some((name.as_str(), value))
    })
}

pub(crate) fn respond(model: &ModelInfo, id: String, answered: Answered<'_>) -> ModelInferResponse {
    let Answered { outputs, answer, request, says_final } = answered;
    // The lists have none for FP16, and a message is either raw or it is not.
    let is_half = |content: &Content| matches!(content, Content::Elements(DataType::Fp16, _));
    let raw = outputs.iter().any(|output| output.encoding == Encoding::Raw || is_half(&output.content));
    let mut response = ModelInferResponse {
        model_name: model.name.clone(),
        model_version: model.version.to_string(),
        id,
        ..ModelInferResponse::default()
    };
    for output in outputs {
        let datatype = output.content.data_type().to_owned();
        let mut placed = match &output.content {
            Content::Placed(_, tensor) => placement(tensor),
            Content::Elements(..) | Content::Classes(_) => HashMap::new(),
        };
        if let Some(rows) = output.rows {
            let parameter = InferParameter { parameter_choice: Some(ParameterChoice::StringParam(rows)) };
            placed.insert(parameters::ROWS.to_owned(), parameter);
        }
        let contents = match (raw, output.content) {
            (true, content) => {
                response.raw_output_contents.push(content.into_raw());
                None
            }
            (false, Content::Placed(..)) => None,
            (false, Content::Elements(data_type, data)) => typed_data::encode(&data, data_type),
            (false, Content::Classes(classes)) => Some(InferTensorContents {
                bytes_contents: classes.into_iter().map(String::into_bytes).collect(),
                ..InferTensorContents::default()
            }),
        };
        response.outputs.push(InferOutputTensor {
            name: output.name.to_owned(),
            datatype,
            shape: output.shape,
            parameters: placed,
            contents,
        });
    }
    let mut say = |name: &str, value: ParameterChoice| {
        response.parameters.insert(name.to_owned(), InferParameter { parameter_choice: Some(value) });
    };
    say(parameters::BATCH, ParameterChoice::Int64Param(answer.batch.into()));
    say(parameters::EXECUTION, ParameterChoice::Int64Param(parameters::whole_micros(answer.execution)));
    if let Some(request) = request {
        say(parameters::REQUEST_ID, ParameterChoice::StringParam(request.to_string()));
    }
    if says_final {
        say(parameters::FINAL_RESPONSE, ParameterChoice::BoolParam(true));
    }
    if answer.timeliness == Timeliness::Late {
        say(parameters::LATE, ParameterChoice::BoolParam(true));
    }
    if let Some(pipeline) = answer.pipeline {
        say(parameters::PARTIAL, ParameterChoice::BoolParam(pipeline.is_partial));
        say(parameters::STAGES, ParameterChoice::StringParam(pipeline.stages));
    }
    response
}

/// Says where an output is.
fn placement(tensor: &SharedTensor) -> HashMap<String, InferParameter> {
    let bytes = |bytes: u64| ParameterChoice::Int64Param(i64::try_from(bytes).unwrap_or(i64::MAX));
    let entries = [
        (parameters::SHARED_MEMORY_REGION, ParameterChoice::StringParam(tensor.region().to_owned())),
        (parameters::SHARED_MEMORY_OFFSET, bytes(tensor.offset)),
        (parameters::SHARED_MEMORY_BYTE_SIZE, bytes(tensor.bytes)),
    ];
    entries.map(|(name, value)| (name.to_owned(), InferParameter { parameter_choice: Some(value) })).into()
}

/// Says that an answer of a stream, or an error in it, is the last one of its request, as each is here: clients of
/// streams count requests by it, whether or not they have asked.
pub(crate) fn say_final(response: &mut ModelInferResponse) {
    let parameter = InferParameter { parameter_choice: Some(ParameterChoice::BoolParam(true)) };
    response.parameters.insert(parameters::FINAL_RESPONSE.to_owned(), parameter);
}

/// An answer without tensors, for a request of a stream that ended with an error. `empty_response` has the request's
/// own id and its model; the parameters state why there are no tensors, when to ask again, and the id for
/// `symphony explain`.
pub(crate) fn no_answer(
    empty_response: ModelInferResponse,
    error: &InferError,
    receipt: &Receipt,
) -> ModelInferResponse {
    let status = error.error_status();
    let reason = Some((parameters::REASON, ParameterChoice::StringParam(status.reason.to_owned())));
    let retry = status.retry.after_s_and_ms();
    let retry = retry.map(|(_, ms)| (parameters::RETRY_AFTER, ParameterChoice::Int64Param(ms as i64)));
    let name = |request: RequestId| (parameters::REQUEST_ID, ParameterChoice::StringParam(request.to_string()));
    let entries = reason.into_iter().chain(retry).chain(receipt.id().map(name));
    let entries = entries.map(|(name, value)| (name.to_owned(), InferParameter { parameter_choice: Some(value) }));
    ModelInferResponse { parameters: entries.collect(), ..empty_response }
}
