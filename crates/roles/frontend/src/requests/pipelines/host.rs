//! Runs the items of one request through the stages of its pipeline.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::stream::{FuturesUnordered, StreamExt as _};
use symphony_pipeline::{Action, Ask, AskId, Event, RunPlan};
use symphony_protocol::dispatch::EndReason;
use symphony_types::{FailReason, Nanos, Outcome, Time};

use super::answer::answer;
use super::checked_run::{CheckedRun, report_open};
use super::item::{ClientInputs, Feeds, Item, StageAsk, StageResult};
use super::stage_request::{Regions, StageAnswer, StageInput, StageRequest, lost};
use super::tensors::passing;
use crate::clusters::live_pipeline::LivePipeline;
use crate::inner::Inner;
use crate::oip::{InferError, ModelInfo, Pictures, PipelineAnswer, Receipt, Timeliness};
use crate::pictures::decoders::{Crops, Memory};
use crate::records::RequestSpan;
use crate::records::pipeline_memory::StageNote;
use crate::requests::accepted_request::{AcceptedRequest, RequestKind};
use crate::requests::attempt_end::AttemptEnd;
use crate::requests::request_table::Ending;

/// What a stage request takes besides tensors: its future and what is known of it.
const ASK_BYTES: usize = 4 << 10;
/// Stage requests that an answer names: those of a pipeline without fan-outs, and the first ones of others.
const NAMED_MAX: usize = 32;
/// Stage requests of a traced request that have spans, six or so each: a fan-out must not crowd out other requests'.
const TRACED_MAX: usize = 32;

/// How a request ended.
pub(super) enum Ended {
    Answered {
        payload: Bytes,
        execution: Nanos,
        pipeline_answer: PipelineAnswer,
    },
    /// No answer, and the error for its client if a stage is to blame.
    Lost {
        end: AttemptEnd,
        of_stage: Option<InferError>,
    },
}

/// A stage request has ended.
struct StageEnd {
    item: usize,
    ask: AskId,
    result: Result<StageAnswer, InferError>,
}

/// A stage request without an end.
struct OpenAsk {
    stage: usize,
    /// None if no model could be asked.
    model: Option<Arc<ModelInfo>>,
    receipt: Receipt,
    asked_at: Instant,
    deadline: Nanos,
    handle: AbortHandle,
}

/// One request on its way. What it has asked is withdrawn when it is dropped.
pub(super) struct Host<'a> {
    inner: &'a Arc<Inner>,
    pipeline: Arc<LivePipeline>,
    plan: Arc<RunPlan>,
    request: &'a AcceptedRequest,
    client: ClientInputs,
    /// Whether its pictures are decoded quickly.
    quick: bool,
    /// In the order of the request.
    items: Vec<Item>,
    /// Items without an end.
    unfinished: usize,
    is_partial: bool,
    in_flight: FuturesUnordered<Abortable<BoxFuture<'static, StageEnd>>>,
    /// By item and number.
    asks: HashMap<(usize, AskId), OpenAsk>,
    /// How many of them are attempts.
    open: Arc<AtomicUsize>,
    /// For results, until all of them have been used.
    memory: Vec<Arc<Memory>>,
    /// The longest execution at each stage.
    executions: Vec<Nanos>,
    named: Vec<String>,
    /// Stage requests that have spans.
    traced: usize,
}

impl<'a> Host<'a> {
    pub(super) fn new(
        inner: &'a Arc<Inner>,
        pipeline: Arc<LivePipeline>,
        plan: Arc<RunPlan>,
        request: &'a AcceptedRequest,
        client: ClientInputs,
        quick: bool,
    ) -> Self {
        let executions = vec![Nanos::ZERO; pipeline.declaration.stages.len()];
        Self {
            inner,
            pipeline,
            plan,
            request,
            client,
            quick,
            items: Vec::new(),
            unfinished: request.items as usize,
            is_partial: false,
            in_flight: FuturesUnordered::new(),
            asks: HashMap::new(),
            open: Arc::default(),
            memory: Vec::new(),
            executions,
            named: Vec::new(),
            traced: 0,
        }
    }

    /// Runs it to its end.
    pub(super) async fn run(mut self) -> Ended {
        let mut lost = self.begin();
        while lost.is_none() && self.unfinished > 0 {
            match self.in_flight.next().await {
                Some(Ok(end)) => lost = self.take(end),
                // It was withdrawn.
                Some(Err(_)) => {}
                // Every run without an end has asked something.
                None => lost = Some(failed(FailReason::ExecutionFailed)),
            }
        }
        if let Some(lost) = lost {
            return lost;
        }
        match answer(&self.pipeline, &self.items) {
            Ok((payload, outputs)) => {
                let edges = self.pipeline.wiring.edges.iter().map(|edge| (edge.from, edge.to));
                let execution = longest_way(&self.executions, edges);
                let (is_partial, stages) = (self.is_partial, self.named.join(","));
                Ended::Answered { payload, execution, pipeline_answer: PipelineAnswer { outputs, is_partial, stages } }
            }
            Err(reason) => failed(reason),
        }
    }

    /// Runs count from the arrival of the request.
    fn now(&self) -> Time {
        Time::ZERO + Nanos::from(self.request.arrived.elapsed())
    }

    fn begin(&mut self) -> Option<Ended> {
        let allowed = self.request.deadline.saturating_duration_since(self.request.arrived);
        let deadline = Time::ZERO + Nanos::from(allowed);
        for item in 0..self.request.items as usize {
            let (run, actions) = CheckedRun::begin(&self.plan, self.now(), deadline);
            self.items.push(Item::new(run));
            self.inner.pipeline_counters.count_items(&self.pipeline, 1);
            if let Some(outcome) = self.act(item, actions) {
                return Some(ended_with(outcome, None));
            }
        }
        None
    }

    /// Takes the end of a stage request. Some if the request ends with it.
    fn take(&mut self, end: StageEnd) -> Option<Ended> {
        let StageEnd { item, ask, result } = end;
        let open = self.asks.remove(&(item, ask))?;
        let stage = open.stage;
        if let Some(request) = open.receipt.id().filter(|_| self.named.len() < NAMED_MAX) {
            self.named.push(format!("{}={request}", self.pipeline.stage_name(stage)));
        }
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => return self.lose((item, ask), &open, error),
        };
        let outcome = match answer.timeliness {
            Timeliness::InTime => Outcome::InTime,
            Timeliness::Late => Outcome::Late,
        };
        let took = answer.at.saturating_duration_since(open.asked_at);
        self.note(item, &open, (outcome.label(), ""), (answer.at, Some(answer.execution)), false);
        self.inner.pipeline_counters.stage_ended(&self.pipeline, stage, (outcome.label(), ""), Some(took));
        self.executions[stage] = self.executions[stage].max(answer.execution);
        let pipeline = Arc::clone(&self.pipeline);
        let mut along = Vec::with_capacity(pipeline.ways[stage].len());
        for &edge in &pipeline.ways[stage] {
            let (wired, most) = (&pipeline.wiring.edges[edge], pipeline.most.get(edge).copied().unwrap_or(1));
            let rows = passing(&pipeline.wiring, wired, most, &answer.model, &answer.payload);
            self.inner.pipeline_counters.led_on(&pipeline, edge, rows.len() as u64);
            along.push(rows);
        }
        // At most FAN_OUT_MAX each.
        let counts: Vec<_> = along.iter().map(|rows| rows.len() as u32).collect();
        let StageAnswer { model, payload, at, .. } = answer;
        if let Some(entry) = self.items[item].asks.get_mut(ask.get() as usize) {
            entry.result = Some(StageResult { info: model, payload, at, passing: along });
        }
        let now = self.now();
        let actions = self.items[item].run.step(now, Event::StageDone { ask, rows: &counts })?;
        // Without an answer if whatever it leads to would come too late.
        self.act(item, actions).map(|outcome| ended_with(outcome, None))
    }

    /// A stage request has no result.
    fn lose(&mut self, (item, ask): (usize, AskId), open: &OpenAsk, error: InferError) -> Option<Ended> {
        let stage = open.stage;
        let lost = lost(&error);
        let (outcome, reason) = match lost {
            Some(lost) => (Outcome::from(lost).label(), error.error_status().reason),
            None => (Outcome::Cancelled.label(), ""),
        };
        self.inner.pipeline_counters.stage_ended(&self.pipeline, stage, (outcome, reason), None);
        let at = Instant::now();
        let request = open.receipt.id().map(|request| request.to_string()).unwrap_or_default();
        let stage = self.pipeline.stage_name(stage).to_owned();
        let of_stage = |error| InferError::Stage { stage, request, error: Box::new(error) };
        let Some(lost) = lost else {
            let error = match error {
                // Each item is decoded separately, as the first one.
                InferError::BadPicture(why) => InferError::BadPicture(format!("item {item}: {why}")),
                other => other,
            };
            self.note(item, open, (outcome, reason), (at, None), true);
            return Some(Ended::Lost { end: AttemptEnd::BadInput(of_stage(error)), of_stage: None });
        };
        let now = self.now();
        let actions = self.items[item].run.step(now, Event::StageEnded { ask, lost });
        // None if a partial answer does without it.
        let end = actions.and_then(|actions| self.act(item, actions));
        self.note(item, open, (outcome, reason), (at, None), end.is_some());
        end.map(|end| ended_with(end, Some(of_stage(error))))
    }

    /// Does what a run wants done. Some if its item has no answer.
    fn act(&mut self, item: usize, actions: Vec<Action>) -> Option<Outcome> {
        for action in actions {
            match action {
                Action::Ask(ask) => self.ask(item, ask),
                Action::Withdraw(ask) => {
                    if let Some(open) = self.asks.get(&(item, ask)) {
                        open.handle.abort();
                    }
                }
                Action::End { outcome: Outcome::InTime | Outcome::Late, is_complete } => {
                    self.unfinished = self.unfinished.saturating_sub(1);
                    self.is_partial |= !is_complete;
                }
                Action::End { outcome, .. } => return Some(outcome),
            }
        }
        None
    }

    /// Asks a stage for this many rows.
    fn ask(&mut self, item: usize, ask: Ask) {
        let pipeline = Arc::clone(&self.pipeline);
        let declared = &pipeline.declaration.stages[ask.stage];
        let model = match declared.names_a_version() {
            true => self.inner.info(&declared.model),
            false => self.inner.model_for_request(&declared.model),
        };
        let feeds = self.items[item].feeds(&pipeline, ask.stage, ask.first);
        let made = model.ok_or(InferError::Failed(FailReason::ModelNotReady)).and_then(|model| {
            let inputs = self.inputs(item, &ask, &feeds, &model)?;
            Ok((model, inputs))
        });
        let fed_at = self.items[item].fed_at(&feeds);
        let deadline = self.request.arrived + Duration::from(ask.deadline.since(Time::ZERO));
        let asked_model = made.as_ref().ok().map(|(model, _)| Arc::clone(model));
        let mut inputs = match &made {
            Ok(_) => Vec::new(),
            Err(error) => (0..ask.rows).map(|_| Err(error.clone())).collect(),
        };
        if let Ok((model, made)) = made {
            let request = |input| StageRequest {
                pipeline: Arc::clone(&pipeline),
                stage: ask.stage,
                model: Arc::clone(&model),
                input,
                deadline,
                weight: self.request.weight,
                context: self.request.context.clone(),
                receipt: Receipt::default(),
                span: None,
                fed_at,
                open: Arc::clone(&self.open),
            };
            inputs = made.into_iter().map(|input| Ok(request(input))).collect();
        }
        for (nth, (id, request)) in ask.ids().zip(inputs).enumerate() {
            let path = self.items[item].path(&pipeline, &feeds, nth);
            self.items[item].asks.push(StageAsk { stage: ask.stage, path, result: None });
            let request = request.map(|stage_request| StageRequest { span: self.span_of_stage(), ..stage_request });
            let receipt =
                request.as_ref().map_or_else(|_| Receipt::default(), |stage_request| stage_request.receipt.clone());
            let inner = Arc::clone(self.inner);
            let asking = async move {
                let result = match request {
                    Ok(request) => inner.ask_stage(request).await,
                    Err(error) => Err(error),
                };
                StageEnd { item, ask: id, result }
            };
            let (handle, registration) = AbortHandle::new_pair();
            let (asked_at, deadline) = (Instant::now(), ask.deadline.since(Time::ZERO));
            let open = OpenAsk { stage: ask.stage, model: asked_model.clone(), receipt, asked_at, deadline, handle };
            self.asks.insert((item, id), open);
            self.in_flight.push(Abortable::new(asking.boxed(), registration));
        }
    }

    /// The span of one more stage request, if it has one.
    fn span_of_stage(&mut self) -> Option<RequestSpan> {
        let span = self.request.span.filter(|_| self.traced < TRACED_MAX)?;
        self.traced += 1;
        Some(span.below())
    }

    /// The input of each of these stage requests.
    fn inputs(
        &mut self,
        item: usize,
        ask: &Ask,
        feeds: &Feeds,
        model: &Arc<ModelInfo>,
    ) -> Result<Vec<StageInput>, InferError> {
        let rows = ask.rows as usize;
        // Where pictures and regions are decoded, they are counted, too; with other inputs they are copied.
        let has_picture = self.pipeline.wiring.stages[ask.stage].picture.is_some();
        let is_counted = has_picture && model.signature.inputs.len() == 1;
        let input_bytes = if is_counted { 0 } else { model.signature.input_item_bytes() };
        let bytes = ASK_BYTES + input_bytes + model.signature.output_item_bytes();
        self.memory.push(self.inner.decoders.reserve(rows.saturating_mul(bytes))?);
        let regions = match self.pipeline.wiring.stages[ask.stage].cropped_by {
            Some(edge) => Some(self.regions(item, rows, edge, feeds, model)?),
            None => None,
        };
        let input = |nth: usize| {
            let client = (&self.client, item);
            let of_stage = (ask.stage, feeds, nth);
            let assembled = self.items[item].assemble(&self.pipeline, client, of_stage, model)?;
            let payload = assembled.payload;
            Ok(match (assembled.picture_at, &regions) {
                (None, _) => StageInput::Tensors(payload),
                (Some(at), Some(regions)) => StageInput::Region { regions: regions.clone(), nth, payload, at },
                (Some(at), None) => {
                    let encoded = self.client.pictures.get(item).cloned().into_iter().collect();
                    StageInput::Picture { payload, pictures: Pictures { encoded, at, quick: self.quick } }
                }
            })
        };
        (0..rows).map(input).collect()
    }

    /// Begins to cut the regions of these stage requests out of the client's picture.
    fn regions(
        &self,
        item: usize,
        rows: usize,
        edge: usize,
        feeds: &Feeds,
        model: &Arc<ModelInfo>,
    ) -> Result<Regions, InferError> {
        let not_ready = || InferError::Failed(FailReason::ModelNotReady);
        let (mut boxes, mut seen_by) = (Vec::with_capacity(rows), None);
        for nth in 0..rows {
            let region = self.items[item].region(&self.pipeline, feeds, edge, nth);
            let (sides, by) = region.ok_or_else(not_ready)?;
            boxes.push(sides);
            seen_by = Some(by);
        }
        let seen_by = seen_by.ok_or_else(not_ready)?;
        let picture = self.client.pictures.get(item).cloned().ok_or_else(not_ready)?;
        let cut = self.inner.decoders.crop(Crops { picture, seen_by, model, boxes })?;
        Ok(cut.map(|cut| cut.map(Arc::new)).boxed().shared())
    }

    /// Remembers how a stage request ended.
    fn note(
        &self,
        item: usize,
        open: &OpenAsk,
        (outcome, reason): (&'static str, &'static str),
        (at, execution): (Instant, Option<Nanos>),
        ended_request: bool,
    ) {
        let RequestKind::Pipeline(log) = &self.request.kind else { return };
        let declared = &self.pipeline.declaration.stages[open.stage];
        let model = open.model.as_ref().map_or(&declared.model, |model| &model.loaded_as);
        let since = |at: Instant| at.saturating_duration_since(self.request.arrived);
        log.note(StageNote {
            stage: declared.name.clone(),
            model: model.clone(),
            item,
            request: open.receipt.id(),
            asked: since(open.asked_at),
            ended: since(at),
            deadline: open.deadline,
            outcome,
            reason,
            execution,
            ended_request,
        });
    }

    /// Ends what is left of it: the runs of other items, and what they have asked.
    fn close(&mut self) {
        let now = self.now();
        for item in self.items.iter_mut().filter(|item| !item.run.has_ended()) {
            // It withdraws everything, as is done below.
            let _ = item.run.step(now, Event::Cancel);
        }
        let withdrawn = std::mem::take(&mut self.asks);
        for ((item, _), open) in &withdrawn {
            self.inner.pipeline_counters.stage_ended(&self.pipeline, open.stage, ("withdrawn", ""), None);
            self.note(*item, open, ("withdrawn", ""), (Instant::now(), None), false);
        }
        self.in_flight.clear();
        report_open(&self.open);
    }
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

/// What stages took one after the other, along the way where that is most: branches run side by side.
pub(super) fn longest_way(executions: &[Nanos], edges: impl Iterator<Item = (usize, usize)> + Clone) -> Nanos {
    let mut until = executions.to_vec();
    // Each round reaches at least one stage more along the longest way.
    for _ in 1..executions.len() {
        for (from, to) in edges.clone() {
            until[to] = until[to].max(until[from] + executions[to]);
        }
    }
    until.into_iter().max().unwrap_or(Nanos::ZERO)
}

fn failed(reason: FailReason) -> Ended {
    Ended::Lost { end: AttemptEnd::failed(reason), of_stage: None }
}

/// The end of a request of which an item has no answer.
fn ended_with(outcome: Outcome, of_stage: Option<InferError>) -> Ended {
    let end = match outcome {
        Outcome::Dropped(reason) => AttemptEnd::Settled(Ending::NoResult(EndReason::Dropped(reason))),
        Outcome::Failed(reason) => AttemptEnd::failed(reason),
        // Runs are cancelled when the request has ended.
        Outcome::InTime | Outcome::Late | Outcome::Cancelled => AttemptEnd::failed(FailReason::ExecutionFailed),
    };
    Ended::Lost { end, of_stage }
}
