//! Open watches: of whole views, and of views cut to one backend's needs.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use symphony_protocol::view::{BackendScope, SortedView, View};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Status;

/// Open watches: all backends and frontends of a cluster, and some operators.
const WATCHERS_MAX: i64 = 8192 + 64;
/// How long an unchanged cut view may wait before it is sent again with its new age. Finite, because a watcher keeps
/// the newest view of any replica: a replica that died may have shown it a change that was undone before another
/// replica could show it.
const UNCHANGED_AFTER: Duration = Duration::from_secs(1);

/// Counts a watch while it is open.
pub(crate) struct Watching(Gauge);

impl Watching {
    pub(crate) fn begin(gauge: &Gauge) -> Result<Self, Status> {
        if gauge.inc() >= WATCHERS_MAX {
            gauge.dec();
            return Err(Status::resource_exhausted(format!(
                "{WATCHERS_MAX} processes watch this replica already; watch another one"
            )));
        }
        Ok(Self(gauge.clone()))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The watch of one backend.
pub(crate) struct CutWatch {
    views: watch::Receiver<Arc<SortedView>>,
    scope: BackendScope,
    last_sent: Option<View>,
}

impl CutWatch {
    pub(crate) fn begin(views: watch::Receiver<Arc<SortedView>>, scope: BackendScope) -> Self {
        Self { views, scope, last_sent: None }
    }

    /// The next view to send: at once if its content is new, after [`UNCHANGED_AFTER`] if only its index is. None once
    /// the publisher has ended.
    pub(crate) async fn next(&mut self) -> Option<View> {
        let mut due = None;
        loop {
            let whole = Arc::clone(&self.views.borrow_and_update());
            match &self.last_sent {
                Some(last_sent) if whole.applied_index <= last_sent.applied_index => {}
                last_sent => {
                    let now = Instant::now();
                    let at = *due.get_or_insert(now + UNCHANGED_AFTER);
                    let cut = whole.for_backend(self.scope);
                    if now >= at || !last_sent.as_ref().is_some_and(|last_sent| last_sent.says_the_same(&cut)) {
                        self.last_sent = Some(cut.clone());
                        return Some(cut);
                    }
                }
            }
            tokio::select! {
                changed = self.views.changed() => changed.ok()?,
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::{BackendView, SubclusterView};
    use symphony_types::{BackendId, SubclusterId, Token};

    use super::*;

    const SCOPE: BackendScope = BackendScope { backend: BackendId::new(1), subcluster: SubclusterId::new(1) };

    /// Two sub-clusters with these tokens.
    fn view(applied_index: u64, tokens: [u64; 2]) -> Arc<SortedView> {
        let subcluster = |token| SubclusterView { token: Token::new(token), ..SubclusterView::default() };
        let subclusters = (1..).map(SubclusterId::new).zip(tokens.map(subcluster)).collect();
        let itself = BackendView { subcluster: SCOPE.subcluster, ..BackendView::default() };
        let backends = [(SCOPE.backend, itself)].into();
        Arc::new(Arc::new(View { applied_index, subclusters, backends, ..View::default() }).into())
    }

    async fn next_view(watch: &mut CutWatch) -> (u64, Token, Duration) {
        let since = Instant::now();
        let view = watch.next().await.unwrap();
        (view.applied_index, view.subclusters[&SCOPE.subcluster].token, since.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn what_concerns_it_is_told_at_once_and_the_rest_as_an_age_later() {
        let (publish, views) = watch::channel(view(5, [1, 1]));
        let mut watch = CutWatch::begin(views, SCOPE);
        assert_eq!(next_view(&mut watch).await, (5, Token::new(1), Duration::ZERO), "the first one");
        publish.send_replace(view(6, [6, 1]));
        assert_eq!(next_view(&mut watch).await, (6, Token::new(6), Duration::ZERO), "its own sub-cluster");
        publish.send_replace(view(7, [6, 7]));
        let newer = tokio::spawn(async move {
            tokio::time::sleep(UNCHANGED_AFTER / 2).await;
            publish.send_replace(view(8, [6, 8]));
            publish
        });
        assert_eq!(
            next_view(&mut watch).await,
            (8, Token::new(6), UNCHANGED_AFTER),
            "once, with the age of the newest"
        );
        let publish = newer.await.unwrap();
        publish.send_replace(view(8, [6, 8]));
        let nothing = tokio::time::timeout(UNCHANGED_AFTER * 3, watch.next()).await;
        assert!(nothing.is_err(), "nothing is newer");
        drop(publish);
        assert_eq!(watch.next().await, None);
    }

    /// A replica shows a change and dies; another replica skips the change, since it was undone meanwhile. A watcher
    /// of both must not keep the change.
    #[tokio::test(start_paused = true)]
    async fn a_change_that_was_undone_is_forgotten_by_who_heard_of_it_elsewhere() {
        let (publish, views) = watch::channel(view(5, [1, 1]));
        let mut watch = CutWatch::begin(views, SCOPE);
        next_view(&mut watch).await;
        let heard_elsewhere = 6;
        publish.send_replace(view(6, [6, 1]));
        publish.send_replace(view(7, [1, 1]));
        let (index, token, _) = next_view(&mut watch).await;
        assert!(index > heard_elsewhere);
        assert_eq!(token, Token::new(1));
    }
}
