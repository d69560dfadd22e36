//! What load was on tapes: models, GPUs and requests, whatever was decided about them.

use std::sync::Arc;

use symphony_scheduler::{
    ClusterActions, ClusterFacts, ClusterInput, ClusterModel, DataDelay, Delays, ModelActions, ModelInput,
    ModelQueueConfig, Policy, RankInput, Request,
};
use symphony_tape::{Chunk, RecordedLoad, RecordedRequest, Tape, TapeEnd, TapeError, TapeHeader, TapeOrigin};
use symphony_types::{
    BootId, FrontendId, GpuClass, GpuId, LatencyProfile, ModelId, Nanos, RequestId, RequestValue, Time, Token,
};

fn config() -> ModelQueueConfig {
    ModelQueueConfig {
        profiles: LatencyProfile::from_line(1.0, 5.0, 16).unwrap().into(),
        slo: Nanos::from_millis(30),
        policy: Policy::AUTO,
        delays: Delays::default(),
        requests_max: 8,
    }
}

fn request(sequence: u64, deadline: Time) -> Request {
    let id = RequestId { frontend: FrontendId::new(1), boot: BootId::new(2), sequence };
    Request { id, deadline, items: 3, weight: RequestValue::ONE, variant: 0 }
}

/// A tape with the records that `write` puts on it, without any actions: the load does not depend on them.
fn tape(token: u64, write: impl FnOnce(&mut Chunk)) -> Vec<u8> {
    let origin = TapeOrigin { token: Token::new(token), ..TapeOrigin::default() };
    let mut bytes = TapeHeader { origin, worker: "w".into() }.to_bytes();
    let mut chunk = Chunk::with_capacity(0);
    write(&mut chunk);
    bytes.extend_from_slice(chunk.seal());
    bytes
}

fn step(chunk: &mut Chunk, object: u32, at: Time, input: &ModelInput) {
    chunk.model_step(object, at, input, &ModelActions::default());
}

fn load(tapes: &[Vec<u8>]) -> Result<RecordedLoad, TapeError> {
    let mut load = RecordedLoad::default();
    tapes.iter().try_for_each(|bytes| load.add(&Tape::open(bytes)?))?;
    Ok(load)
}

#[test]
fn requests_are_those_that_arrived_and_a_model_is_as_it_was_last() {
    let at = |ms| Time::ZERO + Nanos::from_millis(ms);
    let class = GpuClass::new(2).unwrap();
    let models = tape(1, |chunk| {
        chunk.model(0, ModelId::new(7), "resnet@2", 0, &config());
        step(chunk, 0, at(10), &ModelInput::Arrive(request(1, at(40))));
        step(chunk, 0, at(11), &ModelInput::Return(request(1, at(40))));
        // The model is served otherwise: another queue, the same model.
        chunk.gone(0);
        chunk.model(1, ModelId::new(7), "resnet@2", 1, &ModelQueueConfig { slo: Nanos::from_millis(50), ..config() });
        chunk.profile(1, class, &LatencyProfile::from_line(2.0, 5.0, 8).unwrap());
        chunk.data_delay(1, &DataDelay::each_item(Nanos::from_micros(30)));
        step(chunk, 1, at(12), &ModelInput::Arrive(request(2, at(32))));
    });
    let gpus = tape(1, |chunk| {
        chunk.ranker(0, 0, 0);
        for (gpu, class) in [(0, GpuClass::FIRST), (1, class), (2, class)] {
            let free_at = Time::ZERO;
            chunk.rank_step(0, at(1), &RankInput::Add { gpu: GpuId::new(gpu), class, free_at }, &[]);
        }
        chunk.rank_step(0, at(2), &RankInput::Remove(GpuId::new(1)), &[]);
    });
    let load = load(&[models, gpus]).unwrap();
    assert_eq!(load.gpus().collect::<Vec<_>>(), [(GpuClass::FIRST, 1), (class, 2)], "when there were most");
    assert_eq!(load.begin(), Some(at(10)));
    let model = &load.models()[&ModelId::new(7)];
    assert_eq!((model.name.as_str(), model.known.slo), ("resnet@2", Nanos::from_millis(50)));
    assert_eq!(model.known.profiles.iter().count(), 2);
    assert_eq!(model.known.delays.data.per_item, Nanos::from_micros(30));
    let weight = RequestValue::ONE;
    let arrived = |ms, slo_ms| RecordedRequest { at: at(ms), slo: Nanos::from_millis(slo_ms), items: 3, weight };
    assert_eq!(model.requests, [arrived(10, 30), arrived(12, 20)]);
}

#[test]
fn the_load_of_a_policy_for_the_whole_sub_cluster_is_read_as_well() {
    let at = |ms| Time::ZERO + Nanos::from_millis(ms);
    let delays = |reply_us| Delays { reply: Nanos::from_micros(reply_us), ..Delays::default() };
    let known = |slo_ms, reply_us| {
        let profile = LatencyProfile::from_line(1.0, 5.0, 16).unwrap();
        let known = ClusterModel::new(profile, Nanos::from_millis(slo_ms)).with_delays(delays(reply_us));
        ClusterInput::Model { model: 0, known: Arc::new(known) }
    };
    let gpu_up = |gpu| ClusterInput::GpuUp { gpu: GpuId::new(gpu), class: GpuClass::FIRST, free_at: Time::ZERO };
    let arrive = |sequence, deadline| ClusterInput::Arrive { model: 0, request: request(sequence, deadline) };
    let inputs = [
        (0, known(30, 100)),
        (1, gpu_up(0)),
        (2, gpu_up(1)),
        (3, ClusterInput::GpuDown(GpuId::new(0))),
        (10, arrive(1, at(40))),
        (11, ClusterInput::Return { model: 0, request: request(1, at(40)) }),
        // Its batches were late, which comes on top of the delay.
        (12, known(50, 900)),
        (13, arrive(2, at(33))),
    ];
    let bytes = tape(1, |chunk| {
        chunk.cluster(0, "clockwork", &ClusterFacts::default());
        chunk.cluster_model(0, 0, ModelId::new(7), "resnet@2");
        for (ms, input) in &inputs {
            chunk.cluster_step(0, at(*ms), input, &ClusterActions::default());
        }
    });
    let load = load(&[bytes]).unwrap();
    assert_eq!(load.gpus().collect::<Vec<_>>(), [(GpuClass::FIRST, 2)]);
    let model = &load.models()[&ModelId::new(7)];
    assert_eq!((model.name.as_str(), model.known.slo), ("resnet@2", Nanos::from_millis(50)));
    assert_eq!(model.known.delays, delays(100));
    let requests: Vec<_> = model.requests.iter().map(|request| (request.at, request.slo)).collect();
    assert_eq!(requests, [(at(10), Nanos::from_millis(30)), (at(13), Nanos::from_millis(20))]);
    let nobody = tape(1, |chunk| chunk.cluster_step(0, at(1), &arrive(1, at(2)), &ClusterActions::default()));
    let error = self::load(&[nobody]).unwrap_err();
    assert!(matches!(error, TapeError::UnknownObject { object: 0, kind: "a model of a policy", .. }), "{error}");
}

#[test]
fn a_tape_that_was_full_says_until_when_the_load_is_whole() {
    let model = |ends: TapeEnd, last_ms: u64| {
        tape(1, |chunk| {
            let at = Time::ZERO + Nanos::from_millis(last_ms);
            chunk.model(0, ModelId::new(7), "m", 0, &config());
            step(chunk, 0, at, &ModelInput::Arrive(request(1, at)));
            chunk.end(ends);
        })
    };
    let until = |tapes: &[Vec<u8>]| load(tapes).unwrap().complete_until();
    assert_eq!(until(&[model(TapeEnd::Stopped, 5)]), None);
    let full = [model(TapeEnd::Full, 9), model(TapeEnd::Overflow, 8), model(TapeEnd::Stopped, 5)];
    assert_eq!(until(&full), Some(Time::ZERO + Nanos::from_millis(8)));
    // A ranker's tape has no requests.
    let ranker = tape(1, |chunk| {
        chunk.ranker(0, 0, 0);
        chunk.end(TapeEnd::Full);
    });
    assert_eq!(until(&[ranker]), None);
}

#[test]
fn tapes_of_another_lead_and_steps_of_nobody_are_refused() {
    let model = |token| tape(token, |chunk| chunk.model(0, ModelId::new(7), "m", 0, &config()));
    let error = load(&[model(1), model(2)]).unwrap_err();
    assert!(matches!(error, TapeError::AnotherLead { .. }), "{error}");
    assert!(error.to_string().contains("expected the tapes of one lead"), "{error}");
    let nobody = tape(1, |chunk| step(chunk, 5, Time::ZERO, &ModelInput::Arrive(request(1, Time::ZERO))));
    assert!(matches!(load(&[nobody]), Err(TapeError::UnknownObject { object: 5, .. })));
    let many = tape(1, |chunk| chunk.ranker(0, 0, u32::MAX));
    assert!(matches!(load(&[many]), Err(TapeError::NoSuch { what: "number of GPUs", .. })));
}
