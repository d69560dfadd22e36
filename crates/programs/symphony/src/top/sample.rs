//! One look at a cluster: its view, and what its frontends have counted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::Value;
use symphony_protocol::view::{FrontendView, View};
use symphony_transport::ControlClient;
use symphony_types::{BootId, FrontendId};

use crate::cli::ClusterArgs;
use crate::tools::frontend_page;

/// How long to look for a replica that answers: longer is a line on the screen.
const LOOK_WITHIN: Duration = Duration::from_secs(2);
/// How many frontends are asked at the same time.
const FRONTENDS_ASKED_MAX: usize = 64;

/// What was there at a time, and what had been counted by then.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// When it was taken, from the begin of the program on.
    pub(super) at: Duration,
    /// The cluster, as the leader of its control group knows it.
    pub(super) view: View,
    /// What each frontend has counted, or why that is not known.
    pub(super) frontends: BTreeMap<FrontendId, Result<FrontendCounts, String>>,
}

/// What a life of a frontend has counted, by the names of models. A model without a request is not among them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FrontendCounts {
    pub(super) boot: BootId,
    pub(super) models: BTreeMap<String, ModelCounts>,
}

/// Requests of a model by their outcome, and the batches that they ran in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct ModelCounts {
    /// Those that have an outcome.
    pub(super) received: u64,
    pub(super) in_time: u64,
    pub(super) late: u64,
    pub(super) dropped: u64,
    pub(super) failed: u64,
    /// Items of those that ran, and how many batches that were: a batch that a request had a third of is a third of
    /// one.
    pub(super) executed_items: u64,
    pub(super) executed_batches: f64,
}

/// Takes samples.
#[derive(Debug)]
pub(super) struct Sampler {
    control: ControlClient,
    http: reqwest::Client,
}

impl Sampler {
    pub(super) fn new(cluster: &ClusterArgs) -> anyhow::Result<Self> {
        Ok(Self { control: cluster.control()?, http: frontend_page::client()? })
    }

    /// The cluster now. `began` is when the program did.
    ///
    /// # Errors
    /// If no replica answers for the cluster. A frontend that does not answer is in the sample as such.
    pub(super) async fn take(&self, began: Instant) -> anyhow::Result<Sample> {
        let view = self.control.get(true, LOOK_WITHIN).await?;
        let at = began.elapsed();
        let asked = view.frontends.iter().filter(|(_, frontend)| !frontend.has_left());
        let asked: Vec<_> = asked.map(|(&id, frontend)| (id, frontend.clone())).collect();
        let answers = futures::stream::iter(asked).map(|(id, frontend)| {
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

/// What the page of a frontend says of models; of one that it says nothing of, or something else, nothing was counted.
fn counts(frontend: &FrontendView, page: &Value) -> FrontendCounts {
    let models = page["models"].as_array().into_iter().flatten().filter_map(|model| {
        let counted = ModelCounts::deserialize(&model["counts"]).ok()?;
        Some((model["name"].as_str()?.to_owned(), counted))
    });
    FrontendCounts { boot: frontend.boot, models: models.collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_is_read_and_what_it_does_not_say_is_nothing() {
        let frontend = FrontendView { boot: BootId::new(7), ..FrontendView::default() };
        let counted = json!({ "received": 9, "in_time": 5, "late": 1, "dropped": 2, "failed": 1, "cancelled": 0,
                              "executed_items": 6, "executed_batches": 2.5 });
        let page =
            json!({ "models": [{ "name": "m", "counts": counted }, { "name": "idle", "counts": {} }, { "name": 3 }] });
        let m = ModelCounts {
            received: 9,
            in_time: 5,
            late: 1,
            dropped: 2,
            failed: 1,
            executed_items: 6,
            executed_batches: 2.5,
        };
        let models = [("m".to_owned(), m), ("idle".to_owned(), ModelCounts::default())].into();
        assert_eq!(counts(&frontend, &page), FrontendCounts { boot: frontend.boot, models });
        for strange in [json!(null), json!({ "models": 3 }), json!({ "models": [{ "name": "m", "counts": [] }] })] {
            assert!(counts(&frontend, &strange).models.values().all(|m| *m == ModelCounts::default()), "{strange}");
        }
    }
}
