//! Links that end, return, get stuck, or carry too much.

use std::time::Duration;

use symphony_cluster_state::LeadReport;
use symphony_protocol::dispatch::{ANNOUNCED_REQUESTS_MAX, RequestHeader, ToLeader};
use symphony_protocol::view::View;
use symphony_types::{Nanos, NodeId};
use tokio::net::TcpListener;

use super::backend::{Backend, sequences};
use super::frontend::{Frontend, header};
use super::scene::Scene;
use super::{BACKEND, BACKEND_BOOT, SUBCLUSTER, TOKEN, soon};

#[tokio::test]
async fn a_lead_whose_links_move_no_more_is_offered_to_the_others_and_goes_on() {
    let standbys = |view: &mut View| {
        view.subclusters.entry(SUBCLUSTER).and_modify(|s| s.standbys = vec![NodeId::new(2)]);
    };
    let mut scene = Scene::impatient(Duration::from_secs(1), standbys).await;
    let (backend, frontend) = (scene.sealed().await, scene.frontend().await);
    let (Backend { sender: to_leader, mut receiver }, Frontend { sender, receiver: mut outcomes }) =
        (backend, frontend);
    let both = tokio::spawn(async move { tokio::join!(receiver.receive(), outcomes.receive()) });
    // Both are asked a few times and answer; no other traffic shows that they work. Then the peers stop reading, and
    // both links stay up.
    tokio::time::sleep(Duration::from_secs(1)).await;
    both.abort();
    // It cannot tell whether the backend is down, and does not report it.
    for _ in 0..2 {
        let report = soon("report", scene.reports.recv()).await;
        assert_eq!(report, Some(LeadReport::CutOff { subcluster: SUBCLUSTER, token: TOKEN }));
    }
    assert_eq!(scene.runtime.status().len(), 1, "it leads until somebody else does");
    drop((to_leader, sender));
}

#[tokio::test]
async fn a_frontend_that_sends_frames_of_too_many_requests_loses_its_link() {
    let scene = Scene::new().await;
    let _backend = scene.sealed().await;
    let many = ANNOUNCED_REQUESTS_MAX as u64;
    let mut frontend = scene.frontend().await;
    frontend.sender.send(ToLeader::Cancel { requests: (0..many).map(|sequence| (sequence, 1)).collect() }).unwrap();
    frontend.announce(&(0..=many).map(|sequence| header(sequence, 1)).collect::<Vec<_>>());
    frontend.closed().await;
    let mut frontend = scene.frontend().await;
    frontend.sender.send(ToLeader::Cancel { requests: (0..=many).map(|sequence| (sequence, 1)).collect() }).unwrap();
    frontend.closed().await;
}

#[tokio::test]
async fn a_frontend_that_links_again_announces_again_and_nothing_runs_twice() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(2).await;
    let first = scene.frontend().await;
    first.announce(&[header(1, 2)]);
    // The second link comes before the end of the first is reported, which must not remove the second link's requests.
    let second = scene.frontend().await;
    second.redrive(&[RequestHeader { budget: Nanos::from_millis(2_000).get(), ..header(1, 2) }]);
    drop(first);
    assert_eq!(sequences(&backend.plan().await), [1]);
}

#[tokio::test]
async fn a_backend_that_stays_away_is_reported_again_and_again() {
    let mut scene = Scene::new().await;
    drop(std::mem::replace(&mut scene.backends, TcpListener::bind("127.0.0.1:0").await.unwrap()));
    for _ in 0..2 {
        let report = soon("report", scene.reports.recv()).await;
        assert_eq!(report, Some(LeadReport::BackendDown(BACKEND, BACKEND_BOOT)));
    }
}

#[tokio::test]
async fn a_backend_that_answers_no_more_is_reported_and_what_it_had_runs_elsewhere() {
    let mut scene = Scene::impatient(Duration::from_millis(100), |_| {}).await;
    let mut backend = scene.sealed().await;
    scene.served(2).await;
    let Frontend { sender, mut receiver } = scene.frontend().await;
    sender.send(ToLeader::Announce { token: TOKEN, requests: vec![header(1, 1)] }).unwrap();
    let listens = tokio::spawn(async move { while receiver.receive().await.is_ok() {} });
    assert_eq!(sequences(&backend.plan().await), [1]);
    // It no longer reads, but its connection stays up; the system still accepts further ones for it.
    let report = soon("report", scene.reports.recv()).await;
    assert_eq!(report, Some(LeadReport::BackendDown(BACKEND, BACKEND_BOOT)));
    scene.until("the request waits again", |scene| scene.counter("requeued_requests") == 1).await;
    listens.abort();
}
