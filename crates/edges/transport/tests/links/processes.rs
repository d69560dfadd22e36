//! Links between two processes over an RDMA device. Run by `make test-rdma`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_net::{
    Authority, Carrier, CarrierPreference, Carriers, CredentialFiles, Credentials, Identity, Incoming, Net, Port, Role,
    rdma_fabric,
};
use symphony_protocol::dispatch::ToFrontend;
use symphony_transport::{LINK_FRAMES_MAX, LinkError, SendError, link_over};
use symphony_types::Token;
use tokio::net::TcpListener;

use crate::promises::{SOON, message};
use crate::subjects::{Accepted, Dialled, connect};

/// The variable with the other process's task.
const MODE: &str = "SYMPHONY_LINKS_MODE";
const PKI: &str = "SYMPHONY_LINKS_PKI";

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("nobody hangs")
}

fn carriers(required: bool) -> Carriers {
    Carriers::new(None, Some(rdma_fabric(None).unwrap()), CarrierPreference { expected: required, required })
}

fn net(pki: &Path, role: Role, name: &str, carriers: Carriers) -> Net {
    let files = CredentialFiles::in_dir(pki, role, name);
    Net::secured(Arc::new(Credentials::load(files).unwrap())).carried(carriers)
}

#[test]
#[ignore = "not a test: the other process of the others"]
fn the_other_process() {
    let (mode, pki) = (std::env::var(MODE).unwrap(), std::env::var(PKI).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(serve(&mode, Path::new(&pki)));
}

fn say(what: impl std::fmt::Display) {
    println!("@{what}");
    std::io::stdout().flush().unwrap();
}

/// Waits until this process is told to go on.
async fn await_stop() {
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()).unwrap()).await.unwrap();
}

/// Accepts links, each of which answers every message; one that is deaf receives nothing between the tenth and the word
/// to go on.
async fn serve(mode: &str, pki: &Path) {
    let carriers = if mode == "without" { Carriers::default() } else { carriers(false) };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let net = net(pki, Role::Scheduler, "1", carriers);
    let mut incoming = Incoming::new(listener, net, Port::new("test", &[Role::Frontend], 256));
    say(addr);
    while let Some(connection) = incoming.next().await {
        let deaf = mode == "deaf";
        tokio::spawn(async move {
            let (back, mut receiver): Accepted = link_over(connection);
            let mut came = 0;
            while let Ok(frame) = receiver.receive().await {
                assert_eq!(frame.message, message(came));
                assert!(frame.tail.iter().all(|&byte| byte == came as u8));
                came += 1;
                if deaf && came == 10 {
                    await_stop().await;
                }
                // A process that floods does not read.
                if !deaf {
                    let _ = back.send_with(ToFrontend::Welcome { token: Token::new(came) }, vec![frame.tail]);
                }
            }
            // Prints nothing for a link that took too long to be made.
            if came > 0 {
                say(came);
            }
        });
    }
}

/// A handle on that process.
struct Other {
    child: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
    addr: String,
    pki: tempfile::TempDir,
}

impl Other {
    /// This very program, with another thing to do.
    fn start(mode: &str) -> Self {
        let pki = tempfile::tempdir().unwrap();
        let authority = Authority::create(pki.path(), "blue").unwrap();
        for (role, name) in [(Role::Scheduler, "1"), (Role::Frontend, "f")] {
            authority.issue(&Identity::new("blue", role, name).unwrap(), 1).unwrap();
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::the_other_process", "--ignored", "--nocapture"])
            .env(MODE, mode)
            .env(PKI, pki.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (says, hears) = (BufReader::new(child.stdout.take().unwrap()), child.stdin.take().unwrap());
        let mut other = Self { child, says, hears, addr: String::new(), pki };
        other.addr = other.next_answer();
        other
    }

    fn next_answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.says.read_line(&mut line).unwrap() > 0, "the other process has ended");
            if let Some((_, answer)) = line.split_once('@') {
                return answer.trim().to_owned();
            }
        }
    }

    fn goes_on(&mut self) {
        writeln!(self.hears).unwrap();
        self.hears.flush().unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn net(&self, required: bool) -> Net {
        net(self.pki.path(), Role::Frontend, "f", carriers(required))
    }

    /// A link, as soon as the machine makes one in time.
    async fn link(&self, net: &Net) -> Dialled {
        let begun = Instant::now();
        loop {
            match connect(net, &self.addr).await {
                Ok(link) => return link,
                Err(error) => assert!(begun.elapsed() < SOON, "{error}"),
            }
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tail(number: u64) -> Bytes {
    Bytes::from(vec![number as u8; (number as usize * 97) % 9000])
}

/// Sends a message, and waits for its answer.
async fn there_and_back((sender, receiver): &mut Dialled, number: u64) {
    sender.send_with(message(number), vec![tail(number)]).unwrap();
    let answer = soon(receiver.receive()).await.unwrap();
    assert_eq!(answer.message, ToFrontend::Welcome { token: Token::new(number + 1) });
    assert_eq!(answer.tail, tail(number));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_go_to_another_process_and_back_by_send() {
    let other = Other::start("answers");
    let net = other.net(true);
    let mut link = other.link(&net).await;
    assert_eq!(net.carriers().links()[0].carrier, Carrier::Rdma);
    for number in 0..100 {
        there_and_back(&mut link, number).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_in_use_changes_over_and_loses_nothing() {
    let other = Other::start("answers");
    let net = other.net(false);
    let mut link = other.link(&net).await;
    assert_eq!(net.carriers().links()[0].carrier, Carrier::Tcp);
    let mut number = 0;
    let begun = Instant::now();
    while net.carriers().links()[0].carrier == Carrier::Tcp {
        there_and_back(&mut link, number).await;
        number += 1;
        assert!(begun.elapsed() < SOON, "it changes over once it is in use");
    }
    println!("RDMA after {number} messages");
    assert!(number >= 32);
    for number in number..number + 50 {
        there_and_back(&mut link, number).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_links_of_two_processes_change_over_beside_each_other() {
    const LINKS: usize = 6;
    let other = Other::start("answers");
    let net = other.net(true);
    let mut links = Vec::new();
    for _ in 0..LINKS {
        links.push(other.link(&net).await);
    }
    assert!(net.carriers().links().iter().all(|row| row.carrier == Carrier::Rdma));
    for number in 0..5 {
        for link in &mut links {
            there_and_back(link, number).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_other_process_is_killed_the_link_ends_at_once_and_others_go_on() {
    let (mut other, survivor) = (Other::start("answers"), Other::start("answers"));
    let (net, its_net) = (other.net(true), survivor.net(true));
    let (mut link, mut its_link) = (other.link(&net).await, survivor.link(&its_net).await);
    for number in 0..20 {
        there_and_back(&mut link, number).await;
        there_and_back(&mut its_link, number).await;
    }
    other.kill();
    let killed = Instant::now();
    let (sender, mut receiver) = link;
    assert!(soon(receiver.receive()).await.is_err());
    println!("the link ended {} ms after the kill", killed.elapsed().as_millis());
    let closed = async {
        while sender.send(message(0)) != Err(SendError::Closed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(closed).await;
    println!("and its sender after {} ms", killed.elapsed().as_millis());
    for number in 20..40 {
        there_and_back(&mut its_link, number).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_waits_for_who_does_not_read_and_nothing_of_it_is_lost() {
    let mut other = Other::start("deaf");
    let net = other.net(true);
    let (sender, receiver) = other.link(&net).await;
    let mut sent = 0;
    let full = loop {
        match sender.send_with(message(sent), vec![Bytes::from(vec![sent as u8; 20])]) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        if sent % 100 == 0 {
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(full, SendError::Full);
    println!("{sent} frames fill the link of who does not read");
    assert!(sent < 2 * LINK_FRAMES_MAX as u64, "{sent} frames are somewhere");
    // For this time the other end gets echo requests, and is not taken for gone.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!sender.is_closed());
    other.goes_on();
    sender.close();
    soon(sender.written()).await;
    assert_eq!(other.next_answer(), sent.to_string());
    drop(receiver);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_waits_for_room_ends_with_the_process_that_does_not_make_any() {
    let mut other = Other::start("deaf");
    let net = other.net(true);
    let (sender, mut receiver) = other.link(&net).await;
    for number in 0..4000 {
        sender.send_with(message(number), vec![Bytes::from(vec![number as u8; 2000])]).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    other.kill();
    let killed = Instant::now();
    assert!(soon(receiver.receive()).await.is_err());
    soon(sender.written()).await;
    println!("its writer ended {} ms after the kill", killed.elapsed().as_millis());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_waits_for_room_finds_out_by_itself_that_the_process_is_gone() {
    let mut other = Other::start("deaf");
    let net = other.net(true);
    let (sender, receiver) = other.link(&net).await;
    for number in 0..4000 {
        sender.send_with(message(number), vec![Bytes::from(vec![number as u8; 2000])]).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    // The connection has no reader any more.
    drop(receiver);
    other.kill();
    let killed = Instant::now();
    soon(sender.written()).await;
    println!("its writer found out {} ms after the kill", killed.elapsed().as_millis());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_requires_rdma_has_no_link_to_a_process_without() {
    let other = Other::start("without");
    let net = other.net(true);
    let error = loop {
        match connect(&net, &other.addr).await.unwrap_err() {
            // The machine is that slow.
            LinkError::ConnectTimeout { .. } => {}
            error => break error,
        }
    };
    assert!(matches!(error, LinkError::OnlyTcp { .. }), "{error}");
    assert!(error.to_string().contains("the peer has nothing else"), "{error}");
    // A process that does not require it goes on over TCP.
    let net = other.net(false);
    let mut link = other.link(&net).await;
    for number in 0..60 {
        there_and_back(&mut link, number).await;
    }
    assert_eq!((net.carriers().links()[0].carrier, net.carriers().refusals()), (Carrier::Tcp, 1));
}
