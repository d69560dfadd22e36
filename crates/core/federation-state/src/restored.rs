//! The initial state of a federation's group that is founded from a backup (ADR 42).

use crate::format::MAGIC;
use crate::invariants::{self, Violation};
use crate::state::{FederationState, Progress};

impl FederationState {
    /// Whether these bytes are a [`snapshot`](Self::snapshot) of a federation, of whatever release.
    #[must_use]
    pub fn is_snapshot(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC.as_bytes())
    }

    /// The largest number in it that the group has given.
    #[must_use]
    pub fn largest_number(&self) -> u64 {
        self.applied_index.max(self.plan)
    }

    /// Makes this the state of a new group whose log begins at `index`, which is above every number that the former
    /// group can have given: frontends keep the plan of the largest number. Calls that leaders have still to make to
    /// clusters get that number, too: the ids of calls are derived from it, and a cluster does each but once. Its
    /// replicas may come over empty disks.
    ///
    /// # Errors
    /// A [`Violation`], if the index is not above all of the state.
    pub fn begin_anew(mut self, index: u64, at_unix_ms: u64) -> Result<Self, Violation> {
        let former = std::mem::replace(&mut self.applied_index, index);
        self.plan = index;
        self.replicas.clear();
        let mut begun_anew = Vec::new();
        for (name, model) in &mut self.models {
            if let Some(moving) = &mut model.moving {
                begun_anew.push((name.clone(), std::mem::replace(&mut moving.since, index)));
            }
            model.leftovers.values_mut().for_each(|since| *since = index);
        }
        for (model, since) in begun_anew {
            let why = "it begins anew, as the federation was restored from a backup".to_owned();
            self.remember_end(&model, since, Progress::GivenUp(why));
        }
        self.note(index, format!("restored from a backup of log index {former}; what was agreed on after it is lost"));
        if let Some(event) = self.events.back_mut() {
            event.at_unix_ms = at_unix_ms;
        }
        invariants::check(&self)?;
        Ok(self)
    }
}
