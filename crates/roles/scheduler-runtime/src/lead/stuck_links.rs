//! Detects a lead whose links are stuck. Heartbeats may get through where nothing else does: the replica then counts
//! as alive, and without this check no replica would take its leads over.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use symphony_transport::{EchoTimes, EchoTrigger, Movement, until};
use tokio::sync::{Notify, watch};

/// Pause between two echo requests on a busy link: a fraction of the time after which it is stuck, and few bytes
/// beside its plans.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// The longest pause between echo requests on an idle link; the next message on it ends the pause. A thousand leads
/// send two hundred requests a second over their idle links. A pause of two seconds would cost 2 % of a core.
const ASK_AGAIN_MAX: Duration = Duration::from_secs(10);
/// A link is stuck when an answer takes this many times the limit for a stuck decision thread: 300 ms (`lan`) or 1.5 s
/// (`relaxed`).
const STUCK_TIMES: u32 = 3;

/// The least number of stuck links that count: with one link, either end may be at fault.
const STUCK_LINKS_MIN: usize = 2;

/// A lead is not given up for its links before it has lasted this long, and a replica gives up leads no more often
/// than that. If the whole network fails, sub-clusters change leaders at this distance and no faster.
const KEPT_FOR_MIN: Duration = Duration::from_secs(3);

/// The times of the echo requests on a lead's links; `origin` is the same for all leads.
pub(crate) fn echo_times(origin: Instant, stuck_after: Duration) -> EchoTimes {
    let stuck_after = stuck_after * STUCK_TIMES;
    EchoTimes {
        origin,
        ask_again_after: ASK_AGAIN_AFTER,
        ask_again_max: ASK_AGAIN_MAX,
        stuck_after,
        // A check that comes this late means that this process was paused, and perhaps the others too.
        late: stuck_after / 4,
    }
}

/// The links of one lead to backends and frontends.
#[derive(Debug, Default)]
pub(crate) struct StuckLinks {
    links: Mutex<Links>,
    /// Notified when a link gets stuck.
    got_stuck: Notify,
}

#[derive(Debug, Default)]
struct Links {
    next: u64,
    movements: HashMap<u64, LinkState>,
}

#[derive(Debug)]
struct LinkState {
    movement: Movement,
    echo_trigger: EchoTrigger,
}

impl StuckLinks {
    /// Tracks the state of a link while the future is polled.
    pub(crate) async fn track(
        &self,
        (mut movement, echo_trigger): (watch::Receiver<Movement>, EchoTrigger),
    ) -> Infallible {
        let tracked = self.add(LinkState { movement: *movement.borrow(), echo_trigger });
        loop {
            tracked.set_movement(*movement.borrow_and_update());
            if movement.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Counts one more link as stuck until the returned value is dropped.
    pub(crate) fn count_stuck(&self) -> TrackedLink<'_> {
        let tracked = self.add(LinkState { movement: Movement::Stuck, echo_trigger: EchoTrigger::default() });
        tracked.set_movement(Movement::Stuck);
        tracked
    }

    fn add(&self, state: LinkState) -> TrackedLink<'_> {
        let mut links = self.links();
        links.next += 1;
        let number = links.next;
        links.movements.insert(number, state);
        TrackedLink { stuck_links: self, number }
    }

    /// Returns when a link has become stuck, or at `check_at`.
    pub(crate) async fn changed(&self, check_at: Option<Instant>) {
        tokio::select! {
            () = self.got_stuck.notified() => {}
            () = until(check_at) => {}
        }
    }

    /// Whether another replica should lead: most of the links that once answered are stuck.
    ///
    /// A link that never answered does not count. If the whole network fails, a successor's links never answer, and
    /// the successor keeps its leads.
    pub(crate) fn is_cut_off(&self) -> bool {
        let links = self.links();
        let count = |wanted| links.movements.values().filter(|link| link.movement == wanted).count();
        let (stuck, moving) = (count(Movement::Stuck), count(Movement::Moves));
        stuck >= STUCK_LINKS_MIN && stuck > moving
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides when a lead is given up for its links. A pure value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenure {
    kept_until: Instant,
    check_at: Option<Instant>,
}

impl Tenure {
    pub(crate) fn begin(now: Instant) -> Self {
        Self { kept_until: now + KEPT_FOR_MIN, check_at: None }
    }

    /// When to [check](Self::should_give_up) again even if nothing changes.
    pub(crate) const fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// Whether to give the lead up now. Without other replicas to take over, that would only interrupt it.
    pub(crate) fn should_give_up(&mut self, now: Instant, is_cut_off: bool, has_standbys: bool) -> bool {
        if !is_cut_off {
            self.check_at = None;
            return false;
        }
        let given_up = has_standbys && now >= self.kept_until;
        if now >= self.kept_until {
            self.kept_until = now + KEPT_FOR_MIN;
        }
        self.check_at = Some(self.kept_until);
        given_up
    }
}

/// A link in the list, while this value lives.
#[derive(Debug)]
pub(crate) struct TrackedLink<'a> {
    stuck_links: &'a StuckLinks,
    number: u64,
}

impl TrackedLink<'_> {
    fn set_movement(&self, movement: Movement) {
        let mut links = self.stuck_links.links();
        if let Some(link) = links.movements.get_mut(&self.number) {
            link.movement = movement;
        }
        if movement == Movement::Stuck {
            // The state of an idle link may be seconds old, and would count in favour of this lead.
            links.movements.values().for_each(|link| link.echo_trigger.echo_soon());
            self.stuck_links.got_stuck.notify_one();
        }
    }
}

impl Drop for TrackedLink<'_> {
    fn drop(&mut self) {
        self.stuck_links.links().movements.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use symphony_net::{Net, Role};
    use symphony_protocol::execute::{FromBackend, ToBackend};
    use symphony_transport::{LinkReceiver, LinkSender, connect_link, link_over};

    use super::*;

    fn stuck_links(movements: &[Movement]) -> StuckLinks {
        let stuck_links = StuckLinks::default();
        let state = |&movement| LinkState { movement, echo_trigger: EchoTrigger::default() };
        stuck_links.links().movements = (0..).zip(movements.iter().map(state)).collect();
        stuck_links
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
            assert_eq!(stuck_links(movements).is_cut_off(), cut_off, "{movements:?}");
        }
    }

    #[test]
    fn a_lead_is_given_up_for_its_links_at_a_distance_and_only_if_there_is_a_standby() {
        let start = Instant::now();
        let mut tenure = Tenure::begin(start);
        let mut check = |ms: u64, cut_off, standbys| {
            let given_up = tenure.should_give_up(start + Duration::from_millis(ms), cut_off, standbys);
            (given_up, tenure.check_at().map(|at| (at - start).as_millis()))
        };
        assert_eq!(check(100, true, true), (false, Some(3_000)), "it has only begun");
        assert_eq!(check(200, false, true), (false, None), "they move again");
        assert_eq!(check(2_999, true, true), (false, Some(3_000)));
        assert_eq!(check(3_000, true, true), (true, Some(6_000)));
        assert_eq!(check(3_100, true, true), (false, Some(6_000)), "it was said already");
        assert_eq!(check(6_000, true, false), (false, Some(9_000)), "nobody else is up");
        assert_eq!(check(9_000, true, true), (true, Some(12_000)));
        assert_eq!(check(60_000, true, true), (true, Some(63_000)));
    }

    #[tokio::test]
    async fn a_link_counts_while_it_is_followed_and_wakes_when_it_gets_stuck() {
        let stuck_links = StuckLinks::default();
        let (sender, movement) = watch::channel(Movement::Moves);
        let (_other, stuck) = watch::channel(Movement::Stuck);
        {
            let (one, other) = (
                stuck_links.track((movement, EchoTrigger::default())),
                stuck_links.track((stuck, EchoTrigger::default())),
            );
            let (mut one, mut other) = (Box::pin(one), Box::pin(other));
            assert!(futures::poll!(&mut one).is_pending() && futures::poll!(&mut other).is_pending());
            assert!(!stuck_links.is_cut_off());
            sender.send_replace(Movement::Stuck);
            assert!(futures::poll!(&mut one).is_pending());
            assert!(futures::poll!(Box::pin(stuck_links.changed(None))).is_ready());
            assert!(stuck_links.is_cut_off());
        }
        assert!(!stuck_links.is_cut_off() && stuck_links.links().movements.is_empty(), "they have ended");
    }

    /// Both links are idle for hours after their first answers; then the peers stop answering, and only one link is in
    /// use.
    #[tokio::test]
    async fn links_that_rest_are_asked_when_another_one_gets_stuck() {
        let ms = Duration::from_millis;
        // Idle links are asked at moments a hundredth of the longest pause apart. With ten hours, that is never.
        let (origin, never) = (Instant::now(), Duration::from_secs(1000 * 3600));
        let times =
            EchoTimes { origin, ask_again_after: ms(1), ask_again_max: never, stuck_after: ms(500), late: never };
        let stuck_links = Arc::new(StuckLinks::default());
        let (mut links, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let (sender, mut receiver, back, mut peer) = linked().await;
            let watched = receiver.watch(times);
            let following = Arc::clone(&stuck_links);
            tokio::spawn(async move { following.track(watched).await });
            tokio::spawn(async move { while receiver.receive().await.is_ok() {} });
            peers.push(tokio::spawn(async move { while peer.receive().await.is_ok() {} }));
            links.push((sender, back));
        }
        let count = |wanted| stuck_links.links().movements.values().filter(|link| link.movement == wanted).count();
        let until = async |wanted| {
            let waited = async {
                while count(wanted) < 2 {
                    tokio::time::sleep(ms(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), waited).await.expect("in time");
        };
        until(Movement::Moves).await;
        peers.iter().for_each(tokio::task::JoinHandle::abort);
        links[0].0.send(ToBackend::Retired { gpus: vec![] }).unwrap();
        until(Movement::Stuck).await;
        assert!(stuck_links.is_cut_off());
    }

    type Ends = (LinkSender<ToBackend>, LinkReceiver<FromBackend>, LinkSender<FromBackend>, LinkReceiver<ToBackend>);

    /// Both ends of a link, the watched end first.
    async fn linked() -> Ends {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (net, addr) = (Net::plaintext(), listener.local_addr().unwrap().to_string());
        let backend = Role::Backend.into();
        let (dialled, accepted) = tokio::join!(connect_link(&net, &addr, &backend), listener.accept());
        let accepted = net.accept(accepted.unwrap().0, &[]).await.unwrap();
        let ((sender, receiver), (back, peer)) = (dialled.unwrap(), link_over(accepted));
        (sender, receiver, back, peer)
    }
}
