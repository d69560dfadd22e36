//! Recorded decisions.

use symphony_tape::Tape;
use symphony_types::{BootId, FrontendId, GpuClass, GpuId, ModelId, Nanos, RequestId};

/// Magic and version of a tape.
const TAPE_PREAMBLE_BYTES: usize = 8;

/// Length and checksum of its chunks.
const CHUNK_HEADER_BYTES: usize = 8;

/// A tape: read, and decided again. The checksums are corrected, so that records are tested and not CRC32C.
pub fn tape(bytes: &[u8]) {
    let bytes = with_chunk_checksums(bytes);
    let Ok(tape) = Tape::open(&bytes) else { return };
    let mut load = symphony_tape::RecordedLoad::default();
    let _ = load.add(&tape);
    let replayed = symphony_tape::replay(&tape);
    assert_eq!(replayed, symphony_tape::replay(&tape), "a replay is a function of its tape");
    if let Ok(replay) = replayed {
        assert!(replay.summary.steps <= replay.summary.records);
    }
}

/// The tape with the checksums that its chunks should have, as far as their lengths hold.
fn with_chunk_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut at = TAPE_PREAMBLE_BYTES;
    while let Some((header, rest)) = bytes.get(at..).and_then(|rest| rest.split_first_chunk::<CHUNK_HEADER_BYTES>()) {
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(records) = rest.get(..length) else { break };
        let checksum = crc32c::crc32c(records).to_le_bytes();
        bytes[at + 4..at + CHUNK_HEADER_BYTES].copy_from_slice(&checksum);
        at += CHUNK_HEADER_BYTES + length;
    }
    bytes
}

/// Two models and a ranker that decide a few times each.
pub(super) fn tape_seeds() -> Vec<Vec<u8>> {
    use symphony_scheduler::{
        DataDelay, Delays, GpuChoice, GpuRanker, GrantWhy, ModelActions, ModelInput, ModelQueue, ModelQueueConfig,
        Policy, RankInput, ReadyOrder, Request,
    };
    use symphony_tape::{Chunk, TapeEnd, TapeHeader, TapeOrigin};
    let line = |alpha_ms| symphony_types::LatencyProfile::from_line(alpha_ms, 2.0, 4).expect("a line");
    let (first, second) = (GpuClass::FIRST, GpuClass::new(5).expect("a class"));
    let config = |policy| ModelQueueConfig {
        profiles: line(1.0).into(),
        slo: Nanos::from_millis(20),
        policy,
        delays: Delays::default(),
        requests_max: 3,
    };
    let tape = |policy: Policy, end: TapeEnd| {
        let mut chunks = [Chunk::with_capacity(0), Chunk::with_capacity(0)];
        let (mut queue, mut actions) = (ModelQueue::new(config(policy)), ModelActions::default());
        chunks[0].model(1, ModelId::new(4), "m", 0, &config(policy));
        queue.set_profile(second, line(3.0));
        chunks[0].profile(1, second, &line(3.0));
        let data = DataDelay::each_item(Nanos::from_micros(30));
        queue.set_data_delay(data);
        chunks[0].data_delay(1, &data);
        let id = |sequence| RequestId { frontend: FrontendId::new(1), boot: BootId::new(2), sequence };
        let arrive = |sequence| {
            let deadline = symphony_types::Time::from_nanos(20_000_000 + sequence);
            ModelInput::Arrive(Request {
                id: id(sequence),
                deadline,
                items: 1 + sequence as u32 % 2,
                weight: symphony_types::RequestValue::ONE,
                variant: 0,
            })
        };
        let free_at = symphony_types::Time::ZERO;
        let (gpu, millisecond) = (GpuId::new(0), Nanos::from_millis(1));
        let done = ModelInput::Done { start_late: millisecond, latency: millisecond, predicted: Nanos::ZERO };
        let back =
            Request { id: id(3), deadline: free_at, items: 1, weight: symphony_types::RequestValue::ONE, variant: 0 };
        let inputs = [
            arrive(1),
            arrive(2),
            ModelInput::CancelWithNext(id(2)),
            ModelInput::Cancel(id(1)),
            arrive(3),
            ModelInput::Grant { gpu, class: first, free_at, why: GrantWhy::default() },
            ModelInput::Classes([first, second].into_iter().collect()),
            done,
            arrive(4),
            ModelInput::ReturnWithNext(back),
            ModelInput::Return(back),
            ModelInput::Withdraw { frontend: FrontendId::new(1), boot: BootId::new(2) },
            ModelInput::Wake,
        ];
        for (now, input) in (1..).zip(inputs) {
            let now = symphony_types::Time::from_nanos(now * 1_000_000);
            actions.clear();
            queue.step(now, input, &mut actions);
            chunks[0].model_step(1, now, &input, &actions);
        }
        chunks[0].gone(1);
        let mut ranker = GpuRanker::new(1, 1);
        chunks[1].ranker(0, 1, 1);
        let inputs = [
            RankInput::Add { gpu, class: second, free_at },
            RankInput::BusyUntil { gpu, free_at, report_due: false },
            RankInput::Offer { model: 0, answered: 0, class: first, candidate: None },
            RankInput::Release { model: 0, gpu, free_at, report_due: false },
            RankInput::Remove(gpu),
            RankInput::Forget(0),
            RankInput::Wake,
        ];
        for input in inputs {
            let mut actions = Vec::new();
            ranker.step(free_at, input, &mut actions);
            chunks[1].rank_step(0, free_at, &input, &actions);
        }
        chunks[1].end(end);
        let mut bytes = TapeHeader { origin: TapeOrigin::default(), worker: "decide".into() }.to_bytes();
        chunks.iter_mut().for_each(|chunk| bytes.extend_from_slice(chunk.seal()));
        bytes
    };
    let (ready_order, gpu_choice) = (ReadyOrder::Deadline, GpuChoice::EarliestFree);
    let ranked = Policy { ready_order, gpu_choice, ..Policy::timeout(Nanos::from_millis(2)) };
    vec![
        tape(Policy::SYMPHONY, TapeEnd::Stopped),
        tape(Policy::AUTO, TapeEnd::Full),
        tape(Policy::CLIPPER, TapeEnd::Overflow),
        tape(ranked, TapeEnd::Stopped),
    ]
}
