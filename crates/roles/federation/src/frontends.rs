//! The federation's frontends, as its clusters know them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use symphony_protocol::view::View;

/// A frontend of the federation registers with every cluster; one that a single cluster knows is that cluster's own,
/// and reports to nobody.
const CLUSTERS_LEAST: usize = 2;

/// Frontends by name. Of one that crashed no cluster knows that it is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frontends {
    /// Those that are to serve, and so to report what their clients ask for.
    pub(crate) serving: BTreeSet<String>,
    /// Those that said that they leave, or that take nothing new: of no cluster that knows them.
    pub(crate) left: BTreeSet<String>,
}

impl Frontends {
    /// What the clusters that answer say of them.
    pub(crate) fn seen(views: &BTreeMap<String, Arc<View>>) -> Self {
        // How many clusters know it, and whether one of them lets it take work: then it has clients, whatever the
        // others say.
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
