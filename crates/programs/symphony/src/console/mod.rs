//! The console's answers about the whole cluster, from any process of it.
//!
//! [`Console`] asks the control group and the frontends, as `top` does; [`cluster`], [`model`] and [`timeline`] make
//! answers of what they say, and are pure.

mod answers;
mod asking;
mod cluster;
mod model;
#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod scene;
mod timeline;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use symphony_explain::PipelineExplanation;
use symphony_net::Net;
use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient as Grpc;
use symphony_protocol::control::explain_request::Question;
use symphony_protocol::view::{FrontendView, View};
use symphony_telemetry::history::{Counted, Overview, Series};
use symphony_telemetry::{ConsoleAnswer, ConsoleQuestion, PageRefusal};
use symphony_transport::ControlClient;
use symphony_types::{ModelId, RequestId};

use self::answers::{Answers, FRESH};
use self::asking::ask_by;
use crate::inspect::explanations;
use crate::inspect::frontend_page::{self, Explained, PageClient};
use crate::inspect::sample::Sample;
use crate::top::Window;

/// How long the leader of the control group has to answer; then any replica is asked.
const LEADER_WITHIN: Duration = Duration::from_secs(2);
/// How long any replica has; then what this process knew last is shown.
const REPLICA_WITHIN: Duration = Duration::from_secs(1);
/// How long a leader may take to explain a request or its last batches: people wait for it.
const BATCHES_WITHIN: Duration = Duration::from_secs(2);
/// How long everything may take, the wait for the same question of others included; the page waits a little longer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(6);
/// How long gathering may take: what came by then is the answer, and a moment is left to make it.
const GATHERED_WITHIN: Duration = Duration::from_secs(5);
/// Requests that are explained at a time: each is a question to every scheduler replica.
const EXPLAINED_AT_A_TIME_MAX: usize = 4;
/// Frontends that are named of those that do not answer.
const SILENT_NAMED_MAX: usize = 16;
/// The span of GPU times: leads report once a second, and every four seconds while nothing changes.
const GPUS_OVER: Duration = Duration::from_secs(5);

/// Which process this is.
#[derive(Clone, Debug)]
pub(crate) struct ProcessInfo {
    pub(crate) role: &'static str,
    pub(crate) name: String,
    /// What people must know about the values it shows.
    pub(crate) note: Option<String>,
}

/// The last hour of the models, or of one.
type History = Box<dyn Fn(Option<&str>) -> Value + Send + Sync>;

/// What a frontend knows about its own requests: it needs no key to ask itself.
pub(crate) struct OwnRequests {
    /// Its last hour, as its `/api/history` shows it.
    pub(crate) history: History,
    /// What became of a request for a pipeline, as its `/api/explain` shows it.
    pub(crate) explain: Box<dyn Fn(RequestId) -> Value + Send + Sync>,
}

/// Answers what the console asks.
#[derive(Clone)]
pub(crate) struct Console(Arc<Inner>);

struct Inner {
    me: ProcessInfo,
    net: Net,
    control: ControlClient,
    http: PageClient,
    /// The newest view that this process has.
    newest: Box<dyn Fn() -> Arc<View> + Send + Sync>,
    /// None if this process is no frontend.
    own: Option<Arc<OwnRequests>>,
    /// The last one, and when it came: different questions within a second share it.
    last_annotated: tokio::sync::Mutex<Option<(Instant, AnnotatedView)>>,
    window: Mutex<(Option<Duration>, Window)>,
    /// Frontends that did not answer the last question.
    silent: Mutex<BTreeSet<String>>,
    began: Instant,
    answers: Answers,
    explaining: tokio::sync::Semaphore,
}

/// A view of the cluster, and what people must know about it.
#[derive(Clone, Debug)]
struct AnnotatedView {
    /// When it came, since the beginning of this process.
    at: Duration,
    view: Arc<View>,
    notes: Vec<String>,
}

impl Console {
    /// For a process with this view of its cluster, whose control group `control` asks.
    ///
    /// # Errors
    /// If this system cannot make HTTP requests.
    pub(crate) fn new(
        me: ProcessInfo,
        net: Net,
        control: ControlClient,
        newest: impl Fn() -> Arc<View> + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        Ok(Self::with_own(me, net, control, newest, None, frontend_page::client_of_process()?))
    }

    /// The same for a frontend.
    ///
    /// # Errors
    /// As [`Console::new`].
    pub(crate) fn of_frontend(
        me: ProcessInfo,
        net: Net,
        control: ControlClient,
        newest: impl Fn() -> Arc<View> + Send + Sync + 'static,
        own: OwnRequests,
    ) -> anyhow::Result<Self> {
        Ok(Self::with_own(me, net, control, newest, Some(Arc::new(own)), frontend_page::client_of_process()?))
    }

    fn with_own(
        me: ProcessInfo,
        net: Net,
        control: ControlClient,
        newest: impl Fn() -> Arc<View> + Send + Sync + 'static,
        own: Option<Arc<OwnRequests>>,
        http: PageClient,
    ) -> Self {
        Self(Arc::new(Inner {
            me,
            net,
            control,
            http,
            newest: Box::new(newest),
            own,
            last_annotated: tokio::sync::Mutex::default(),
            window: Mutex::new((None, Window::new(GPUS_OVER))),
            silent: Mutex::default(),
            began: Instant::now(),
            answers: Answers::default(),
            explaining: tokio::sync::Semaphore::new(EXPLAINED_AT_A_TIME_MAX),
        }))
    }

    /// Answers a question; those that ask the same within a second get the same answer.
    pub(crate) fn answer(&self, question: ConsoleQuestion) -> ConsoleAnswer {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let answer = inner.answers.get(question.clone(), inner.gather(&question));
            let too_late = || format!("the cluster did not answer within {} s: ask again", ANSWERED_WITHIN.as_secs());
            let answered = tokio::time::timeout(ANSWERED_WITHIN, answer).await;
            answered.unwrap_or_else(|_| Err(PageRefusal::unavailable(too_late())))
        })
    }
}

impl Inner {
    async fn gather(&self, question: &ConsoleQuestion) -> Result<Value, PageRefusal> {
        let by = tokio::time::Instant::now() + GATHERED_WITHIN;
        match question {
            ConsoleQuestion::Cluster => Ok(self.cluster(by).await),
            ConsoleQuestion::Model(name) => self.model(name, by).await,
            ConsoleQuestion::Gpus => Ok(self.timeline(by).await),
            ConsoleQuestion::Explain(request) => self.explain(request).await,
        }
    }

    /// The last one if it is fresh, or a new one.
    async fn annotated_view(&self) -> AnnotatedView {
        let mut last_annotated = self.last_annotated.lock().await;
        if let Some((at, annotated)) = &*last_annotated
            && at.elapsed() < FRESH
        {
            return annotated.clone();
        }
        let (view, notes) = self.view().await;
        let annotated = AnnotatedView { at: self.began.elapsed(), view, notes };
        *last_annotated = Some((Instant::now(), annotated.clone()));
        annotated
    }

    /// The cluster's view from the best source that answers.
    async fn view(&self) -> (Arc<View>, Vec<String>) {
        let mut notes: Vec<_> = self.me.note.iter().cloned().collect();
        let error = match self.control.get(true, LEADER_WITHIN).await {
            Ok(view) => return (Arc::new(view), notes),
            Err(error) => error,
        };
        match self.control.get(false, REPLICA_WITHIN).await {
            Ok(view) => {
                notes.push(format!(
                    "no leader of the control group answers: the view may be old, queues and GPU times are unknown \
                     ({error})"
                ));
                (Arc::new(view), notes)
            }
            Err(error) => {
                notes.push(format!("no scheduler replica answers: this is what this process knew last ({error})"));
                if self.me.role == "backend" {
                    notes.push("a backend knows a part of the cluster: its own sub-cluster, and no events".to_owned());
                }
                ((self.newest)(), notes)
            }
        }
    }

    /// What each frontend has answered by then; why another has not goes to `notes`.
    async fn histories<T: DeserializeOwned + Counted + Send + 'static>(
        &self,
        annotated: &mut AnnotatedView,
        model: Option<&str>,
        by: tokio::time::Instant,
    ) -> BTreeMap<String, T> {
        let there = annotated.view.frontends.values().filter(|frontend| !frontend.has_left());
        let mut targets: Vec<_> = there.map(|frontend| (frontend.name.clone(), frontend.clone())).collect();
        {
            // Many frontends that hang must not keep the others from answering.
            let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
            targets.sort_by_key(|(name, _)| silent.contains(name));
        }
        let ask = |frontend: FrontendView| async move {
            let answer = match &self.own {
                Some(own) if self.me.name == frontend.name => {
                    let (own, model) = (Arc::clone(own), model.map(str::to_owned));
                    // Beside the threads that serve.
                    let answer = tokio::task::spawn_blocking(move || {
                        serde_json::from_value::<T>((own.history)(model.as_deref()))
                    });
                    answer.await.map_err(anyhow::Error::new).and_then(|answer| answer.map_err(anyhow::Error::new))
                }
                _ => frontend_page::history(&self.http, &frontend, model).await,
            };
            answer.map_err(|error| format!("{} at {}: {error:#}", frontend.name, frontend.console_addr))
        };
        let all = targets.len();
        let (mut known, mut silent) = (BTreeMap::new(), BTreeMap::new());
        for (name, answer) in ask_by(by, targets, ask).await {
            match answer {
                Some(Ok(answer)) => {
                    known.insert(name, answer);
                }
                Some(Err(why)) => {
                    silent.insert(name, why);
                }
                None => {
                    let why = format!("{name}: not within {} s", GATHERED_WITHIN.as_secs());
                    silent.insert(name, why);
                }
            }
        }
        if let Some(note) = silent_note(&silent, all) {
            annotated.notes.push(note);
        } else if all == 0 {
            annotated.notes.push("there is no frontend: requests are not counted".to_owned());
        }
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = silent.into_keys().collect();
        known
    }

    async fn cluster(&self, by: tokio::time::Instant) -> Value {
        let mut annotated = self.annotated_view().await;
        let histories = self.histories::<Overview>(&mut annotated, None, by).await;
        let load = self.load(&annotated);
        cluster::json(&annotated.view, &load, histories, &self.me, &annotated.notes, unix_ms())
    }

    async fn model(&self, name: &str, by: tokio::time::Instant) -> Result<Value, PageRefusal> {
        let mut annotated = self.annotated_view().await;
        if annotated.view.model_named(name).is_none() {
            return Err(PageRefusal::not_found(format!("there is no model `{name}`")));
        }
        let mut series = Series::default();
        for history in self.histories::<Series>(&mut annotated, Some(name), by).await.into_values() {
            series.add(history);
        }
        Ok(model::json(&annotated.view, name, &series, &annotated.notes, unix_ms()))
    }

    /// What `top` shows of queues and GPUs between this view and those of the last seconds.
    fn load(&self, annotated: &AnnotatedView) -> Value {
        let at = annotated.at;
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, samples) = &mut *window;
        // No page was open for a while: means over that time would say little about the present.
        if last.is_none_or(|last| last + 2 * GPUS_OVER < at) {
            *samples = Window::new(GPUS_OVER);
        }
        *last = Some(at);
        let mut load = samples.take(Sample::of_view(at, View::clone(&annotated.view))).json();
        if load["span_s"] == 0.0 {
            cluster::forget_gpu_times(&mut load);
        }
        load
    }

    async fn timeline(&self, by: tokio::time::Instant) -> Value {
        let mut annotated = self.annotated_view().await;
        let load = self.load(&annotated);
        let by_leader = timeline::models_by_leader(&annotated.view);
        let count = timeline::batches_of_each(by_leader.values().map(Vec::len).sum());
        let mut calls = Vec::new();
        for (addr, models) in by_leader {
            // One connection for all of its models.
            match ControlClient::new(&self.net, std::slice::from_ref(&addr)) {
                Ok(client) => calls.extend(models.into_iter().map(|model| (addr.clone(), (client.clone(), model)))),
                Err(error) => annotated.notes.push(format!("{addr} cannot be asked for its batches: {error}")),
            }
        }
        let call = |(client, model): (ControlClient, ModelId)| async move {
            let last = pb::LastBatches { model: model.get(), count };
            let request = pb::ExplainRequest { question: Some(Question::LastBatches(last)) };
            let ask = |mut grpc: Grpc<_>| async move { grpc.explain(request).await };
            client.call(BATCHES_WITHIN, ask).await
        };
        let (mut explanations, mut silent) = (Vec::new(), BTreeMap::new());
        for (addr, received) in ask_by(by, calls, call).await {
            match received {
                Some(Ok(reply)) => explanations.extend(reply.explanations.into_iter().map(|explained| explained.json)),
                Some(Err(error)) => {
                    silent.insert(addr, error.to_string());
                }
                None => {
                    silent.insert(addr, format!("not all within {} s", GATHERED_WITHIN.as_secs()));
                }
            }
        }
        let silent = silent.into_iter().map(|(addr, error)| format!("{addr} does not tell its batches: {error}"));
        annotated.notes.extend(silent);
        timeline::json(&load, &explanations, &annotated.notes, unix_ms())
    }

    async fn explain(&self, request: &str) -> Result<Value, PageRefusal> {
        let id = request.parse::<RequestId>().map_err(|error| PageRefusal::bad_request(error.to_string()))?;
        let annotated = self.annotated_view().await;
        if !annotated.view.frontends.contains_key(&id.frontend) {
            return Err(PageRefusal::not_found(format!("request {id}: there is no frontend {}", id.frontend)));
        }
        let turn = self.explaining.acquire().await;
        let _turn = turn.map_err(|error| PageRefusal::unavailable(error.to_string()))?;
        let question =
            pb::ExplainedRequest { frontend: id.frontend.get(), boot_id: id.boot.get(), sequence: id.sequence };
        let question = Question::Request(question);
        let (found, mut silent) = explanations::ask_all(&self.net, &annotated.view, question, BATCHES_WITHIN).await;
        if found.is_empty() {
            match explanations::of_pipeline(&annotated.view, id, |frontend| self.explain_pipeline(frontend, id)).await {
                Ok(Some(explanation)) => {
                    let texts = [explanation.to_string()];
                    return Ok(json!({ "request": id.to_string(), "explanations": texts, "notes": annotated.notes }));
                }
                Ok(None) => {}
                Err(unanswered) => silent.push(unanswered),
            }
            return Err(PageRefusal::not_found(explanations::unknown(&format!("request {id}"), &silent)));
        }
        let silent = silent.into_iter().map(|(addr, error)| format!("{addr} did not answer: {error}"));
        let notes: Vec<_> = annotated.notes.into_iter().chain(silent).collect();
        let texts: Vec<_> = found.into_iter().map(|explanation| explanation.text).collect();
        Ok(json!({ "request": id.to_string(), "explanations": texts, "notes": notes }))
    }
}

impl Inner {
    /// Asks a frontend, or this process if it is that one.
    async fn explain_pipeline(
        &self,
        frontend: FrontendView,
        id: RequestId,
    ) -> anyhow::Result<Option<PipelineExplanation>> {
        match &self.own {
            Some(own) if self.me.name == frontend.name => {
                let own = Arc::clone(own);
                // Beside the threads that serve.
                let explained =
                    tokio::task::spawn_blocking(move || serde_json::from_value::<Explained>((own.explain)(id)));
                explained.await??.of(&frontend)
            }
            _ => frontend_page::explanation(&self.http, &frontend, id).await,
        }
    }
}

/// Names the frontends that did not answer, if there are any, of `all` that were asked; and says why of the first one.
fn silent_note(silent: &BTreeMap<String, String>, all: usize) -> Option<String> {
    let why = silent.values().next()?;
    let mut note = format!("{} of {all} frontends do not answer, their requests are not counted: {why}", silent.len());
    let others: Vec<_> = silent.keys().skip(1).take(SILENT_NAMED_MAX).map(String::as_str).collect();
    if !others.is_empty() {
        note.push_str(&format!("; also {}", others.join(", ")));
    }
    match silent.len().saturating_sub(1 + others.len()) {
        0 => {}
        more => note.push_str(&format!(" and {more} more")),
    }
    Some(note)
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frontends_that_do_not_answer_are_named() {
        let silent = |names: usize| -> BTreeMap<String, String> {
            (0..names).map(|name| (format!("f-{name:03}"), format!("f-{name:03}: why"))).collect()
        };
        assert_eq!(silent_note(&silent(0), 3), None);
        let note = |names: usize| silent_note(&silent(names), 200).unwrap();
        let begin = |names: usize| {
            format!("{names} of 200 frontends do not answer, their requests are not counted: f-000: why")
        };
        assert_eq!(note(1), begin(1));
        assert_eq!(note(3), format!("{}; also f-001, f-002", begin(3)));
        let many = note(130);
        assert!(many.starts_with(&begin(130)) && many.ends_with("f-016 and 113 more"), "{many}");
    }
}
