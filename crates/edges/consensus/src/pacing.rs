//! Decides what drives the group's clock: the library's ticks, or a timer of ours. A pure value.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::timing::Timing;

/// A replica's role, as far as the clock is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It leads, and a quorum acknowledged what it sent at that time, if ever.
    Leads { confirmed: Option<Instant> },
    /// It follows a leader, whose last message was taken at that time, if ever.
    Follows { last_heard: Option<Instant> },
    /// It campaigns, knows no leader, or must not lead.
    Unsettled,
}

/// The orders until the next look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    /// Whether the library ticks.
    pub(crate) ticks: bool,
    /// Whether to send a heartbeat now.
    pub(crate) heartbeat: bool,
    /// The latest time of the next look; `None` while the library ticks, since each of its turns leads here.
    pub(crate) again: Option<Instant>,
}

/// Decides when the library ticks.
///
/// The library ticks every fifth of a heartbeat, to check whether a heartbeat or an election is due. Mostly neither
/// is: a leader with a quorum needs only one timer for its heartbeats, and a follower that has just heard its leader
/// will not campaign before an election timeout has passed. In these two cases the ticks are off; in every other case
/// the library's own clock runs. Elections are decided by the library and its clock alone, at the same times as with
/// ticks always on.
/// were.
#[derive(Debug)]
pub(crate) struct Pacing {
    heartbeat: Duration,
    calm: Duration,
    /// When a leader's next heartbeat is due while the library does not tick.
    due: Option<Instant>,
}

impl Pacing {
    pub(crate) fn new(timing: &Timing) -> Self {
        // Three heartbeats. A follower campaigns at the earliest one `election_min` after the last sign of life: the
        // rest is more than the one tick that switching the ticks on may take.
        Self { heartbeat: timing.heartbeat, calm: timing.election_min * 3 / 4, due: None }
    }

    pub(crate) fn step(&mut self, now: Instant, role: Role) -> Order {
        let calm_until = |last: Option<Instant>| last.map(|last| last + self.calm).filter(|until| now < *until);
        let (again, heartbeat) = match role {
            Role::Leads { confirmed } if calm_until(confirmed).is_some() => {
                let heartbeat = self.due.is_none_or(|due| due <= now);
                if heartbeat {
                    // A delayed leader does not make up for missed heartbeats.
                    let in_step = self.due.map(|due| due + self.heartbeat).filter(|next| now < *next);
                    self.due = Some(in_step.unwrap_or(now + self.heartbeat));
                }
                (self.due, heartbeat)
            }
            #[cfg(feature = "planted-faults")]
            Role::Follows { last_heard: Some(_) } if crate::planted::is(crate::planted::Bug::TicksStayOff) => {
                (Some(now + self.calm), false)
            }
            Role::Follows { last_heard } => (calm_until(last_heard), false),
            Role::Leads { .. } | Role::Unsettled => (None, false),
        };
        if !matches!(role, Role::Leads { .. }) || again.is_none() {
            self.due = None;
        }
        Order { ticks: again.is_none(), heartbeat, again }
    }
}

/// When the leader was last heard: the arrival of a message that the library then accepted.
#[derive(Debug, Default)]
pub(crate) struct LastHeard(Mutex<Option<Instant>>);

impl LastHeard {
    pub(crate) fn note(&self, arrived: Instant) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (*last).max(Some(arrived));
    }

    pub(crate) fn last(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TICKING: Order = Order { ticks: true, heartbeat: false, again: None };

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// How often the library ticks, by its own arithmetic.
    fn tick(timing: &Timing) -> Duration {
        timing.heartbeat * 13 / 64
    }

    #[test]
    fn ticks_are_back_before_the_earliest_election() {
        for timing in [Timing::lan(), Timing::relaxed()] {
            let calm = Pacing::new(&timing).calm;
            assert!(calm + tick(&timing) < timing.election_min, "{timing:?}");
            assert!(calm >= timing.heartbeat * 3, "two heartbeats may be lost without a tick: {timing:?}");
            assert!(calm < timing.election_max, "a leader without a quorum ticks before its lease ends: {timing:?}");
        }
    }

    #[test]
    fn a_leader_with_a_quorum_sends_heartbeats_in_step_and_one_without_is_left_to_the_library() {
        let (mut pacing, start) = (Pacing::new(&Timing::lan()), Instant::now());
        let at = |count| start + ms(count);
        let leads = |confirmed| Role::Leads { confirmed: Some(at(confirmed)) };
        let order = |heartbeat, again| Order { ticks: false, heartbeat, again: Some(at(again)) };
        assert_eq!(pacing.step(at(0), Role::Leads { confirmed: None }), TICKING, "just elected");
        assert_eq!(pacing.step(at(5), leads(0)), order(true, 25));
        assert_eq!(pacing.step(at(6), leads(5)), order(false, 25), "looked at for another reason");
        assert_eq!(pacing.step(at(27), leads(5)), order(true, 45), "a late look delays none of the next");
        assert_eq!(pacing.step(at(70), leads(27)), order(true, 90), "what was missed is not made up for");
        assert_eq!(pacing.step(at(87), leads(27)), TICKING, "no quorum for 60 ms");
        assert_eq!(pacing.step(at(88), leads(80)), order(true, 108), "and again with one");
        assert_eq!(pacing.step(at(90), Role::Unsettled), TICKING);
        assert_eq!(pacing.step(at(91), leads(80)), order(true, 111), "a new lead begins with a heartbeat");
    }

    #[test]
    fn a_follower_rests_while_it_hears_its_leader() {
        let (mut pacing, start) = (Pacing::new(&Timing::lan()), Instant::now());
        let at = |count| start + ms(count);
        let follows = |last_heard| Role::Follows { last_heard: Some(at(last_heard)) };
        let rests = |again| Order { ticks: false, heartbeat: false, again: Some(at(again)) };
        assert_eq!(
            pacing.step(at(0), Role::Follows { last_heard: None }),
            TICKING,
            "a leader known from the disk only"
        );
        assert_eq!(pacing.step(at(1), follows(1)), rests(61));
        assert_eq!(pacing.step(at(60), follows(1)), rests(61));
        assert_eq!(pacing.step(at(61), follows(1)), TICKING);
        assert_eq!(pacing.step(at(62), follows(62)), rests(122));
    }

    proptest! {
        /// Whatever happens, and however late the looks are: without ticks there was a recent sign of life, the next
        /// look is due before that has expired, and heartbeats are no further apart than the looks.
        #[test]
        fn without_ticks_there_was_a_sign_of_life_a_moment_ago(
            looks in prop::collection::vec((0_u64..60, 0_u8..3, 0_u64..150), 1..200),
        ) {
            let timing = Timing::lan();
            let (mut pacing, start) = (Pacing::new(&timing), Instant::now());
            let (mut now, mut sent) = (start + ms(1_000), None::<Instant>);
            for (pause, role, age) in looks {
                now += ms(pause);
                let sign = now - ms(age);
                let role = match role {
                    0 => Role::Leads { confirmed: Some(sign) },
                    1 => Role::Follows { last_heard: Some(sign) },
                    _ => Role::Unsettled,
                };
                let order = pacing.step(now, role);
                prop_assert_eq!(order.ticks, order.again.is_none());
                let alive = ms(age) < timing.election_min * 3 / 4 && role != Role::Unsettled;
                prop_assert_eq!(order.ticks, !alive);
                prop_assert!(order.again.is_none_or(|again| again > now && again <= now + pacing.calm));
                let leads = alive && matches!(role, Role::Leads { .. });
                prop_assert!(!order.heartbeat || leads);
                if leads {
                    let overdue = sent.is_none_or(|sent| now >= sent + timing.heartbeat);
                    prop_assert!(order.heartbeat || !overdue);
                    sent = if order.heartbeat { Some(now) } else { sent };
                } else {
                    sent = None;
                }
            }
        }
    }
}
