//! The federation's frontends, as its clusters know them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use symphony_protocol::view::View;

/// A frontend of the federation registers with every cluster. A frontend that a single cluster knows belongs to that
/// cluster, and reports to no federation.
const CLUSTERS_LEAST: usize = 2;

/// Frontends by name. When a frontend crashes, no cluster notices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frontends {
    /// Frontends that serve, and so must report their clients' demand.
    pub(crate) serving: BTreeSet<String>,
    /// Frontends that have announced that they leave or take nothing new, in every cluster that knows them.
    pub(crate) left: BTreeSet<String>,
}

impl Frontends {
    /// The frontends according to the clusters that answer.
    pub(crate) fn seen(views: &BTreeMap<String, Arc<View>>) -> Self {
        // How many clusters know the frontend, and whether any of them lets it take work: then it has clients, even if
        // the others report none.
        let mut known: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
        for frontend in views.values().flat_map(|view| view.frontends.values()) {
            let (clusters, takes_work) = known.entry(&frontend.name).or_default();
            *clusters += 1;
            *takes_work |= frontend.duty.takes_work();
        }
        let mut frontends = Self::default();
        for (name, (clusters, takes_work)) in known {
            if !takes_work {
                frontends.left.insert(name.to_owned());
            } else if clusters >= CLUSTERS_LEAST {
                frontends.serving.insert(name.to_owned());
            }
        }
        frontends
    }
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::FrontendView;
    use symphony_types::{Duty, FrontendId};

    use super::*;

    #[test]
    fn whoever_several_clusters_know_is_the_federations_until_none_of_them_lets_it_take_work() {
        let view = |frontends: &[(&str, Duty)]| {
            let frontend =
                |&(name, duty): &(&str, Duty)| FrontendView { name: name.into(), duty, ..Default::default() };
            let frontends = (1..).map(FrontendId::new).zip(frontends.iter().map(frontend)).collect();
            Arc::new(View { frontends, ..View::default() })
        };
        let (on, off) = (Duty::Serving, Duty::Draining);
        let a = view(&[("both", on), ("cordoned by one", on), ("leaves", off), ("own", on)]);
        let b = view(&[("both", on), ("cordoned by one", off), ("leaves", off)]);
        let seen = Frontends::seen(&[("a".to_owned(), a), ("b".to_owned(), b)].into());
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(seen, Frontends { serving: names(&["both", "cordoned by one"]), left: names(&["leaves"]) });
    }
}
