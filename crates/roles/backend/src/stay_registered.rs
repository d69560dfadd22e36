//! Re-registers a backend that the cluster has declared down, by mistake or while it hung or was cut off.

use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_protocol::control as pb;
use symphony_transport::{ControlClient, ControlError, PayloadTransport, ViewReceiver};
use tokio_util::sync::CancellationToken;

use crate::plan_intake::{BackendIdentity, READY_WITHIN};
use crate::registration::{REGISTER_WITHIN, register};

/// How often a backend checks whether the cluster shows it as up.
const CHECKED_EVERY: Duration = Duration::from_millis(200);
/// The longest pause before a backend that is repeatedly declared down registers again: its leader cannot reach it.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The pause after a refusal that no repetition changes, in case an operator repairs what it names: a certificate,
/// perhaps.
const REFUSED_FOR_GOOD: Duration = Duration::from_secs(60);

/// Registers this backend again when it was declared down by mistake (a pause, a cut link).
pub(crate) async fn stay_registered<T: PayloadTransport>(
    control: ControlClient,
    request: pb::RegisterBackendRequest,
    identity: BackendIdentity,
    transport: Arc<T>,
    view: ViewReceiver,
    ended: CancellationToken,
) {
    let mut pacing = ReRegistration::default();
    loop {
        tokio::select! {
            () = ended.cancelled() => return,
            () = tokio::time::sleep(CHECKED_EVERY) => {}
        }
        let down = view.borrow().backends.get(&identity.backend).is_some_and(|b| b.boot == identity.boot && !b.up);
        if !pacing.registers(Instant::now(), down) {
            continue;
        }
        // Plans come as soon as it is up.
        transport.ready(READY_WITHIN).await;
        match register(&control, &request, REGISTER_WITHIN).await {
            Ok(_) => pacing.answered(Instant::now()),
            Err(error) if error.is_for_good() => {
                let again_in_s = REFUSED_FOR_GOOD.as_secs();
                tracing::error!(%error, again_in_s, "the cluster refuses this backend: mend what it says");
                pacing.refused(Instant::now());
            }
            Err(error) => {
                tracing::warn!(%error, "cannot register again");
                // A refusal comes at once, and the next one too. One for the cluster's level ends the process.
                if matches!(error, ControlError::Refused(_)) {
                    pacing.answered(Instant::now());
                }
            }
        }
    }
}

/// When a backend that was declared down registers again: at once, and after growing pauses where that does not last.
/// Otherwise a backend that its leader cannot reach would be up half of the time, with a log entry for each change. A
/// pure value.
#[derive(Clone, Copy, Debug, Default)]
struct ReRegistration {
    answered: Option<Instant>,
    pause: Duration,
}

impl ReRegistration {
    /// Whether it registers now, being down or not.
    fn registers(&mut self, now: Instant, down: bool) -> bool {
        let since = self.answered.map(|at| now.saturating_duration_since(at));
        if !down && since.is_some_and(|since| since > self.pause + PAUSE_MAX) {
            *self = Self::default();
        }
        down && since.is_none_or(|since| since >= self.pause)
    }

    /// The cluster refuses it, and will the next time.
    fn refused(&mut self, now: Instant) {
        (self.answered, self.pause) = (Some(now), REFUSED_FOR_GOOD);
    }

    /// The cluster shows it as up again, or refuses it as things are.
    fn answered(&mut self, now: Instant) {
        // The view may lag for a moment.
        self.pause = if self.pause.is_zero() { CHECKED_EVERY * 5 } else { (self.pause * 2).min(PAUSE_MAX) };
        self.answered = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use symphony_net::Net;
    use symphony_protocol::view::{BackendView, View};
    use symphony_transport::{Payloads, ResultToFrontend};
    use symphony_types::{BackendId, BootId, FrontendId, SubclusterId, Token};
    use tokio::net::TcpListener;
    use tokio::sync::watch;
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(30);

    /// Frontends that answer when the test says so.
    struct Frontends {
        queried: watch::Sender<bool>,
        answer: watch::Sender<bool>,
    }

    impl PayloadTransport for Frontends {
        async fn read(&self, _: FrontendId, _: BootId, _: Vec<u64>) -> Payloads {
            Payloads::new()
        }

        fn deliver(&self, _: FrontendId, _: BootId, _: Vec<ResultToFrontend>) {}

        async fn finish(&self) {}

        async fn ready(&self, _: Duration) {
            self.queried.send_replace(true);
            let _ = self.answer.subscribe().wait_for(|answer| *answer).await;
        }

        fn name(&self) -> &'static str {
            "none"
        }
    }

    #[tokio::test]
    async fn who_is_declared_down_registers_when_its_frontends_answer() {
        let replica = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = replica.local_addr().unwrap().to_string();
        let control = ControlClient::new(&Net::plaintext(), &[addr]).unwrap();
        let (backend, boot) = (BackendId::new(1), BootId::new(5));
        let (subcluster, token) = (SubclusterId::new(1), Token::new(1));
        let identity = BackendIdentity { backend, boot, subcluster, gpus: Vec::new(), token };
        let down = BackendView { boot, up: false, ..BackendView::default() };
        let view = View { backends: [(backend, down)].into(), ..View::default() };
        let (_views, view) = watch::channel(Arc::new(view));
        let frontends = Arc::new(Frontends { queried: watch::Sender::new(false), answer: watch::Sender::new(false) });
        let (mut queried, links) = (frontends.queried.subscribe(), Arc::clone(&frontends));
        let (request, ended) = (pb::RegisterBackendRequest::default(), CancellationToken::new());
        let registering = tokio::spawn(stay_registered(control, request, identity, links, view, ended));

        assert!(timeout(SOON, queried.wait_for(|queried| *queried)).await.is_ok(), "it asks nobody");
        assert!(timeout(CHECKED_EVERY * 2, replica.accept()).await.is_err(), "plans would come before their inputs");
        frontends.answer.send_replace(true);
        assert!(timeout(SOON, replica.accept()).await.is_ok(), "it does not register");
        registering.abort();
    }

    #[test]
    fn who_is_declared_down_says_at_once_that_it_is_there_and_ever_more_rarely_if_that_does_not_last() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pacing = ReRegistration::default();
        assert!(!pacing.registers(at(0), false) && pacing.registers(at(0), true));
        pacing.answered(at(0));
        for (early, again) in [(999, 1_000), (2_999, 3_000), (6_999, 7_000), (14_999, 15_000), (24_999, 25_000)] {
            assert!(!pacing.registers(at(early), true) && pacing.registers(at(again), true), "{again}");
            pacing.answered(at(again));
        }
        assert!(!pacing.registers(at(34_000), true), "ten seconds at most");
        // After a while up, the pause starts over.
        assert!(!pacing.registers(at(45_001), false) && pacing.registers(at(45_200), true));
    }

    #[test]
    fn who_is_refused_for_good_asks_once_a_minute() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pacing = ReRegistration::default();
        pacing.refused(at(0));
        assert!(!pacing.registers(at(59_999), true) && pacing.registers(at(60_000), true));
        pacing.answered(at(60_000));
        assert!(pacing.registers(at(70_000), true), "ten seconds at most");
    }
}
