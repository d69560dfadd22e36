//! The cluster state as the control group's state machine.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use symphony_cluster_state::{ClusterState, Command, Effect, LogEntry, Operation, encode_outcome};
use symphony_consensus::StateMachine;
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
}

impl ClusterStateMachine {
    pub(crate) fn new(state: SharedState, checkpoints: Checkpoints, metrics: Metrics) -> (Self, watch::Receiver<u64>) {
        let (applied, receiver) = watch::channel(0);
        (Self { state, applied, checkpoints, metrics }, receiver)
    }

    fn announce(&self) {
        let state = self.state.read();
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.metrics.applied_index.set(gauge(state.applied_index()));
        self.metrics.epoch.set(gauge(state.epoch().get()));
        self.applied.send_replace(state.applied_index());
    }
}

impl StateMachine for ClusterStateMachine {
    fn apply(&mut self, index: u64, entry: &[u8]) -> Result<Vec<u8>, String> {
        // A proposed entry was decodable for its proposer. Replicas that can decode it have applied it; to skip it
        // here would make this one diverge.
        let entry = LogEntry::decode(entry)
            .map_err(|error| format!("{error}; run the release that wrote it, on every replica"))?;
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
        Ok(encode_outcome(&applied.outcome))
    }

    fn snapshot(&self) -> Vec<u8> {
        self.state.read().snapshot()
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), String> {
        let restored = ClusterState::restore(bytes).map_err(|error| error.to_string())?;
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
    use symphony_cluster_state::NodeRegistration;
    use symphony_types::{BootId, NodeId};

    use super::*;

    #[test]
    fn an_entry_of_another_release_is_not_skipped() {
        let (mut state_machine, applied) =
            ClusterStateMachine::new(SharedState::default(), Checkpoints::default(), Metrics::default());
        let reason = state_machine.apply(1, b"rubbish").unwrap_err();
        assert!(reason.contains("expected a header") && reason.contains("run the release that wrote it"), "{reason}");
        assert_eq!((*applied.borrow(), state_machine.state.read().applied_index()), (0, 0));
    }

    #[test]
    fn a_snapshot_carries_the_state_to_another_host_and_announces_it() {
        let (mut state_machine, applied) =
            ClusterStateMachine::new(SharedState::default(), Checkpoints::default(), Metrics::default());
        let registration = Command::RegisterNode(NodeRegistration {
            node: NodeId::new(1),
            boot: BootId::new(7),
            control_addr: "a:1".into(),
            dispatch_addr: "a:2".into(),
            beat_addr: "a:3".into(),
            disk: 1,
            avoid: None,
        });
        state_machine.apply(5, &LogEntry { at_unix_ms: 7, command: registration }.encode().unwrap()).unwrap();
        assert_eq!(*applied.borrow(), 5);
        let state = state_machine.state.read().clone();
        assert!(!state.events().is_empty() && state.events().iter().all(|event| event.at_unix_ms == 7));

        let (mut other, applied) =
            ClusterStateMachine::new(SharedState::default(), Checkpoints::default(), Metrics::default());
        other.restore(&state_machine.snapshot()).unwrap();
        assert_eq!(*applied.borrow(), 5);
        assert_eq!(*other.state.read(), *state_machine.state.read());
        assert!(other.restore(b"rubbish").is_err());
        assert_eq!(*other.state.read(), *state_machine.state.read(), "a failed restore leaves the state as it was");
    }
}
