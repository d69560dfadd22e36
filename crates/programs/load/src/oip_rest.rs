//! The Open Inference Protocol over REST, with binary tensors behind the JSON.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde_json::{Value, json};
use symphony_protocol::parameters::{self, ACCEPT_LATE, BATCH, EXCEED_SLO, LATE, SLO_MS, TIMEOUT};

use crate::access::Access;
use crate::oip::{end_of, input_description};
use crate::target::{
    Answer, ConnectError, DescribeModel, EncodedPictures, End, ModelDescription, OutputTensor, Request, Target,
};

/// Header of requests and answers with binary tensors: the length of the JSON before them.
const JSON_LENGTH: &str = "inference-header-content-length";
/// How long one connection may take to come up.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a description may take to come, and how long it may be.
const DESCRIBED_WITHIN: Duration = Duration::from_secs(5);
const DESCRIPTION_BYTES_MAX: usize = 1 << 20;

/// A frontend's REST port.
#[derive(Debug)]
pub struct RestTarget {
    client: reqwest::Client,
    base: String,
}

impl RestTarget {
    /// Connects to `addr` (`host:port`); further connections come up as requests need them.
    ///
    /// # Errors
    /// If the address is invalid or does not answer.
    pub async fn connect(addr: &str) -> Result<Self, ConnectError> {
        Self::connect_as(addr, &Access::default()).await
    }

    /// The same with a key, or over TLS.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), or if the key or the authority is invalid.
    pub async fn connect_as(addr: &str, access: &Access) -> Result<Self, ConnectError> {
        let fail = |error: reqwest::Error| {
            let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            ConnectError { addr: addr.to_owned(), reason }
        };
        access.check(addr).map_err(|reason| ConnectError { addr: addr.to_owned(), reason })?;
        let mut builder = reqwest::Client::builder().connect_timeout(CONNECT_MAX).tcp_nodelay(true).no_proxy();
        if let Some(pem) = &access.authority {
            builder = builder.add_root_certificate(reqwest::Certificate::from_pem(pem).map_err(fail)?);
        }
        if let Some(bearer) = access.bearer() {
            let no_key = |_| ConnectError { addr: addr.to_owned(), reason: "the key is no text for a header".into() };
            let shown = HeaderValue::from_str(&bearer).map_err(no_key)?;
            builder = builder.default_headers([(AUTHORIZATION, shown)].into_iter().collect());
        }
        let client = builder.build().map_err(fail)?;
        let base = format!("{}://{addr}/v2", access.scheme());
        if let Err(error) = client.get(format!("{base}/health/live")).send().await {
            let reason = access.why_not(addr).await;
            return Err(reason.map_or_else(|| fail(error), |reason| ConnectError { addr: addr.to_owned(), reason }));
        }
        Ok(Self { client, base })
    }

    /// What a page says, or the words of its refusal.
    async fn page(&self, url: &str) -> Result<Value, String> {
        let words = |error: reqwest::Error| error.to_string();
        let mut response = self.client.get(url).timeout(DESCRIBED_WITHIN).send().await.map_err(words)?;
        let status = response.status();
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(words)? {
            body.extend_from_slice(&chunk);
            if body.len() > DESCRIPTION_BYTES_MAX {
                return Err(format!("{url} is longer than {DESCRIPTION_BYTES_MAX} bytes"));
            }
        }
        let page: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status.is_success() {
            return Ok(page);
        }
        Err(page["error"].as_str().map_or_else(|| status.to_string(), str::to_owned))
    }
}

impl DescribeModel for RestTarget {
    async fn describe(&self, model: &str) -> Result<ModelDescription, String> {
        let url = format!("{}/models/{model}", self.base);
        let (metadata, config) = (self.page(&url).await?, self.page(&format!("{url}/config")).await?);
        description(&metadata, &config)
    }
}

fn description(metadata: &Value, config: &Value) -> Result<ModelDescription, String> {
    let text = |value: &Value| {
        value.as_str().map(str::to_owned).ok_or("what it says of the model is not of the Open Inference Protocol")
    };
    let list = |key: &str| metadata[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let input = |input: &Value| {
        // What is no number is refused as a shape.
        let shape = input["shape"].as_array().map(Vec::as_slice).unwrap_or_default();
        let shape: Vec<_> = shape.iter().map(|dim| dim.as_i64().unwrap_or(-1)).collect();
        input_description(text(&input["name"])?, &text(&input["datatype"])?, &shape)
    };
    let slo = config["parameters"][SLO_MS]["string_value"].as_str().and_then(parameters::slo);
    Ok(ModelDescription {
        name: text(&metadata["name"])?,
        platform: text(&metadata["platform"])?,
        slo: slo.ok_or("its configuration has no slo_ms; expected a frontend of Symphony")?,
        inputs: list("inputs").iter().map(input).collect::<Result<_, _>>()?,
        outputs: list("outputs").iter().map(|output| text(&output["name"])).collect::<Result<_, _>>()?,
    })
}

impl Target for RestTarget {
    async fn send(&self, request: Request) -> Answer {
        let url = format!("{}/models/{}/infer", self.base, request.model);
        let (json_bytes, body) = body(&request);
        let post = self.client.post(url).header(JSON_LENGTH, json_bytes).body(body);
        let response = match post.send().await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Answer::ended(End::Failed("cannot_connect".into())),
            Err(_) => return Answer::ended(End::Failed("connection_lost".into())),
        };
        let status = response.status();
        let length = response.headers().get(JSON_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let Ok(body) = response.bytes().await else {
            return Answer::ended(End::Failed("connection_lost".into()));
        };
        if status.is_success() {
            return answer(length, &body).unwrap_or_else(|| Answer::ended(End::Failed("bad_answer".into())));
        }
        let error: Option<Value> = serde_json::from_slice(&body).ok();
        let reason = error.as_ref().and_then(|error| error["reason"].as_str());
        Answer::ended(end_of(reason, || format!("http_{}", status.as_u16())))
    }
}

/// The length of the JSON part, and the whole body.
fn body(request: &Request) -> (usize, Bytes) {
    let mut inputs: Vec<_> = request
        .inputs
        .iter()
        .map(|(spec, data)| {
            let shape: Vec<_> = std::iter::once(request.items).chain(spec.item_shape.iter().copied()).collect();
            json!({
                "name": spec.name, "datatype": spec.data_type.name(), "shape": shape,
                "parameters": { "binary_data_size": data.len() },
            })
        })
        .collect();
    let mut pictures = Vec::new();
    if let Some(EncodedPictures { input, encoded }) = &request.pictures {
        for picture in encoded {
            // No picture of this length would be sent.
            let length = u32::try_from(picture.len()).unwrap_or(u32::MAX);
            pictures.extend_from_slice(&length.to_le_bytes());
            pictures.extend_from_slice(picture);
        }
        inputs.push(json!({
            "name": &**input, "datatype": "BYTES", "shape": [request.items],
            "parameters": { "binary_data_size": pictures.len() },
        }));
    }
    let mut parameters = json!({ "binary_data_output": true, ACCEPT_LATE: true });
    if let Some(timeout) = request.timeout {
        parameters[TIMEOUT] = json!(u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX));
        parameters[EXCEED_SLO] = json!(true);
    }
    let head = json!({ "id": request.id.to_string(), "parameters": parameters, "inputs": inputs }).to_string();
    let data_bytes: usize = request.inputs.iter().map(|(_, data)| data.len()).sum();
    let mut body = BytesMut::with_capacity(head.len() + data_bytes + pictures.len());
    body.extend_from_slice(head.as_bytes());
    for (_, data) in &request.inputs {
        body.extend_from_slice(data);
    }
    body.extend_from_slice(&pictures);
    (head.len(), body.freeze())
}

/// Parses an answer; none if it breaks the protocol.
fn answer(json_bytes: Option<usize>, body: &Bytes) -> Option<Answer> {
    let json_bytes = json_bytes.unwrap_or(body.len());
    let head: Value = serde_json::from_slice(body.get(..json_bytes)?).ok()?;
    let mut outputs = Vec::new();
    let mut at = json_bytes;
    for tensor in head["outputs"].as_array()? {
        let size = usize::try_from(tensor["parameters"]["binary_data_size"].as_u64()?).ok()?;
        let end = at.checked_add(size).filter(|&end| end <= body.len())?;
        outputs.push(OutputTensor { name: tensor["name"].as_str()?.to_owned(), data: body.slice(at..end) });
        at = end;
    }
    Some(Answer {
        end: if head["parameters"][LATE] == true { End::Late } else { End::Ok },
        id: head["id"].as_str().and_then(|id| id.parse().ok()),
        bytes: (at - json_bytes) as u64,
        outputs,
        batch: head["parameters"][BATCH].as_u64().and_then(|items| u32::try_from(items).ok()),
    })
}

#[cfg(test)]
mod tests {
    use symphony_types::{DataType, TensorSpec};

    use super::*;

    #[test]
    fn a_request_carries_its_tensors_behind_the_json() {
        let spec = TensorSpec { name: "x".into(), data_type: DataType::Fp32, item_shape: vec![2] };
        let request = Request {
            id: 7,
            model: "m".into(),
            items: 1,
            inputs: vec![(spec, Bytes::from_static(b"12345678"))],
            pictures: Some(EncodedPictures { input: "p".into(), encoded: vec![Bytes::from_static(b"png")] }),
            timeout: Some(Duration::from_millis(20)),
        };
        let (length, body) = body(&request);
        let head: Value = serde_json::from_slice(&body[..length]).unwrap();
        assert_eq!(&body[length..], b"12345678\x03\0\0\0png");
        assert_eq!((&head["inputs"][1]["datatype"], &head["inputs"][1]["shape"]), (&json!("BYTES"), &json!([1])));
        assert_eq!(head["inputs"][1]["parameters"]["binary_data_size"], 7);
        assert_eq!(head["inputs"][0]["shape"], json!([1, 2]));
        assert_eq!(head["inputs"][0]["parameters"]["binary_data_size"], 8);
        assert_eq!((&head["id"], &head["parameters"]["timeout"]), (&json!("7"), &json!(20_000)));
    }

    #[test]
    fn answers_are_cut_by_their_sizes_and_lies_about_sizes_are_refused() {
        let whole = |size: u64| {
            let head = json!({
                "id": "7", "parameters": { "symphony_late": true, "symphony_batch": 5 },
                "outputs": [{ "name": "y", "parameters": { "binary_data_size": size } }],
            })
            .to_string();
            (head.len(), Bytes::from(head + "abcd"))
        };
        let (length, body) = whole(4);
        let read = answer(Some(length), &body).unwrap();
        assert_eq!((read.end, read.id, read.batch, read.bytes), (End::Late, Some(7), Some(5), 4));
        assert_eq!(read.outputs, [OutputTensor { name: "y".into(), data: Bytes::from_static(b"abcd") }]);
        for size in [5, u64::MAX] {
            let (length, body) = whole(size);
            assert_eq!(answer(Some(length), &body), None);
        }
        assert_eq!(answer(Some(usize::MAX), &body), None);
        assert_eq!(answer(None, &Bytes::from_static(b"[]")), None);
    }
}
