//! The operator sets one policy after the other for a sub-cluster, while requests come and nothing else happens. Each
//! serves, a hand-over loses no request, and one that breaks a rule ends its lead, not the process.

use std::time::Duration;

use symphony_protocol::view::{PolicyView, SubclusterView};

use crate::dispatch::faulty_policy::FAULTY;
use crate::operator::Job;
use crate::simulation::Simulation;
use crate::stale_leader::subcluster;

/// Policies that keep the rules.
const SOUND: [&str; 4] = ["clockwork", "nexus", "shepherd", "kairos"];
/// Links are open within this time once the cluster serves.
const SETTLES_WITHIN: Duration = Duration::from_millis(500);
/// A command is agreed on within this time, which is some dozen attempts of the operator; and so is a fault.
const AGREED_WITHIN: Duration = Duration::from_secs(3);
/// How long each policy decides: about a dozen requests come in that time.
const DECIDES_FOR: Duration = Duration::from_millis(500);
/// Then each request has been answered, or its deadline has passed.
const WAITED_FOR: Duration = Duration::from_millis(2_200);

pub(crate) fn tell(simulation: &mut Simulation) -> Result<String, String> {
    simulation.until_it_serves(|_| {})?;
    simulation.pass(SETTLES_WITHIN)?;
    *simulation.cluster.peace.borrow_mut() = true;
    for policy in SOUND {
        set(simulation, policy)?;
        simulation.pass(DECIDES_FOR)?;
        if !simulation.cluster.planned.borrow().contains_key(policy) {
            return Err(format!("policy: `{policy}` planned nothing in {DECIDES_FOR:?}"));
        }
    }
    set(simulation, FAULTY)?;
    until(simulation, "its fault is not agreed on", |decides| {
        let failed = decides.and_then(|policy| policy.failed.as_deref());
        failed.is_some_and(|failed| failed.contains("breaks a rule"))
    })?;
    simulation.pass(DECIDES_FOR)?;
    *simulation.cluster.peace.borrow_mut() = false;
    simulation.pass(WAITED_FOR)?;
    simulation.until_it_serves(|_| {})?;
    let ledger = *simulation.cluster.ledger.borrow();
    if ledger.dropped_in_peace > 0 {
        return Err(format!("I8: requests were not answered from one policy to the next: {ledger:?}"));
    }
    let planned: u64 = simulation.cluster.planned.borrow().values().sum();
    Ok(format!("{} of {} requests answered, {planned} planned by policies", ledger.answered, ledger.submitted))
}

/// Has the operator set the policy, and waits until it decides.
fn set(simulation: &mut Simulation, policy: &'static str) -> Result<(), String> {
    simulation.cluster.jobs.borrow_mut().push_back(Job::Policy { subcluster: "s-b1", policy });
    let missing = format!("`{policy}` does not decide");
    until(simulation, &missing, |decides| decides.is_some_and(|decides| decides.text == policy))
}

/// Until this holds for the sub-cluster's policy; `missing` is what to say if it does not.
fn until(
    simulation: &mut Simulation,
    missing: &str,
    holds: impl Fn(Option<&PolicyView>) -> bool,
) -> Result<(), String> {
    let begun = simulation.sim.elapsed();
    loop {
        simulation.step()?;
        let now = subcluster(&simulation.cluster);
        let decides = now.as_ref().and_then(|(_, SubclusterView { policy, .. })| policy.as_ref());
        if holds(decides) {
            return Ok(());
        }
        if simulation.sim.elapsed() > begun + AGREED_WITHIN {
            return Err(format!("policy: {missing} after {AGREED_WITHIN:?}; agreed on is {decides:?}"));
        }
    }
}
