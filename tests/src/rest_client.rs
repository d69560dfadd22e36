//! A small client of the frontend's REST port.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use symphony_executor::item_checksum;

/// Numbers in one item of the emulated models' input.
const ITEM_NUMBERS: usize = 16;
/// For how long a request is asked again for which there was no time.
const IN_TIME_WITHIN: Duration = Duration::from_secs(60);
/// The reasons of answers that have one.
const NO_TIME: [&str; 4] = ["slo_unreachable", "queue_expired", "deadline_passed", "late"];

/// Talks to one address.
#[derive(Clone, Debug)]
pub struct RestClient {
    base: String,
    http: reqwest::Client,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
    /// The header `Retry-After`.
    pub retry_after: Option<String>,
    /// The header `symphony-request-id`: the id of the request for `symphony explain`.
    pub request_id: Option<String>,
}

impl Reply {
    /// The machine-readable reason of a refusal; empty if there is none.
    #[must_use]
    pub fn reason(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["reason"].as_str().unwrap_or_default().to_owned()
    }
}

impl RestClient {
    /// For `host:port`.
    #[must_use]
    pub fn new(address: &str) -> Self {
        Self { base: format!("http://{address}"), http: reqwest::Client::new() }
    }

    /// For `host:port` with TLS, whatever certificate it shows: whether that is right is for stories about it.
    ///
    /// # Errors
    /// If there is no TLS here.
    pub fn secured(address: &str) -> Result<Self> {
        let http = reqwest::Client::builder().danger_accept_invalid_certs(true).build()?;
        Ok(Self { base: format!("https://{address}"), http })
    }

    /// GET.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn get(&self, path: &str) -> Result<Reply> {
        reply(self.http.get(format!("{}{path}", self.base)).send().await?).await
    }

    /// GET of bytes in a format that `Accept` names; an error unless the answer is in it.
    ///
    /// # Errors
    /// If there is no answer, or in another format.
    pub async fn get_bytes(&self, path: &str, accept: &str) -> Result<Vec<u8>> {
        let answer = self.http.get(format!("{}{path}", self.base)).header("accept", accept).send().await?;
        let format = answer.headers().get("content-type").and_then(|format| format.to_str().ok()).unwrap_or_default();
        ensure!(format == accept, "{path} is answered in `{format}`, and `{accept}` was asked for");
        Ok(answer.bytes().await?.to_vec())
    }

    /// POST of any body.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> Result<Reply> {
        self.post_with(path, &[], body).await
    }

    /// POST with headers.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn post_with(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Result<Reply> {
        let request = self.http.post(format!("{}{path}", self.base)).header("content-type", "application/json");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        reply(request.body(body).send().await?).await
    }

    /// An inference request.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn infer(&self, model: &str, body: &Value) -> Result<Reply> {
        self.post(&format!("/v2/models/{model}/infer"), body.to_string()).await
    }

    /// An inference request without a time limit: it is repeated if its deadline is missed, and only then. A machine
    /// that pauses misses deadlines; how many may be missed is judged by reports of loads.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn infer_in_any_time(&self, model: &str, body: &Value) -> Result<Reply> {
        let deadline = Instant::now() + IN_TIME_WITHIN;
        loop {
            let reply = self.infer(model, body).await?;
            if !NO_TIME.contains(&reply.reason().as_str()) || Instant::now() >= deadline {
                return Ok(reply);
            }
            eprintln!("no time for a request, which is made again: {}", reply.body);
        }
    }

    /// One request for an emulated model, whose answer must come in time and be the checksum of its input.
    ///
    /// # Errors
    /// If it is anything else.
    pub async fn check_emulated(&self, model: &str, seed: f32) -> Result<()> {
        is_right(model, seed, &self.infer(model, &emulated(seed)).await?)
    }

    /// As [`check_emulated`](Self::check_emulated), with an answer in [any time](Self::infer_in_any_time).
    ///
    /// # Errors
    /// If it is anything else.
    pub async fn check_emulated_in_any_time(&self, model: &str, seed: f32) -> Result<()> {
        is_right(model, seed, &self.infer_in_any_time(model, &emulated(seed)).await?)
    }
}

/// A request for an emulated model.
pub(crate) fn emulated(seed: f32) -> Value {
    let input = json!({ "name": "INPUT0", "datatype": "FP32", "shape": [1, ITEM_NUMBERS], "data": numbers(seed) });
    json!({ "inputs": [input] })
}

fn is_right(model: &str, seed: f32, reply: &Reply) -> Result<()> {
    let bytes: Vec<u8> = numbers(seed).iter().flat_map(|n| n.to_le_bytes()).collect();
    ensure!(reply.status == 200, "{model} answered {reply:?}");
    let body: Value = serde_json::from_str(&reply.body).context("the answer is not JSON")?;
    let expected = item_checksum([bytes.as_slice()]);
    ensure!(body["outputs"][0]["data"][0] == expected, "{model} answered {body}; expected {expected}");
    Ok(())
}

/// One item of an emulated model's input.
#[must_use]
pub fn numbers(seed: f32) -> Vec<f32> {
    (0..ITEM_NUMBERS).map(|i| seed + i as f32).collect()
}

async fn reply(response: reqwest::Response) -> Result<Reply> {
    let status = response.status().as_u16();
    let header = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let (retry_after, request_id) = (header("retry-after"), header("symphony-request-id"));
    Ok(Reply { status, body: response.text().await?, retry_after, request_id })
}
