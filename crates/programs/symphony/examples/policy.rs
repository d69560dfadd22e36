//! A policy of one's own, in the whole program: the earliest deadline first, in the largest batch that meets it.
//! `cargo run --release -p symphony --example policy -- sim deploy/scenarios/table4-resnet50.toml --policy edf`

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use symphony_scheduler::{
    ClusterActions, ClusterInput, ClusterModel, ClusterPolicy, PolicyRegistry, QUEUE_REQUESTS_MAX, Request,
};
use symphony_types::{DropReason, GpuClass, GpuId, RequestId, Time};

/// The model whose request is due first gets the next free GPU.
#[derive(Default)]
pub(crate) struct Edf {
    models: BTreeMap<u32, Arc<ClusterModel>>,
    /// By deadline.
    waiting: BTreeMap<(Time, RequestId), (u32, Request)>,
    /// The class of each GPU, and when it is free; never while it runs a plan.
    gpus: BTreeMap<GpuId, (GpuClass, Time)>,
}

impl Edf {
    fn serve(&mut self, now: Time, out: &mut ClusterActions) {
        for (&gpu, (class, free_at)) in self.gpus.iter_mut().filter(|(_, (_, free_at))| *free_at < Time::NEVER) {
            while *free_at < Time::NEVER
                && let Some((_, &(model, first))) = self.waiting.first_key_value()
            {
                // The largest batch that ends in time for the first request, of requests of its model.
                let Some(known) = self.models.get(&model) else { break };
                let (mut batch, mut items) = (Vec::new(), 0_u32);
                for (key, (_, request)) in self.waiting.iter().filter(|(_, (of, _))| *of == model) {
                    let more = items.saturating_add(request.items);
                    if known.finish(*class, now, *free_at, more) > known.must_end_by(&first) {
                        break;
                    }
                    items = more;
                    batch.push((*key, *request));
                }
                for (key, _) in &batch {
                    self.waiting.remove(key);
                }
                let start = known.start(now, *free_at, items);
                let requests = batch.into_iter().map(|(_, request)| request);
                if out.plan(model, known, (gpu, *class), start, requests).is_some() {
                    *free_at = Time::NEVER;
                } else {
                    // Not even alone. Another class of GPUs might: a policy for several would keep it for that.
                    self.waiting.pop_first();
                    out.give_up(model, first, DropReason::SloUnreachable);
                }
            }
        }
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now) {
            let (model, request) = first.remove();
            out.give_up(model, request, DropReason::QueueExpired);
        }
        out.wake_at(self.waiting.first_key_value().map_or(Time::NEVER, |((deadline, _), _)| *deadline));
    }
}

impl ClusterPolicy for Edf {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Model { model, known } => _ = self.models.insert(model, known),
            ClusterInput::ModelGone(model) => {
                self.models.remove(&model);
                self.waiting.retain(|_, (of, _)| *of != model);
            }
            ClusterInput::Arrive { model, request } | ClusterInput::Return { model, request } => {
                if self.waiting.len() >= QUEUE_REQUESTS_MAX {
                    return out.give_up(model, request, DropReason::QueueFull);
                }
                self.waiting.insert((request.deadline, request.id), (model, request));
            }
            ClusterInput::Cancel { request, .. } => _ = self.waiting.remove(&(request.deadline, request.id)),
            ClusterInput::GpuUp { gpu, class, free_at } => _ = self.gpus.insert(gpu, (class, free_at)),
            ClusterInput::GpuDown(gpu) => _ = self.gpus.remove(&gpu),
            ClusterInput::Done { gpu, .. } | ClusterInput::Refused { gpu, .. } => {
                self.gpus.entry(gpu).and_modify(|(_, free_at)| *free_at = now);
            }
            _ => {}
        }
        self.serve(now, out);
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

fn main() -> ExitCode {
    symphony::main_with(PolicyRegistry::new().with("edf", |_, options| {
        options.only(&[])?;
        Ok(Box::new(Edf::default()))
    }))
}
