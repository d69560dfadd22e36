//! Which cluster a request goes to, by the federation's view.

use symphony_protocol::federation::FederationView;

/// The clusters in the order in which they are tried for a model: its home, where it is on its way to, then where a
/// copy of it may be left. One that does not answer comes last: a cluster that has the model and answers is better.
/// Another cluster's model of the name is its operator's own, and no substitute. A model that the view does not name
/// may be anywhere.
pub(crate) fn in_order<'a>(view: &FederationView, model: &str, clusters: impl Iterator<Item = &'a str>) -> Vec<usize> {
    let placed = view.models.get(model);
    let rank = |name: &str| {
        let at = |place: Option<&String>| place.is_some_and(|place| place == name);
        let lost = view.clusters.get(name).is_some_and(|cluster| !cluster.reachable);
        let place = match placed {
            Some(model) if at(model.home.as_ref()) => 0,
            Some(model) if at(model.moves_to.as_ref()) => 1,
            Some(model) if model.leftovers.iter().any(|left| left == name) => 2,
            Some(_) => return None,
            None => 0,
        };
        Some((lost, place))
    };
    let mut ranked: Vec<_> = clusters.enumerate().filter_map(|(index, name)| Some((rank(name)?, index))).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, index)| index).collect()
}

/// The new home of a model that a lost cluster had; none if the cluster answers, is still the model's home, or never
/// had this model but another one of its name.
pub(crate) fn lost_home<'a>(view: &'a FederationView, model: &str, cluster: &str) -> Option<&'a str> {
    let lost = view.clusters.get(cluster).is_some_and(|cluster| !cluster.reachable);
    let placed = view.models.get(model)?;
    let home = placed.home.as_deref()?;
    let had_it = placed.leftovers.iter().any(|left| left == cluster);
    (lost && had_it && home != cluster).then_some(home)
}

#[cfg(test)]
mod tests {
    use symphony_protocol::federation::{FederatedClusterView, FederatedModelView};

    use super::*;

    fn view(home: &str, moves_to: Option<&str>, lost: &[&str]) -> FederationView {
        let cluster = |name: &&str| {
            let reachable = !lost.contains(name);
            ((*name).to_owned(), FederatedClusterView { reachable, ..FederatedClusterView::default() })
        };
        let model = FederatedModelView {
            home: Some(home.to_owned()),
            moves_to: moves_to.map(str::to_owned),
            ..FederatedModelView::default()
        };
        FederationView {
            clusters: ["a", "b", "c"].iter().map(cluster).collect(),
            models: [("m".to_owned(), model)].into(),
            ..FederationView::default()
        }
    }

    fn order(view: &FederationView, model: &str) -> Vec<usize> {
        in_order(view, model, ["a", "b", "c"].into_iter())
    }

    #[test]
    fn the_home_comes_first_and_whoever_is_lost_comes_last() {
        assert_eq!(order(&view("b", Some("c"), &[]), "m"), [1, 2]);
        assert_eq!(order(&view("b", Some("c"), &["b"]), "m"), [2, 1]);
        assert_eq!(order(&view("b", None, &[]), "unknown"), [0, 1, 2]);
        assert_eq!(order(&FederationView::default(), "m"), [0, 1, 2], "nobody has said anything yet");
        let mut moved = view("b", Some("c"), &[]);
        moved.models.get_mut("m").unwrap().leftovers = vec!["a".into()];
        assert_eq!(order(&moved, "m"), [1, 2, 0], "where its last copy goes is the worst choice");
    }

    #[test]
    fn another_model_of_the_same_name_is_not_asked() {
        assert_eq!(order(&view("b", None, &[]), "m"), [1]);
        assert_eq!(order(&view("b", None, &["b"]), "m"), [1], "not although its home is lost");
        let mut nowhere = view("b", None, &[]);
        nowhere.models.get_mut("m").unwrap().home = None;
        assert_eq!(order(&nowhere, "m"), [0; 0]);
    }

    #[test]
    fn requests_leave_a_lost_cluster_only_for_a_new_home() {
        let left_in_a = |mut view: FederationView| {
            view.models.get_mut("m").unwrap().leftovers = vec!["a".into()];
            view
        };
        assert_eq!(lost_home(&left_in_a(view("b", None, &["a"])), "m", "a"), Some("b"));
        assert_eq!(lost_home(&view("b", None, &["a"]), "m", "a"), None, "what is there is another model");
        assert_eq!(lost_home(&view("a", None, &["a"]), "m", "a"), None, "there is no other place for it");
        assert_eq!(lost_home(&left_in_a(view("b", None, &[])), "m", "a"), None, "it answers what it has");
        assert_eq!(lost_home(&FederationView::default(), "m", "a"), None);
    }
}
