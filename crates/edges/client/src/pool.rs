//! All frontends of a client: the choice of the next one, and their probes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::balance::{Balance, Candidate};
use crate::error::Error;
use crate::frontend::{Availability, Frontend, FrontendStatus, Held};
use crate::settings::{BuildError, Settings};

#[derive(Debug)]
pub(crate) struct Pool {
    frontends: Vec<Arc<Frontend>>,
    balance: Balance,
    turn: AtomicUsize,
    news: watch::Receiver<u64>,
    watched: bool,
    /// They end with the pool.
    _keepers: JoinSet<()>,
}

impl Pool {
    pub(crate) fn new(settings: &Settings) -> Result<Self, BuildError> {
        let frontend = |address: &String| {
            Frontend::new(address, settings.connections, settings.authority.as_deref()).map(Arc::new)
        };
        let frontends: Vec<_> = settings.frontends.iter().map(frontend).collect::<Result<_, _>>()?;
        let (sender, news) = watch::channel(0);
        let kept = frontends.iter().filter(|_| settings.watched);
        let keepers = kept.map(|frontend| Arc::clone(frontend).keep(sender.clone()));
        Ok(Self {
            watched: settings.watched,
            balance: settings.balance,
            turn: AtomicUsize::new(0),
            news,
            _keepers: keepers.collect(),
            frontends,
        })
    }

    /// Whether frontends are probed.
    pub(crate) const fn is_watched(&self) -> bool {
        self.watched
    }

    pub(crate) fn status(&self) -> Vec<FrontendStatus> {
        self.frontends.iter().map(|frontend| frontend.status()).collect()
    }

    /// Waits until a frontend takes requests, all have been asked and none does, or the time is up.
    pub(crate) async fn connected(&self, within: Duration) -> Result<(), Error> {
        let mut news = self.news.clone();
        let any_ready = async {
            loop {
                news.borrow_and_update();
                let all: Vec<_> = self.frontends.iter().map(|frontend| frontend.availability()).collect();
                if all.contains(&Availability::Ready) {
                    return true;
                }
                if !all.contains(&Availability::Unknown) || news.changed().await.is_err() {
                    return false;
                }
            }
        };
        match tokio::time::timeout(within, any_ready).await {
            Ok(true) => Ok(()),
            _ => Err(self.unreachable()),
        }
    }

    /// The frontend to ask next, none of `tried`. If none takes requests, waits for one, for at most `wait`.
    pub(crate) async fn pick(&self, tried: &[usize], wait: Duration) -> Result<(usize, Held), Error> {
        if let Some(picked) = self.choose(tried) {
            return Ok(picked);
        }
        let mut news = self.news.clone();
        let waited = async {
            loop {
                news.borrow_and_update();
                if let Some(picked) = self.choose(tried) {
                    return Some(picked);
                }
                news.changed().await.ok()?;
            }
        };
        tokio::time::timeout(wait, waited).await.ok().flatten().ok_or_else(|| self.unreachable())
    }

    fn choose(&self, tried: &[usize]) -> Option<(usize, Held)> {
        let candidates = |takes: &dyn Fn(&Frontend) -> bool| -> Vec<Candidate> {
            let open =
                self.frontends.iter().enumerate().filter(|(index, frontend)| !tried.contains(index) && takes(frontend));
            open.map(|(index, frontend)| Candidate { index, in_flight: frontend.in_flight() }).collect()
        };
        let mut found = candidates(&|frontend| !self.watched || frontend.is_ready());
        // If there is no other, a frontend that refuses requests gives the best reason.
        if found.is_empty() && tried.is_empty() {
            found = candidates(&|frontend| frontend.availability() == Availability::NotReady);
        }
        let index = self.balance.choose(&found, self.turn.fetch_add(1, Ordering::Relaxed))?;
        Some((index, self.frontends[index].hold()))
    }

    fn unreachable(&self) -> Error {
        let words = self.frontends.iter().map(|frontend| match frontend.availability() {
            Availability::Unknown => format!("{} has not answered yet", frontend.address),
            Availability::Ready => format!("{} was asked", frontend.address),
            Availability::NotReady => format!("{} takes no requests", frontend.address),
            Availability::Down(reason) => format!("{}: {reason}", frontend.address),
        });
        Error::Unreachable(words.collect::<Vec<_>>().join("; "))
    }
}
