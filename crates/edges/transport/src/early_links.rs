//! Data links before they are needed: a link takes a handshake, with RDMA a connection as well, and a batch whose
//! inputs wait for that has missed its start.

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

/// Frontends to which a backend has links before it has requests of theirs. Where there are more, each backend begins
/// with another one, and the rest are linked when they are needed.
const EARLY_LINKS_MAX: usize = 256;

/// Links that a backend makes at a time, so that one frontend that does not answer holds up no more than itself.
const DIALS_AT_ONCE: usize = 8;

/// How often it is looked which links have ended since.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A link that could not be made is tried again after so long, and then after twice as long each time.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
/// But after no longer than this.
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(30);

/// The backends of a cluster dial a frontend that has just come one after the other, over this time: each is a
/// handshake for it.
const NEWCOMER_DIALLED_WITHIN: Duration = Duration::from_millis(256);

/// How long a backend may be held back because not all links are made: a frontend that cannot be reached may be gone.
const SETTLED_WITHIN: Duration = Duration::from_secs(1);

/// Makes the links of a [`LinkedPayloads`] to the frontends of the view as soon as these are in it, and again when they
/// end.
#[derive(Debug)]
pub struct EarlyLinks {
    transport: LinkedPayloads,
    view: watch::Receiver<Arc<View>>,
    tries: Tries,
    settled: watch::Sender<bool>,
}

impl EarlyLinks {
    /// What tells that, for the first time, all links were made that there should be, or that it took too long: a
    /// backend that takes its first batch before that may lose it.
    #[must_use]
    pub fn settled(&self) -> watch::Receiver<bool> {
        self.settled.subscribe()
    }

    pub(crate) fn new(transport: LinkedPayloads, backend: BackendId, view: watch::Receiver<Arc<View>>) -> Self {
        Self { transport, view, tries: Tries::new(backend), settled: watch::Sender::new(false) }
    }

    /// Tells, once, that the links are made or are not waited for any longer.
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

    /// Works until the transport finishes or nobody tells the view any more. Must be used inside a tokio runtime.
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
            // A backend that the view does not name any more waits for that.
            let waits = is_named && !*self.settled.borrow();
            let settles = waited_since.filter(|_| waits).map(|since| since + SETTLED_WITHIN);
            let may_dial = is_named && dials.len() < DIALS_AT_ONCE;
            let look = self.tries.look_at(now, may_dial, settles);
            tokio::select! {
                changed = self.view.changed() => if changed.is_err() { return },
                Some((frontend, linked)) = dials.next(), if !dials.is_empty() => self.tries.ended(Instant::now(), frontend, linked),
                () = tokio::time::sleep_until(look) => {}
            }
        }
    }
}

/// Which frontends are to be dialled when.
#[derive(Debug)]
struct Tries {
    backend: BackendId,
    frontends: BTreeMap<FrontendBoot, Try>,
    /// Whether those of the first view are known: whoever comes later is dialled by all backends at once.
    has_begun: bool,
}

/// How it stands with the link to one frontend.
#[derive(Clone, Copy, Debug)]
struct Try {
    stage: Stage,
    /// Tries, one after the other, that led to no link or to one that ended soon.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Due {
        at: Instant,
    },
    UnderWay,
    /// Was open when that was looked up last, and is since then.
    Linked {
        since: Instant,
    },
}

impl Tries {
    const fn new(backend: BackendId) -> Self {
        Self { backend, frontends: BTreeMap::new(), has_begun: false }
    }

    /// The frontends to be dialled now, at most so many; they are under way from then on. Of a link that somebody has
    /// in hand it may not be known whether it is open.
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
                known.look(now, is_open);
            }
        }
        let is_due = |(_, known): &(_, &mut Try)| matches!(known.stage, Stage::Due { at } if at <= now);
        let begin = |(&frontend, known): (&FrontendBoot, &mut Try)| {
            known.stage = Stage::UnderWay;
            frontend
        };
        self.frontends.iter_mut().filter(is_due).take(at_most).map(begin).collect()
    }

    /// When this backend dials a frontend that has just come.
    fn turn(&self) -> Duration {
        let within = NEWCOMER_DIALLED_WITHIN.as_millis() as u64;
        Duration::from_millis(u64::from(self.backend.get()) % within)
    }

    /// A dial has ended, of a frontend that may have left since.
    fn ended(&mut self, now: Instant, frontend: FrontendBoot, linked: bool) {
        if let Some(known) = self.frontends.get_mut(&frontend).filter(|known| known.stage == Stage::UnderWay) {
            if linked {
                known.stage = Stage::Linked { since: now };
            } else {
                known.failed(now);
            }
        }
    }

    /// How many there are no links to.
    fn missing(&self) -> usize {
        self.frontends.values().filter(|known| !matches!(known.stage, Stage::Linked { .. })).count()
    }

    /// When to look again. Who is due and may not be dialled now has to wait for something else that happens.
    fn look_at(&self, now: Instant, may_dial: bool, settles: Option<Instant>) -> Instant {
        let next = if may_dial { self.next() } else { None };
        [settles, next].into_iter().flatten().fold(now + LOOK_EVERY, Instant::min)
    }

    /// When the next one is due.
    fn next(&self) -> Option<Instant> {
        let due = |known: &Try| if let Stage::Due { at } = known.stage { Some(at) } else { None };
        self.frontends.values().filter_map(due).min()
    }
}

impl Try {
    /// Takes note of whether there is a link: a read may have made one, and every link may end.
    fn look(&mut self, now: Instant, is_open: bool) {
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

/// The frontends that are there, or as many of them as are linked early.
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
