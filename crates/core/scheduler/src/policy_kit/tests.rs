//! Every built-in policy through many stories, and a broken policy for each rule.

use std::collections::BTreeMap;

use symphony_policy::PolicySpec;
use symphony_types::DropReason;

use super::*;
use crate::{ClusterPolicy, PolicyRegistry};

#[test]
fn every_policy_for_clusters_keeps_its_rules_through_many_stories() {
    let texts = [
        "clockwork",
        "{ name = 'clockwork', commit_ms = 0, early_ms = 0 }",
        "nexus",
        "{ name = 'nexus', frontends = 3 }",
        "shepherd",
        "{ name = 'shepherd', preempt_factor = 1 }",
        "kairos",
        "{ name = 'kairos', learn = true }",
        "ribbon",
        "drs",
        "{ name = 'drs', threshold = 2 }",
        "clkwrk",
    ];
    for text in texts {
        let spec: PolicySpec = text.parse().unwrap();
        let mut all = KitReport::default();
        for seed in 0..150 {
            for facts in [ClusterFacts::default(), ClusterFacts::simulated(seed)] {
                let policy = PolicyRegistry::new().build(&spec, &facts).unwrap();
                let report = drive(policy, &facts, seed).unwrap_or_else(|fault| panic!("{text}: {fault}"));
                all.ran += report.ran;
                all.dropped += report.dropped;
                all.refused += report.refused;
                all.cancelled += report.cancelled;
                all.preempted += report.preempted;
            }
        }
        assert!(all.ran > 2_000 && all.dropped > 2_000 && all.refused > 50 && all.cancelled > 10, "{text}: {all:?}");
        assert_eq!(all.preempted > 0, text.contains("shepherd"), "{text}: {all:?}");
    }
}

/// What a policy does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    Nothing,
    Overlaps,
    StartsEarly,
    OtherClass,
    TooLate,
    KeepsCancelled,
    DropsTwice,
    Preempts,
    LeavesDownGpus,
    TooManyPlans,
    SlowToDrop,
    Panics,
    Loops,
    Spins,
}

/// First come, first served, one request at a time, until it does its wrong.
struct Planted {
    wrong: Wrong,
    models: BTreeMap<u32, Arc<ClusterModel>>,
    gpus: BTreeMap<GpuId, (GpuClass, Time)>,
    queue: Vec<(u32, Request)>,
}

impl Planted {
    fn serve(&mut self, now: Time, out: &mut ClusterActions) {
        for (model, request) in std::mem::take(&mut self.queue) {
            let Some(known) = self.models.get(&model) else { continue };
            let finish = |class, free_at| known.finish(class, now, free_at, request.items);
            let best = self.gpus.iter_mut().min_by_key(|(_, (class, free_at))| finish(*class, *free_at));
            let Some((&gpu, (class, free_at))) = best else {
                match self.wrong {
                    Wrong::SlowToDrop => self.queue.push((model, request)),
                    _ => out.give_up(model, request, DropReason::SloUnreachable),
                }
                continue;
            };
            let is_late = finish(*class, *free_at) > known.must_end_by(&request);
            if is_late && (self.wrong != Wrong::TooLate || finish(*class, *free_at) == Time::NEVER) {
                match self.wrong {
                    Wrong::SlowToDrop => self.queue.push((model, request)),
                    _ => out.give_up(model, request, DropReason::SloUnreachable),
                }
                continue;
            }
            let mut start = known.start(now, *free_at, request.items);
            if self.wrong == Wrong::StartsEarly && start > now {
                start = start - Nanos::new(1);
            }
            let Some(plan) = out.plan(model, known, (gpu, *class), start, [request]) else { continue };
            *free_at = if self.wrong == Wrong::Overlaps { now } else { plan.end };
            if self.wrong == Wrong::OtherClass
                && let Some(ClusterAction::Execute { plan, .. }) = out.list.last_mut()
            {
                let other = GpuClass::all().nth(1 - class.index()).unwrap_or_default();
                plan.end = plan.start + known.latency(other, plan.batch);
            }
            if self.wrong == Wrong::DropsTwice {
                out.give_up(model, request, DropReason::Shed);
            }
        }
    }
}

impl ClusterPolicy for Planted {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Model { model, known } => _ = self.models.insert(model, known),
            ClusterInput::ModelGone(model) => {
                self.models.remove(&model);
                self.queue.retain(|(of, _)| *of != model);
            }
            ClusterInput::Arrive { model, request } | ClusterInput::Return { model, request } => {
                self.queue.push((model, request));
            }
            ClusterInput::Cancel { .. } if self.wrong == Wrong::KeepsCancelled => {}
            ClusterInput::Cancel { request, .. } => self.queue.retain(|(_, other)| other.id != request.id),
            ClusterInput::GpuUp { gpu, class, free_at } => _ = self.gpus.insert(gpu, (class, free_at)),
            ClusterInput::GpuDown(_) if self.wrong == Wrong::LeavesDownGpus => {}
            ClusterInput::GpuDown(gpu) => _ = self.gpus.remove(&gpu),
            ClusterInput::Done { gpu, .. } if self.wrong == Wrong::Preempts => out.preempt(gpu),
            ClusterInput::Done { .. } if self.wrong == Wrong::Panics => panic!("planted"),
            ClusterInput::Done { .. } if self.wrong == Wrong::Loops => loop {
                out.wake_at(now);
            },
            _ => {}
        }
        if self.wrong == Wrong::Spins {
            out.wake_at(now);
        }
        // Requests that are served at once are never there to be cancelled.
        if self.wrong != Wrong::KeepsCancelled {
            self.serve(now, out);
        }
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }
}

fn planted(wrong: Wrong, facts: &ClusterFacts) -> Option<KitFault> {
    (0..40).find_map(|seed| {
        let policy = Planted { wrong, models: BTreeMap::new(), gpus: BTreeMap::new(), queue: Vec::new() };
        drive(GuardedPolicy::new("planted", Box::new(policy)), facts, seed).err()
    })
}

#[test]
fn each_rule_that_is_broken_is_named() {
    let (live, deep) = (ClusterFacts::default(), ClusterFacts::simulated(0));
    let unstoppable = ClusterFacts { can_preempt: false, ..ClusterFacts::simulated(0) };
    assert_eq!(planted(Wrong::Nothing, &deep), None);
    let faults = [
        (Wrong::Overlaps, &deep, "S1: "),
        (Wrong::StartsEarly, &deep, "broke S"),
        (Wrong::OtherClass, &deep, "S2: "),
        (Wrong::TooLate, &deep, "S2: "),
        (Wrong::KeepsCancelled, &deep, "S3: "),
        (Wrong::DropsTwice, &deep, "S3: "),
        (Wrong::Preempts, &unstoppable, "S4: "),
        (Wrong::LeavesDownGpus, &deep, "S5: "),
        (Wrong::TooManyPlans, &live, "S5: "),
        (Wrong::SlowToDrop, &deep, "still holds request"),
        (Wrong::Panics, &deep, "panicked at input `done`: planted"),
        (Wrong::Loops, &deep, "CLUSTER_ORDERS_MAX"),
        (Wrong::Spins, &deep, "wake-ups"),
    ];
    for (wrong, facts, words) in faults {
        let Some(fault) = planted(wrong, facts) else { panic!("{wrong:?} is not found") };
        assert!(fault.to_string().contains(words), "{wrong:?}: {fault}");
    }
}
