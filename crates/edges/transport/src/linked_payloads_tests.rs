use symphony_config::PayloadTransportKind;
use symphony_protocol::data::{BatchRun, RequestResult};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::*;
use crate::sharing::tests as sharing;
use crate::{LinkReceiver, LinkSender, link_over};

const BOOT: BootId = BootId::new(4);
const TCP: PayloadsConfig =
    PayloadsConfig { transport: PayloadTransportKind::Tcp, required: false, pool_mb: 1, rdma_device: String::new() };

/// A transport that knows one frontend per address, numbered from 1, and the sender of its view.
fn transport(addrs: &[std::net::SocketAddr]) -> (LinkedPayloads, watch::Sender<Arc<View>>) {
    let frontend = |addr: &std::net::SocketAddr| FrontendView {
        name: addr.to_string(),
        boot: BOOT,
        data_addr: addr.to_string(),
        ..FrontendView::default()
    };
    let frontends = (1..).map(FrontendId::new).zip(addrs.iter().map(frontend)).collect();
    let (sender, view) = watch::channel(Arc::new(View { frontends, ..View::default() }));
    (LinkedPayloads::new(BackendId::new(1), BootId::new(2), Net::plaintext(), TCP, view), sender)
}

async fn listener() -> (TcpListener, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// The frontend's side of a link, once it has welcomed.
async fn welcome(stream: TcpStream) -> (LinkSender<FromDataServer>, LinkReceiver<ToDataServer>) {
    let connection = Net::plaintext().accept(stream, &[]).await.unwrap();
    let (sender, mut receiver) = link_over::<FromDataServer, ToDataServer>(connection);
    assert!(matches!(receiver.receive().await.unwrap().message, ToDataServer::Hello { frontend_boot: BOOT, .. }));
    sender.send(FromDataServer::Welcome { boot: BOOT, sharing: None, rdma: None }).unwrap();
    (sender, receiver)
}

/// Answers every read with `payload` for each request; ends with the link.
async fn own(stream: TcpStream, payload: Bytes) {
    own_and_wait(stream, payload, 0).await;
}

/// As [`own`], and says each time that it has waited this many nanoseconds for the inputs to be made.
async fn own_and_wait(stream: TcpStream, payload: Bytes, waited: u64) {
    let (sender, mut receiver) = welcome(stream).await;
    while let Ok(frame) = receiver.receive().await {
        if let ToDataServer::Read { read, sequences } = frame.message {
            let lengths = vec![Some(payload.len() as u32); sequences.len()];
            sender
                .send_with(FromDataServer::Payloads { read, lengths, waited }, vec![payload.clone(); sequences.len()])
                .unwrap();
        }
    }
}

#[tokio::test]
async fn a_frontend_that_does_not_answer_the_connection_holds_up_nobody_else() {
    // A full backlog: the system drops further attempts to connect without a word.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let silent = socket.listen(0).unwrap();
    let silent_addr = silent.local_addr().unwrap();
    let mut fillers = Vec::new();
    while let Ok(filler) = tokio::time::timeout(Duration::from_millis(50), TcpStream::connect(silent_addr)).await {
        fillers.push(filler);
    }
    let (live, live_addr) = listener().await;
    tokio::spawn(async move { own(live.accept().await.unwrap().0, Bytes::from_static(b"input")).await });

    let (transport, _view) = transport(&[silent_addr, live_addr]);
    let waits = transport.clone();
    let mut waits = Box::pin(waits.read(FrontendId::new(1), BOOT, vec![1]));
    assert!(futures::poll!(&mut waits).is_pending(), "it is connecting");
    let payloads = transport.read(FrontendId::new(2), BOOT, vec![1]).await;
    assert_eq!(payloads, [Some(Bytes::from_static(b"input"))]);
    assert!(futures::poll!(&mut waits).is_pending(), "the other one did not wait for it");
    assert_eq!(waits.await, [None]);
}

#[tokio::test]
async fn a_link_that_its_frontend_closed_is_opened_again_and_not_at_once() {
    let (frontend, addr) = listener().await;
    let (transport, _view) = transport(&[addr]);
    let read = || tokio::time::timeout(READ_TIMEOUT / 2, transport.read(FrontendId::new(1), BOOT, vec![1]));

    let begun = Instant::now();
    let (first, stream) = tokio::join!(read(), async { drop(frontend.accept().await.unwrap()) });
    assert_eq!((first.unwrap(), stream), (vec![None], ()));
    let dialled = Arc::new(AtomicU64::new(0));
    let dials = Arc::clone(&dialled);
    tokio::spawn(async move {
        let (stream, _) = frontend.accept().await.unwrap();
        dials.fetch_add(1, Ordering::Relaxed);
        own(stream, Bytes::from_static(b"input")).await;
    });
    while read().await.unwrap() == [None] {
        assert_eq!(dialled.load(Ordering::Relaxed), 0);
        tokio::time::sleep(OPENED_AGAIN_AFTER / 20).await;
    }
    assert!(begun.elapsed() >= OPENED_AGAIN_AFTER);
    assert_eq!(read().await.unwrap(), [Some(Bytes::from_static(b"input"))]);
}

/// Inputs that are being made are of some models; the delay is planned for all.
#[tokio::test]
async fn what_a_frontend_waits_for_itself_is_no_delay_of_the_way() {
    for (waited, expected) in [(0, false), (u64::MAX, true)] {
        let (frontend, addr) = listener().await;
        let (transport, _view) = transport(&[addr]);
        let input = Bytes::from_static(b"input");
        tokio::spawn(async move { own_and_wait(frontend.accept().await.unwrap().0, input, waited).await });
        while transport.delay().is_none() {
            assert_eq!(transport.read(FrontendId::new(1), BOOT, vec![1]).await, [Some("input".into())]);
        }
        let nothing = PayloadDelay { fixed: Nanos::ZERO, per_mib: Nanos::ZERO };
        assert_eq!(transport.delay() == Some(nothing), expected, "{:?}", transport.delay());
        let times = transport.readings().reads[ReadPath::Tcp as usize].times;
        assert_eq!(times.max() == Nanos::ZERO, expected, "{times:?}");
    }
}

#[tokio::test]
async fn results_are_sent_once_their_frontend_has_welcomed() {
    let (frontend, addr) = listener().await;
    let (transport, _view) = transport(&[addr]);
    let deliver = || {
        let result = RequestResult {
            sequence: 1,
            outcome: ResultBytes::Answer(6),
            batch: 1,
            execution: 1,
            run: BatchRun::default(),
        };
        let bytes = Bytes::from_static(b"output");
        transport.deliver(FrontendId::new(1), BOOT, vec![ResultToFrontend { result, bytes }]);
    };
    // A frontend that has not heard of this backend yet waits before it welcomes, or hangs up.
    deliver();
    let connection = Net::plaintext().accept(frontend.accept().await.unwrap().0, &[]).await.unwrap();
    let (sender, mut receiver) = link_over::<FromDataServer, ToDataServer>(connection);
    assert!(matches!(receiver.receive().await.unwrap().message, ToDataServer::Hello { .. }));
    let early = tokio::time::timeout(Duration::from_millis(100), receiver.receive()).await;
    assert!(early.is_err(), "before the welcome came {early:?}");
    sender.send(FromDataServer::Welcome { boot: BOOT, sharing: None, rdma: None }).unwrap();
    let frame = receiver.receive().await.unwrap();
    assert!(matches!(frame.message, ToDataServer::Results { results } if results.len() == 1));
    assert_eq!(frame.tail, "output");
}

#[tokio::test]
async fn a_frontend_in_another_boot_is_no_frontend() {
    let (frontend, addr) = listener().await;
    let (transport, _view) = transport(&[addr]);
    let answers = async {
        let connection = Net::plaintext().accept(frontend.accept().await.unwrap().0, &[]).await.unwrap();
        let (sender, receiver) = link_over::<FromDataServer, ToDataServer>(connection);
        sender.send(FromDataServer::Welcome { boot: BootId::new(5), sharing: None, rdma: None }).unwrap();
        (sender, receiver)
    };
    let (_link, payloads) = tokio::join!(answers, transport.read(FrontendId::new(1), BOOT, vec![1]));
    assert_eq!(payloads, [None]);
}

#[tokio::test]
async fn a_read_that_is_given_up_is_forgotten() {
    let (frontend, addr) = listener().await;
    let (transport, _view) = transport(&[addr]);
    let accepted = async { welcome(frontend.accept().await.unwrap().0).await };
    let (_silent, link) = tokio::join!(accepted, transport.link((FrontendId::new(1), BOOT)));
    let link = link.unwrap();
    {
        let mut read = Box::pin(transport.read(FrontendId::new(1), BOOT, vec![1]));
        assert!(futures::poll!(&mut read).is_pending());
        assert_eq!(link.session().as_ref().unwrap().waiting.len(), 1);
    }
    assert_eq!(link.session().as_ref().unwrap().waiting.len(), 0);
}

#[tokio::test]
async fn more_than_fits_into_a_frame_arrives_in_several() {
    let (frontend, addr) = listener().await;
    let payload = Bytes::from(vec![7; 2 << 20]);
    let (transport, _view) = transport(&[addr]);
    let answers = payload.clone();
    tokio::spawn(async move { own(frontend.accept().await.unwrap().0, answers).await });
    let payloads = transport.read(FrontendId::new(1), BOOT, (0..40).collect()).await;
    assert_eq!(payloads, vec![Some(payload.clone()); 40]);
}

#[tokio::test]
async fn a_former_boot_of_a_frontend_is_not_read_from() {
    let (_frontend, addr) = listener().await;
    let (transport, _view) = transport(&[addr]);
    assert_eq!(transport.read(FrontendId::new(1), BootId::new(3), vec![1, 2]).await, [None, None]);
}

/// Asks so often that a test need not wait, of a machine that may stand still for a while.
const QUICK: Duration = Duration::from_millis(200);

/// A host that has lost its power says nothing, and TCP would wait for a quarter of an hour.
#[tokio::test]
async fn a_link_whose_frontend_does_not_answer_any_more_is_opened_again() {
    // One that answers for a while, and one that never has.
    for answers in [true, false] {
        let (frontend, addr) = listener().await;
        let (mut transport, _view) = transport(&[addr]);
        let (ask_again_after, late) = (QUICK / 10, QUICK / 20);
        transport.echo =
            EchoTimes { ask_again_after, ask_again_max: QUICK, stuck_after: QUICK, late, ..transport.echo };
        let accepted = async { welcome(frontend.accept().await.unwrap().0).await };
        let ((_sender, mut receiver), link) = tokio::join!(accepted, transport.link((FrontendId::new(1), BOOT)));
        let link = link.unwrap();
        if answers {
            let _ = tokio::time::timeout(2 * QUICK, receiver.receive()).await;
            assert!(link.is_open(), "questions were answered");
        }
        let ended = async {
            while link.is_open() {
                tokio::time::sleep(QUICK / 10).await;
            }
        };
        tokio::time::timeout(60 * 5 * QUICK, ended).await.expect("nobody answers");
        let input = Bytes::from_static(b"input");
        tokio::spawn(async move { own(frontend.accept().await.unwrap().0, input).await });
        assert_eq!(transport.read(FrontendId::new(1), BOOT, vec![1]).await, [Some("input".into())]);
    }
}

const SHARED: PayloadsConfig = PayloadsConfig {
    transport: PayloadTransportKind::SharedMemory,
    required: false,
    pool_mb: 1,
    rdma_device: String::new(),
};

/// The frontend's side of a link that welcomes with that offer, and whether the backend wanted one.
async fn offers(
    frontend: &TcpListener,
    sharing: Option<SharingOffer>,
) -> (LinkSender<FromDataServer>, LinkReceiver<ToDataServer>, bool) {
    let connection = Net::plaintext().accept(frontend.accept().await.unwrap().0, &[]).await.unwrap();
    let (sender, mut receiver) = link_over::<FromDataServer, ToDataServer>(connection);
    let ToDataServer::Hello { shares, .. } = receiver.receive().await.unwrap().message else {
        panic!("hello comes first")
    };
    sender.send(FromDataServer::Welcome { boot: BOOT, sharing, rdma: None }).unwrap();
    (sender, receiver, shares)
}

#[tokio::test]
async fn an_input_that_is_damaged_is_asked_for_over_the_link() {
    let name = format!("symphony-test-{:032x}", rand::random::<u128>());
    let offer = sharing::offer(&name);
    tokio::spawn(async move { sharing::hands_out(&name, sharing::damaged(1)).await });
    let (frontend, addr) = listener().await;
    let (mut transport, _view) = transport(&[addr]);
    transport.config = SHARED;
    let answers = async {
        let (sender, mut receiver, shares) = offers(&frontend, Some(offer)).await;
        assert!(shares);
        assert_eq!(receiver.receive().await.unwrap().message, ToDataServer::Joined { shares: true });
        let ToDataServer::Read { read, sequences } = receiver.receive().await.unwrap().message else {
            panic!("a read")
        };
        assert_eq!(sequences, [1]);
        let answer = FromDataServer::Payloads { read, lengths: vec![Some(5)], waited: 0 };
        sender.send_with(answer, vec![Bytes::from_static(b"right")]).unwrap();
        (sender, receiver)
    };
    let (_link, payloads) = tokio::join!(answers, transport.read(FrontendId::new(1), BOOT, vec![1]));
    assert_eq!(payloads, [Some(Bytes::from_static(b"right"))]);
    let readings = transport.readings();
    assert_eq!((readings.damaged, readings.pairs[0].way), (1, ReadPath::SharedMemory));
    assert_eq!(readings.reads.map(|counts| counts.inputs), [0, 0, 0, 1]);
}

#[tokio::test]
async fn who_requires_shared_memory_has_no_link_without_it_and_others_fall_back() {
    for (required, linked) in [(true, false), (false, true)] {
        // A frontend that shares nothing, and one whose memory is on another host.
        for offer in [None, Some(sharing::offer("symphony-test-nowhere"))] {
            let (frontend, addr) = listener().await;
            let (mut transport, _view) = transport(&[addr]);
            transport.config = PayloadsConfig { required, ..SHARED };
            let (link, (_sender, _receiver, _)) =
                tokio::join!(transport.link((FrontendId::new(1), BOOT)), offers(&frontend, offer));
            assert_eq!(link.map(|link| link.way), linked.then_some(ReadPath::Tcp));
        }
    }
}

#[tokio::test]
async fn a_frontend_that_requires_it_is_understood() {
    let (frontend, addr) = listener().await;
    let (transport, _view) = transport(&[addr]);
    let refuses = async {
        let connection = Net::plaintext().accept(frontend.accept().await.unwrap().0, &[]).await.unwrap();
        let (sender, receiver) = link_over::<FromDataServer, ToDataServer>(connection);
        sender.send(FromDataServer::MustShare).unwrap();
        (sender, receiver)
    };
    let expected = Expected::from(Role::Frontend);
    let addr = addr.to_string();
    let (_link, opened) = tokio::join!(refuses, transport.open(&addr, &expected, BOOT));
    assert!(opened.err().unwrap().contains("the frontend requires shared memory"));
}

#[tokio::test]
async fn who_requires_rdma_has_no_link_without_it_and_others_fall_back() {
    let (frontend, addr) = listener().await;
    let (mut transport, _view) = transport(&[addr]);
    transport.config = PayloadsConfig { transport: PayloadTransportKind::Rdma, required: true, ..SHARED };
    let opened = transport.open(&addr.to_string(), &Expected::from(Role::Frontend), BOOT).await;
    let reason = opened.err().unwrap();
    assert!(reason.contains("backend.payloads requires RDMA with 127.0.0.1"), "{reason}");
    assert!(reason.contains("mutual TLS only"), "{reason}");
    drop(frontend.accept().await.unwrap());
    transport.config.required = false;
    let (link, (_sender, _receiver, shares)) =
        tokio::join!(transport.link((FrontendId::new(1), BOOT)), offers(&frontend, None));
    assert_eq!((shares, link.map(|link| link.way)), (false, Some(ReadPath::Tcp)));
}

#[cfg(not(feature = "rdma"))]
#[test]
fn a_build_without_rdma_says_so() {
    let rdma = PayloadsConfig { transport: PayloadTransportKind::Rdma, ..SHARED };
    let reason = crate::can_use_rdma(&rdma).unwrap_err().to_string();
    assert!(reason.contains("built without it; build it with --features rdma"), "{reason}");
}

/// What stands in between is meant to see the bytes.
#[tokio::test]
async fn an_address_that_is_routed_elsewhere_is_not_gone_around() {
    let auto = PayloadsConfig { transport: PayloadTransportKind::Auto, ..SHARED };
    for (config, wanted) in [(auto, false), (SHARED, true)] {
        let (frontend, addr) = listener().await;
        let (mut transport, _view) = transport(&["127.0.0.1:9".parse().unwrap()]);
        transport.net = Net::plaintext().routed([("127.0.0.1:9".to_owned(), addr.to_string())].into());
        transport.config = config;
        let (link, (_sender, _receiver, shares)) =
            tokio::join!(transport.link((FrontendId::new(1), BOOT)), offers(&frontend, None));
        assert_eq!((shares, link.map(|link| link.way)), (wanted, Some(ReadPath::Tcp)));
    }
}
