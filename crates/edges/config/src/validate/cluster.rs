//! Checks of the `cluster` section: its name and its replicas.

use std::collections::BTreeSet;

use super::{Check, limits};
use crate::{NodeConfig, Role};

impl Check {
    pub(super) fn cluster(&mut self, config: &NodeConfig, role: Role) {
        let cluster = &config.cluster;
        self.name("cluster.name", &cluster.name);
        if config.federation.is_some()
            && config.frontend.as_ref().is_some_and(|f| f.payloads.must_share() || f.payloads.must_use_rdma())
        {
            let why = "a frontend of a federation shares no memory, so that requests can go to another cluster";
            self.say("frontend.payloads.required", format!("{why}; leave it out"));
        }
        if config.federation.is_some() {
            if !cluster.scheduler.is_empty() {
                let advice = "give them as the control of one of federation.clusters";
                self.say("cluster.scheduler", format!("a node of a federation belongs to no single cluster; {advice}"));
            }
            return;
        }
        let replicas = cluster.scheduler.len();
        let is_even = replicas.is_multiple_of(2) && replicas < 8;
        // Between two odd numbers there is an even one; and a joining replica founds nothing.
        let is_passed = is_even && config.scheduler.as_ref().is_some_and(|scheduler| scheduler.join);
        if replicas == 0 {
            self.say(
                "cluster.scheduler",
                format!("no scheduler replica is given, so a {role} has no cluster to join; add [[cluster.scheduler]]"),
            );
        } else if !limits::REPLICAS.contains(&replicas) && !is_passed {
            let advice = if is_even {
                format!("{replicas} replicas survive no more failures than {}", replicas - 1)
            } else {
                "more replicas only make every commit slower".to_owned()
            };
            self.say("cluster.scheduler", format!("{replicas} replicas; expected 1, 3, 5 or 7: {advice}"));
        }
        let mut seen = BTreeSet::new();
        for (index, replica) in cluster.scheduler.iter().enumerate() {
            let key = format!("cluster.scheduler.{index}.id");
            if replica.id.get() == 0 {
                self.say(key, "0 is no id; expected a number from 1 that no other replica ever had");
            } else if !seen.insert(replica.id) {
                self.say(key, format!("{} is given to two replicas; ids are unique", replica.id.get()));
            }
        }
    }
}
