//! The load of a run, and what became of each of its requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use symphony_config::FrontendConfig;
use symphony_executor::default_signature;
use symphony_load::{
    Answer, ArrivalKind, EmulatedInputs, End, GrpcTarget, InputSet, LagLimits, LoadPlan, ModelLoad, Report, Request,
    Target, run,
};
use symphony_protocol::view::{KindProfile, ModelSource, ModelSpec};
use symphony_types::{FailReason, LatencyProfile, Nanos, RequestValue, Signature};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster::{GPU_KIND, SERVED};
use crate::scenario::{Load, Model};

/// The longest run; a plan needs an end.
const RUN_MAX: Duration = Duration::from_secs(24 * 3600);
/// What the way to a frontend and back, and this process, may add to an SLO: the deadline counts from the frontend's
/// first byte, and an answer that it calls timely is good.
const SLACK: Duration = Duration::from_millis(50);
/// How long answers are waited for at the end.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// How one request ended, by the client's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// No answer yet.
    Open,
    InTime,
    Late,
    Dropped,
    /// With the reason that its frontend gave, if that is one.
    Failed(Option<FailReason>),
}

impl Fate {
    /// For counts in reports.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Open => "unanswered",
            Self::InTime => "in_time",
            Self::Late => "late",
            Self::Dropped => "dropped",
            Self::Failed(reason) => reason.map_or("by the client", FailReason::label),
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    /// Number of the model, from 0.
    pub(crate) model: usize,
    pub(crate) sent: Instant,
    pub(crate) ended: Instant,
    /// Whether another frontend was asked, since the first one could not be.
    pub(crate) asked_again: bool,
    pub(crate) fate: Fate,
}

/// Everything that was observed so far, in the order in which it was sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observations(Arc<Mutex<Vec<Observation>>>);

impl Observations {
    fn begin(&self, model: usize) -> usize {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = Instant::now();
        all.push(Observation { model, sent, ended: sent, asked_again: false, fate: Fate::Open });
        all.len() - 1
    }

    fn end(&self, index: usize, judge: impl FnOnce(Duration) -> Fate) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = Instant::now();
        if let Some(one) = all.get_mut(index) {
            (one.ended, one.fate) = (ended, judge(ended - one.sent));
        }
    }

    fn ask_again(&self, index: usize) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = all.get_mut(index) {
            one.asked_again = true;
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Observation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When the first request of a model that was sent at `since` or later was answered in time; none if none was yet.
    pub(crate) fn first_good(&self, model: usize, since: Instant) -> Option<Instant> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = all.partition_point(|one| one.sent < since);
        all[from..].iter().filter(|one| one.model == model && one.fate == Fate::InTime).map(|one| one.ended).min()
    }
}

/// The longest time within [from, to] in which none of the instants lies.
pub(crate) fn longest_gap(times: impl IntoIterator<Item = Instant>, from: Instant, to: Instant) -> Duration {
    let mut times: Vec<_> = times.into_iter().filter(|time| (from..to).contains(time)).collect();
    times.sort_unstable();
    times.push(to);
    let mut before = from;
    let mut longest = Duration::ZERO;
    for time in times {
        longest = longest.max(time - before);
        before = time;
    }
    longest
}

/// Whether a client has to ask another frontend: this one cannot be reached, ended meanwhile, or takes no requests.
fn asks_another(end: &End) -> bool {
    let reasons = ["cannot_connect", "connection_lost", FailReason::Draining.label()];
    matches!(end, End::Failed(why) if reasons.contains(&&**why))
}

/// All frontends in turn, observed. As clients have to, it asks the next one, once, where one is gone or drains.
struct Observed<T> {
    targets: Vec<T>,
    /// Each model's own: models take turns themselves, and would else always meet the same frontend.
    turns: Vec<AtomicUsize>,
    models: Vec<Arc<str>>,
    /// What a client grants each: the SLO, and what the way and this process may add.
    within: Vec<Duration>,
    observations: Observations,
}

impl<T: Target> Target for Observed<T> {
    async fn send(&self, request: Request) -> Answer {
        let model = self.models.iter().position(|name| *name == request.model).unwrap_or_default();
        let (frontends, turn) = (self.targets.len(), self.turns[model].fetch_add(1, Ordering::Relaxed));
        let index = self.observations.begin(model);
        let again = (frontends > 1).then(|| request.clone());
        let mut answer = self.targets[turn % frontends].send(request).await;
        if asks_another(&answer.end)
            && let Some(request) = again
        {
            self.observations.ask_again(index);
            answer = self.targets[(turn + 1) % frontends].send(request).await;
        }
        self.observations.end(index, |took| match &answer.end {
            End::Ok if took <= self.within[model] => Fate::InTime,
            End::Ok | End::Late => Fate::Late,
            End::Refused(_) | End::Dropped(_) => Fate::Dropped,
            End::Failed(why) => Fate::Failed(FailReason::ALL.iter().copied().find(|reason| reason.label() == *why)),
        });
        answer
    }
}

/// The load while it runs.
pub(crate) struct RunningLoad {
    pub(crate) observations: Observations,
    /// The pacing thread ends with it, also if the run is given up.
    stop: DropGuard,
    task: JoinHandle<Result<Report, symphony_load::PlanError>>,
}

impl RunningLoad {
    /// Starts it on all models.
    pub(crate) async fn start(
        load: &Load,
        specs: &[ModelSpec],
        frontends: &[FrontendConfig],
        seed: u64,
    ) -> Result<Self> {
        Self::start_on(load, model_loads(load, specs, seed), frontends, seed).await
    }

    /// The same on these.
    pub(crate) async fn start_on(
        load: &Load,
        models: Vec<ModelLoad>,
        frontends: &[FrontendConfig],
        seed: u64,
    ) -> Result<Self> {
        let mut targets = Vec::new();
        for frontend in frontends {
            targets.push(GrpcTarget::connect(&frontend.grpc.to_string(), load.connections).await?);
        }
        let lag = LagLimits {
            p99: Duration::from_secs_f64(load.lag_p99_ms / 1e3),
            max: Duration::from_secs_f64(load.lag_max_ms / 1e3),
        };
        let observations = Observations::default();
        let target = Observed {
            targets,
            turns: models.iter().map(|_| AtomicUsize::new(0)).collect(),
            models: models.iter().map(|model| Arc::clone(&model.model)).collect(),
            within: models.iter().map(|model| model.slo + model.slack).collect(),
            observations: observations.clone(),
        };
        let plan = LoadPlan { seed, warmup: Duration::ZERO, duration: RUN_MAX, grace: GRACE, lag, models };
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(plan, Arc::new(target), stop.clone()));
        Ok(Self { observations, stop: stop.drop_guard(), task })
    }

    /// Stops sending, waits for the answers, and gives the generator's own report.
    pub(crate) async fn finish(self) -> Result<Report> {
        drop(self.stop);
        Ok(self.task.await??)
    }
}

/// What is sent to emulated models.
pub(crate) fn model_loads(load: &Load, specs: &[ModelSpec], seed: u64) -> Vec<ModelLoad> {
    let inputs = |spec: &ModelSpec| Arc::new(EmulatedInputs::new(&spec.signature, 1, seed));
    specs.iter().map(|spec| load_of(load, &spec.name, spec.slo, inputs(spec))).collect()
}

/// The load for a model or pipeline of this name and SLO.
pub(crate) fn load_of(load: &Load, name: &str, slo: Nanos, inputs: Arc<dyn InputSet>) -> ModelLoad {
    ModelLoad {
        model: name.into(),
        rate_rps: load.rate_rps,
        arrival: ArrivalKind::Uniform,
        recorded: None,
        slo: slo.into(),
        slack: SLACK,
        timeout: None,
        inputs,
    }
}

/// The model of each sub-cluster.
pub(crate) fn specs(model: &Model, subclusters: &[String]) -> Result<Vec<ModelSpec>> {
    let spec =
        |subcluster: &String| emulated_model(model, format!("{SERVED}{subcluster}"), subcluster, default_signature());
    subclusters.iter().map(spec).collect()
}

/// A model as the scenario has them.
pub(crate) fn emulated_model(model: &Model, name: String, subcluster: &str, signature: Signature) -> Result<ModelSpec> {
    let latency = LatencyProfile::from_line(model.alpha_ms, model.beta_ms, model.batch_max)?;
    let profile = KindProfile { latency, static_memory_bytes: 2 << 30, dynamic_memory_bytes: 1 << 30 };
    Ok(ModelSpec {
        name,
        subcluster: subcluster.to_owned(),
        slo: Nanos::from_millis_f64(model.slo_ms),
        source: ModelSource::Emulated,
        signature,
        transforms: Default::default(),
        profiles: [(GPU_KIND.to_owned(), profile)].into(),
        policy: model.policy,
        value: RequestValue::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_counts_the_edges_and_forgets_the_order() {
        let (zero, ms) = (Instant::now(), Duration::from_millis(1));
        let gap = |times: &[u32], from: u32, to: u32| {
            longest_gap(times.iter().map(|&at| zero + at * ms), zero + from * ms, zero + to * ms).as_millis()
        };
        assert_eq!(gap(&[], 10, 30), 20);
        assert_eq!(gap(&[500, 100, 120, 900, 880], 0, 1000), 380);
        assert_eq!(gap(&[100, 120, 500], 0, 110), 100);
        assert_eq!(gap(&[880, 900], 880, 2000), 1100);
    }

    #[test]
    fn the_first_good_answer_since_a_moment_was_also_sent_since() {
        let observations = Observations::default();
        let early = observations.begin(0);
        let since = Instant::now();
        assert_eq!(observations.first_good(0, since), None);
        observations.end(early, |_| Fate::InTime);
        assert_eq!(observations.first_good(0, since), None, "it was sent before");
        for (model, fate) in [(0, Fate::Late), (1, Fate::InTime), (0, Fate::InTime)] {
            let index = observations.begin(model);
            observations.end(index, |_| fate);
        }
        assert_eq!(observations.first_good(0, since), Some(observations.all()[3].ended));
    }

    /// A frontend at which every request ends like this, and how many came.
    struct Fake(End, AtomicUsize);

    impl Target for Fake {
        async fn send(&self, _: Request) -> Answer {
            self.1.fetch_add(1, Ordering::Relaxed);
            Answer::ended(self.0.clone())
        }
    }

    /// How many requests each of these frontends got if the one whose turn it is is asked, how that ended, and whether
    /// another one was asked.
    async fn sent(turn: usize, ends: &[End]) -> (Vec<usize>, Fate, bool) {
        let target = Observed {
            targets: ends.iter().map(|end| Fake(end.clone(), AtomicUsize::new(0))).collect(),
            turns: vec![AtomicUsize::new(turn)],
            models: vec!["m".into()],
            within: vec![Duration::MAX],
            observations: Observations::default(),
        };
        let request = Request { id: 1, model: "m".into(), items: 1, inputs: vec![], pictures: None, timeout: None };
        target.send(request).await;
        let asked = target.targets.iter().map(|frontend| frontend.1.load(Ordering::Relaxed)).collect();
        let Observation { fate, asked_again, .. } = target.observations.all()[0];
        (asked, fate, asked_again)
    }

    #[tokio::test]
    async fn a_request_goes_to_the_next_frontend_once_if_its_own_is_gone_or_drains() {
        let failed = |why: &'static str| End::Failed(why.into());
        for why in ["cannot_connect", "connection_lost", "draining"] {
            assert_eq!(sent(0, &[failed(why), End::Ok]).await, (vec![1, 1], Fate::InTime, true), "{why}");
        }
        let gone = failed("cannot_connect");
        assert_eq!(sent(1, &[End::Ok, gone.clone()]).await, (vec![1, 1], Fate::InTime, true), "the first is the next");
        let all_gone = [gone.clone(), gone.clone(), End::Ok];
        assert_eq!(sent(0, &all_gone).await, (vec![1, 1, 0], Fate::Failed(None), true), "once");
        assert_eq!(sent(0, &[gone]).await, (vec![1], Fate::Failed(None), false), "there is no other");
        for end in [failed("payload_lost"), End::Dropped("shed".into()), End::Late] {
            let (asked, _, asked_again) = sent(0, &[end, End::Ok]).await;
            assert_eq!((asked, asked_again), (vec![1, 0], false), "no other would answer better");
        }
    }
}
