//! What was measured.

use std::fmt::Write as _;

use serde::Serialize;

use crate::report::{Ledger, Outcome, Summary};

/// A run of `symphony-chaos thousand`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ThousandReport {
    /// `thousand`.
    pub scenario: &'static str,
    /// Whether everything promised held.
    pub outcome: Outcome,
    /// Why it is no pass.
    pub findings: Vec<String>,
    /// Sub-clusters, each with a backend of one GPU and a model.
    pub subclusters: u32,
    /// Of them, those with load.
    pub loaded: u32,
    /// From the start of the backends' process until all were registered.
    pub registered_after_ms: f64,
    /// From the first call until all models were loaded and ready.
    pub models_ready_after_ms: f64,
    /// The idle usage of all processes.
    pub idle: Vec<ProcessUsage>,
    /// For so long it was looked.
    pub idle_secs: f64,
    /// Bytes of one whole view at the end.
    pub whole_view_bytes: usize,
    /// Bytes of the views that all replicas sent until everything was ready.
    pub view_bytes_until_ready: f64,
    /// Bytes of the views sent from the kill until all was well, by those that were left.
    pub view_bytes_in_takeover: f64,
    /// Sub-clusters that the victim led.
    pub led_by_victim: usize,
    /// From the kill until a watcher saw others lead all of them.
    pub named_after_ms: f64,
    /// From the kill until a GPU had promised its new leader's token, over the GPUs of these sub-clusters.
    pub sealed_after_ms: Summary,
    /// From the kill until a model answered in time a request sent after it, over the models with load.
    pub serving_after_ms: Summary,
    /// Log entries that gave these sub-clusters to others.
    pub log_entries: usize,
    /// What became of the requests.
    pub ledger: Ledger,
    /// Plans accepted under a token below one promised before.
    pub stale_tokens_accepted: u64,
    /// Batches that overlapped on a GPU.
    pub overlapping_batches: u64,
}

/// A process at rest.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessUsage {
    /// Its name.
    pub process: String,
    /// Sub-clusters that it led.
    pub leads: usize,
    /// Share of one core.
    pub cpu_percent: f64,
    /// Memory.
    pub rss_mib: u64,
}

impl ThousandReport {
    /// For people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut row = |what: &str, value: String| {
            let _ = writeln!(text, "{what:<44} {value}");
        };
        let three = |of: &Summary| match (of.p50, of.p99, of.max) {
            (Some(p50), Some(p99), Some(max)) => {
                format!("{p50:.0} / {p99:.0} / {max:.0} ms (p50 / p99 / max of {})", of.n)
            }
            _ => "nothing was measured".to_owned(),
        };
        row("outcome", format!("{:?}", self.outcome).to_lowercase());
        row("sub-clusters, of them with load", format!("{}, {}", self.subclusters, self.loaded));
        row("all backends registered after", format!("{:.0} ms", self.registered_after_ms));
        row("all models ready after", format!("{:.0} ms", self.models_ready_after_ms));
        row("whole view", format!("{} bytes", self.whole_view_bytes));
        row("views sent until then", format!("{:.1} MB", self.view_bytes_until_ready / 1e6));
        for usage in &self.idle {
            let ProcessUsage { process, leads, cpu_percent, rss_mib } = usage;
            row(
                &format!("idle for {:.0} s: {process}, leads {leads}", self.idle_secs),
                format!("{cpu_percent:.2} % of a core, {rss_mib} MiB"),
            );
        }
        row("killed: leader of", format!("{} sub-clusters", self.led_by_victim));
        row("others named after", format!("{:.0} ms", self.named_after_ms));
        row("GPUs sealed after", three(&self.sealed_after_ms));
        row("models with load answered after", three(&self.serving_after_ms));
        row("log entries", self.log_entries.to_string());
        row("views sent meanwhile", format!("{:.2} MB", self.view_bytes_in_takeover / 1e6));
        row("requests", format!("{:?}", self.ledger));
        row(
            "stale tokens, overlapping batches",
            format!("{}, {}", self.stale_tokens_accepted, self.overlapping_batches),
        );
        for finding in &self.findings {
            row("finding", finding.clone());
        }
        text
    }
}
