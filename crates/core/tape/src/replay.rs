//! Replays recorded inputs and compares the actions.

use std::collections::BTreeMap;
use std::fmt;

use symphony_scheduler::{
    ClusterActions, ClusterInput, ClusterReferee, GpuRanker, GuardedPolicy, ModelActions, ModelInput, ModelQueue,
    PolicyRegistry, PoolControl, PoolInput, PoolSignal, RankAction, RankActions, RankInput,
};
use symphony_types::{ModelId, Time};

use crate::codec::{Coded, Source};
use crate::record::{ObjectConfig, Record};
use crate::summary::{Ending, Summary};
use crate::{Tape, TapeError};

/// The most objects of one tape at a time: the models of a sub-cluster, its ranker and its pool control.
pub const OBJECTS_MAX: usize = symphony_scheduler::MODELS_MAX + 2;

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The summary of the tape, up to the difference if there is one.
    pub summary: Summary,
    /// The first difference in actions.
    pub difference: Option<Difference>,
}

/// The first decision with different actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Number of records before it.
    pub record: u64,
    /// Its offset on the tape.
    pub offset: usize,
    /// Which object decided, in words.
    pub object: String,
    /// When it decided, by the clock of the lead.
    pub now: Time,
    /// What happened, as `Debug` shows it.
    pub input: String,
    /// The recorded actions.
    pub expected: String,
    /// The replayed actions.
    pub got: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { record, offset, object, now, input, expected, got } = self;
        writeln!(f, "record {record} (byte {offset}): {object} at {} ns decides differently", now.as_nanos())?;
        writeln!(f, "  input    {input}")?;
        writeln!(f, "  expected {expected}")?;
        write!(f, "  got      {got}")
    }
}

enum Object {
    Model(ModelId, Box<ModelQueue>),
    Ranker(Box<GpuRanker>),
    Pool(Box<PoolControl>),
    Cluster(Box<RefereedPolicy>),
}

/// A policy for the whole sub-cluster, and what holds it to its rules here as in the lead.
struct RefereedPolicy {
    policy: GuardedPolicy,
    referee: ClusterReferee,
}

/// Feeds recorded inputs to fresh objects and compares their actions byte for byte, up to the first difference.
///
/// # Errors
/// If the tape is damaged or invalid; a tape that ends early is neither.
pub fn replay(tape: &Tape<'_>) -> Result<Replay, TapeError> {
    replay_among(tape, &PolicyRegistry::new())
}

/// As [`replay()`], with the policies that the program adds.
///
/// # Errors
/// As there, and if the tape has a policy that the program does not.
pub fn replay_among(tape: &Tape<'_>, policies: &PolicyRegistry) -> Result<Replay, TapeError> {
    let mut stage = Stage { policies: policies.clone(), ..Stage::default() };
    for record in tape.records() {
        let (offset, record) = record?;
        if stage.summary.ending != Ending::Cut {
            return Err(TapeError::AfterEnd { offset });
        }
        let difference = stage.play(offset, record)?;
        if difference.is_some() {
            return Ok(Replay { summary: stage.summary, difference });
        }
        stage.summary.records += 1;
    }
    Ok(Replay { summary: stage.summary, difference: None })
}

/// The objects of a tape, with buffers for their actions.
#[derive(Default)]
struct Stage {
    objects: BTreeMap<u32, Object>,
    policies: PolicyRegistry,
    /// Whether a ranker was introduced already.
    ranked: bool,
    summary: Summary,
    orders: ModelActions,
    rank_orders: RankActions,
    cluster_orders: ClusterActions,
    bytes: Vec<u8>,
}

impl Stage {
    fn play(&mut self, offset: usize, record: Record<'_>) -> Result<Option<Difference>, TapeError> {
        match record {
            Record::Begin { object, config } => self.begin(offset, object, config)?,
            Record::Gone { object } => {
                self.objects.remove(&object);
            }
            Record::Profile { object, class, profile } => match self.objects.get_mut(&object) {
                Some(Object::Model(_, queue)) => queue.set_profile(class, profile),
                _ => return Err(TapeError::UnknownObject { offset, object, kind: "a model's queue" }),
            },
            Record::DataDelay { object, data } => match self.objects.get_mut(&object) {
                Some(Object::Model(_, queue)) => queue.set_data_delay(data),
                _ => return Err(TapeError::UnknownObject { offset, object, kind: "a model's queue" }),
            },
            Record::ModelStep { object, now, input, actions } => {
                return self.model_step(offset, object, now, input, actions);
            }
            Record::RankStep { object, now, input, actions } => {
                return self.rank_step(offset, object, now, input, actions);
            }
            Record::PoolStep { object, now, input, actions } => {
                return self.pool_step(offset, object, now, *input, actions);
            }
            Record::ClusterStep { object, now, input, actions } => {
                return self.cluster_step(offset, object, now, *input, actions);
            }
            Record::ClusterModel { object, .. } => match self.objects.get(&object) {
                Some(Object::Cluster(_)) => self.summary.models += 1,
                _ => return Err(TapeError::UnknownObject { offset, object, kind: "a policy" }),
            },
            Record::End(end) => self.summary.ending = Ending::Recorded(end),
        }
        Ok(None)
    }

    fn begin(&mut self, offset: usize, object: u32, config: ObjectConfig) -> Result<(), TapeError> {
        let made = match config {
            ObjectConfig::Model { model, name: _, ordinal: _, config } => {
                self.summary.models += 1;
                Object::Model(model, Box::new(ModelQueue::new(*config)))
            }
            ObjectConfig::Family { models, ordinal: _, config, profiles } => {
                let Some(&(first, _)) = models.first() else {
                    return Err(TapeError::NoSuch { offset, what: "number of models", got: 0 });
                };
                self.summary.models += models.len() as u64;
                let mut queue = ModelQueue::new(*config);
                let names: Vec<_> = models.iter().map(|(model, _)| model.get()).collect();
                queue.name_variants(&names);
                profiles.into_iter().for_each(|(class, family)| queue.share_trunk(class, family));
                Object::Model(first, Box::new(queue))
            }
            ObjectConfig::Ranker { models, gpus } => {
                // A small record can demand a large ranker.
                if std::mem::replace(&mut self.ranked, true) {
                    return Err(TapeError::SecondRanker { offset });
                }
                Object::Ranker(Box::new(GpuRanker::new(models, gpus)))
            }
            ObjectConfig::Pool => Object::Pool(Box::default()),
            ObjectConfig::Cluster { policy, facts } => {
                let refused = |problem: String| TapeError::Policy { offset, problem };
                let spec = self.policies.parse(&policy).map_err(|error| refused(error.to_string()))?;
                let policy = self.policies.build(&spec, &facts).map_err(|error| refused(error.to_string()))?;
                Object::Cluster(Box::new(RefereedPolicy { policy, referee: ClusterReferee::new(facts) }))
            }
        };
        self.objects.insert(object, made);
        if self.objects.len() > OBJECTS_MAX {
            return Err(TapeError::TooManyObjects { offset, max: OBJECTS_MAX });
        }
        Ok(())
    }

    fn model_step(
        &mut self,
        offset: usize,
        object: u32,
        now: Time,
        input: ModelInput,
        expected: &[u8],
    ) -> Result<Option<Difference>, TapeError> {
        let Some(Object::Model(model, queue)) = self.objects.get_mut(&object) else {
            return Err(TapeError::UnknownObject { offset, object, kind: "a model's queue" });
        };
        self.orders.clear();
        queue.step(now, input, &mut self.orders);
        self.bytes.clear();
        self.orders.put(&mut self.bytes);
        if self.bytes == expected {
            self.summary.model_step(now, &input, &self.orders);
            return Ok(None);
        }
        Ok(Some(Difference {
            record: self.summary.records,
            offset,
            object: format!("the queue of model {model} (object {object})"),
            now,
            input: format!("{input:?}"),
            expected: shown::<ModelActions>(expected),
            got: format!("{:?}", self.orders),
        }))
    }

    fn rank_step(
        &mut self,
        offset: usize,
        object: u32,
        now: Time,
        input: RankInput,
        expected: &[u8],
    ) -> Result<Option<Difference>, TapeError> {
        let Some(Object::Ranker(ranker)) = self.objects.get_mut(&object) else {
            return Err(TapeError::UnknownObject { offset, object, kind: "a ranker" });
        };
        self.rank_orders.clear();
        ranker.step(now, input, &mut self.rank_orders);
        self.bytes.clear();
        self.rank_orders.put(&mut self.bytes);
        if self.bytes == expected {
            self.summary.rank_step(now, &self.rank_orders);
            return Ok(None);
        }
        Ok(Some(Difference {
            record: self.summary.records,
            offset,
            object: format!("the ranker (object {object})"),
            now,
            input: format!("{input:?}"),
            expected: shown::<Vec<RankAction>>(expected),
            got: format!("{:?}", self.rank_orders),
        }))
    }

    fn cluster_step(
        &mut self,
        offset: usize,
        object: u32,
        now: Time,
        input: ClusterInput,
        expected: &[u8],
    ) -> Result<Option<Difference>, TapeError> {
        let Some(Object::Cluster(refereed)) = self.objects.get_mut(&object) else {
            return Err(TapeError::UnknownObject { offset, object, kind: "a policy" });
        };
        let RefereedPolicy { policy, referee } = &mut **refereed;
        self.cluster_orders.clear();
        referee.observe(now, &input);
        let decided = policy.step(now, input.clone(), &mut self.cluster_orders);
        self.bytes.clear();
        self.cluster_orders.put(&mut self.bytes);
        if decided.is_ok() && self.bytes == expected {
            let arrives = matches!(input, ClusterInput::Arrive { .. });
            self.summary.cluster_step(now, arrives, &self.cluster_orders);
            // After the first violation nothing was decided any more.
            if self.summary.violation.is_none() {
                self.summary.violation = referee.ordered(now, &self.cluster_orders, policy.waiting()).err();
            }
            return Ok(None);
        }
        let got = decided.map_or_else(|fault| fault.to_string(), |()| format!("{:?}", self.cluster_orders));
        Ok(Some(Difference {
            record: self.summary.records,
            offset,
            object: format!("policy {} (object {object})", policy.name()),
            now,
            input: format!("{input:?}"),
            expected: shown::<ClusterActions>(expected),
            got,
        }))
    }

    fn pool_step(
        &mut self,
        offset: usize,
        object: u32,
        now: Time,
        input: PoolInput,
        expected: &[u8],
    ) -> Result<Option<Difference>, TapeError> {
        let Some(Object::Pool(control)) = self.objects.get_mut(&object) else {
            return Err(TapeError::UnknownObject { offset, object, kind: "a pool control" });
        };
        let signal = control.step(now, input);
        self.bytes.clear();
        signal.put(&mut self.bytes);
        if self.bytes == expected {
            self.summary.pool_step(now);
            return Ok(None);
        }
        Ok(Some(Difference {
            record: self.summary.records,
            offset,
            object: format!("the pool control (object {object})"),
            now,
            input: format!("{input:?}"),
            expected: shown::<Option<PoolSignal>>(expected),
            got: format!("{signal:?}"),
        }))
    }
}

/// Formats recorded actions.
fn shown<T: Coded + fmt::Debug>(actions: &[u8]) -> String {
    match T::take(&mut Source::new(actions, 0)) {
        Ok(actions) => format!("{actions:?}"),
        Err(error) => format!("{} bytes that are no actions: {error}", actions.len()),
    }
}
