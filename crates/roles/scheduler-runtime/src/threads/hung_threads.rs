//! Handling of hung decision threads, and of the leads on them.

use std::sync::Arc;
use std::time::Duration;

use symphony_cluster_state::{LeadReport, PolicyFailure};
use symphony_types::{Nanos, SubclusterId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::lead::leads::Leads;
use crate::lead::repeated_failures::{FailureKind, RepeatedFailures};
use crate::lead::subcluster::Lead;
use crate::threads::decision_thread::DecisionThread;
use crate::threads::decision_threads::DecisionThreads;
use crate::threads::reaper::Reaper;
use crate::threads::watchdog::Watchdog;
use crate::workers::counters::add;

/// A decision thread whose turn takes longer than this counts as hung: with detection and seal, another replica then
/// leads within 200 ms. Turns take microseconds; only pauses of the machine last this long.
pub const STUCK_AFTER_LAN: Duration = Duration::from_millis(100);
/// The same limit for machines whose pauses must not count as faults.
pub const STUCK_AFTER_RELAXED: Duration = Duration::from_millis(500);

/// Watches the decision threads until the runtime ends. A hung thread is given up with every lead on it; after a panic
/// only the lead that panicked is given up.
pub(crate) fn watch_threads(
    leads: &Leads,
    threads: &DecisionThreads,
    stuck_after: Duration,
    stuck: &mpsc::UnboundedSender<LeadReport>,
    reaper: &Reaper,
    stop: &CancellationToken,
) {
    let clock = threads.clock();
    let (mut watchdog, mut repeated_failures) = (Watchdog::new(stuck_after.into()), RepeatedFailures::default());
    while !stop.is_cancelled() {
        let running = threads.running();
        let check = watchdog.check(clock.now(), running.iter().map(|thread| (thread.number, thread.pulse())));
        for thread in running.iter().filter(|thread| check.stuck.contains(&thread.number)) {
            // First: from here on new leads go to other threads, and all leads on this thread are found below.
            threads.give_up(thread);
            for (subcluster, lead) in on(leads, thread) {
                let token = lead.token;
                // The neighbours of the lead that hangs are handed over at once. So are all leads on a thread that
                // does not wake up.
                let to_blame = lead.workers.are_in_turn_on(thread);
                let pause = if to_blame {
                    repeated_failures.record(clock.now(), subcluster, token, FailureKind::Hung)
                } else {
                    Nanos::ZERO
                };
                tracing::error!(%subcluster, %token, thread = thread.name, in_its_turn = to_blame, ?pause,
                    "a decision thread hangs; the sub-cluster is given up, after a pause if it has hung here before");
                let why = if to_blame && lead.policy.is_some() {
                    // The next lead does without the policy, and so need not wait.
                    add(&threads.policy_fault_counter(), 1);
                    LeadReport::PolicyFailed { subcluster, token, failure: PolicyFailure::Hung }
                } else {
                    LeadReport::Stuck { subcluster, token, pause }
                };
                give_up(&lead, why, stuck);
            }
        }
        for thread in running.iter().filter(|thread| thread.has_failed()) {
            for (subcluster, lead) in on(leads, thread).into_iter().filter(|(_, lead)| lead.workers.have_failed()) {
                let token = lead.token;
                let pause = repeated_failures.record(clock.now(), subcluster, token, FailureKind::Panicked);
                tracing::error!(%subcluster, %token, ?pause, "a decision panicked; the sub-cluster is given up, after a pause if it has panicked here before");
                give_up(&lead, LeadReport::Panicked { subcluster, token, pause }, stuck);
            }
        }
        threads.tend(&running, |group| reaper.take(group));
        std::thread::sleep(check.pause.into());
    }
}

/// The current leads on a thread.
fn on(leads: &Leads, thread: &DecisionThread) -> Vec<(SubclusterId, Arc<Lead>)> {
    let led = leads.read();
    let on_it = led.iter().filter(|(_, lead)| lead.workers.run_on(thread) && !lead.ended.is_cancelled());
    on_it.map(|(&id, lead)| (id, Arc::clone(lead))).collect()
}

fn give_up(lead: &Lead, why: LeadReport, stuck: &mpsc::UnboundedSender<LeadReport>) {
    let _ = stuck.send(why);
    lead.end();
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use symphony_net::{Net, Role};
    use symphony_protocol::dispatch::{ToFrontend, ToLeader};
    use symphony_protocol::view::{SubclusterView, View};
    use symphony_scheduler::{DataDelaySettings, Delays};
    use symphony_transport::{LinkReceiver, LinkSender, connect_link};
    use symphony_types::{BootId, FrontendId, NodeId, SubclusterId, Token};
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    use super::*;
    use crate::lead::subcluster::LeadConfig;
    use crate::runtime::Runtime;
    use crate::workers::decision_config::DecisionConfig;
    use crate::workers::messages::ModelMessage;

    const ME: (NodeId, BootId) = (NodeId::new(1), BootId::new(7));
    const SOON: Duration = Duration::from_secs(60);
    /// The limit where a thread is made to hang.
    const HANGS_AFTER: Duration = Duration::from_secs(1);
    /// The limit where no thread hangs: on a busy machine printing a panic message alone takes longer than
    /// [`HANGS_AFTER`]. The watch checks twice in this time.
    const LATE: Duration = Duration::from_secs(5);

    struct Scene {
        runtime: Runtime,
        /// The address for frontends.
        dispatch: String,
        view: watch::Sender<Arc<View>>,
        _contact: watch::Sender<bool>,
        reported: mpsc::UnboundedReceiver<LeadReport>,
    }

    fn view(subclusters: std::ops::RangeInclusive<u32>) -> Arc<View> {
        let led = |id| {
            let token = Token::new(10 + u64::from(id));
            (SubclusterId::new(id), SubclusterView { leader: Some(ME), token, ..SubclusterView::default() })
        };
        let applied_index = 10 + u64::from(*subclusters.end());
        Arc::new(View { applied_index, subclusters: subclusters.map(led).collect(), ..View::default() })
    }

    impl Scene {
        /// A runtime that leads sub-clusters 1 to `leads`, on two shared threads unless they have threads of their own.
        async fn new(leads: u32, model_threads: u32, stuck_after: Duration) -> Self {
            let (view, views) = watch::channel(view(1..=leads));
            let (_contact, in_contact) = watch::channel(true);
            let (reports, reported) = mpsc::unbounded_channel();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let dispatch = listener.local_addr().unwrap().to_string();
            let config = LeadConfig {
                node: ME.0,
                boot: ME.1,
                data_delays: DataDelaySettings::default(),
                delays: Delays::default(),
                decisions: DecisionConfig { model_threads, shared_threads: 2, ..DecisionConfig::default() },
                tapes: None,
                stuck_after,
                consolidate: Vec::new(),
                policies: symphony_scheduler::PolicyRegistry::new(),
                net: symphony_net::Net::plaintext(),
            };
            let runtime = Runtime::start(config, listener, views, in_contact, reports).unwrap();
            let scene = Self { runtime, dispatch, view, _contact, reported };
            scene.until("all are led", |scene| scene.led().len() == leads as usize).await;
            scene
        }

        async fn until(&self, what: &str, is: impl Fn(&Self) -> bool) {
            let waited = async {
                while !is(self) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(SOON, waited).await.unwrap_or_else(|_| panic!("not within {SOON:?}: {what}"));
        }

        fn led(&self) -> BTreeSet<u32> {
            self.runtime.status().iter().map(|lead| lead.subcluster.get()).collect()
        }

        fn lead(&self, id: u32) -> Arc<Lead> {
            Arc::clone(&self.runtime.leads.read()[&SubclusterId::new(id)])
        }

        /// The shared threads of the leads.
        fn threads(&self) -> BTreeMap<u32, u64> {
            let running = self.runtime.threads.running();
            let thread_of = |lead: &Lead| running.iter().find(|thread| lead.workers.run_on(thread)).unwrap().number;
            self.led().into_iter().map(|id| (id, thread_of(&self.lead(id)))).collect()
        }

        /// The planted fault: the thread of this lead's models never comes back, until the returned value is dropped.
        fn hang(&self, id: u32) -> std::sync::mpsc::Sender<()> {
            let (until_the_end, hang) = std::sync::mpsc::channel();
            self.lead(id).workers.models[0].push(ModelMessage::Hang(hang));
            until_the_end
        }

        async fn stuck(&mut self) -> (u32, u64, Nanos) {
            match tokio::time::timeout(SOON, self.reported.recv()).await.unwrap() {
                Some(LeadReport::Stuck { subcluster, token, pause }) => (subcluster.get(), token.get(), pause),
                other => panic!("{other:?}"),
            }
        }

        async fn panicked(&mut self) -> (u32, u64, Nanos) {
            match tokio::time::timeout(SOON, self.reported.recv()).await.unwrap() {
                Some(LeadReport::Panicked { subcluster, token, pause }) => (subcluster.get(), token.get(), pause),
                other => panic!("{other:?}"),
            }
        }

        /// A frontend with a link to a lead.
        async fn frontend(&self, id: u32) -> (LinkSender<ToLeader>, LinkReceiver<ToFrontend>) {
            let token = Token::new(10 + u64::from(id));
            let (net, scheduler) = (Net::plaintext(), Role::Scheduler.into());
            let (sender, mut receiver) = connect_link(&net, &self.dispatch, &scheduler).await.unwrap();
            let (frontend, boot, subcluster) = (FrontendId::new(1), BootId::new(1), SubclusterId::new(id));
            sender.send(ToLeader::Hello { frontend, boot, subcluster, token }).unwrap();
            assert_eq!(last_words(&mut receiver, 1).await, [ToFrontend::Welcome { token }]);
            (sender, receiver)
        }

        /// Checks that the workers of a lead still take turns: they drop what they are sent.
        async fn decides(&self, id: u32) {
            let (go_on, hang) = std::sync::mpsc::channel();
            self.lead(id).workers.models[0].push(ModelMessage::Hang(hang));
            self.until("a turn", |_| go_on.send(()).is_err()).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thread_of_its_own_that_hangs_costs_its_lead_and_no_other() {
        let mut scene = Scene::new(2, 1, HANGS_AFTER).await;
        let until_the_end = scene.hang(1);
        assert_eq!(scene.stuck().await, (1, 11, Nanos::ZERO));
        // The lead ends a moment after it is reported.
        scene.until("the other one is led", |scene| scene.led() == BTreeSet::from([2])).await;
        scene.decides(2).await;
        let answer = scene.runtime.leads.answer_hello(SubclusterId::new(1), Token::new(11)).await;
        assert!(matches!(answer, crate::lead::leads::HelloAnswer::NotLeader(_)));
        drop(until_the_end);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_shared_thread_that_hangs_costs_every_lead_on_it_and_no_other() {
        let mut scene = Scene::new(6, 0, HANGS_AFTER).await;
        let threads = scene.threads();
        let hung = threads[&1];
        let (lost, stay): (BTreeSet<u32>, BTreeSet<u32>) = threads.keys().partition(|id| threads[id] == hung);
        assert_eq!((lost.len(), stay.len()), (3, 3), "spread over both: {threads:?}");
        let until_the_end = scene.hang(1);
        let mut reported = BTreeSet::new();
        for _ in 0..lost.len() {
            let (id, token, pause) = scene.stuck().await;
            assert_eq!((token, pause), (10 + u64::from(id), Nanos::ZERO));
            reported.insert(id);
        }
        assert_eq!(reported, lost);
        scene.until("the others are led", |scene| scene.led() == stay).await;
        for &id in &stay {
            scene.decides(id).await;
        }
        // New leads decide on another thread, which replaces the hung one.
        scene.view.send_replace(view(1..=9));
        scene.until("three more are led", |scene| scene.led().len() == 6).await;
        let threads = scene.threads();
        assert_eq!(threads.values().collect::<BTreeSet<_>>().len(), 2, "{threads:?}");
        assert!(threads.values().all(|&thread| thread != hung), "{threads:?}");
        for id in 7..=9 {
            scene.decides(id).await;
        }
        // The thread resumes too late: nothing is left for it to decide.
        drop(until_the_end);
        assert!(scene.reported.try_recv().is_err());
        for id in scene.led() {
            scene.decides(id).await;
        }
        assert_eq!(scene.runtime.threads.hangs(), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_hangs_wherever_it_is_led_is_handed_on_after_growing_pauses_and_its_neighbours_at_once() {
        let mut scene = Scene::new(4, 0, HANGS_AFTER).await;
        let (mut pauses, mut hung) = (Vec::new(), Vec::new());
        for round in 1..=3 {
            let threads = scene.threads();
            let given_up = threads.values().filter(|&thread| *thread == threads[&1]).count();
            assert_eq!(given_up, 2, "it has a neighbour: {threads:?}");
            hung.push(scene.hang(1));
            // Both are led here again, as after a hand-over back from another replica.
            let mut next = View { applied_index: 100 * round, ..View::clone(&scene.view.borrow()) };
            for _ in 0..given_up {
                let (id, _, pause) = scene.stuck().await;
                if id == 1 {
                    pauses.push(pause);
                } else {
                    assert_eq!(pause, Nanos::ZERO, "it only sat beside it");
                }
                let token = Token::new(100 * round);
                next.subclusters.entry(SubclusterId::new(id)).and_modify(|subcluster| subcluster.token = token);
            }
            scene.until("both have ended", |scene| scene.led().len() == 2).await;
            scene.view.send_replace(Arc::new(next));
            scene.until("all are led", |scene| scene.led().len() == 4).await;
        }
        assert!(pauses[0] == Nanos::ZERO && pauses[0] < pauses[1] && pauses[1] < pauses[2], "{pauses:?}");
        assert_eq!(scene.runtime.threads.hangs(), 3);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lead_that_panics_is_given_up_alone_and_counted() {
        for model_threads in [0, 1] {
            let mut scene = Scene::new(4, model_threads, LATE).await;
            let before = scene.runtime.threads.running().len();
            let models = Arc::downgrade(&scene.lead(1).workers.models[0]);
            scene.lead(1).workers.models[0].push(ModelMessage::Panic);
            assert_eq!(scene.panicked().await, (1, 11, Nanos::ZERO), "the next one may lead at once");
            // The lead itself remains until the view takes it away.
            scene.until("its group is taken apart", |_| models.strong_count() == 1).await;
            scene.until("the others are led", |scene| scene.led() == BTreeSet::from([2, 3, 4])).await;
            for id in 2..=4 {
                scene.decides(id).await;
            }
            assert_eq!(scene.runtime.threads.panics(), 1);
            assert!(scene.reported.try_recv().is_err(), "nobody else is given up");
            if model_threads == 0 {
                assert_eq!(scene.runtime.threads.running().len(), before, "their thread goes on");
            }
        }
    }

    /// The frontend's messages until the link ends, or until it has received this many.
    async fn last_words(receiver: &mut LinkReceiver<ToFrontend>, max: usize) -> Vec<ToFrontend> {
        let mut messages = Vec::new();
        while messages.len() < max
            && let Ok(frame) = tokio::time::timeout(SOON, receiver.receive()).await.expect("a word, or the end")
        {
            messages.push(frame.message);
        }
        messages
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn frontends_hear_of_a_lead_that_it_panicked_and_of_one_that_ends_nothing() {
        let mut scene = Scene::new(2, 0, LATE).await;
        let (_ill_link, mut ill) = scene.frontend(1).await;
        let (_well_link, mut well) = scene.frontend(2).await;
        scene.lead(1).workers.models[0].push(ModelMessage::Panic);
        assert_eq!(scene.panicked().await.0, 1);
        assert_eq!(last_words(&mut ill, 9).await, [ToFrontend::Panicked]);
        scene.view.send_replace(Arc::new(View { applied_index: 99, ..View::default() }));
        assert_eq!(last_words(&mut well, 9).await, []);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_sub_cluster_that_comes_back_and_panics_again_is_handed_on_after_a_pause() {
        let mut scene = Scene::new(2, 0, LATE).await;
        let mut pauses = Vec::new();
        for token in [11, 21, 31] {
            let mut next = View { applied_index: token, ..View::clone(&scene.view.borrow()) };
            next.subclusters.entry(SubclusterId::new(1)).and_modify(|s| s.token = Token::new(token));
            scene.view.send_replace(Arc::new(next));
            let led = |scene: &Scene| {
                let lead = scene.runtime.leads.read().get(&SubclusterId::new(1)).cloned();
                lead.is_some_and(|lead| lead.token.get() == token)
            };
            scene.until("it is led here", led).await;
            scene.lead(1).workers.models[0].push(ModelMessage::Panic);
            let (subcluster, under, pause) = scene.panicked().await;
            assert_eq!((subcluster, under), (1, token));
            pauses.push(pause);
        }
        assert!(pauses[0] == Nanos::ZERO && pauses[0] < pauses[1] && pauses[1] < pauses[2], "{pauses:?}");
        scene.decides(2).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn leads_that_end_are_taken_apart_also_where_nothing_else_happens() {
        let scene = Scene::new(4, 0, LATE).await;
        let workers: Vec<_> = (1..=4).map(|id| Arc::downgrade(&scene.lead(id).workers.rank)).collect();
        scene.view.send_replace(Arc::new(View { applied_index: 99, ..View::default() }));
        scene.until("nobody has their workers", |_| workers.iter().all(|rank| rank.strong_count() == 0)).await;
        assert_eq!(scene.runtime.threads.running().iter().map(|thread| thread.groups()).sum::<usize>(), 0);
    }
}
