//! What is larger than a frame, where frames carry it.

use bytes::Bytes;
use symphony_protocol::PAYLOAD_BYTES_MAX;
use symphony_transport::PayloadTransport;
use symphony_types::FailReason;

use crate::promises::{answer, bytes_of, read};
use crate::subjects::{BOOT, FRONTENDS, Subject, Tcp};

/// Fourteen of them, which one frame asks for, do not fit into the one that answers.
const LARGE_BYTES: usize = 4_900_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_of_one_read_come_in_as_many_frames_as_they_need() {
    let subject = Tcp::start().await;
    let sequences: Vec<_> = (1..=14).collect();
    for &sequence in &sequences {
        subject.frontends()[0].hold(sequence, bytes_of(sequence, LARGE_BYTES));
    }
    let payloads = read(&subject, 0, &sequences).await;
    let came: Vec<_> = payloads.iter().map(|payload| payload.as_ref().map(Bytes::len)).collect();
    assert_eq!(came, [Some(LARGE_BYTES); 14]);
    for (sequence, payload) in sequences.into_iter().zip(payloads) {
        assert!(payload == Some(bytes_of(sequence, LARGE_BYTES)), "{sequence}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fits_into_no_frame_costs_its_own_request_only() {
    let subject = Tcp::start().await;
    for (sequence, length) in [(1, 10), (2, PAYLOAD_BYTES_MAX + 1), (3, 20)] {
        subject.frontends()[0].hold(sequence, bytes_of(sequence, length));
    }
    let came = read(&subject, 0, &[1, 2, 3]).await;
    let came: Vec<_> = came.iter().map(|payload| payload.as_ref().map(Bytes::len)).collect();
    assert_eq!(came, [Some(10), None, Some(20)]);

    let results = [(4, 10), (5, PAYLOAD_BYTES_MAX + 1), (6, 20)].map(|(sequence, length)| answer(sequence, length));
    subject.transport().deliver(FRONTENDS[0], BOOT, results.into());
    let returned = subject.frontends()[0].results(3).await;
    let outcomes: Vec<_> = returned.iter().map(|result| result.outcome.as_ref().map(Bytes::len)).collect();
    assert_eq!(outcomes, [Ok(10), Err(&FailReason::ExecutionFailed), Ok(20)]);
}
