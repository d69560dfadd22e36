use std::sync::Arc;

use symphony_config::{PayloadTransportKind, PayloadsConfig};
use symphony_net::Net;
use symphony_protocol::data::{FromDataServer, ToDataServer};
use symphony_protocol::view::{FrontendView, View};
use symphony_types::{BackendId, BootId, FrontendId};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::*;
use crate::{LinkReceiver, LinkSender, PayloadTransport as _, link_over};

const BOOT: BootId = BootId::new(4);
const FRONTEND: FrontendBoot = (FrontendId::new(1), BOOT);
const SOON: Duration = Duration::from_secs(60);

/// A transport that knows one frontend, and where that listens.
async fn transport() -> (LinkedPayloads, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let data_addr = listener.local_addr().unwrap().to_string();
    let frontend = FrontendView { boot: BOOT, data_addr, ..FrontendView::default() };
    let view = watch::Sender::new(Arc::new(View { frontends: [(FRONTEND.0, frontend)].into(), ..View::default() }));
    let config = PayloadsConfig {
        transport: PayloadTransportKind::Tcp,
        required: false,
        pool_mb: 1,
        rdma_device: String::new(),
    };
    let (backend, net) = ((BackendId::new(1), BootId::new(2)), Net::plaintext());
    (LinkedPayloads::new(backend.0, backend.1, net, config, view.subscribe()), listener)
}

async fn welcome(stream: TcpStream) -> (LinkSender<FromDataServer>, LinkReceiver<ToDataServer>) {
    let (sender, mut receiver) =
        link_over::<FromDataServer, ToDataServer>(Net::plaintext().accept(stream, &[]).await.unwrap());
    assert!(matches!(receiver.receive().await.unwrap().message, ToDataServer::Hello { .. }));
    sender.send(FromDataServer::Welcome { boot: BOOT, sharing: None, rdma: None }).unwrap();
    (sender, receiver)
}

async fn accepted(listener: &TcpListener) -> TcpStream {
    tokio::time::timeout(SOON, listener.accept()).await.expect("a dial").unwrap().0
}

#[tokio::test]
async fn a_link_on_which_nothing_comes_back_is_replaced_by_one_that_works() {
    let (transport, listener) = transport().await;
    let (link, silent) = tokio::join!(transport.link(FRONTEND), async { welcome(accepted(&listener).await).await });
    let link = link.expect("it was welcomed");
    let asks = tokio::spawn({
        let transport = transport.clone();
        async move { transport.ready(SOON).await }
    });
    let (sender, mut receiver) = welcome(accepted(&listener).await).await;
    let Ok(ToDataServer::Read { read, sequences }) = receiver.receive().await.map(|frame| frame.message) else {
        panic!("it is not asked")
    };
    assert!(sequences.is_empty() && !asks.is_finished(), "it has not answered yet");
    sender.send(FromDataServer::Payloads { read, lengths: vec![], waited: 0 }).unwrap();
    tokio::time::timeout(SOON, asks).await.expect("it answers").unwrap();
    assert!(!transport.link(FRONTEND).await.unwrap().is_same(&link));
    drop(silent);
}

#[tokio::test]
async fn a_frontend_that_is_gone_is_not_waited_for_for_ever_and_one_that_was_never_reached_not_at_all() {
    let (transport, listener) = transport().await;
    let for_ever = Duration::from_secs(3600);
    let waits = tokio::time::timeout(SOON, transport.ready(for_ever));
    waits.await.expect("nobody was linked");
    let (link, silent) = tokio::join!(transport.link(FRONTEND), async { welcome(accepted(&listener).await).await });
    assert!(link.is_some());
    drop((silent, listener));
    let waits = tokio::time::timeout(SOON, transport.ready(5 * TRY_AGAIN_AFTER));
    waits.await.expect("there is a bound");
}

/// Answers each question on one link after `after`.
async fn answer_late(stream: TcpStream, after: Duration) {
    let (sender, mut receiver) = welcome(stream).await;
    while let Ok(frame) = receiver.receive().await {
        if let ToDataServer::Read { read, .. } = frame.message {
            tokio::time::sleep(after).await;
            let _ = sender.send(FromDataServer::Payloads { read, lengths: vec![], waited: 0 });
        }
    }
}

#[tokio::test]
async fn a_frontend_that_is_slow_keeps_a_link_in_the_end() {
    let (transport, listener) = transport().await;
    let late = 3 * ANSWERS_WITHIN;
    let first = tokio::spawn(async move {
        let serving = tokio::spawn(answer_late(accepted(&listener).await, late));
        (listener, serving)
    });
    assert!(transport.link(FRONTEND).await.is_some(), "it was welcomed");
    let (listener, _first) = first.await.unwrap();
    let mut ready = Box::pin(transport.ready(SOON));
    let mut replaced = 0;
    loop {
        tokio::select! {
            () = &mut ready => break,
            stream = accepted(&listener) => {
                replaced += 1;
                // Links of 100, 200, 400 ms; more where this machine is busy.
                assert!(replaced < 8, "its links are replaced again and again");
                tokio::spawn(answer_late(stream, late));
            }
        }
    }
    assert!(transport.link(FRONTEND).await.is_some());
}
