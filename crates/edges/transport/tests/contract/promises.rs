//! The promises, each as a story of one transport and two frontends.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use symphony_protocol::data::{BatchRun, RequestResult, ResultBytes};
use symphony_transport::{PayloadTransport, Payloads, ResultToFrontend};
use symphony_types::{BootId, FailReason, GpuId, Token};

use crate::subjects::{BOOT, FRONTENDS, Subject};

/// Nothing takes longer, unless it hangs.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Bytes that say whose they are, all over. Copied, not made one by one: some stories have hundreds of megabytes.
pub(crate) fn bytes_of(sequence: u64, length: usize) -> Bytes {
    let word = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let mut bytes = word.repeat(length.div_ceil(word.len()));
    bytes.truncate(length);
    bytes.into()
}

pub(crate) async fn read<S: Subject>(subject: &S, index: usize, sequences: &[u64]) -> Payloads {
    let reading = subject.transport().read(FRONTENDS[index], BOOT, sequences.to_vec());
    tokio::time::timeout(SOON, reading).await.expect("no read hangs")
}

/// A batch, so that what is said of it is seen to arrive.
fn run() -> BatchRun {
    let (gpu, token) = (GpuId::new(4), Token::new(9));
    BatchRun { gpu, token, plan: 2, planned_us: 40, inputs_us: 30, started_us: 20, ended_us: 10 }
}

pub(crate) fn answer(sequence: u64, length: usize) -> ResultToFrontend {
    let outcome = ResultBytes::Answer(length as u32);
    let result = RequestResult { sequence, outcome, batch: 3, execution: 7, run: run() };
    ResultToFrontend { result, bytes: bytes_of(sequence, length) }
}

pub(crate) async fn inputs_arrive_whole_and_in_the_order_asked<S: Subject>() {
    let subject = S::start().await;
    let lengths = [0, 1, 7, 8, 9, 1023, 1025, 4096, 150_000, 16 * 1024 + 3, 1 << 20];
    for (sequence, &length) in (1..).zip(&lengths) {
        subject.frontends()[0].hold(sequence, bytes_of(sequence, length));
    }
    let order = [11, 1, 3, 2, 9, 10, 4, 8, 5, 7, 6];
    let expected: Payloads =
        order.iter().map(|&sequence| Some(bytes_of(sequence, lengths[sequence as usize - 1]))).collect();
    assert_eq!(read(&subject, 0, &order).await, expected);
    subject.came(order.len() as u64);
    assert_eq!(read(&subject, 0, &[]).await, Payloads::new());
}

pub(crate) async fn a_former_boot_is_not_read_from<S: Subject>() {
    let subject = S::start().await;
    subject.frontends()[0].hold(1, bytes_of(1, 10));
    let former = BootId::new(BOOT.get() - 1);
    assert_eq!(subject.transport().read(FRONTENDS[0], former, vec![1, 2]).await, [None, None]);
    subject.transport().deliver(FRONTENDS[0], former, vec![answer(1, 10)]);
    subject.transport().deliver(FRONTENDS[0], BOOT, vec![answer(2, 10)]);
    assert_eq!(subject.frontends()[0].results(1).await[0].sequence, 2);
    assert_eq!(subject.frontends()[0].results_so_far(), 1);
}

pub(crate) async fn what_has_its_outcome_is_none_and_the_others_come<S: Subject>() {
    let subject = S::start().await;
    for sequence in 1..=3 {
        subject.frontends()[0].hold(sequence, bytes_of(sequence, 5000));
    }
    subject.frontends()[0].end(2);
    let expected = [Some(bytes_of(3, 5000)), None, Some(bytes_of(1, 5000)), None];
    assert_eq!(read(&subject, 0, &[3, 2, 1, 77]).await, expected);
    // The other frontend has requests of the same numbers, and other bytes.
    subject.frontends()[1].hold(1, bytes_of(100, 5000));
    assert_eq!(read(&subject, 1, &[1, 3]).await, [Some(bytes_of(100, 5000)), None]);
}

pub(crate) async fn a_frontend_that_is_gone_costs_its_own_requests_only<S: Subject>() {
    let mut subject = S::start().await;
    for frontend in subject.frontends() {
        frontend.hold(1, bytes_of(1, 150_000));
    }
    subject.kill(0).await;
    let (gone, there) = tokio::join!(read(&subject, 0, &[1, 2]), read(&subject, 1, &[1]));
    assert_eq!((gone, there), (vec![None, None], vec![Some(bytes_of(1, 150_000))]));
}

pub(crate) async fn a_batch_that_no_frame_holds_arrives<S: Subject>() {
    let subject = S::start().await;
    let sequences: Vec<_> = (1..=40).collect();
    for &sequence in &sequences {
        subject.frontends()[0].hold(sequence, bytes_of(sequence, S::LARGE_BYTES));
    }
    let payloads = read(&subject, 0, &sequences).await;
    assert_eq!(payloads.len(), sequences.len());
    for (sequence, payload) in sequences.into_iter().zip(payloads) {
        assert!(payload == Some(bytes_of(sequence, S::LARGE_BYTES)), "{sequence}");
    }
}

pub(crate) async fn reads_at_a_time_do_not_mix<S: Subject>() {
    const READS: u64 = 32;
    let subject = S::start().await;
    for (index, frontend) in (0..).zip(subject.frontends()) {
        for sequence in 0..2 * READS {
            frontend.hold(sequence, bytes_of(1000 * index + sequence, 20_000));
        }
    }
    let reads = (0..2 * READS).map(|turn| {
        let (subject, index, first) = (&subject, turn % 2, turn / 2);
        async move {
            let payloads = read(subject, index as usize, &[first, first + READS]).await;
            let expected = [first, first + READS].map(|sequence| Some(bytes_of(1000 * index + sequence, 20_000)));
            assert_eq!(payloads, expected);
        }
    });
    futures::future::join_all(reads).await;
}

/// The frontend's requests end, and others take their place, while they are read.
pub(crate) async fn an_input_that_ends_while_it_is_read_is_whole_or_none<S: Subject>() {
    const LENGTH: usize = 100_000;
    const AT_A_TIME: u64 = 8;
    /// Eight of these are about what a read takes: some requests end meanwhile, and some do not.
    const PAUSE: Duration = Duration::from_micros(300);
    const TURNS: u64 = 400;
    let subject = S::start().await;
    let frontend = Arc::clone(subject.frontends()[0]);
    let (newest, news) = tokio::sync::watch::channel(0);
    let was_read = Arc::new(AtomicBool::new(false));
    let turning = tokio::task::spawn_blocking({
        let was_read = Arc::clone(&was_read);
        move || {
            let turns = (1..).take_while(|&sequence| sequence <= TURNS || !was_read.load(Relaxed));
            let last = turns.inspect(|&sequence| {
                assert!(sequence < 100 * TURNS, "nothing is read meanwhile");
                frontend.hold(sequence, bytes_of(sequence, LENGTH));
                frontend.end(sequence.saturating_sub(AT_A_TIME));
                newest.send_replace(sequence);
                std::thread::sleep(PAUSE);
            });
            last.last().expect("a first one")
        }
    });
    while !turning.is_finished() {
        let newest = *news.borrow();
        let sequences: Vec<_> = (newest.saturating_sub(AT_A_TIME)..=newest + 1).collect();
        for (sequence, payload) in sequences.iter().zip(read(&subject, 0, &sequences).await) {
            assert!(payload.is_none() || payload == Some(bytes_of(*sequence, LENGTH)), "{sequence}");
            was_read.fetch_or(payload.is_some(), Relaxed);
        }
    }
    let last = turning.await.unwrap();
    assert_eq!(read(&subject, 0, &[last]).await, [Some(bytes_of(last, LENGTH))]);
}

pub(crate) async fn results_are_delivered_once<S: Subject>() {
    let subject = S::start().await;
    let failed = RequestResult {
        sequence: 4,
        outcome: ResultBytes::Failed(FailReason::ExecutionFailed),
        batch: 3,
        execution: 7,
        run: run(),
    };
    let failed = ResultToFrontend { result: failed, bytes: Bytes::new() };
    let results = vec![answer(1, 40), answer(2, 300_000), answer(3, 0), failed, answer(5, 64 * 1024 + 1)];
    subject.transport().deliver(FRONTENDS[0], BOOT, results);
    subject.transport().deliver(FRONTENDS[1], BOOT, vec![answer(1, 10)]);
    let mut returned = subject.frontends()[0].results(5).await;
    returned.sort_by_key(|result| result.sequence);
    for (result, length) in returned.iter().zip([Some(40), Some(300_000), Some(0), None, Some(64 * 1024 + 1)]) {
        let expected = length.map(|length| bytes_of(result.sequence, length)).ok_or(FailReason::ExecutionFailed);
        assert_eq!((&result.outcome, result.batch, result.execution_ns), (&expected, 3, 7));
    }
    assert_eq!(subject.frontends()[1].results(1).await[0].outcome, Ok(bytes_of(1, 10)));
    subject.transport().finish().await;
    assert_eq!(subject.frontends().map(|frontend| frontend.results_so_far()), [5, 1]);
}

pub(crate) async fn more_results_than_there_is_room_for_arrive<S: Subject>() {
    const COUNT: u64 = 24;
    let subject = S::start().await;
    subject.transport().deliver(FRONTENDS[0], BOOT, (1..=COUNT).map(|sequence| answer(sequence, 500_000)).collect());
    let returned = subject.frontends()[0].results(COUNT as usize).await;
    let mut sequences: Vec<_> = returned.iter().map(|result| result.sequence).collect();
    sequences.sort_unstable();
    assert_eq!(sequences, (1..=COUNT).collect::<Vec<_>>());
    assert!(returned.iter().all(|result| result.outcome == Ok(bytes_of(result.sequence, 500_000))));
    // What was taken makes room.
    subject.transport().deliver(FRONTENDS[0], BOOT, vec![answer(COUNT + 1, 500_000)]);
    subject.frontends()[0].results(COUNT as usize + 1).await;
}

pub(crate) async fn finish_drains_and_nothing_is_delivered_afterwards<S: Subject>() {
    const COUNT: u64 = 50;
    let subject = S::start().await;
    for sequence in 1..=COUNT {
        subject.transport().deliver(FRONTENDS[sequence as usize % 2], BOOT, vec![answer(sequence, 100_000)]);
    }
    tokio::time::timeout(SOON, subject.transport().finish()).await.expect("it drains");
    subject.transport().deliver(FRONTENDS[0], BOOT, vec![answer(99, 10)]);
    for frontend in subject.frontends() {
        assert!(frontend.results(COUNT as usize / 2).await.iter().all(|result| result.outcome.is_ok()));
    }
    tokio::time::timeout(SOON, subject.transport().finish()).await.expect("once more is no harm");
    for frontend in subject.frontends() {
        assert_eq!(frontend.results_so_far(), COUNT as usize / 2);
    }
}

pub(crate) async fn a_result_for_nobody_hangs_nobody<S: Subject>() {
    let mut subject = S::start().await;
    subject.kill(0).await;
    subject.transport().deliver(FRONTENDS[0], BOOT, vec![answer(1, 300_000)]);
    subject.transport().deliver(FRONTENDS[1], BOOT, vec![answer(1, 300_000)]);
    assert_eq!(subject.frontends()[1].results(1).await.len(), 1);
    tokio::time::timeout(SOON, subject.transport().finish()).await.expect("it drains");
    assert_eq!(subject.frontends()[0].results_so_far(), 0);
}
