//! By which level a process writes: that of its cluster, as far as it knows.

use std::sync::{Arc, Mutex, PoisonError};

use symphony_types::Level;
use tokio::sync::watch;
use tonic::Status;
use tonic::metadata::MetadataValue;

/// Metadata of refusals for a level: which one the cluster is at.
const REFUSED_AT: &str = "x-symphony-level";

/// The level of the cluster that a process belongs to, and the newest that its program knows. One per process and
/// cluster; a handle.
#[derive(Clone, Debug)]
pub struct ClusterLevel(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    newest: Level,
    known: watch::Sender<Option<Level>>,
    /// The level that the log has raised so far, if it is below [`Level::OLDEST`].
    by_log: Mutex<Option<Level>>,
}

impl ClusterLevel {
    /// For a program that knows no level above this one.
    #[must_use]
    pub fn up_to(newest: Level) -> Self {
        Self(Arc::new(Inner { newest, known: watch::Sender::new(None), by_log: Mutex::default() }))
    }

    /// The newest level that this process knows.
    #[must_use]
    pub fn newest(&self) -> Level {
        self.0.newest
    }

    /// The level of the cluster, once this process knows it.
    #[must_use]
    pub fn known(&self) -> Option<Level> {
        *self.0.known.borrow()
    }

    /// What this process writes by: until it knows its cluster's level, by the oldest one, which every neighbour of the
    /// release before reads.
    #[must_use]
    pub fn written(&self) -> Level {
        self.known().unwrap_or_default().min(self.0.newest)
    }

    /// The cluster is at that level, or above it: what reports it may lag.
    pub fn update(&self, level: Level) {
        self.0.known.send_if_modified(|reported| {
            let is_news = Some(level) > *reported;
            if is_news {
                *reported = Some(level);
            }
            is_news
        });
    }

    /// Learns the cluster's level from the log of a replica, as far as it is applied. A level below those of this
    /// program's neighbours is no news yet: a log holds what is older than the last raise until it is compacted.
    pub fn update_by_log(&self, level: Level) {
        if level >= Level::OLDEST {
            return self.update(level);
        }
        *self.0.by_log.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }

    /// The level of the cluster, for a replica that has applied its whole log. It is announced from here on, also if it
    /// is below those of this program's neighbours: then a release was skipped, and the process ends.
    #[must_use]
    pub fn known_by_whole_log(&self) -> Option<Level> {
        if self.known().is_none()
            && let Some(level) = *self.0.by_log.lock().unwrap_or_else(PoisonError::into_inner)
        {
            self.update(level);
        }
        self.known()
    }

    /// The answer to a process that does not know the cluster's level.
    #[must_use]
    pub fn refusal(level: Level, words: String) -> Status {
        let mut status = Status::failed_precondition(words);
        status.metadata_mut().insert(REFUSED_AT, MetadataValue::from(level.get()));
        status
    }

    /// Learns the cluster's level from a [`refusal`](Self::refusal); other answers are ignored. A process that was cut
    /// off while the level was raised gets no view that would show it.
    pub fn update_by_refusal(&self, status: &Status) {
        let reported = status.metadata().get(REFUSED_AT);
        let reported: Option<u16> = reported.and_then(|level| level.to_str().ok()?.parse().ok());
        if let Some(level) = reported {
            self.update(Level::new(level));
        }
    }

    /// Waits until the cluster is at a level that this process does not know, and returns it.
    pub async fn unknown(&self) -> Level {
        let mut reported = self.0.known.subscribe();
        let is_unknown =
            |reported: &Option<Level>| reported.is_some_and(|level| level < Level::OLDEST || level > self.0.newest);
        let level = reported.wait_for(is_unknown).await.ok().and_then(|level| *level);
        match level {
            Some(level) => level,
            // The sender lives as long as this handle.
            None => std::future::pending().await,
        }
    }
}

impl Default for ClusterLevel {
    fn default() -> Self {
        Self::up_to(Level::NEWEST)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn nothing_is_written_above_what_the_cluster_has_told_or_this_process_knows() {
        let (new, old) = (ClusterLevel::default(), ClusterLevel::up_to(Level::OLDEST));
        assert_eq!([new.written(), old.written()], [Level::OLDEST; 2], "nobody has told anything");
        assert_eq!((new.known(), old.unknown().now_or_never()), (None, None));
        for level in [&new, &old] {
            level.clone().update(Level::NEWEST);
        }
        assert_eq!([new.written(), old.written()], [Level::NEWEST, Level::OLDEST]);
        assert_eq!(new.unknown().now_or_never(), None);
        assert_eq!(old.unknown().now_or_never(), Some(Level::NEWEST));
        new.update(Level::OLDEST);
        assert_eq!(new.written(), Level::NEWEST, "a replica that lags lowers nothing");
        let refused = ClusterLevel::up_to(Level::OLDEST);
        refused.update_by_refusal(&Status::failed_precondition("it is in another boot"));
        assert_eq!(refused.unknown().now_or_never(), None);
        refused.update_by_refusal(&ClusterLevel::refusal(Level::NEWEST, "start a newer release".to_owned()));
        assert_eq!(refused.unknown().now_or_never(), Some(Level::NEWEST));
        let replays = ClusterLevel::default();
        replays.update_by_log(Level::new(0));
        assert_eq!((replays.known(), replays.unknown().now_or_never()), (None, None), "the beginning of a log");
        replays.update_by_log(Level::OLDEST);
        assert_eq!(replays.known_by_whole_log(), Some(Level::OLDEST));
        let skipped = ClusterLevel::default();
        skipped.update_by_log(Level::new(0));
        assert_eq!(skipped.known_by_whole_log(), Some(Level::new(0)));
        assert_eq!(skipped.unknown().now_or_never(), Some(Level::new(0)), "a release was skipped");
        let behind = ClusterLevel::default();
        behind.update(Level::new(0));
        assert_eq!(behind.unknown().now_or_never(), Some(Level::new(0)), "a cluster that is two releases behind");
    }
}
