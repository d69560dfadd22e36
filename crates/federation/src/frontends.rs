//! The federation's frontends, as its clusters know them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use symphony_protocol::view::View;

/// A frontend of the federation registers with every cluster; one that a single cluster knows is that cluster's own, and reports to
/// nobody.
const CLUSTERS_LEAST: usize = 2;

/// Frontends by name. Of one that crashed no cluster knows that it is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frontends {
    /// Those that are to serve, and so to report what their clients ask for.
    pub(crate) serving: BTreeSet<String>,
    /// Those that said that they leave, or that take nothing new.
    pub(crate) left: BTreeSet<String>,
}

impl Frontends {
    /// What the clusters that answer say of them.
    pub(crate) fn seen(views: &BTreeMap<String, Arc<View>>) -> Self {
        let mut serving: BTreeMap<&str, usize> = BTreeMap::new();
        let mut left = BTreeSet::new();
        for frontend in views.values().flat_map(|view| view.frontends.values()) {
            if frontend.duty.takes_work() {
                *serving.entry(&frontend.name).or_default() += 1;
            } else {
                left.insert(frontend.name.clone());
            }
        }
        serving.retain(|name, clusters| *clusters >= CLUSTERS_LEAST && !left.contains(*name));
        Self { serving: serving.into_keys().map(str::to_owned).collect(), left }
    }
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::FrontendView;
    use symphony_types::{Duty, FrontendId};

    use super::*;

    #[test]
    fn whoever_several_clusters_know_is_the_federations_and_whoever_leaves_one_leaves() {
        let view = |frontends: &[(&str, Duty)]| {
            let frontend =
                |&(name, duty): &(&str, Duty)| FrontendView { name: name.into(), duty, ..Default::default() };
            let frontends = (1..).map(FrontendId::new).zip(frontends.iter().map(frontend)).collect();
            Arc::new(View { frontends, ..View::default() })
        };
        let (on, off) = (Duty::Serving, Duty::Draining);
        let a = view(&[("both", on), ("leaves", on), ("own", on)]);
        let b = view(&[("both", on), ("leaves", off)]);
        let seen = Frontends::seen(&[("a".to_owned(), a), ("b".to_owned(), b)].into());
        assert_eq!(seen, Frontends { serving: ["both".to_owned()].into(), left: ["leaves".to_owned()].into() });
    }
}
