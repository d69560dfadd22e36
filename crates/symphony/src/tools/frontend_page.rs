//! What a frontend's console says of it.

use std::time::Duration;

use serde_json::Value;
use symphony_protocol::view::FrontendView;

/// How long a frontend may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Who asks consoles.
pub(crate) fn client() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder().timeout(ANSWER_WITHIN).no_proxy().build()
}

/// The page `/api/view` of a frontend.
pub(crate) async fn read(client: &reqwest::Client, frontend: &FrontendView) -> anyhow::Result<Value> {
    let url = format!("http://{}/api/view", frontend.console_addr);
    Ok(serde_json::from_slice(&client.get(url).send().await?.error_for_status()?.bytes().await?)?)
}
