//! Runs models that share a trunk: the trunk once for all rows of a batch, each suffix on the rows of its variant
//! (Nexus, section 6.3; docs/adr/0045-prefix-batching.md).

mod check;
mod cut_type;
mod error;
mod family_file;
mod member;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use symphony_onnx_graph::{Cut, End, Model, Part, ValueHash, common_cut};
use symphony_types::{CutDigest, Signature};

use crate::onnx::OnnxExecutor;
use crate::onnx_session::OnnxOptions;
use crate::port::{BatchInputs, MemoryUse, ModelExecutor, Segment};
use crate::runtime::Runtime;
use crate::stop::Stop;

pub use error::{FamilyError, FamilyRunError};
pub use family_file::{FAMILY_FILE_BYTES_MAX, FamilyFile};
pub use member::{FamilyMember, MemberOptions, SharedTrunk};

/// A family in the process, run on the calling thread: its trunk once, and the suffix of each variant.
#[derive(Debug)]
pub struct FamilyExecutor {
    runtime: Runtime,
    options: OnnxOptions,
    /// What ends a batch of a part or of a whole model, and after how long; none if nothing does.
    limit: Option<(Stop, Duration)>,
    trunk_hash: ValueHash,
    trunk: OnnxExecutor,
    suffixes: BTreeMap<u32, OnnxExecutor>,
    // Reused from batch to batch.
    between: Vec<Vec<u8>>,
    gathered: Vec<u8>,
    answers: Vec<Vec<u8>>,
}

impl FamilyExecutor {
    /// Forms the family of these models, named and as bytes of ONNX files: they become the variants 0, 1, … at the
    /// deepest trunk that all of them share. `options.signature` does not count: inputs are those of the first model,
    /// in its order.
    ///
    /// # Errors
    /// If they share no trunk, or one of them cannot be taken apart, loaded, or answers otherwise in parts than whole:
    /// then nothing of the family stays.
    pub fn form(runtime: &Runtime, models: &[(&str, Bytes)], options: &OnnxOptions) -> Result<Self, FamilyError> {
        let graphs = models.iter().map(|(name, bytes)| read(name, bytes)).collect::<Result<Vec<_>, _>>()?;
        let Some(&(first, _)) = models.first() else { return Err(FamilyError::Empty) };
        let all: Vec<&Model> = graphs.iter().collect();
        let no_trunk = || FamilyError::NoTrunk { first: first.to_owned(), models: models.len() };
        let cuts = common_cut(&all).ok_or_else(no_trunk)?;
        Self::cut_at(runtime, models, &graphs, &cuts, (options, None))
    }

    /// As [`form`](Self::form), at the trunk of that digest. Batches that take longer than the limit are aborted, and
    /// all once it is given up.
    fn form_at(
        runtime: &Runtime,
        models: &[(&str, Bytes)],
        trunk: CutDigest,
        (options, limit): (&OnnxOptions, Option<(Stop, Duration)>),
    ) -> Result<Self, FamilyError> {
        let graphs = models.iter().map(|(name, bytes)| read(name, bytes)).collect::<Result<Vec<_>, _>>()?;
        let mut cuts = Vec::with_capacity(graphs.len());
        for (graph, (name, _)) in graphs.iter().zip(models) {
            let cut = graph.cuts().iter().find(|cut| CutDigest::of(cut.hash.as_bytes()) == trunk);
            cuts.push(cut.ok_or_else(|| FamilyError::OtherTrunk { model: (*name).to_owned() })?);
        }
        Self::cut_at(runtime, models, &graphs, &cuts, (options, limit))
    }

    /// Forms the family of models that are cut there, each at its own place.
    fn cut_at(
        runtime: &Runtime,
        models: &[(&str, Bytes)],
        graphs: &[Model],
        cuts: &[&Cut],
        (options, limit): (&OnnxOptions, Option<(Stop, Duration)>),
    ) -> Result<Self, FamilyError> {
        let Some(((&(first, _), model), &cut)) = models.first().zip(graphs.first()).zip(cuts.first()) else {
            return Err(FamilyError::Empty);
        };
        let options = OnnxOptions { signature: None, ..options.clone() };
        let to = Some(End { value: cut.value.clone(), value_type: None });
        let trunk = part(first, model, &Part { from: None, to })?;
        let trunk = OnnxExecutor::from_memory(runtime, &format!("trunk of {first}"), &trunk, &options)?;
        let mut family = Self {
            runtime: runtime.clone(),
            options,
            trunk: limited(trunk, limit.as_ref()),
            limit,
            trunk_hash: cut.hash,
            suffixes: BTreeMap::new(),
            between: Vec::new(),
            gathered: Vec::new(),
            answers: Vec::new(),
        };
        for (variant, ((name, bytes), (model, cut))) in (0..).zip(models.iter().zip(graphs.iter().zip(cuts))) {
            let suffix = family.suffix_of(name, model, cut)?;
            family.admit(variant, name, bytes, &suffix)?;
        }
        Ok(family)
    }

    /// Adds a variant, or replaces it. Its suffix is loaded and stays; the whole model is loaded beside it, compared on
    /// given inputs, and dropped. The trunk and the other variants stay as they are.
    ///
    /// # Errors
    /// If it does not begin with the trunk, cannot be taken apart or loaded, or answers otherwise in parts than whole.
    /// The family is then as it was.
    pub fn load(&mut self, variant: u32, name: &str, bytes: &Bytes) -> Result<(), FamilyError> {
        let model = read(name, bytes)?;
        let cut = model.cuts().iter().find(|cut| cut.hash == self.trunk_hash);
        let cut = cut.ok_or_else(|| FamilyError::OtherTrunk { model: name.to_owned() })?;
        let suffix = self.suffix_of(name, &model, cut)?;
        self.admit(variant, name, bytes, &suffix)
    }

    /// Drops the suffix of a variant. Returns whether it was loaded.
    pub fn unload(&mut self, variant: u32) -> bool {
        self.suffixes.remove(&variant).is_some()
    }

    /// The variants that are loaded, in order.
    pub fn variants(&self) -> impl Iterator<Item = u32> {
        self.suffixes.keys().copied()
    }

    /// Inputs of all variants, and outputs of this one; `None` if it is not loaded.
    #[must_use]
    pub fn signature(&self, variant: u32) -> Option<Signature> {
        let outputs = self.suffixes.get(&variant)?.signature().outputs.clone();
        Some(Signature { inputs: self.trunk.signature().inputs.clone(), outputs })
    }

    /// The largest batch, in rows of any variants.
    #[must_use]
    pub fn batch_max(&self) -> u32 {
        self.trunk.batch_max()
    }

    /// Memory of all sessions together: the trunk counts once.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        let parts = std::iter::once(&self.trunk).chain(self.suffixes.values());
        parts.filter_map(ModelExecutor::memory).fold(MemoryUse::default(), |sum, part| MemoryUse {
            static_bytes: sum.static_bytes + part.static_bytes,
            dynamic_bytes: sum.dynamic_bytes + part.dynamic_bytes,
        })
    }

    /// Runs one batch whose rows are those of the segments, one after another. `outputs` gets, for each segment, one
    /// buffer per output of its variant's signature.
    ///
    /// Rows of one variant that are not neighbours are gathered from the trunk's output.
    ///
    /// # Errors
    /// If the segments are not those of the batch, if a variant is not loaded, if the batch does not fit, or if the
    /// trunk or a suffix fails. `outputs` then holds nothing of worth, and the executor can be used again.
    pub fn run(
        &mut self,
        batch: &BatchInputs<'_>,
        segments: &[Segment],
        outputs: &mut Vec<Vec<Vec<u8>>>,
    ) -> Result<(), FamilyRunError> {
        batch.check(self.trunk.signature(), self.trunk.batch_max())?;
        let rows: u64 = segments.iter().map(|segment| u64::from(segment.rows)).sum();
        if rows != u64::from(batch.items) {
            return Err(FamilyRunError::Segments { rows, items: batch.items });
        }
        if let Some(missing) = segments.iter().find(|segment| !self.suffixes.contains_key(&segment.variant)) {
            return Err(FamilyRunError::NotLoaded { variant: missing.variant });
        }
        self.trunk.run(batch, &mut self.between)?;
        let mut order: Vec<usize> = (0..segments.len()).collect();
        order.sort_by_key(|&segment| segments[segment].variant);
        let firsts = first_rows(segments);
        outputs.resize_with(segments.len(), Vec::new);
        for group in order.chunk_by(|&a, &b| segments[a].variant == segments[b].variant) {
            self.run_suffix(segments, &firsts, group, outputs)?;
        }
        Ok(())
    }

    /// Runs the suffix of a group of segments of one variant on their rows of the trunk's output.
    fn run_suffix(
        &mut self,
        segments: &[Segment],
        firsts: &[usize],
        group: &[usize],
        outputs: &mut [Vec<Vec<u8>>],
    ) -> Result<(), FamilyRunError> {
        let Some(&first) = group.first() else { return Ok(()) };
        let variant = segments[first].variant;
        let suffix = self.suffixes.get_mut(&variant).ok_or(FamilyRunError::NotLoaded { variant })?;
        let rows_of = |segment: usize| segments[segment].rows as usize;
        let rows: usize = group.iter().map(|&segment| rows_of(segment)).sum();
        let row_bytes = self.trunk.signature().outputs.first().map_or(0, |spec| spec.item_bytes());
        let between = self.between.first().map(Vec::as_slice).unwrap_or_default();
        let taken =
            |from: usize, rows: usize| between.get(from * row_bytes..(from + rows) * row_bytes).unwrap_or_default();
        let are_neighbours = group.windows(2).all(|pair| firsts[pair[0]] + rows_of(pair[0]) == firsts[pair[1]]);
        let given = if are_neighbours {
            taken(firsts[first], rows)
        } else {
            self.gathered.clear();
            for &segment in group {
                self.gathered.extend_from_slice(taken(firsts[segment], rows_of(segment)));
            }
            self.gathered.as_slice()
        };
        if rows > 0 {
            let batch = BatchInputs { items: rows as u32, tensors: &[given], start: None };
            suffix.run(&batch, &mut self.answers)?;
        }
        let specs = &suffix.signature().outputs;
        let mut from = 0;
        for &segment in group {
            let until = from + rows_of(segment);
            outputs[segment].resize_with(specs.len(), Vec::new);
            for (place, (spec, output)) in specs.iter().zip(&mut outputs[segment]).enumerate() {
                let bytes = from * spec.item_bytes()..until * spec.item_bytes();
                output.clear();
                output.extend_from_slice(self.answers.get(place).and_then(|all| all.get(bytes)).unwrap_or_default());
            }
            from = until;
        }
        Ok(())
    }

    /// The suffix of a model that is cut there. Its input has the type that ONNX Runtime says of the trunk's output.
    fn suffix_of(&self, name: &str, model: &Model, cut: &Cut) -> Result<Vec<u8>, FamilyError> {
        let value_type = self.trunk.signature().outputs.first().map(cut_type::cut_type);
        part(name, model, &Part { from: Some(End { value: cut.value.clone(), value_type }), to: None })
    }

    /// Loads a suffix, and keeps it if it answers with the trunk as the whole model does.
    fn admit(&mut self, variant: u32, name: &str, whole: &[u8], suffix: &[u8]) -> Result<(), FamilyError> {
        let load = |name: &str, bytes: &[u8]| {
            let loaded = OnnxExecutor::from_memory(&self.runtime, name, bytes, &self.options);
            loaded.map(|executor| limited(executor, self.limit.as_ref()))
        };
        let mut suffix = load(&format!("suffix of {name}"), suffix)?;
        let words = |specs: &[symphony_types::TensorSpec], batch_max: u32| {
            let tensors: Vec<_> =
                specs.iter().map(|spec| format!("{} {:?}", spec.data_type, spec.item_shape)).collect();
            format!("{} in batches of at most {batch_max}", tensors.join(", "))
        };
        let shapes = |specs: &[symphony_types::TensorSpec]| -> Vec<_> {
            specs.iter().map(|spec| (spec.data_type, spec.item_shape.clone())).collect()
        };
        let (takes, gives) = (&suffix.signature().inputs, &self.trunk.signature().outputs);
        if suffix.batch_max() < self.trunk.batch_max() || shapes(takes) != shapes(gives) {
            return Err(FamilyError::Suffix {
                model: name.to_owned(),
                takes: words(takes, suffix.batch_max()),
                gives: words(gives, self.trunk.batch_max()),
            });
        }
        let mut whole = load(name, whole)?;
        check::compare(name, &mut whole, &mut self.trunk, &mut suffix)?;
        self.suffixes.insert(variant, suffix);
        Ok(())
    }
}

/// The executor with that limit to its batches.
fn limited(executor: OnnxExecutor, limit: Option<&(Stop, Duration)>) -> OnnxExecutor {
    match limit {
        Some((stop, within)) => executor.ended_by(stop.clone(), *within),
        None => executor,
    }
}

/// Where each segment's rows begin in the batch.
fn first_rows(segments: &[Segment]) -> Vec<usize> {
    let first = |next: &mut usize, segment: &Segment| {
        let first = *next;
        *next += segment.rows as usize;
        Some(first)
    };
    segments.iter().scan(0, first).collect()
}

fn read(name: &str, bytes: &Bytes) -> Result<Model, FamilyError> {
    Model::read(bytes.clone()).map_err(|problem| FamilyError::Graph { model: name.to_owned(), problem })
}

fn part(name: &str, model: &Model, part: &Part) -> Result<Vec<u8>, FamilyError> {
    model.part(part).map_err(|problem| FamilyError::Graph { model: name.to_owned(), problem })
}

#[cfg(test)]
mod tests {
    use symphony_testkit::needed;
    use symphony_zoo::{Architecture, Mlp};

    use super::*;

    const SHAPE: Mlp = Mlp { width_in: 6, width: 16, hidden: 2, classes: 3 };

    fn head(seed: u64) -> Bytes {
        Architecture::mlp_head(SHAPE, 1, seed).unwrap().bytes().to_vec().into()
    }

    #[test]
    fn a_wrong_suffix_is_found_and_the_family_stays_as_it_was() {
        let Some(runtime) = needed("onnxruntime", crate::load_runtime(None)) else { return };
        let mut family = FamilyExecutor::form(&runtime, &[("a", head(1))], &OnnxOptions::default()).unwrap();
        let other = Model::read(head(2)).unwrap();
        let cut = other.cuts().iter().find(|cut| cut.hash == family.trunk_hash).unwrap();
        let suffix_of_other = family.suffix_of("b", &other, cut).unwrap();
        let planted = family.admit(1, "a", &head(1), &suffix_of_other).unwrap_err();
        assert!(matches!(&planted, FamilyError::Differs { model, row: 0, rows: 1, .. } if model == "a"), "{planted}");
        assert_eq!(family.variants().collect::<Vec<_>>(), [0]);
        family.admit(1, "b", &head(2), &suffix_of_other).unwrap();
        assert_eq!(family.variants().collect::<Vec<_>>(), [0, 1]);
    }
}
