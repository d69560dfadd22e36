//! Decides which replicas to start, drain and stop to reach the desired number.

use std::collections::BTreeMap;
use std::time::Duration;

use symphony_types::GpuId;
use tokio::time::Instant;

/// The delay before a process that ended by itself is restarted: one that cannot run must not use up the machine's
/// time.
const RESTART_AFTER: Duration = Duration::from_secs(2);
/// A replica that does not drain in this time is stopped; it then has a few seconds to finish its work.
pub(crate) const DRAIN_WITHIN: Duration = Duration::from_secs(60);
/// A replica that does not stop is killed after this time, which exceeds a process's own limit.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// The observed state of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// Its process runs.
    pub(crate) runs: bool,
    /// Whether the cluster shows it as up.
    pub(crate) up: bool,
    /// Whether it is drained.
    pub(crate) drained: bool,
    /// Its highest GPU.
    pub(crate) gpu: Option<GpuId>,
}

/// An action on a replica, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start its process.
    Start(u32),
    /// Let it finish what it has, and take nothing new.
    Drain(u32),
    /// Let it serve again.
    Uncordon(u32),
    /// Tell its process to stop.
    Stop(u32),
    /// Kill its process.
    Kill(u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// To be serving; its process was started at this time.
    Serving,
    /// Its process ended by itself and is restarted at this time.
    Fallen {
        until: Instant,
    },
    Draining {
        since: Instant,
    },
    Stopping {
        since: Instant,
    },
}

/// All replicas.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    phases: BTreeMap<u32, Phase>,
}

impl Replicas {
    /// Replicas that are to serve.
    pub(crate) fn current(&self) -> u32 {
        self.phases.values().filter(|phase| phase.is_to_serve()).count() as u32
    }

    /// Replicas that have, or lately had, a process.
    pub(crate) fn known(&self) -> impl Iterator<Item = u32> {
        self.phases.keys().copied()
    }

    /// Moves the number of serving replicas one step towards `desired`; called repeatedly.
    pub(crate) fn step(&mut self, now: Instant, desired: u32, seen: &BTreeMap<u32, Seen>) -> Vec<Order> {
        let mut orders = Vec::new();
        let look = |number: &u32| seen.get(number).copied().unwrap_or_default();
        self.go_on(now, look, &mut orders);
        for _ in self.current()..desired {
            let number = self.first_free();
            // A draining replica serves again before another one is started: its models are loaded.
            if let Some((&number, phase)) = self.phases.iter_mut().find(|(_, p)| matches!(p, Phase::Draining { .. })) {
                *phase = Phase::Serving;
                orders.push(Order::Uncordon(number));
                continue;
            }
            self.phases.insert(number, Phase::Serving);
            orders.push(Order::Start(number));
        }
        for _ in desired..self.current() {
            // The highest GPU ids first, which serve least and are those in the advice; before them replicas without
            // GPUs.
            let last = |number: &u32| (!look(number).up, look(number).gpu, *number);
            let serving = self.phases.iter().filter(|(_, phase)| phase.is_to_serve());
            let Some(number) = serving.map(|(&number, _)| number).max_by_key(last) else { break };
            match look(&number) {
                Seen { up: true, .. } => {
                    self.phases.insert(number, Phase::Draining { since: now });
                    orders.push(Order::Drain(number));
                }
                Seen { runs: true, .. } => {
                    self.phases.insert(number, Phase::Stopping { since: now });
                    orders.push(Order::Stop(number));
                }
                _ => {
                    self.phases.remove(&number);
                }
            }
        }
        orders
    }

    fn go_on(&mut self, now: Instant, look: impl Fn(&u32) -> Seen, orders: &mut Vec<Order>) {
        let mut gone = Vec::new();
        for (&number, phase) in &mut self.phases {
            let seen = look(&number);
            match *phase {
                Phase::Serving if !seen.runs => *phase = Phase::Fallen { until: now + RESTART_AFTER },
                Phase::Fallen { until } if now >= until => {
                    *phase = Phase::Serving;
                    orders.push(Order::Start(number));
                }
                Phase::Draining { .. } | Phase::Stopping { .. } if !seen.runs => gone.push(number),
                Phase::Draining { since } if seen.drained || !seen.up || now >= since + DRAIN_WITHIN => {
                    *phase = Phase::Stopping { since: now };
                    orders.push(Order::Stop(number));
                }
                Phase::Stopping { since } if now >= since + STOP_WITHIN => orders.push(Order::Kill(number)),
                _ => {}
            }
        }
        gone.into_iter().for_each(|number| {
            self.phases.remove(&number);
        });
    }

    fn first_free(&self) -> u32 {
        (0..).find(|number| !self.phases.contains_key(number)).unwrap_or(u32::MAX)
    }
}

impl Phase {
    const fn is_to_serve(self) -> bool {
        matches!(self, Self::Serving | Self::Fallen { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Scene {
        replicas: Replicas,
        seen: BTreeMap<u32, Seen>,
        now: Option<Instant>,
    }

    impl Scene {
        /// One second later; started processes run and are up at once, stopped ones have ended.
        fn step(&mut self, desired: u32) -> Vec<Order> {
            let now = self.now.map_or_else(Instant::now, |now| now + Duration::from_secs(1));
            self.now = Some(now);
            let orders = self.replicas.step(now, desired, &self.seen);
            for order in &orders {
                match *order {
                    Order::Start(number) => {
                        let gpu = Some(GpuId::new(number));
                        self.seen.insert(number, Seen { runs: true, up: true, drained: false, gpu });
                    }
                    Order::Stop(number) | Order::Kill(number) => {
                        self.seen.remove(&number);
                    }
                    Order::Drain(_) | Order::Uncordon(_) => {}
                }
            }
            orders
        }

        fn drained(&mut self, number: u32) {
            self.seen.get_mut(&number).unwrap().drained = true;
        }
    }

    #[test]
    fn the_first_numbers_are_started_and_the_highest_gpus_drained_and_then_stopped() {
        let mut scene = Scene::default();
        assert_eq!(scene.step(3), [Order::Start(0), Order::Start(1), Order::Start(2)]);
        assert_eq!(scene.step(3), []);
        assert_eq!(scene.step(1), [Order::Drain(2), Order::Drain(1)]);
        assert_eq!(scene.step(1), [], "they have something left");
        scene.drained(2);
        assert_eq!(scene.step(1), [Order::Stop(2)]);
        scene.drained(1);
        assert_eq!(scene.step(1), [Order::Stop(1)]);
        assert_eq!(scene.step(1), []);
        assert_eq!(scene.replicas.known().collect::<Vec<_>>(), [0]);
        assert_eq!(scene.step(2), [Order::Start(1)]);
    }

    #[test]
    fn gpu_ids_decide_and_not_the_numbers() {
        let mut scene = Scene::default();
        let _ = scene.step(2);
        scene.seen.get_mut(&0).unwrap().gpu = Some(GpuId::new(70));
        assert_eq!(scene.step(1), [Order::Drain(0)]);
    }

    #[test]
    fn a_replica_that_is_drained_serves_again_when_the_load_comes_back() {
        let mut scene = Scene::default();
        let _ = scene.step(2);
        assert_eq!(scene.step(1), [Order::Drain(1)]);
        assert_eq!(scene.step(3), [Order::Uncordon(1), Order::Start(2)]);
        assert_eq!(scene.replicas.current(), 3);
    }

    #[test]
    fn what_does_not_drain_is_stopped_and_what_does_not_stop_is_killed() {
        let mut scene = Scene::default();
        let _ = scene.step(2);
        assert_eq!(scene.step(1), [Order::Drain(1)]);
        let mut stubborn = scene.seen[&1];
        let mut orders = Vec::new();
        for _ in 0..=(DRAIN_WITHIN + STOP_WITHIN).as_secs() {
            orders.extend(scene.step(1));
            scene.seen.entry(1).or_insert(stubborn);
            stubborn = scene.seen[&1];
        }
        // It is killed until it is dead.
        orders.dedup();
        assert_eq!(orders, [Order::Stop(1), Order::Kill(1)]);
    }

    #[test]
    fn a_process_that_ends_by_itself_is_started_again_after_a_while_and_others_are_not_started_for_it() {
        let mut scene = Scene::default();
        let _ = scene.step(2);
        scene.seen.remove(&0);
        assert_eq!(scene.step(2), []);
        assert_eq!(scene.step(2), []);
        assert_eq!(scene.step(2), [Order::Start(0)]);
        // A replica that is not up goes first.
        scene.seen.remove(&0);
        assert_eq!(scene.step(1), []);
        assert_eq!(scene.replicas.known().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn what_has_not_registered_yet_goes_without_a_drain() {
        let mut scene = Scene::default();
        let _ = scene.step(2);
        scene.seen.insert(1, Seen { runs: true, ..Seen::default() });
        assert_eq!(scene.step(1), [Order::Stop(1)]);
    }
}
