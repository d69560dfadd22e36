//! Tracks live frontends by their watches of this replica, and forgets long-silent ones to make room for others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use symphony_cluster_state::{ClusterState, Command, FRONTENDS_MAX};
use symphony_types::{BootId, FrontendId, NodeId};

use crate::initiatives::initiative::Initiative;

/// The number of frontends from which on silent ones are forgotten. The remaining room is for newcomers until silence
/// is established.
const CROWD: usize = FRONTENDS_MAX / 4 * 3;

/// How long a frontend must have been silent to be forgotten, and for others to have its share of quotas. Longer than
/// any restart of a host: a frontend that returns after it was forgotten has to start anew, and the requests that it
/// held fail.
const SILENT_LONG: Duration = Duration::from_secs(600);

type FrontendBoot = (FrontendId, BootId);

/// The signs of life of frontends at this replica: a frontend watches every replica while it lives. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrontendPresence(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    /// Since when this replica has led the control group, if it does. It knows nothing of the time before: a leader
    /// that was cut off saw no frontends.
    leads_since: Option<Instant>,
    boots: BTreeMap<FrontendBoot, Watches>,
}

#[derive(Debug)]
struct Watches {
    open: u32,
    /// When the last watch ended; for a boot without a watch, when it was first seen.
    quiet_since: Instant,
}

impl FrontendPresence {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a watch of a frontend, until the returned value is dropped.
    pub(crate) fn begin(&self, now: Instant, boot: FrontendBoot) -> OpenWatch {
        self.book().boots.entry(boot).or_insert(Watches { open: 0, quiet_since: now }).open += 1;
        OpenWatch { presence: self.clone(), boot }
    }

    /// Since when this replica has led the control group, if it does.
    pub(crate) fn leads_since(&self) -> Option<Instant> {
        self.book().leads_since
    }

    /// How long the boot has shown no sign of life, zero while it watches; none while this replica does not lead the
    /// control group, or does not know the boot yet.
    pub(crate) fn silent(&self, now: Instant, boot: FrontendBoot) -> Option<Duration> {
        self.book().silent(now, boot)
    }

    /// The frontends that get shares of quotas: names stay known for long after their processes have ended.
    pub(crate) fn with_quota_shares(&self, now: Instant, state: &ClusterState) -> BTreeSet<FrontendId> {
        let book = self.book();
        let gives = state.frontends().iter().filter(|&(&id, known)| {
            let left = known.standing.leaving && known.standing.drained;
            !left && book.silent(now, (id, known.boot)).is_none_or(|silent| silent < SILENT_LONG)
        });
        gives.map(|(&id, _)| id).collect()
    }
}

impl Book {
    fn silent(&self, now: Instant, boot: FrontendBoot) -> Option<Duration> {
        let leads_since = self.leads_since?;
        match self.boots.get(&boot)? {
            watches if watches.open > 0 => Some(Duration::ZERO),
            watches => Some(now.saturating_duration_since(watches.quiet_since.max(leads_since))),
        }
    }
}

/// An open watch of a frontend.
#[derive(Debug)]
pub(crate) struct OpenWatch {
    presence: FrontendPresence,
    boot: FrontendBoot,
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        if let Some(watches) = self.presence.book().boots.get_mut(&self.boot) {
            watches.open -= 1;
            watches.quiet_since = Instant::now();
        }
    }
}

/// Forgets the longest-silent frontends when there are so many that new ones would soon be refused.
#[derive(Debug)]
pub(crate) struct FrontendReaper {
    presence: FrontendPresence,
    crowd: usize,
}

impl FrontendReaper {
    pub(crate) fn new(presence: FrontendPresence) -> Self {
        Self { presence, crowd: CROWD }
    }
}

impl Initiative for FrontendReaper {
    fn step(&mut self, now: Instant, state: &ClusterState, me: Option<NodeId>) -> Option<Command> {
        let mut book = self.presence.book();
        let is_registered = |id: &FrontendId, boot| state.frontends().get(id).is_some_and(|known| known.boot == boot);
        // A boot that is not registered yet may have an open watch.
        book.boots.retain(|(id, boot), watches| watches.open > 0 || is_registered(id, *boot));
        for (&id, known) in state.frontends() {
            book.boots.entry((id, known.boot)).or_insert(Watches { open: 0, quiet_since: now });
        }
        book.leads_since = me.map(|_| book.leads_since.unwrap_or(now));
        if state.frontends().len() < self.crowd {
            return None;
        }
        let silent = state.frontends().iter().filter_map(|(&id, known)| {
            let boot = (id, known.boot);
            book.silent(now, boot).filter(|silent| *silent >= SILENT_LONG).map(|silent| (silent, boot))
        });
        let (_, (frontend, boot)) = silent.max()?;
        Some(Command::ForgetFrontend { frontend, boot })
    }
}

#[cfg(test)]
mod tests {
    use symphony_cluster_state::FrontendRegistration;
    use symphony_types::Member;

    use super::*;

    const ME: NodeId = NodeId::new(1);

    struct Scene {
        state: ClusterState,
        index: u64,
        presence: FrontendPresence,
        frontend_reaper: FrontendReaper,
        start: Instant,
    }

    impl Scene {
        /// Silent frontends are forgotten once there are this many.
        fn new(crowd: usize) -> Self {
            let presence = FrontendPresence::default();
            let frontend_reaper = FrontendReaper { presence: presence.clone(), crowd };
            Self { state: ClusterState::default(), index: 0, presence, frontend_reaper, start: Instant::now() }
        }

        fn apply(&mut self, command: &Command) {
            self.index += 1;
            let applied = self.state.apply(self.index, command);
            assert!(applied.outcome.is_ok(), "{applied:?}");
        }

        fn registers(&mut self, name: u32, boot: u64) -> FrontendBoot {
            self.apply(&Command::RegisterFrontend(FrontendRegistration {
                name: format!("f{name}"),
                boot: BootId::new(boot),
                data_addr: "f:1".into(),
                console_addr: "f:2".into(),
            }));
            (FrontendId::new(name), BootId::new(boot))
        }

        fn step(&mut self, after: Duration, me: Option<NodeId>) -> Option<FrontendBoot> {
            let command = self.frontend_reaper.step(self.start + after, &self.state, me)?;
            let Command::ForgetFrontend { frontend, boot } = command else { panic!("{command:?}") };
            Some((frontend, boot))
        }
    }

    #[test]
    fn who_has_left_or_is_silent_for_long_gives_no_part_of_quotas() {
        let mut scene = Scene::new(usize::MAX);
        let boots: Vec<_> = (1..=3).map(|name| scene.registers(name, 7)).collect();
        let with_quota_shares = |scene: &Scene, after| {
            let all = scene.presence.with_quota_shares(scene.start + after, &scene.state);
            all.into_iter().map(FrontendId::get).collect::<Vec<_>>()
        };
        let late = SILENT_LONG * 2;
        assert_eq!(with_quota_shares(&scene, late), [1, 2, 3], "this replica does not know yet who is silent");
        let _watches = (scene.presence.begin(scene.start, boots[0]), scene.presence.begin(scene.start, boots[1]));
        assert_eq!(scene.step(Duration::ZERO, Some(ME)), None);
        assert_eq!(with_quota_shares(&scene, SILENT_LONG - Duration::from_secs(1)), [1, 2, 3]);
        assert_eq!(with_quota_shares(&scene, late), [1, 2]);
        let (member, boot) = (Member::Frontend(boots[1].0), boots[1].1);
        scene.apply(&Command::Leave { member, boot });
        assert_eq!(with_quota_shares(&scene, late), [1, 2], "it may still answer");
        scene.apply(&Command::ReportDrained { member, boot });
        assert_eq!(with_quota_shares(&scene, late), [1]);
        scene.registers(2, 8);
        assert_eq!(with_quota_shares(&scene, late), [1, 2], "it is back");
    }

    #[test]
    fn the_frontend_that_is_silent_for_longest_is_forgotten_when_it_is_crowded() {
        let mut scene = Scene::new(3);
        let boots = [scene.registers(1, 10), scene.registers(2, 20), scene.registers(3, 30)];
        let there = scene.presence.begin(scene.start, boots[0]);
        assert_eq!(scene.step(Duration::ZERO, Some(ME)), None);
        // The watch ends by the machine's clock, which is close enough to the scene's start.
        drop(scene.presence.begin(scene.start, boots[2]));
        let soon = SILENT_LONG - Duration::from_secs(1);
        assert_eq!(scene.step(soon, Some(ME)), None, "they may come back");
        let late = SILENT_LONG + Duration::from_secs(60);
        assert_eq!(scene.step(late, Some(ME)), Some(boots[1]), "nobody ever saw it");
        scene.apply(&Command::ForgetFrontend { frontend: boots[1].0, boot: boots[1].1 });
        assert_eq!(scene.step(late, Some(ME)), None, "two are no crowd");

        scene.registers(4, 40);
        assert_eq!(scene.step(late, Some(ME)), Some(boots[2]), "not the one that has just come");
        // It was restarted meanwhile.
        let restarted = scene.registers(3, 31);
        let watch = scene.presence.begin(scene.start + late, restarted);
        assert_eq!(scene.step(late, Some(ME)), None);
        let later = scene.step(late + SILENT_LONG, Some(ME));
        assert_eq!(later, Some((FrontendId::new(4), BootId::new(40))), "which has shown no sign since it came");
        drop((there, watch));
    }

    #[test]
    fn who_does_not_lead_knows_nothing_and_a_new_leader_waits_as_long_as_any() {
        let mut scene = Scene::new(1);
        let boot = scene.registers(1, 10);
        let late = SILENT_LONG * 2;
        assert_eq!((scene.step(late, None), scene.presence.silent(scene.start + late, boot)), (None, None));
        assert_eq!(scene.step(late, Some(ME)), None, "it has led for a moment");
        assert_eq!(scene.presence.silent(scene.start + late + SILENT_LONG, boot), Some(SILENT_LONG));
        assert_eq!(scene.step(late + SILENT_LONG, Some(ME)), Some(boot));
        let watch = scene.presence.begin(scene.start + late, boot);
        assert_eq!(scene.step(late + SILENT_LONG, Some(ME)), None);
        assert_eq!(scene.presence.silent(scene.start + late + SILENT_LONG, boot), Some(Duration::ZERO));
        drop(watch);
        assert_eq!(scene.step(late * 2, None), None);
        assert_eq!(scene.step(late * 2, Some(ME)), None, "it was another one meanwhile that saw them");
        // Signs of former boots are not kept.
        scene.apply(&Command::ForgetFrontend { frontend: boot.0, boot: boot.1 });
        scene.step(late * 2, Some(ME));
        assert!(scene.presence.book().boots.is_empty());
    }
}
