//! Planned hand-overs, seen by the successor and by the leader that is replaced.

use symphony_cluster_state::LeadReport;
use symphony_protocol::execute::{Execute, FromBackend, Refusal};
use symphony_protocol::view::SuccessorView;

use super::backend::sequences;
use super::frontend::header;
use super::scene::Scene;
use super::{LATER, NODE, NODE_BOOT, OTHER, SUBCLUSTER, TOKEN, soon};

#[tokio::test]
async fn a_successor_dials_in_advance_and_seals_the_moment_it_leads() {
    let next = SuccessorView { node: NODE, boot: NODE_BOOT, since: 15 };
    let mut scene = Scene::with(|view| {
        let subcluster = view.subclusters.get_mut(&SUBCLUSTER).unwrap();
        (subcluster.leader, subcluster.successor) = (Some(OTHER), Some(next));
    })
    .await;
    let mut backend = scene.dialled().await;
    let ready = LeadReport::Ready { subcluster: SUBCLUSTER, since: 15 };
    assert_eq!(soon("report", scene.reports.recv()).await, Some(ready));
    backend.says_nothing().await;
    assert!(scene.runtime.status().is_empty(), "another one leads");

    scene.change(|view| {
        let subcluster = view.subclusters.get_mut(&SUBCLUSTER).unwrap();
        (subcluster.leader, subcluster.successor, subcluster.token) = (Some((NODE, NODE_BOOT)), None, LATER);
    });
    backend.asked_to_seal(LATER).await;
}

#[tokio::test]
async fn a_handover_that_is_given_up_lets_the_connections_go() {
    let next = SuccessorView { node: NODE, boot: NODE_BOOT, since: 15 };
    let scene = Scene::with(|view| {
        let subcluster = view.subclusters.get_mut(&SUBCLUSTER).unwrap();
        (subcluster.leader, subcluster.successor) = (Some(OTHER), Some(next));
    })
    .await;
    let mut backend = scene.dialled().await;
    scene.change(|view| view.subclusters.get_mut(&SUBCLUSTER).unwrap().successor = None);
    assert!(soon("end of the link", backend.receiver.receive()).await.is_err());
}

#[tokio::test]
async fn a_leader_that_was_replaced_serves_until_it_is_fenced() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let mut frontend = scene.frontend().await;
    scene.change(|view| {
        let subcluster = view.subclusters.get_mut(&SUBCLUSTER).unwrap();
        (subcluster.leader, subcluster.token) = (Some(OTHER), LATER);
    });
    scene.until("end of the lead for others", |scene| scene.runtime.status().is_empty()).await;
    // The frontend does not know of it yet, and the successor has not sealed.
    frontend.announce(&[header(1, 1)]);
    let plan = backend.plan().await;
    assert_eq!((plan.token, sequences(&plan)), (TOKEN, vec![1]), "under its own token, never under the new one");
    backend.done(&plan);
    frontend.announce(&[header(2, 1)]);
    let Execute { gpu, token, sequence, model, .. } = backend.plan().await;
    let refusal = Refusal::Fenced { promised: LATER };
    backend.sender.send(FromBackend::Refused { gpu, sequence, token, model, refusal }).unwrap();
    frontend.closed().await;
}
