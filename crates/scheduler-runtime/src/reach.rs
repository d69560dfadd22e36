//! Whether a lead still reaches those it leads for. Beats may get through where nothing else moves: then the replica lives,
//! and nobody would replace it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use symphony_transport::{EchoTimes, Movement};
use tokio::sync::{Notify, watch};

/// Pause between two questions on a link in use: a fraction of what makes it stuck, and few bytes beside its plans.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// The longest pause on a link that is not in use; the next message on it ends the pause. A thousand leads ask two hundred times a
/// second over their idle links; asking every two seconds would cost 2 % of a core.
const ASK_AGAIN_MAX: Duration = Duration::from_secs(10);
/// A link is stuck when an answer takes so many times what makes a decision thread stuck: 300 ms (`lan`) or 1.5 s (`relaxed`).
const STUCK_TIMES: u32 = 3;

/// So many links must be stuck: of one nobody can tell which end is ill.
const STUCK_LINKS_MIN: usize = 2;

/// A lead is not given up for its links before it has lasted this long, and then no more often than that. Where the whole
/// network is ill, sub-clusters move at this distance and no faster.
const KEPT_FOR_MIN: Duration = Duration::from_secs(3);

/// How the links of a lead are asked whether they move.
pub(crate) fn echo_times(stuck_after: Duration) -> EchoTimes {
    let stuck_after = stuck_after * STUCK_TIMES;
    EchoTimes {
        ask_again_after: ASK_AGAIN_AFTER,
        ask_again_max: ASK_AGAIN_MAX,
        stuck_after,
        // Who looks that late was paused, and perhaps everybody with it.
        late: stuck_after / 4,
    }
}

/// The links of one lead to backends and frontends.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    links: Mutex<Links>,
    /// Rung when a link gets stuck.
    got_stuck: Notify,
}

#[derive(Debug, Default)]
struct Links {
    next: u64,
    movements: HashMap<u64, Movement>,
}

impl Reach {
    /// Keeps what is known of a link up to date, as long as the future is polled.
    pub(crate) async fn follow(&self, mut movement: watch::Receiver<Movement>) -> Infallible {
        let place = {
            let mut links = self.links();
            links.next += 1;
            Place { reach: self, number: links.next }
        };
        loop {
            place.moves(*movement.borrow_and_update());
            if movement.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Returns when a link has got stuck, or at `look_at`.
    pub(crate) async fn changed(&self, look_at: Option<Instant>) {
        let then = async {
            match look_at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.got_stuck.notified() => {}
            () = then => {}
        }
    }

    /// Whether the lead should be somebody else's: most of the links that once moved are stuck.
    ///
    /// A link that never moved says nothing: where the network is ill as a whole, a successor's links never move, and it
    /// keeps what it was given.
    pub(crate) fn is_cut_off(&self) -> bool {
        let links = self.links();
        let count = |wanted| links.movements.values().filter(|movement| **movement == wanted).count();
        let (stuck, moving) = (count(Movement::Stuck), count(Movement::Moves));
        stuck >= STUCK_LINKS_MIN && stuck > moving
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a lead is given up for its links. A pure value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenure {
    kept_until: Instant,
    look_at: Option<Instant>,
}

impl Tenure {
    pub(crate) fn begin(now: Instant) -> Self {
        Self { kept_until: now + KEPT_FOR_MIN, look_at: None }
    }

    /// When to [look](Self::look) again though nothing changes.
    pub(crate) const fn look_at(&self) -> Option<Instant> {
        self.look_at
    }

    /// Whether it is to be given up now. Without heirs that would only interrupt it.
    pub(crate) fn look(&mut self, now: Instant, is_cut_off: bool, has_heirs: bool) -> bool {
        if !is_cut_off {
            self.look_at = None;
            return false;
        }
        let given_up = has_heirs && now >= self.kept_until;
        if now >= self.kept_until {
            self.kept_until = now + KEPT_FOR_MIN;
        }
        self.look_at = Some(self.kept_until);
        given_up
    }
}

/// A link in the list, for as long as it is held.
struct Place<'a> {
    reach: &'a Reach,
    number: u64,
}

impl Place<'_> {
    fn moves(&self, movement: Movement) {
        self.reach.links().movements.insert(self.number, movement);
        if movement == Movement::Stuck {
            self.reach.got_stuck.notify_one();
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.reach.links().movements.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(movements: &[Movement]) -> Reach {
        let reach = Reach::default();
        reach.links().movements = (0..).zip(movements.iter().copied()).collect();
        reach
    }

    #[test]
    fn most_links_and_at_least_two_must_be_stuck_and_who_never_moved_has_no_say() {
        use Movement::{Moves, Stuck, Unknown};
        for (movements, cut_off) in [
            (&[][..], false),
            (&[Stuck][..], false),
            (&[Stuck, Unknown, Unknown][..], false),
            (&[Stuck, Stuck][..], true),
            (&[Stuck, Stuck, Unknown, Unknown, Unknown][..], true),
            (&[Stuck, Stuck, Moves, Moves][..], false),
            (&[Stuck, Stuck, Stuck, Moves, Moves][..], true),
            (&[Unknown, Unknown, Unknown][..], false),
        ] {
            assert_eq!(reach(movements).is_cut_off(), cut_off, "{movements:?}");
        }
    }

    #[test]
    fn a_lead_is_given_up_for_its_links_at_a_distance_and_only_if_there_is_an_heir() {
        let start = Instant::now();
        let mut tenure = Tenure::begin(start);
        let mut look = |ms: u64, cut_off, heirs| {
            let given_up = tenure.look(start + Duration::from_millis(ms), cut_off, heirs);
            (given_up, tenure.look_at().map(|at| (at - start).as_millis()))
        };
        assert_eq!(look(100, true, true), (false, Some(3_000)), "it has only begun");
        assert_eq!(look(200, false, true), (false, None), "they move again");
        assert_eq!(look(2_999, true, true), (false, Some(3_000)));
        assert_eq!(look(3_000, true, true), (true, Some(6_000)));
        assert_eq!(look(3_100, true, true), (false, Some(6_000)), "it was said already");
        assert_eq!(look(6_000, true, false), (false, Some(9_000)), "nobody else is up");
        assert_eq!(look(9_000, true, true), (true, Some(12_000)));
        assert_eq!(look(60_000, true, true), (true, Some(63_000)));
    }

    #[tokio::test]
    async fn a_link_counts_while_it_is_followed_and_rings_when_it_gets_stuck() {
        let reach = Reach::default();
        let (told, movement) = watch::channel(Movement::Moves);
        let (_other, stuck) = watch::channel(Movement::Stuck);
        {
            let (one, other) = (reach.follow(movement), reach.follow(stuck));
            let (mut one, mut other) = (Box::pin(one), Box::pin(other));
            assert!(futures::poll!(&mut one).is_pending() && futures::poll!(&mut other).is_pending());
            assert!(!reach.is_cut_off());
            told.send_replace(Movement::Stuck);
            assert!(futures::poll!(&mut one).is_pending());
            assert!(futures::poll!(Box::pin(reach.changed(None))).is_ready());
            assert!(reach.is_cut_off());
        }
        assert!(!reach.is_cut_off() && reach.links().movements.is_empty(), "they have ended");
    }
}
