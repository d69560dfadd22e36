//! Models and backends that can move between sub-clusters, and where they belong while none is moved.

use std::collections::{BTreeMap, BTreeSet};

use symphony_protocol::control::wanted_move::What;
use symphony_protocol::view::View;
use symphony_types::SubclusterId;

use super::{Processes, SERVED};

/// The sub-clusters where what may move belongs, by name: models with load, and backends.
pub(crate) fn homes(processes: &Processes) -> BTreeMap<String, String> {
    let models = processes.subclusters().into_iter().map(|pool| (format!("{SERVED}{pool}"), pool));
    models.chain(processes.backends().map(|b| (b.to_string(), processes.subcluster_of(b)))).collect()
}

/// Something that can move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Movable<'a> {
    pub(crate) name: &'a str,
    pub(crate) what: What,
    pub(crate) at: SubclusterId,
    pub(crate) moving: bool,
}

/// Models with load, and backends.
pub(crate) fn movables<'a>(view: &'a View) -> impl Iterator<Item = Movable<'a>> {
    let models = view.models.iter().filter(|(_, m)| m.spec.name.starts_with(SERVED)).map(|(id, m)| Movable {
        name: &m.spec.name,
        what: What::Model(id.get()),
        at: m.subcluster,
        moving: m.moving.is_some(),
    });
    let backends = view.backends.iter().filter(|(_, b)| b.up).map(|(id, b)| Movable {
        name: &b.name,
        what: What::Backend(id.get()),
        at: b.subcluster,
        moving: b.moving.is_some(),
    });
    models.chain(backends)
}

/// Models and backends that move, or are not where they belong.
pub(crate) fn strays<'a>(view: &'a View, home: &BTreeMap<String, String>) -> impl Iterator<Item = Movable<'a>> {
    let is_home = |m: &Movable<'_>| view.subclusters.get(&m.at).map(|s| &s.name) == home.get(m.name);
    movables(view).filter(move |m| m.moving || !is_home(m))
}

/// The first that is not where it belongs, or of which that cannot be said: the view lacks it, or it is down.
pub(crate) fn first_away<'a>(view: &'a View, home: &'a BTreeMap<String, String>) -> Option<&'a str> {
    let unseen = || {
        let seen: BTreeSet<&str> = movables(view).map(|m| m.name).collect();
        home.keys().map(String::as_str).find(|name| !seen.contains(name))
    };
    strays(view, home).map(|m| m.name).next().or_else(unseen)
}

#[cfg(test)]
mod tests {
    use symphony_protocol::epoch_plan_view::BackendMoveView;
    use symphony_protocol::view::{BackendView, ModelSource, ModelSpec, ModelView, SubclusterView};
    use symphony_types::{BackendId, ModelId, Nanos, RequestValue, Signature, Token};

    use super::*;
    use crate::scenario::ClusterShape;

    #[test]
    fn what_moves_or_is_elsewhere_is_astray() {
        let processes = Processes::of(&ClusterShape { subclusters: 2, backends: 1, ..ClusterShape::default() });
        let pool = |name: &str| SubclusterView {
            name: name.into(),
            leader: None,
            token: Token::default(),
            standbys: vec![],
            successor: None,
            policy: None,
            advice: None,
            load: None,
        };
        let backend = |name: &str, at| BackendView {
            name: name.into(),
            up: true,
            subcluster: SubclusterId::new(at),
            ..BackendView::default()
        };
        let [first, second] = [1, 2].map(|n| processes.backends().nth(n - 1).unwrap().to_string());
        let model = |name: &str, at| {
            let spec = ModelSpec {
                name: format!("{SERVED}{name}"),
                subcluster: String::new(),
                slo: Nanos::from_millis(100),
                source: ModelSource::Emulated,
                signature: Signature { inputs: vec![], outputs: vec![] },
                transforms: Default::default(),
                profiles: BTreeMap::new(),
                policy: Default::default(),
                value: RequestValue::ONE,
            };
            let subcluster = SubclusterId::new(at);
            (ModelId::new(at), ModelView { spec, subcluster, moving: None, holders: BTreeMap::new(), trunk: None })
        };
        let mut view = View {
            models: [model("pool-1", 1), model("pool-2", 2)].into(),
            subclusters: [(SubclusterId::new(1), pool("pool-1")), (SubclusterId::new(2), pool("pool-2"))].into(),
            backends: [(BackendId::new(1), backend(&first, 1)), (BackendId::new(2), backend(&second, 2))].into(),
            ..View::default()
        };
        let home = homes(&processes);
        assert_eq!((strays(&view, &home).count(), first_away(&view, &home)), (0, None));
        let mut down = view.clone();
        down.backends.get_mut(&BackendId::new(2)).unwrap().up = false;
        assert_eq!(first_away(&down, &home), Some(&*second), "where it comes up again is not known");
        let mut unloaded = view.clone();
        unloaded.models.remove(&ModelId::new(1));
        assert_eq!(first_away(&unloaded, &home), Some("served-pool-1"));
        let moves = BackendMoveView { to: SubclusterId::new(2), since: 1, preloads: true, retiring: None };
        view.backends.get_mut(&BackendId::new(1)).unwrap().moving = Some(moves);
        assert_eq!(strays(&view, &home).map(|m| m.name).collect::<Vec<_>>(), [first]);
        view.backends.insert(BackendId::new(2), backend(&second, 1));
        assert_eq!(strays(&view, &home).count(), 2);
    }
}
