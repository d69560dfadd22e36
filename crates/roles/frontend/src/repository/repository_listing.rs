//! What a repository's folder holds, read now and then, however many ask and however long the folder takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::oip::{IndexEntry, ModelState};

/// The entries, sorted by name and version, or why the folder could not be read.
pub(crate) type Entries = Result<Arc<Vec<IndexEntry>>, String>;

#[derive(Debug)]
pub(crate) struct Listing {
    /// The folder is read at most this often.
    every: Duration,
    /// Held by the call that reads the folder; the others wait for what it finds.
    last: Arc<Mutex<Option<(Instant, Entries)>>>,
}

impl Listing {
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, last: Arc::default() }
    }

    /// The last listing if it is fresh, or what `read` finds now. A reading goes on if its caller goes, and no other
    /// begins before its end.
    pub(crate) async fn newest(
        &self,
        read: impl FnOnce() -> Result<Vec<IndexEntry>, String> + Send + 'static,
    ) -> Entries {
        let last = Arc::clone(&self.last).lock_owned().await;
        if let Some((at, entries)) = last.as_ref()
            && at.elapsed() < self.every
        {
            return entries.clone();
        }
        tokio::spawn(read_to_the_end(read, last)).await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

async fn read_to_the_end(
    read: impl FnOnce() -> Result<Vec<IndexEntry>, String> + Send + 'static,
    mut last: OwnedMutexGuard<Option<(Instant, Entries)>>,
) -> Entries {
    let entries = tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Err(error.to_string())).map(Arc::new);
    let before = last.take().and_then(|(_, before)| before.ok()).unwrap_or_default();
    match &entries {
        Ok(entries) => log_news(&before, entries),
        Err(error) => tracing::warn!(error, "the repository cannot be read"),
    }
    *last = Some((Instant::now(), entries.clone()));
    entries
}

/// Logs why models cannot be served, once for each reason: the log is where all who may know find it.
fn log_news(before: &[IndexEntry], now: &[IndexEntry]) {
    for entry in now {
        let same = before.binary_search_by(|other| (&other.name, other.version).cmp(&(&entry.name, entry.version)));
        let is_known = same.is_ok_and(|at| before[at].state == entry.state);
        if let (false, ModelState::Unavailable(reason)) = (is_known, &entry.state) {
            tracing::warn!(model = entry.name, reason, "a model of the repository cannot be served");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Longer than a test takes.
    const EVERY: Duration = Duration::from_secs(3600);

    fn entry(name: &str) -> IndexEntry {
        IndexEntry { name: name.into(), version: Some(1), state: ModelState::NotLoaded }
    }

    #[tokio::test]
    async fn a_caller_who_goes_leaves_the_reading_to_the_next_ones() {
        let listing = Listing::new(EVERY);
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        let slow = listing.newest(move || {
            begun.send(()).unwrap();
            may_go_on.recv().unwrap();
            Ok(vec![entry("of the first")])
        });
        tokio::select! {
            biased;
            entries = slow => panic!("the folder answers nobody yet: {entries:?}"),
            // The caller hangs up.
            () = async { while has_begun.try_recv().is_err() { tokio::task::yield_now().await } } => {}
        }
        let second = listing.newest(|| panic!("the first reading has not ended"));
        let (entries, ()) = tokio::join!(second, async { go_on.send(()).unwrap() });
        assert_eq!(*entries.unwrap(), [entry("of the first")]);
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_read_is_not_read_for_everybody_either() {
        let listing = Listing::new(EVERY);
        assert_eq!(listing.newest(|| Err("no such folder".into())).await, Err("no such folder".into()));
        assert_eq!(listing.newest(|| Ok(vec![entry("m")])).await, Err("no such folder".into()));
        let broken = Listing::new(EVERY).newest(|| panic!("a defect")).await;
        assert!(broken.unwrap_err().contains("panic"));
    }
}
