//! The policies that decide for whole sub-clusters: how one is set, which replicas know it, and what follows if it
//! fails.

use symphony_policy::{CLUSTER_POLICY_NAMES, POLICY_TEXT_BYTES_MAX, PolicySpec};
use symphony_types::{BootId, Level, NodeId, SubclusterId, Token};

use crate::effect::Effect;
use crate::leader_choice::Preference;
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::{ClusterState, Leader};
use crate::subcluster_policy::{FailedPolicy, POLICY_OF_MODELS, PolicyFailure, SubclusterPolicy};

fn invalid(reason: String) -> Refusal {
    Refusal::Invalid { field: "policy".into(), reason }
}

impl ClusterState {
    /// Below level 3 a snapshot has no room for policies: replicas of the release before would lose them.
    fn has_policies(&self) -> Result<(), Refusal> {
        if self.level >= Level::WITH_POLICIES {
            return Ok(());
        }
        // By number: refusals of operations are part of the state.
        let (needed, level) = (Level::WITH_POLICIES.get(), self.level.get());
        Err(invalid(format!("the cluster is at level {level}; expected level {needed} (symphony upgrade finish)")))
    }

    /// The policies of sub-clusters that have one.
    #[must_use]
    pub const fn policies(&self) -> &std::collections::BTreeMap<SubclusterId, SubclusterPolicy> {
        &self.policies
    }

    /// The names of policies that programs of living replicas add.
    fn added_policies(&self) -> impl Iterator<Item = &str> {
        let up = |node: &NodeId| self.nodes.get(node).is_some_and(|node| node.up);
        let known = self.policies_known.iter().filter(move |(node, _)| up(node));
        known.flat_map(|(_, names)| names.iter().map(String::as_str))
    }

    /// Whether the replica knows the policy that decides for the sub-cluster.
    pub(crate) fn can_decide(&self, node: NodeId, subcluster: SubclusterId) -> bool {
        let wanted = self.policies.get(&subcluster).filter(|policy| policy.failed.is_none());
        wanted.is_none_or(|policy| {
            policy.added.is_empty() || self.policies_known.get(&node).is_some_and(|names| names.contains(&policy.added))
        })
    }

    /// The replica's program adds these policies; they hold for this boot.
    pub(crate) fn know_policies(
        &mut self,
        node: NodeId,
        boot: BootId,
        names: &[String],
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        self.has_policies()?;
        let entry = self.nodes.get(&node).ok_or(Refusal::UnknownNode { node })?;
        if entry.boot != boot {
            let (what, name) = ("scheduler".into(), node.to_string());
            return Err(Refusal::StaleBoot { what, name, named: boot, current: entry.boot });
        }
        if self.policies_known.get(&node).is_none_or(|known| known != names) {
            self.policies_known.insert(node, names.to_vec());
            effects.push(Effect::PoliciesKnown { node, names: names.join(", ") });
        }
        Ok(Reply::Done)
    }

    /// Sets the policy of a sub-cluster. Its leader gets a new assignment: the lead under it decides by the new policy,
    /// and hears of all waiting requests as after a take-over.
    pub(crate) fn set_policy(&mut self, index: u64, name: &str, text: &str, effects: &mut Vec<Effect>) -> Outcome {
        self.has_policies()?;
        let unknown = || Refusal::UnknownSubcluster { name: name.to_owned() };
        let (id, leader) = self.subcluster_named(name).map(|(id, entry)| (id, entry.leader)).ok_or_else(unknown)?;
        let next = match text {
            POLICY_OF_MODELS => None,
            text => Some(self.parsed(text)?),
        };
        if self.policies.get(&id) == next.as_ref() {
            return Ok(Reply::Done);
        }
        let policy_text = next.as_ref().map_or_else(|| POLICY_OF_MODELS.to_owned(), |policy| policy.text.clone());
        match next {
            Some(policy) => drop(self.policies.insert(id, policy)),
            None => drop(self.policies.remove(&id)),
        }
        effects.push(Effect::PolicySet { subcluster: id, name: name.to_owned(), policy: policy_text });
        if let Some(leader) = leader {
            let able = self.can_decide(leader.node, id);
            let successor = self.subclusters.get_mut(&id).and_then(|entry| entry.successor.take());
            if let Some(next) = successor {
                effects.push(Effect::HandoverCancelled { subcluster: id, name: name.to_owned(), to: next.node });
            }
            if able {
                self.assign(index, id, Some(leader), effects);
            } else {
                let mut counts = self.lead_counts();
                self.place(&mut counts, index, id, Preference::default(), effects);
            }
            self.refresh_standbys();
        }
        Ok(Reply::Done)
    }

    fn parsed(&self, text: &str) -> Result<SubclusterPolicy, Refusal> {
        let added: Vec<_> = self.added_policies().collect();
        let spec = PolicySpec::parse_among(text, &added).map_err(|error| invalid(error.to_string()))?;
        let added = match &spec {
            PolicySpec::Queues(_) => {
                let others: Vec<_> = CLUSTER_POLICY_NAMES.into_iter().chain(added).collect();
                return Err(invalid(format!(
                    "{spec} decides for each model alone (symphony model set NAME --policy); expected one for a whole \
                     sub-cluster: {}; or {POLICY_OF_MODELS}",
                    others.join(", ")
                )));
            }
            PolicySpec::Registered(registered) => registered.name.clone(),
            PolicySpec::Clockwork { .. }
            | PolicySpec::Nexus { .. }
            | PolicySpec::Shepherd { .. }
            | PolicySpec::Unmerged(_) => String::new(),
        };
        // Numbers and spaces may be longer there than they were written.
        let text = spec.to_string();
        if text.len() > POLICY_TEXT_BYTES_MAX {
            let length = text.len();
            return Err(invalid(format!(
                "{length} bytes, written out in full; expected at most {POLICY_TEXT_BYTES_MAX}"
            )));
        }
        Ok(SubclusterPolicy { text, added, failed: None })
    }

    /// The policy has ended its lead: another replica leads, if there is one, and each model has its own policy.
    pub(crate) fn policy_failed(
        &mut self,
        index: u64,
        (id, token): (SubclusterId, Token),
        (node, boot): (NodeId, BootId),
        (why, avoid): (PolicyFailure, Option<NodeId>),
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let entry = self.subclusters.get(&id).ok_or(Refusal::UnknownSubclusterId { subcluster: id })?;
        if entry.token != token || entry.leader != Some(Leader { node, boot }) {
            return Err(Refusal::AssignmentOver { subcluster: id, named: token, current: entry.token });
        }
        let name = entry.name.clone();
        if let Some(policy) = self.policies.get_mut(&id) {
            policy.failed = Some(FailedPolicy { node, why });
            effects.push(Effect::PolicyFailed { subcluster: id, name, policy: policy.text.clone(), node, why });
        }
        self.cede_lead(index, id, token, (node, boot), Preference { avoid, last_choice: Some(node) }, effects)
    }
}
