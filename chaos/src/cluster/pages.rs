//! A process's own health and metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use symphony_config::Address;

/// How long a process may take to answer.
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

/// The labels of one of its metrics, of each of its series.
pub(super) async fn labels(address: &Address, name: &str) -> Result<Vec<BTreeMap<String, String>>> {
    Ok(labels_in(&get(address, "/metrics").await?, name))
}

fn labels_in(text: &str, name: &str) -> Vec<BTreeMap<String, String>> {
    let series = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.split_once('}'));
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        Some((key.to_owned(), value.trim_matches('"').to_owned()))
    };
    series.map(|(labels, _)| labels.split(',').filter_map(pair).collect()).collect()
}

/// One of its counters or gauges without labels.
pub(super) async fn metric(address: &Address, name: &str) -> Result<f64> {
    let text = get(address, "/metrics").await?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.with_context(|| format!("{address} has no metric {name}"))?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_of_a_metric_has_its_labels_and_no_other_metric_is_taken_for_it() {
        let text = "# TYPE lead info\nlead_info{subcluster=\"s1\",thread=\"decide-0\"} 1\n\
                    lead_info{subcluster=\"s2\",thread=\"decide-1\"} 1\nlead_info_more{subcluster=\"s3\"} 1\n";
        let labels = labels_in(text, "lead_info");
        let of = |key: &str| labels.iter().map(|series| series[key].as_str()).collect::<Vec<_>>();
        assert_eq!((of("subcluster"), of("thread")), (vec!["s1", "s2"], vec!["decide-0", "decide-1"]));
        assert!(labels_in(text, "lead").is_empty());
    }
}
