//! The promises, each as a story of one link.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use symphony_protocol::dispatch::{ToFrontend, ToLeader};
use symphony_protocol::{FRAME_BYTES_MAX, Frame, PAYLOAD_BYTES_MAX};
use symphony_transport::{EchoTimes, LINK_FRAMES_MAX, LinkError, Movement, SendError};
use symphony_types::{Level, Token};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;

use crate::subjects::Subject;

/// Nothing takes longer, unless it hangs.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) fn message(number: u64) -> ToLeader {
    ToLeader::Cancel { requests: vec![(number, 0)] }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("nobody hangs")
}

pub(crate) async fn frames_arrive_in_order_with_their_tails<S: Subject>() {
    let ((sender, mut back), (_back, mut receiver)) = S::pair().await;
    // The other direction changes over while this end receives.
    let hearing = tokio::spawn(async move { back.receive().await.map(|_| ()) });
    let length = |number| if number % (500 / S::LESS) == 0 { (3 << 20) / S::LESS } else { number };
    let lengths = (1..=2000 / S::LESS).map(length);
    let sending = tokio::spawn({
        let lengths = lengths.clone();
        async move {
            for (number, length) in (0..).zip(lengths) {
                sender.send_with(message(number), vec![Bytes::from(vec![number as u8; length])]).unwrap();
                if number % 10 == 0 {
                    tokio::time::sleep(Duration::from_micros(200)).await;
                }
            }
        }
    });
    for (number, length) in (0..).zip(lengths) {
        let frame = soon(receiver.receive()).await.unwrap();
        assert_eq!(frame.message, message(number));
        assert_eq!(frame.tail.len(), length);
        assert!(frame.tail == vec![number as u8; length]);
    }
    sending.await.unwrap();
    assert!(matches!(soon(receiver.receive()).await, Err(LinkError::Closed { .. })));
    drop((receiver, _back));
    assert!(soon(hearing).await.unwrap().is_err());
}

pub(crate) async fn the_largest_frame_arrives<S: Subject>() {
    let ((sender, _back_in), (_back, mut receiver)) = S::pair().await;
    let (length, pattern) = (PAYLOAD_BYTES_MAX / S::LESS, Vec::from_iter(0..253_u8));
    let mut tail = pattern.repeat(length.div_ceil(pattern.len()));
    tail.truncate(length);
    let tail = Bytes::from(tail);
    sender.send_with(message(1), vec![tail.clone()]).unwrap();
    sender.send(message(2)).unwrap();
    let frame = soon(receiver.receive()).await.unwrap();
    assert!(frame.message == message(1) && frame.tail == tail);
    assert_eq!(soon(receiver.receive()).await.unwrap().message, message(2));
}

pub(crate) async fn both_directions_at_once_do_not_mix<S: Subject>() {
    let count = 2000 / S::LESS as u64;
    let ((sender, mut receiver), (back, mut other)) = S::pair().await;
    let there = tokio::spawn(async move {
        for number in 0..count {
            sender.send_with(message(number), vec![Bytes::from(vec![1; number as usize % 700])]).unwrap();
            let answer = receiver.receive().await.unwrap().message;
            assert_eq!(answer, ToFrontend::Welcome { token: Token::new(number) });
        }
    });
    for number in 0..count {
        let frame = soon(other.receive()).await.unwrap();
        assert_eq!((frame.message, frame.tail.len()), (message(number), number as usize % 700));
        back.send(ToFrontend::Welcome { token: Token::new(number) }).unwrap();
    }
    soon(there).await.unwrap();
}

pub(crate) async fn a_receive_given_up_at_any_time_loses_nothing<S: Subject>() {
    let count = 500 / S::LESS as u64;
    let ((sender, _receiver), (_back, mut other)) = S::pair().await;
    tokio::spawn(async move {
        for number in 0..count {
            sender.send_with(message(number), vec![Bytes::from(vec![7; 70_000])]).unwrap();
            tokio::task::yield_now().await;
        }
        std::future::pending::<()>().await;
    });
    let mut next = 0;
    let all = async {
        while next < count {
            tokio::select! {
                biased;
                frame = other.receive() => {
                    assert_eq!(frame.unwrap().message, message(next));
                    next += 1;
                }
                () = tokio::task::yield_now() => {}
            }
        }
    };
    soon(all).await;
}

/// Byte by byte, and after every byte the receive is given up as a `select!` does it.
pub(crate) async fn a_receive_given_up_between_any_two_bytes_loses_nothing<S: Subject>() {
    let ((_sender, mut receiver), mut bare) = S::bare().await;
    let mut bytes = BytesMut::new();
    // Of both releases that may be at the other end, and the second one in the middle of a raise.
    for (number, level) in (1..4).zip([Level::OLDEST, Level::NEWEST, Level::OLDEST]) {
        Frame::encode(&message(number), &[Bytes::from_static(b"tail")], level, &mut bytes).unwrap();
    }
    let mut received = Vec::new();
    for &byte in &bytes {
        bare.writes.write_all(&[byte]).await.unwrap();
        bare.writes.flush().await.unwrap();
        // A few turns of the runtime bring the byte to the receiver, which then holds part of a frame.
        for _ in 0..4 {
            tokio::select! {
                biased;
                frame = receiver.receive() => received.push(frame.unwrap()),
                () = tokio::task::yield_now() => {}
            }
        }
    }
    while received.len() < 3 {
        received.push(soon(receiver.receive()).await.expect("the stream is in step"));
    }
    assert!(received.iter().all(|frame| frame.tail == "tail"));
    assert_eq!(received.into_iter().map(|frame| frame.message).collect::<Vec<_>>(), [1, 2, 3].map(message));
}

pub(crate) async fn a_peer_that_does_not_read_fills_the_queue_and_the_sender_is_told<S: Subject>() {
    let ((sender, _receiver), _peer) = S::pair().await;
    let mut refused = None;
    for number in 0..4 * LINK_FRAMES_MAX as u64 {
        if let Err(error) = sender.send_with(message(number), vec![Bytes::from_static(&[0; 8192])]) {
            refused = Some(error);
            break;
        }
    }
    assert_eq!(refused, Some(SendError::Full));
}

pub(crate) async fn a_closed_link_ends_for_all_its_senders_after_what_was_sent<S: Subject>() {
    let ((sender, _back_in), (_back, mut receiver)) = S::pair().await;
    let other = sender.clone();
    sender.send(message(1)).unwrap();
    sender.close();
    assert!(soon(receiver.receive()).await.is_ok());
    assert!(matches!(soon(receiver.receive()).await, Err(LinkError::Closed { .. })));
    // The other end may hear of it first.
    soon(other.written()).await;
    assert_eq!(other.send(message(2)), Err(SendError::Closed));
}

pub(crate) async fn a_frame_that_cannot_be_sent_ends_the_link_after_what_was_sent_before<S: Subject>() {
    let ((sender, _back_in), (_back, mut receiver)) = S::pair().await;
    sender.send(message(1)).unwrap();
    sender.send_with(message(2), vec![Bytes::from(vec![0; FRAME_BYTES_MAX])]).unwrap();
    assert!(soon(receiver.receive()).await.is_ok());
    assert!(matches!(soon(receiver.receive()).await, Err(LinkError::Closed { .. })));
    soon(sender.written()).await;
    assert_eq!(sender.send(message(3)), Err(SendError::Closed));
}

pub(crate) async fn a_peer_that_is_gone_ends_both_directions<S: Subject>() {
    let ((sender, mut receiver), (_back, mut other)) = S::pair().await;
    let hearing = tokio::spawn(async move { receiver.receive().await.map(|frame| frame.message) });
    for number in 0..100 {
        sender.send(message(number)).unwrap();
        assert_eq!(soon(other.receive()).await.unwrap().message, message(number));
    }
    drop((other, _back));
    assert!(soon(hearing).await.unwrap().is_err());
    let ends = async {
        while sender.send_with(message(0), vec![Bytes::from_static(&[0; 4096])]) != Err(SendError::Closed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(ends).await;
}

/// Waits until the watch says so.
async fn until(movement: &mut watch::Receiver<Movement>, wanted: Movement) {
    soon(movement.wait_for(|now| *now == wanted)).await.expect("the link is there");
}

pub(crate) async fn a_link_moves_while_its_peer_receives_and_is_stuck_when_it_does_no_more<S: Subject>() {
    let ms = Duration::from_millis;
    let times = EchoTimes {
        origin: std::time::Instant::now(),
        ask_again_after: ms(1),
        ask_again_max: ms(10),
        stuck_after: ms(500),
        late: Duration::from_secs(60),
    };
    let ((_sender, mut receiver), (back, mut peer)) = S::pair().await;
    let (mut movement, _) = receiver.watch(times);
    let receiving = tokio::spawn(async move { receiver.receive().await.map(|frame| frame.message) });
    let answering = tokio::spawn(async move {
        let _ = peer.receive().await;
    });
    until(&mut movement, Movement::Moves).await;
    // The connection stays up, nobody reads it.
    answering.abort();
    until(&mut movement, Movement::Stuck).await;
    let word = ToFrontend::Welcome { token: Token::new(1) };
    back.send(word.clone()).unwrap();
    assert_eq!(soon(receiving).await.unwrap().unwrap(), word, "messages pass all the same");
}

pub(crate) async fn rubbish_ends_the_link_with_a_reason<S: Subject>() {
    let ((_sender, mut receiver), mut bare) = S::bare().await;
    bare.writes.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    bare.writes.flush().await.unwrap();
    let error = soon(receiver.receive()).await.unwrap_err();
    assert!(matches!(error, LinkError::Frame { .. }), "{error}");
}

pub(crate) async fn a_message_of_another_link_is_refused<S: Subject>() {
    let ((_sender, mut receiver), mut bare) = S::bare().await;
    let mut bytes = BytesMut::new();
    Frame::encode(&ToFrontend::Suspended, &[], Level::NEWEST, &mut bytes).unwrap();
    bare.writes.write_all(&bytes).await.unwrap();
    bare.writes.flush().await.unwrap();
    let error = soon(receiver.receive()).await.unwrap_err().to_string();
    assert!(error.contains("wrong port or wrong peer"), "{error}");
}
