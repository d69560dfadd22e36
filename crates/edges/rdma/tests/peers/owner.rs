//! The other process: owns a pool, and obeys commands on its standard input. Its lines begin with `@`.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use symphony_rdma::{Endpoint, Fabric, Grant, Pair, Purpose, Unpaired};
use symphony_shared_memory::Pool;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub(crate) const POOL_BYTES: u64 = 8 << 20;
pub(crate) const ENTRIES: usize = 64;

/// Bytes that say whose they are, all over.
pub(crate) fn bytes_of(number: u64, length: usize) -> Vec<u8> {
    let word = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    word.into_iter().cycle().take(length).collect()
}

pub(crate) fn say(endpoint: &Endpoint) -> String {
    let Endpoint { queue_pair, first_packet, mtu, lid, gid } = endpoint;
    format!("{queue_pair} {first_packet} {mtu} {lid} {}", u128::from_be_bytes(*gid))
}

fn parse_endpoint(words: &[&str]) -> Endpoint {
    let number = |at: usize| words[at].parse::<u128>().unwrap();
    Endpoint {
        queue_pair: number(0) as u32,
        first_packet: number(1) as u32,
        mtu: number(2) as u8,
        lid: number(3) as u16,
        gid: number(4).to_be_bytes(),
    }
}

/// What the other process does.
#[tokio::main]
pub(crate) async fn run() {
    let fabric = Fabric::open(None, Purpose::Payloads).unwrap();
    let pool = Pool::create(POOL_BYTES, ENTRIES).unwrap();
    let shown = fabric.show(Arc::clone(&pool) as _).unwrap();
    let mut placed = HashMap::new();
    let mut begun: Option<Unpaired> = None;
    let mut pairs: Vec<Pair> = Vec::new();
    let mut grants: Vec<Option<Grant>> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let mut answer = "done".to_owned();
        match words[0] {
            "begin" => {
                let fresh = fabric.begin().unwrap();
                answer = say(&fresh.endpoint());
                begun = Some(fresh);
            }
            "join" => {
                let pair = begun.take().unwrap().join(parse_endpoint(&words[1..])).unwrap();
                let grant = shown.grant(&pair).await.unwrap();
                answer = format!("{} {} {}", grant.key().0, grant.address(), grant.bytes());
                grants.push(Some(grant));
                pairs.push(pair);
            }
            "put" => {
                drop(placed.insert(number(1), pool.put(number(1), &bytes_of(number(1), number(2) as usize)).unwrap()))
            }
            "take" => drop(placed.remove(&number(1)).unwrap()),
            // One bit of the checksum of that number, which lies in the upper half of its entry's last word.
            "damage" => {
                let entry = 8 + (number(1) as usize % ENTRIES) * 4;
                pool.words()[entry + 3].fetch_xor(1 << 40, Ordering::SeqCst);
            }
            "revoke" => drop(grants[number(1) as usize].take().unwrap()),
            // Everything that comes goes back, until nothing comes any more.
            "echo" => {
                let (mut reader, mut writer) = pairs[number(1) as usize].split();
                tokio::spawn(async move {
                    let mut buffer = vec![0; 50_000];
                    loop {
                        let count = reader.read(&mut buffer).await.unwrap();
                        if count == 0 {
                            return writer.shutdown().await.unwrap();
                        }
                        writer.write_all(&buffer[..count]).await.unwrap();
                    }
                });
            }
            other => panic!("{other}"),
        }
        println!("@{answer}");
        std::io::stdout().flush().unwrap();
    }
}

/// A handle on that process.
pub(crate) struct Owner {
    child: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Owner {
    /// This very program, with another thing to do.
    pub(crate) fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (says, hears) = (BufReader::new(child.stdout.take().unwrap()), child.stdin.take().unwrap());
        Self { child, says, hears }
    }

    pub(crate) fn does(&mut self, what: &str) -> String {
        writeln!(self.hears, "{what}").unwrap();
        self.hears.flush().unwrap();
        loop {
            let mut line = String::new();
            assert!(self.says.read_line(&mut line).unwrap() > 0, "the other process has ended at `{what}`");
            if let Some((_, answer)) = line.split_once('@') {
                return answer.trim().to_owned();
            }
        }
    }

    /// Connects to it. Returns the connection, and key, address and bytes of its pool.
    pub(crate) fn connect(&mut self, fabric: &Fabric) -> (Pair, [u64; 3]) {
        let mine = fabric.begin().unwrap();
        let theirs = self.does("begin");
        let theirs = parse_endpoint(&theirs.split(' ').collect::<Vec<_>>());
        let grant = self.does(&format!("join {}", say(&mine.endpoint())));
        let grant: Vec<_> = grant.split(' ').map(|number| number.parse().unwrap()).collect();
        (mine.join(theirs).unwrap(), grant.try_into().unwrap())
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
