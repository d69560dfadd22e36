//! Checks of the `security` section: certificates, or none.

use super::Check;
use crate::{NodeConfig, Role};

impl Check {
    pub(super) fn security(&mut self, config: &NodeConfig, role: Role) {
        let security = &config.security;
        for (key, file) in security.files() {
            match (file, security.insecure_dev) {
                (Some(file), true) => self.say(
                    key,
                    format!("{} with security.insecure_dev, which uses none; drop one of the two", file.display()),
                ),
                // `up` makes certificates for its processes by itself.
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
    }
}
