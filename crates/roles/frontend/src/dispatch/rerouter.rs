//! Requests whose leader does not serve their model: the model has moved to another sub-cluster, or the leader has not
//! heard of it yet. They never ran, and are announced again where the newest view has the model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_protocol::dispatch::EndReason;
use symphony_protocol::view::View;
use symphony_transport::ViewReceiver;
use symphony_types::{FailReason, ModelId, SubclusterId};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::requests::request_table::{Ending, RequestTable};

/// The first pause before a request is announced again: a view reaches all processes within milliseconds. It doubles
/// with each time, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(80);
/// How often a request is announced before it fails: some 0.4 s of pauses.
const ANNOUNCED_MAX: u32 = 9;
/// The most requests that are rerouted at a time.
const TOGETHER_MAX: usize = 1024;

/// Announces misrouted requests again.
pub(crate) struct Rerouter<T> {
    pub(crate) table: Arc<RequestTable>,
    pub(crate) view: ViewReceiver,
    /// Tells the way to a sub-cluster that a request is new there.
    pub(crate) announce: T,
}

impl<T: Fn(SubclusterId, u64) + Clone + Send + 'static> Rerouter<T> {
    pub(crate) async fn run(self, mut misrouted: UnboundedReceiver<u64>, ended: CancellationToken) {
        let mut together = Vec::new();
        loop {
            let count = tokio::select! {
                () = ended.cancelled() => return,
                count = misrouted.recv_many(&mut together, TOGETHER_MAX) => count,
            };
            if count == 0 {
                return;
            }
            for (pause, requests) in self.sort(&mut together) {
                let (table, view, announce) = (Arc::clone(&self.table), self.view.clone(), self.announce.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    for (sequence, model) in requests {
                        reannounce(&table, &view.borrow(), sequence, model, &announce);
                    }
                });
            }
        }
    }

    /// Ends those that were misrouted too often or are too late, and sorts the others by their pause.
    fn sort(&self, together: &mut Vec<u64>) -> BTreeMap<Duration, Vec<(u64, ModelId)>> {
        let now = Instant::now();
        let mut by_pause: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for sequence in together.drain(..) {
            let Some((model, deadline, announced)) = self.table.begin_reroute(sequence) else { continue };
            let pause = (PAUSE_MIN * 2_u32.saturating_pow(announced.saturating_sub(1))).min(PAUSE_MAX);
            if announced >= ANNOUNCED_MAX || now + pause >= deadline {
                fail(&self.table, sequence);
            } else {
                by_pause.entry(pause).or_default().push((sequence, model));
            }
        }
        by_pause
    }
}

/// Sends a request where its model is served. While a model is on its way its old home serves it too: a request that
/// was misrouted at one of the two, since its replica is a moment behind, goes to the other.
fn reannounce(table: &RequestTable, view: &View, sequence: u64, model: ModelId, announce: &impl Fn(SubclusterId, u64)) {
    let Some(model) = view.models.get(&model) else { return fail(table, sequence) };
    let target = table.redirect(sequence, |was| match model.moving {
        Some(moving) if moving.switched.is_some() && was == moving.to => moving.from,
        _ => model.subcluster,
    });
    if let Some(target) = target {
        announce(target, sequence);
    }
}

fn fail(table: &RequestTable, sequence: u64) {
    table.end(sequence, Ending::NoResult(EndReason::Failed(FailReason::ModelNotReady)));
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bytes::Bytes;
    use symphony_protocol::epoch_plan_view::ModelMoveView;
    use symphony_protocol::view::{ModelSource, ModelSpec, ModelView};
    use symphony_types::{Nanos, RequestValue, Signature, Token};
    use tokio::sync::{mpsc, oneshot, watch};

    use super::*;
    use crate::requests::request_table::{OpenRequest, Payload};

    const MODEL: ModelId = ModelId::new(4);
    const OLD: SubclusterId = SubclusterId::new(1);
    const NEW: SubclusterId = SubclusterId::new(2);

    fn view(home: Option<SubclusterId>) -> Arc<View> {
        let spec = ModelSpec {
            name: "m".into(),
            subcluster: String::new(),
            slo: Nanos::from_millis(100),
            source: ModelSource::Emulated,
            signature: Signature { inputs: vec![], outputs: vec![] },
            transforms: Default::default(),
            profiles: BTreeMap::new(),
            policy: Default::default(),
            value: RequestValue::ONE,
        };
        let model = |subcluster| ModelView {
            spec: spec.clone(),
            subcluster,
            moving: None,
            holders: BTreeMap::new(),
            trunk: None,
        };
        Arc::new(View { models: home.map(|home| (MODEL, model(home))).into_iter().collect(), ..View::default() })
    }

    struct Scene {
        table: Arc<RequestTable>,
        misrouted: mpsc::UnboundedSender<u64>,
        announced: mpsc::UnboundedReceiver<(SubclusterId, u64)>,
        view: watch::Sender<Arc<View>>,
    }

    impl Scene {
        fn new() -> Self {
            let table = Arc::<RequestTable>::default();
            let (misrouted, out) = mpsc::unbounded_channel();
            let (sender, announced) = mpsc::unbounded_channel();
            let (view, receiver) = watch::channel(view(Some(NEW)));
            let sender = Mutex::new(sender);
            let sender = Arc::new(sender);
            let announce = move |subcluster, sequence| {
                let _ = sender.lock().unwrap().send((subcluster, sequence));
            };
            let rerouter = Rerouter { table: Arc::clone(&table), view: receiver, announce };
            tokio::spawn(rerouter.run(out, CancellationToken::new()));
            Self { table, misrouted, announced, view }
        }

        fn accept(&self, budget: Duration) -> (u64, oneshot::Receiver<Ending>) {
            let (waiter, ending) = oneshot::channel();
            let sequence = self.table.insert(OpenRequest {
                model: MODEL,
                subcluster: OLD,
                items: 1,
                weight: symphony_types::RequestValue::ONE,
                payload: Payload::Here(Bytes::new()),
                shared: None,
                deadline: Instant::now() + budget,
                withheld: false,
                announced: Token::default(),
                attempt: 0,
                panics: 0,
                read: false,
                is_stage: false,
                hop: None,
                waiter,
            });
            (sequence, ending)
        }
    }

    fn failed(ending: Ending) -> bool {
        matches!(ending, Ending::NotHere)
    }

    #[tokio::test]
    async fn a_request_follows_its_model() {
        let mut scene = Scene::new();
        let (sequence, _ending) = scene.accept(Duration::from_secs(60));
        scene.table.announce(sequence, Token::new(7));
        scene.misrouted.send(sequence).unwrap();
        assert_eq!(scene.announced.recv().await, Some((NEW, sequence)));
        assert_eq!(scene.table.announce_all(NEW, Token::new(9)).len(), 1);
    }

    #[tokio::test]
    async fn while_a_model_moves_whom_one_home_is_cordoned_the_other_serves() {
        let mut scene = Scene::new();
        let mut moving = (*view(Some(NEW))).clone();
        let model = moving.models.get_mut(&MODEL).unwrap();
        model.moving = Some(ModelMoveView { from: OLD, to: NEW, since: 3, switched: Some(4) });
        scene.view.send_replace(Arc::new(moving));
        let (sequence, _ending) = scene.accept(Duration::from_secs(60));
        for home in [NEW, OLD, NEW] {
            scene.misrouted.send(sequence).unwrap();
            assert_eq!(scene.announced.recv().await, Some((home, sequence)));
        }
    }

    #[tokio::test]
    async fn it_fails_when_its_model_is_gone_when_it_is_too_late_and_after_many_times() {
        let scene = Scene::new();
        let (late, ending) = scene.accept(Duration::ZERO);
        scene.misrouted.send(late).unwrap();
        assert!(failed(ending.await.unwrap()), "no time is left for another leader");

        let (often, ending) = scene.accept(Duration::from_secs(60));
        for token in 1..=u64::from(ANNOUNCED_MAX) {
            scene.table.announce(often, Token::new(token)).unwrap();
        }
        scene.misrouted.send(often).unwrap();
        assert!(failed(ending.await.unwrap()));

        scene.view.send_replace(view(None));
        let (gone, ending) = scene.accept(Duration::from_secs(60));
        scene.misrouted.send(gone).unwrap();
        assert!(failed(ending.await.unwrap()), "it was unloaded");
        assert_eq!(scene.table.len(), 0);
    }
}
