//! The promises of families, wherever their parts run. `symphony-executor-gpu` runs them against its parts, too.

use symphony_executor::{
    BatchInputs, ExecuteError, FamilyError, FamilyExecutor, FamilyRunError, ModelExecutor, PartLoader, Segment,
};

/// Heads on one trunk, by number.
pub(crate) struct Heads<'a> {
    /// The file of a head.
    pub(crate) file: &'a dyn Fn(u32) -> Vec<u8>,
    /// A head as a whole.
    pub(crate) whole: &'a dyn Fn(u32) -> Box<dyn ModelExecutor>,
    /// The file of a model with another trunk.
    pub(crate) stranger: Vec<u8>,
    /// How far answers may be apart, absolutely or relatively to the larger one.
    pub(crate) tolerance: f32,
}

impl Heads<'_> {
    /// The family of the first heads, head `number` as that variant.
    pub(crate) fn family<L: PartLoader>(&self, loader: L, count: u32) -> FamilyExecutor<L> {
        let names: Vec<_> = (0..count).map(|number| format!("head-{number}")).collect();
        let files = (0..count).map(|number| (self.file)(number).into());
        let models: Vec<_> = names.iter().map(String::as_str).zip(files).collect();
        FamilyExecutor::form_by(loader, &models).unwrap()
    }

    /// Each segment's answers are those of its head as a whole for the same rows.
    #[track_caller]
    pub(crate) fn answer_as_whole<L: PartLoader>(
        &self,
        family: &mut FamilyExecutor<L>,
        segments: &[Segment],
        head_of: impl Fn(u32) -> u32,
    ) {
        let outputs = run(family, segments).unwrap();
        assert_eq!(outputs.len(), segments.len());
        let all = rows(family, segments.iter().map(|segment| segment.rows).sum());
        let mut rest = &all[..];
        for (segment, parts) in segments.iter().zip(&outputs) {
            let (own, others) = rest.split_at(segment.rows as usize * row_bytes(family));
            rest = others;
            let mut whole = (self.whole)(head_of(segment.variant));
            let mut answer = Vec::new();
            whole.run(&BatchInputs { items: segment.rows, tensors: &[own], start: None }, &mut answer).unwrap();
            assert_eq!(answer.len(), parts.len(), "{segment:?}");
            for (whole, parts) in answer.iter().zip(parts) {
                let (whole, parts) = (floats(whole), floats(parts));
                let near = |(a, b): (&f32, &f32)| (a - b).abs() <= self.tolerance * a.abs().max(b.abs()).max(1.0);
                let are_near = whole.len() == parts.len() && whole.iter().zip(&parts).all(near);
                assert!(are_near, "{segment:?}: {whole:?} whole, {parts:?} in parts");
            }
        }
    }
}

fn row_bytes<L: PartLoader>(family: &FamilyExecutor<L>) -> usize {
    let variant = family.variants().next().unwrap();
    family.signature(variant).unwrap().inputs[0].item_bytes()
}

/// Rows of FP32 that differ.
fn rows<L: PartLoader>(family: &FamilyExecutor<L>, count: u32) -> Vec<u8> {
    let elements = count * row_bytes(family) as u32 / 4;
    (0..elements).flat_map(|element| ((element * 7 % 251) as f32 / 125.0 - 1.0).to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect()
}

pub(crate) fn segment(variant: u32, rows: u32) -> Segment {
    Segment { variant, rows }
}

/// Runs a batch of these segments.
pub(crate) fn run<L: PartLoader>(
    family: &mut FamilyExecutor<L>,
    segments: &[Segment],
) -> Result<Vec<Vec<Vec<u8>>>, FamilyRunError> {
    let items = segments.iter().map(|segment| segment.rows).sum();
    // What an earlier batch left there does not matter.
    let (input, mut outputs) = (rows(family, items), vec![vec![vec![7; 99]; 3]; 2]);
    family.run(&BatchInputs { items, tensors: &[&input], start: None }, segments, &mut outputs)?;
    Ok(outputs)
}

pub(crate) fn mixed_batches_answer_as_the_whole_models_do<L: PartLoader>(
    family: &mut FamilyExecutor<L>,
    heads: &Heads<'_>,
) {
    let count = family.variants().count() as u32;
    assert_eq!(family.variants().collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
    // Neighbours, so that nothing is gathered; one variant; requests in the order of deadlines; all of them.
    let neighbours = [segment(0, 2), segment(3, 1), segment(3, 2), segment(count - 1, 1)];
    let mixed = [segment(4, 2), segment(1, 1), segment(4, 1), segment(0, 3), segment(1, 2)];
    let all: Vec<_> = (0..count).rev().map(|variant| segment(variant, 1 + variant % 3)).collect();
    for segments in [&neighbours[..], &[segment(2, 1)][..], &mixed[..], &all[..]] {
        heads.answer_as_whole(family, segments, |variant| variant);
    }
}

pub(crate) fn a_variant_comes_and_goes_and_the_others_stay<L: PartLoader>(
    family: &mut FamilyExecutor<L>,
    heads: &Heads<'_>,
) {
    const OTHER_HEAD: u32 = 13;
    let count = family.variants().count();
    let others = [segment(4, 1), segment(2, 2)];
    let before = run(family, &others).unwrap();
    assert!(family.unload(3) && !family.unload(3));
    let missing = run(family, &[segment(4, 1), segment(3, 1)]);
    assert_eq!(missing, Err(FamilyRunError::NotLoaded { variant: 3 }));
    assert_eq!(run(family, &others).unwrap(), before);
    // Another head in its place, and one whose trunk is another.
    family.load(3, &format!("head-{OTHER_HEAD}"), &(heads.file)(OTHER_HEAD).into()).unwrap();
    let of = |variant| if variant == 3 { OTHER_HEAD } else { variant };
    heads.answer_as_whole(family, &[segment(3, 2), segment(1, 1), segment(3, 1)], of);
    let stranger = family.load(20, "stranger", &heads.stranger.clone().into());
    assert_eq!(stranger, Err(FamilyError::OtherTrunk { model: "stranger".to_owned() }));
    assert!(matches!(family.load(20, "none", &b"no model".to_vec().into()), Err(FamilyError::Graph { .. })));
    assert_eq!(run(family, &others).unwrap(), before);
    assert_eq!(family.variants().count(), count);
}

pub(crate) fn what_is_no_batch_of_the_family_is_refused_and_the_next_one_runs<L: PartLoader>(
    family: &mut FamilyExecutor<L>,
) {
    let (input, mut outputs) = (rows(family, 3), Vec::new());
    let batch = BatchInputs { items: 3, tensors: &[&input], start: None };
    let short = family.run(&batch, &[segment(1, 2)], &mut outputs);
    assert_eq!(short, Err(FamilyRunError::Segments { rows: 2, items: 3 }));
    let long = family.run(&batch, &[segment(1, u32::MAX), segment(2, 4)], &mut outputs);
    assert_eq!(long, Err(FamilyRunError::Segments { rows: u64::from(u32::MAX) + 4, items: 3 }));
    let empty = family.run(&BatchInputs { items: 0, tensors: &[&[]], start: None }, &[], &mut outputs);
    assert_eq!(empty, Err(FamilyRunError::Execute(ExecuteError::Empty)));
    let large = family.batch_max() + 1;
    let too_large = run(family, &[segment(1, large)]);
    let expected = ExecuteError::TooLarge { items: large, batch_max: large - 1 };
    assert_eq!(too_large, Err(FamilyRunError::Execute(expected)));
    // A request without rows is no reason to fail, and gets none.
    let outputs = run(family, &[segment(2, 0), segment(1, 1)]).unwrap();
    assert!(outputs[0].iter().all(Vec::is_empty) && !outputs[1][0].is_empty());
}
