//! Pipelines in the world: their requests arrive, ask for stages, and end.

use symphony_pipeline::{Action, Ask as StageAsk, AskId};
use symphony_scheduler::ClusterInput;
use symphony_types::Outcome;

use super::{DECIDED_AFTER_MAX, World};
use crate::error::Error;
use crate::hosted::Hosted;
use crate::open_requests::RequestOrigin;
use crate::pipelines::{HostEvent, Pipelines};
use crate::policy_facts::PolicyFacts;
use crate::watch::Watch;

impl<'a, P: Hosted, W: Watch> World<'a, P, W> {
    #[cfg(test)]
    pub(crate) fn plant(&mut self, fault: fn(&mut Vec<Action>)) {
        if let Some(pipelines) = &mut self.pipelines {
            pipelines.fault = Some(fault);
        }
    }

    /// A request of a pipeline arrives.
    pub(super) fn pipeline_arrives(&mut self, pipeline: usize) {
        if self.tally.came(pipeline, self.now) {
            let slo = self.scenario.pipelines[pipeline].slo;
            self.stuck_after = self.stuck_after.max(self.now + slo + DECIDED_AFTER_MAX);
        }
        if let Some(pipelines) = &mut self.pipelines {
            pipelines.arrive(self.now, pipeline);
        }
    }

    /// Steps the run of a pipeline and does what it wants.
    pub(super) fn host(&mut self, event: HostEvent) -> Result<(), Error> {
        let Some(mut pipelines) = self.pipelines.take() else { return Ok(()) };
        let done = self.step_pipelines(&mut pipelines, event);
        self.pipelines = Some(pipelines);
        done
    }

    fn step_pipelines(&mut self, pipelines: &mut Pipelines<'a>, event: HostEvent) -> Result<(), Error> {
        let stepped = pipelines.step(self.now, event).map_err(|violation| self.violated(violation))?;
        let Some((slot, ended)) = stepped else { return Ok(()) };
        if let Some(span) = ended {
            self.watch.stage(span);
        }
        let mut done = 0;
        while let Some(action) = pipelines.action(done) {
            done += 1;
            match action {
                Action::Ask(ask) => ask.ids().try_for_each(|id| self.ask(pipelines, slot, (ask, id)))?,
                Action::Withdraw(id) => self.withdraw(pipelines, slot, id)?,
                Action::End { outcome, is_complete } => self.end_request(pipelines, slot, (outcome, is_complete)),
            }
        }
        Ok(())
    }

    /// A stage request arrives at its model.
    fn ask(&mut self, pipelines: &mut Pipelines<'a>, slot: u32, stage_ask: (StageAsk, AskId)) -> Result<(), Error> {
        let id = self.id(self.sequence);
        let Some((model, request)) = pipelines.ask(self.now, slot, stage_ask, id) else { return Ok(()) };
        self.sequence += 1;
        if self.tally.arrived(model as usize, self.now, RequestOrigin::Stage) {
            self.stuck_after = self.stuck_after.max(request.deadline + DECIDED_AFTER_MAX);
        }
        if let Some(oldest) = self.referee.arrived(self.now, model, &request, RequestOrigin::Stage) {
            return Err(self.too_many_open(id, &oldest));
        }
        self.watch.queued(self.now, model);
        self.spin.reset();
        self.step(ClusterInput::Arrive { model, request })
    }

    /// A stage request is no longer needed. On a GPU it runs on, for nothing.
    fn withdraw(&mut self, pipelines: &mut Pipelines<'a>, slot: u32, id: AskId) -> Result<(), Error> {
        let Some((model, request)) = pipelines.withdraw(slot, id) else { return Ok(()) };
        let Some(open) = self.referee.withdrawn(model, request.id) else { return Ok(()) };
        self.tally.withdrawn(model as usize, open.arrived);
        self.watch.withdrawn(self.now, model);
        self.spin.reset();
        self.step(ClusterInput::Cancel { model, request })
    }

    /// A request of a pipeline has its outcome; nothing of its answer is missing, or something is.
    fn end_request(&mut self, pipelines: &mut Pipelines<'a>, slot: u32, ended: (Outcome, bool)) {
        let Some(span) = pipelines.end(self.now, slot) else { return };
        let bad = self.tally.ended(span.pipeline, self.now, span.from, ended);
        self.give_up_if_certain(self.streams.len() + span.pipeline, bad);
        self.watch.stage(span);
    }

    /// Splits the budgets of pipelines again, and informs the policy.
    pub(super) fn replan(&mut self) -> Result<(), Error> {
        let (scenario, Some(epoch)) = (self.scenario, self.scenario.split_epoch) else { return Ok(()) };
        self.replan_at = self.now + epoch;
        let Some(pipelines) = &mut self.pipelines else { return Ok(()) };
        pipelines.replan(self.rate_rps, epoch);
        let facts = PolicyFacts::planned(scenario, self.seed, self.rate_rps, pipelines.plans());
        for (model, known) in (0..).zip(facts.cluster_models()) {
            if scenario.pipelines.iter().any(|load| load.models.contains(&model)) {
                self.spin.reset();
                self.step(ClusterInput::Model { model, known })?;
            }
        }
        Ok(())
    }
}
