//! Names of clusters, nodes, sub-clusters and GPU kinds. They appear in metric labels, file names and certificates.

/// The longest name in bytes: the limit of a DNS label, since most deployments use names as such.
pub const NAME_BYTES_MAX: usize = 63;

/// Tenants of a cluster: each has series in metrics, and a part of every report about quotas.
pub const TENANTS_MAX: usize = 1024;

/// Whether a name is valid: 1 to [`NAME_BYTES_MAX`] characters of `a–z 0–9 -`, starting with a letter or digit.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(allowed)
}

/// Whether a name looks like the id of a scheduler replica, a backend or a frontend. Commands take either a name or an
/// id, so such a name could be mistaken for another process.
#[must_use]
pub fn looks_like_an_id(name: &str) -> bool {
    let number = name.strip_prefix(['n', 'b', 'f']);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackendId, FrontendId, NodeId};

    #[test]
    fn ids_of_processes_look_like_ids_and_names_do_not() {
        for id in [NodeId::new(1).to_string(), BackendId::new(12).to_string(), FrontendId::new(u32::MAX).to_string()] {
            assert!(looks_like_an_id(&id), "{id}");
        }
        for name in ["n", "backend-1", "b1-a", "f1x", "1", "s1", "g1", "node1"] {
            assert!(!looks_like_an_id(name), "{name}");
        }
    }
}
