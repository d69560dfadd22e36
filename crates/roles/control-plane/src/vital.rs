//! The parts of a control plane that must not end before it does: without one of them a replica would look healthy
//! from outside, but no longer do what the others rely on.

use std::future::Future;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::Fatal;

/// Ends the replica when one of its parts ends.
#[derive(Clone, Debug)]
pub(crate) struct Vital {
    fatal: watch::Sender<Option<Fatal>>,
    stop: CancellationToken,
}

impl Vital {
    pub(crate) const fn new(fatal: watch::Sender<Option<Fatal>>, stop: CancellationToken) -> Self {
        Self { fatal, stop }
    }

    /// Runs a task that must end only after the stop.
    pub(crate) fn spawn(&self, part: &'static str, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let guard = self.guard(part);
        tokio::spawn(async move {
            let _guard = guard;
            task.await;
        })
    }

    /// A guard for the part to hold. Dropped before the stop, also by a panic, it ends the replica.
    pub(crate) fn guard(&self, part: &'static str) -> Guard {
        Guard { vital: self.clone(), part }
    }
}

/// Held by a part.
#[derive(Debug)]
pub(crate) struct Guard {
    vital: Vital,
    part: &'static str,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.vital.stop.is_cancelled() {
            return;
        }
        self.vital.fatal.send_if_modified(|fatal| {
            // If the part has given a reason, that one is more precise.
            let first = fatal.is_none();
            if first {
                let words = format!("the {} of the control plane ended by itself; its log says why", self.part);
                *fatal = Some(Fatal(words));
            }
            first
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_ends_early_or_panics_takes_the_replica_along_and_whoever_is_stopped_does_not() {
        for (panics, stopped) in [(false, false), (true, false), (false, true)] {
            let (fatal, ends) = watch::channel(None);
            let stop = CancellationToken::new();
            let vital = Vital::new(fatal, stop.clone());
            if stopped {
                stop.cancel();
            }
            let part = vital.spawn("mover", async move { assert!(!panics, "planted") });
            assert_eq!(part.await.is_err(), panics);
            let words = ends.borrow().as_ref().map(ToString::to_string);
            assert_eq!(words.is_some(), !stopped, "{words:?}");
            assert!(words.is_none_or(|words| words.contains("mover")));
        }
    }

    #[test]
    fn the_first_reason_stays() {
        let (fatal, ends) = watch::channel(Some(Fatal("removed".into())));
        drop(Vital::new(fatal, CancellationToken::new()).guard("registrar"));
        assert_eq!(*ends.borrow(), Some(Fatal("removed".into())));
    }
}
