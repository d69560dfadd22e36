//! Hosts the runs of requests as a frontend does: knows which stage request belongs to which run, waits out hops, draws
//! the rows of results, and has every step checked (P1 to P3).

use std::collections::BTreeMap;
use std::sync::Arc;

use symphony_pipeline::{Action, Ask, AskId, Event, Lost, PipelineRun, RunCheck};
use symphony_scheduler::{Request, Violation};
use symphony_types::{DropReason, Nanos, RequestId, Time};
use symphony_workload::{Scenario, result_rng};

use super::in_flight::{Asked, InFlight};
use super::meter::Meter;
use super::stage_budgets::{Known, PipelinePlans};

/// What is due at the host.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// A request whose input is ready.
    Begin { pipeline: usize, number: u64, arrived: Time },
    /// The result of a stage request, behind its hop.
    Done { sequence: u64 },
}

/// What happens at a host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostEvent {
    /// The time of [`Pipelines::next_due`] has come.
    Due,
    /// This stage request was dropped.
    Dropped(u64, DropReason),
}

/// A stage request that has ended, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StageSpan {
    pub(crate) pipeline: usize,
    pub(crate) number: u64,
    /// `None` of the whole request.
    pub(crate) stage: Option<usize>,
    pub(crate) from: Time,
    pub(crate) until: Time,
}

/// All requests of pipelines.
#[derive(Debug)]
pub(crate) struct Pipelines<'a> {
    scenario: &'a Scenario,
    seed: u64,
    plans: PipelinePlans,
    /// What the plans were made for.
    known: Vec<Known>,
    meters: Vec<Meter>,
    runs: Vec<Option<InFlight>>,
    free: Vec<u32>,
    open: u64,
    /// Run and number of each stage request whose result is awaited, by its sequence number.
    awaited: BTreeMap<u64, (u32, AskId)>,
    /// By time, then in the order in which they were made.
    due: BTreeMap<(Time, u64), Due>,
    dues: u64,
    /// Requests so far, by pipeline.
    came: Vec<u64>,
    /// What the last step of a run wants done.
    actions: Vec<Action>,
    /// Tests plant faults here.
    pub(crate) fault: Option<fn(&mut Vec<Action>)>,
}

impl<'a> Pipelines<'a> {
    /// `None` if the scenario has none.
    pub(crate) fn new(scenario: &'a Scenario, seed: u64, rate_rps: f64) -> Option<Self> {
        if scenario.pipelines.is_empty() {
            return None;
        }
        let known = Known::all(scenario, rate_rps);
        Some(Self {
            scenario,
            seed,
            plans: PipelinePlans::known(scenario, rate_rps, &known),
            meters: scenario.pipelines.iter().map(|load| Meter::new(&load.pipeline)).collect(),
            known,
            runs: Vec::new(),
            free: Vec::new(),
            open: 0,
            awaited: BTreeMap::new(),
            due: BTreeMap::new(),
            dues: 0,
            came: vec![0; scenario.pipelines.len()],
            actions: Vec::new(),
            fault: None,
        })
    }

    pub(crate) const fn plans(&self) -> &PipelinePlans {
        &self.plans
    }

    /// Requests without an outcome.
    pub(crate) const fn open(&self) -> u64 {
        self.open
    }

    /// When the next input or result is ready; [`Time::NEVER`] if none is under way.
    pub(crate) fn next_due(&self) -> Time {
        self.due.first_key_value().map_or(Time::NEVER, |(&(at, _), _)| at)
    }

    /// What the last step wants done, one after another; the number of actions does not change meanwhile.
    pub(crate) fn action(&self, at: usize) -> Option<Action> {
        self.actions.get(at).copied()
    }

    /// Splits the budgets again by what was seen since the last epoch.
    pub(crate) fn replan(&mut self, rate_rps: f64, epoch: Nanos) {
        for (known, meter) in self.known.iter_mut().zip(&mut self.meters) {
            let (measured_rps, pipeline) = meter.take(epoch, &known.pipeline);
            *known = Known { rate_rps: measured_rps.unwrap_or(known.rate_rps), pipeline };
        }
        self.plans = PipelinePlans::known(self.scenario, rate_rps, &self.known);
    }

    /// A request arrives. Its first stage is asked when its input is ready.
    pub(crate) fn arrive(&mut self, now: Time, pipeline: usize) {
        let number = self.came[pipeline];
        self.came[pipeline] += 1;
        self.open += 1;
        self.meters[pipeline].arrived();
        let before = self.scenario.pipelines[pipeline].before;
        self.is_due(now + before, Due::Begin { pipeline, number, arrived: now });
    }

    /// A GPU has answered a stage request; the result is at the host at `at`.
    pub(crate) fn answered(&mut self, at: Time, sequence: u64) {
        if let Some(&(slot, ask)) = self.awaited.get(&sequence)
            && let Some(flight) = self.flight(slot)
            && let Some(stage) = flight.run.stage(ask)
        {
            let wait = self.scenario.pipelines[flight.pipeline].waits[stage];
            self.is_due(at + wait, Due::Done { sequence });
        }
    }

    fn is_due(&mut self, at: Time, due: Due) {
        self.due.insert((at, self.dues), due);
        self.dues += 1;
    }

    fn flight(&self, slot: u32) -> Option<&InFlight> {
        self.runs.get(slot as usize).and_then(Option::as_ref)
    }

    fn flight_mut(&mut self, slot: u32) -> Option<&mut InFlight> {
        self.runs.get_mut(slot as usize).and_then(Option::as_mut)
    }

    /// Steps the run that this is about. Returns it with the stage request that has ended, if any; `None` if it is not
    /// awaited.
    pub(crate) fn step(&mut self, now: Time, event: HostEvent) -> Result<Option<(u32, Option<StageSpan>)>, Violation> {
        self.actions.clear();
        let (sequence, lost) = match event {
            HostEvent::Dropped(sequence, reason) => (sequence, Some(Lost::Dropped(reason))),
            HostEvent::Due => match self.due.pop_first() {
                None => return Ok(None),
                Some((_, Due::Begin { pipeline, number, arrived })) => {
                    return self.begin(now, pipeline, number, arrived).map(|slot| Some((slot, None)));
                }
                Some((_, Due::Done { sequence })) => (sequence, None),
            },
        };
        let Some((slot, ask)) = self.awaited.remove(&sequence) else { return Ok(None) };
        let rows = self.rows(slot, ask, lost);
        let event = match lost {
            Some(lost) => Event::StageEnded { ask, lost },
            None => Event::StageDone { ask, rows: &rows },
        };
        let mut actions = std::mem::take(&mut self.actions);
        let fault = self.fault;
        let Some(flight) = self.flight_mut(slot) else { return Ok(None) };
        let is_taken = flight.run.step(now, event, &mut actions);
        if let Some(plant) = fault {
            plant(&mut actions);
        }
        let checked = flight.check.stepped(&event, is_taken, &actions);
        let span = flight.asks.get(ask.get() as usize).map(|entry| StageSpan {
            pipeline: flight.pipeline,
            number: flight.number,
            stage: Some(entry.stage),
            from: entry.at,
            until: now,
        });
        self.actions = actions;
        checked.map_err(violation)?;
        Ok(Some((slot, span)))
    }

    fn begin(&mut self, now: Time, pipeline: usize, number: u64, arrived: Time) -> Result<u32, Violation> {
        let load = &self.scenario.pipelines[pipeline];
        let plan = Arc::clone(&self.plans.runs[pipeline]);
        let deadline = arrived + (load.slo - load.after);
        let mut check = RunCheck::new(Arc::clone(&plan), deadline);
        let run = PipelineRun::begin(plan, now, deadline, &mut self.actions);
        if let Some(plant) = self.fault {
            plant(&mut self.actions);
        }
        let checked = check.began(&self.actions);
        let flight = InFlight { pipeline, number, arrived, run, check, asks: Vec::new() };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.runs[slot as usize] = Some(flight);
                slot
            }
            None => {
                self.runs.push(Some(flight));
                (self.runs.len() - 1) as u32
            }
        };
        checked.map_err(violation)?;
        Ok(slot)
    }

    /// The rows that a result brings along each edge out of its stage; none without a result.
    fn rows(&mut self, slot: u32, ask: AskId, lost: Option<Lost>) -> Vec<u32> {
        let Some(flight) = self.flight(slot).filter(|_| lost.is_none()) else { return Vec::new() };
        let (pipeline, number, arrived) = (flight.pipeline, flight.number, flight.arrived);
        let Some(stage) = flight.run.stage(ask) else { return Vec::new() };
        let load = &self.scenario.pipelines[pipeline];
        let mut rng = result_rng(self.seed, pipeline, number, ask.get());
        let meter = &mut self.meters[pipeline];
        meter.result(stage);
        let edges = load.pipeline.edges().iter().zip(&load.fan_outs).enumerate();
        let ways = edges.filter(|(_, (edge, _))| edge.from == stage).map(|(at, (_, fan_out))| {
            // By the arrival of the picture: that of the result depends on the policy.
            let rows = fan_out.draw(arrived, &mut rng);
            meter.rows(at, rows);
            rows
        });
        ways.collect()
    }

    /// Makes one of the stage requests that a run asks for; returns its model.
    pub(crate) fn ask(
        &mut self,
        now: Time,
        slot: u32,
        (ask, id): (Ask, AskId),
        request_id: RequestId,
    ) -> Option<(u32, Request)> {
        let (scenario, seed) = (self.scenario, self.seed);
        let flight = self.flight_mut(slot)?;
        let load = &scenario.pipelines[flight.pipeline];
        let model = *load.models.get(ask.stage)?;
        let variants = scenario.models[model as usize].variants.as_ref();
        let variant = variants.map_or(0, |variants| {
            // Results draw their rows from the other half of the numbers.
            let mut rng = result_rng(!seed, flight.pipeline, flight.number, id.get());
            variants.of_requests.draw(&mut rng) as u32
        });
        let request =
            Request { id: request_id, deadline: ask.deadline, items: 1, weight: load.pipeline.value(), variant };
        flight.asks.push(Asked { stage: ask.stage, at: now, request });
        self.awaited.insert(request_id.sequence, (slot, id));
        Some((model, request))
    }

    /// The stage request with this sequence number, if its result is awaited.
    pub(crate) fn request(&self, sequence: u64) -> Option<Request> {
        let &(slot, ask) = self.awaited.get(&sequence)?;
        self.flight(slot)?.asks.get(ask.get() as usize).map(|entry| entry.request)
    }

    /// A run no longer needs this stage request; returns its model.
    pub(crate) fn withdraw(&mut self, slot: u32, id: AskId) -> Option<(u32, Request)> {
        let flight = self.flight(slot)?;
        let entry = *flight.asks.get(id.get() as usize)?;
        let model = *self.scenario.pipelines[flight.pipeline].models.get(entry.stage)?;
        self.awaited.remove(&entry.request.id.sequence);
        Some((model, entry.request))
    }

    /// The run has ended; returns the whole request.
    pub(crate) fn end(&mut self, now: Time, slot: u32) -> Option<StageSpan> {
        let flight = self.runs.get_mut(slot as usize)?.take()?;
        for entry in &flight.asks {
            self.awaited.remove(&entry.request.id.sequence);
        }
        self.free.push(slot);
        self.open -= 1;
        let InFlight { pipeline, number, arrived, .. } = flight;
        Some(StageSpan { pipeline, number, stage: None, from: arrived, until: now })
    }
}

fn violation(found: symphony_pipeline::Violation) -> Violation {
    Violation { invariant: found.invariant, detail: found.detail }
}
