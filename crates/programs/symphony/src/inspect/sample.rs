//! A sample of a cluster: its view, and its frontends' counters.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::{Value, json};
use symphony_protocol::view::{FrontendView, View};
use symphony_telemetry::buckets::REQUEST_SECONDS;
use symphony_transport::ControlClient;
use symphony_types::{BootId, FrontendId};

use super::frontend_page::{self, PageClient};
use crate::cli::{ClusterArgs, PublicArgs};

/// The timeout for finding a replica that answers: a longer silence is shown on the screen.
const VIEW_WITHIN: Duration = Duration::from_secs(2);
/// The number of frontends asked concurrently.
const FRONTENDS_ASKED_MAX: usize = 64;

/// The state at a point in time, with the counters so far.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Its time since the start of the program.
    pub(crate) at: Duration,
    /// The cluster's view, from the leader of its control group.
    pub(crate) view: View,
    /// The counters of each frontend, or why they are unknown.
    pub(crate) frontends: BTreeMap<FrontendId, Result<FrontendCounts, String>>,
}

impl Sample {
    /// A sample from a view, without frontends.
    pub(crate) const fn of_view(at: Duration, view: View) -> Self {
        Self { at, view, frontends: BTreeMap::new() }
    }
}

/// The counters of a frontend's boot by model name, without models that had no requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FrontendCounts {
    pub(crate) boot: BootId,
    pub(crate) models: BTreeMap<String, ModelCounts>,
}

/// Requests of a model by outcome, and their batches.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ModelCounts {
    /// The requests with an outcome.
    pub(crate) received: u64,
    pub(crate) in_time: u64,
    pub(crate) late: u64,
    pub(crate) dropped: u64,
    pub(crate) failed: u64,
    /// Items of executed requests, and the number of their batches: a request with a third of a batch's items counts as
    /// a third of a batch.
    pub(crate) executed_items: u64,
    pub(crate) executed_batches: f64,
    /// Requests that were refused before they were accepted.
    pub(crate) refused: u64,
    /// Requests with an outcome by the time that took, in the buckets of [`REQUEST_SECONDS`]; empty from a frontend
    /// that counts by others.
    ///
    /// [`REQUEST_SECONDS`]: symphony_telemetry::buckets::REQUEST_SECONDS
    pub(crate) latency_counts: Vec<u64>,
}

/// Takes samples.
#[derive(Debug)]
pub(crate) struct Sampler {
    control: ControlClient,
    http: PageClient,
}

impl Sampler {
    pub(crate) fn new(cluster: &ClusterArgs, public: &PublicArgs) -> anyhow::Result<Self> {
        Ok(Self { control: cluster.control()?, http: frontend_page::client(public.access(cluster)?)? })
    }

    /// Takes a sample. `began`: the start of the program.
    ///
    /// # Errors
    /// If no replica answers for the cluster. A frontend that does not answer is recorded as such in the sample.
    pub(crate) async fn take(&self, began: Instant) -> anyhow::Result<Sample> {
        let view = self.control.get(true, VIEW_WITHIN).await?;
        let at = began.elapsed();
        let queried = view.frontends.iter().filter(|(_, frontend)| !frontend.has_left());
        let queried: Vec<_> = queried.map(|(&id, frontend)| (id, frontend.clone())).collect();
        let answers = futures::stream::iter(queried).map(|(id, frontend)| {
            let http = self.http.clone();
            async move {
                let page = frontend_page::read(&http, &frontend).await;
                (id, page.map(|page| counts(&frontend, &page)).map_err(|error| format!("{error:#}")))
            }
        });
        let frontends = answers.buffer_unordered(FRONTENDS_ASKED_MAX).collect().await;
        Ok(Sample { at, view, frontends })
    }
}

/// The models' counters in a frontend's page; missing or invalid ones count as zero.
fn counts(frontend: &FrontendView, page: &Value) -> FrontendCounts {
    let same_buckets = page["latency_bounds_s"] == json!(REQUEST_SECONDS.as_slice());
    let models = page["models"].as_array().into_iter().flatten().filter_map(|model| {
        let mut counted = ModelCounts::deserialize(&model["counts"]).ok()?;
        if !same_buckets {
            counted.latency_counts.clear();
        }
        Some((model["name"].as_str()?.to_owned(), counted))
    });
    FrontendCounts { boot: frontend.boot, models: models.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_and_what_it_does_not_say_is_nothing() {
        let frontend = FrontendView { boot: BootId::new(7), ..FrontendView::default() };
        let counted = json!({ "received": 9, "in_time": 5, "late": 1, "dropped": 2, "failed": 1, "cancelled": 0,
                              "executed_items": 6, "executed_batches": 2.5, "refused": 3, "latency_counts": [1, 2] });
        let page = json!({ "latency_bounds_s": REQUEST_SECONDS.as_slice(), "models": [{ "name": "m", "counts": counted }, { "name": "idle", "counts": {} }, { "name": 3 }] });
        let m = ModelCounts {
            received: 9,
            in_time: 5,
            late: 1,
            dropped: 2,
            failed: 1,
            executed_items: 6,
            executed_batches: 2.5,
            refused: 3,
            latency_counts: vec![1, 2],
        };
        let mut other = page.clone();
        other["latency_bounds_s"] = json!([1.0]);
        assert_eq!(counts(&frontend, &other).models["m"].latency_counts, [0; 0], "counted by other bounds");
        let models = [("m".to_owned(), m), ("idle".to_owned(), ModelCounts::default())].into();
        assert_eq!(counts(&frontend, &page), FrontendCounts { boot: frontend.boot, models });
        for strange in [json!(null), json!({ "models": 3 }), json!({ "models": [{ "name": "m", "counts": [] }] })] {
            assert!(counts(&frontend, &strange).models.values().all(|m| *m == ModelCounts::default()), "{strange}");
        }
    }
}
