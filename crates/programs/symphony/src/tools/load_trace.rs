//! Recorded requests for `symphony load`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use symphony_load::DueRequest;
use symphony_workload::{ModelMap, Rest, Window};

use super::{arrivals_file, trace};
use crate::exit::bad_input;

/// One model's part of a load, as it was asked for.
pub(super) struct LoadedModel {
    /// The words that asked for it, for messages.
    pub(super) given: String,
    pub(super) name: String,
    /// Requests per second, unless they are recorded.
    pub(super) rate_rps: f64,
    pub(super) recorded: Option<Arc<[DueRequest]>>,
    /// Items of every request, or of the n-th.
    pub(super) items: Arc<[u32]>,
}

impl LoadedModel {
    /// The first moment after its last recorded request.
    pub(super) fn ends(&self) -> Option<Duration> {
        Some(self.recorded.as_ref()?.last()?.due + Duration::from_nanos(1))
    }
}

/// The models of a CSV of arrivals. The way into it is told with `given`, as on the command line.
pub(super) fn models_of_trace(path: &Path, speed: f64, map: &[(String, String)]) -> anyhow::Result<Vec<LoadedModel>> {
    let mut arrivals = arrivals_file::read(path)?;
    arrivals.cut(Window::ALL, arrivals_file::checked_speed(speed)?).map_err(bad_input)?;
    let map = ModelMap { named: trace::named(map)?, rest: Rest::Keep };
    arrivals.map(&map).map_err(|error| bad_input(format!("--map: {error}")))?;
    let given = |name: &str| format!("--trace {}: `{name}`", path.display());
    let mut requests: Vec<(Vec<DueRequest>, Vec<u32>)> = vec![Default::default(); arrivals.sources.len()];
    for row in &arrivals.rows {
        let (due, items) = &mut requests[row.source as usize];
        due.push(DueRequest { due: row.at.into(), slo: row.slo.map(Duration::from) });
        items.push(row.items.unwrap_or(1));
    }
    let models = arrivals.sources.into_iter().zip(requests);
    let models = models.map(|(name, (due, items))| -> anyhow::Result<LoadedModel> {
        if name.is_empty() {
            let path = path.display();
            return Err(bad_input(format!(
                "--trace {path}: {} arrivals name no model; expected a model in each row (`symphony trace convert --from \
                 arrivals --models …` gives them one)",
                due.len()
            )));
        }
        let (given, recorded) = (given(&name), Some(due.into()));
        Ok(LoadedModel { given, name, rate_rps: 0.0, recorded, items: items.into() })
    });
    models.collect()
}
