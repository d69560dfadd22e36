//! Reads the console page of a frontend.

use std::time::Duration;

use anyhow::ensure;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde::de::DeserializeOwned;
use serde_json::Value;
use symphony_load::Access;
use symphony_protocol::view::FrontendView;

use super::public_access;

/// The timeout of a frontend's answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The largest page in bytes: about 200 for each model and link.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// Reads consoles.
#[derive(Clone, Debug)]
pub(crate) struct PageClient {
    http: reqwest::Client,
    access: Access,
}

/// The client for consoles, with this key and this authority.
///
/// # Errors
/// If they cannot be used.
pub(crate) fn client(access: Access) -> anyhow::Result<PageClient> {
    // Whoever registered as a frontend chose the address, and shall not send this process to others.
    let builder = reqwest::Client::builder().timeout(ANSWER_WITHIN).no_proxy();
    let mut builder = builder.redirect(reqwest::redirect::Policy::none());
    if let Some(pem) = &access.authority {
        builder = builder.add_root_certificate(reqwest::Certificate::from_pem(pem)?);
    }
    if let Some(bearer) = access.bearer() {
        builder = builder.default_headers([(AUTHORIZATION, HeaderValue::from_str(&bearer)?)].into_iter().collect());
    }
    Ok(PageClient { http: builder.build()?, access })
}

/// A client for a process that serves: what cannot be used of its environment is a line in its log, and no reason not to
/// start.
///
/// # Errors
/// If this system has no client at all.
pub(crate) fn client_of_process() -> anyhow::Result<PageClient> {
    public_access::from_env().and_then(client).or_else(|error| {
        tracing::warn!(error = %format!("{error:#}"), "the console asks frontends without a key");
        client(Access::default())
    })
}

/// The page `/api/view` of a frontend.
///
/// # Errors
/// If it does not answer in time, or with more than a page, or the key would go to it readable.
pub(crate) async fn read(client: &PageClient, frontend: &FrontendView) -> anyhow::Result<Value> {
    get(client, frontend, "/api/view", &[], "status").await
}

/// The last hour of a frontend's requests: all models in short, or one of them.
///
/// # Errors
/// As [`read`].
pub(crate) async fn history<T: DeserializeOwned>(
    client: &PageClient,
    frontend: &FrontendView,
    model: Option<&str>,
) -> anyhow::Result<T> {
    let arguments: Vec<_> = model.map(|model| ("model", model)).into_iter().collect();
    get(client, frontend, "/api/history", &arguments, "console").await
}

async fn get<T: DeserializeOwned>(
    client: &PageClient,
    frontend: &FrontendView,
    path: &str,
    arguments: &[(&str, &str)],
    right: &str,
) -> anyhow::Result<T> {
    // Whoever registered as a frontend chose the address.
    client.access.check(&frontend.console_addr).map_err(anyhow::Error::msg)?;
    let url = format!("{}://{}{path}", client.access.scheme(), frontend.console_addr);
    let mut answer = client.http.get(url).query(arguments).send().await?;
    ensure!(
        !matches!(answer.status().as_u16(), 401 | 403),
        "it wants the key of a tenant with the right `{right}`: name its file by --key-file or SYMPHONY_KEY_FILE"
    );
    let mut page = Vec::new();
    answer.error_for_status_ref()?;
    while let Some(part) = answer.chunk().await? {
        ensure!(page.len() + part.len() <= PAGE_BYTES_MAX, "its page has more than {PAGE_BYTES_MAX} bytes");
        page.extend_from_slice(&part);
    }
    Ok(serde_json::from_slice(&page)?)
}
