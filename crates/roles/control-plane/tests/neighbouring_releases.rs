//! A control group of one release becomes one of the next, replica by replica.

use symphony_net::ClusterLevel;
use symphony_protocol::control as pb;
use symphony_types::{Level, NodeId};
use tonic::Code;

use crate::scene::{Cluster, backend, steady};

/// Asks until the answer has these words: the leader learns what the others know by their heartbeats.
async fn refused(cluster: &Cluster, at: u64, words: &[&str]) {
    let mut client = cluster.client(at).await;
    for attempt in 1.. {
        let message = match client.raise_level(pb::RaiseLevelRequest::default()).await {
            Err(status) if [Code::FailedPrecondition, Code::Unavailable].contains(&status.code()) => {
                status.message().to_owned()
            }
            answered => panic!("it was to be refused: {answered:?}"),
        };
        if words.iter().all(|word| message.contains(word)) {
            return;
        }
        assert!(attempt < 600, "`{message}` lacks one of {words:?}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

async fn comes_back(cluster: &mut Cluster, id: u64, boot: u64, newest: Level) {
    cluster.newest = newest;
    cluster.restart(id, boot).await;
    cluster.all_see("it is up again", |view| view.nodes[&NodeId::new(id)].boot.is_some_and(|b| b.get() == boot)).await;
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_level_is_raised_when_every_replica_knows_it_and_not_before() {
    let (old, new) = (Level::OLDEST, Level::NEWEST);
    let mut cluster = Cluster::start_of(old, 3, steady()).await;
    let leader = cluster.settled().await;
    cluster.all_see("a cluster of the release before", |view| view.level == old).await;

    eprintln!("phase: the others are replaced, and {leader} stops: one of them leads");
    for id in (1..=3).filter(|id| *id != leader) {
        cluster.stop(id).await;
        comes_back(&mut cluster, id, id * 10 + 1, new).await;
    }
    // If the new ones elect each other meanwhile, it is the same to the rest of the story.
    cluster.stop(leader).await;
    let one = cluster.other_than(&[leader]);
    cluster.sees(one, "another leader", |view| view.control_leader.is_some_and(|n| n.get() != leader)).await;

    eprintln!("phase: a replica that is down, and then one that is older, keep the level where it is");
    let name = format!("scheduler n{leader}");
    refused(&cluster, one, &[name.as_str(), "is down"]).await;
    comes_back(&mut cluster, leader, leader * 10 + 1, old).await;
    refused(&cluster, one, &[name.as_str(), "knows level 2"]).await;
    cluster.all_see("no new level", |view| view.level == old).await;

    eprintln!("phase: it is replaced, too; whoever is asked raises the level");
    cluster.stop(leader).await;
    comes_back(&mut cluster, leader, leader * 10 + 2, new).await;
    let client = cluster.client(leader).await;
    let raised = async {
        loop {
            match client.clone().raise_level(pb::RaiseLevelRequest::default()).await {
                Ok(reply) => break reply.into_inner().level,
                Err(status) => eprintln!("again, because {}", status.message()),
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let raised = tokio::time::timeout(std::time::Duration::from_secs(60), raised).await;
    assert_eq!(raised, Ok(new.get().into()));
    cluster.all_see("the new level", |view| view.level == new).await;

    eprintln!("phase: a backend of the release before is refused, one of this release is not");
    let mut client = cluster.client(one).await;
    let older = pb::RegisterBackendRequest { level: 0, ..backend("b", 77, "s") };
    let status = client.register_backend(older).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("backend `b` knows level 1"), "{status}");
    let reply = client.register_backend(backend("b", 77, "s")).await.unwrap().into_inner();
    assert_eq!(reply.level, u32::from(new.get()));

    eprintln!("phase: so is a frontend of the release before that watches; tools are no part of the cluster");
    let frontend = Some(pb::FrontendBoot { frontend: 1, boot_id: 7 });
    let older = pb::WatchRequest { watcher: "frontend f".to_owned(), frontend, ..Default::default() };
    let Err(status) = client.watch(older.clone()).await else { panic!("it was to be refused") };
    assert!(
        status.code() == Code::FailedPrecondition && status.message().contains("`frontend f` knows level 1"),
        "{status}"
    );
    let cluster_level = ClusterLevel::up_to(old);
    cluster_level.update_by_refusal(&status);
    assert_eq!(cluster_level.known(), Some(new), "so that it ends");
    let tool = pb::WatchRequest { frontend: None, ..older };
    assert!(client.watch(tool).await.is_ok());

    eprintln!("phase: a restart reads the log across the raise");
    cluster.stop(one).await;
    comes_back(&mut cluster, one, one * 10 + 5, new).await;
    cluster.sees(one, "the level and the backend", |view| view.level == new && view.backends.len() == 1).await;
    cluster.stop_all().await;
}
