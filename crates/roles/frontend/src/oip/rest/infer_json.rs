//! Inference calls: from JSON and the binary data behind it to a checked call, and from an answer back.

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use symphony_types::DataType;

use super::coding::Coding;
use crate::oip::call::{Answered, CheckedCall};
use crate::oip::inputs::{self, GivenData, GivenInput};
use crate::oip::outputs::{Content, Encoding, Form, Selection};
use crate::oip::parameters::{self, InputParameters, OutputParameters, RequestParameters};
use crate::oip::refusal_text::{invalid, shorten};
use crate::oip::shared_regions::{Regions, SharedOutput};
use crate::oip::{InferError, Limits, ModelInfo, Parameter, Timeliness, json_data};

/// Header with the number of bytes of a body that are JSON; the rest is binary data.
pub(crate) static JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

#[derive(Deserialize)]
struct RequestBody<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    parameters: Option<BTreeMap<String, Parameter>>,
    #[serde(borrow)]
    inputs: Vec<RequestInput<'a>>,
    #[serde(default)]
    outputs: Option<Vec<RequestOutput>>,
}

#[derive(Deserialize)]
struct RequestInput<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    shape: Vec<i64>,
    #[serde(default)]
    parameters: Option<BTreeMap<String, Parameter>>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RequestOutput {
    name: String,
    #[serde(default)]
    parameters: Option<BTreeMap<String, Parameter>>,
}

fn read(parameters: Option<&BTreeMap<String, Parameter>>) -> impl Iterator<Item = (&str, Parameter)> {
    parameters.into_iter().flatten().map(|(name, value)| (name.as_str(), value.clone()))
}

/// Checks a REST request against its model. The first `json_bytes` bytes of the body, or all of them, are JSON; the
/// rest is binary data. Pure, and panics on nothing that a client can send.
///
/// # Errors
///
/// Says which part of the request is not as expected.
pub fn check_rest_infer(
    model: &ModelInfo,
    json_bytes: Option<usize>,
    body: &Bytes,
    limits: &Limits,
) -> Result<CheckedCall, InferError> {
    check(model, json_bytes, body, limits, Regions::Off)
}

/// The same, with tensors in these regions.
pub(crate) fn check(
    model: &ModelInfo,
    json_bytes: Option<usize>,
    body: &Bytes,
    limits: &Limits,
    regions: Regions<'_>,
) -> Result<CheckedCall, InferError> {
    let json_bytes = json_bytes.unwrap_or(body.len());
    let json = body.get(..json_bytes).ok_or_else(|| {
        invalid(format!("{} is {json_bytes}, but the body has only {} bytes", JSON_LENGTH.as_str(), body.len()))
    })?;
    let request: RequestBody<'_> = serde_json::from_slice(json)
        .map_err(|error| invalid(format!("the body is not an inference request: {error}")))?;

    let given = given_inputs(&request.inputs, json_bytes, body, regions)?;
    let parameters = RequestParameters::parse(read(request.parameters.as_ref()))?;
    parameters.check_for(model)?;
    let encoding_of = |binary: bool| if binary { Encoding::Raw } else { Encoding::Typed };
    let unless_said = parameters.binary_output;
    let mut shared = Vec::new();
    let outputs = match request.outputs.as_deref() {
        None | Some([]) => Selection::all(model, encoding_of(unless_said)),
        Some(outputs) => {
            let mut wanted = Vec::with_capacity(outputs.len());
            for (at, output) in outputs.iter().enumerate() {
                let OutputParameters { binary, classes, placed } =
                    OutputParameters::parse(read(output.parameters.as_ref()))?;
                if let Some(placed) = placed {
                    if binary == Some(true) {
                        return Err(invalid(format!(
                            "output `{}`: {} goes with no shared memory: ask for one of them",
                            shorten(&output.name),
                            parameters::BINARY_DATA
                        )));
                    }
                    shared.push(SharedOutput { at, tensor: regions.output(&placed)? });
                }
                let encoding = encoding_of(binary.unwrap_or(unless_said));
                wanted.push((output.name.as_str(), Form { encoding, classes }));
            }
            Selection::of(model, wanted.into_iter())?
        }
    };
    // Refused now, not after the GPU has worked for it.
    for (at, (spec, form)) in outputs.iter(model).enumerate() {
        let is_sent = !shared.iter().any(|output| output.at == at);
        if is_sent && spec.data_type == DataType::Fp16 && form == (Form { encoding: Encoding::Typed, classes: None }) {
            return Err(invalid(format!(
                "output `{}` of FP16 cannot be sent as JSON; ask for it with binary_data",
                spec.name
            )));
        }
    }
    let inputs = inputs::check(model, &given, limits)?;
    outputs.check_room(model, &shared, inputs.items)?;
    Ok(CheckedCall { id: request.id.unwrap_or_default(), inputs, outputs, shared, parameters })
}

/// Finds the data of each input: in the JSON, behind it, or in shared memory.
fn given_inputs<'a>(
    inputs: &'a [RequestInput<'a>],
    json_bytes: usize,
    body: &Bytes,
    regions: Regions<'_>,
) -> Result<Vec<GivenInput<'a>>, InferError> {
    let mut binary_at = json_bytes;
    let mut given = Vec::with_capacity(inputs.len());
    for input in inputs {
        let name = || shorten(&input.name);
        let InputParameters { binary_bytes, placed } =
            InputParameters::parse(&input.name, read(input.parameters.as_ref()))?;
        let data = match (binary_bytes, placed, input.data) {
            (None, None, Some(text)) => GivenData::Json(text),
            (Some(bytes), None, None) => {
                let end = binary_at.checked_add(bytes).filter(|&end| end <= body.len()).ok_or_else(|| {
                    let left = body.len() - binary_at;
                    invalid(format!("input `{}` has {bytes} bytes of binary data, but only {left} are left", name()))
                })?;
                GivenData::Raw(body.slice(std::mem::replace(&mut binary_at, end)..end))
            }
            (None, Some(placed), None) => GivenData::Shared(regions.tensor(&placed)?),
            (None, None, None) => {
                return Err(invalid(format!("input `{}` has no data; expected data or binary_data_size", name())));
            }
            (Some(_), None, Some(_)) => {
                return Err(invalid(format!("input `{}` has data beside binary_data_size; expected only one", name())));
            }
            (_, Some(_), _) => {
                return Err(invalid(format!("input `{}` has data beside shared memory; expected only one", name())));
            }
        };
        given.push(GivenInput { name: &input.name, datatype: &input.datatype, shape: &input.shape, data });
    }
    if binary_at != body.len() {
        let extra = body.len() - binary_at;
        return Err(invalid(format!("{extra} bytes of binary data belong to no input's binary_data_size")));
    }
    Ok(given)
}

/// The head of an answer: everything but the elements.
#[derive(Serialize)]
struct OutputHead<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [i64],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    parameters: BTreeMap<&'static str, serde_json::Value>,
}

#[derive(Serialize)]
struct AnswerHead<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    model_name: &'a str,
    model_version: String,
    parameters: BTreeMap<&'static str, serde_json::Value>,
}

/// An answer as it travels: JSON, and perhaps binary data behind it.
pub(crate) struct Answer {
    body: Vec<u8>,
    /// How much of it is JSON, if not all.
    json_bytes: Option<usize>,
}

impl Answer {
    /// How long it is.
    pub(crate) fn len(&self) -> usize {
        self.body.len()
    }

    /// As it is, or compressed.
    pub(crate) fn into_response(self, coding: Option<Coding>) -> Response {
        // Writing into memory does not fail.
        let packed = coding.and_then(|coding| Some((coding, coding.pack(&self.body).ok()?)));
        let (coding, body) = packed.map_or((None, self.body), |(coding, body)| (Some(coding), body));
        let mut response = Response::new(Body::from(body));
        let content_type = if self.json_bytes.is_some() { "application/octet-stream" } else { "application/json" };
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if let Some(json_bytes) = self.json_bytes {
            headers.insert(&JSON_LENGTH, HeaderValue::from(json_bytes));
        }
        if let Some(coding) = coding {
            headers.insert(header::CONTENT_ENCODING, coding.header());
        }
        response
    }
}

pub(crate) fn respond(model: &ModelInfo, id: &str, answered: Answered<'_>) -> Answer {
    let Answered { outputs, answer, request, says_final } = answered;
    let mut parameters = BTreeMap::from([
        (parameters::BATCH, answer.batch.into()),
        (parameters::EXECUTION, parameters::whole_micros(answer.execution).into()),
    ]);
    if let Some(request) = request {
        parameters.insert(parameters::REQUEST_ID, request.to_string().into());
    }
    if says_final {
        parameters.insert(parameters::FINAL_RESPONSE, true.into());
    }
    if answer.timeliness == Timeliness::Late {
        parameters.insert(parameters::LATE, true.into());
    }
    if let Some(pipeline) = answer.pipeline {
        parameters.insert(parameters::PARTIAL, pipeline.is_partial.into());
        parameters.insert(parameters::STAGES, pipeline.stages.into());
    }
    let head = AnswerHead { id, model_name: &model.name, model_version: model.version.to_string(), parameters };

    let mut body = object_without_end(&head);
    body.extend_from_slice(b",\"outputs\":[");
    let mut binary = Vec::new();
    for (index, output) in outputs.into_iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        let mut head = OutputHead {
            name: output.name,
            datatype: output.content.data_type(),
            shape: &output.shape,
            parameters: BTreeMap::new(),
        };
        if let Some(rows) = output.rows {
            head.parameters.insert(parameters::ROWS, rows.into());
        }
        match output.content {
            // Without parameters, as Triton has it: its C++ client, and perf_analyzer with it, takes an output that has
            // some for one with binary data. One that has rows to tell has none of that.
            Content::Placed(..) => {
                if !head.parameters.is_empty() {
                    head.parameters.insert(parameters::BINARY_DATA_SIZE, 0.into());
                }
                body.append(&mut object_without_end(&head));
            }
            content if output.encoding == Encoding::Raw => {
                let data = content.into_raw();
                head.parameters.insert(parameters::BINARY_DATA_SIZE, data.len().into());
                body.append(&mut object_without_end(&head));
                binary.push(data);
            }
            Content::Elements(data_type, data) => {
                body.append(&mut object_without_end(&head));
                body.extend_from_slice(b",\"data\":");
                json_data::encode(&data, data_type, &mut body);
            }
            Content::Classes(classes) => {
                body.append(&mut object_without_end(&head));
                body.extend_from_slice(b",\"data\":");
                // Texts in memory always serialise.
                body.append(&mut serde_json::to_vec(&classes).unwrap_or_else(|_| b"[]".to_vec()));
            }
        }
        body.push(b'}');
    }
    body.extend_from_slice(b"]}");

    let json_bytes = (!binary.is_empty()).then_some(body.len());
    body.reserve_exact(binary.iter().map(Bytes::len).sum());
    binary.iter().for_each(|data| body.extend_from_slice(data));
    Answer { body, json_bytes }
}

// The elements are written by hand, because JSON has no words for numbers that are not finite and serde none for them.
fn object_without_end(head: &impl Serialize) -> Vec<u8> {
    // Names, numbers and texts in memory always serialise.
    let mut text = serde_json::to_vec(head).unwrap_or_else(|_| b"{}".to_vec());
    text.pop();
    text
}
