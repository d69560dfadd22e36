//! A model of a family as the thread of its GPU runs it: its suffix, and the trunk that it shares with other models.

use std::mem;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use symphony_types::{CutDigest, Signature, TensorSpec};

use super::FamilyExecutor;
use super::cpu_part::CpuLoader;
use super::error::{FamilyError, FamilyRunError};
use super::family_file::FamilyFile;
use super::family_part::{FamilyPart, PartLoader};
use crate::model_signature;
use crate::onnx_session::OnnxOptions;
use crate::port::{BatchInputs, ExecuteError, MemoryUse, ModelExecutor, PartShares, Segment, SharingExecutor};
use crate::profile::plausible_input;
use crate::runtime::Runtime;
use crate::stop::Stop;

/// Runs of a part at each size; the shortest counts, since everything else measures the neighbours.
const RUNS: u32 = 3;

/// How a model is loaded in parts.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// As for the whole model; the signature is what it is asked for.
    pub onnx: OnnxOptions,
    /// Ends the comparison with the whole, and later the suffix's runs, where runs can be ended.
    pub stop: Stop,
    /// A run of either part that takes longer is ended, where it can be.
    pub run_within: Duration,
}

/// A trunk in memory, as long as one of its models is loaded.
#[derive(Debug)]
pub struct SharedTrunk<L: PartLoader = CpuLoader>(Weak<Mutex<FamilyExecutor<L>>>);

impl<L: PartLoader> Clone for SharedTrunk<L> {
    fn clone(&self) -> Self {
        Self(Weak::clone(&self.0))
    }
}

impl<L: PartLoader> SharedTrunk<L> {
    /// Whether a model holds it.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// A model in parts. Its suffix goes with it, and the trunk with the last of its models.
#[derive(Debug)]
pub struct FamilyMember<L: PartLoader = CpuLoader> {
    family: Arc<Mutex<FamilyExecutor<L>>>,
    variant: u32,
    trunk: CutDigest,
    kind: &'static str,
    signature: Signature,
    batch_max: u32,
    shares: PartShares,
    /// Of the suffix when it was loaded.
    memory: MemoryUse,
    trunk_memory: MemoryUse,
}

impl FamilyFile {
    /// Loads the model in parts on the CPU, as [`member_by`](Self::member_by) does.
    ///
    /// # Errors
    /// As there.
    pub fn member(
        &self,
        runtime: &Runtime,
        place: (u32, CutDigest),
        options: &MemberOptions,
        before: &dyn Fn(u32),
    ) -> Result<FamilyMember, FamilyError> {
        self.member_by(CpuLoader::new(runtime, &options.onnx), place, options, before)
    }

    /// Loads the model in parts, compared with the whole as by [`check`](Self::check), with a trunk of its own:
    /// [`FamilyMember::join`] lets it share another one's. `before` is called before each batch that is compared or
    /// measured or prepares the runtime, with its rows.
    ///
    /// # Errors
    /// As [`check`](Self::check); also if the model is asked with other inputs than its file has, or for outputs that
    /// it has not, or has batch sizes of its own, or if there is no memory for the parts beside the others.
    pub fn member_by<L: PartLoader>(
        &self,
        loader: L,
        (variant, trunk): (u32, CutDigest),
        options: &MemberOptions,
        before: &dyn Fn(u32),
    ) -> Result<FamilyMember<L>, FamilyError> {
        let name = self.name.as_str();
        let unfit = |problem: String| FamilyError::Unfit { model: name.to_owned(), problem };
        let (models, limit) = ([(name, self.bytes.clone())], Some((options.stop.clone(), options.run_within)));
        let mut family = FamilyExecutor::form_at(loader, &models, trunk, limit, before)?;
        let (suffix, _) = family.take(0).ok_or(FamilyError::Empty)?;
        if family.trunk.batch_sizes().is_some() || suffix.batch_sizes().is_some() {
            return Err(unfit("it has batch sizes of its own".into()));
        }
        let has =
            Signature { inputs: family.trunk.signature().inputs.clone(), outputs: suffix.signature().outputs.clone() };
        let signature = options.onnx.signature.clone().unwrap_or_else(|| has.clone());
        if signature.inputs != has.inputs {
            return Err(unfit("it is asked with other inputs than its file has, or in another order or shape".into()));
        }
        if signature.outputs != has.outputs {
            let places = model_signature::places("output", &signature.outputs, &has.outputs).map_err(unfit)?;
            family.asked.insert(variant, places);
        }
        // Whatever becomes of this model, others run through the trunk.
        family.trunk = family.trunk.ended_by(Stop::default(), options.run_within);
        family.suffixes.insert(variant, suffix);
        let shares = family.settle(variant, before).map_err(unfit)?;
        let (batch_max, kind) = (family.trunk.batch_max(), family.trunk.kind());
        let (memory, trunk_memory) = (family.suffix_memory(variant), family.trunk.memory().unwrap_or_default());
        let family = Arc::new(Mutex::new(family));
        Ok(FamilyMember { family, variant, trunk, kind, signature, batch_max, shares, memory, trunk_memory })
    }
}

impl<L: PartLoader> FamilyMember<L> {
    /// Lets it share the trunk of a model that is loaded, and drops its own, or, if that takes smaller batches, lets
    /// the others share its own. Who runs through the trunk is not disturbed.
    ///
    /// # Errors
    /// If no model holds that trunk any more, or it is another one, or has the variant already.
    pub fn join(mut self, host: &SharedTrunk<L>) -> Result<Self, FamilyError> {
        let name = format!("variant {}", self.variant);
        let unfit = |problem: &str| FamilyError::Unfit { model: name.clone(), problem: problem.to_owned() };
        let Some(family) = host.0.upgrade() else { return Err(unfit("the trunk that it was to share has gone")) };
        if Arc::ptr_eq(&self.family, &family) {
            return Err(unfit("it shares that trunk already"));
        }
        let (mut own, mut shared) = (lock(&self.family), lock(&family));
        let shapes = |part: &L::Part| {
            let Signature { inputs, outputs } = part.signature();
            let of = |spec: &TensorSpec| (spec.data_type, spec.item_shape.clone());
            (inputs.iter().map(of).collect::<Vec<_>>(), outputs.iter().map(of).collect::<Vec<_>>())
        };
        if own.trunk_hash != shared.trunk_hash || shapes(&own.trunk) != shapes(&shared.trunk) {
            return Err(unfit("it does not begin with the trunk that is loaded"));
        }
        if shared.suffixes.contains_key(&self.variant) {
            return Err(unfit("it is loaded already"));
        }
        let Some((suffix, asked)) = own.take(self.variant) else { return Err(unfit("its suffix has gone")) };
        shared.suffixes.insert(self.variant, suffix);
        shared.asked.extend(asked.map(|asked| (self.variant, asked)));
        // The larger one serves all of them, from the next batch on.
        if own.trunk.batch_max() > shared.trunk.batch_max() {
            mem::swap(&mut own.trunk, &mut shared.trunk);
        }
        let trunk_memory = shared.trunk.memory().unwrap_or_default();
        drop((own, shared));
        self.trunk_memory = trunk_memory;
        self.family = family;
        Ok(self)
    }

    /// What another model of its trunk [`joins`](Self::join).
    #[must_use]
    pub fn shared_trunk(&self) -> SharedTrunk<L> {
        SharedTrunk(Arc::downgrade(&self.family))
    }

    /// Its number in [`Segment`]s.
    #[must_use]
    pub const fn variant(&self) -> u32 {
        self.variant
    }
}

impl<L: PartLoader> SharingExecutor for FamilyMember<L> {
    fn trunk(&self) -> CutDigest {
        self.trunk
    }

    fn trunk_place(&self) -> usize {
        Arc::as_ptr(&self.family).addr()
    }

    /// As it was when this model joined, while a batch runs through it: no caller waits for that.
    fn trunk_memory(&self) -> MemoryUse {
        let now = self.family.try_lock().ok().and_then(|family| family.trunk.memory());
        now.unwrap_or(self.trunk_memory)
    }

    fn shares(&self) -> PartShares {
        self.shares
    }

    fn run_mixed(
        &self,
        batch: &BatchInputs<'_>,
        segments: &[Segment],
        outputs: &mut Vec<Vec<Vec<u8>>>,
    ) -> Result<(), ExecuteError> {
        lock(&self.family).run(batch, segments, outputs).map_err(|error| match error {
            FamilyRunError::Execute(error) => error,
            other => ExecuteError::Failed { items: batch.items, reason: other.to_string() },
        })
    }
}

impl<L: PartLoader> ModelExecutor for FamilyMember<L> {
    fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        batch.check(&self.signature, self.batch_max)?;
        let mut of_segments = vec![mem::take(outputs)];
        let ran = self.run_mixed(batch, &[Segment { variant: self.variant, rows: batch.items }], &mut of_segments);
        *outputs = of_segments.pop().unwrap_or_default();
        ran
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn batch_max(&self) -> u32 {
        self.batch_max
    }

    /// The suffix's; as it was loaded, while a batch runs through the trunk: no caller waits for that.
    fn memory(&self) -> Option<MemoryUse> {
        Some(self.family.try_lock().map_or(self.memory, |family| family.suffix_memory(self.variant)))
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn in_family(&self) -> Option<&dyn SharingExecutor> {
        Some(self)
    }
}

impl<L: PartLoader> Drop for FamilyMember<L> {
    fn drop(&mut self) {
        let suffix = lock(&self.family).take(self.variant);
        // Outside the lock: batches of the others wait for no memory that is freed.
        drop(suffix);
    }
}

impl<L: PartLoader> FamilyExecutor<L> {
    /// Takes the suffix of a variant out, with what it is asked for.
    pub(super) fn take(&mut self, variant: u32) -> Option<(L::Part, Option<Vec<usize>>)> {
        let asked = self.asked.remove(&variant);
        self.suffixes.remove(&variant).map(|suffix| (suffix, asked))
    }

    fn suffix_memory(&self, variant: u32) -> MemoryUse {
        self.suffixes.get(&variant).and_then(ModelExecutor::memory).unwrap_or_default()
    }

    /// Reserves the memory of a variant and its trunk against batches, prepares the runtime, and measures what part of
    /// the time each takes.
    fn settle(&mut self, variant: u32, before: &dyn Fn(u32)) -> Result<PartShares, String> {
        let suffix = self.suffixes.get_mut(&variant).ok_or("its suffix has gone")?;
        for part in [&mut self.trunk, &mut *suffix] {
            let kept = part.keep_clear_of_batches();
            kept.map_err(|error| format!("there is no memory for its parts: {error}"))?;
        }
        let batch_max = self.trunk.batch_max();
        let mut shares = PartShares::default();
        for rows in 1..=batch_max {
            let is_measured = rows == 1 || rows == batch_max;
            if !is_measured && !L::Part::PREPARES_SIZES {
                continue;
            }
            let inputs = self.trunk.signature().inputs.iter().map(|spec| plausible_input(spec, rows));
            let inputs: Vec<_> = inputs.collect();
            let tensors: Vec<_> = inputs.iter().map(Vec::as_slice).collect();
            let batch = BatchInputs { items: rows, tensors: &tensors, start: None };
            let runs = if is_measured { RUNS } else { 0 };
            let trunk = &mut self.trunk;
            let of_trunk = || trunk.begin_trunk(&batch).and_then(|()| trunk.wait());
            let of_trunk = shortest((rows, runs), before, of_trunk)?;
            let (trunk, answers) = (&mut self.trunk, &mut self.answers);
            let all = 0..rows as usize;
            let of_suffix = || {
                suffix.begin_suffix(trunk, slice::from_ref(&all))?;
                suffix.end_suffix(answers)
            };
            let of_suffix = shortest((rows, runs), before, of_suffix)?;
            if is_measured {
                shares = shares.larger_of(PartShares::of(of_trunk, of_suffix));
            }
        }
        Ok(shares)
    }
}

/// The shortest of so many runs of a part on a batch of so many rows, after one that takes memory.
fn shortest(
    (rows, runs): (u32, u32),
    before: &dyn Fn(u32),
    mut run: impl FnMut() -> Result<(), ExecuteError>,
) -> Result<Duration, String> {
    let mut least = Duration::MAX;
    for _ in 0..=runs {
        before(rows);
        let begun = Instant::now();
        run().map_err(|error| error.to_string())?;
        least = least.min(begun.elapsed());
    }
    Ok(least)
}

fn lock<L: PartLoader>(family: &Mutex<FamilyExecutor<L>>) -> MutexGuard<'_, FamilyExecutor<L>> {
    family.lock().unwrap_or_else(PoisonError::into_inner)
}
