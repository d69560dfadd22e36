//! Processes that require shared memory, that only want it, and that do not.

use std::time::Duration;

use symphony_net::{Carrier, CarrierPreference, Carriers, Rings};
use symphony_protocol::dispatch::ToFrontend;
use symphony_transport::{LinkError, link_over};
use symphony_types::Token;

use crate::promises::{SOON, message};
use crate::subjects::{Accepted, Scene, connect};

fn sharing(required: bool) -> Carriers {
    let preference = CarrierPreference { expected: required, required };
    Carriers::new(Some(Rings::start(Duration::ZERO).unwrap()), None, preference)
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("nobody hangs")
}

/// Accepts links and receives until each ends; says what came, and why the last one ended.
async fn accept(scene: &mut Scene) -> (u64, LinkError) {
    let (_sender, mut receiver): Accepted = link_over(scene.incoming.next().await.unwrap());
    let mut came = 0;
    loop {
        match receiver.receive().await {
            Ok(_) => came += 1,
            Err(error) => return (came, error),
        }
    }
}

#[tokio::test]
async fn a_link_that_is_used_changes_over_and_one_that_is_not_does_not() {
    let mut scene = Scene::with(true, sharing(false), sharing(false)).await;
    let (net, addr) = (scene.dials.clone(), scene.addr.clone());
    let dialled = net.carriers().clone();
    let using = tokio::spawn(async move {
        let (sender, mut receiver) = connect(&net, &addr).await.unwrap();
        for number in 0..20 {
            sender.send(message(number)).unwrap();
        }
        for _ in 0..50 {
            tokio::select! {
                frame = receiver.receive() => panic!("{frame:?}"),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        }
        assert_eq!(net.carriers().links()[0].carrier, Carrier::Tcp, "it is hardly used");
        let mut number = 20;
        while net.carriers().links()[0].carrier == Carrier::Tcp {
            sender.send(message(number)).unwrap();
            number += 1;
            tokio::select! {
                frame = receiver.receive() => panic!("{frame:?}"),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        }
        sender.send(message(number)).unwrap();
        number + 1
    });
    let (came, end) = soon(accept(&mut scene)).await;
    assert_eq!(came, soon(using).await.unwrap());
    assert!(matches!(end, LinkError::Closed { .. }), "{end}");
    assert_eq!((dialled.refusals(), scene.accepts.refusals()), (0, 0));
    assert!(dialled.links().is_empty() && scene.accepts.links().is_empty(), "closed links are not listed");
}

#[tokio::test]
async fn whoever_requires_it_speaks_to_nobody_without() {
    for accepts in [Carriers::default(), Carriers::new(None, None, CarrierPreference::default())] {
        let mut scene = Scene::with(true, sharing(true), accepts).await;
        let (net, addr) = (scene.dials.clone(), scene.addr.clone());
        let (connected, (came, _)) = soon(async { tokio::join!(connect(&net, &addr), accept(&mut scene)) }).await;
        let error = connected.unwrap_err().to_string();
        assert!(error.contains("frames.required") && error.contains("frames.transport"), "{error}");
        assert_eq!((came, net.carriers().refusals()), (0, 1));
    }
}

/// Backends greet every process that dials them.
#[tokio::test]
async fn what_the_other_end_says_before_it_is_asked_is_not_lost() {
    let mut scene = Scene::with(true, sharing(true), sharing(false)).await;
    let (net, addr) = (scene.dials.clone(), scene.addr.clone());
    let accepting = async {
        let (sender, mut receiver): Accepted = link_over(scene.incoming.next().await.unwrap());
        for number in 1..4 {
            sender.send(ToFrontend::Welcome { token: Token::new(number) }).unwrap();
        }
        let frame = receiver.receive().await.unwrap();
        sender.send(ToFrontend::Welcome { token: Token::new(4) }).unwrap();
        (frame.message, sender, receiver)
    };
    let dialling = async {
        let (sender, mut receiver) = connect(&net, &addr).await.unwrap();
        assert_eq!(net.carriers().links()[0].carrier, Carrier::SharedMemory);
        sender.send(message(1)).unwrap();
        for number in 1..5 {
            let came = receiver.receive().await.unwrap().message;
            assert_eq!(came, ToFrontend::Welcome { token: Token::new(number) });
        }
    };
    let ((came, ..), ()) = soon(async { tokio::join!(accepting, dialling) }).await;
    assert_eq!(came, message(1));
}

#[tokio::test]
async fn whoever_is_dialled_and_requires_it_takes_no_message_without() {
    for (dials, shares) in [(sharing(false), true), (Carriers::default(), false)] {
        let mut scene = Scene::with(true, dials, sharing(true)).await;
        let (net, addr) = (scene.dials.clone(), scene.addr.clone());
        let first = async {
            let (sender, mut receiver) = connect(&net, &addr).await.unwrap();
            sender.send(message(1)).unwrap();
            receiver.receive().await.unwrap_err()
        };
        let (error, (came, refused)) = soon(async { tokio::join!(first, accept(&mut scene)) }).await;
        assert!(matches!(error, LinkError::OnlyTcp { .. }), "{error}");
        assert!(matches!(refused, LinkError::OnlyTcp { .. }), "{refused}");
        assert_eq!((came, scene.accepts.refusals()), (0, 1));
        if shares {
            // Now it is known, and the next link begins with it.
            let again = async {
                let (sender, _receiver) = connect(&net, &addr).await.unwrap();
                sender.send(message(1)).unwrap();
                sender.close();
                sender.written().await;
            };
            let ((), (came, end)) = soon(async { tokio::join!(again, accept(&mut scene)) }).await;
            assert_eq!(came, 1);
            assert!(matches!(end, LinkError::Closed { .. }), "{end}");
        }
    }
}

#[tokio::test]
async fn a_peer_that_required_it_once_is_asked_again_whether_it_still_does() {
    let accepts = Carriers::new(None, None, CarrierPreference::default());
    let mut scene = Scene::with(true, sharing(false), accepts).await;
    let (net, addr) = (scene.dials.clone(), scene.addr.clone());
    // As it was before it was started again, with another configuration.
    net.carriers().is_required_by(&format!("scheduler 1 at {addr}"));
    let (first, (came, _)) = soon(async { tokio::join!(connect(&net, &addr), accept(&mut scene)) }).await;
    assert!(matches!(first.unwrap_err(), LinkError::OnlyTcp { .. }));
    assert_eq!(came, 0);
    let again = async {
        let (sender, _receiver) = connect(&net, &addr).await.expect("neither of the two requires anything");
        sender.send(message(1)).unwrap();
        sender.close();
        sender.written().await;
    };
    let ((), (came, end)) = soon(async { tokio::join!(again, accept(&mut scene)) }).await;
    assert_eq!(came, 1);
    assert!(matches!(end, LinkError::Closed { .. }), "{end}");
}

#[tokio::test]
async fn where_an_address_leads_elsewhere_frames_go_there_unless_memory_is_asked_for_by_name() {
    for by_name in [false, true] {
        let preference = CarrierPreference { expected: by_name, required: false };
        let dials = Carriers::new(Some(Rings::start(Duration::ZERO).unwrap()), None, preference);
        let mut scene = Scene::with(true, dials, sharing(false)).await;
        let routes = [("leader:1".to_owned(), scene.addr.clone())].into();
        let net = scene.dials.clone().routed(routes);
        let using = async {
            let (sender, mut receiver) = connect(&net, "leader:1").await.unwrap();
            for number in 0..200 {
                sender.send(message(number)).unwrap();
                tokio::select! {
                    frame = receiver.receive() => panic!("{frame:?}"),
                    () = tokio::time::sleep(Duration::from_micros(500)) => {}
                }
            }
            net.carriers().links()[0].carrier
        };
        let (carrier, (came, _)) = soon(async { tokio::join!(using, accept(&mut scene)) }).await;
        assert_eq!(carrier, if by_name { Carrier::SharedMemory } else { Carrier::Tcp });
        assert_eq!(came, 200);
    }
}
