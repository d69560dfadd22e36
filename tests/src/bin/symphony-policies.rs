//! The program with policies of a user's own, for stories: the example's, and one that fails.

use std::process::ExitCode;

use symphony_scheduler::{ClusterActions, ClusterInput, ClusterPolicy, PolicyRegistry};
use symphony_types::Time;

// Its `main` is not called here.
#[allow(dead_code)]
#[path = "../../../crates/programs/symphony/examples/policy.rs"]
mod policy;

/// Serves nothing, and fails in the way that its option says at the request of this number.
struct Faulty {
    hangs: bool,
    requests: usize,
    at: usize,
}

impl ClusterPolicy for Faulty {
    fn step(&mut self, _: Time, input: ClusterInput, _: &mut ClusterActions) {
        if matches!(input, ClusterInput::Arrive { .. } | ClusterInput::Return { .. }) {
            self.requests += 1;
            assert!(self.requests < self.at || self.hangs, "planted");
            if self.requests >= self.at {
                loop {
                    std::thread::park();
                }
            }
        }
    }

    fn waiting(&self) -> usize {
        self.requests
    }
}

fn main() -> ExitCode {
    let faulty = |hangs| Ok(Box::new(Faulty { hangs, requests: 0, at: 20 }) as symphony_scheduler::BoxedPolicy);
    let registry = PolicyRegistry::new().with("edf", |_, _| Ok(Box::new(policy::Edf::default())));
    symphony::main_with(registry.with("panics", move |_, _| faulty(false)).with("hangs", move |_, _| faulty(true)))
}
