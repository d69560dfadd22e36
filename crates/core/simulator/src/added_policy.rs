//! A policy of any type, such as one that the program added: its panics are contained, and its orders are checked
//! before they are carried out.

use symphony_scheduler::{
    ClusterActions, ClusterFacts, ClusterInput, ClusterPolicy, ClusterReferee, GuardedPolicy, PolicyFault,
};
use symphony_types::Time;

use crate::hosted::{Fault, Hosted};

/// A guarded policy and its referee.
pub(crate) struct AddedPolicy {
    policy: GuardedPolicy,
    referee: ClusterReferee,
    waiting: usize,
    fault: Option<PolicyFault>,
}

impl AddedPolicy {
    pub(crate) fn new(policy: GuardedPolicy, facts: ClusterFacts) -> Self {
        Self { policy, referee: ClusterReferee::new(facts), waiting: 0, fault: None }
    }

    fn checked(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) -> Result<(), PolicyFault> {
        self.referee.observe(now, &input);
        self.policy.step(now, input, out)?;
        self.waiting = self.policy.waiting();
        self.referee.ordered(now, out, self.waiting).map_err(|violation| self.policy.violated(violation))
    }
}

impl ClusterPolicy for AddedPolicy {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        if let Err(fault) = self.checked(now, input, out) {
            // Nothing of such a step is done.
            out.clear();
            self.fault = Some(fault);
        }
    }

    fn waiting(&self) -> usize {
        self.waiting
    }
}

impl Hosted for AddedPolicy {
    fn fault(&mut self) -> Option<Fault> {
        self.fault.take().map(Fault::Policy)
    }
}
