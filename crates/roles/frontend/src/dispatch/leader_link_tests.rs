//! A frontend's link between its table and leaders that the test plays.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_net::Net;
use symphony_protocol::dispatch::{EndReason, RequestHeader, ToFrontend, ToLeader};
use symphony_protocol::view::{NodeView, SubclusterView, View};
use symphony_transport::{LinkReceiver, LinkSender, link_over};
use symphony_types::{BootId, DropReason, FailReason, FrontendId, ModelId, NodeId, SubclusterId, Token};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::counts::ledger::Ledger;
use crate::dispatch::leader_link::{LeaderCommand, LeaderLink};
use crate::requests::request_table::{Ending, OpenRequest, Payload, RequestTable};

const SUBCLUSTER: SubclusterId = SubclusterId::new(1);
const MODEL: ModelId = ModelId::new(4);
const FIRST: Token = Token::new(10);
const SECOND: Token = Token::new(20);

struct Scene {
    table: Arc<RequestTable>,
    ledger: Arc<Ledger>,
    commands: mpsc::UnboundedSender<LeaderCommand>,
    view: watch::Sender<Arc<View>>,
    suspended: Arc<AtomicBool>,
    misrouted: mpsc::UnboundedReceiver<u64>,
    ended: CancellationToken,
}

struct Leader {
    sender: LinkSender<ToFrontend>,
    receiver: LinkReceiver<ToLeader>,
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("what is waited for comes within a minute")
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

fn view(leader: &TcpListener, token: Token) -> Arc<View> {
    let node = NodeId::new(1);
    let dispatch_addr = leader.local_addr().unwrap().to_string();
    let node_view = NodeView { boot: Some(BootId::new(1)), up: true, dispatch_addr, ..NodeView::default() };
    let leader = Some((node, BootId::new(1)));
    let subcluster = SubclusterView { name: "s".into(), leader, token, ..SubclusterView::default() };
    Arc::new(View {
        applied_index: token.get(),
        nodes: BTreeMap::from([(node, node_view)]),
        subclusters: BTreeMap::from([(SUBCLUSTER, subcluster)]),
        ..View::default()
    })
}

impl Scene {
    fn new(leader: &TcpListener) -> Self {
        Self::showing(View::clone(&view(leader, FIRST)))
    }

    fn showing(view: View) -> Self {
        let (view, view_receiver) = watch::channel(Arc::new(view));
        let (commands, commands_out) = mpsc::unbounded_channel();
        let (table, ledger, ended) = (Arc::default(), Arc::default(), CancellationToken::new());
        let suspended = Arc::<AtomicBool>::default();
        let (misrouted, misrouted_out) = mpsc::unbounded_channel();
        let link = LeaderLink {
            frontend: FrontendId::new(2),
            boot: BootId::new(3),
            subcluster: SUBCLUSTER,
            net: Net::plaintext(),
            view: view_receiver,
            table: Arc::clone(&table),
            ledger: Arc::clone(&ledger),
            commands: commands_out,
            suspended: Arc::clone(&suspended),
            control_plane_contact: Arc::default(),
            unlinked: None,
            misrouted,
        };
        tokio::spawn(link.run(ended.clone()));
        Self { table, ledger, commands, view, suspended, misrouted: misrouted_out, ended }
    }

    /// Takes a request in and announces it, as the frontend does.
    fn accept(&self) -> (u64, oneshot::Receiver<Ending>) {
        let (waiter, ending) = oneshot::channel();
        let sequence = self.table.insert(OpenRequest {
            model: MODEL,
            subcluster: SUBCLUSTER,
            items: 1,
            weight: symphony_types::RequestValue::ONE,
            payload: Payload::Here(Bytes::new()),
            shared: None,
            deadline: Instant::now() + Duration::from_secs(10),
            withheld: false,
            announced: Token::default(),
            attempt: 0,
            panics: 0,
            read: false,
            is_stage: false,
            hop: None,
            waiter,
        });
        self.commands.send(LeaderCommand::Announce(sequence)).unwrap();
        (sequence, ending)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

impl Leader {
    /// The next link to `listener`, welcomed.
    async fn welcomes(listener: &TcpListener, token: Token) -> Self {
        let leader = Self::hears(listener, token).await;
        leader.sender.send(ToFrontend::Welcome { token }).unwrap();
        leader
    }

    /// The next link to `listener`, after its hello.
    async fn hears(listener: &TcpListener, token: Token) -> Self {
        let (stream, _) = soon(listener.accept()).await.unwrap();
        let (sender, receiver) = link_over(Net::plaintext().accept(stream, &[]).await.unwrap());
        let mut leader = Self { sender, receiver };
        let hello = leader.next().await;
        assert!(matches!(hello, ToLeader::Hello { token: named, .. } if named == token), "{hello:?}");
        leader
    }

    async fn next(&mut self) -> ToLeader {
        soon(self.receiver.receive()).await.unwrap().message
    }

    /// Sequence number and attempt of each request that is announced next, and whether as new.
    async fn announced(&mut self, under: Token) -> (bool, Vec<(u64, u32)>) {
        let of = |requests: Vec<RequestHeader>| requests.iter().map(|r| (r.sequence, r.attempt)).collect();
        match self.next().await {
            ToLeader::Announce { token, requests } if token == under => (true, of(requests)),
            ToLeader::Redrive { token, requests, last: true } if token == under => (false, of(requests)),
            other => panic!("{other:?} instead of requests"),
        }
    }

    async fn closed(&mut self) {
        while soon(self.receiver.receive()).await.is_ok() {}
    }
}

#[tokio::test]
async fn each_request_is_announced_once_to_each_leader() {
    let (first, second) = (listener().await, listener().await);
    let scene = Scene::new(&first);
    // Accepted while there is no link: the redrive has it, and its word does not announce it a second time.
    let (waiting, _waiting_ending) = scene.accept();
    let mut leader = Leader::welcomes(&first, FIRST).await;
    assert_eq!(leader.announced(FIRST).await, (false, vec![(waiting, 1)]));
    let (new, _new_ending) = scene.accept();
    assert_eq!(leader.announced(FIRST).await, (true, vec![(new, 1)]));
    assert_eq!(scene.ledger.counts().redriven, 0, "nobody has been told twice");

    // Another leader: it hears of both, and the old one is let go.
    scene.view.send_replace(view(&second, SECOND));
    leader.closed().await;
    let mut leader = Leader::welcomes(&second, SECOND).await;
    assert_eq!(leader.announced(SECOND).await, (false, vec![(waiting, 2), (new, 2)]));
    let (newest, _newest_ending) = scene.accept();
    assert_eq!(leader.announced(SECOND).await, (true, vec![(newest, 1)]), "nothing is announced twice");
    assert_eq!(scene.ledger.counts().redriven, 2);
}

#[tokio::test]
async fn a_link_that_breaks_is_made_again_and_everything_announced_again() {
    let first = listener().await;
    let scene = Scene::new(&first);
    let mut leader = Leader::welcomes(&first, FIRST).await;
    let (sequence, _ending) = scene.accept();
    assert_eq!(leader.announced(FIRST).await.1, [(sequence, 1)]);
    drop(leader);
    let mut leader = Leader::welcomes(&first, FIRST).await;
    assert_eq!(leader.announced(FIRST).await, (false, vec![(sequence, 2)]));
}

#[tokio::test]
async fn a_node_that_does_not_know_yet_that_it_leads_is_asked_again() {
    let first = listener().await;
    let scene = Scene::new(&first);
    let (sequence, _ending) = scene.accept();
    for _ in 0..3 {
        let mut refuses = Leader::hears(&first, FIRST).await;
        refuses.sender.send(ToFrontend::NotLeader { token: Token::new(9) }).unwrap();
        refuses.closed().await;
    }
    let mut leader = Leader::welcomes(&first, FIRST).await;
    assert_eq!(leader.announced(FIRST).await, (false, vec![(sequence, 1)]));
}

#[tokio::test]
async fn a_leader_that_lost_the_control_group_is_known_as_suspended_until_one_welcomes() {
    let first = listener().await;
    let scene = Scene::new(&first);
    let (sequence, _ending) = scene.accept();
    let mut stopped = Leader::hears(&first, FIRST).await;
    stopped.sender.send(ToFrontend::Suspended).unwrap();
    stopped.closed().await;
    assert!(scene.suspended.load(Ordering::Acquire));
    let mut leader = Leader::welcomes(&first, FIRST).await;
    assert_eq!(leader.announced(FIRST).await, (false, vec![(sequence, 1)]), "what waited is announced");
    assert!(!scene.suspended.load(Ordering::Acquire));
}

/// Its leader is gone for good.
#[tokio::test]
async fn who_waits_for_a_leader_that_is_gone_hears_so_once_no_other_replica_has_the_control_group() {
    let (gone, other) = (listener().await, listener().await);
    let mut first = View::clone(&view(&gone, FIRST));
    let dispatch_addr = other.local_addr().unwrap().to_string();
    let node = NodeView { boot: Some(BootId::new(2)), up: true, dispatch_addr, ..NodeView::default() };
    first.nodes.insert(NodeId::new(2), node);
    let scene = Scene::showing(first);
    drop(gone);
    let (_sequence, _ending) = scene.accept();
    let answers = async |says: ToFrontend| {
        let link = Leader::hears(&other, FIRST).await;
        link.sender.send(says).unwrap();
        link
    };
    let mut links = vec![answers(ToFrontend::NotLeader { token: FIRST }).await];
    // It is asked again although nothing is new.
    links.push(answers(ToFrontend::NotLeader { token: FIRST }).await);
    assert!(!scene.suspended.load(Ordering::Acquire), "another leader is named in a moment");
    links.push(answers(ToFrontend::Suspended).await);
    soon(async {
        while !scene.suspended.load(Ordering::Acquire) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    // A leader is named after all.
    scene.view.send_replace(view(&other, SECOND));
    let mut leader = Leader::welcomes(&other, SECOND).await;
    assert!(!leader.announced(SECOND).await.1.is_empty());
    assert!(!scene.suspended.load(Ordering::Acquire));
}

#[tokio::test]
async fn who_refuses_is_asked_more_and_more_rarely_until_there_is_news() {
    let first = listener().await;
    let scene = Scene::new(&first);
    let refused = async |token| {
        let mut stopped = Leader::hears(&first, token).await;
        stopped.sender.send(ToFrontend::Suspended).unwrap();
        stopped.closed().await;
    };
    let begun = Instant::now();
    for _ in 0..8 {
        refused(FIRST).await;
    }
    // 5 + 10 + 20 + 40 + 80 + 100 + 100 ms between them.
    assert!(begun.elapsed() >= Duration::from_millis(355), "{:?}", begun.elapsed());
    // The pause is 100 ms by now; with news for each attempt nobody waits for it. A busy machine makes some slow, a
    // pause all.
    let mut shortest = Duration::MAX;
    for token in 11..21 {
        let news = Instant::now();
        scene.view.send_replace(view(&first, Token::new(token)));
        refused(Token::new(token)).await;
        shortest = shortest.min(news.elapsed());
    }
    assert!(shortest < Duration::from_millis(90), "{shortest:?}");
}

#[tokio::test]
async fn a_leader_that_hangs_is_left_as_soon_as_there_is_another() {
    let (first, second) = (listener().await, listener().await);
    let scene = Scene::new(&first);
    // It accepts, and never welcomes.
    let mut hang = vec![Leader::hears(&first, FIRST).await];
    // Something waits; else there would be no hurry.
    let _waits = scene.accept();
    // A busy machine makes some of these slow, a leader that is waited for makes all of them so.
    let mut shortest = Duration::MAX;
    for (token, next) in (SECOND.get()..SECOND.get() + 5).map(Token::new).zip([&second, &first].into_iter().cycle()) {
        let named = Instant::now();
        scene.view.send_replace(view(next, token));
        hang.push(Leader::hears(next, token).await);
        shortest = shortest.min(named.elapsed());
    }
    assert!(shortest < Duration::from_millis(200), "it was waited for: {shortest:?}");
}

#[tokio::test]
async fn outcomes_and_withdrawals_find_their_requests() {
    let first = listener().await;
    let scene = Scene::new(&first);
    let mut leader = Leader::welcomes(&first, FIRST).await;
    let (dropped, ending) = scene.accept();
    let (withdrawn, _withdrawn_ending) = scene.accept();
    let mut announced = leader.announced(FIRST).await.1;
    if announced.len() == 1 {
        announced.extend(leader.announced(FIRST).await.1);
    }
    assert_eq!(announced, [(dropped, 1), (withdrawn, 1)]);

    let reason = EndReason::Dropped(DropReason::ProtectBatch);
    // Twice, and for a request that never was: the second time and the stranger change nothing.
    leader
        .sender
        .send(ToFrontend::Ended { requests: vec![(dropped, reason), (dropped, reason), (77, reason)] })
        .unwrap();
    assert!(matches!(soon(ending).await, Ok(Ending::NoResult(ended)) if ended == reason));
    assert_eq!(scene.table.len(), 1);

    scene.table.remove(withdrawn).unwrap();
    scene.commands.send(LeaderCommand::Cancel(withdrawn, MODEL.get())).unwrap();
    assert_eq!(leader.next().await, ToLeader::Cancel { requests: vec![(withdrawn, MODEL.get())] });
}

#[tokio::test]
async fn what_the_leader_does_not_serve_is_rerouted_and_not_ended() {
    let listener = listener().await;
    let mut scene = Scene::new(&listener);
    let (sequence, mut ending) = scene.accept();
    let leader = Leader::welcomes(&listener, FIRST).await;
    let requests = vec![(sequence, EndReason::Failed(FailReason::ModelNotReady))];
    leader.sender.send(ToFrontend::Ended { requests }).unwrap();
    assert_eq!(soon(scene.misrouted.recv()).await, Some(sequence));
    assert!(ending.try_recv().is_err(), "its model may be served elsewhere");
}

#[tokio::test]
async fn what_two_leaders_in_turn_panicked_with_fails_and_no_third_one_hears_of_it() {
    let (first, second) = (listener().await, listener().await);
    let scene = Scene::new(&first);
    let (poison, ending) = scene.accept();
    let mut leader = Leader::welcomes(&first, FIRST).await;
    assert_eq!(leader.announced(FIRST).await, (false, vec![(poison, 1)]));
    leader.sender.send(ToFrontend::Panicked).unwrap();
    leader.sender.close();
    // It is over, and no other replica leads: the same one is asked, and refuses.
    drop(Leader::hears(&first, FIRST).await);
    assert_eq!(scene.table.len(), 1, "it may have been anything");

    scene.view.send_replace(view(&second, SECOND));
    let mut leader = Leader::welcomes(&second, SECOND).await;
    assert_eq!(leader.announced(SECOND).await, (false, vec![(poison, 2)]));
    leader.sender.send(ToFrontend::Panicked).unwrap();
    leader.sender.close();
    let reason = EndReason::Failed(FailReason::SchedulerPanicked);
    assert!(matches!(soon(ending).await, Ok(Ending::NoResult(ended)) if ended == reason));

    let (other, _other_ending) = scene.accept();
    scene.view.send_replace(view(&first, Token::new(30)));
    let mut leader = Leader::welcomes(&first, Token::new(30)).await;
    assert_eq!(leader.announced(Token::new(30)).await, (false, vec![(other, 1)]));
}
