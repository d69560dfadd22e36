//! The end of a lead: fenced, stopped, or without contact to the control group.

use symphony_net::{Net, Role};
use symphony_protocol::dispatch::{ToFrontend, ToLeader};
use symphony_protocol::view::View;
use symphony_transport::connect_link;
use symphony_types::Token;

use super::frontend::header;
use super::scene::Scene;
use super::{FRONTEND, FRONTEND_BOOT, LATER, OTHER, SUBCLUSTER, TOKEN, soon};

#[tokio::test]
async fn a_fenced_leader_ends_and_lets_its_frontends_go() {
    let scene = Scene::new().await;
    let mut frontend = scene.frontend().await;
    let backend = scene.asked_to_seal().await;
    backend.seal(Token::new(TOKEN.get() + 1), vec![], vec![]);
    frontend.closed().await;
    scene.until("end of the lead", |scene| scene.runtime.status().is_empty()).await;
}

#[tokio::test]
async fn a_runtime_that_stops_lets_its_frontends_go() {
    let scene = Scene::new().await;
    let mut frontend = scene.frontend().await;
    scene.runtime.stop();
    frontend.closed().await;
}

#[tokio::test]
async fn out_of_contact_nothing_is_led_and_in_contact_again_the_same_assignment_is() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    let mut frontend = scene.frontend().await;
    scene.contact.send_replace(false);
    frontend.closed().await;
    assert!(soon("end of the link", backend.receiver.receive()).await.is_err());

    let expected = Role::Scheduler.into();
    let link = connect_link::<ToLeader, ToFrontend>(&Net::plaintext(), &scene.dispatch, &expected).await;
    let (sender, mut receiver) = link.unwrap();
    let (frontend, boot, subcluster) = (FRONTEND, FRONTEND_BOOT, SUBCLUSTER);
    sender.send(ToLeader::Hello { frontend, boot, subcluster, token: TOKEN }).unwrap();
    assert_eq!(soon("refusal", receiver.receive()).await.unwrap().message, ToFrontend::Suspended);

    scene.contact.send_replace(true);
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    frontend.announce(&[header(1, 1)]);
    assert_eq!(backend.plan().await.token, TOKEN);
}

/// Frontends whose leader is gone ask the other replicas.
#[tokio::test]
async fn a_replica_that_does_not_lead_says_whether_it_is_in_contact() {
    let elsewhere = |view: &mut View| {
        view.subclusters.entry(SUBCLUSTER).and_modify(|subcluster| subcluster.leader = Some(OTHER));
    };
    let scene = Scene::with(elsewhere).await;
    let answer_for = async |token| {
        let expected = Role::Scheduler.into();
        let link = connect_link::<ToLeader, ToFrontend>(&Net::plaintext(), &scene.dispatch, &expected).await;
        let (sender, mut receiver) = link.unwrap();
        let (frontend, boot, subcluster) = (FRONTEND, FRONTEND_BOOT, SUBCLUSTER);
        sender.send(ToLeader::Hello { frontend, boot, subcluster, token }).unwrap();
        soon("answer", receiver.receive()).await.unwrap().message
    };
    assert_eq!(answer_for(TOKEN).await, ToFrontend::NotLeader { token: TOKEN });
    scene.contact.send_replace(false);
    assert_eq!(answer_for(TOKEN).await, ToFrontend::Suspended);
    assert_eq!(answer_for(LATER).await, ToFrontend::Suspended, "it has not heard of that one, and will not");
}
