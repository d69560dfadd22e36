//! Whether any replica could name another leader for one that is gone: the other replicas' contact with the control
//! group.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// How long the other replicas' answers count. There may be a thousand sub-clusters whose leader is gone, and they are
/// asked once.
const WORD_COUNTS_FOR: Duration = Duration::from_millis(250);
/// How long a leader may be looked for while no replica answers at all. As long as a leader goes on without the control
/// group.
const UNREACHED_FOR: Duration = Duration::from_secs(1);

/// A replica's answer about a sub-cluster that it does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContactAnswer {
    /// It has had contact with a quorum lately: the next leader is named in a moment.
    InContact,
    /// It has not.
    OutOfContact,
    /// It did not answer.
    NoAnswer,
}

/// The control plane of one cluster, by the last answers of its replicas.
#[derive(Debug, Default)]
pub(crate) struct ControlPlaneContact(Mutex<Option<(Instant, Vec<ContactAnswer>)>>);

impl ControlPlaneContact {
    /// Whether no replica can name another leader, `unlinked` after the last link to one. `ask` asks the others, if
    /// that is due.
    pub(crate) async fn is_lost(&self, unlinked: Duration, ask: impl Future<Output = Vec<ContactAnswer>>) -> bool {
        // Callers that come meanwhile wait for the same answers.
        let mut last = self.0.lock().await;
        let answers = match last.take() {
            Some((at, answers)) if at.elapsed() < WORD_COUNTS_FOR => last.insert((at, answers)),
            _ => last.insert((Instant::now(), ask.await)),
        };
        is_lost(&answers.1, unlinked)
    }
}

fn is_lost(answers: &[ContactAnswer], unlinked: Duration) -> bool {
    !answers.contains(&ContactAnswer::InContact)
        && (answers.contains(&ContactAnswer::OutOfContact) || unlinked >= UNREACHED_FOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_contact_is_enough_and_silence_takes_its_time() {
        use ContactAnswer::{InContact, NoAnswer, OutOfContact};
        for (answers, at_once, later) in [
            (&[InContact, OutOfContact][..], false, false),
            (&[InContact, NoAnswer][..], false, false),
            (&[OutOfContact, NoAnswer][..], true, true),
            (&[NoAnswer, NoAnswer][..], false, true),
            // The only replica there is.
            (&[][..], false, true),
        ] {
            assert_eq!(
                (is_lost(answers, Duration::ZERO), is_lost(answers, UNREACHED_FOR)),
                (at_once, later),
                "{answers:?}"
            );
        }
    }

    #[tokio::test]
    async fn all_ways_ask_together() {
        let control_plane_contact = ControlPlaneContact::default();
        let queries = std::sync::atomic::AtomicU32::new(0);
        let ask = || async {
            queries.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            vec![ContactAnswer::OutOfContact]
        };
        let ways = (0..100).map(|_| control_plane_contact.is_lost(Duration::ZERO, ask()));
        assert!(futures::future::join_all(ways).await.into_iter().all(|lost| lost));
        assert!(queries.into_inner() < 50, "asked by each of them");
    }
}
