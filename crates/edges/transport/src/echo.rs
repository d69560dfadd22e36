//! Whether a link moves: echo requests that the other end answers in order with everything else. A pure value, kept by
//! the receiving end of the link.

use std::time::{Duration, Instant};

/// Idle links are asked at common moments, this many per longest pause: a process wakes once for all of them.
const MOMENTS_IN_LONGEST_PAUSE: u32 = 100;

/// The times of the echo requests on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoTimes {
    /// The common moments of idle links are counted from here; the same for all links of a process.
    pub origin: Instant,
    /// Pause between an answer and the next request on a link in use.
    pub ask_again_after: Duration,
    /// The longest pause on an idle link; it doubles from `ask_again_after`.
    pub ask_again_max: Duration,
    /// An answer that takes longer means that the link is stuck.
    pub stuck_after: Duration,
    /// A check that comes later than this was itself held up, and waits again.
    pub late: Duration,
}

impl EchoTimes {
    /// The first common moment of idle links from then on.
    fn moment(&self, from: Instant) -> Instant {
        let apart = (self.ask_again_max / MOMENTS_IN_LONGEST_PAUSE).as_nanos().max(1);
        let since = from.saturating_duration_since(self.origin).as_nanos();
        let wait = since.next_multiple_of(apart) - since;
        from + Duration::from_nanos(wait.try_into().unwrap_or(0))
    }
}

/// What is known of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Movement {
    /// No request was answered yet.
    #[default]
    Unknown,
    /// The last request was answered in time.
    Moves,
    /// It used to move, and the last request was not answered in time.
    Stuck,
}

/// One link's echo requests and answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EchoWatch {
    times: EchoTimes,
    requests_sent: u64,
    /// Since when the last request has been waiting.
    waits: Option<Instant>,
    poll_at: Instant,
    pause: Duration,
    /// Whether anything but answers came since the last one.
    used: bool,
    movement: Movement,
}

impl EchoWatch {
    pub(crate) fn new(now: Instant, times: EchoTimes) -> Self {
        let pause = times.ask_again_after;
        Self {
            times,
            requests_sent: 0,
            waits: None,
            poll_at: now + pause,
            pause,
            used: false,
            movement: Movement::Unknown,
        }
    }

    /// When to call [`poll_echo`](Self::poll_echo).
    pub(crate) const fn poll_at(&self) -> Instant {
        self.poll_at
    }

    /// What is known of the link now.
    pub(crate) const fn movement(&self) -> Movement {
        self.movement
    }

    /// Checks the link; returns the number of a request that is to be sent now.
    pub(crate) fn poll_echo(&mut self, now: Instant) -> Option<u64> {
        if now < self.poll_at {
            return None;
        }
        let held_up = now > self.poll_at + self.times.late;
        self.poll_at = now + self.times.stuck_after;
        let question = match self.waits {
            None => {
                self.requests_sent += 1;
                Some(self.requests_sent)
            }
            // What has arrived meanwhile may not have been read yet.
            Some(_) if held_up => None,
            Some(_) => {
                if self.movement == Movement::Moves {
                    self.movement = Movement::Stuck;
                }
                return None;
            }
        };
        self.waits = Some(now);
        question
    }

    /// A message came or went. Call [`stir`](Self::stir) if the link [rests](Self::rests).
    pub(crate) const fn used(&mut self) {
        self.used = true;
    }

    /// Whether the next request is further away than on a link in use.
    pub(crate) fn rests(&self) -> bool {
        self.waits.is_none() && self.pause > self.times.ask_again_after
    }

    /// The link is in use again: it is asked as soon as any other such link.
    pub(crate) fn stir(&mut self, now: Instant) {
        if self.rests() {
            self.pause = self.times.ask_again_after;
            self.poll_at = self.poll_at.min(now + self.pause);
        }
    }

    /// An answer came.
    pub(crate) fn answered(&mut self, now: Instant, number: u64) {
        let Some(since) = self.waits.filter(|_| number == self.requests_sent) else { return };
        self.waits = None;
        // A late answer does not turn a stuck link into a moving one.
        if now.saturating_duration_since(since) <= self.times.stuck_after {
            self.movement = Movement::Moves;
        }
        let idle = (self.pause * 2).min(self.times.ask_again_max);
        self.pause = if std::mem::take(&mut self.used) { self.times.ask_again_after } else { idle };
        self.poll_at = now + self.pause;
        if self.rests() {
            self.poll_at = self.times.moment(self.poll_at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn times(origin: Instant) -> EchoTimes {
        EchoTimes { origin, ask_again_after: ms(100), ask_again_max: ms(1_000), stuck_after: ms(300), late: ms(50) }
    }

    struct Scene {
        watch: EchoWatch,
        start: Instant,
    }

    impl Scene {
        fn new() -> Self {
            let start = Instant::now();
            Self { watch: EchoWatch::new(start, times(start)), start }
        }

        fn poll_echo(&mut self, at: u64) -> Option<u64> {
            self.watch.poll_echo(self.start + ms(at))
        }

        fn answer(&mut self, at: u64, number: u64) -> Movement {
            self.watch.answered(self.start + ms(at), number);
            self.watch.movement()
        }

        /// When it wants to check next, in milliseconds.
        fn next(&self) -> u64 {
            (self.watch.poll_at() - self.start).as_millis() as u64
        }
    }

    #[test]
    fn a_link_in_use_is_asked_often_and_one_that_is_not_ever_more_rarely() {
        let mut scene = Scene::new();
        assert_eq!((scene.poll_echo(99), scene.poll_echo(100)), (None, Some(1)));
        assert_eq!(scene.answer(101, 1), Movement::Moves);
        assert_eq!(scene.next(), 310, "at the next moment for links that rest");
        for pause in [400, 800, 1_000, 1_000] {
            let at = scene.next();
            let number = scene.poll_echo(at).unwrap();
            assert_eq!(scene.next(), at + 300, "an answer is waited for");
            scene.answer(at, number);
            assert_eq!(scene.next(), at + pause);
        }
        let at = scene.next();
        let number = scene.poll_echo(at).unwrap();
        scene.watch.used();
        scene.answer(at + 1, number);
        assert_eq!(scene.next(), at + 101);
    }

    #[test]
    fn links_that_rest_are_asked_together_and_those_in_use_when_they_want() {
        let start = Instant::now();
        let mut links = [100, 103, 107].map(|at| {
            let mut watch = EchoWatch::new(start, times(start));
            watch.poll_echo(start + ms(at));
            watch.answered(start + ms(at), 1);
            watch
        });
        let next = |links: &[EchoWatch; 3]| links.map(|watch| (watch.poll_at() - start).as_millis());
        assert_eq!(next(&links), [300, 310, 310]);
        for (watch, at) in links.iter_mut().zip([300, 310, 311]) {
            watch.used();
            assert_eq!(watch.poll_echo(start + ms(at)), Some(2));
            watch.answered(start + ms(at + 3), 2);
        }
        assert_eq!(next(&links), [403, 413, 414]);
    }

    #[test]
    fn a_link_that_rested_is_asked_soon_once_it_is_used_again() {
        let mut scene = Scene::new();
        for _ in 0..5 {
            let at = scene.next();
            let number = scene.poll_echo(at).unwrap();
            assert!(!scene.watch.rests(), "an answer is waited for");
            scene.answer(at, number);
            assert!(scene.watch.rests());
        }
        let rests_until = scene.next();
        scene.watch.stir(scene.start + ms(rests_until - 500));
        assert_eq!((scene.next(), scene.watch.rests()), (rests_until - 400, false));
        scene.watch.stir(scene.start + ms(rests_until - 450));
        assert_eq!(scene.next(), rests_until - 400, "the first message counts");
        let number = scene.poll_echo(rests_until - 400).unwrap();
        scene.answer(rests_until - 400, number);
        let asked_anew = scene.next();
        scene.watch.stir(scene.start + ms(asked_anew - 20));
        assert_eq!(scene.next(), asked_anew, "never later than it would have been");
    }

    #[test]
    fn a_link_that_moved_and_does_not_answer_is_stuck_until_it_answers_in_time() {
        let mut scene = Scene::new();
        assert_eq!(scene.poll_echo(100), Some(1));
        scene.watch.used();
        assert_eq!(scene.answer(101, 1), Movement::Moves);
        assert_eq!(scene.poll_echo(201), Some(2));
        // Messages that drip in prove nothing.
        scene.watch.used();
        assert_eq!((scene.poll_echo(500), scene.watch.movement()), (None, Movement::Moves));
        assert_eq!((scene.poll_echo(501), scene.watch.movement()), (None, Movement::Stuck));
        assert_eq!(scene.answer(900, 1), Movement::Stuck, "an answer to something else");
        assert_eq!(scene.answer(900, 2), Movement::Stuck, "too late");
        assert_eq!(scene.poll_echo(1_000), Some(3));
        assert_eq!(scene.answer(1_300, 3), Movement::Moves);
    }

    #[test]
    fn who_was_held_up_itself_waits_anew() {
        let mut scene = Scene::new();
        assert_eq!(scene.poll_echo(100), Some(1));
        scene.answer(101, 1);
        let at = scene.next();
        assert_eq!(scene.poll_echo(at), Some(2));
        assert_eq!((scene.poll_echo(at + 351), scene.watch.movement()), (None, Movement::Moves), "51 ms late");
        assert_eq!((scene.poll_echo(at + 651), scene.watch.movement()), (None, Movement::Stuck));
    }

    #[test]
    fn a_link_that_never_answered_is_not_stuck() {
        let mut scene = Scene::new();
        scene.poll_echo(100);
        for at in [400, 700, 1_000, 9_000] {
            scene.poll_echo(at);
            assert_eq!(scene.watch.movement(), Movement::Unknown);
        }
        assert_eq!(scene.answer(9_001, 1), Movement::Moves, "it had begun to wait anew");
    }
}
