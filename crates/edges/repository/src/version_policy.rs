//! Which versions of a model are served.

use std::collections::BTreeSet;

/// The most versions of one model that are served at a time; each is a model of the cluster, with weights in memory.
pub(crate) const VERSIONS_SERVED_MAX: usize = 64;

/// Which of a model's versions are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionPolicy {
    /// This many of the largest version numbers.
    Latest(usize),
    /// Every version in the folder.
    All,
    /// These, in ascending order.
    Specific(BTreeSet<u64>),
}

impl VersionPolicy {
    /// The versions to serve, ascending; at least one.
    ///
    /// # Errors
    /// If there is none, one that is named is missing, or there are more than [`VERSIONS_SERVED_MAX`].
    pub(crate) fn choose(&self, there: &BTreeSet<u64>) -> Result<Vec<u64>, String> {
        if there.is_empty() {
            return Err("it has no version; expected folders named by numbers from 1".into());
        }
        let chosen: Vec<_> = match self {
            Self::Latest(count) => there.iter().skip(there.len().saturating_sub(*count)).copied().collect(),
            Self::All => there.iter().copied().collect(),
            Self::Specific(wanted) => {
                if let Some(missing) = wanted.difference(there).next() {
                    let there: Vec<_> = there.iter().map(u64::to_string).collect();
                    let there = there.join(", ");
                    return Err(format!("version_policy names version {missing}, and there are only {there}"));
                }
                wanted.iter().copied().collect()
            }
        };
        if chosen.len() > VERSIONS_SERVED_MAX {
            return Err(format!("{} versions would be served; expected at most {VERSIONS_SERVED_MAX}", chosen.len()));
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_chooses_among_what_is_there() {
        let there = BTreeSet::from([1, 2, 7]);
        let choose = |policy: VersionPolicy| policy.choose(&there);
        assert_eq!(choose(VersionPolicy::Latest(1)), Ok(vec![7]));
        assert_eq!(choose(VersionPolicy::Latest(2)), Ok(vec![2, 7]));
        assert_eq!(choose(VersionPolicy::Latest(9)), Ok(vec![1, 2, 7]));
        assert_eq!(choose(VersionPolicy::All), Ok(vec![1, 2, 7]));
        assert_eq!(choose(VersionPolicy::Specific([2].into())), Ok(vec![2]));
        let missing = choose(VersionPolicy::Specific([2, 3].into())).unwrap_err();
        assert_eq!(missing, "version_policy names version 3, and there are only 1, 2, 7");
        assert!(VersionPolicy::All.choose(&BTreeSet::new()).unwrap_err().contains("no version"));
        let many = (1..=100).collect();
        assert!(VersionPolicy::All.choose(&many).unwrap_err().contains("at most 64"));
    }
}
