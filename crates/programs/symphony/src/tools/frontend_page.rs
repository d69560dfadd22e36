//! Reads the console page of a frontend.

use std::time::Duration;

use anyhow::ensure;
use serde_json::Value;
use symphony_protocol::view::FrontendView;

/// The timeout of a frontend's answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The largest page in bytes: about 200 for each model and link.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// The HTTP client for consoles.
pub(crate) fn client() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder().timeout(ANSWER_WITHIN).no_proxy().build()
}

/// The page `/api/view` of a frontend.
///
/// # Errors
/// If it does not answer in time, or with more than a page.
pub(crate) async fn read(client: &reqwest::Client, frontend: &FrontendView) -> anyhow::Result<Value> {
    let url = format!("http://{}/api/view", frontend.console_addr);
    let (mut answer, mut page) = (client.get(url).send().await?.error_for_status()?, Vec::new());
    while let Some(part) = answer.chunk().await? {
        ensure!(page.len() + part.len() <= PAGE_BYTES_MAX, "its page has more than {PAGE_BYTES_MAX} bytes");
        page.extend_from_slice(&part);
    }
    Ok(serde_json::from_slice(&page)?)
}
