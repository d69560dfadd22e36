//! Runs models that share a trunk: the trunk once for all rows of a batch, each suffix on the rows of its variant
//! (Nexus, section 6.3; docs/adr/0045-prefix-batching.md).

mod check;
mod cpu_part;
mod cut_type;
mod error;
mod family_file;
mod family_part;
mod member;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use symphony_onnx_graph::{Cut, End, Model, Part, ValueHash, common_cut};
use symphony_types::{CutDigest, Signature, TensorSpec};

use crate::onnx_session::OnnxOptions;
use crate::port::{BatchInputs, MemoryUse, ModelExecutor, Segment};
use crate::runtime::Runtime;
use crate::stop::Stop;

pub use cpu_part::{CpuLoader, CpuPart};
pub use error::{FamilyError, FamilyRunError};
pub use family_file::{FAMILY_FILE_BYTES_MAX, FamilyFile};
pub use family_part::{FamilyPart, PartLoader};
pub use member::{FamilyMember, MemberOptions, SharedTrunk};

/// A family where its loader puts it: its trunk, which runs once for a batch, and the suffix of each variant.
#[derive(Debug)]
pub struct FamilyExecutor<L: PartLoader = CpuLoader> {
    loader: L,
    /// What ends a batch of a part or of a whole model, and after how long; none if nothing does.
    limit: Option<(Stop, Duration)>,
    trunk_hash: ValueHash,
    trunk: L::Part,
    suffixes: BTreeMap<u32, L::Part>,
    /// Which of its outputs a variant is asked for, by their places; all of them in their order if it is not here.
    asked: BTreeMap<u32, Vec<usize>>,
    /// Of one suffix. Reused from batch to batch.
    answers: Vec<Vec<u8>>,
}

/// The segments of a batch that are of one variant.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    variant: u32,
    /// Their places among all.
    segments: Vec<usize>,
    /// Their rows in the batch, neighbours as one range.
    rows: Vec<Range<usize>>,
}

impl FamilyExecutor {
    /// Forms a family on the CPU, as [`form_by`](Self::form_by) does. `options.signature` does not count.
    ///
    /// # Errors
    /// As there.
    pub fn form(runtime: &Runtime, models: &[(&str, Bytes)], options: &OnnxOptions) -> Result<Self, FamilyError> {
        Self::form_by(CpuLoader::new(runtime, options), models)
    }
}

impl<L: PartLoader> FamilyExecutor<L> {
    /// Forms the family of these models, named and as bytes of ONNX files: they become the variants 0, 1, … at the
    /// deepest trunk that all of them share. Inputs are those of the first model, in its order.
    ///
    /// # Errors
    /// If they share no trunk, or one of them cannot be taken apart, loaded, or answers otherwise in parts than whole:
    /// then nothing of the family stays.
    pub fn form_by(loader: L, models: &[(&str, Bytes)]) -> Result<Self, FamilyError> {
        let graphs = models.iter().map(|(name, bytes)| read(name, bytes)).collect::<Result<Vec<_>, _>>()?;
        let Some(&(first, _)) = models.first() else { return Err(FamilyError::Empty) };
        let all: Vec<&Model> = graphs.iter().collect();
        let no_trunk = || FamilyError::NoTrunk { first: first.to_owned(), models: models.len() };
        let cuts = common_cut(&all).ok_or_else(no_trunk)?;
        Self::cut_at(loader, models, &graphs, &cuts, None, &|_| ())
    }

    /// As [`form_by`](Self::form_by), at the trunk of that digest. Batches that take longer than the limit are aborted,
    /// and all once it is given up. `before` is called before each batch, with its rows.
    fn form_at(
        loader: L,
        models: &[(&str, Bytes)],
        trunk: CutDigest,
        limit: Option<(Stop, Duration)>,
        before: &dyn Fn(u32),
    ) -> Result<Self, FamilyError> {
        let graphs = models.iter().map(|(name, bytes)| read(name, bytes)).collect::<Result<Vec<_>, _>>()?;
        let mut cuts = Vec::with_capacity(graphs.len());
        for (graph, (name, _)) in graphs.iter().zip(models) {
            let cut = graph.cuts().iter().find(|cut| CutDigest::of(cut.hash.as_bytes()) == trunk);
            cuts.push(cut.ok_or_else(|| FamilyError::OtherTrunk { model: (*name).to_owned() })?);
        }
        Self::cut_at(loader, models, &graphs, &cuts, limit, before)
    }

    /// Forms the family of models that are cut there, each at its own place.
    fn cut_at(
        loader: L,
        models: &[(&str, Bytes)],
        graphs: &[Model],
        cuts: &[&Cut],
        limit: Option<(Stop, Duration)>,
        before: &dyn Fn(u32),
    ) -> Result<Self, FamilyError> {
        let Some(((&(first, _), model), &cut)) = models.first().zip(graphs.first()).zip(cuts.first()) else {
            return Err(FamilyError::Empty);
        };
        let to = Some(End { value: cut.value.clone(), value_type: None });
        let trunk = part(first, model, &Part { from: None, to })?;
        let trunk = loader.load(&format!("trunk of {first}"), &trunk)?;
        let mut family = Self {
            loader,
            trunk: limited(trunk, limit.as_ref()),
            limit,
            trunk_hash: cut.hash,
            suffixes: BTreeMap::new(),
            asked: BTreeMap::new(),
            answers: Vec::new(),
        };
        for (variant, ((name, bytes), (model, cut))) in (0..).zip(models.iter().zip(graphs.iter().zip(cuts))) {
            let suffix = family.suffix_of(name, model, cut)?;
            family.admit(variant, name, bytes, &suffix, before)?;
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
        self.admit(variant, name, bytes, &suffix, &|_| ())
    }

    /// Drops the suffix of a variant. Returns whether it was loaded.
    pub fn unload(&mut self, variant: u32) -> bool {
        self.take(variant).is_some()
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
    /// buffer per output that its variant is asked for.
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
        outputs.resize_with(segments.len(), Vec::new);
        let groups = groups(segments);
        self.trunk.begin_trunk(batch)?;
        // All of them begin before the first one is waited for: a device does not idle between two.
        for group in &groups {
            if let Some(suffix) = self.suffixes.get_mut(&group.variant).filter(|_| !group.rows.is_empty()) {
                suffix.begin_suffix(&mut self.trunk, &group.rows)?;
            }
        }
        for group in &groups {
            let Some(suffix) = self.suffixes.get_mut(&group.variant) else { continue };
            if !group.rows.is_empty() {
                suffix.end_suffix(&mut self.answers)?;
            }
            let asked = self.asked.get(&group.variant).map(Vec::as_slice);
            hand_out((&suffix.signature().outputs, asked), &self.answers, (group, segments), outputs);
        }
        Ok(())
    }

    /// The suffix of a model that is cut there. Its input has the type that ONNX Runtime says of the trunk's output.
    fn suffix_of(&self, name: &str, model: &Model, cut: &Cut) -> Result<Vec<u8>, FamilyError> {
        let value_type = self.trunk.signature().outputs.first().map(cut_type::cut_type);
        part(name, model, &Part { from: Some(End { value: cut.value.clone(), value_type }), to: None })
    }

    /// Loads a suffix, and keeps it if it answers with the trunk as the whole model does.
    fn admit(
        &mut self,
        variant: u32,
        name: &str,
        whole: &[u8],
        suffix: &[u8],
        before: &dyn Fn(u32),
    ) -> Result<(), FamilyError> {
        let load =
            |name: &str, bytes: &[u8]| self.loader.load(name, bytes).map(|part| limited(part, self.limit.as_ref()));
        let mut suffix = load(&format!("suffix of {name}"), suffix)?;
        let words = |specs: &[TensorSpec], batch_max: u32| {
            let tensors: Vec<_> =
                specs.iter().map(|spec| format!("{} {:?}", spec.data_type, spec.item_shape)).collect();
            format!("{} in batches of at most {batch_max}", tensors.join(", "))
        };
        let shapes = |specs: &[TensorSpec]| -> Vec<_> {
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
        check::compare(name, &mut whole, &mut self.trunk, &mut suffix, before)?;
        self.take(variant);
        self.suffixes.insert(variant, suffix);
        Ok(())
    }
}

/// The part with that limit to its batches.
fn limited<P: FamilyPart>(part: P, limit: Option<&(Stop, Duration)>) -> P {
    match limit {
        Some((stop, within)) => part.ended_by(stop.clone(), *within),
        None => part,
    }
}

/// The segments by variant, in the order of variants.
fn groups(segments: &[Segment]) -> Vec<Group> {
    let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
    let mut first = 0;
    for (place, &Segment { variant, rows }) in segments.iter().enumerate() {
        let until = first + rows as usize;
        let empty = || Group { variant, segments: Vec::new(), rows: Vec::new() };
        let group = groups.entry(variant).or_insert_with(empty);
        group.segments.push(place);
        match group.rows.last_mut() {
            Some(before) if before.end == first => before.end = until,
            _ if rows > 0 => group.rows.push(first..until),
            _ => {}
        }
        first = until;
    }
    groups.into_values().collect()
}

/// Gives each segment of a group its rows of the answers of the suffix, which has these outputs.
fn hand_out(
    (specs, asked): (&[TensorSpec], Option<&[usize]>),
    answers: &[Vec<u8>],
    (group, segments): (&Group, &[Segment]),
    outputs: &mut [Vec<Vec<u8>>],
) {
    let given = || asked.map_or(0..specs.len(), |asked| 0..asked.len());
    let mut from = 0;
    for &segment in &group.segments {
        let until = from + segments[segment].rows as usize;
        outputs[segment].resize_with(given().len(), Vec::new);
        for (index, output) in given().zip(&mut outputs[segment]) {
            let place = asked.map_or(index, |asked| asked[index]);
            output.clear();
            let Some(spec) = specs.get(place) else { continue };
            let bytes = from * spec.item_bytes()..until * spec.item_bytes();
            output.extend_from_slice(answers.get(place).and_then(|all| all.get(bytes)).unwrap_or_default());
        }
        from = until;
    }
}

fn read(name: &str, bytes: &Bytes) -> Result<Model, FamilyError> {
    Model::read(bytes.clone()).map_err(|problem| FamilyError::Graph { model: name.to_owned(), problem })
}

fn part(name: &str, model: &Model, part: &Part) -> Result<Vec<u8>, FamilyError> {
    model.part(part).map_err(|problem| FamilyError::Graph { model: name.to_owned(), problem })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use symphony_testkit::needed;
    use symphony_zoo::{Architecture, Mlp};

    use super::*;

    const SHAPE: Mlp = Mlp { width_in: 6, width: 16, hidden: 2, classes: 3 };

    fn head(seed: u64) -> Bytes {
        Architecture::mlp_head(SHAPE, 1, seed).unwrap().bytes().to_vec().into()
    }

    #[test]
    fn neighbours_of_a_variant_are_one_range_and_what_has_no_rows_is_none() {
        let segment = |variant, rows| Segment { variant, rows };
        let [a, b] = [4, 9];
        let group = |variant, segments: &[usize], rows: &[(usize, usize)]| {
            let rows = rows.iter().map(|&(from, until)| from..until).collect();
            Group { variant, segments: segments.to_vec(), rows }
        };
        let all = groups(&[segment(b, 2), segment(a, 1), segment(a, 0), segment(a, 3), segment(b, 1)]);
        assert_eq!(all, [group(a, &[1, 2, 3], &[(2, 6)]), group(b, &[0, 4], &[(0, 2), (6, 7)])]);
        assert_eq!(groups(&[segment(a, 0), segment(b, 1)]), [group(a, &[0], &[]), group(b, &[1], &[(0, 1)])]);
    }

    #[test]
    fn a_wrong_suffix_is_found_and_the_family_stays_as_it_was() {
        let Some(runtime) = needed("onnxruntime", crate::load_runtime(None)) else { return };
        let mut family = FamilyExecutor::form(&runtime, &[("a", head(1))], &OnnxOptions::default()).unwrap();
        let other = Model::read(head(2)).unwrap();
        let cut = other.cuts().iter().find(|cut| cut.hash == family.trunk_hash).unwrap();
        let suffix_of_other = family.suffix_of("b", &other, cut).unwrap();
        let planted = family.admit(1, "a", &head(1), &suffix_of_other, &|_| ()).unwrap_err();
        assert!(matches!(&planted, FamilyError::Differs { model, row: 0, rows: 1, .. } if model == "a"), "{planted}");
        assert_eq!(family.variants().collect::<Vec<_>>(), [0]);
        family.admit(1, "b", &head(2), &suffix_of_other, &|_| ()).unwrap();
        assert_eq!(family.variants().collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn each_run_of_a_comparison_asks_for_its_turn() {
        let Some(runtime) = needed("onnxruntime", crate::load_runtime(None)) else { return };
        let (models, options) = ([("a", head(1))], OnnxOptions::default());
        let trunk = FamilyExecutor::form(&runtime, &models, &options).unwrap().trunk_hash;
        let (trunk, asked) = (CutDigest::of(trunk.as_bytes()), RefCell::new(Vec::new()));
        let before = |rows| asked.borrow_mut().push(rows);
        FamilyExecutor::form_at(CpuLoader::new(&runtime, &options), &models, trunk, None, &before).unwrap();
        // The whole, the trunk and the suffix, of one row and of eight; the whole, of eight rows and of three alone.
        assert_eq!(asked.into_inner(), [1, 1, 1, 8, 8, 8, 8, 1, 1, 1]);
    }
}
