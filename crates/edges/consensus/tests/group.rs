//! Replicas of a control group in one process, over real gRPC on loopback and real disks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use symphony_consensus::{
    Beginning, COMMAND_BYTES_MAX, ControlGroup, Engine, GroupConfig, OnDiskError, ProposeError, Proposed, ReadError,
    SnapshotEvery, StartError, StateMachine, Timing, restore,
};
use symphony_net::{Incoming, Net, Port, Role};
use symphony_testkit::until;
use symphony_types::NodeId;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Server;

/// A command that this release cannot decode.
const UNREADABLE: &[u8] = b"of another release";

/// A list of commands, seen from outside.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<String>>>);

impl Ledger {
    fn lines(&self) -> Vec<String> {
        self.0.lock().expect("ledger").clone()
    }
}

impl StateMachine for Ledger {
    fn apply(&mut self, index: u64, command: &[u8]) -> Result<Vec<u8>, String> {
        if command == UNREADABLE {
            return Err("of another release".to_owned());
        }
        let line = String::from_utf8_lossy(command).into_owned();
        let answer = format!("{line} at {index}");
        self.0.lock().expect("ledger").push(line);
        Ok(answer.into_bytes())
    }
    fn snapshot(&self) -> Vec<u8> {
        self.lines().join("\n").into_bytes()
    }
    fn restore(&mut self, bytes: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        *self.0.lock().expect("ledger") = text.lines().map(str::to_owned).collect();
        Ok(())
    }
}

/// A replica with its server.
struct Replica {
    group: ControlGroup,
    ledger: Ledger,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

impl Replica {
    async fn start(config: GroupConfig, listener: TcpListener) -> Self {
        let ledger = Ledger::default();
        let group = ControlGroup::start(config, ledger.clone()).await.expect("replica starts");
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = Server::builder().add_service(group.service(|_| false)).serve_with_incoming_shutdown(
            Incoming::new(listener, Net::plaintext(), Port::new("test", &Role::ALL, 256)).into_stream(),
            async {
                let _ = stopped.await;
            },
        );
        // Aborted with its connections: peers keep theirs open, so a graceful shutdown would never end.
        let server = tokio::spawn(async move { serve.await.expect("server runs") });
        Self { group, ledger, stop: Some(stop), server }
    }

    async fn stop(mut self) {
        self.group.shutdown().await;
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        self.server.abort();
        let _ = self.server.await;
    }
}

/// Directories and addresses of one cluster's replicas.
struct Cluster {
    dirs: TempDir,
    addresses: BTreeMap<NodeId, SocketAddr>,
    running: BTreeMap<NodeId, Replica>,
    snapshot: SnapshotEvery,
    timing: Timing,
}

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

impl Cluster {
    async fn start(size: u64, snapshot: SnapshotEvery) -> Self {
        Self::start_with(size, snapshot, Timing::relaxed()).await
    }

    async fn start_with(size: u64, snapshot: SnapshotEvery, timing: Timing) -> Self {
        let mut cluster = Self {
            dirs: TempDir::new().expect("temporary directory"),
            addresses: BTreeMap::new(),
            running: BTreeMap::new(),
            snapshot,
            timing,
        };
        let mut listeners = Vec::new();
        for id in 1..=size {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
            cluster.addresses.insert(node(id), listener.local_addr().expect("address"));
            listeners.push((node(id), listener));
        }
        for (id, listener) in listeners {
            let replica = Replica::start(cluster.config(id), listener).await;
            cluster.running.insert(id, replica);
        }
        cluster
    }

    fn dir(&self, id: NodeId) -> PathBuf {
        self.dirs.path().join(id.to_string())
    }

    fn config(&self, id: NodeId) -> GroupConfig {
        let voters = self.addresses.iter().map(|(id, address)| (*id, address.to_string())).collect();
        let mut config = GroupConfig::new("blue", id, voters, self.dir(id));
        config.timing = self.timing.clone();
        config.on_disk_error = OnDiskError::Stop;
        config.snapshot = self.snapshot;
        config
    }

    async fn stop(&mut self, id: NodeId) {
        self.running.remove(&id).expect("replica runs").stop().await;
    }

    async fn restart(&mut self, id: NodeId) {
        let address = self.addresses[&id];
        let listener = until("the old port is free again", || async { TcpListener::bind(address).await.ok() }).await;
        let replica = Replica::start(self.config(id), listener).await;
        self.running.insert(id, replica);
    }

    /// Starts a replica over an empty disk that waits for a group.
    async fn start_empty(&mut self, id: NodeId) {
        let address = self.addresses[&id];
        let listener = until("the old port is free again", || async { TcpListener::bind(address).await.ok() }).await;
        let config = GroupConfig { voters: BTreeMap::new(), ..self.config(id) };
        let replica = Replica::start(config, listener).await;
        self.running.insert(id, replica);
    }

    /// The replica that leads and has a quorum.
    async fn leader(&self) -> NodeId {
        until("a leader with a quorum", || async {
            let leading = |replica: &Replica| replica.group.leadership().borrow().is_leader;
            let (id, replica) = self.running.iter().find(|(_, replica)| leading(replica))?;
            replica.group.read_index().await.ok().map(|_| *id)
        })
        .await
    }

    /// Proposes until a leader takes it; for commands that may be applied twice after a change of leader.
    async fn propose(&self, command: &str) -> Proposed {
        until("a leader takes the command", || async {
            let leader = self.leader().await;
            self.running[&leader].group.propose(command.as_bytes().to_vec()).await.ok()
        })
        .await
    }

    async fn all_have(&self, line: &str) {
        for (id, replica) in &self.running {
            let has = || async { replica.ledger.lines().iter().any(|seen| seen == line).then_some(()) };
            until(&format!("{id} applies \"{line}\""), has).await;
        }
    }

    async fn end(mut self) {
        for (_, replica) in std::mem::take(&mut self.running) {
            replica.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_survives_its_leader() {
    let mut cluster = Cluster::start(3, SnapshotEvery::default()).await;

    // Phase 1: a leader is found, and its commands reach all replicas.
    let proposed = cluster.propose("one").await;
    assert_eq!(proposed.response, format!("one at {}", proposed.index).into_bytes());
    cluster.all_have("one").await;

    // Phase 2: a follower names the leader instead of taking commands or reads.
    let first = until("a follower names the leader", || async {
        let leader = cluster.leader().await;
        let follower = &cluster.running.iter().find(|(id, _)| **id != leader).expect("a follower").1.group;
        let named = Some(leader);
        let proposed = follower.propose(b"lost".to_vec()).await;
        let read = follower.read_index().await;
        let expected = (Err(ProposeError::NotLeader { leader: named }), Err(ReadError::NotLeader { leader: named }));
        ((proposed, read) == expected).then_some(leader)
    })
    .await;

    // Phase 3: a read on the leader covers what was committed.
    let read = until("the leader reads", || async { cluster.running[&first].group.read_index().await.ok() }).await;
    assert!(read >= proposed.index);

    // Phase 4: too large is refused before anything happens.
    let refused = cluster.running[&first].group.propose(vec![0; COMMAND_BYTES_MAX + 1]).await;
    assert_eq!(refused, Err(ProposeError::TooLarge { got: COMMAND_BYTES_MAX + 1, max: COMMAND_BYTES_MAX }));
    let largest = "x".repeat(COMMAND_BYTES_MAX);
    cluster.propose(&largest).await;
    cluster.all_have(&largest).await;

    // Phase 5: the leader dies; another takes over and continues the log.
    let dead = cluster.running[&first].group.clone();
    cluster.stop(first).await;
    assert_eq!(dead.propose(b"lost".to_vec()).await, Err(ProposeError::Stopped));
    let second = cluster.leader().await;
    assert_ne!(second, first);
    assert!(cluster.propose("two").await.index > proposed.index);
    cluster.all_have("two").await;
    until("the leader knows who holds its log, and nobody else does", || async {
        let (leader, living) = (cluster.leader().await, cluster.running.keys().copied().collect::<BTreeSet<_>>());
        let is_done = |(id, replica): (&NodeId, &Replica)| match *id == leader {
            true => replica.group.holders() == living,
            false => replica.group.holders().is_empty(),
        };
        cluster.running.iter().all(is_done).then_some(())
    })
    .await;

    // Phase 6: the dead one restarts from its disk and catches up, in the same order as the others.
    cluster.restart(first).await;
    cluster.propose("three").await;
    cluster.all_have("three").await;
    let expected = cluster.running[&second].ledger.lines();
    assert_eq!(cluster.running[&first].ledger.lines(), expected);
    assert!(!expected.iter().any(|line| line == "lost"));

    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_ends_rather_than_go_on_without_what_it_cannot_read() {
    let cluster = Cluster::start(1, SnapshotEvery::default()).await;
    cluster.propose("one").await;
    let group = &cluster.running.values().next().unwrap().group;
    assert!(group.propose(UNREADABLE.to_vec()).await.is_err());
    let ended = async || (group.propose(b"two".to_vec()).await == Err(ProposeError::Stopped)).then_some(());
    until("the end of the group", ended).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everything_survives_when_all_stop() {
    // With fast timing, which may cause more elections on a loaded machine but never different results.
    let mut cluster = Cluster::start_with(3, SnapshotEvery::default(), Timing::lan()).await;
    for line in ["one", "two", "three"] {
        cluster.propose(line).await;
    }
    cluster.all_have("three").await;
    for id in [1, 2, 3] {
        cluster.stop(node(id)).await;
    }
    for id in [1, 2, 3] {
        cluster.restart(node(id)).await;
    }
    cluster.propose("four").await;
    cluster.all_have("four").await;
    for replica in cluster.running.values() {
        // A proposal that timed out was repeated and may be applied twice.
        let mut lines = replica.ledger.lines();
        lines.dedup();
        assert_eq!(lines, ["one", "two", "three", "four"]);
    }
    cluster.end().await;
}

/// An index and a term that no group reaches without a restore.
const FAR: u64 = 1 << 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_group_begins_anew_with_a_backup_and_a_disk_of_before_does_not_prevail_over_it() {
    let mut cluster = Cluster::start(3, SnapshotEvery::default()).await;
    for line in ["one", "two"] {
        cluster.propose(line).await;
    }
    cluster.all_have("two").await;
    let backup = cluster.running[&node(1)].ledger.snapshot();
    cluster.propose("lost").await;
    cluster.all_have("lost").await;
    for id in [1, 2, 3] {
        cluster.stop(node(id)).await;
    }
    for id in [1, 2] {
        fs::remove_dir_all(cluster.dir(node(id))).expect("the disk is lost");
    }

    // Phase 1: one replica has the backup, another one has nothing: they lead, far beyond the former group.
    let beginning = Beginning { state: backup, index: FAR, term: FAR };
    restore(cluster.config(node(1)), beginning, Ledger::default()).await.expect("restores");
    cluster.restart(node(1)).await;
    let restored = cluster.running[&node(1)].group.clone();
    assert!(restored.begins_anew() && restored.awaits_first_leader(), "alone it is not elected");
    cluster.start_empty(node(2)).await;
    assert!(cluster.propose("three").await.index > FAR);
    cluster.all_have("three").await;
    assert!(!restored.begins_anew() && !restored.awaits_first_leader());
    drop(restored);
    let leader = cluster.leader().await;
    assert!(cluster.running[&leader].group.leadership().borrow().term > FAR);

    // Phase 2: the third comes with its disk of before, which has more entries and votes of the former group.
    cluster.restart(node(3)).await;
    cluster.all_have("three").await;
    assert!(cluster.propose("four").await.index > FAR);
    cluster.all_have("four").await;

    // Phase 3: the group outlives a restart of all.
    for id in [1, 2, 3] {
        cluster.stop(node(id)).await;
    }
    for id in [1, 2, 3] {
        cluster.restart(node(id)).await;
    }
    cluster.propose("five").await;
    cluster.all_have("five").await;
    for replica in cluster.running.values() {
        let mut lines = replica.ledger.lines();
        lines.dedup();
        assert_eq!(lines, ["one", "two", "three", "four", "five"], "what came after the backup is lost");
    }
    cluster.end().await;
}

/// Copies the files of a stopped replica.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("creates");
    for entry in fs::read_dir(from).expect("directory") {
        let entry = entry.expect("entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copies");
        }
    }
}

/// Whether a replica with an older copy of its disk was detected; not if another one leads by then, which does not
/// know what was acknowledged and sends the missing entries.
async fn is_told_of_an_older_copy() -> bool {
    let mut cluster = Cluster::start(3, SnapshotEvery::default()).await;
    cluster.propose("one").await;
    cluster.all_have("one").await;
    let leader = cluster.leader().await;
    let victim = *cluster.running.keys().find(|id| **id != leader).expect("a follower");
    let term = |cluster: &Cluster| cluster.running[&leader].group.leadership().borrow().term;
    let (dir, kept) = (cluster.dir(victim), cluster.dirs.path().join("copy"));

    cluster.stop(victim).await;
    copy(&dir, &kept);
    cluster.restart(victim).await;
    // A replica that lacks an unacknowledged tail has forgotten nothing.
    cluster.propose("two").await;
    cluster.all_have("two").await;
    let before = term(&cluster);
    cluster.propose("three").await;
    cluster.all_have("three").await;
    cluster.stop(victim).await;
    fs::remove_dir_all(&dir).expect("removes");
    copy(&kept, &dir);
    cluster.restart(victim).await;

    let group = cluster.running[&victim].group.clone();
    let is_forgotten = async || {
        let is_forgotten = tokio::time::timeout(Duration::from_millis(100), group.forgotten()).await.is_ok();
        (is_forgotten || term(&cluster) != before).then_some(is_forgotten)
    };
    let is_forgotten = until("the replica is told, or another one leads", is_forgotten).await;
    if is_forgotten {
        until("the directory is marked", async || dir.join("forgotten").exists().then_some(())).await;
        cluster.propose("four").await;
        cluster.stop(victim).await;
        let again = ControlGroup::start(cluster.config(victim), Ledger::default()).await.expect_err("refused");
        assert!(again.to_string().contains("older copy of itself"), "{again}");
    }
    cluster.end().await;
    is_forgotten
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_back_over_an_older_copy_of_its_disk_is_told_by_the_leader_and_takes_no_part() {
    // Leaders are replaced when the machine pauses.
    for _ in 0..5 {
        if is_told_of_an_older_copy().await {
            return;
        }
    }
    panic!("another replica led each time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_far_behind_catches_up_by_snapshot() {
    // Phase 1: two of three go on while the log is compacted.
    let mut cluster = Cluster::start(3, SnapshotEvery { entries: 20, entries_kept: 0 }).await;
    cluster.propose("before").await;
    cluster.all_have("before").await;
    let leader = cluster.leader().await;
    let late = *cluster.running.keys().find(|id| **id != leader).expect("a follower");
    cluster.stop(late).await;
    for count in 0..100 {
        cluster.propose(&format!("meanwhile {count}")).await;
    }

    // Phase 2: the late one needs a snapshot to catch up.
    cluster.restart(late).await;
    cluster.propose("after").await;
    cluster.all_have("after").await;
    let leader = cluster.leader().await;
    assert_eq!(cluster.running[&late].ledger.lines(), cluster.running[&leader].ledger.lines());
    let snapshots = std::fs::read_dir(cluster.dir(late).join("snapshots")).expect("directory").count();
    assert!(snapshots > 0, "the late replica keeps the snapshot it was sent");

    // Phase 3: it starts from that snapshot.
    cluster.stop(late).await;
    cluster.restart(late).await;
    cluster.propose("again").await;
    cluster.all_have("again").await;
    assert_eq!(cluster.running[&late].ledger.lines()[0], "before");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_handed_over_and_members_change_while_serving() {
    let mut cluster = Cluster::start(3, SnapshotEvery::default()).await;
    cluster.propose("one").await;
    cluster.all_have("one").await;

    // Phase 1: a planned hand-over.
    let first = cluster.leader().await;
    let next = *cluster.running.keys().find(|id| **id != first).expect("a follower");
    cluster.running[&first].group.transfer_leader(next).await.expect("asked");
    until("the chosen one leads", || async {
        let leader = cluster.leader().await;
        if leader != next {
            // On an overloaded machine the campaign may fail or the third one may win; then try again.
            cluster.running[&leader].group.transfer_leader(next).await.expect("asked");
        }
        (leader == next).then_some(())
    })
    .await;

    // Phase 2: a fourth replica learns, then votes. Until it answers, it does not count as caught up.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("address");
    let mut config = cluster.config(node(4));
    config.voters = BTreeMap::new();
    let leader = cluster.leader().await;
    let group = cluster.running[&leader].group.clone();
    let learns = tokio::spawn({
        let group = group.clone();
        async move { group.add_learner(node(4), address.to_string()).await }
    });
    until("it is in the group", || async { group.members().addresses.contains_key(&node(4)).then_some(()) }).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!learns.is_finished(), "it has not answered yet");
    cluster.running.insert(node(4), Replica::start(config, listener).await);
    learns.await.expect("no panic").expect("learns");
    group.change_voters(BTreeSet::from([node(1), node(2), node(3), node(4)])).await.expect("votes");
    cluster.propose("two").await;
    cluster.all_have("two").await;

    // Phase 3: an old replica leaves for good.
    let leader = cluster.leader().await;
    let leaving = *cluster.running.keys().find(|id| **id != leader && **id != node(4)).expect("a follower");
    let staying: BTreeSet<_> = cluster.running.keys().copied().filter(|id| *id != leaving).collect();
    cluster.running[&leader].group.change_voters(staying).await.expect("leaves");
    cluster.stop(leaving).await;
    cluster.propose("three").await;
    cluster.all_have("three").await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_refused() {
    let cluster = Cluster::start(1, SnapshotEvery::default()).await;
    cluster.propose("ours").await;

    // Phase 1: a replica of another cluster, connected by mistake, is refused and gets no quorum.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let own = listener.local_addr().expect("address").to_string();
    let ours = cluster.addresses[&node(1)].to_string();
    let dir = TempDir::new().expect("temporary directory");
    let voters = BTreeMap::from([(node(1), ours.clone()), (node(2), own.clone())]);
    let mut config = GroupConfig::new("green", node(2), voters, dir.path().to_owned());
    config.timing = Timing::relaxed();
    config.engine = Engine::Memory;
    config.on_disk_error = OnDiskError::Stop;
    let stranger = Replica::start(config, listener).await;
    assert_eq!(stranger.group.propose(b"theirs".to_vec()).await, Err(ProposeError::NotLeader { leader: None }));

    // Phase 2: the refusal names the addressed and the actual cluster.
    let mut client = client::raft_client::RaftClient::connect(format!("http://{ours}")).await.expect("connects");
    let envelope = |cluster: &str, to| Some(client::RaftEnvelope { format: 3, cluster: cluster.into(), from: 2, to });
    let vote = Some(client::RaftVote { term: 1 << 40, node: 2, committed: false });
    let ask = |envelope| client::RaftVoteRequest { envelope, vote, last_log: None, leadership_transfer: true };
    let status = client.vote(ask(envelope("green", 1))).await.expect_err("refused");
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    assert!(status.message().contains("\"green\"") && status.message().contains("\"blue\""), "{}", status.message());
    let status = client.vote(ask(envelope("blue", 7))).await.expect_err("refused");
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    assert!(status.message().contains("node 7"), "{}", status.message());
    let older = envelope("blue", 1).map(|envelope| client::RaftEnvelope { format: 1, ..envelope });
    let status = client.vote(ask(older)).await.expect_err("refused");
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    assert!(status.message().contains("run the same release"), "{}", status.message());
    let status = client.vote(ask(None)).await.expect_err("refused");
    assert_eq!(status.code(), tonic::Code::InvalidArgument);

    // Phase 3: none of it moved our term.
    let group = &cluster.running[&node(1)].group;
    assert!(group.leadership().borrow().is_leader && group.leadership().borrow().term < 1 << 40);
    assert_eq!(cluster.running[&node(1)].ledger.lines(), ["ours"]);
    stranger.stop().await;

    // Phase 4: a disk does not change its owner either.
    let dir = cluster.dir(node(1));
    cluster.running[&node(1)].group.shutdown().await;
    let thief = GroupConfig::new("green", node(1), BTreeMap::new(), dir);
    let refused = ControlGroup::start(thief, Ledger::default()).await.expect_err("refused");
    assert!(matches!(refused, StartError::ForeignDisk { found_node: 1, .. }), "{refused}");
    cluster.end().await;
}

/// The wire format as a stranger would build it.
#[allow(missing_docs, unreachable_pub, clippy::all, missing_debug_implementations, dead_code)]
mod client {
    tonic::include_proto!("symphony.v1");
}
