//! Views cut to the needs of one reader. In a cluster of a thousand sub-clusters a whole view has some hundreds of
//! kilobytes, of which a backend or a lead needs a thousandth: both get views of their own size, and updates only when
//! their part changes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use symphony_types::{BackendId, ModelId, SubclusterId};

use super::{ModelView, View};
use crate::control as pb;

/// The backend for which a view is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendScope {
    /// The backend that asks for the view.
    pub backend: BackendId,
    /// Its sub-cluster at registration: used while a view does not contain this boot of the backend.
    pub subcluster: SubclusterId,
}

impl From<BackendScope> for pb::BackendScope {
    fn from(scope: BackendScope) -> Self {
        Self { backend: scope.backend.get(), subcluster: scope.subcluster.get() }
    }
}

impl From<pb::BackendScope> for BackendScope {
    fn from(scope: pb::BackendScope) -> Self {
        Self { backend: BackendId::new(scope.backend), subcluster: SubclusterId::new(scope.subcluster) }
    }
}

/// A view, with what belongs to which sub-cluster: found once, so that all cuts together cost no more than the view has
/// parts.
#[derive(Clone, Debug, Default)]
pub struct SortedView {
    whole: Arc<View>,
    /// Models that a sub-cluster holds, or is to load.
    models: BTreeMap<SubclusterId, Vec<ModelId>>,
    /// Backends that are bound to a sub-cluster.
    backends: BTreeMap<SubclusterId, Vec<BackendId>>,
}

impl Deref for SortedView {
    type Target = View;
    fn deref(&self) -> &View {
        &self.whole
    }
}

impl From<Arc<View>> for SortedView {
    fn from(whole: Arc<View>) -> Self {
        let mut sorted = Self::default();
        for (&id, model) in &whole.models {
            for home in homes_of(model) {
                sorted.models.entry(home).or_default().push(id);
            }
        }
        for (&id, backend) in &whole.backends {
            sorted.backends.entry(backend.subcluster).or_default().push(id);
        }
        sorted.whole = whole;
        sorted
    }
}

/// The sub-clusters of which [`ModelView::is_held_by`] is true.
fn homes_of(model: &ModelView) -> BTreeSet<SubclusterId> {
    let moving = model.moving.into_iter().flat_map(|moving| [moving.from, moving.to]);
    std::iter::once(model.subcluster).chain(moving).filter(|&home| model.is_held_by(home)).collect()
}

impl SortedView {
    /// The view without its lists.
    fn frame(&self) -> View {
        View {
            cluster: self.cluster.clone(),
            applied_index: self.applied_index,
            epoch: self.epoch,
            level: self.level,
            replica: self.replica,
            control_leader: self.control_leader,
            ..View::default()
        }
    }

    fn models_of(&self, homes: &BTreeSet<SubclusterId>) -> impl Iterator<Item = (ModelId, &ModelView)> {
        let ids = homes.iter().filter_map(|home| self.models.get(home)).flatten();
        ids.filter_map(|id| Some((*id, self.whole.models.get(id)?)))
    }

    /// The part for a backend: itself, the sub-clusters that may use it (by registration, by assignment, and as
    /// destination of a move) with their models and its own reports on them, the replicas, and the frontends.
    #[must_use]
    pub fn for_backend(&self, scope: BackendScope) -> View {
        let itself = self.whole.backends.get(&scope.backend);
        let homes = itself.into_iter().flat_map(|b| [Some(b.subcluster), b.moving.map(|moving| moving.to)]);
        let homes: BTreeSet<_> = homes.flatten().chain([scope.subcluster]).collect();
        let models = self.models_of(&homes).map(|(id, model)| {
            let holder = model.holders.get(&scope.backend).map(|holder| (scope.backend, holder.clone()));
            let ModelView { spec, subcluster, moving, holders: _, trunk } = model;
            let (spec, holders) = (spec.clone(), holder.into_iter().collect());
            (id, ModelView { spec, subcluster: *subcluster, moving: *moving, holders, trunk: trunk.clone() })
        });
        let subclusters = homes.iter().filter_map(|id| Some((*id, self.whole.subclusters.get(id)?.clone())));
        View {
            nodes: self.nodes.clone(),
            subclusters: subclusters.collect(),
            backends: itself.map(|backend| (scope.backend, backend.clone())).into_iter().collect(),
            frontends: self.frontends.clone(),
            models: models.collect(),
            ..self.frame()
        }
    }

    /// What the lead of a sub-cluster needs: it, its backends, and the models that it holds.
    #[must_use]
    pub fn for_lead(&self, id: SubclusterId) -> View {
        let backends = self.backends.get(&id).into_iter().flatten();
        let homes = BTreeSet::from([id]);
        let models = self.models_of(&homes).map(|(id, model)| (id, model.clone()));
        View {
            subclusters: self.whole.subclusters.get(&id).map(|it| (id, it.clone())).into_iter().collect(),
            backends: backends.filter_map(|id| Some((*id, self.whole.backends.get(id)?.clone()))).collect(),
            models: models.collect(),
            ..self.frame()
        }
    }
}

impl View {
    /// Whether two views differ only in their age and in the answering replica.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        // Taken apart by name, so that nothing new is forgotten here.
        let Self {
            cluster,
            applied_index: _,
            epoch: _,
            level,
            replica: _,
            control_leader: _,
            nodes,
            subclusters,
            backends,
            frontends,
            models,
            traffic,
            pipelines,
            events,
            operations,
            group,
            removed_nodes,
            plans,
        } = self;
        *cluster == other.cluster
            && *level == other.level
            && *nodes == other.nodes
            && *subclusters == other.subclusters
            && *backends == other.backends
            && *frontends == other.frontends
            && *models == other.models
            && *traffic == other.traffic
            && *pipelines == other.pipelines
            && *events == other.events
            && *operations == other.operations
            && *group == other.group
            && *removed_nodes == other.removed_nodes
            && *plans == other.plans
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_map;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree as _;
    use symphony_types::{BootId, Epoch, FrontendId, Nanos, NodeId, RequestValue, Signature, Token};

    use super::*;
    use crate::epoch_plan_view::{BackendMoveView, ModelMoveView};
    use crate::view::{
        BackendView, EventView, FrontendView, HolderView, ModelSource, ModelSpec, NodeView, SubclusterView,
        SuccessorView,
    };

    const SUBCLUSTERS: u32 = 5;
    const BACKENDS: u32 = 6;

    fn home() -> impl Strategy<Value = SubclusterId> {
        (1..=SUBCLUSTERS).prop_map(SubclusterId::new)
    }

    fn backend() -> impl Strategy<Value = BackendView> {
        let moving = proptest::option::of((home(), any::<bool>(), proptest::option::of(1..9_u64)));
        (home(), moving, 0..3_u64, any::<bool>()).prop_map(|(subcluster, moving, boot, up)| BackendView {
            boot: BootId::new(boot),
            up,
            subcluster,
            moving: moving.map(|(to, preloads, retiring)| BackendMoveView { to, since: 3, preloads, retiring }),
            ..BackendView::default()
        })
    }

    fn model() -> impl Strategy<Value = ModelView> {
        let moving = proptest::option::of((home(), home(), proptest::option::of(1..9_u64)));
        let report = (0..3_u64, any::<bool>());
        let holders = btree_map((1..=BACKENDS).prop_map(BackendId::new), report, 0..4);
        (home(), moving, holders).prop_map(|(subcluster, moving, holders)| {
            let holder = |(id, (boot, ready))| {
                let state = if ready { Ok(()) } else { Err("no memory".into()) };
                (id, HolderView { boot: BootId::new(boot), state })
            };
            let spec = ModelSpec {
                name: "m".into(),
                subcluster: String::new(),
                slo: Nanos::from_millis(10),
                source: ModelSource::Emulated,
                signature: Signature { inputs: vec![], outputs: vec![] },
                transforms: Default::default(),
                profiles: BTreeMap::new(),
                policy: Default::default(),
                value: RequestValue::ONE,
            };
            let moving = moving.map(|(from, to, switched)| ModelMoveView { from, to, since: 2, switched });
            ModelView { spec, subcluster, moving, holders: holders.into_iter().map(holder).collect(), trunk: None }
        })
    }

    /// Any view, consistent or not: a cut has no opinion.
    fn view() -> impl Strategy<Value = View> {
        let subcluster = (1..9_u64).prop_map(|token| SubclusterView {
            token: Token::new(token),
            successor: Some(SuccessorView { node: NodeId::new(1), boot: BootId::new(2), since: token }),
            ..SubclusterView::default()
        });
        (
            btree_map(home(), subcluster, 0..=SUBCLUSTERS as usize),
            btree_map((1..=BACKENDS).prop_map(BackendId::new), backend(), 0..=BACKENDS as usize),
            btree_map((1..20_u32).prop_map(ModelId::new), model(), 0..12),
        )
            .prop_map(|(subclusters, backends, models)| View {
                cluster: "blue".into(),
                applied_index: 31,
                epoch: Epoch::new(4),
                replica: NodeId::new(2),
                control_leader: Some(NodeId::new(1)),
                nodes: [(NodeId::new(1), NodeView::default())].into(),
                subclusters,
                backends,
                frontends: [(FrontendId::new(3), FrontendView::default())].into(),
                models,
                events: vec![EventView { index: 30, what: "a model came".into(), ..EventView::default() }],
                ..View::default()
            })
    }

    /// What a backend may ever look at, found by walking everything.
    fn filtered_for_backend(whole: &View, scope: BackendScope) -> View {
        let BackendScope { backend, subcluster } = scope;
        let mut cut = whole.clone();
        cut.events.clear();
        cut.backends.retain(|id, _| *id == backend);
        let mut homes = vec![subcluster];
        if let Some(itself) = whole.backends.get(&backend) {
            homes.push(itself.subcluster);
            homes.extend(itself.moving.map(|moving| moving.to));
        }
        cut.subclusters.retain(|id, _| homes.contains(id));
        cut.models.retain(|_, model| homes.iter().any(|&home| model.is_held_by(home)));
        cut.models.values_mut().for_each(|model| model.holders.retain(|id, _| *id == backend));
        cut
    }

    fn filtered_for_lead(whole: &View, lead: SubclusterId) -> View {
        let mut cut = whole.clone();
        cut.events.clear();
        cut.nodes.clear();
        cut.frontends.clear();
        cut.subclusters.retain(|id, _| *id == lead);
        cut.backends.retain(|_, backend| backend.subcluster == lead);
        cut.models.retain(|_, model| model.is_held_by(lead));
        cut
    }

    /// What a backend reads in a view: itself, the models that it is to hold, and what the cluster knows about them.
    fn read_by(view: &View, scope: BackendScope, boot: BootId) -> impl PartialEq + std::fmt::Debug + use<> {
        let itself = view.backends.get(&scope.backend).filter(|me| me.boot == boot).cloned();
        let holds = |model: &ModelView| {
            itself.as_ref().map_or_else(|| model.is_held_by(scope.subcluster), |me| me.is_to_hold(model))
        };
        let held = view.models.iter().filter(|(_, model)| holds(model));
        let held: Vec<_> = held.map(|(&id, m)| (id, m.spec.clone(), m.holders.get(&scope.backend).cloned())).collect();
        let token = itself.as_ref().and_then(|me| view.subclusters.get(&me.subcluster)).map(|s| s.token);
        (held, token, itself, view.frontends.clone(), view.nodes.clone(), view.applied_index)
    }

    /// What a lead reads in a view.
    fn read_by_lead(view: &View, id: SubclusterId) -> impl PartialEq + std::fmt::Debug + use<> {
        let served: BTreeMap<_, _> =
            view.models.iter().filter(|(_, m)| m.is_served_by(id)).map(|(&id, m)| (id, m.clone())).collect();
        let backends: Vec<_> =
            view.backends.iter().filter(|(_, b)| b.subcluster == id).map(|(&id, b)| (id, b.clone())).collect();
        (view.subclusters.get(&id).cloned(), served, backends)
    }

    proptest! {
        #[test]
        fn a_cut_is_what_walking_the_whole_view_gives_and_misses_nothing(
            whole in view(), backend in 1..=BACKENDS, subcluster in home(), boot in 0..3_u64,
        ) {
            let scope = BackendScope { backend: BackendId::new(backend), subcluster };
            let sorted = SortedView::from(Arc::new(whole.clone()));
            let cut = sorted.for_backend(scope);
            prop_assert_eq!(&cut, &filtered_for_backend(&whole, scope));
            let boot = BootId::new(boot);
            prop_assert_eq!(read_by(&cut, scope, boot), read_by(&whole, scope, boot));
            let lead = sorted.for_lead(subcluster);
            prop_assert_eq!(&lead, &filtered_for_lead(&whole, subcluster));
            prop_assert_eq!(read_by_lead(&lead, subcluster), read_by_lead(&whole, subcluster));
        }
    }

    /// The planted fault: a cut that forgets where a backend is going. The same reading finds it.
    #[test]
    fn a_cut_without_the_destination_is_found() {
        let (here, there) = (SubclusterId::new(1), SubclusterId::new(2));
        let scope = BackendScope { backend: BackendId::new(1), subcluster: here };
        let moving = Some(BackendMoveView { to: there, since: 3, preloads: true, retiring: None });
        let itself = BackendView { subcluster: here, moving, ..BackendView::default() };
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let mut model = model().new_tree(&mut runner).unwrap().current();
        (model.subcluster, model.moving) = (there, None);
        let whole = View {
            backends: [(scope.backend, itself)].into(),
            models: [(ModelId::new(1), model)].into(),
            ..View::default()
        };
        let mut cut = SortedView::from(Arc::new(whole.clone())).for_backend(scope);
        let boot = BootId::default();
        assert_eq!(read_by(&cut, scope, boot), read_by(&whole, scope, boot));
        cut.models.clear();
        assert_ne!(read_by(&cut, scope, boot), read_by(&whole, scope, boot));
    }

    #[test]
    fn views_say_the_same_whatever_their_age_and_whoever_answers() {
        let view = View { applied_index: 3, ..View::default() };
        let later = View { applied_index: 4, replica: NodeId::new(3), epoch: Epoch::new(2), ..View::default() };
        assert!(view.says_the_same(&later));
        assert!(!view.says_the_same(&View {
            events: vec![EventView { index: 3, what: "new".into(), ..EventView::default() }],
            ..later
        }));
    }
}
