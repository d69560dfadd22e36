//! Records of a tape.

use symphony_scheduler::{ClusterFacts, ClusterInput, DataDelay, ModelInput, ModelQueueConfig, PoolInput, RankInput};
use symphony_types::{FamilyProfile, GpuClass, LatencyProfile, ModelId, Time};

use crate::TapeError;
use crate::codec::{Coded, Source, coded_enum, take_text};

/// The longest name of a model; a longer one is cut.
pub const MODEL_NAME_BYTES_MAX: usize = 256;

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
    pub(crate) const CLUSTER: u8 = 11;
    pub(crate) const CLUSTER_STEP: u8 = 12;
    pub(crate) const CLUSTER_MODEL: u8 = 13;
    pub(crate) const FAMILY: u8 = 14;
}

/// Why a tape ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapeEnd {
    /// The lead ended.
    Stopped,
    /// The tape reached its limit.
    Full,
    /// Writing was slower than the decisions.
    Overflow,
}

coded_enum!(TapeEnd, "end of a tape" { 0 => Stopped, 1 => Full, 2 => Overflow });

/// A decision object at its creation.
#[derive(Clone, Debug)]
pub enum ObjectConfig {
    /// A [`ModelQueue`](symphony_scheduler::ModelQueue).
    Model {
        /// The model whose requests the queue holds.
        model: ModelId,
        /// The name under which it was loaded; cut to [`MODEL_NAME_BYTES_MAX`].
        name: String,
        /// Its slot at the ranker.
        ordinal: u32,
        /// Its configuration.
        config: Box<ModelQueueConfig>,
    },
    /// A [`ModelQueue`](symphony_scheduler::ModelQueue) of models that share a trunk.
    Family {
        /// The models, and their names, by id: requests name them by it.
        models: Vec<(ModelId, String)>,
        /// Its slot at the ranker.
        ordinal: u32,
        /// Its configuration.
        config: Box<ModelQueueConfig>,
        /// Latencies of trunk and suffixes, for each class of GPU.
        profiles: Vec<(GpuClass, FamilyProfile)>,
    },
    /// A [`GpuRanker`](symphony_scheduler::GpuRanker).
    Ranker {
        /// Number of models at creation.
        models: u32,
        /// Number of GPUs at creation.
        gpus: u32,
    },
    /// A [`PoolControl`](symphony_scheduler::PoolControl).
    Pool,
    /// A [`ClusterPolicy`](symphony_scheduler::ClusterPolicy).
    Cluster {
        /// Its name and options as text.
        policy: String,
        /// What it was built with.
        facts: ClusterFacts,
    },
}

/// One record. Actions are left as bytes, since they are compared as such.
#[derive(Clone, Debug)]
pub enum Record<'a> {
    /// An object is introduced.
    Begin {
        /// Its number on this tape.
        object: u32,
        /// What it is, and what it was built with.
        config: ObjectConfig,
    },
    /// An object was removed.
    Gone {
        /// Its number.
        object: u32,
    },
    /// A profile was set in a model's queue.
    Profile {
        /// The queue.
        object: u32,
        /// GPUs of this class have the profile.
        class: GpuClass,
        /// Its profile ℓ(b).
        profile: LatencyProfile,
    },
    /// The input delay was set in a model's queue.
    DataDelay {
        /// The queue.
        object: u32,
        /// How long inputs take to reach a GPU.
        data: DataDelay,
    },
    /// A decision of a model's queue.
    ModelStep {
        /// The queue.
        object: u32,
        /// When the queue decided, by the clock of the lead.
        now: Time,
        /// What happened.
        input: ModelInput,
        /// What it ordered, encoded.
        actions: &'a [u8],
    },
    /// A decision of a ranker.
    RankStep {
        /// The ranker.
        object: u32,
        /// When the ranker decided, by the clock of the lead.
        now: Time,
        /// What happened.
        input: RankInput,
        /// What it ordered, encoded.
        actions: &'a [u8],
    },
    /// A decision of a pool control.
    PoolStep {
        /// The control.
        object: u32,
        /// When the control decided, by the clock of the lead.
        now: Time,
        /// What happened.
        input: Box<PoolInput>,
        /// The signal.
        actions: &'a [u8],
    },
    /// A decision of a policy for a whole sub-cluster.
    ClusterStep {
        /// The policy.
        object: u32,
        /// When the policy decided, by the clock of the lead.
        now: Time,
        /// What happened.
        input: Box<ClusterInput>,
        /// The orders.
        actions: &'a [u8],
    },
    /// The model that a policy for a whole sub-cluster knows by a number from here on. Replay does not need it.
    ClusterModel {
        /// The policy.
        object: u32,
        /// The number, as in [`ClusterInput`].
        slot: u32,
        /// The model in that slot.
        model: ModelId,
        /// The name under which it was loaded; cut to [`MODEL_NAME_BYTES_MAX`].
        name: String,
    },
    /// Nothing follows, for this reason.
    End(TapeEnd),
}

impl<'a> Record<'a> {
    pub(crate) fn read(from: &mut Source<'a>) -> Result<Self, TapeError> {
        let offset = from.offset();
        let kind = from.byte("a record")?;
        if kind == tag::END {
            return Ok(Self::End(TapeEnd::take(from)?));
        }
        if !(tag::MODEL..=tag::FAMILY).contains(&kind) {
            return Err(TapeError::NoSuch { offset, what: "kind of record", got: kind.into() });
        }
        let object = u32::take(from)?;
        Ok(match kind {
            tag::MODEL => {
                let (model, name) = (Coded::take(from)?, take_text(from, MODEL_NAME_BYTES_MAX)?);
                let (ordinal, config) = (Coded::take(from)?, Box::new(Coded::take(from)?));
                Self::Begin { object, config: ObjectConfig::Model { model, name, ordinal, config } }
            }
            tag::FAMILY => {
                let models = (0..from.length("number of models")?)
                    .map(|_| Ok((ModelId::take(from)?, take_text(from, MODEL_NAME_BYTES_MAX)?)))
                    .collect::<Result<Vec<_>, TapeError>>()?;
                let (ordinal, config) = (Coded::take(from)?, Box::new(Coded::take(from)?));
                let profiles = (0..from.length("number of profiles")?)
                    .map(|_| Ok((GpuClass::take(from)?, FamilyProfile::take(from)?)))
                    .collect::<Result<Vec<_>, TapeError>>()?;
                Self::Begin { object, config: ObjectConfig::Family { models, ordinal, config, profiles } }
            }
            tag::RANKER => {
                let (models, gpus) = (Coded::take(from)?, Coded::take(from)?);
                Self::Begin { object, config: ObjectConfig::Ranker { models, gpus } }
            }
            tag::POOL => Self::Begin { object, config: ObjectConfig::Pool },
            tag::CLUSTER => {
                let (policy, facts) = (text(from)?, Coded::take(from)?);
                Self::Begin { object, config: ObjectConfig::Cluster { policy, facts } }
            }
            tag::CLUSTER_STEP => {
                let (now, input) = (Coded::take(from)?, Coded::take(from)?);
                Self::ClusterStep { object, now, input: Box::new(input), actions: actions(from)? }
            }
            tag::CLUSTER_MODEL => {
                let (slot, model) = (Coded::take(from)?, Coded::take(from)?);
                Self::ClusterModel { object, slot, model, name: take_text(from, MODEL_NAME_BYTES_MAX)? }
            }
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

/// The text of a policy.
fn text(from: &mut Source<'_>) -> Result<String, TapeError> {
    let offset = from.offset();
    let length = from.length("length of a policy's text")?;
    let text = std::str::from_utf8(from.bytes(length, "the text of a policy")?);
    text.map(str::to_owned).map_err(|_| TapeError::NotText { offset })
}

fn actions<'a>(from: &mut Source<'a>) -> Result<&'a [u8], TapeError> {
    let length = from.bytes(4, "the length of actions")?;
    let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
    from.bytes(length as usize, "actions")
}
