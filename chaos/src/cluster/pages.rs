//! What a process says of itself.

use std::time::Duration;

use anyhow::{Context as _, Result};
use symphony_config::Address;

/// How long a process may take to say how it is.
const PAGE_WITHIN: Duration = Duration::from_secs(2);

async fn get(address: &Address, path: &str) -> Result<String> {
    let look = async { reqwest::get(&format!("http://{address}{path}")).await?.error_for_status()?.text().await };
    let looked = tokio::time::timeout(PAGE_WITHIN, look).await;
    Ok(looked.with_context(|| format!("{address} does not say how it is"))??)
}

/// How the process at that address is.
pub(crate) async fn page(address: &Address) -> Result<serde_json::Value> {
    Ok(serde_json::from_str(&get(address, "/api/view").await?)?)
}

/// One of its counters or gauges without labels.
pub(super) async fn metric(address: &Address, name: &str) -> Result<f64> {
    let text = get(address, "/metrics").await?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.with_context(|| format!("{address} has no metric {name}"))?.parse()?)
}
