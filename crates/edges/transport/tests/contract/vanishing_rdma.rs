//! A network on which packets of RDMA vanish without a word, as behind a firewall that knows nothing of it.

use std::sync::Arc;

use bytes::Bytes;
use symphony_config::{PayloadTransportKind, PayloadsConfig};
use symphony_net::{Authority, Credentials, Identity, Incoming, Net, Port, Role};
use symphony_protocol::data::{FromDataServer, RdmaEndpoint, RdmaKey, RdmaOffer, ToDataServer};
use symphony_protocol::view::{FrontendView, View};
use symphony_transport::{LinkedPayloads, PayloadTransport as _, ReadPath, link_over};
use symphony_types::BackendId;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::promises::SOON;
use crate::subjects::{BOOT, FRONTENDS};

const INPUT: Bytes = Bytes::from_static(b"input");

/// Offers memory at a queue pair that does not exist. Returns whether the backend says that it reads there.
async fn offer(mut incoming: Incoming) -> bool {
    let (sender, mut receiver) = link_over::<FromDataServer, ToDataServer>(incoming.next().await.unwrap());
    let ToDataServer::Hello { rdma: Some(wants), .. } = receiver.receive().await.unwrap().message else {
        panic!("the backend wants RDMA");
    };
    let endpoint = RdmaEndpoint { queue_pair: 0xff_fffe, ..wants };
    let rdma = Some(RdmaOffer { endpoint, key: RdmaKey(7), address: 1 << 30, bytes: 16 << 20, entries: 256 });
    sender.send(FromDataServer::Welcome { boot: BOOT, sharing: None, rdma }).unwrap();
    let ToDataServer::Joined { shares } = receiver.receive().await.unwrap().message else {
        panic!("the backend says what became of the offer");
    };
    while let Ok(frame) = receiver.receive().await {
        if let ToDataServer::Read { read, sequences } = frame.message {
            let lengths = vec![Some(INPUT.len() as u32); sequences.len()];
            let tail = vec![INPUT; sequences.len()];
            sender.send_with(FromDataServer::Payloads { read, lengths, waited: 0 }, tail).unwrap();
            break;
        }
    }
    shares
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_two_agree_on_tcp() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path(), "blue").unwrap();
    let net = |role, name| {
        let issued = authority.issue(&Identity::new("blue", role, name).unwrap(), 1).unwrap();
        Net::secured(Arc::new(Credentials::load(issued.files).unwrap()))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let data_addr = listener.local_addr().unwrap().to_string();
    let frontend = FrontendView { name: "f".into(), boot: BOOT, data_addr, ..FrontendView::default() };
    let view = View { frontends: [(FRONTENDS[0], frontend)].into(), ..View::default() };
    let (_told, views) = watch::channel(Arc::new(view));
    let incoming = Incoming::new(listener, net(Role::Frontend, "f"), Port::new("test", &[Role::Backend], 64));
    let offered = tokio::spawn(offer(incoming));
    let config = PayloadsConfig {
        transport: PayloadTransportKind::Rdma,
        required: false,
        pool_mb: 8,
        rdma_device: String::new(),
    };
    let backend =
        LinkedPayloads::new(BackendId::new(1), symphony_types::BootId::new(2), net(Role::Backend, "b"), config, views);
    // The very first read finds out, and is answered all the same.
    let read = tokio::time::timeout(SOON, backend.read(FRONTENDS[0], BOOT, vec![1])).await.expect("no read hangs");
    assert_eq!(read, [Some(INPUT)]);
    assert!(!tokio::time::timeout(SOON, offered).await.unwrap().unwrap(), "it says that it does not read there");
    let readings = backend.readings();
    assert_eq!(readings.reads[ReadPath::Tcp as usize].inputs, 1);
}
