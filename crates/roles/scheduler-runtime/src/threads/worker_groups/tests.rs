use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use symphony_types::Nanos;

use super::*;
use crate::threads::turn::{TurnEnd, TurnStart};
use crate::threads::waker::GroupWaker;
use crate::threads::worker::{TURN_EVENTS_MAX, Worker};
use crate::workers::worker_metrics::{WorkerKind, WorkerMetrics};

/// A worker whose events are a number of waiting items.
struct Played {
    number: usize,
    events: Arc<Mutex<usize>>,
    /// The interval of its timers, if it has any.
    every: Option<Nanos>,
    timer: Time,
    /// How far its timers lag, if they do.
    behind: Option<Nanos>,
    /// A planted fault: its next turn panics.
    panics: Arc<AtomicBool>,
    turns: Arc<Mutex<Vec<usize>>>,
    metrics: WorkerMetrics,
}

impl Worker for Played {
    fn run_turn(&mut self, turn: TurnStart) -> TurnEnd {
        self.turns.lock().unwrap().push(self.number);
        assert!(!self.panics.load(Ordering::Relaxed), "planted");
        let mut events = self.events.lock().unwrap();
        let mut handled = (*events).min(TURN_EVENTS_MAX);
        *events -= handled;
        if self.timer <= turn.now {
            handled += 1;
            self.timer = self.every.map_or(Time::NEVER, |every| turn.now + every);
        }
        let timer = self.behind.map_or(self.timer, |behind| turn.now - behind);
        TurnEnd { wake_at: if *events > 0 { Time::ZERO } else { timer }, handled }
    }

    fn send_outputs(&mut self, _now: Time) {}

    fn metrics(&self) -> &WorkerMetrics {
        &self.metrics
    }
}

/// Worker groups of one played worker each, on a thread whose time the test sets.
struct Scene {
    groups: WorkerGroups,
    thread_waker: Arc<ThreadWaker>,
    wakers: Vec<Arc<GroupWaker>>,
    events: Vec<Arc<Mutex<usize>>>,
    panics: Vec<Arc<AtomicBool>>,
    turns: Arc<Mutex<Vec<usize>>>,
    now: Cell<Time>,
}

const START: Time = Time::from_nanos(1_000_000_000);
/// What each reading of the clock costs: a turn reads it twice.
const READING: Nanos = Nanos::from_micros(5);

impl Scene {
    fn new() -> Self {
        let (groups, thread_waker) = (WorkerGroups::default(), Arc::default());
        let (events, panics) = (Vec::new(), Vec::new());
        Self { groups, thread_waker, wakers: Vec::new(), events, panics, turns: Arc::default(), now: Cell::new(START) }
    }

    fn of(groups: usize) -> Self {
        let mut scene = Self::new();
        (0..groups).for_each(|_| scene.install(None, None));
        scene.run();
        scene
    }

    /// Adds a group whose timers fire at these intervals, or lag by this much.
    fn install(&mut self, every: Option<Nanos>, behind: Option<Nanos>) {
        let number = self.wakers.len();
        let waker = Arc::new(GroupWaker::new(Arc::clone(&self.thread_waker), number));
        let (events, turns) = (Arc::<Mutex<usize>>::default(), Arc::clone(&self.turns));
        let metrics = WorkerMetrics::new(WorkerKind::Model);
        let (now, timer) = (self.now.get(), every.map_or(Time::NEVER, |every| self.now.get() + every));
        let panics = Arc::<AtomicBool>::default();
        self.panics.push(Arc::clone(&panics));
        let worker = Played { number, events: Arc::clone(&events), every, timer, behind, panics, turns, metrics };
        self.groups.install(WorkerGroup::new(Arc::clone(&waker), vec![Box::new(worker)]), now);
        self.wakers.push(waker);
        self.events.push(events);
    }

    /// Hands events to a group.
    fn send(&self, group: usize, events: usize) {
        *self.events[group].lock().unwrap() += events;
        self.wakers[group].wake();
    }

    /// One step of the thread.
    fn step(&mut self) -> Turn {
        if self.thread_waker.answer() {
            self.groups.queue_woken(&self.thread_waker, self.now.get());
        }
        let clock = || {
            self.now.set(self.now.get() + READING);
            self.now.get()
        };
        self.groups.run_next(self.now.get(), &clock)
    }

    /// Runs until there is nothing to do, and returns the order of turns.
    fn run(&mut self) -> Vec<usize> {
        while !matches!(self.step(), Turn::Idle(_)) {}
        std::mem::take(&mut self.turns.lock().unwrap())
    }
}

#[test]
fn of_a_thousand_groups_only_those_that_are_meant_have_turns() {
    let mut scene = Scene::of(1_000);
    scene.send(700, 1);
    scene.send(3, 1);
    scene.send(700, 1);
    assert_eq!(scene.run(), [700, 3]);
    assert_eq!(scene.run(), [0; 0]);
}

#[test]
fn a_flood_for_one_is_taken_in_between_the_turns_of_others() {
    let mut scene = Scene::of(3);
    scene.send(0, 4 * TURN_EVENTS_MAX);
    scene.step();
    scene.send(2, 1);
    scene.send(1, 2 * TURN_EVENTS_MAX);
    // A full turn may be the last one: only the next one finds nothing left.
    assert_eq!(scene.run(), [0, 0, 2, 1, 0, 1, 0]);
}

#[test]
fn a_group_that_panics_is_handed_out_and_the_others_go_on() {
    let mut scene = Scene::of(3);
    scene.panics[1].store(true, Ordering::Relaxed);
    for group in [0, 1, 2] {
        scene.send(group, 1);
    }
    let mut failed = Vec::new();
    for _ in 0..3 {
        if let Turn::Failed(group) = scene.step() {
            failed.push(group.waker().slot());
        }
    }
    assert_eq!((std::mem::take(&mut *scene.turns.lock().unwrap()), failed), (vec![0, 1, 2], vec![1]));
    for group in [0, 1, 2] {
        scene.send(group, 1);
    }
    assert_eq!(scene.run(), [0, 2], "it has no more turns");
}

#[test]
fn timers_of_all_groups_fire_in_their_order_and_before_a_flood() {
    let mut scene = Scene::new();
    for every in [900, 300, 600] {
        scene.install(Some(Nanos::from_micros(every)), None);
    }
    scene.install(None, None);
    assert_eq!(scene.run(), [0, 1, 2, 3]);
    scene.now.set(scene.now.get() + Nanos::from_micros(1_000));
    scene.send(3, 1);
    assert_eq!((0..4).map(|_| scene.step()).filter(|turn| matches!(turn, Turn::Done(_))).count(), 4);
    assert_eq!(*scene.turns.lock().unwrap(), [1, 2, 0, 3]);
}

#[test]
fn who_never_catches_up_with_its_timers_holds_nobody_up() {
    let mut scene = Scene::new();
    scene.install(None, Some(Nanos::from_millis(10)));
    scene.install(None, Some(Nanos::from_millis(5)));
    scene.install(None, None);
    (0..3).for_each(|_| drop(scene.step()));
    scene.turns.lock().unwrap().clear();
    scene.send(2, 1);
    (0..5).for_each(|_| drop(scene.step()));
    assert_eq!(*scene.turns.lock().unwrap(), [0, 1, 2, 0, 1]);
}

#[test]
fn who_is_over_has_no_turn_although_it_was_woken_and_its_slot_can_be_taken_again() {
    let mut scene = Scene::of(2);
    scene.send(0, 1);
    scene.send(1, 1);
    scene.wakers[1].end();
    assert!(matches!(scene.step(), Turn::Done(_)));
    assert!(matches!(scene.step(), Turn::Ended(group) if group.waker().slot() == 1));
    assert_eq!(scene.run(), [0]);
    // The waker of the departed group is still in use.
    let former = scene.wakers.pop().unwrap();
    scene.events.pop();
    scene.install(None, None);
    assert_eq!(scene.run(), [1]);
    former.answer();
    former.wake();
    assert_eq!(scene.run(), [0; 0], "it is not the waker of the group that sits there now");
    scene.send(1, 1);
    assert_eq!(scene.run(), [1]);
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Install(Option<u64>),
    Send(usize, usize),
    End(usize),
    Step,
    Advance(u64),
}

fn deeds() -> impl Strategy<Value = Vec<Action>> {
    let deed = prop_oneof![
        1 => prop::option::of(1_u64..2_000).prop_map(Action::Install),
        4 => (any::<usize>(), 0_usize..600).prop_map(|(group, events)| Action::Send(group, events)),
        1 => any::<usize>().prop_map(Action::End),
        6 => Just(Action::Step),
        2 => (0_u64..3_000).prop_map(Action::Advance),
    ];
    prop::collection::vec(deed, 1..200)
}

proptest! {
    /// Whatever happens in which order: every event of a remaining group is handled, no group that is over gets another
    /// turn, and all groups that are over leave.
    #[test]
    fn nothing_is_forgotten(deeds in deeds()) {
        let mut scene = Scene::new();
        let (mut over, mut left) = (Vec::new(), 0);
        for deed in deeds {
            let groups = scene.wakers.len().max(1);
            match deed {
                Action::Install(every) => scene.install(every.map(Nanos::from_micros), None),
                Action::Send(group, events) if !scene.wakers.is_empty() => scene.send(group % groups, events),
                Action::End(group) if !scene.wakers.is_empty() => {
                    scene.wakers[group % groups].end();
                    over.push(group % groups);
                }
                Action::Step => left += usize::from(matches!(scene.step(), Turn::Ended(_))),
                Action::Advance(micros) => scene.now.set(scene.now.get() + Nanos::from_micros(micros)),
                Action::Send(..) | Action::End(_) => {}
            }
        }
        over.sort_unstable();
        over.dedup();
        // Groups with timers go on for ever: a while is enough for everything that waits.
        scene.turns.lock().unwrap().clear();
        for _ in 0..20_000 {
            match scene.step() {
                Turn::Ended(_) => left += 1,
                Turn::Done(_) => {}
                Turn::Failed(group) => prop_assert!(false, "{:?} panicked", group),
                Turn::Idle(_) => break,
            }
        }
        prop_assert_eq!(left, over.len());
        prop_assert!(scene.turns.lock().unwrap().iter().all(|turn| !over.contains(turn)));
        for (group, events) in scene.events.iter().enumerate() {
            prop_assert!(over.contains(&group) || *events.lock().unwrap() == 0, "group {} waits", group);
        }
    }
}
