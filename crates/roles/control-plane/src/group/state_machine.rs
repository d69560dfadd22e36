//! The cluster state as the control group's state machine.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use symphony_cluster_state::{ClusterState, Command, Effect, LogEntry, Operation, encode_outcome, version_of};
use symphony_consensus::StateMachine;
use symphony_net::ClusterLevel;
use symphony_types::Level;
use tokio::sync::watch;

use crate::group::checkpoints::Checkpoints;
use crate::metrics::Metrics;

/// The state as this replica has applied it. The control group writes it; others read it briefly.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedState(Arc<RwLock<ClusterState>>);

impl SharedState {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, ClusterState> {
        // A panic while applying (in a debug build's check) leaves no half-done change.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn replace(&self, change: impl FnOnce(&mut ClusterState)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Applies the committed commands.
#[derive(Debug)]
pub(crate) struct ClusterStateMachine {
    state: SharedState,
    applied: watch::Sender<u64>,
    checkpoints: Checkpoints,
    metrics: Metrics,
    /// What this process knows; it follows the state.
    level: ClusterLevel,
}

impl ClusterStateMachine {
    pub(crate) fn new(
        state: SharedState,
        checkpoints: Checkpoints,
        metrics: Metrics,
        level: ClusterLevel,
    ) -> (Self, watch::Receiver<u64>) {
        let (applied, receiver) = watch::channel(0);
        (Self { state, applied, checkpoints, metrics, level }, receiver)
    }

    fn announce(&self) {
        let state = self.state.read();
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.metrics.applied_index.set(gauge(state.applied_index()));
        self.metrics.epoch.set(gauge(state.epoch().get()));
        self.metrics.level.set(i64::from(state.level().get()));
        self.level.update_by_log(state.level());
        self.applied.send_replace(state.applied_index());
    }
}

impl StateMachine for ClusterStateMachine {
    fn apply(&mut self, index: u64, entry: &[u8]) -> Result<Vec<u8>, String> {
        // A proposed entry was decodable for its proposer. Replicas that can decode it have applied it; to skip it
        // here would make this one diverge.
        let version = version_of(entry);
        let entry = LogEntry::decode_to(entry, self.level.newest().formats().state)
            .map_err(|error| format!("{error}; run the release that wrote it, on every replica"))
            .inspect_err(|reason| {
                tracing::error!(index, reason, "this replica cannot apply what was agreed, and ends")
            })?;
        if let Some(level) = version.and_then(Level::of_state) {
            self.state.replace(|state| state.found_at(level));
        }
        self.checkpoints.pass(&self.state.read(), index);
        let mut applied = None;
        self.state.replace(|state| applied = Some(state.apply_entry(index, &entry)));
        let applied = applied.ok_or("it was not applied")?;
        let command = &entry.command;
        if let Command::Operate(Operation { id, actor, action, .. }) = command {
            tracing::info!(index, %id, actor, "{action}");
        }
        self.metrics.commands_applied.inc();
        match &applied.outcome {
            Ok(_) => applied.effects.iter().for_each(|effect| log_effect(index, effect)),
            Err(refusal) => {
                self.metrics.commands_refused.inc();
                tracing::info!(index, command = command.label(), %refusal, "command refused");
            }
        }
        self.announce();
        Ok(encode_outcome(&applied.outcome, self.level.written()))
    }

    fn snapshot(&self) -> Vec<u8> {
        self.state.read().snapshot()
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), String> {
        let restored = ClusterState::restore_to(bytes, self.level.newest()).map_err(|error| error.to_string())?;
        self.state.replace(|state| *state = restored);
        self.announce();
        Ok(())
    }
}

fn log_effect(index: u64, effect: &Effect) {
    match effect {
        Effect::GpuBound { .. } | Effect::GpuReleased { .. } => tracing::debug!(index, "{effect}"),
        _ => tracing::info!(index, "{effect}"),
    }
}

#[cfg(test)]
mod tests {
    use symphony_cluster_state::{Action, NodeRegistration};
    use symphony_types::{BootId, NodeId, OperationId};

    use super::*;

    fn state_machine(level: ClusterLevel) -> (ClusterStateMachine, watch::Receiver<u64>) {
        ClusterStateMachine::new(SharedState::default(), Checkpoints::default(), Metrics::default(), level)
    }

    fn registration(node: u64) -> Command {
        Command::RegisterNode(NodeRegistration {
            node: NodeId::new(node),
            boot: BootId::new(7),
            control_addr: "a:1".into(),
            dispatch_addr: "a:2".into(),
            beat_addr: "a:3".into(),
            disk: 1,
            avoid: None,
        })
    }

    /// As a leader of a cluster at that level writes it.
    fn entry(command: Command, level: Level) -> Vec<u8> {
        let version = command.version_at(level);
        LogEntry { at_unix_ms: 7, command }.encode_in(version).unwrap()
    }

    fn raise() -> Command {
        let action = Action::RaiseLevel { level: Level::NEWEST };
        let (id, actor) = (OperationId::new(9), "operator/ann".to_owned());
        Command::Operate(Operation { id, actor, at_unix_ms: 0, avoid: None, action })
    }

    /// Two replicas of two releases apply the same log: equal states, byte for byte, until one command ends that.
    #[test]
    fn neighbours_agree_until_the_level_is_raised_and_then_the_older_one_stops_with_words() {
        let (new, old) = (ClusterLevel::default(), ClusterLevel::up_to(Level::OLDEST));
        let ((mut newer, _), (mut older, older_applied)) = (state_machine(new.clone()), state_machine(old.clone()));
        for index in 1..=3 {
            let entry = entry(registration(index), Level::OLDEST);
            assert_eq!(newer.apply(index, &entry), older.apply(index, &entry));
            assert_eq!(newer.snapshot(), older.snapshot(), "at index {index}");
        }
        assert_eq!((new.known(), old.known()), (Some(Level::OLDEST), Some(Level::OLDEST)));
        let (before, raise) = (newer.snapshot(), entry(raise(), Level::OLDEST));
        newer.apply(4, &raise).unwrap();
        assert_eq!((new.known(), newer.state.read().level()), (Some(Level::NEWEST), Level::NEWEST));
        let reason = older.apply(4, &raise).unwrap_err();
        let versions = format!(
            "of version {}; this release reads versions 9 to {}",
            Level::NEWEST.formats().state,
            Level::OLDEST.formats().state
        );
        assert!(reason.contains(&format!("log entry {versions}")), "{reason}");
        assert_eq!((*older_applied.borrow(), older.snapshot()), (3, before), "it is as it was");
        let reason = older.restore(&newer.snapshot()).unwrap_err();
        assert!(reason.contains(&format!("snapshot {versions}")), "{reason}");

        // And what was written before the raise is read after it.
        let (mut restarted, _) = state_machine(ClusterLevel::default());
        restarted.restore(&older.snapshot()).unwrap();
        restarted.apply(4, &raise).unwrap();
        assert_eq!(*restarted.state.read(), *newer.state.read());
    }

    #[test]
    fn a_cluster_begins_at_the_level_of_its_first_entry() {
        for level in [Level::OLDEST, Level::NEWEST] {
            let cluster_level = ClusterLevel::default();
            let (mut state_machine, _) = state_machine(cluster_level.clone());
            assert_eq!(cluster_level.known(), None);
            state_machine.apply(1, &entry(registration(1), level)).unwrap();
            assert_eq!((cluster_level.known(), state_machine.state.read().level()), (Some(level), level));
            // A leader that had not applied the first one yet.
            state_machine.apply(2, &entry(registration(2), Level::OLDEST)).unwrap();
            assert_eq!(state_machine.state.read().level(), level);
        }
    }

    #[test]
    fn an_entry_of_another_release_is_not_skipped() {
        let (mut state_machine, applied) = state_machine(ClusterLevel::default());
        let reason = state_machine.apply(1, b"rubbish").unwrap_err();
        assert!(reason.contains("expected a header") && reason.contains("run the release that wrote it"), "{reason}");
        assert_eq!((*applied.borrow(), state_machine.state.read().applied_index()), (0, 0));
    }

    #[test]
    fn a_snapshot_carries_the_state_to_another_host_and_announces_it() {
        let (mut state_machine, applied) = state_machine(ClusterLevel::default());
        state_machine.apply(5, &entry(registration(1), Level::NEWEST)).unwrap();
        assert_eq!(*applied.borrow(), 5);
        let state = state_machine.state.read().clone();
        assert!(!state.events().is_empty() && state.events().iter().all(|event| event.at_unix_ms == 7));

        let (mut other, applied) = self::state_machine(ClusterLevel::default());
        other.restore(&state_machine.snapshot()).unwrap();
        assert_eq!(*applied.borrow(), 5);
        assert_eq!(*other.state.read(), *state_machine.state.read());
        assert!(other.restore(b"rubbish").is_err());
        assert_eq!(*other.state.read(), *state_machine.state.read(), "a failed restore leaves the state as it was");
    }
}
