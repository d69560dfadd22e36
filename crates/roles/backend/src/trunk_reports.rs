//! Tells the cluster where the models that this backend has loaded can be cut, and takes a cut back if a model that
//! shares its trunk there answers differently in parts than whole (docs/adr/0045-prefix-batching.md).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_executor::{FamilyFile, OnnxOptions, Stop};
use symphony_protocol::control as pb;
use symphony_protocol::view::{ModelSource, ModelSpec, View, cuts_to_pb};
use symphony_transport::ControlClient;
use symphony_types::{CutDigest, Level, ModelId};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::engine::{OnnxEngine, run_within};
use crate::gpu_time::{GAP_WITHIN, GpuTime};
use crate::plan_intake::BackendIdentity;

/// How long a report may take.
const REPORT_WITHIN: Duration = Duration::from_secs(10);
/// A lost report is repeated at this pace.
const REPORT_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Rows of the largest batch in which a model is compared with its parts.
const ROWS_MAX: u32 = 8;

/// What is found out about a model, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// Where it can be cut.
    Cuts,
    /// Whether it answers in parts as it does whole, if it is cut there.
    SameInParts(CutDigest),
}

/// What this backend knows about a model.
#[derive(Clone, Debug, Default)]
struct Found {
    /// Where it can be cut.
    cuts: Vec<CutDigest>,
    /// The cut at which its parts answered as the whole did.
    compared: Option<CutDigest>,
    reported: Option<Instant>,
}

/// What this backend knows about its models.
#[derive(Debug)]
struct Findings {
    identity: BackendIdentity,
    models: BTreeMap<ModelId, Found>,
}

impl Findings {
    /// The next question: of a model that this boot has loaded, so that no answer delays a load.
    fn next<'a>(&self, view: &'a View) -> Option<(ModelId, &'a ModelSpec, Question)> {
        view.models.iter().find_map(|(&id, model)| {
            let holder = model.holders.get(&self.identity.backend)?;
            let is_loaded = holder.boot == self.identity.boot && holder.state.is_ok();
            if !is_loaded || !matches!(model.spec.source, ModelSource::Onnx(_)) {
                return None;
            }
            let question = match (self.models.get(&id), model.shared_trunk()) {
                (None, _) => Question::Cuts,
                (Some(found), Some(cut)) if found.cuts.contains(&cut) && found.compared != Some(cut) => {
                    Question::SameInParts(cut)
                }
                (Some(_), _) => return None,
            };
            Some((id, &model.spec, question))
        })
    }

    fn answered(&mut self, model: ModelId, name: &str, question: Question, answer: Result<Vec<CutDigest>, String>) {
        let found = self.models.entry(model).or_default();
        match (question, answer) {
            (Question::Cuts, Ok(cuts)) => found.cuts = cuts,
            (Question::Cuts, Err(reason)) => {
                tracing::info!(%model, name, %reason, "shares its trunk with no other model");
            }
            (Question::SameInParts(cut), Ok(_)) => found.compared = Some(cut),
            (Question::SameInParts(cut), Err(reason)) => {
                tracing::warn!(%model, name, %cut, %reason, "does not share that trunk: it is served whole");
                found.cuts.retain(|other| *other != cut);
                found.reported = None;
            }
        }
    }

    /// The models whose cuts the view does not show as this backend has found them, and which it has not just reported.
    fn due_reports(&mut self, view: &View) -> Vec<(ModelId, Vec<CutDigest>)> {
        self.models.retain(|id, _| view.models.contains_key(id));
        let mut reports = Vec::new();
        for (&id, found) in &mut self.models {
            let shown = view.models.get(&id).and_then(|model| model.trunk.as_ref());
            let is_shown = shown.is_some_and(|trunk| trunk.cuts.iter().all(|cut| found.cuts.contains(cut)));
            if !is_shown && found.reported.is_none_or(|at| at.elapsed() >= REPORT_AGAIN_AFTER) {
                found.reported = Some(Instant::now());
                reports.push((id, found.cuts.clone()));
            }
        }
        reports
    }
}

/// Aborts, when dropped, the batches of an answer that is no longer awaited.
#[derive(Default)]
struct WaitedFor(Stop);

impl Drop for WaitedFor {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Looks at the models of a backend that runs ONNX files.
pub(crate) struct TrunkReports {
    pub(crate) identity: BackendIdentity,
    /// Kind of each GPU.
    pub(crate) kinds: Vec<String>,
    /// The gaps between plans, by GPU.
    pub(crate) times: Vec<Arc<GpuTime>>,
    /// The permit to load: what this takes of memory is not measured as that of a model.
    pub(crate) loading: Arc<Semaphore>,
    pub(crate) onnx: OnnxEngine,
    pub(crate) control: ControlClient,
    pub(crate) view: watch::Receiver<Arc<View>>,
}

impl TrunkReports {
    pub(crate) async fn run(mut self, ended: CancellationToken) {
        let mut findings = Findings { identity: self.identity.clone(), models: BTreeMap::new() };
        loop {
            let view = Arc::clone(&self.view.borrow_and_update());
            // Below that level it could not be reported.
            if view.level >= Level::WITH_FAMILIES {
                findings.due_reports(&view).into_iter().for_each(|(model, cuts)| self.report(model, &cuts));
                if let Some((model, spec, question)) = findings.next(&view) {
                    let answer = self.answer(spec, question);
                    let Some(answer) = ended.run_until_cancelled(answer).await else { return };
                    findings.answered(model, &spec.name, question, answer);
                    continue;
                }
            }
            tokio::select! {
                () = ended.cancelled() => return,
                changed = self.view.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(REPORT_AGAIN_AFTER) => {}
            }
        }
    }

    /// Answers a question on a thread that may block, alone among loads. Without cuts if there was nothing to find. A
    /// model that does not end, or an answer that is no longer awaited, does not keep others from being loaded.
    fn answer(
        &self,
        spec: &ModelSpec,
        question: Question,
    ) -> impl Future<Output = Result<Vec<CutDigest>, String>> + use<> {
        let (onnx, spec, time) = (self.onnx.clone(), spec.clone(), self.times.first().cloned());
        let (kind, turns) = (self.kinds.first().cloned().unwrap_or_default(), Arc::clone(&self.loading));
        let waited_for = WaitedFor::default();
        let stop = waited_for.0.clone();
        let answer = move || {
            let profile = spec.profiles.get(&kind).ok_or_else(|| format!("no profile for GPU kind `{kind}`"))?;
            let (path, options) = onnx.options(&spec, &profile.latency)?;
            let file = FamilyFile::read(&path).map_err(|error| error.to_string())?;
            let cut = match question {
                Question::Cuts => return file.cuts().map_err(|error| error.to_string()),
                Question::SameInParts(cut) => cut,
            };
            let options = OnnxOptions { batch_max: options.batch_max.min(ROWS_MAX), ..options };
            if let Some(time) = time {
                time.wait_for_gap(GAP_WITHIN);
            }
            let limit = (&stop, run_within(&profile.latency));
            file.check(&onnx.runtime, cut, &options, limit).map(|()| Vec::new()).map_err(|error| error.to_string())
        };
        async move {
            let turn = turns.acquire_owned().await;
            let answer = tokio::task::spawn_blocking(move || {
                let answer = answer();
                drop(turn);
                answer
            });
            let answer = answer.await.unwrap_or_else(|error| Err(format!("it could not be looked at: {error}")));
            drop(waited_for);
            answer
        }
    }

    fn report(&self, model: ModelId, cuts: &[CutDigest]) {
        let request = pb::ReportCutsRequest {
            model: model.get(),
            backend: self.identity.backend.get(),
            boot_id: self.identity.boot.get(),
            cuts: cuts_to_pb(cuts),
        };
        let control = self.control.clone();
        tokio::spawn(async move {
            let call = |mut client: pb::control_client::ControlClient<_>| {
                let request = request.clone();
                async move { client.report_cuts(request).await }
            };
            if let Err(error) = control.call(REPORT_WITHIN, call).await {
                tracing::warn!(%model, %error, "cannot report where the model can be cut; will try again");
            }
        });
    }
}

#[cfg(test)]
mod tests;
