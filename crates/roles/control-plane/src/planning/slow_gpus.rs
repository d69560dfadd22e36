//! Which GPUs leads have quarantined, why, from when and until when: events for operators. Like all that leads learn
//! it is not in the log (docs/adr/0019): a new leader of the group starts afresh.

use std::collections::{BTreeMap, VecDeque};

use symphony_cluster_state::{ClusterState, EVENTS_MAX};
use symphony_protocol::control as pb;
use symphony_protocol::view::{EventView, SlowGpuView};
use symphony_types::{GpuId, SubclusterId, Token};

use crate::api::view;
use crate::config::WallClock;

/// The last report of one lead.
#[derive(Clone, Debug)]
struct LastReport {
    token: Token,
    /// Quarantined GPUs.
    aside: Vec<SlowGpuView>,
}

/// Follows the reports of all leads.
#[derive(Clone, Debug)]
pub(crate) struct SlowGpuEvents {
    leads: BTreeMap<SubclusterId, LastReport>,
    /// With the applied log index at that time; newest last.
    notes: VecDeque<EventView>,
    wall_clock: WallClock,
}

impl SlowGpuEvents {
    pub(crate) fn new(wall_clock: WallClock) -> Self {
        Self { leads: BTreeMap::new(), notes: VecDeque::new(), wall_clock }
    }

    /// Takes a lead's report; reports of earlier leads are ignored.
    pub(crate) fn take(&mut self, state: &ClusterState, load: &pb::SubclusterLoad) {
        let (id, token) = (SubclusterId::new(load.subcluster), Token::new(load.token));
        let Some(subcluster) = state.subclusters().get(&id) else { return };
        let name = &subcluster.name;
        let aside: Vec<_> = load.gpus.iter().filter(|gpu| gpu.slowdown > 0.0).map(view::slow).collect();
        let before = self.leads.insert(id, LastReport { token, aside: aside.clone() });
        let (same_lead, was) = before.map_or((true, Vec::new()), |last| (last.token == token, last.aside));
        let among = |gpus: &[SlowGpuView], gpu: &SlowGpuView| gpus.iter().any(|other| other.gpu == gpu.gpu);
        for gpu in aside.iter().filter(|gpu| !among(&was, gpu)) {
            tracing::warn!(subcluster = name, gpu = %gpu.gpu, why = %gpu, "gets no batches");
            self.push_event(state, format!("GPU {} of sub-cluster {name} is {gpu}", gpu.gpu));
        }
        let there = |gpu: GpuId| {
            let here = state.backends().values().filter(|backend| backend.subcluster == id && backend.up());
            here.flat_map(|backend| &backend.gpus).any(|own| own.id == gpu)
        };
        for SlowGpuView { gpu, quarantined_ms, .. } in was.iter().filter(|gpu| !among(&aside, gpu) && there(gpu.gpu)) {
            let why = match (same_lead, quarantined_ms) {
                (false, _) => "its sub-cluster has a new lead, which judges it anew",
                (true, Some(_)) => "on trial",
                (true, None) => "its backend has restarted",
            };
            tracing::info!(subcluster = name, %gpu, why, "gets batches again");
            self.push_event(state, format!("GPU {gpu} of sub-cluster {name} gets batches again: {why}"));
        }
    }

    /// In the order of the log.
    pub(crate) fn notes(&self) -> impl Iterator<Item = EventView> + '_ {
        self.notes.iter().cloned()
    }

    /// Forgets all: another replica leads the group.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.wall_clock);
    }

    fn push_event(&mut self, state: &ClusterState, what: String) {
        self.notes.push_back(EventView { index: state.applied_index(), at_unix_ms: (self.wall_clock)(), what });
        let surplus = self.notes.len().saturating_sub(EVENTS_MAX);
        self.notes.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::problem::tests::cluster;

    #[test]
    fn what_is_set_aside_and_comes_back_is_told_once() {
        let state = cluster(&["left", "right"]);
        let mut slow_gpus = SlowGpuEvents::new(|| 0);
        let mut events = |token: u64, slow: &[u32]| {
            let gpu = |gpu: u32| pb::GpuLoad { gpu, slowdown: 0.0, ..Default::default() };
            let mut gpus = vec![gpu(1), gpu(2)];
            for gpu in gpus.iter_mut().filter(|gpu| slow.contains(&gpu.gpu)) {
                (gpu.slowdown, gpu.quarantined_ms) = (2.04, 29_500);
            }
            slow_gpus.take(&state, &pb::SubclusterLoad { subcluster: 1, token, gpus, ..Default::default() });
            slow_gpus.notes().map(|event| event.what).collect::<Vec<_>>()
        };
        let names: Vec<_> = [1, 2].map(|id| GpuId::new(id).to_string()).into();
        assert_eq!(events(7, &[]), [""; 0]);
        let out =
            format!("GPU {} of sub-cluster left is set aside for 30 s: 2.04 times slower than its peers", names[1]);
        assert_eq!(events(7, &[2]), [out.as_str()]);
        assert_eq!(events(7, &[2]).len(), 1, "it is told once");
        let back = format!("GPU {} of sub-cluster left gets batches again: on trial", names[1]);
        assert_eq!(events(7, &[]), [out.as_str(), &back]);
        assert_eq!(events(7, &[1]).len(), 3);
        let events = events(9, &[]);
        assert!(
            events.len() == 4 && events[3].starts_with(&format!("GPU {} ", names[0])) && events[3].contains("new lead"),
            "{events:?}"
        );
        let lost = |lost| {
            let gpu = pb::GpuLoad { gpu: 2, slowdown: f64::from(u8::from(lost)), lost, ..Default::default() };
            pb::SubclusterLoad { subcluster: 1, token: 9, gpus: vec![gpu], ..Default::default() }
        };
        let events = [true, false].map(|is| {
            slow_gpus.take(&state, &lost(is));
            slow_gpus.notes().last().unwrap().what
        });
        assert!(events[0].ends_with("is lost: it fails whatever comes until its backend is restarted"), "{events:?}");
        assert!(events[1].ends_with("gets batches again: its backend has restarted"), "{events:?}");
        let mut count = |slow: &[u32]| {
            let gpus = slow.iter().map(|&gpu| pb::GpuLoad { gpu, slowdown: 2.0, ..Default::default() }).collect();
            slow_gpus.take(&state, &pb::SubclusterLoad { subcluster: 1, token: 9, gpus, ..Default::default() });
            slow_gpus.notes().count()
        };
        for turn in 0..EVENTS_MAX {
            assert!(count(if turn % 2 == 0 { &[1] } else { &[] }) <= EVENTS_MAX);
        }
    }
}
