//! Policies that a program adds: each fault ends the run under its name, and the process goes on.

use std::collections::VecDeque;
use std::sync::Arc;

use symphony_scheduler::{
    ClusterAction, ClusterActions, ClusterInput, ClusterModel, ClusterPolicy, PolicyRegistry, Request,
};
use symphony_types::{DropReason, GpuClass, GpuId, Invariant, Nanos, Time};
use symphony_workload::Scenario;

use crate::error::Error;
use crate::simulate::simulate;

/// What the policy does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    Overlaps,
    Late,
    Twice,
    Preempts,
    UnknownGpu,
    UnknownModel,
    Panics,
    OrdersForEver,
    Forgets,
    BadRange,
}

/// One request at a time on one GPU.
struct One {
    wrong: Wrong,
    known: Option<Arc<ClusterModel>>,
    gpu: Option<(GpuId, GpuClass, Time)>,
    queue: VecDeque<Request>,
}

impl One {
    fn serve(&mut self, now: Time, out: &mut ClusterActions) {
        let (Some(known), Some((gpu, class, free_at))) = (&self.known, &mut self.gpu) else { return };
        while *free_at <= now
            && let Some(request) = self.queue.pop_front()
        {
            let start = known.start(now, *free_at, request.items);
            if known.finish(*class, now, *free_at, request.items) > known.must_end_by(&request) {
                if self.wrong != Wrong::Forgets {
                    out.give_up(0, request, DropReason::SloUnreachable);
                }
                continue;
            }
            let Some(plan) = out.plan(0, known, (*gpu, *class), start, [request]) else { continue };
            *free_at = plan.end;
            if let Some(ClusterAction::Execute { model, plan }) = out.list.last_mut() {
                match self.wrong {
                    Wrong::Late => plan.end += Nanos::new(1),
                    Wrong::UnknownGpu => plan.gpu = GpuId::new(u32::MAX),
                    Wrong::UnknownModel => *model = u32::MAX,
                    Wrong::BadRange => plan.first = u32::MAX,
                    _ => {}
                }
            }
            match self.wrong {
                Wrong::Twice => out.give_up(0, request, DropReason::Shed),
                Wrong::Preempts => out.preempt(GpuId::new(7)),
                Wrong::Panics => panic!("planted"),
                Wrong::OrdersForEver => loop {
                    out.wake_at(now);
                },
                Wrong::Overlaps => *free_at = now,
                _ => {}
            }
        }
    }
}

impl ClusterPolicy for One {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Model { known, .. } => self.known = Some(known),
            ClusterInput::GpuUp { gpu, class, free_at } => self.gpu = Some((gpu, class, free_at)),
            ClusterInput::Arrive { request, .. } | ClusterInput::Return { request, .. } => {
                self.queue.push_back(request);
            }
            _ => {}
        }
        self.serve(now, out);
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }
}

fn run(wrong: Wrong) -> Result<crate::RunResult, Error> {
    let text = "
        name = 'added'
        policy = 'one'
        duration_s = 1
        warmup_s = 0
        seeds = [1]
        gpu = [{ kind = 'x', count = 1 }]
        model = [{ name = 'm', alpha_ms = 1, beta_ms = 5, slo_ms = 25 }]
        workload = { rate_rps = 400, arrival = 'poisson' }";
    let policies = PolicyRegistry::new().with("one", move |_, options| {
        options.only(&[])?;
        Ok(Box::new(One { wrong, known: None, gpu: None, queue: VecDeque::new() }))
    });
    let scenario = Scenario::parse_among("a.toml", text, &[], &|_| Err(String::new()), &policies).unwrap();
    simulate(&scenario, 1, 400.0)
}

#[test]
fn an_added_policy_serves_what_it_can() {
    let result = run(Wrong::Nothing).unwrap();
    let model = &result.models[0];
    assert_eq!(model.offered, model.good + model.dropped);
    assert!(model.good > 120, "one at a time in 6 ms: {}", model.good);
}

#[test]
fn every_fault_ends_the_run_and_is_named() {
    let invariants = [
        (Wrong::Overlaps, Invariant::S1, "is busy until"),
        (Wrong::Late, Invariant::S2, "and takes"),
        (Wrong::Twice, Invariant::S3, "not open or not its own"),
        (Wrong::Forgets, Invariant::S3, "neither an outcome nor a plan"),
        (Wrong::Preempts, Invariant::S4, "which is not here"),
        (Wrong::UnknownGpu, Invariant::S5, "which is not here"),
        (Wrong::UnknownModel, Invariant::S5, "which is not here"),
        (Wrong::BadRange, Invariant::S5, "has the requests"),
    ];
    for (wrong, invariant, words) in invariants {
        let error = run(wrong).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, Error::Policy { .. }), "{message}");
        assert!(
            message.contains(&format!("policy `one` broke {}", invariant.id())) && message.contains(words),
            "{message}"
        );
        assert!(message.contains("to repeat: symphony sim a.toml"), "{message}");
    }
    let panics = run(Wrong::Panics).unwrap_err().to_string();
    assert!(panics.contains("policy `one` panicked at input `arrive`: planted"), "{panics}");
    let endless = run(Wrong::OrdersForEver).unwrap_err().to_string();
    assert!(endless.contains("CLUSTER_ORDERS_MAX"), "{endless}");
}

#[test]
fn unknown_names_and_options_are_refused_with_what_is_known() {
    let text = "
        name = 'added'
        policy = 'one'
        gpu = [{ kind = 'x', count = 1 }]
        model = [{ name = 'm', alpha_ms = 1, beta_ms = 5, slo_ms = 25 }]
        workload = { rate_rps = 400, arrival = 'poisson' }";
    let read = |_: &str| Err(String::new());
    let policies = PolicyRegistry::new().with("two", |_, options| {
        options.only(&["depth"])?;
        Err("planted".to_owned())
    });
    let refused = |overrides: &[&str]| {
        let overrides: Vec<_> = overrides.iter().map(|&text| text.to_owned()).collect();
        Scenario::parse_among("a.toml", text, &overrides, &read, &policies).unwrap_err().to_string()
    };
    assert!(refused(&[]).contains("\"clkwrk\", \"two\", got \"one\""), "{}", refused(&[]));
    let option = refused(&["policy={ name = 'two', dpeth = 3 }"]);
    assert!(option.contains("policy `two`: key `dpeth`: expected only depth"), "{option}");
}
