//! What load was on tapes: models, GPUs and requests, and what became of these.

use std::sync::Arc;

use symphony_scheduler::{
    ClusterAction, ClusterActions, ClusterFacts, ClusterInput, ClusterModel, DataDelay, Delays, DropCause, ModelAction,
    ModelActions, ModelInput, ModelQueueConfig, Orders, Plan, Policy, RankInput, Request,
};
use symphony_tape::{
    Chunk, RecordedBatch, RecordedLoad, RecordedOutcome, RecordedRequest, Tape, TapeEnd, TapeError, TapeHeader,
    TapeOrigin,
};
use symphony_types::{
    BootId, DropReason, FamilyProfile, FrontendId, GpuClass, GpuId, LatencyProfile, ModelId, Nanos, RequestId,
    RequestValue, Time, Token,
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

/// A tape with the records that `write` puts on it.
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
    let outcome = RecordedOutcome::Unknown;
    let arrived =
        |ms, slo_ms| RecordedRequest { at: at(ms), slo: Nanos::from_millis(slo_ms), items: 3, weight, outcome };
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

/// A plan of a GPU for these requests, 6 ms long.
fn plan(gpu: u32, start: Time, first: u32, requests: u32) -> Plan {
    let (gpu, end) = (GpuId::new(gpu), start + Nanos::from_millis(6));
    Plan { gpu, start, end, batch: requests.saturating_mul(3), must_end_by: Time::NEVER, first, requests, why: None }
}

fn outcomes(load: &RecordedLoad) -> Vec<RecordedOutcome> {
    load.models()[&ModelId::new(7)].requests.iter().map(|request| request.outcome).collect()
}

#[test]
fn what_became_of_requests_is_read_from_plans_their_ends_and_drops() {
    let at = |ms| Time::ZERO + Nanos::from_millis(ms);
    let ms = Nanos::from_millis;
    let cause = DropCause {
        arrived: at(4),
        must_end_by: at(40),
        class: GpuClass::FIRST,
        batch: 0,
        target: 1,
        batch_end: at(41),
        alone_end: at(41),
        waiting: 1,
        shed: None,
    };
    let orders = |plans: &[(u32, u64, u64)], dropped: Option<u64>| {
        let mut orders = ModelActions::default();
        for (number, &(gpu, start_ms, sequence)) in (0..).zip(plans) {
            orders.planned.push(request(sequence, at(40)));
            orders.list.push(ModelAction::Execute(plan(gpu, at(start_ms), number, 1)));
        }
        orders.list.extend(dropped.map(|sequence| ModelAction::Drop {
            request: request(sequence, at(40)),
            reason: DropReason::SloUnreachable,
            cause,
        }));
        orders
    };
    let done = |latency_ms| ModelInput::Done { start_late: ms(1), latency: ms(latency_ms), predicted: ms(6) };
    let bytes = tape(1, |chunk| {
        chunk.model(0, ModelId::new(7), "m", 0, &config());
        for sequence in 1..=6 {
            step(chunk, 0, at(sequence), &ModelInput::Arrive(request(sequence, at(40))));
        }
        // Two GPUs run batches of one size; the one that began later reports first.
        chunk.model_step(0, at(10), &ModelInput::Wake, &orders(&[(0, 10, 1), (1, 14, 2), (2, 12, 3)], Some(4)));
        step(chunk, 0, at(18), &done(3));
        // The third GPU was lost, and its request ran elsewhere.
        let lost = ModelInput::Return(request(3, at(40)));
        chunk.model_step(0, at(19), &lost, &orders(&[(1, 20, 3)], None));
        step(chunk, 0, at(22), &done(11));
        step(chunk, 0, at(27), &done(6));
        step(chunk, 0, at(28), &ModelInput::Cancel(request(5, at(40)).id));
        step(chunk, 0, at(29), &done(6));
    });
    let load = load(&[bytes]).unwrap();
    let ran = |ms| RecordedOutcome::Ran(Nanos::from_millis(ms));
    let expected =
        [ran(21), ran(16), ran(24), RecordedOutcome::Dropped, RecordedOutcome::Cancelled, RecordedOutcome::Unknown];
    assert_eq!(outcomes(&load), expected);
    let batch = |start_ms, took_ms| RecordedBatch { start: at(start_ms), took: ms(took_ms) };
    assert_eq!(load.models()[&ModelId::new(7)].batches, [batch(15, 3), batch(11, 11), batch(21, 6)]);

    // Numbers that are on no tape of ours.
    let wild = Orders { list: vec![ModelAction::Execute(plan(0, at(1), u32::MAX, u32::MAX))], planned: Vec::new() };
    let bytes = tape(1, |chunk| {
        chunk.model(0, ModelId::new(7), "m", 0, &config());
        chunk.model_step(0, at(1), &ModelInput::Arrive(request(1, at(40))), &wild);
        step(chunk, 0, at(2), &done(6));
    });
    assert_eq!(outcomes(&self::load(&[bytes]).unwrap()), [RecordedOutcome::Unknown]);

    // Plans that share a request: the first has it, and the second, which ends, has nothing.
    let shared = Orders {
        list: [1, 30].map(|start_ms| ModelAction::Execute(plan(0, at(start_ms), 0, 1))).into(),
        planned: vec![request(1, at(40))],
    };
    let bytes = tape(1, |chunk| {
        chunk.model(0, ModelId::new(7), "m", 0, &config());
        chunk.model_step(0, at(1), &ModelInput::Arrive(request(1, at(40))), &shared);
        step(chunk, 0, at(37), &done(6));
    });
    let load = self::load(&[bytes]).unwrap();
    assert_eq!(outcomes(&load), [RecordedOutcome::Unknown]);
    assert_eq!(load.models()[&ModelId::new(7)].batches, [batch(31, 6)]);
}

#[test]
fn a_plan_that_was_not_late_may_have_begun_before_its_start() {
    let at = |ms| Time::ZERO + Nanos::from_millis(ms);
    let ms = Nanos::from_millis;
    let orders = Orders {
        list: [(0, 12), (1, 10)].map(|(gpu, start_ms)| ModelAction::Execute(plan(gpu, at(start_ms), gpu, 1))).into(),
        planned: vec![request(1, at(40)), request(2, at(40))],
    };
    let done = ModelInput::Done { start_late: Nanos::ZERO, latency: ms(5), predicted: ms(6) };
    let us = Nanos::from_micros;
    for (reports, ran, starts) in [
        // One began three milliseconds early, the other one at its start or one. Which is which the tape does not say:
        // plans of equal size are taken by their planned ends.
        ([14_000, 15_000], [14_000, 12_000], [9_000, 10_000]),
        // Both as planned. A report takes its time, and a plan that may still end is not taken for it.
        ([15_100, 17_100], [16_100, 13_100], [10_000, 12_000]),
        // The first one's report took too long to be expected, and is taken for the second one's.
        ([26_100, 27_200], [25_100, 25_200], [12_000, 10_000]),
    ] {
        let bytes = tape(1, |chunk| {
            chunk.model(0, ModelId::new(7), "m", 0, &config());
            for sequence in [1, 2] {
                step(chunk, 0, at(sequence), &ModelInput::Arrive(request(sequence, at(40))));
            }
            chunk.model_step(0, at(8), &ModelInput::Wake, &orders);
            for at_us in reports {
                step(chunk, 0, Time::ZERO + us(at_us), &done);
            }
        });
        let load = load(&[bytes]).unwrap();
        assert_eq!(outcomes(&load), ran.map(|after_us| RecordedOutcome::Ran(us(after_us))), "{reports:?}");
        let batch = |start_us| RecordedBatch { start: Time::ZERO + us(start_us), took: ms(5) };
        assert_eq!(load.models()[&ModelId::new(7)].batches, starts.map(batch), "{reports:?}");
    }
}

#[test]
fn a_policy_for_the_whole_sub_cluster_names_the_plan_that_ended() {
    let at = |ms| Time::ZERO + Nanos::from_millis(ms);
    let profile = LatencyProfile::from_line(1.0, 5.0, 16).unwrap();
    let known = ClusterInput::Model { model: 0, known: Arc::new(ClusterModel::new(profile, Nanos::from_millis(30))) };
    let execute = |gpu, start_ms, sequence| ClusterActions {
        list: vec![ClusterAction::Execute { model: 0, plan: plan(gpu, at(start_ms), 0, 1) }],
        planned: vec![request(sequence, at(40))],
    };
    let done = |gpu, start_ms, ms| ClusterInput::Done {
        gpu: GpuId::new(gpu),
        model: 0,
        start: at(start_ms),
        start_late: Nanos::ZERO,
        latency: Nanos::from_millis(ms),
    };
    let give_up =
        ClusterAction::Drop { model: 0, request: request(3, at(40)), reason: DropReason::SloUnreachable, cause: None };
    let arrive = |sequence| ClusterInput::Arrive { model: 0, request: request(sequence, at(40)) };
    let bytes = tape(1, |chunk| {
        chunk.cluster(0, "shepherd", &ClusterFacts::default());
        chunk.cluster_model(0, 0, ModelId::new(7), "m");
        chunk.cluster_step(0, at(0), &known, &ClusterActions::default());
        chunk.cluster_step(0, at(1), &arrive(1), &execute(0, 2, 1));
        chunk.cluster_step(0, at(1), &arrive(2), &execute(1, 2, 2));
        let dropped = ClusterActions { list: vec![give_up], planned: Vec::new() };
        chunk.cluster_step(0, at(2), &arrive(3), &dropped);
        chunk.cluster_step(0, at(9), &done(1, 2, 6), &ClusterActions::default());
        // Stopped for a larger batch: it runs a second time.
        let mut stop = execute(0, 10, 1);
        stop.list.insert(0, ClusterAction::Preempt(GpuId::new(0)));
        chunk.cluster_step(0, at(10), &ClusterInput::Wake, &stop);
        chunk.cluster_step(0, at(17), &done(0, 10, 7), &ClusterActions::default());
    });
    let load = load(&[bytes]).unwrap();
    let ran = |ms| RecordedOutcome::Ran(Nanos::from_millis(ms));
    assert_eq!(outcomes(&load), [ran(16), ran(8), RecordedOutcome::Dropped]);
    let took: u64 = load.models()[&ModelId::new(7)].batches.iter().map(|batch| batch.took.get()).sum();
    assert_eq!(took, 13_000_000);
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

#[test]
fn requests_of_models_that_share_a_queue_are_each_its_models() {
    let at = |ms| Time::ZERO + Nanos::from_millis(ms);
    let line = |alpha_ms, beta_ms| LatencyProfile::from_line(alpha_ms, beta_ms, 16).unwrap();
    let family = FamilyProfile::alike(line(1.0, 4.0), line(0.5, 1.0), 2).unwrap();
    let of = |sequence, variant| ModelInput::Arrive(Request { variant, ..request(sequence, at(40)) });
    let record = |called: u32| {
        tape(1, |chunk| {
            chunk.model(0, ModelId::new(7), "cat", 0, &config());
            step(chunk, 0, at(10), &of(1, 7));
            chunk.gone(0);
            let shared = ModelQueueConfig { profiles: family.worst().clone().into(), ..config() };
            let models = [(ModelId::new(7), "cat"), (ModelId::new(9), "dog")];
            chunk.family(1, &models, 1, &shared, &[(GpuClass::FIRST, family.clone())]);
            step(chunk, 1, at(11), &of(2, 9));
            step(chunk, 1, at(12), &of(3, called));
        })
    };
    let load = load(&[record(7)]).unwrap();
    let [cat, dog] = [7, 9].map(|id| &load.models()[&ModelId::new(id)]);
    assert_eq!((cat.requests.len(), dog.requests.len(), dog.name.as_str()), (2, 1, "dog"));
    assert_eq!(cat.known.profiles.get(GpuClass::FIRST), config().profiles.get(GpuClass::FIRST), "as it was alone");
    assert_eq!(dog.known.profiles.get(GpuClass::FIRST), family.unshared(1).as_ref());
    let stranger = self::load(&[record(8)]).unwrap_err();
    assert!(matches!(stranger, TapeError::UnknownObject { object: 1, .. }), "{stranger:?}");
}
