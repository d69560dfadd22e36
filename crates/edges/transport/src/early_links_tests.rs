use symphony_protocol::view::{BackendView, FrontendView};
use symphony_types::{BootId, FrontendId};

use super::*;

const BOOT: BootId = BootId::new(4);
const MS: Duration = Duration::from_millis(1);

fn frontend(number: u32) -> FrontendBoot {
    (FrontendId::new(number), BOOT)
}

fn view_of(frontends: impl IntoIterator<Item = (u32, FrontendView)>) -> View {
    let frontends = frontends.into_iter().map(|(id, frontend)| (FrontendId::new(id), frontend)).collect();
    View { frontends, ..View::default() }
}

fn frontends(numbers: impl IntoIterator<Item = u32>) -> View {
    view_of(numbers.into_iter().map(|number| (number, FrontendView { boot: BOOT, ..FrontendView::default() })))
}

/// Decisions of backend 5 at given moments.
struct Scene {
    tries: Tries,
    start: Instant,
    open: BTreeSet<FrontendBoot>,
}

impl Scene {
    fn new() -> Self {
        Self { tries: Tries::new(BackendId::new(5)), start: Instant::now(), open: BTreeSet::new() }
    }

    fn due(&mut self, at: Duration, view: &View) -> Vec<u32> {
        let is_open = |frontend| Some(self.open.contains(&frontend));
        let due = self.tries.due(self.start + at, view, is_open, DIALS_AT_ONCE);
        due.into_iter().map(|(frontend, _)| frontend.get()).collect()
    }

    fn ended(&mut self, at: Duration, number: u32, linked: bool) {
        if linked {
            self.open.insert(frontend(number));
        }
        self.tries.ended(self.start + at, frontend(number), linked);
    }
}

#[test]
fn frontends_that_are_there_at_the_start_are_dialled_at_once_and_newcomers_in_turn() {
    let mut scene = Scene::new();
    assert_eq!(scene.due(Duration::ZERO, &frontends([1, 2])), [1, 2]);
    assert_eq!(scene.due(MS, &frontends([1, 2, 3])), [0; 0], "two are under way, and it is not this backend's turn");
    assert_eq!(scene.tries.next(), Some(scene.start + MS + 5 * MS));
    assert_eq!(scene.due(6 * MS, &frontends([1, 2, 3])), [3]);
    for number in [1, 2, 3] {
        assert!(scene.tries.missing() > 0);
        scene.ended(7 * MS, number, true);
    }
    assert_eq!(scene.tries.missing(), 0);
    assert_eq!(scene.due(8 * MS, &frontends([1, 2, 3])), [0; 0]);
}

#[test]
fn who_cannot_be_reached_is_tried_ever_more_rarely_and_never_given_up() {
    let mut scene = Scene::new();
    let (view, mut now, mut waits) = (frontends([1]), Duration::ZERO, Vec::new());
    for _ in 0..40 {
        assert_eq!(scene.due(now, &view), [1]);
        scene.ended(now, 1, false);
        let next = scene.tries.next().unwrap() - scene.start;
        assert_eq!(scene.due(next - MS, &view), [0; 0]);
        waits.push(next - now);
        now = next;
    }
    assert_eq!(waits[..3], [AGAIN_AFTER, 2 * AGAIN_AFTER, 4 * AGAIN_AFTER]);
    assert_eq!(waits[39], AGAIN_AFTER_MAX);
}

/// A backend that is not in the view any more, say: it would look again and again without a pause.
#[test]
fn who_is_due_and_may_not_be_dialled_keeps_nobody_awake() {
    let mut scene = Scene::new();
    assert_eq!(scene.due(Duration::ZERO, &frontends([1, 2])), [1, 2]);
    scene.ended(Duration::ZERO, 1, false);
    let (now, due) = (scene.start + 2 * AGAIN_AFTER, scene.start + AGAIN_AFTER);
    assert_eq!(scene.tries.next_poll(now, true, None), due);
    assert_eq!(scene.tries.next_poll(now, false, None), now + POLL_EVERY);
    assert_eq!(scene.tries.next_poll(now, false, Some(now + MS)), now + MS);
}

/// A frontend that lets a backend in and shuts it out again, for what it requires of links, is not dialled every
/// second.
#[test]
fn a_link_that_ends_is_made_again_and_later_where_it_never_lasts() {
    let mut scene = Scene::new();
    let view = frontends([1]);
    assert_eq!(scene.due(Duration::ZERO, &view), [1]);
    scene.ended(Duration::ZERO, 1, true);
    let long = AGAIN_AFTER_MAX + MS;
    assert_eq!(scene.due(long, &view), [0; 0]);
    scene.open.clear();
    assert_eq!(scene.due(long, &view), [1], "it has lasted");
    let mut now = long;
    let mut waits = Vec::new();
    for _ in 0..3 {
        scene.ended(now, 1, true);
        scene.open.clear();
        assert_eq!(scene.due(now, &view), [0; 0]);
        let next = scene.tries.next().unwrap() - scene.start;
        waits.push(next - now);
        now = next;
        assert_eq!(scene.due(now, &view), [1]);
    }
    assert_eq!(waits, [AGAIN_AFTER, 2 * AGAIN_AFTER, 4 * AGAIN_AFTER]);
}

#[test]
fn a_link_that_a_read_has_made_is_not_made_twice_and_one_in_hand_is_left_alone() {
    let mut scene = Scene::new();
    let view = frontends([1]);
    scene.open.insert(frontend(1));
    assert_eq!(scene.due(Duration::ZERO, &view), [0; 0]);
    assert_eq!(scene.tries.missing(), 0);
    let due = scene.tries.due(scene.start + MS, &view, |_| None, DIALS_AT_ONCE);
    assert!(due.is_empty() && scene.tries.missing() == 0);
}

#[test]
fn who_has_gone_is_forgotten_and_another_boot_is_somebody_else() {
    let mut scene = Scene::new();
    assert_eq!(scene.due(Duration::ZERO, &frontends([1, 2])), [1, 2]);
    let next_boot = FrontendView { boot: BootId::new(5), ..FrontendView::default() };
    assert_eq!(scene.due(MS, &view_of([(1, next_boot.clone())])), [0; 0]);
    scene.ended(2 * MS, 1, true);
    assert_eq!(scene.tries.missing(), 1, "that was the former boot");
    let left = FrontendView { leaving: true, drained: true, ..next_boot.clone() };
    let silent = FrontendView { silent: Some(Nanos::from_millis(1)), ..next_boot.clone() };
    let returned = FrontendView { silent: Some(Nanos::ZERO), ..next_boot };
    assert_eq!(scene.due(9 * MS, &view_of([(1, left), (2, silent), (3, returned.clone())])), [0; 0]);
    assert_eq!(scene.due(99 * MS, &view_of([(3, returned)])), [3]);
}

#[test]
fn so_many_are_linked_early_and_each_backend_begins_with_another_one() {
    let many = frontends(1..=EARLY_LINKS_MAX as u32 + 10);
    let of = |backend| wanted(&many, BackendId::new(backend));
    assert_eq!((of(0).len(), of(7).len()), (EARLY_LINKS_MAX, EARLY_LINKS_MAX));
    assert!(of(0).contains(&frontend(1)) && !of(7).contains(&frontend(1)));
    assert_eq!(wanted(&frontends([1, 2]), BackendId::new(7)).len(), 2);
    assert!(wanted(&frontends([]), BackendId::new(7)).is_empty());
    let mut scene = Scene::new();
    let first = scene.due(Duration::ZERO, &many);
    assert_eq!(
        (first.len(), scene.due(Duration::ZERO, &many).len()),
        (DIALS_AT_ONCE, DIALS_AT_ONCE),
        "as many as were asked for"
    );
}

/// A view of frontends at these addresses, numbered from 1, that names the backend.
fn named(addrs: &[std::net::SocketAddr]) -> Arc<View> {
    let frontend = |addr: &std::net::SocketAddr| FrontendView {
        name: addr.to_string(),
        boot: BOOT,
        data_addr: addr.to_string(),
        ..FrontendView::default()
    };
    let backend = BackendView { boot: BootId::new(2), ..BackendView::default() };
    let backends = [(BackendId::new(1), backend)].into();
    Arc::new(View { backends, ..view_of((1..).zip(addrs.iter().map(frontend))) })
}

mod over_tcp {
    use symphony_config::PayloadTransportKind;
    use symphony_net::Net;
    use symphony_protocol::data::{FromDataServer, ToDataServer};
    use tokio::net::TcpListener;

    use super::*;
    use crate::{LinkReceiver, LinkSender, PayloadTransport as _, link_over};

    const SOON: Duration = Duration::from_secs(60);

    /// A backend that makes its links early, and what tells it of frontends.
    fn backend(seen: Arc<View>) -> (LinkedPayloads, watch::Sender<Arc<View>>, watch::Receiver<bool>) {
        let (view_sender, view) = watch::channel(seen);
        let config = symphony_config::PayloadsConfig {
            transport: PayloadTransportKind::Tcp,
            required: false,
            pool_mb: 1,
            rdma_device: String::new(),
        };
        let transport = LinkedPayloads::new(BackendId::new(1), BootId::new(2), Net::plaintext(), config, view);
        let links = transport.early_links();
        let settled = links.settled();
        tokio::spawn(links.run());
        (transport, view_sender, settled)
    }

    async fn listener() -> (TcpListener, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        (listener, addr)
    }

    /// The next backend that dials, once it has said hello.
    async fn greeted(frontend: &TcpListener) -> (LinkSender<FromDataServer>, LinkReceiver<ToDataServer>) {
        let (stream, _) = tokio::time::timeout(SOON, frontend.accept()).await.expect("it dials").unwrap();
        let (sender, mut receiver) = link_over(Net::plaintext().accept(stream, &[]).await.unwrap());
        assert!(matches!(receiver.receive().await.unwrap().message, ToDataServer::Hello { .. }));
        (sender, receiver)
    }

    fn welcome((sender, receiver): (LinkSender<FromDataServer>, LinkReceiver<ToDataServer>)) -> impl Sized {
        sender.send(FromDataServer::Welcome { boot: BOOT, sharing: None, rdma: None }).unwrap();
        (sender, receiver)
    }

    async fn wait_until_linked(transport: &LinkedPayloads, number: u32) {
        let linked = async {
            while transport.is_linked(frontend(number)) != Some(true) {
                tokio::time::sleep(MS).await;
            }
        };
        tokio::time::timeout(SOON, linked).await.unwrap_or_else(|_| panic!("no link to frontend {number}"));
    }

    #[tokio::test]
    async fn nobody_is_dialled_before_the_view_names_the_backend_and_then_all_are_and_it_is_told() {
        let ((first, first_addr), (second, second_addr)) = (listener().await, listener().await);
        let addrs = [first_addr, second_addr];
        let unnamed = View { backends: Default::default(), ..View::clone(&named(&addrs)) };
        let (transport, view_sender, mut settled) = backend(Arc::new(unnamed));
        let early = tokio::time::timeout(100 * MS, first.accept()).await;
        assert!(early.is_err(), "it is not welcome yet");
        view_sender.send_replace(named(&addrs));
        let links = (greeted(&first).await, greeted(&second).await);
        assert!(!*settled.borrow_and_update(), "neither has welcomed it");
        let _links = (welcome(links.0), welcome(links.1));
        settled.changed().await.unwrap();
        assert_eq!((transport.is_linked(frontend(1)), transport.is_linked(frontend(2))), (Some(true), Some(true)));
    }

    #[tokio::test]
    async fn a_frontend_that_comes_or_has_shut_a_link_is_dialled_without_a_read() {
        let (first, first_addr) = listener().await;
        let (transport, view_sender, _settled) = backend(named(&[first_addr]));
        let shut = welcome(greeted(&first).await);
        wait_until_linked(&transport, 1).await;
        let (second, second_addr) = listener().await;
        view_sender.send_replace(named(&[first_addr, second_addr]));
        let _second = welcome(greeted(&second).await);
        wait_until_linked(&transport, 2).await;
        drop(shut);
        let _again = welcome(greeted(&first).await);
        wait_until_linked(&transport, 1).await;
    }

    #[tokio::test]
    async fn a_backend_is_not_held_back_for_ever_by_a_frontend_that_does_not_answer() {
        let (silent, addr) = listener().await;
        let begun = Instant::now();
        let (transport, _told, mut settled) = backend(named(&[addr]));
        tokio::time::timeout(SOON, settled.wait_for(|settled| *settled)).await.unwrap().unwrap();
        assert!(begun.elapsed() >= SETTLED_WITHIN, "it was waited for");
        assert_ne!(transport.is_linked(frontend(1)), Some(true));
        drop(silent);
    }

    /// With the clock of timers stopped time passes only where everybody sleeps: a backend that does not would keep
    /// this test for ever.
    #[tokio::test]
    async fn a_backend_that_is_not_named_any_more_sleeps() {
        let (silent, addr) = listener().await;
        let seen = named(&[addr]);
        let unnamed = View { backends: Default::default(), ..View::clone(&seen) };
        let (_transport, view_sender, settled) = backend(seen);
        let _silent = greeted(&silent).await;
        view_sender.send_replace(Arc::new(unnamed));
        tokio::time::pause();
        tokio::time::sleep(10 * SETTLED_WITHIN).await;
        assert!(!*settled.borrow(), "it has nothing to hold");
    }

    #[tokio::test]
    async fn a_transport_that_has_finished_dials_nobody() {
        let (frontend, addr) = listener().await;
        let (transport, view_sender, _settled) = backend(named(&[]));
        transport.finish().await;
        view_sender.send_replace(named(&[addr]));
        let dialled = tokio::time::timeout(100 * MS, frontend.accept()).await;
        assert!(dialled.is_err());
    }
}
