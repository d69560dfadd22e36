//! Checks of the `security` section: certificates, or none.

use super::{Check, limits};
use crate::{Address, NodeConfig, Role};

impl Check {
    pub(super) fn security(&mut self, config: &NodeConfig, role: Role) {
        let security = &config.security;
        for (key, file) in security.files() {
            match (file, security.insecure_dev) {
                (Some(file), true) => self.say(
                    key,
                    format!("{} with security.insecure_dev, which uses none; drop one of the two", file.display()),
                ),
                // `up` itself makes certificates for its processes.
                (None, false) if role != Role::Up => {
                    self.say(
                        key,
                        "must be given; make certificates with `symphony certs`, or set security.insecure_dev",
                    );
                }
                (Some(_), false) if role == Role::Up => {
                    self.say(key, "`up` makes certificates by itself; leave it out");
                }
                _ => {}
            }
        }
        let hosts = &security.page_hosts;
        if hosts.len() > limits::PAGE_HOSTS_MAX {
            let (got, max) = (hosts.len(), limits::PAGE_HOSTS_MAX);
            self.say("security.page_hosts", format!("{got} names; expected at most {max}"));
        }
        for (index, host) in hosts.iter().enumerate() {
            // What an address takes for a host, and no port.
            if host.contains(':') || format!("{host}:0").parse::<Address>().is_err() {
                let words =
                    format!("`{host}` is no name of a host; expected one without a port, such as console.example");
                self.say(format!("security.page_hosts.{index}"), words);
            }
        }
    }
}
