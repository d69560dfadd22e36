//! The policy that decides for a sub-cluster, if one does: as the control group has agreed.

use symphony_cluster_state::PolicyFailure;
use symphony_policy::PolicySpec;
use symphony_protocol::view::SubclusterView;
use symphony_scheduler::{ClusterFacts, PolicyFault, PolicyRegistry};

use crate::workers::policy_worker::LeadPolicy;

/// The policy for a new lead of the sub-cluster; none if each model has its own.
///
/// # Errors
/// If this program does not know it, or refuses its options.
pub(crate) fn policy_of(registry: &PolicyRegistry, subcluster: &SubclusterView) -> Result<Option<LeadPolicy>, String> {
    let Some(policy) = subcluster.policy.as_ref().filter(|policy| policy.failed.is_none()) else { return Ok(None) };
    let added: Vec<_> = registry.names().collect();
    let spec = PolicySpec::parse_among(&policy.text, &added).map_err(|error| error.to_string())?;
    let policy = registry.build(&spec, &ClusterFacts::default()).map_err(|error| error.to_string())?;
    Ok(Some(LeadPolicy { text: spec.to_string(), policy }))
}

/// The fault in the words of the control group.
pub(crate) const fn failure_of(fault: &PolicyFault) -> PolicyFailure {
    match fault {
        PolicyFault::Panicked { .. } => PolicyFailure::Panicked,
        PolicyFault::TooManyOrders { .. } => PolicyFailure::TooManyOrders,
        PolicyFault::Violated { .. } => PolicyFailure::BrokeRule,
    }
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::PolicyView;

    use super::*;

    fn named(text: &str, failed: Option<&str>) -> SubclusterView {
        let policy = PolicyView { text: text.into(), failed: failed.map(Into::into) };
        SubclusterView { policy: Some(policy), ..SubclusterView::default() }
    }

    #[test]
    fn a_lead_decides_by_what_was_agreed_unless_that_has_failed_and_refuses_what_it_does_not_know() {
        let registry = PolicyRegistry::new();
        assert!(policy_of(&registry, &SubclusterView::default()).unwrap().is_none());
        let nexus = policy_of(&registry, &named("nexus", None)).unwrap().expect("a policy");
        assert_eq!((nexus.policy.name(), nexus.text.as_str()), ("nexus", "nexus"));
        assert!(policy_of(&registry, &named("nexus", Some("panicked on n1"))).unwrap().is_none());
        let refusal = policy_of(&registry, &named("house", None)).unwrap_err();
        assert!(refusal.contains("house"), "{refusal}");
    }
}
