//! The program with policies of a user's own, for stories: the example's, and three that fail.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use symphony_scheduler::{
    BoxedPolicy, ClusterActions, ClusterInput, ClusterModel, ClusterPolicy, PolicyRegistry, Request,
};
use symphony_types::{GpuClass, GpuId, RequestId, Time};

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

/// Waits until it has two requests, and then gives both to one GPU at one time.
#[derive(Default)]
struct Overlapping {
    models: BTreeMap<u32, Arc<ClusterModel>>,
    gpus: BTreeMap<GpuId, (GpuClass, Time)>,
    waiting: BTreeMap<RequestId, (u32, Request)>,
}

impl ClusterPolicy for Overlapping {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Model { model, known } => _ = self.models.insert(model, known),
            ClusterInput::Arrive { model, request } | ClusterInput::Return { model, request } => {
                self.waiting.insert(request.id, (model, request));
            }
            ClusterInput::Cancel { request, .. } => _ = self.waiting.remove(&request.id),
            ClusterInput::GpuUp { gpu, class, free_at } => _ = self.gpus.insert(gpu, (class, free_at)),
            ClusterInput::GpuDown(gpu) => _ = self.gpus.remove(&gpu),
            _ => {}
        }
        let Some((&gpu, &(class, free_at))) = self.gpus.first_key_value().filter(|_| self.waiting.len() >= 2) else {
            return;
        };
        for (model, request) in std::mem::take(&mut self.waiting).into_values().take(2) {
            let Some(known) = self.models.get(&model) else { return };
            out.plan(model, known, (gpu, class), known.start(now, free_at, request.items), [request]);
        }
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

fn main() -> ExitCode {
    let faulty = |hangs| Ok(Box::new(Faulty { hangs, requests: 0, at: 20 }) as BoxedPolicy);
    let registry = PolicyRegistry::new().with("edf", |_, _| Ok(Box::new(policy::Edf::default())));
    let registry = registry.with("overlaps", |_, _| Ok(Box::new(Overlapping::default())));
    symphony::main_with(registry.with("panics", move |_, _| faulty(false)).with("hangs", move |_, _| faulty(true)))
}
