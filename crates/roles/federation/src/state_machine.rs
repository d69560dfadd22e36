//! The federation's state as the group's state machine.

use std::sync::Arc;

use symphony_consensus::StateMachine;
use symphony_federation_state::{Command, FederationState, LogEntry, Operation, check, encode_outcome};
use tokio::sync::watch;

/// Applies the committed commands, and publishes the state.
#[derive(Debug)]
pub(crate) struct FederationStateMachine {
    state: watch::Sender<Arc<FederationState>>,
}

impl FederationStateMachine {
    pub(crate) fn new() -> (Self, watch::Receiver<Arc<FederationState>>) {
        let (state, receiver) = watch::channel(Arc::default());
        (Self { state }, receiver)
    }

    fn show(&self, state: FederationState) {
        if let Err(violation) = check(&state) {
            symphony_telemetry::violated(violation.invariant, &violation.what);
        }
        self.state.send_replace(Arc::new(state));
    }
}

impl StateMachine for FederationStateMachine {
    fn apply(&mut self, index: u64, entry: &[u8]) -> Result<Vec<u8>, String> {
        let entry = LogEntry::decode(entry)
            .map_err(|error| format!("{error}; run the release that wrote it, on every replica"))?;
        // A copy for each command: there are only a few per minute, and readers keep a consistent state.
        let mut state = FederationState::clone(&self.state.borrow());
        let outcome = state.apply_entry(index, &entry);
        let command = &entry.command;
        if let Command::Operate(Operation { id, actor, action, .. }) = command {
            tracing::info!(index, %id, actor, "{action}");
        }
        match &outcome {
            Ok(_) => state.events().iter().filter(|event| event.index == index).for_each(|event| {
                tracing::info!(index, "{}", event.what);
            }),
            Err(refusal) => tracing::info!(index, command = command.label(), %refusal, "command refused"),
        }
        self.show(state);
        Ok(encode_outcome(&outcome))
    }

    fn snapshot(&self) -> Vec<u8> {
        self.state.borrow().snapshot()
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), String> {
        let restored = FederationState::restore(bytes).map_err(|error| error.to_string())?;
        self.show(restored);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_another_release_is_not_skipped_and_a_snapshot_carries_the_state() {
        let (mut state_machine, state) = FederationStateMachine::new();
        assert!(state_machine.apply(1, b"rubbish").unwrap_err().contains("run the release that wrote it"));
        let see = Command::SeeCluster { name: "a".into(), control: vec!["c:1".into()], kinds: Default::default() };
        state_machine.apply(2, &LogEntry { at_unix_ms: 7, command: see }.encode().unwrap()).unwrap();
        assert_eq!(state.borrow().clusters().len(), 1);
        let events = state.borrow().events().clone();
        assert!(!events.is_empty() && events.iter().all(|event| event.at_unix_ms == 7));
        let (mut other, restored) = FederationStateMachine::new();
        other.restore(&state_machine.snapshot()).unwrap();
        assert_eq!(restored.borrow().state_hash(), state.borrow().state_hash());
        assert!(other.restore(b"SYFS").is_err());
    }
}
