//! Garbage on every port, and connections that stay silent.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use rand::{RngCore as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_tests::{Shape, emulated_model, fuzz_entries, phase, tell};

/// Half-open connections per port.
const HALF_OPEN: usize = 8;
/// Rounds of each kind of rubbish per port.
const ROUNDS: usize = 6;
/// How long the other side's words are listened to.
const LISTEN: Duration = Duration::from_millis(20);

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap_or_else(|e| panic!("{address} takes no connections: {e}"));
    stream.set_read_timeout(Some(LISTEN)).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends and forgets; a peer that hangs up at once is right.
fn send(address: &str, bytes: &[u8]) {
    let mut stream = connect(address);
    if stream.write_all(bytes).is_ok() {
        let _ = stream.read(&mut [0; 256]);
    }
}

#[test]
fn rubbish_and_silence_on_every_secured_port_leave_the_cluster_serving() {
    rubbish_and_silence("garbage", &Shape::emulated(&["default"]));
}

/// Without TLS the parsers of frames and calls get all of it.
#[test]
fn rubbish_and_silence_on_every_plaintext_port_leave_the_cluster_serving() {
    rubbish_and_silence("garbage-plaintext", &Shape::emulated(&["default"]).with("security.insecure_dev=true"));
}

fn rubbish_and_silence(test: &str, shape: &Shape) {
    tell(test, shape, |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        let before = cluster.view().unwrap();
        let addresses = cluster.addresses();
        assert_eq!(addresses.len(), 3 * 4 + 2 + 4, "every port of three schedulers, a backend and a frontend");
        let frames = fuzz_entries::ALL.iter().find(|entry| entry.name == "frames").unwrap();
        let seeds = (frames.seeds)();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);

        phase("connections that never say anything, and headers whose frames never come, stay open all the while");
        let mut silent = Vec::new();
        for (_, _, address) in &addresses {
            for number in 0..HALF_OPEN {
                let mut stream = connect(address);
                // A header of a full-size frame, of a link that this port may even speak.
                let link = (number % 7) as u8;
                let header = [0, 0, 0, 4, 1, 0, link, 0, 0, 0, 0, 1, 0, 0, 0, 0];
                let _ = stream.write_all(&header[..2 * number]);
                silent.push(stream);
            }
        }

        phase("random bytes, other protocols, mutated and misdirected frames, on every port");
        for (_, _, address) in &addresses {
            for round in 0..ROUNDS {
                let mut noise = vec![0; 1 << (2 * round)];
                random.fill_bytes(&mut noise);
                send(address, &noise);
                send(address, &fuzz_entries::mutate(&seeds[round % seeds.len()], &mut random));
                send(address, &seeds[(round * 5) % seeds.len()]);
            }
            send(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            send(
                address,
                b"POST /v2/models/resnet/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n{",
            );
            send(address, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\xff\x04\x00\x00\x00\x00\x00");
            send(address, &[0; 40]);
            send(address, &[0xff; 1 << 16]);
            drop(connect(address));
        }

        phase("nobody died, nobody was declared dead, nobody lost its leader, and requests are served");
        assert_eq!(cluster.ended().unwrap(), None);
        cluster.wait_until_it_serves("resnet").unwrap();
        for _ in 0..20 {
            cluster.one_good_request("resnet").unwrap();
        }
        let after = cluster.view().unwrap();
        assert!(after.nodes.values().all(|n| n.up) && after.backends.values().all(|b| b.up), "{after:?}");
        assert_eq!(after.nodes, before.nodes, "nobody had to register again");
        let leader =
            |view: &symphony_protocol::view::View| view.subclusters.values().next().map(|s| (s.leader, s.token));
        assert_eq!(leader(&after), leader(&before));

        phase("the cluster still decides, while the silent connections are open");
        let _ = cluster.cli(&emulated_model("second", "default")).ended_with(0);
        cluster.wait_until_it_serves("second").unwrap();
        drop(silent);
        cluster.one_good_request("resnet").unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.ended().unwrap(), None);
    });
}
