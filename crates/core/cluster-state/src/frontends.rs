//! Commands about frontends.

use symphony_types::{BootId, FrontendId};

use crate::command::FrontendRegistration;
use crate::effect::Effect;
use crate::limits::FRONTENDS_MAX;
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::{ClusterState, Frontend, Standing};

const WHAT: &str = "frontend";

impl ClusterState {
    pub(crate) fn register_frontend(
        &mut self,
        registration: &FrontendRegistration,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let FrontendRegistration { name, boot, data_addr, console_addr } = registration;
        let boot = *boot;
        let new_entry = |previous_boot, standing| Frontend {
            name: name.clone(),
            boot,
            previous_boot,
            data_addr: data_addr.clone(),
            console_addr: console_addr.clone(),
            standing,
        };
        let frontend = match self.frontends.iter_mut().find(|(_, f)| f.name == *name) {
            None => {
                self.forget_a_frontend_that_left_if_full(effects);
                if self.frontends.len() >= FRONTENDS_MAX {
                    return Err(Refusal::Limit { what: "frontends".into(), max: FRONTENDS_MAX as u64 });
                }
                self.last.frontend += 1;
                let id = FrontendId::new(self.last.frontend);
                self.frontends.insert(id, new_entry(None, Standing::default()));
                id
            }
            Some((&id, entry)) if entry.boot == boot => {
                if entry.data_addr != *data_addr || entry.console_addr != *console_addr {
                    return Err(Refusal::Changed { what: WHAT.into(), name: name.clone(), boot });
                }
                return Ok(Reply::Frontend { frontend: id });
            }
            Some((_, entry)) if entry.previous_boot == Some(boot) => {
                let name = name.clone();
                return Err(Refusal::StaleBoot { what: WHAT.into(), name, named: boot, current: entry.boot });
            }
            Some((&id, entry)) => {
                *entry = new_entry(Some(entry.boot), entry.standing.after_restart());
                id
            }
        };
        effects.push(Effect::FrontendUp { frontend, name: name.clone(), boot });
        Ok(Reply::Frontend { frontend })
    }

    /// Removal by an operator. A frontend that takes requests stays: otherwise its clients would notice before the
    /// operator does.
    pub(crate) fn remove_frontend(&mut self, frontend: FrontendId, effects: &mut Vec<Effect>) -> Outcome {
        let entry = self.frontends.get(&frontend).ok_or(Refusal::UnknownFrontend { frontend })?;
        if entry.standing.duty().takes_work() {
            return Err(Refusal::TakesRequests { frontend, name: entry.name.clone() });
        }
        self.forget(frontend, effects);
        Ok(Reply::Done)
    }

    /// Removal by the Raft leader, which alone knows how long the frontend has been silent.
    pub(crate) fn forget_frontend(&mut self, frontend: FrontendId, boot: BootId, effects: &mut Vec<Effect>) -> Outcome {
        let entry = self.frontends.get(&frontend).ok_or(Refusal::UnknownFrontend { frontend })?;
        if entry.boot != boot {
            let (what, name) = (WHAT.into(), entry.name.clone());
            return Err(Refusal::StaleBoot { what, name, named: boot, current: entry.boot });
        }
        self.forget(frontend, effects);
        Ok(Reply::Done)
    }

    fn forget(&mut self, frontend: FrontendId, effects: &mut Vec<Effect>) {
        if let Some(entry) = self.frontends.remove(&frontend) {
            effects.push(Effect::FrontendForgotten { frontend, name: entry.name });
        }
    }

    /// The state cannot know that a crashed frontend will not come back: the Raft leader reports it before the slots
    /// are used up.
    fn forget_a_frontend_that_left_if_full(&mut self, effects: &mut Vec<Effect>) {
        if self.frontends.len() < FRONTENDS_MAX {
            return;
        }
        let left = self.frontends.iter().find(|(_, f)| f.standing.leaving && f.standing.drained);
        if let Some(frontend) = left.map(|(&id, _)| id) {
            self.forget(frontend, effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::{BootId, Member};

    use super::*;
    use crate::command::Command;

    fn registration(name: &str) -> Command {
        Command::RegisterFrontend(FrontendRegistration {
            name: name.into(),
            boot: BootId::new(1),
            data_addr: "host:1".into(),
            console_addr: "host:2".into(),
        })
    }

    #[test]
    fn a_frontend_that_has_left_makes_room() {
        let mut state = ClusterState::default();
        assert!(state.apply(1, &registration("f1")).outcome.is_ok());
        // The others are inserted directly: as many commands would take minutes with the invariants on.
        let first = state.frontends[&FrontendId::new(1)].clone();
        for id in 2..=FRONTENDS_MAX as u32 {
            state.frontends.insert(FrontendId::new(id), Frontend { name: format!("f{id}"), ..first.clone() });
        }
        state.last.frontend = FRONTENDS_MAX as u32;
        let full = Err(Refusal::Limit { what: "frontends".into(), max: FRONTENDS_MAX as u64 });
        assert_eq!(state.apply(2, &registration("one-more")).outcome, full);

        let (member, boot) = (Member::Frontend(FrontendId::new(7)), BootId::new(1));
        assert!(state.apply(3, &Command::Leave { member, boot }).outcome.is_ok());
        assert_eq!(state.apply(4, &registration("one-more")).outcome, full, "it still finishes requests");
        assert!(state.apply(5, &Command::ReportDrained { member, boot }).outcome.is_ok());
        let effects = state.apply(6, &registration("one-more")).effects;
        assert_eq!(effects[0], Effect::FrontendForgotten { frontend: FrontendId::new(7), name: "f7".into() });

        // The Raft leader frees a slot, too, for the boot that it names.
        let (silent, other) = (FrontendId::new(9), BootId::new(2));
        let stale = state.apply(7, &Command::ForgetFrontend { frontend: silent, boot: other }).outcome;
        assert!(matches!(stale, Err(Refusal::StaleBoot { .. })), "{stale:?}");
        assert!(state.apply(8, &Command::ForgetFrontend { frontend: silent, boot }).outcome.is_ok());
        assert!(state.apply(9, &registration("another")).outcome.is_ok());
        let again = state.apply(10, &Command::ForgetFrontend { frontend: silent, boot }).outcome;
        assert_eq!(again, Err(Refusal::UnknownFrontend { frontend: silent }));
    }
}
