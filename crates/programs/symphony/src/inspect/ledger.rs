//! `symphony get ledger`: the outcomes of requests, as counted by their frontends.

use serde_json::{Value, json};
use symphony_frontend::LedgerCounts;
use symphony_protocol::view::{FrontendView, View};

use super::Shown;
use super::frontend_page::{self, PageClient};

/// A ledger in the format of the console and this tool.
pub(crate) fn json(counts: &LedgerCounts, in_flight: u64) -> Value {
    json!({ "counts": counts, "in_flight": in_flight, "lost": counts.lost(in_flight),
            "duplicate_execution_ratio": counts.duplicate_ratio() })
}

/// The ledgers of all frontends, and their sum.
///
/// Each is read while requests run and may miss those that are just ending. A frontend's ledger ends with its process,
/// as do its clients' connections.
pub(crate) async fn show(view: &View, client: &PageClient) -> anyhow::Result<Shown> {
    let (mut rows, mut frontends) = (Vec::new(), Vec::new());
    let (mut sum, mut open, mut unreachable) = (LedgerCounts::default(), 0, 0);
    let calls = view.frontends.iter().map(|(id, frontend)| {
        let client = client.clone();
        async move { (*id, frontend, read(&client, frontend).await) }
    });
    for (id, frontend, ledger) in futures::future::join_all(calls).await {
        match ledger {
            Ok((counts, in_flight)) => {
                rows.push(row(&frontend.name, &counts, in_flight));
                let mut shown = json(&counts, in_flight);
                shown["id"] = json!(id.to_string());
                shown["name"] = json!(frontend.name);
                frontends.push(shown);
                sum = sum.plus(counts);
                open += in_flight;
            }
            Err(error) => {
                unreachable += 1;
                eprintln!("frontend {} at {} does not answer: {error:#}", frontend.name, frontend.console_addr);
                frontends.push(json!({ "id": id.to_string(), "name": frontend.name, "error": format!("{error:#}") }));
            }
        }
    }
    rows.push(row("all", &sum, open));
    let mut total = json(&sum, open);
    total["frontends_unreachable"] = json!(unreachable);
    let json = json!({ "cluster": total, "frontends": frontends });
    let header =
        &["FRONTEND", "ACCEPTED", "IN TIME", "LATE", "DROPPED", "FAILED", "CANCELLED", "OPEN", "LOST", "DUPLICATES"];
    Ok((header, rows, json))
}

fn row(name: &str, counts: &LedgerCounts, open: u64) -> Vec<String> {
    let LedgerCounts { accepted, in_time, late, dropped, failed, cancelled, .. } = *counts;
    let numbers = [accepted, in_time, late, dropped, failed, cancelled, open].map(|n| n.to_string());
    let duplicates = format!("{:.4} %", counts.duplicate_ratio() * 100.0);
    [name.to_owned()].into_iter().chain(numbers).chain([counts.lost(open).to_string(), duplicates]).collect()
}

async fn read(client: &PageClient, frontend: &FrontendView) -> anyhow::Result<(LedgerCounts, u64)> {
    let page = frontend_page::read(client, frontend).await?;
    let ledger = &page["ledger"];
    let counts = serde_json::from_value(ledger["counts"].clone())?;
    let in_flight = ledger["in_flight"].as_u64().ok_or_else(|| anyhow::anyhow!("it does not say what is in flight"))?;
    Ok((counts, in_flight))
}
