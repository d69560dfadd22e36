//! Encodings of the scheduler's types. A change of one of them needs a change here, and a new
//! [`TAPE_VERSION`](crate::TAPE_VERSION).

use std::sync::Arc;

use symphony_scheduler::{
    Account, BatchLimit, Candidate, ClassProfiles, ClusterAction, ClusterActions, ClusterFacts, ClusterInput,
    ClusterModel, DataDelay, DelaySource, Delays, Demand, DropCause, DropRule, EarlyStart, GpuChoice, GpuCounts,
    GrantWhy, Matched, ModelAction, ModelActions, ModelInput, ModelQueueConfig, Overrun, Plan, PlanWhy, Policy,
    PoolInput, PoolSignal, Pressure, RankAction, RankInput, ReadyOrder, Request, Rival, Shed, ShedCause, TargetShare,
    Trigger,
};
use symphony_types::{
    BootId, DropReason, FamilyProfile, FrontendId, GPU_CLASSES_MAX, GpuClass, GpuClasses, GpuId, LatencyProfile,
    ModelId, Nanos, NodeId, PROFILE_BATCH_MAX, RequestId, RequestValue, SubclusterId, Time, Token,
};

use crate::TapeError;
use crate::codec::{Coded, Source, coded_enum, coded_struct};

/// "Never" and "impossible" are the largest numbers and frequent, so they are encoded in one byte, like zero.
const fn rotate(nanos: u64) -> u64 {
    nanos.wrapping_add(1)
}

impl Coded for Time {
    fn put(&self, out: &mut Vec<u8>) {
        rotate(self.as_nanos()).put(out);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        Ok(Self::from_nanos(u64::take(from)?.wrapping_sub(1)))
    }
}

impl Coded for Nanos {
    fn put(&self, out: &mut Vec<u8>) {
        rotate(self.get()).put(out);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        Ok(Self::new(u64::take(from)?.wrapping_sub(1)))
    }
}

macro_rules! coded_ids {
    ($($name:ident),*) => {
        $(impl Coded for $name {
            fn put(&self, out: &mut Vec<u8>) {
                self.get().put(out);
            }

            fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
                Ok(Self::new(Coded::take(from)?))
            }
        })*
    };
}

coded_ids!(BootId, FrontendId, GpuId, ModelId, NodeId, SubclusterId, Token);

/// Differences between latencies: they are small, and a decoded table cannot decrease.
impl Coded for LatencyProfile {
    fn put(&self, out: &mut Vec<u8>) {
        self.table().len().put(out);
        let mut before = Nanos::ZERO;
        for &latency in self.table() {
            (latency - before).get().put(out);
            before = latency;
        }
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let (offset, length) = (from.offset(), from.length("length of a profile")?);
        if length > PROFILE_BATCH_MAX as usize {
            return Err(TapeError::NoSuch { offset, what: "length of a profile", got: length as u64 });
        }
        let (mut table, mut latency) = (Vec::with_capacity(length), Nanos::ZERO);
        for _ in 0..length {
            latency += Nanos::new(u64::take(from)?);
            table.push(latency);
        }
        Self::from_table(&table).map_err(|source| TapeError::Profile { offset, source })
    }
}

impl Coded for FamilyProfile {
    fn put(&self, out: &mut Vec<u8>) {
        self.trunk().put(out);
        self.variants().put(out);
        (0..self.variants()).filter_map(|variant| self.suffix(variant)).for_each(|suffix| suffix.put(out));
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let trunk = LatencyProfile::take(from)?;
        let offset = from.offset();
        let suffixes: Vec<LatencyProfile> = Coded::take(from)?;
        let got = suffixes.len() as u64;
        Self::new(trunk, &suffixes).map_err(|_| TapeError::NoSuch { offset, what: "number of suffixes", got })
    }
}

impl Coded for GpuClass {
    fn put(&self, out: &mut Vec<u8>) {
        self.index().put(out);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let (offset, number) = (from.offset(), usize::take(from)?);
        Self::new(number).ok_or(TapeError::NoSuch { offset, what: "class of GPUs", got: number as u64 })
    }
}

impl Coded for GpuClasses {
    fn put(&self, out: &mut Vec<u8>) {
        u32::from(self.bits()).put(out);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let (offset, bits) = (from.offset(), u32::take(from)?);
        let bits = u8::try_from(bits).map_err(|_| TapeError::NoSuch {
            offset,
            what: "set of classes of GPUs",
            got: bits.into(),
        })?;
        Ok(Self::from_bits(bits))
    }
}

/// By class; at least one, since a queue without a class decides nothing.
impl Coded for ClassProfiles {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().count().put(out);
        for (class, profile) in self.iter() {
            class.put(out);
            profile.put(out);
        }
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let (offset, length) = (from.offset(), from.length("number of profiles")?);
        if !(1..=GPU_CLASSES_MAX).contains(&length) {
            return Err(TapeError::NoSuch { offset, what: "number of profiles", got: length as u64 });
        }
        (0..length).map(|_| Ok((GpuClass::take(from)?, LatencyProfile::take(from)?))).collect()
    }
}

impl Coded for TargetShare {
    fn put(&self, out: &mut Vec<u8>) {
        self.percent().put(out);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let (offset, percent) = (from.offset(), u32::take(from)?);
        Self::from_percent(percent).ok_or(TapeError::NoSuch {
            offset,
            what: "share of the target in percent",
            got: percent.into(),
        })
    }
}

impl Coded for Pressure {
    fn put(&self, out: &mut Vec<u8>) {
        self.millionths().put(out);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        Ok(Self::from_millionths(Coded::take(from)?))
    }
}

impl Coded for GpuCounts {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|gpus| gpus.put(out));
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let mut idle = Self::default();
        for gpus in &mut idle.0 {
            *gpus = Coded::take(from)?;
        }
        Ok(idle)
    }
}

impl Coded for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let (offset, got) = (from.offset(), u8::take(from)?);
        match got {
            0 | 1 => Ok(got == 1),
            _ => Err(TapeError::NoSuch { offset, what: "yes or no", got: got.into() }),
        }
    }
}

impl Coded for EarlyStart {
    fn put(&self, out: &mut Vec<u8>) {
        self.millionths().put(out);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        Ok(Self::from_millionths(Coded::take(from)?))
    }
}

impl Coded for Overrun {
    fn put(&self, out: &mut Vec<u8>) {
        self.thousandths().put(out);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        Ok(Self::from_thousandths(Coded::take(from)?))
    }
}

impl Coded for Demand {
    fn put(&self, out: &mut Vec<u8>) {
        self.busy.iter().flatten().chain(&self.alone).for_each(|time| time.put(out));
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let mut demand = Self::default();
        for time in demand.busy.iter_mut().flatten().chain(&mut demand.alone) {
            *time = Coded::take(from)?;
        }
        Ok(demand)
    }
}

impl Coded for RequestValue {
    fn put(&self, out: &mut Vec<u8>) {
        self.thousandths().put(out);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let (offset, thousandths) = (from.offset(), u32::take(from)?);
        Self::from_thousandths(thousandths).ok_or(TapeError::NoSuch {
            offset,
            what: "value in thousandths",
            got: thousandths.into(),
        })
    }
}

/// Facts may become more outside of this crate, so that they cannot be taken apart here.
impl Coded for ClusterFacts {
    fn put(&self, out: &mut Vec<u8>) {
        self.seed.put(out);
        self.can_preempt.put(out);
        self.plans_max.put(out);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let mut facts = Self::simulated(Coded::take(from)?);
        facts.can_preempt = Coded::take(from)?;
        facts.plans_max = Coded::take(from)?;
        Ok(facts)
    }
}

impl Coded for ClusterModel {
    fn put(&self, out: &mut Vec<u8>) {
        self.profiles.put(out);
        self.slo.put(out);
        self.value.put(out);
        self.rate_per_second.to_bits().put(out);
        self.delays.put(out);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let (profiles, slo): (ClassProfiles, Nanos) = (Coded::take(from)?, Coded::take(from)?);
        let model = Self::new(profiles, slo).with_value(Coded::take(from)?);
        let model = model.with_rate(f64::from_bits(Coded::take(from)?));
        Ok(model.with_delays(Coded::take(from)?))
    }
}

// A kind of input that is missing below is not on tapes.
const _: () = assert!(ClusterInput::KINDS == 10);

/// Written out, since inputs may become more outside of this crate's sight.
impl Coded for ClusterInput {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Model { model, known } => {
                out.push(0);
                model.put(out);
                known.as_ref().put(out);
            }
            Self::ModelGone(model) => {
                out.push(1);
                model.put(out);
            }
            Self::Arrive { model, request } => put_request(2, *model, request, out),
            Self::Return { model, request } => put_request(3, *model, request, out),
            Self::Cancel { model, request } => put_request(4, *model, request, out),
            Self::GpuUp { gpu, class, free_at } => {
                out.push(5);
                gpu.put(out);
                class.put(out);
                free_at.put(out);
            }
            Self::GpuDown(gpu) => {
                out.push(6);
                gpu.put(out);
            }
            Self::Done { gpu, model, start, start_late, latency } => {
                out.push(7);
                gpu.put(out);
                model.put(out);
                start.put(out);
                start_late.put(out);
                latency.put(out);
            }
            Self::Refused { gpu, model, start } => {
                out.push(8);
                gpu.put(out);
                model.put(out);
                start.put(out);
            }
            Self::Wake => out.push(9),
            _ => out.push(u8::MAX),
        }
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let offset = from.offset();
        Ok(match from.byte("an input of a policy")? {
            0 => Self::Model { model: Coded::take(from)?, known: Arc::new(Coded::take(from)?) },
            1 => Self::ModelGone(Coded::take(from)?),
            2 => Self::Arrive { model: Coded::take(from)?, request: Coded::take(from)? },
            3 => Self::Return { model: Coded::take(from)?, request: Coded::take(from)? },
            4 => Self::Cancel { model: Coded::take(from)?, request: Coded::take(from)? },
            5 => Self::GpuUp { gpu: Coded::take(from)?, class: Coded::take(from)?, free_at: Coded::take(from)? },
            6 => Self::GpuDown(Coded::take(from)?),
            7 => Self::Done {
                gpu: Coded::take(from)?,
                model: Coded::take(from)?,
                start: Coded::take(from)?,
                start_late: Coded::take(from)?,
                latency: Coded::take(from)?,
            },
            8 => Self::Refused { gpu: Coded::take(from)?, model: Coded::take(from)?, start: Coded::take(from)? },
            9 => Self::Wake,
            got => return Err(TapeError::NoSuch { offset, what: "input of a policy", got: got.into() }),
        })
    }
}

fn put_request(tag: u8, model: u32, request: &Request, out: &mut Vec<u8>) {
    out.push(tag);
    model.put(out);
    request.put(out);
}

coded_struct!(RequestId { frontend, boot, sequence });
coded_struct!(Request { id, deadline, items, weight, variant });
coded_struct!(Candidate { batch, start, latest, frontrun, must_end_by, lead, ahead, ready_order, gpu_choice });
coded_struct!(Rival { model, latest });
coded_struct!(GrantWhy { matched, choice, others_idle, rivals, next_rival });
coded_struct!(PlanWhy { frontrun, guard, latest, head_arrived, target, skipped, left, inputs, inputs_by, grant });
coded_struct!(DropCause { arrived, must_end_by, class, batch, target, batch_end, alone_end, waiting, shed });
coded_struct!(ShedCause { pressure, value });
coded_struct!(Plan { gpu, start, end, batch, must_end_by, first, requests, why });
coded_struct!(DataDelay { fixed, per_item, max, source });
coded_struct!(Delays { control, data, reply, guard });
coded_struct!(Policy { trigger, drop, limit, shed, ready_order, gpu_choice });
coded_struct!(Account {
    asked,
    asked_by_value,
    shed,
    dropped,
    called,
    called_in_full,
    could_serve,
    value_max,
    longer,
    predicted,
    demand
});
coded_struct!(PoolSignal { pressure, early_start, overrun, gpus });
coded_struct!(PoolInput { account, gpus_idle, gpus, consolidate });
coded_struct!(ModelQueueConfig { profiles, slo, policy, delays, requests_max });
coded_struct!(ModelActions { list, planned });
coded_struct!(ClusterActions { list, planned });

coded_enum!(DropReason, "reason for a drop" {
    0 => SloUnreachable,
    1 => ProtectBatch,
    2 => QueueExpired,
    3 => QueueFull,
    4 => Shed,
});
coded_enum!(Shed, "way to shed" { 0 => None, 1 => Proportional(value) });
coded_enum!(Trigger, "trigger" {
    0 => Eager,
    1 => Frontrun,
    2 => Timeout(wait),
    3 => Adaptive,
    4 => BetaLambda,
    5 => Latest,
});
coded_enum!(DropRule, "drop rule" { 0 => Window(share), 1 => Prune });
coded_enum!(DelaySource, "source of a delay" { 0 => Configured, 1 => Assumed, 2 => Measured });
coded_enum!(BatchLimit, "batch limit" { 0 => None, 1 => Aimd });
coded_enum!(ReadyOrder, "order of those that are ready" { 0 => Latest, 1 => Frontrun, 2 => Start, 3 => Deadline });
coded_enum!(GpuChoice, "choice of a GPU" { 0 => LowestId, 1 => EarliestFree });
coded_enum!(Matched, "way in which a model and a GPU came together" {
    0 => Untold,
    1 => AtItsStart,
    2 => FirstInLine,
});
coded_enum!(ModelInput, "input of a model" {
    0 => Arrive(request),
    1 => Cancel(id),
    2 => Withdraw { frontend, boot },
    3 => Grant { gpu, class, free_at, why },
    4 => Done { start_late, latency, predicted },
    5 => Wake,
    6 => Return(request),
    7 => CancelWithNext(id),
    8 => Classes(classes),
    9 => Pool(word),
    10 => ReturnWithNext(request),
});
coded_enum!(ModelAction, "action of a model" {
    0 => Offer { answered, class, candidate },
    1 => Execute(plan),
    2 => Release { gpu, free_at },
    3 => Drop { request, reason, cause },
    4 => WakeAt(time),
});
coded_enum!(ClusterAction, "order of a policy" {
    0 => Execute { model, plan },
    1 => Preempt(gpu),
    2 => Drop { model, request, reason, cause },
    3 => WakeAt(time),
});
coded_enum!(RankInput, "input of a ranker" {
    0 => Offer { model, answered, class, candidate },
    1 => Release { model, gpu, free_at, report_due },
    2 => BusyUntil { gpu, free_at, report_due },
    3 => Remove(gpu),
    4 => Forget(model),
    5 => Wake,
    6 => Add { gpu, class, free_at },
});
coded_enum!(RankAction, "action of a ranker" { 0 => Grant { model, gpu, class, free_at, why }, 1 => WakeAt(time) });
