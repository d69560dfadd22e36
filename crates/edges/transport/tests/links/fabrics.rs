//! Carriers of a link where there is a fabric beside shared memory: which one is preferred, what becomes of a link
//! whose carrier is unavailable, and of peers that break the rules.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use symphony_net::{Carrier, CarrierPreference, Carriers, Rings, Role};
use symphony_protocol::Echo;
use symphony_protocol::carrier::{CarrierMessage, CarrierOffer};
use symphony_protocol::data::{RdmaEndpoint, SharingOffer, SharingSecret};
use symphony_protocol::dispatch::ToFrontend;
use symphony_transport::{LinkError, link_over};
use symphony_types::Level;
use tokio::io::AsyncWriteExt as _;

use crate::pipes::{Device, Network};
use crate::promises::{SOON, message};
use crate::subjects::{
    Accepted, Dialled, Scene, connect, from_wire, next_carrier_message, receive_carrier_message, to_wire, write,
};

const MESSAGES: u64 = 200;

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("nobody hangs")
}

fn rings() -> Option<Rings> {
    Some(Rings::start(Duration::ZERO).unwrap())
}

fn preference(required: bool) -> CarrierPreference {
    CarrierPreference { expected: required, required }
}

/// Uses a link for longer than it takes to change over. Says what carried it in the end, at both ends; every message
/// arrives.
async fn used(dials: Carriers, accepts: Carriers, secured: bool) -> [Carrier; 2] {
    let mut scene = Scene::with(secured, dials, accepts).await;
    let connection = async { scene.incoming.next().await.unwrap() };
    let (dialled, connection) = tokio::join!(connect(&scene.dials, &scene.addr), connection);
    let (sender, mut receiver) = dialled.unwrap();
    let (_back, mut other): Accepted = link_over(connection);
    let accepts = scene.accepts.clone();
    let receiving = tokio::spawn(async move {
        for number in 0..MESSAGES {
            assert_eq!(other.receive().await.unwrap().message, message(number));
        }
        // The other end looks before it goes.
        tokio::select! {
            end = other.receive() => panic!("{end:?}"),
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
        accepts.links()[0].carrier
    });
    for number in 0..MESSAGES {
        sender.send(message(number)).unwrap();
        // An unreachable end takes half a second.
        let pause = if number > 40 { 5 } else { 1 };
        tokio::select! {
            frame = receiver.receive() => panic!("{frame:?}"),
            () = tokio::time::sleep(Duration::from_millis(pause)) => {}
        }
    }
    let there = soon(async {
        tokio::select! {
            frame = receiver.receive() => panic!("{frame:?}"),
            there = receiving => there.unwrap(),
        }
    });
    let there = there.await;
    [scene.dials.carriers().links()[0].carrier, there]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_the_host_comes_first_and_the_fabric_next() {
    let network = Arc::<Network>::default();
    let fabric = || Some(network.device(Device::Works));
    let both = || Carriers::new(rings(), fabric(), preference(false));
    assert_eq!(used(both(), both(), true).await, [Carrier::SharedMemory; 2]);
    // As between hosts: one of them has no memory that the other can reach.
    let only = || Carriers::new(None, fabric(), preference(false));
    assert_eq!(used(both(), only(), true).await, [Carrier::Rdma; 2]);
    assert_eq!(used(only(), both(), true).await, [Carrier::Rdma; 2]);
    assert_eq!(used(only(), Carriers::new(rings(), None, preference(false)), true).await, [Carrier::Tcp; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fabric_is_for_those_who_have_shown_who_they_are() {
    let network = Arc::<Network>::default();
    let only = || Carriers::new(None, Some(network.device(Device::Works)), preference(false));
    assert_eq!(used(only(), only(), false).await, [Carrier::Tcp; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_had_leaves_the_link_on_its_connection() {
    for [dials, accepts] in
        [[Device::Vanishes, Device::Works], [Device::Full, Device::Works], [Device::Works, Device::Full]]
    {
        let network = Arc::<Network>::default();
        let carriers = |device| Carriers::new(None, Some(network.device(device)), preference(false));
        let (dialling, accepting) = (carriers(dials), carriers(accepts));
        assert_eq!(used(dialling.clone(), accepting.clone(), true).await, [Carrier::Tcp; 2], "{dials:?} {accepts:?}");
        assert_eq!((dialling.refusals(), accepting.refusals()), (1, 1), "{dials:?} {accepts:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_it_is_required_and_cannot_be_had_there_is_no_link() {
    for ([dials, accepts], secured, reason) in [
        ([Device::Vanishes, Device::Works], true, "no answer by RDMA within 500 ms"),
        ([Device::Full, Device::Works], true, "there is no room"),
        ([Device::Works, Device::Full], true, "the peer has nothing else"),
        ([Device::Works, Device::Works], false, "this process has none with that peer"),
    ] {
        let network = Arc::<Network>::default();
        let carriers = |device| Carriers::new(None, Some(network.device(device)), preference(true));
        let mut scene = Scene::with(secured, carriers(dials), carriers(accepts)).await;
        let accepting = async {
            let (_sender, mut receiver): Accepted = link_over(scene.incoming.next().await.unwrap());
            receiver.receive().await.unwrap_err()
        };
        let dialling = connect(&scene.dials, &scene.addr);
        let (connected, _) = soon(async { tokio::join!(dialling, accepting) }).await;
        let error = connected.unwrap_err().to_string();
        assert!(error.contains("frames.required") && error.contains(reason), "{error}");
    }
}

#[tokio::test]
async fn whoever_requires_it_takes_no_message_from_one_who_has_none() {
    let network = Arc::<Network>::default();
    let accepts = Carriers::new(None, Some(network.device(Device::Works)), preference(true));
    let mut scene = Scene::with(true, Carriers::default(), accepts).await;
    let connection = async { scene.incoming.next().await.unwrap() };
    let dialling = connect(&scene.dials, &scene.addr);
    let (dialled, connection) = tokio::join!(dialling, connection);
    let ((sender, mut receiver_there), (_back, mut receiver)): (Dialled, Accepted) =
        (dialled.unwrap(), link_over(connection));
    sender.send(message(1)).unwrap();
    assert!(matches!(soon(receiver.receive()).await, Err(LinkError::OnlyTcp { .. })));
    drop(_back);
    assert!(matches!(soon(receiver_there.receive()).await, Err(LinkError::OnlyTcp { .. })));
}

/// An address without a listener.
fn nowhere() -> SharingOffer {
    SharingOffer { name: "symphony-nowhere".into(), secret: SharingSecret([7; 32]) }
}

#[tokio::test]
async fn who_cannot_take_memory_up_joins_the_fabric_and_stays_where_it_is_if_that_is_refused() {
    let network = Arc::<Network>::default();
    let dials = Carriers::new(rings(), Some(network.device(Device::Works)), preference(false));
    let mut scene = Scene::with(true, dials, Carriers::default()).await;
    let (sender, mut receiver) = connect(&scene.dials, &scene.addr).await.unwrap();
    let mut connection = scene.incoming.next().await.unwrap();
    let hearing = tokio::spawn(async move { receiver.receive().await.map(|frame| frame.message) });
    for number in 0..32 {
        sender.send(message(number)).unwrap();
    }
    let negotiation = async {
        // The messages before it are skipped.
        let carrier_message = loop {
            if let Some(carrier_message) = next_carrier_message(&mut connection).await {
                break carrier_message;
            }
        };
        assert_eq!(carrier_message, CarrierMessage::Ask);
        write(&mut connection, &CarrierMessage::Offer(CarrierOffer { sharing: Some(nowhere()), rdma: true })).await;
        let CarrierMessage::Join(_) = receive_carrier_message(&mut connection).await else { panic!() };
        write(&mut connection, &CarrierMessage::Refuse).await;
    };
    soon(negotiation).await;
    let (back, mut rest): Accepted = link_over(connection);
    sender.send(message(99)).unwrap();
    assert_eq!(soon(rest.receive()).await.unwrap().message, message(99));
    back.send(ToFrontend::Suspended).unwrap();
    assert_eq!(soon(hearing).await.unwrap().unwrap(), ToFrontend::Suspended);
    assert_eq!(scene.dials.carriers().refusals(), 1);
}

/// The dialled end may send an echo request while the two still negotiate the carrier.
#[tokio::test]
async fn a_question_before_the_first_message_is_answered_and_is_no_message() {
    let network = Arc::<Network>::default();
    let dials = Carriers::new(None, Some(network.device(Device::Works)), preference(true));
    let mut scene = Scene::with(true, dials, Carriers::default()).await;
    let accepting = async {
        let mut connection = scene.incoming.next().await.unwrap();
        assert_eq!(receive_carrier_message(&mut connection).await, CarrierMessage::Ask);
        let mut question = BytesMut::new();
        Echo::Ask(7).encode(Level::NEWEST, &mut question);
        connection.write_all(&question).await.unwrap();
        write(&mut connection, &CarrierMessage::Offer(CarrierOffer { sharing: None, rdma: true })).await;
        // The answer may come before it.
        let theirs = loop {
            if let Some(CarrierMessage::Join(theirs)) = next_carrier_message(&mut connection).await {
                break theirs;
            }
        };
        let end = network.device(Device::Works).begin().unwrap();
        let mine = to_wire(end.endpoint());
        let (reader, mut writer) = end.join(from_wire(theirs)).unwrap();
        write(&mut connection, &CarrierMessage::Joined(mine)).await;
        while next_carrier_message(&mut connection).await != Some(CarrierMessage::Switch) {}
        write(&mut connection, &CarrierMessage::Switch).await;
        write(&mut writer, &ToFrontend::Suspended).await;
        (connection, reader, writer)
    };
    let dialling = async {
        let (_sender, mut receiver) = connect(&scene.dials, &scene.addr).await.unwrap();
        assert_eq!(receiver.receive().await.unwrap().message, ToFrontend::Suspended);
    };
    let _ = soon(async { tokio::join!(accepting, dialling) }).await;
}

/// As when the other process is killed, and its device does not say so.
#[tokio::test]
async fn a_connection_that_ends_takes_both_directions_with_it_after_what_had_come() {
    let network = Arc::<Network>::default();
    let carriers = || Carriers::new(None, Some(network.device(Device::Works)), preference(false));
    let mut scene = Scene::with(true, carriers(), carriers()).await;
    let role = Role::Scheduler.into();
    let (dialled, accepted) = tokio::join!(scene.dials.dial(&scene.addr, &role), scene.incoming.next());
    let (mut connection, (back, mut receiver)): (_, Accepted) = (dialled.unwrap(), link_over(accepted.unwrap()));
    let (switched, flooded) = (tokio::sync::Notify::new(), tokio::sync::Notify::new());
    let bare = async {
        write(&mut connection, &CarrierMessage::Ask).await;
        let _ = receive_carrier_message(&mut connection).await;
        let end = scene.dials.carriers().fabric_with(connection.peer()).unwrap().begin().unwrap();
        write(&mut connection, &CarrierMessage::Join(to_wire(end.endpoint()))).await;
        let CarrierMessage::Joined(theirs) = receive_carrier_message(&mut connection).await else { panic!() };
        let (reader, mut writer) = end.join(from_wire(theirs)).unwrap();
        write(&mut connection, &CarrierMessage::Switch).await;
        for number in 0..20 {
            write(&mut writer, &message(number)).await;
        }
        assert_eq!(receive_carrier_message(&mut connection).await, CarrierMessage::Switch);
        switched.notify_one();
        flooded.notified().await;
        for number in 20..40 {
            write(&mut writer, &message(number)).await;
        }
        drop(connection);
        (reader, writer)
    };
    let receiving = async {
        for number in 0..40 {
            assert_eq!(receiver.receive().await.unwrap().message, message(number));
            if number == 10 {
                switched.notified().await;
                // More than there is room for, and the other end does not read.
                for _ in 0..100 {
                    back.send_with(ToFrontend::Suspended, vec![vec![7; 10_000].into()]).unwrap();
                }
                flooded.notify_one();
            }
        }
        receiver.receive().await.unwrap_err()
    };
    let (_kept, end) = soon(async { tokio::join!(bare, receiving) }).await;
    assert!(matches!(end, LinkError::Closed { .. }), "{end}");
    soon(back.written()).await;
    assert!(back.is_closed());
}

/// Messages that break the protocol, from the dialling end.
#[tokio::test]
async fn carrier_messages_out_of_turn_end_the_link() {
    let endpoint = RdmaEndpoint { queue_pair: 77, first_packet: 0, mtu: 1, lid: 1, gid: [0; 16] };
    for messages in [
        vec![CarrierMessage::Join(endpoint)],
        vec![CarrierMessage::Switch],
        vec![CarrierMessage::Ask, CarrierMessage::Switch],
        vec![CarrierMessage::Ask, CarrierMessage::Ask],
        vec![CarrierMessage::Ask, CarrierMessage::Joined(endpoint)],
        vec![CarrierMessage::Ask, CarrierMessage::Join(endpoint), CarrierMessage::Join(endpoint)],
        vec![CarrierMessage::Ask, CarrierMessage::Join(endpoint), CarrierMessage::Decline, CarrierMessage::Switch],
        vec![CarrierMessage::Offer(CarrierOffer::default())],
        vec![CarrierMessage::Refuse],
        vec![CarrierMessage::Required],
    ] {
        let network = Arc::<Network>::default();
        let carriers = || Carriers::new(None, Some(network.device(Device::Works)), preference(false));
        let mut scene = Scene::with(true, carriers(), carriers()).await;
        let role = Role::Scheduler.into();
        let (dialled, accepted) = tokio::join!(scene.dials.dial(&scene.addr, &role), scene.incoming.next());
        let (mut connection, (_back, mut receiver)): (_, Accepted) = (dialled.unwrap(), link_over(accepted.unwrap()));
        for message in &messages {
            write(&mut connection, message).await;
        }
        let error = soon(receiver.receive()).await.unwrap_err().to_string();
        assert!(error.contains("a carrier message out of turn"), "{messages:?}: {error}");
    }
}

/// An end that it cannot connect to, and one that does not fit to what was said.
#[tokio::test]
async fn an_impossible_end_is_refused_and_messages_pass_all_the_same() {
    let network = Arc::<Network>::default();
    let carriers = || Carriers::new(None, Some(network.device(Device::Works)), preference(false));
    let mut scene = Scene::with(true, carriers(), carriers()).await;
    let role = Role::Scheduler.into();
    let (dialled, accepted) = tokio::join!(scene.dials.dial(&scene.addr, &role), scene.incoming.next());
    let (mut connection, (_back, mut receiver)): (_, Accepted) = (dialled.unwrap(), link_over(accepted.unwrap()));
    let receiving = tokio::spawn(async move { receiver.receive().await.map(|frame| frame.message) });
    write(&mut connection, &CarrierMessage::Ask).await;
    assert_eq!(
        soon(receive_carrier_message(&mut connection)).await,
        CarrierMessage::Offer(CarrierOffer { sharing: None, rdma: true })
    );
    let end = scene.dials.carriers().fabric_with(connection.peer()).unwrap().begin().unwrap();
    let impossible = RdmaEndpoint { queue_pair: u32::MAX, ..to_wire(end.endpoint()) };
    write(&mut connection, &CarrierMessage::Join(impossible)).await;
    assert_eq!(soon(receive_carrier_message(&mut connection)).await, CarrierMessage::Refuse);
    write(&mut connection, &message(5)).await;
    assert_eq!(soon(receiving).await.unwrap().unwrap(), message(5));
    assert_eq!(scene.accepts.refusals(), 1);
}
