//! The last reported load of each lead: for operators who watch (`symphony top`).

use std::collections::BTreeMap;
use std::time::Instant;

use symphony_cluster_state::ClusterState;
use symphony_protocol::control as pb;
use symphony_protocol::view::LoadView;
use symphony_types::{Nanos, SubclusterId};

/// The last report of every lead: one per sub-cluster, with its models and GPUs.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastLoads {
    leads: BTreeMap<SubclusterId, (Instant, LoadView)>,
}

impl LastLoads {
    /// Takes a lead's report; reports of earlier leads are ignored.
    pub(crate) fn take(&mut self, now: Instant, load: &pb::SubclusterLoad) {
        self.leads.insert(SubclusterId::new(load.subcluster), (now, load.into()));
    }

    /// The last report on a sub-cluster, and its age.
    pub(crate) fn of(&self, subcluster: SubclusterId, now: Instant) -> Option<LoadView> {
        let (at, load) = self.leads.get(&subcluster)?;
        Some(LoadView { age: Nanos::from(now.saturating_duration_since(*at)), ..load.clone() })
    }

    /// Forgets sub-clusters that no longer exist.
    pub(crate) fn forget_gone(&mut self, state: &ClusterState) {
        self.leads.retain(|id, _| state.subclusters().contains_key(id));
    }

    /// Forgets all: another replica leads the group.
    pub(crate) fn clear(&mut self) {
        self.leads.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use symphony_protocol::view::{GpuLoadView, ModelLoadView};
    use symphony_types::{GpuId, ITEM_BOUNDS, ModelId, Token};

    use super::*;
    use crate::planning::problem::tests::cluster;

    #[test]
    fn the_last_report_is_kept_with_its_age_for_as_long_as_its_sub_cluster_is_there() {
        let (there, gone) = (SubclusterId::new(1), SubclusterId::new(9));
        let (start, mut last) = (Instant::now(), LastLoads::default());
        assert_eq!(last.of(there, start), None);
        let report = |subcluster: SubclusterId, queued| {
            let model = pb::ModelLoad {
                model: 3,
                arrived_items: 9,
                dropped: 1,
                executed: 5,
                failed: 1,
                late: 2,
                queued,
                request_items: vec![1; 60],
            };
            let gpu = pb::GpuLoad { gpu: 4, busy_ns: 80, plans: 2, ..pb::GpuLoad::default() };
            let (subcluster, models, gpus) = (subcluster.get(), vec![model], vec![gpu]);
            let demand_ns = Some(60);
            pb::SubclusterLoad { subcluster, token: 7, models, gpus, demand_ns, ..pb::SubclusterLoad::default() }
        };
        for queued in [8, 3] {
            last.take(start, &report(there, queued));
            last.take(start, &report(gone, queued));
        }
        last.forget_gone(&cluster(&["pool"]));
        assert_eq!(last.of(gone, start), None);
        let request_items = vec![1; ITEM_BOUNDS.len()];
        let model =
            ModelLoadView { arrived_items: 9, dropped: 1, executed: 5, failed: 1, late: 2, queued: 3, request_items };
        let expected = LoadView {
            token: Token::new(7),
            age: Nanos::from_millis(1500),
            models: [(ModelId::new(3), model)].into(),
            gpus: [(GpuId::new(4), GpuLoadView { busy: Nanos::new(80), plans: 2 })].into(),
            demand: Some(Nanos::new(60)),
        };
        assert_eq!(last.of(there, start + Duration::from_millis(1500)), Some(expected));
        last.clear();
        assert_eq!(last.of(there, start), None);
    }
}
