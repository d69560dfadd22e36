//! The child that is one replica of a control group, and proposes whenever it leads.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use symphony_consensus::{ControlGroup, Engine, GroupConfig, StateMachine};
use symphony_net::{Incoming, Net, Port, Role};
use symphony_types::NodeId;
use tokio::net::TcpListener;
use tonic::transport::Server;

/// The task of a replica.
#[derive(Debug, Clone)]
pub struct Replica {
    /// The replica's id.
    pub id: u64,
    /// The addresses of all replicas, by id.
    pub addresses: BTreeMap<u64, SocketAddr>,
    /// Its directory.
    pub dir: PathBuf,
    /// The engine that keeps the log.
    pub engine: Engine,
    /// How long a write may take before the replica stops leading.
    pub disk_stall: Duration,
}

/// What it says, one JSON line each. Times are of the machine's monotonic clock, nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum News {
    /// A command was committed.
    Committed { at_ns: i64 },
    /// The replica that it follows now.
    Follows { leader: Option<u64>, leads: bool },
}

/// The machine's monotonic clock.
pub(crate) fn now_ns() -> i64 {
    // The clock exists on every Linux; without it times are all zero and gaps are seen to be impossible.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| now.tv_sec() * 1_000_000_000 + now.tv_nsec())
}

fn say(news: &News) {
    use std::io::Write as _;
    let mut line = serde_json::to_vec(news).unwrap_or_default();
    line.push(b'\n');
    // The listener may be gone; the replica is killed then anyway.
    let _ = std::io::stdout().lock().write_all(&line);
}

struct Nothing;

impl StateMachine for Nothing {
    fn apply(&mut self, _index: u64, _command: &[u8]) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }

    fn snapshot(&self) -> Vec<u8> {
        Vec::new()
    }

    fn restore(&mut self, _bytes: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

impl Replica {
    /// Runs until it is killed.
    ///
    /// # Errors
    /// The replica does not start.
    pub fn run(&self) -> Result<()> {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(self.serve())
    }

    async fn serve(&self) -> Result<()> {
        let voters = self.addresses.iter().map(|(id, address)| (NodeId::new(*id), address.to_string())).collect();
        let mut config = GroupConfig::new("crash", NodeId::new(self.id), voters, self.dir.clone());
        config.engine = self.engine;
        config.timing.disk_stall = self.disk_stall;
        let listener = TcpListener::bind(self.addresses[&self.id]).await?;
        let group = ControlGroup::start(config, Nothing).await?;
        let service = Server::builder().add_service(group.service(|_| false));
        let incoming = Incoming::new(listener, Net::plaintext(), Port::new("crash", &Role::ALL, 256)).into_stream();
        let server = tokio::spawn(service.serve_with_incoming(incoming));
        tokio::spawn(propose(group.clone()));
        let mut leadership = group.leadership();
        loop {
            let now = *leadership.borrow_and_update();
            say(&News::Follows { leader: now.leader.map(NodeId::get), leads: now.is_leader });
            if leadership.changed().await.is_err() || server.is_finished() {
                anyhow::bail!("the replica has ended");
            }
        }
    }
}

async fn propose(group: ControlGroup) {
    loop {
        match group.propose(b"one more".to_vec()).await {
            Ok(_) => say(&News::Committed { at_ns: now_ns() }),
            // It is not the leader, or there is none for the moment.
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}
