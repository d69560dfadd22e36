//! Shortcuts find the same result as a search.

use proptest::prelude::*;
use symphony_policy::TargetShare;
use symphony_types::{BootId, FrontendId, GpuClass, GpuId, LatencyProfile, RequestValue};

use super::*;
use crate::why::GrantWhy;
use crate::{BatchLimit, DelaySource, DropRule, PoolSignal, Pressure};

const CLASSES: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Op {
    Pass {
        micros: u64,
    },
    Arrive {
        budget_us: u64,
    },
    Return {
        budget_us: u64,
        more_come: bool,
    },
    Cancel {
        before: u64,
    },
    CancelWithNext {
        before: u64,
    },
    Withdraw,
    /// For a GPU that was free, or will be.
    Grant {
        class: usize,
        was_free: bool,
        micros: u64,
    },
    Classes {
        bits: u8,
    },
    Done {
        late_us: u64,
    },
    Press {
        millionths: u32,
    },
    Profile {
        class: usize,
        alpha_us: u64,
    },
    Wake,
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..3_000_u64).prop_map(|micros| Op::Pass { micros }),
        12 => (0..60_000_u64).prop_map(|budget_us| Op::Arrive { budget_us }),
        3 => (0..60_000_u64, any::<bool>()).prop_map(|(budget_us, more_come)| Op::Return { budget_us, more_come }),
        1 => (0..20_u64).prop_map(|before| Op::Cancel { before }),
        1 => (0..20_u64).prop_map(|before| Op::CancelWithNext { before }),
        1 => Just(Op::Withdraw),
        3 => (0..CLASSES, any::<bool>(), 0..40_000_u64)
            .prop_map(|(class, was_free, micros)| Op::Grant { class, was_free, micros }),
        1 => (1..4_u8).prop_map(|bits| Op::Classes { bits }),
        1 => (0..5_000_u64).prop_map(|late_us| Op::Done { late_us }),
        1 => (0..1_500_000_u32).prop_map(|millionths| Op::Press { millionths }),
        1 => (0..CLASSES, 0..3_000_u64).prop_map(|(class, alpha_us)| Op::Profile { class, alpha_us }),
        2 => Just(Op::Wake),
    ]
}

fn policies() -> impl Strategy<Value = Policy> {
    let triggers = [Trigger::Eager, Trigger::Frontrun, Trigger::Adaptive, Trigger::Latest, Trigger::BetaLambda];
    let drops = [DropRule::Window(TargetShare::WHOLE), DropRule::Window(TargetShare::THREE_QUARTERS), DropRule::Prune];
    let sheds = [Shed::None, Shed::Proportional(RequestValue::ONE)];
    (
        prop::sample::select(triggers.to_vec()),
        // The window is what the shortcut applies to.
        prop::sample::select(vec![drops[0], drops[0], drops[1], drops[1], drops[2]]),
        prop::sample::select(vec![BatchLimit::None, BatchLimit::None, BatchLimit::Aimd]),
        prop::sample::select(sheds.to_vec()),
    )
        .prop_map(|(trigger, drop, limit, shed)| Policy { trigger, drop, limit, shed, ..Policy::SYMPHONY })
}

fn config(policy: Policy, batch_max: u32, classes: usize) -> ModelQueueConfig {
    let us = Nanos::from_micros;
    let line = |alpha, beta| LatencyProfile::from_line(alpha, beta, batch_max).unwrap();
    let data = DataDelay { fixed: us(100), per_item: us(50), max: us(400), source: DelaySource::Configured };
    ModelQueueConfig {
        profiles: GpuClass::all().zip([line(1.0, 5.0), line(2.0, 8.0)]).take(classes).collect(),
        slo: Nanos::from_millis(40),
        policy,
        delays: Delays { control: us(100), data, reply: us(200), guard: us(50) },
        requests_max: 30,
    }
}

/// The queue, and an equal one that assumes a request of several items and therefore searches every time.
struct Both {
    now: Time,
    fast: ModelQueue,
    looks: ModelQueue,
    arrived: u64,
    /// How often all requests of a batch were known to fit.
    known: u32,
}

impl Both {
    fn new(config: &ModelQueueConfig) -> Self {
        let fast = ModelQueue::new(config.clone());
        let looks = ModelQueue { multi_item: 1, ..fast.clone() };
        Self { now: Time::ZERO + Nanos::from_millis(100), fast, looks, arrived: 0, known: 0 }
    }

    fn request(&mut self, budget_us: u64) -> Request {
        self.arrived += 1;
        let frontend = FrontendId::new((self.arrived % 3) as u32);
        let id = RequestId { frontend, boot: BootId::new(1), sequence: self.arrived };
        Request {
            id,
            deadline: self.now + Nanos::from_micros(budget_us),
            items: 1,
            weight: symphony_types::RequestValue::ONE,
            variant: 0,
        }
    }

    fn recent(&self, before: u64) -> RequestId {
        let sequence = self.arrived.saturating_sub(before);
        RequestId { frontend: FrontendId::new((sequence % 3) as u32), boot: BootId::new(1), sequence }
    }

    fn step(&mut self, input: ModelInput) {
        let known = |queue: &ModelQueue| queue.windows.iter().any(|window| window.items > 1 && queue.all_fit(window));
        let mut orders = [(); 2].map(|()| ModelActions::default());
        self.fast.step(self.now, input, &mut orders[0]);
        self.looks.step(self.now, input, &mut orders[1]);
        assert_eq!(orders[0], orders[1], "{input:?} at {}", self.now);
        self.known += u32::from(known(&self.fast));
        assert_eq!((self.fast.multi_item, self.looks.multi_item), (0, 1));
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Pass { micros } => {
                self.now += Nanos::from_micros(micros);
                if self.fast.wake_at <= self.now {
                    self.step(ModelInput::Wake);
                }
            }
            Op::Arrive { budget_us } => {
                let request = self.request(budget_us);
                self.step(ModelInput::Arrive(request));
            }
            Op::Return { budget_us, more_come } => {
                let request = self.request(budget_us);
                let input = if more_come { ModelInput::ReturnWithNext } else { ModelInput::Return };
                self.step(input(request));
            }
            Op::Cancel { before } => self.step(ModelInput::Cancel(self.recent(before))),
            Op::CancelWithNext { before } => self.step(ModelInput::CancelWithNext(self.recent(before))),
            Op::Withdraw => self.step(ModelInput::Withdraw { frontend: FrontendId::new(1), boot: BootId::new(1) }),
            Op::Grant { class, was_free, micros } => {
                let (class, span) = (GpuClass::new(class).unwrap(), Nanos::from_micros(micros));
                let free_at = if was_free { self.now - span } else { self.now + span };
                self.step(ModelInput::Grant { gpu: GpuId::new(1), class, free_at, why: GrantWhy::default() });
            }
            Op::Classes { bits } => {
                let has = |class: &GpuClass| bits >> class.index() & 1 == 1;
                self.step(ModelInput::Classes(GpuClass::all().take(CLASSES).filter(has).collect()));
            }
            Op::Done { late_us } => {
                let (start_late, latency) = (Nanos::from_micros(late_us), Nanos::from_millis(7));
                self.step(ModelInput::Done { start_late, latency, predicted: latency });
            }
            Op::Press { millionths } => {
                self.step(ModelInput::Pool(PoolSignal::from(Pressure::from_millionths(millionths))));
            }
            Op::Profile { class, alpha_us } => {
                let profile = LatencyProfile::from_line(alpha_us as f64 / 1e3, 5.0, 4 + alpha_us as u32 % 8).unwrap();
                for queue in [&mut self.fast, &mut self.looks] {
                    queue.set_profile(GpuClass::new(class).unwrap(), profile.clone());
                }
            }
            Op::Wake => self.step(ModelInput::Wake),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn single_items_are_decided_as_if_each_were_looked_at(
        policy in policies(),
        batch_max in 1..12_u32,
        classes in 1..=CLASSES,
        ops in prop::collection::vec(ops(), 1..120),
    ) {
        let mut both = Both::new(&config(policy, batch_max, classes));
        for op in ops {
            both.apply(op);
        }
    }
}

#[test]
fn most_batches_are_known_to_fit_without_looking() {
    // Otherwise the test above would compare a code path with itself.
    let mut both = Both::new(&config(Policy::AUTO, 8, 1));
    for _ in 0..100 {
        both.apply(Op::Arrive { budget_us: 40_000 });
        both.apply(Op::Pass { micros: 1_000 });
        if both.fast.len() > 6 {
            both.apply(Op::Grant { class: 0, was_free: true, micros: 0 });
        }
    }
    assert!(both.known > 50, "{}", both.known);
}
