//! A policy that cannot take its host along.

use std::panic::{AssertUnwindSafe, catch_unwind};

use symphony_types::Time;

use crate::cluster::orders::{CLUSTER_ORDERS_MAX, TooManyOrders};
use crate::cluster_policy::{ClusterActions, ClusterInput, ClusterPolicy};
use crate::plan_check::Violation;

/// A policy of any type, for a host's thread.
pub type BoxedPolicy = Box<dyn ClusterPolicy + Send>;

/// What a policy did wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyFault {
    /// Its code panicked.
    #[error("policy `{policy}` panicked at input `{input}`: {message}")]
    Panicked {
        /// Name of the policy.
        policy: String,
        /// The kind of input.
        input: &'static str,
        /// The message of the panic.
        message: String,
    },
    /// A step did not stop ordering.
    #[error(
        "policy `{policy}` gave more than {CLUSTER_ORDERS_MAX} orders (CLUSTER_ORDERS_MAX) in one step, at input \
         `{input}`"
    )]
    TooManyOrders {
        /// Name of the policy.
        policy: String,
        /// The kind of input.
        input: &'static str,
    },
    /// An order breaks an invariant.
    #[error("policy `{policy}` broke {violation}")]
    Violated {
        /// Name of the policy.
        policy: String,
        /// The invariant and the values.
        violation: Violation,
    },
}

/// A policy whose panics and endless orders are caught. After a fault it decides nothing more.
pub struct GuardedPolicy {
    name: String,
    policy: Result<BoxedPolicy, PolicyFault>,
}

impl std::fmt::Debug for GuardedPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardedPolicy").field("name", &self.name).finish_non_exhaustive()
    }
}

impl GuardedPolicy {
    /// Guards the policy; `name` is for messages.
    #[must_use]
    pub fn new(name: impl Into<String>, policy: BoxedPolicy) -> Self {
        Self { name: name.into(), policy: Ok(policy) }
    }

    /// The name that it was given for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One step. After a fault `out` is empty, this policy is not called again, and every further step returns the
    /// same fault.
    ///
    /// # Errors
    /// If the policy panics or gives too many orders.
    pub fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) -> Result<(), PolicyFault> {
        let policy = self.policy.as_mut().map_err(|fault| fault.clone())?;
        let kind = input.label();
        // A policy that unwound is dropped below, so that its half-changed state is never seen.
        let ended = catch_unwind(AssertUnwindSafe(|| policy.step(now, input, out)));
        let too_many = out.list.len().max(out.planned.len()) > CLUSTER_ORDERS_MAX;
        let fault = match ended {
            Ok(()) if too_many => PolicyFault::TooManyOrders { policy: self.name.clone(), input: kind },
            Ok(()) => return Ok(()),
            Err(payload) if payload.is::<TooManyOrders>() => {
                PolicyFault::TooManyOrders { policy: self.name.clone(), input: kind }
            }
            Err(payload) => {
                let message = panic_message(&*payload);
                PolicyFault::Panicked { policy: self.name.clone(), input: kind, message }
            }
        };
        out.clear();
        self.end(fault.clone());
        Err(fault)
    }

    /// The requests that it claims to own; none after a fault.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let waiting = |policy: &BoxedPolicy| catch_unwind(AssertUnwindSafe(|| policy.waiting())).unwrap_or(usize::MAX);
        self.policy.as_ref().map_or(0, waiting)
    }

    /// The host has found that an order breaks an invariant: the policy decides nothing more.
    pub fn violated(&mut self, violation: Violation) -> PolicyFault {
        let fault = PolicyFault::Violated { policy: self.name.clone(), violation };
        self.end(fault.clone());
        fault
    }

    fn end(&mut self, fault: PolicyFault) {
        let policy = std::mem::replace(&mut self.policy, Err(fault));
        // Its destructor may panic too.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(policy)));
    }
}

/// The message of a panic.
fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "nothing that can be shown".to_owned())
}
