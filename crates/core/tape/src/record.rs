//! What stands on a tape.

use symphony_scheduler::{DataDelay, ModelInput, ModelQueueConfig, PoolInput, RankInput};
use symphony_types::{GpuClass, LatencyProfile, ModelId, Time};

use crate::TapeError;
use crate::codec::{Coded, Source, coded_enum};

/// First byte of each record.
pub(crate) mod tag {
    pub(crate) const MODEL: u8 = 1;
    pub(crate) const RANKER: u8 = 2;
    pub(crate) const GONE: u8 = 3;
    pub(crate) const MODEL_STEP: u8 = 4;
    pub(crate) const RANK_STEP: u8 = 5;
    pub(crate) const PROFILE: u8 = 6;
    pub(crate) const POOL: u8 = 7;
    pub(crate) const POOL_STEP: u8 = 8;
    pub(crate) const DATA_DELAY: u8 = 9;
    pub(crate) const END: u8 = 10;
}

/// Why a tape ends where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapeEnd {
    /// The lead was over.
    Stopped,
    /// The tape was at its limit.
    Full,
    /// It could not be written as fast as decisions were made.
    Overflow,
}

coded_enum!(TapeEnd, "end of a tape" { 0 => Stopped, 1 => Full, 2 => Overflow });

/// A decision object as it was made.
#[derive(Clone, Debug)]
pub enum ObjectConfig {
    /// A [`ModelQueue`](symphony_scheduler::ModelQueue).
    Model {
        /// Whose queue.
        model: ModelId,
        /// The slot by which the ranker knows it.
        ordinal: u32,
        /// Its configuration.
        config: Box<ModelQueueConfig>,
    },
    /// A [`GpuRanker`](symphony_scheduler::GpuRanker).
    Ranker {
        /// Models it was made for.
        models: u32,
        /// GPUs it was made for.
        gpus: u32,
    },
    /// A [`PoolControl`](symphony_scheduler::PoolControl).
    Pool,
}

/// One record. Actions are left as bytes: that is how they are compared.
#[derive(Clone, Debug)]
pub enum Record<'a> {
    /// An object begins.
    Begin {
        /// Its number on this tape.
        object: u32,
        /// What it is.
        config: ObjectConfig,
    },
    /// An object is gone.
    Gone {
        /// Its number.
        object: u32,
    },
    /// A model's queue was told a profile.
    Profile {
        /// The queue.
        object: u32,
        /// On which GPUs.
        class: GpuClass,
        /// ℓ(b) there.
        profile: LatencyProfile,
    },
    /// A model's queue was told how long inputs take.
    DataDelay {
        /// The queue.
        object: u32,
        /// So long.
        data: DataDelay,
    },
    /// A decision of a model's queue.
    ModelStep {
        /// The queue.
        object: u32,
        /// When.
        now: Time,
        /// What it was told.
        input: ModelInput,
        /// What it ordered.
        actions: &'a [u8],
    },
    /// A decision of a ranker.
    RankStep {
        /// The ranker.
        object: u32,
        /// When.
        now: Time,
        /// What it was told.
        input: RankInput,
        /// What it ordered.
        actions: &'a [u8],
    },
    /// A decision of a pool control.
    PoolStep {
        /// The control.
        object: u32,
        /// When.
        now: Time,
        /// What it was told.
        input: Box<PoolInput>,
        /// What it said.
        actions: &'a [u8],
    },
    /// The tape ends here.
    End(TapeEnd),
}

impl<'a> Record<'a> {
    pub(crate) fn read(from: &mut Source<'a>) -> Result<Self, TapeError> {
        let offset = from.offset();
        let kind = from.byte("a record")?;
        if kind == tag::END {
            return Ok(Self::End(TapeEnd::take(from)?));
        }
        if !(tag::MODEL..tag::END).contains(&kind) {
            return Err(TapeError::NoSuch { offset, what: "kind of record", got: kind.into() });
        }
        let object = u32::take(from)?;
        Ok(match kind {
            tag::MODEL => {
                let (model, ordinal, config) = (Coded::take(from)?, Coded::take(from)?, Coded::take(from)?);
                Self::Begin { object, config: ObjectConfig::Model { model, ordinal, config: Box::new(config) } }
            }
            tag::RANKER => {
                let (models, gpus) = (Coded::take(from)?, Coded::take(from)?);
                Self::Begin { object, config: ObjectConfig::Ranker { models, gpus } }
            }
            tag::POOL => Self::Begin { object, config: ObjectConfig::Pool },
            tag::GONE => Self::Gone { object },
            tag::PROFILE => Self::Profile { object, class: Coded::take(from)?, profile: Coded::take(from)? },
            tag::DATA_DELAY => Self::DataDelay { object, data: Coded::take(from)? },
            tag::MODEL_STEP => {
                let (now, input) = (Coded::take(from)?, Coded::take(from)?);
                Self::ModelStep { object, now, input, actions: actions(from)? }
            }
            tag::POOL_STEP => {
                let (now, input) = (Coded::take(from)?, Coded::take(from)?);
                Self::PoolStep { object, now, input: Box::new(input), actions: actions(from)? }
            }
            _ => {
                let (now, input) = (Coded::take(from)?, Coded::take(from)?);
                Self::RankStep { object, now, input, actions: actions(from)? }
            }
        })
    }
}

fn actions<'a>(from: &mut Source<'a>) -> Result<&'a [u8], TapeError> {
    let length = from.bytes(4, "the length of actions")?;
    let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
    from.bytes(length as usize, "actions")
}
