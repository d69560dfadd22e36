//! Opens data links before they are needed. A link takes a handshake, and with RDMA a connection as well; a batch whose
//! inputs wait for that misses its start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use symphony_protocol::view::View;
use symphony_types::{BackendId, Nanos};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::linked_payloads::{FrontendBoot, LinkedPayloads};

/// Frontends to which a backend opens links before it has requests of theirs. If there are more, each backend begins
/// with a different one, and the rest are linked when they are needed.
const EARLY_LINKS_MAX: usize = 256;

/// Links that a backend opens at a time, so that one silent frontend delays only itself.
const DIALS_AT_ONCE: usize = 8;

/// Pause between two checks which links have ended.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Pause after a failed attempt to open a link; it doubles with each further failure.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
/// The longest pause.
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(30);

/// The backends of a cluster dial a new frontend spread over this time: each dial is a handshake for it.
const NEWCOMER_DIALLED_WITHIN: Duration = Duration::from_millis(256);

/// How long a backend may be held back by missing links: a frontend that cannot be reached may be dead.
const SETTLED_WITHIN: Duration = Duration::from_secs(1);

/// Opens the links of a [`LinkedPayloads`] to the frontends as soon as they are in the view, and again when they end.
#[derive(Debug)]
pub struct EarlyLinks {
    transport: LinkedPayloads,
    view: watch::Receiver<Arc<View>>,
    tries: Tries,
    settled: watch::Sender<bool>,
}

impl EarlyLinks {
    /// Resolves when, for the first time, all links are open or it took too long: a backend that takes its first batch
    /// earlier may lose it.
    #[must_use]
    pub fn settled(&self) -> watch::Receiver<bool> {
        self.settled.subscribe()
    }

    pub(crate) fn new(transport: LinkedPayloads, backend: BackendId, view: watch::Receiver<Arc<View>>) -> Self {
        Self { transport, view, tries: Tries::new(backend), settled: watch::Sender::new(false) }
    }

    /// Resolves once the links are open, or are not waited for any longer.
    fn settle(&self, too_long: bool) {
        let missing = self.tries.missing();
        if *self.settled.borrow() || (missing > 0 && !too_long) {
            return;
        }
        if missing > 0 {
            let within = SETTLED_WITHIN.as_millis();
            tracing::warn!(
                frontends = missing,
                "frontends not linked in time ({within} ms); their first requests may fail"
            );
        }
        self.settled.send_replace(true);
    }

    /// Works until the transport finishes or the view ends. Must be used inside a tokio runtime.
    pub async fn run(mut self) {
        let mut dials: FuturesUnordered<BoxFuture<'static, (FrontendBoot, bool)>> = FuturesUnordered::new();
        let mut waited_since = None;
        while !self.transport.has_finished() {
            let now = Instant::now();
            let view = Arc::clone(&self.view.borrow_and_update());
            let is_named = self.transport.is_named(&view);
            if is_named {
                let since = *waited_since.get_or_insert(now);
                let is_open = |frontend| self.transport.is_linked(frontend);
                for frontend in self.tries.due(now, &view, is_open, DIALS_AT_ONCE - dials.len()) {
                    let transport = self.transport.clone();
                    dials.push(Box::pin(async move { (frontend, transport.link(frontend).await.is_some()) }));
                }
                self.settle(now >= since + SETTLED_WITHIN);
            }
            // A backend that is no longer in the view waits until it is.
            let waits = is_named && !*self.settled.borrow();
            let settles = waited_since.filter(|_| waits).map(|since| since + SETTLED_WITHIN);
            let may_dial = is_named && dials.len() < DIALS_AT_ONCE;
            let next_poll = self.tries.next_poll(now, may_dial, settles);
            tokio::select! {
                changed = self.view.changed() => if changed.is_err() { return },
                Some((frontend, linked)) = dials.next(), if !dials.is_empty() => self.tries.ended(Instant::now(), frontend, linked),
                () = tokio::time::sleep_until(next_poll) => {}
            }
        }
    }
}

/// Which frontends to dial, and when.
#[derive(Debug)]
struct Tries {
    backend: BackendId,
    frontends: BTreeMap<FrontendBoot, Try>,
    /// Whether the frontends of the first view are known: later ones are dialled by all backends at once.
    has_begun: bool,
}

/// The state of the link to one frontend.
#[derive(Clone, Copy, Debug)]
struct Try {
    stage: Stage,
    /// Consecutive attempts that led to no link, or to one that ended soon.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Due {
        at: Instant,
    },
    UnderWay,
    /// It was open at the last check.
    Linked {
        since: Instant,
    },
}

impl Tries {
    const fn new(backend: BackendId) -> Self {
        Self { backend, frontends: BTreeMap::new(), has_begun: false }
    }

    /// The frontends to dial now, at most this many; they count as being dialled from then on. While a link is in use
    /// elsewhere, it may be unknown whether it is open.
    fn due(
        &mut self,
        now: Instant,
        view: &View,
        is_open: impl Fn(FrontendBoot) -> Option<bool>,
        at_most: usize,
    ) -> Vec<FrontendBoot> {
        let wanted = wanted(view, self.backend);
        self.frontends.retain(|frontend, _| wanted.contains(frontend));
        let first = if self.has_begun { now + self.turn() } else { now };
        self.has_begun = true;
        for frontend in wanted {
            let known = self.frontends.entry(frontend).or_insert(Try { stage: Stage::Due { at: first }, failures: 0 });
            if let Some(is_open) = is_open(frontend) {
                known.note_link(now, is_open);
            }
        }
        let is_due = |(_, known): &(_, &mut Try)| matches!(known.stage, Stage::Due { at } if at <= now);
        let begin = |(&frontend, known): (&FrontendBoot, &mut Try)| {
            known.stage = Stage::UnderWay;
            frontend
        };
        self.frontends.iter_mut().filter(is_due).take(at_most).map(begin).collect()
    }

    /// When this backend dials a frontend that has just appeared.
    fn turn(&self) -> Duration {
        let within = NEWCOMER_DIALLED_WITHIN.as_millis() as u64;
        Duration::from_millis(u64::from(self.backend.get()) % within)
    }

    /// A dial has ended; the frontend may have left since.
    fn ended(&mut self, now: Instant, frontend: FrontendBoot, linked: bool) {
        if let Some(known) = self.frontends.get_mut(&frontend).filter(|known| known.stage == Stage::UnderWay) {
            if linked {
                known.stage = Stage::Linked { since: now };
            } else {
                known.failed(now);
            }
        }
    }

    /// The number of frontends without a link.
    fn missing(&self) -> usize {
        self.frontends.values().filter(|known| !matches!(known.stage, Stage::Linked { .. })).count()
    }

    /// When to check again. A frontend that is due but may not be dialled now waits for another event.
    fn next_poll(&self, now: Instant, may_dial: bool, settles: Option<Instant>) -> Instant {
        let next = if may_dial { self.next() } else { None };
        [settles, next].into_iter().flatten().fold(now + POLL_EVERY, Instant::min)
    }

    /// When the next frontend is due.
    fn next(&self) -> Option<Instant> {
        let due = |known: &Try| if let Stage::Due { at } = known.stage { Some(at) } else { None };
        self.frontends.values().filter_map(due).min()
    }
}

impl Try {
    /// Records whether there is a link: a read may have opened one, and every link may end.
    fn note_link(&mut self, now: Instant, is_open: bool) {
        match self.stage {
            Stage::Due { .. } if is_open => self.stage = Stage::Linked { since: now },
            Stage::Linked { since } if !is_open && now < since + AGAIN_AFTER_MAX => self.failed(now),
            Stage::Linked { .. } if !is_open => *self = Self { stage: Stage::Due { at: now }, failures: 0 },
            Stage::Due { .. } | Stage::UnderWay | Stage::Linked { .. } => {}
        }
    }

    fn failed(&mut self, now: Instant) {
        let again = AGAIN_AFTER.saturating_mul(1 << self.failures.min(16)).min(AGAIN_AFTER_MAX);
        *self = Self { stage: Stage::Due { at: now + again }, failures: self.failures.saturating_add(1) };
    }
}

/// The frontends in the view, or as many of them as are linked early.
pub(crate) fn wanted(view: &View, backend: BackendId) -> BTreeSet<FrontendBoot> {
    let is_there = |silent: Option<Nanos>| silent.is_none_or(|silent| silent == Nanos::ZERO);
    let there: Vec<_> = view
        .frontends
        .iter()
        .filter(|(_, f)| !f.has_left() && is_there(f.silent))
        .map(|(&id, f)| (id, f.boot))
        .collect();
    let first = (backend.get() as usize).checked_rem(there.len()).unwrap_or(0);
    there.iter().cycle().skip(first).take(there.len().min(EARLY_LINKS_MAX)).copied().collect()
}

#[cfg(test)]
#[path = "early_links_tests.rs"]
mod tests;
