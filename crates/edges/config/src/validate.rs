//! Finds values that are valid by themselves and contradict each other. All problems are reported at once.

mod addresses;
mod backend;
mod cluster;
mod federation;
mod frontend;
pub mod limits;
mod scheduler;
mod security;
mod telemetry;
mod transports;

use symphony_types::{is_name, looks_like_an_id};

use crate::{NodeConfig, Problem, Role};

impl NodeConfig {
    /// Everything about this configuration that cannot work for `role`; empty if it can.
    #[must_use]
    pub fn validate(&self, role: Role) -> Vec<Problem> {
        problems(self, role)
    }
}

fn problems(config: &NodeConfig, role: Role) -> Vec<Problem> {
    let mut check = Check { problems: Vec::new() };
    check.sections(config, role);
    check.cluster(config, role);
    if let Some(scheduler) = &config.scheduler {
        check.scheduler(config, scheduler);
    }
    if let Some(frontend) = &config.frontend {
        check.frontend(frontend);
        check.access(config, frontend);
        check.repository(config, &frontend.repository, role);
    }
    if let Some(backend) = &config.backend {
        check.backend(backend);
    }
    if let Some(federation) = &config.federation {
        check.federation(config, federation, role);
    }
    check.network(config);
    check.frames(&config.frames);
    check.log(config);
    check.telemetry(&config.telemetry);
    check.ports(config);
    check.reach(config);
    check.security(config, role);
    check.rdma(config);
    check.problems
}

struct Check {
    problems: Vec<Problem>,
}

impl Check {
    fn say(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem::new(key, message));
    }

    fn name(&mut self, key: impl Into<String>, name: &str) {
        if !is_name(name) {
            let max = symphony_types::NAME_BYTES_MAX;
            self.say(key, format!("`{name}` is not a name; expected 1 to {max} of a–z, 0–9 and -, no leading -"));
        }
    }

    /// The name of a process, by which commands find it, as they do by its id.
    fn process_name(&mut self, key: &str, name: &str) {
        self.name(key, name);
        if looks_like_an_id(name) {
            let words = format!(
                "`{name}` looks like the id of a process, which commands would take it for; expected a name that is not one of n, b, f \
                 and a number"
            );
            self.say(key, words);
        }
    }

    fn range(&mut self, key: impl Into<String>, value: u64, min: u64, max: u64) {
        if !(min..=max).contains(&value) {
            self.say(key, format!("{value} is out of range; expected {min} to {max}"));
        }
    }

    fn sections(&mut self, config: &NodeConfig, role: Role) {
        let present = [
            ("scheduler", config.scheduler.is_some()),
            ("frontend", config.frontend.is_some()),
            ("backend", config.backend.is_some()),
            ("federation", config.federation.is_some()),
        ];
        for (section, there) in present {
            if !there && role.sections().contains(&section) {
                self.say(section, format!("the section is missing; `symphony {role}` needs it"));
            }
        }
    }
}
