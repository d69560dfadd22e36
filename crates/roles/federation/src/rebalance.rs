//! Decides when to redivide the models of all clusters, by measurements: the trigger of a cluster's epochs, applied to
//! the federation.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use symphony_controllers::{Ended, EpochTrigger, Holds, Start, TriggerSettings};
use symphony_federation_state::FederationState;
use symphony_types::Time;

use crate::problem::Known;

/// What the leader does with a more even division.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BalanceMode {
    /// Nothing: it does not look for one.
    Off,
    /// It reports it, for an operator to start.
    #[default]
    Propose,
    /// It starts its moves.
    Adopt,
}

/// How models are moved for balance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BalanceSettings {
    /// What to do with a more even division.
    pub mode: BalanceMode,
    /// When to look for one.
    pub trigger: TriggerSettings,
    /// C_max of the Symphony paper, equation 11: bytes of models that one division may move; none for no limit. Also
    /// holds for an operator's request.
    pub moved_bytes_max: Option<u64>,
}

/// Decides when to look for a more even division. In the leader's memory: a new leader starts afresh, and looks once
/// its measurements have lasted.
#[derive(Debug)]
pub(crate) struct Rebalance {
    settings: BalanceSettings,
    trigger: EpochTrigger<String>,
    members: Holds<u64>,
}

impl Rebalance {
    pub(crate) fn new(settings: BalanceSettings) -> Self {
        let trigger = EpochTrigger::new(settings.trigger.clone());
        Self { settings, trigger, members: Holds::default() }
    }

    /// What to do with a division that was found.
    pub(crate) const fn mode(&self) -> BalanceMode {
        self.settings.mode
    }

    /// Whether to look for a division now, while these frontends are silent. Then [`ended`](Self::ended) must follow.
    pub(crate) fn should_start(&mut self, now: Time, known: &Known<'_>, silent: &BTreeSet<String>) -> Option<Start> {
        let membership = membership(known);
        // A restarting process is back soon: only a lasting change counts.
        let unchanged_for = self.members.observe(now, membership);
        if self.settings.mode == BalanceMode::Off
            || is_busy(known.state)
            || unchanged_for < self.settings.trigger.change_holds
        {
            return None;
        }
        // Unreported demand moves no model: otherwise models would leave the clusters that serve them, or join
        // overloaded ones.
        if self.settings.mode == BalanceMode::Adopt && !silent.is_empty() {
            return None;
        }
        let served = known.state.models().iter().filter(|(_, model)| model.home.is_some() && !model.unloading);
        let rates: BTreeMap<_, _> = served.map(|(name, model)| (name.clone(), known.rate_rps(model))).collect();
        self.trigger.observe(now, &rates, membership)
    }

    pub(crate) fn ended(&mut self, now: Time, ended: Ended) {
        self.trigger.ended(now, ended);
    }
}

/// Moves are in progress, or models wait for a place, which comes first. A model that was tried and fits nowhere does
/// not delay balancing.
fn is_busy(state: &FederationState) -> bool {
    let waits = |model: &symphony_federation_state::Model| {
        let served = model.home.as_ref().is_some_and(|home| state.is_reachable(&home.cluster));
        !served && !model.unloading && model.unplaced.is_empty()
    };
    state.moves_under_way() > 0 || state.models().values().any(waits)
}

/// A fingerprint of the models, clusters and GPUs.
fn membership(known: &Known<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (name, model) in known.state.models() {
        (name, model.loaded_at, model.unloading).hash(&mut hasher);
    }
    for (name, cluster) in known.state.clusters() {
        (name, cluster.reachable).hash(&mut hasher);
        cluster.kinds.iter().for_each(|(kind, has)| (kind, has.gpus, has.memory_bytes).hash(&mut hasher));
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use symphony_controllers::Why;
    use symphony_federation_state::Cause;
    use symphony_types::Nanos;

    use super::*;
    use crate::places::{Stop, balance};
    use crate::scene::Scene;

    const HOUR_S: u64 = 3600;

    fn settings(mode: BalanceMode) -> BalanceSettings {
        BalanceSettings { mode, ..BalanceSettings::default() }
    }

    /// A federation over time: polled every second, and moves end within a second.
    struct Loop {
        scene: Scene,
        rebalance: Rebalance,
        moved_bytes_max: Option<u64>,
        silent: BTreeSet<String>,
        second: u64,
        /// When a division was looked for, why, and how many models it moved.
        epochs: Vec<(u64, Why, usize)>,
    }

    impl Loop {
        fn new(scene: Scene, settings: BalanceSettings) -> Self {
            let moved_bytes_max = settings.moved_bytes_max;
            let (rebalance, silent) = (Rebalance::new(settings), BTreeSet::new());
            Self { scene, rebalance, moved_bytes_max, silent, second: 0, epochs: Vec::new() }
        }

        fn run(&mut self, seconds: u64, rate: impl Fn(u64, &str) -> f64) {
            for _ in 0..seconds {
                self.second += 1;
                let now = Time::ZERO + Nanos::from_millis(1000 * self.second);
                let views = self.scene.views();
                let names = self.scene.state.models().keys();
                let rates: BTreeMap<_, _> = names.map(|name| (name.clone(), rate(self.second, name))).collect();
                let known = Known { state: &self.scene.state, views: &views, rates: &rates };
                let Some(Start { why, .. }) = self.rebalance.should_start(now, &known, &self.silent) else { continue };
                let found = balance(&known, self.moved_bytes_max, &Stop { together: &|| false, all: &|| false });
                self.rebalance.ended(now, if found.is_ok() { Ended::Done } else { Ended::Failed });
                let moves = found.map_or_else(|_| Vec::new(), |division| division.moves);
                self.epochs.push((self.second, why, moves.len()));
                if self.rebalance.mode() == BalanceMode::Adopt {
                    for wanted in moves {
                        self.scene.begin(&wanted.model, &wanted.to, Cause::Balance);
                        self.scene.arrive(&wanted.model, &wanted.to);
                    }
                }
            }
        }

        fn homes(&self) -> BTreeMap<String, usize> {
            let mut homes = BTreeMap::new();
            for home in self.scene.state.models().values().filter_map(|model| model.home.as_ref()) {
                *homes.entry(home.cluster.clone()).or_default() += 1;
            }
            homes
        }
    }

    /// Six models of 100 requests per second, all in the first of two clusters.
    fn skewed() -> Scene {
        let mut scene = Scene::new(&["a", "b"]);
        for model in ["m", "n", "o", "p", "q", "r"] {
            scene.load(model, 0);
            scene.settle(model, "a");
        }
        scene
    }

    #[test]
    fn a_skewed_load_moves_models_and_comes_to_rest() {
        let mut run = Loop::new(skewed(), settings(BalanceMode::Adopt));
        run.run(HOUR_S, |_, _| 100.0);
        let [(first, Why::Membership, 3), rest @ ..] = &run.epochs[..] else { panic!("{:?}", run.epochs) };
        assert_eq!(*first, 11, "what is seen has lasted for ten seconds");
        assert!(rest.iter().all(|(_, why, moved)| *why == Why::Period && *moved == 0), "{rest:?}");
        assert_eq!(run.homes(), [("a".to_owned(), 3), ("b".to_owned(), 3)].into());

        // Fluctuating rates move nothing.
        let begun = run.epochs.len();
        run.run(HOUR_S, |second, name| 100.0 + f64::from((second * 7 + name.len() as u64) as u32 % 11) - 5.0);
        assert!(run.epochs[begun..].iter().all(|(.., moved)| *moved == 0), "{:?}", &run.epochs[begun..]);

        // Demand for the models of one cluster grows to four times: one of them moves, and that is all.
        let (begun, second) = (run.epochs.len(), run.second);
        let hot: Vec<_> =
            run.scene.state.models().iter().filter(|(_, m)| m.home.as_ref().unwrap().cluster == "a").collect();
        let hot: Vec<String> = hot.into_iter().map(|(name, _)| name.clone()).collect();
        run.run(HOUR_S, |_, name| if hot.iter().any(|hot| hot == name) { 400.0 } else { 100.0 });
        let (at, why, moved) = run.epochs[begun];
        assert!(matches!(why, Why::Rates(share) if share > 0.2) && moved > 0, "{:?}", &run.epochs[begun..]);
        assert!(at - second <= 61, "after {} s", at - second);
        let after = &run.epochs[begun + 1..];
        assert!(after.iter().all(|(.., moved)| *moved == 0), "C4: it comes to rest: {after:?}");
    }

    #[test]
    fn divisions_keep_their_distance_and_move_no_more_than_they_may() {
        let mut limited = settings(BalanceMode::Adopt);
        // Models are one MiB each.
        limited.moved_bytes_max = Some(1 << 20);
        let mut run = Loop::new(skewed(), limited);
        run.run(HOUR_S, |_, _| 100.0);
        let moving: Vec<_> = run.epochs.iter().filter(|(.., moved)| *moved > 0).collect();
        assert!(moving.len() == 3 && moving.iter().all(|(.., moved)| *moved == 1), "{:?}", run.epochs);
        let distance_min_s = 60;
        assert!(run.epochs.windows(2).all(|pair| pair[1].0 - pair[0].0 >= distance_min_s), "{:?}", run.epochs);
        assert_eq!(run.homes(), [("a".to_owned(), 3), ("b".to_owned(), 3)].into());
    }

    #[test]
    fn what_is_only_proposed_moves_nothing_and_off_looks_for_nothing() {
        let mut run = Loop::new(skewed(), settings(BalanceMode::Propose));
        run.run(HOUR_S, |_, _| 100.0);
        assert!(run.epochs.len() > 1 && run.epochs.iter().all(|(.., moved)| *moved == 3), "{:?}", run.epochs);
        assert_eq!(run.homes(), [("a".to_owned(), 6)].into());
        let mut run = Loop::new(skewed(), settings(BalanceMode::Off));
        run.run(HOUR_S, |_, _| 100.0);
        assert_eq!(run.epochs, []);
    }

    #[test]
    fn nothing_is_begun_by_itself_while_a_frontend_that_may_serve_is_silent() {
        let silent = BTreeSet::from(["f1".to_owned()]);
        let mut run = Loop::new(skewed(), settings(BalanceMode::Adopt));
        run.silent = silent.clone();
        run.run(HOUR_S, |_, _| 100.0);
        assert_eq!((run.epochs.len(), run.homes()), (0, [("a".to_owned(), 6)].into()));
        run.silent.clear();
        run.run(60, |_, _| 100.0);
        assert_eq!(run.homes(), [("a".to_owned(), 3), ("b".to_owned(), 3)].into(), "it is heard again");
        let mut run = Loop::new(skewed(), settings(BalanceMode::Propose));
        run.silent = silent;
        run.run(60, |_, _| 100.0);
        assert_eq!(run.epochs.len(), 1, "an operator may know better: {:?}", run.epochs);
    }

    #[test]
    fn nothing_is_divided_while_models_move_or_wait_for_a_place() {
        let mut run = Loop::new(skewed(), settings(BalanceMode::Adopt));
        run.scene.begin("m", "b", Cause::Operator);
        run.run(HOUR_S, |_, _| 100.0);
        assert_eq!(run.epochs, []);
        run.scene.arrive("m", "b");
        run.scene.load("waits", 1);
        run.run(HOUR_S, |_, _| 100.0);
        assert_eq!(run.epochs, []);
        let loaded_at = run.scene.state.models()["waits"].loaded_at;
        let (model, reason) = ("waits".to_owned(), "no room".to_owned());
        run.scene.done(&symphony_federation_state::Command::Unplaced { model, loaded_at, reason });
        run.run(60, |_, _| 100.0);
        assert_eq!(run.epochs.len(), 1, "{:?}", run.epochs);
    }
}
