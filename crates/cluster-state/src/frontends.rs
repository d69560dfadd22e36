//! Commands about frontends.

use symphony_types::FrontendId;

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
        let life = |previous_boot, standing| Frontend {
            name: name.clone(),
            boot,
            previous_boot,
            data_addr: data_addr.clone(),
            console_addr: console_addr.clone(),
            standing,
        };
        let frontend = match self.frontends.iter_mut().find(|(_, f)| f.name == *name) {
            None => {
                if self.frontends.len() >= FRONTENDS_MAX {
                    return Err(Refusal::Limit { what: "frontends".into(), max: FRONTENDS_MAX as u64 });
                }
                self.last.frontend += 1;
                let id = FrontendId::new(self.last.frontend);
                self.frontends.insert(id, life(None, Standing::default()));
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
                return Err(Refusal::StaleLife { what: WHAT.into(), name, named: boot, current: entry.boot });
            }
            Some((&id, entry)) => {
                *entry = life(Some(entry.boot), entry.standing.reborn());
                id
            }
        };
        effects.push(Effect::FrontendUp { frontend, name: name.clone(), boot });
        Ok(Reply::Frontend { frontend })
    }
}
