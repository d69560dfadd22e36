//! What certificates cost: making a connection, and carrying frames over it, secured and in plaintext.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use symphony_net::{Authority, Connection, Credentials, Expected, Identity, Incoming, Net, Port, Role};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;

/// A request's header with its frame, and an input of 8 images as they come coalesced.
const SIZES: [usize; 2] = [48, 1 << 20];

struct Pair {
    caller: Net,
    addr: String,
    incoming: Incoming,
}

impl Pair {
    fn new(caller: &Net, answerer: &Net) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let incoming = Incoming::new(listener, answerer.clone(), Port::new("bench", &[Role::Scheduler], 256));
        Self { caller: caller.clone(), addr, incoming }
    }

    async fn connect(&mut self) -> (Connection, Connection) {
        let expected = Expected::from(Role::Backend);
        let (dialled, accepted) = tokio::join!(self.caller.dial(&self.addr, &expected), self.incoming.next());
        (dialled.unwrap(), accepted.unwrap())
    }
}

/// Sends `bytes` and waits for one byte in answer.
async fn there_and_back(near: &mut Connection, far: &mut Connection, bytes: &[u8], room: &mut [u8]) {
    let ask = async {
        near.write_all(bytes).await.unwrap();
        near.flush().await.unwrap();
        near.read_u8().await.unwrap()
    };
    let answer = async {
        far.read_exact(room).await.unwrap();
        far.write_u8(1).await.unwrap();
        far.flush().await.unwrap();
    };
    black_box(tokio::join!(ask, answer));
}

fn connections(c: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let _inside = runtime.enter();
    let dir = std::env::temp_dir().join(format!("symphony-bench-pki-{}", std::process::id()));
    let authority = Authority::create(&dir, "bench").unwrap();
    let net = |role, name| {
        let issued = authority.issue(&Identity::new("bench", role, name).unwrap(), 1).unwrap();
        Net::secured(Arc::new(Credentials::load(issued.files).unwrap()))
    };
    let secured = (net(Role::Scheduler, "1"), net(Role::Backend, "b"));
    let plain = (Net::plaintext(), Net::plaintext());
    for (name, (caller, answerer)) in [("secured", &secured), ("plaintext", &plain)] {
        let mut pair = Pair::new(caller, answerer);
        c.benchmark_group("connections").bench_function(format!("connect/{name}"), |b| {
            b.iter(|| runtime.block_on(pair.connect()));
        });
        let (mut near, mut far) = runtime.block_on(pair.connect());
        for size in SIZES {
            let (bytes, mut room) = (vec![7; size], vec![0; size]);
            let mut group = c.benchmark_group("connections");
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_function(format!("there_and_back/{size}/{name}"), |b| {
                b.iter(|| runtime.block_on(there_and_back(&mut near, &mut far, &bytes, &mut room)));
            });
        }
    }
    let _ = std::fs::remove_dir_all(dir);
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_secs(1));
    targets = connections
}
criterion_main!(benches);
