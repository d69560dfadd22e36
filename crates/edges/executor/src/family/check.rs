//! Compares a model with its parts before they take its place: that rows do not depend on each other no graph says, and
//! ONNX Runtime fuses operators across a cut.

use std::slice;

use symphony_types::TensorSpec;

use super::error::FamilyError;
use super::family_part::FamilyPart;
use crate::port::{BatchInputs, ExecuteError};
use crate::profile::{find_dependence, first_difference, plausible_input, unlike_input};

/// Rows of the largest batch that is compared: enough for a kernel of another kind than that of one row.
const ROWS_MAX: u32 = 8;

/// Refuses a model whose trunk and suffix answer differently than the whole: by more than a thousandth, absolutely or
/// relatively to the larger number, or a hundredth in half precision, as in checks of batches. Also one whose rows
/// depend on each other. The rows differ; a model that refuses such inputs gets zeros where it takes integers. `before`
/// is called before each run, with its rows.
pub(super) fn compare<P: FamilyPart>(
    model: &str,
    whole: &mut P,
    trunk: &mut P,
    suffix: &mut P,
    before: &dyn Fn(u32),
) -> Result<(), FamilyError> {
    if whole.signature().outputs != suffix.signature().outputs {
        return Err(FamilyError::Outputs { model: model.to_owned() });
    }
    let incomparable = |problem| FamilyError::Incomparable { model: model.to_owned(), problem };
    let mut sizes = vec![1, ROWS_MAX.min(trunk.batch_max())];
    sizes.dedup();
    for &rows in &sizes {
        let answers = both(whole, trunk, suffix, (rows, unlike_input), before)
            .or_else(|_| both(whole, trunk, suffix, (rows, plausible_input), before))
            .map_err(incomparable)?;
        same(model, &whole.signature().outputs, rows, &answers)?;
    }
    match find_dependence(whole, &sizes, before).map_err(|(_, problem)| incomparable(problem))? {
        Some(dependence) => Err(FamilyError::Dependent { model: model.to_owned(), dependence }),
        None => Ok(()),
    }
}

/// The outputs of the whole model, and of its parts.
type Answers = [Vec<Vec<u8>>; 2];

fn both<P: FamilyPart>(
    whole: &mut P,
    trunk: &mut P,
    suffix: &mut P,
    (rows, input): (u32, impl Fn(&TensorSpec, u32) -> Vec<u8>),
    before: &dyn Fn(u32),
) -> Result<Answers, ExecuteError> {
    let inputs: Vec<_> = whole.signature().inputs.iter().map(|spec| input(spec, rows)).collect();
    let tensors: Vec<_> = inputs.iter().map(Vec::as_slice).collect();
    let batch = BatchInputs { items: rows, tensors: &tensors, start: None };
    let (mut answer, mut parts) = (Vec::new(), Vec::new());
    before(rows);
    whole.run(&batch, &mut answer)?;
    before(rows);
    trunk.begin_trunk(&batch)?;
    before(rows);
    suffix.begin_suffix(trunk, slice::from_ref(&(0..rows as usize)))?;
    suffix.end_suffix(&mut parts)?;
    Ok([answer, parts])
}

fn same(model: &str, outputs: &[TensorSpec], rows: u32, [whole, parts]: &Answers) -> Result<(), FamilyError> {
    for (spec, (whole, parts)) in outputs.iter().zip(whole.iter().zip(parts)) {
        let row_bytes = spec.item_bytes();
        for (row, whole) in (0..).zip(whole.chunks_exact(row_bytes)) {
            let at = row as usize * row_bytes;
            let part = parts.get(at..at + row_bytes).unwrap_or_default();
            if let Some((whole, parts)) = first_difference(spec.data_type, whole, part) {
                let (model, output) = (model.to_owned(), spec.name.clone());
                return Err(FamilyError::Differs { model, output, row, rows, whole, parts });
            }
        }
    }
    Ok(())
}
