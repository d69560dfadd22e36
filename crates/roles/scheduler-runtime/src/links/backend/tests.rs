use std::future::Future;

use symphony_transport::link_over;
use symphony_types::NodeId;
use tokio::net::TcpListener;

use super::*;
use crate::threads::decision_threads::DecisionThreads;
use crate::workers::decision_config::DecisionConfig;

const BACKEND: BackendId = BackendId::new(3);
const BOOT: BootId = BootId::new(5);
const GPU: GpuId = GpuId::new(9);
const TOKEN: Token = Token::new(10);
const ENDED: EndedPlan = EndedPlan { longer: 7, predicted: 100 };

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.unwrap_or_else(|_| panic!("no {what}"))
}

/// A link to a backend that the test plays, in front of stopped workers: their messages stay in the inboxes.
struct Scene {
    workers: Arc<Workers>,
    usage: watch::Sender<Usage>,
    _sender: LinkSender<FromBackend>,
    receiver: LinkReceiver<ToBackend>,
}

impl Scene {
    async fn sealed(usage: Usage) -> Self {
        let threads = DecisionThreads::new(DecisionConfig::default());
        let workers = Workers::start("s", &threads, None, None).unwrap();
        workers.stop();
        soon("end of the workers", async {
            while Arc::strong_count(&workers.rank) > 1 {
                threads.tend(&threads.running(), drop);
                tokio::task::yield_now().await;
            }
        })
        .await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (usage, usage_receiver) = watch::channel(usage);
        let (events, _) = mpsc::unbounded_channel();
        let link = BackendLink {
            clock: workers.clock,
            node: NodeId::new(1),
            node_boot: BootId::new(1),
            subcluster: SubclusterId::new(1),
            backend: BACKEND,
            boot: BOOT,
            net: Net::plaintext(),
            addr: listener.local_addr().unwrap().to_string(),
            name: "b".into(),
            gpus: vec![LinkedGpu {
                gpu: GPU,
                class: GpuClass::FIRST,
                token: TOKEN,
                ordinal: 0,
                counts: Arc::default(),
            }],
            workers: Arc::clone(&workers),
            events,
            usage: usage_receiver,
            dialled: None,
            stuck_links: Arc::default(),
            echo: crate::lead::stuck_links::echo_times(workers.clock.origin(), Duration::from_secs(30)),
        };
        tokio::spawn(link.run());
        let (stream, _) = soon("link", listener.accept()).await.unwrap();
        let (sender, mut receiver) = link_over(Net::plaintext().accept(stream, &[]).await.unwrap());
        for _ in ["hello", "seal"] {
            soon("word to the backend", receiver.receive()).await.unwrap();
        }
        let gpus = vec![SealedGpu { gpu: GPU, promised: TOKEN, free_in: 0, in_flight: vec![] }];
        sender.send(FromBackend::Sealed { boot: BOOT, gpus, finished: vec![], plans: vec![ENDED; 3] }).unwrap();
        let scene = Self { workers, usage, _sender: sender, receiver };
        let RankMessage::Account(account) = scene.next_message().await else { panic!("no word of the plans before") };
        assert_eq!((account.longer.get(), account.predicted.get()), (3 * ENDED.longer, 3 * ENDED.predicted));
        scene
    }

    /// The next message to the rank worker.
    async fn next_message(&self) -> RankMessage {
        soon("word to the rank worker", async {
            loop {
                if let Some(message) = self.workers.rank.pop() {
                    return message;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_hangs_that_is_stuck_for_long_or_never_answers_and_one_late_answer_is_forgiven() {
    let ms = Duration::from_millis;
    let hangs_after = async |movements: &[(u64, Movement)]| {
        let (sender, movement) = watch::channel(Movement::Unknown);
        let movements = movements.to_vec();
        let (begun, tells) = (Instant::now(), async {
            for (at, movement) in movements {
                tokio::time::sleep(ms(at)).await;
                sender.send_replace(movement);
            }
            std::future::pending::<()>().await;
        });
        tokio::select! {
            () = tells => unreachable!(),
            () = hangs(movement, ms(300)) => Some(begun.elapsed().as_millis()),
            () = tokio::time::sleep(ms(3_600_000)) => None,
        }
    };
    use Movement::{Moves, Stuck};
    assert_eq!(hangs_after(&[]).await, Some(5_000));
    assert_eq!(hangs_after(&[(10, Moves)]).await, None);
    assert_eq!(hangs_after(&[(10, Moves), (1_000, Stuck)]).await, Some(1_310));
    assert_eq!(hangs_after(&[(10, Moves), (1_000, Stuck), (200, Moves)]).await, None);
    assert_eq!(hangs_after(&[(10, Moves), (1_000, Stuck), (200, Moves), (50, Stuck)]).await, Some(1_560));
}

#[tokio::test]
async fn what_was_retired_and_is_to_be_held_before_the_link_has_seen_it_is_given_to_nobody() {
    let mut scene = Scene::sealed(Usage::Use).await;
    assert!(matches!(scene.next_message().await, RankMessage::GpuReady { gpu: 0, .. }));
    // Between the two changes the link, a task on the same thread, cannot run.
    scene.usage.send_replace(Usage::Retire);
    scene.usage.send_replace(Usage::Hold);
    let RankMessage::Retire { gpu: 0, round, done, .. } = scene.next_message().await else { panic!("still granted") };
    done.send(round).unwrap();
    // Woken by that, the link runs before this task does again.
    tokio::task::yield_now().await;
    scene.usage.send_replace(Usage::Use);
    assert!(matches!(scene.next_message().await, RankMessage::Resume { gpu: 0, .. }));

    // The backend learns that no more plans come only once that is true.
    scene.usage.send_replace(Usage::Retire);
    let RankMessage::Retire { round, done, .. } = scene.next_message().await else { panic!("still granted") };
    done.send(round).unwrap();
    let word = soon("word to the backend", scene.receiver.receive()).await.unwrap().message;
    assert_eq!(word, ToBackend::Retired { gpus: vec![GPU] });
    // With the link's own sender and the one on its way to the model worker the connection ends.
    drop(scene.usage);
    while scene.workers.models[0].pop().is_some() {}
    assert!(soon("end of the link", scene.receiver.receive()).await.is_err());
}
