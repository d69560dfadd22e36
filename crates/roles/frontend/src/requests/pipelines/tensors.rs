//! Tensors of results: outputs, rows, numbers.

use bytes::Bytes;
use half::f16;
use symphony_pipeline::{Source, WiredEdge, Wiring};
use symphony_types::{DataType, TensorSpec};

use crate::oip::{ModelInfo, elements};

/// An output of a result, as long as the model's signature requires.
pub(super) fn output<'a>(info: &'a ModelInfo, result: &Bytes, name: &str) -> Option<(&'a TensorSpec, Bytes)> {
    let mut from = 0;
    for spec in &info.signature.outputs {
        let to = from + spec.item_bytes();
        if spec.name == name {
            return (to <= result.len()).then(|| (spec, result.slice(from..to)));
        }
        from = to;
    }
    None
}

/// Rows of an output: its first dimension.
pub(super) fn rows(spec: &TensorSpec) -> u32 {
    spec.item_shape.first().copied().unwrap_or(1)
}

/// One row of an output; empty if there is no such row.
pub(super) fn row(spec: &TensorSpec, data: &Bytes, row: u32) -> Bytes {
    let bytes = data.len() / rows(spec).max(1) as usize;
    let from = row as usize * bytes;
    if from + bytes <= data.len() { data.slice(from..from + bytes) } else { Bytes::new() }
}

/// All elements as numbers; large whole ones are rounded.
pub(super) fn numbers(data_type: DataType, bytes: &[u8]) -> Vec<f64> {
    match data_type {
        DataType::Bool | DataType::Uint8 => bytes.iter().map(|&byte| f64::from(byte)).collect(),
        DataType::Uint16 => elements(bytes, u16::from_le_bytes).map(f64::from).collect(),
        DataType::Uint32 => elements(bytes, u32::from_le_bytes).map(f64::from).collect(),
        DataType::Uint64 => elements(bytes, u64::from_le_bytes).map(|value| value as f64).collect(),
        DataType::Int8 => elements(bytes, i8::from_le_bytes).map(f64::from).collect(),
        DataType::Int16 => elements(bytes, i16::from_le_bytes).map(f64::from).collect(),
        DataType::Int32 => elements(bytes, i32::from_le_bytes).map(f64::from).collect(),
        DataType::Int64 => elements(bytes, i64::from_le_bytes).map(|value| value as f64).collect(),
        DataType::Fp16 => elements(bytes, f16::from_le_bytes).map(f64::from).collect(),
        DataType::Fp32 => elements(bytes, f32::from_le_bytes).map(f64::from).collect(),
        DataType::Fp64 => elements(bytes, f64::from_le_bytes).collect(),
    }
}

/// Which rows of a result lead to a stage request along an edge: the first `most` that meet its condition. A result
/// that goes on whole is one row.
pub(super) fn passing(wiring: &Wiring, edge: &WiredEdge, most: u32, info: &ModelInfo, result: &Bytes) -> Vec<u32> {
    let count = if edge.spec.per_row { row_count(wiring, edge, info) } else { 1 };
    let Some(condition) = &edge.spec.condition else { return (0..count.min(most)).collect() };
    let Some((spec, data)) = output(info, result, &condition.output) else { return Vec::new() };
    let values = numbers(spec.data_type, &data);
    let holds = |&row: &u32| values.get(row as usize).is_some_and(|&value| condition.holds(value));
    (0..count).filter(holds).take(most as usize).collect()
}

/// Rows of a result, by whichever of its tensors goes along the edge: all have as many.
fn row_count(wiring: &Wiring, edge: &WiredEdge, info: &ModelInfo) -> u32 {
    let condition = edge.spec.condition.iter().map(|condition| condition.output.as_str());
    let boxes = edge.crop.iter().map(|crop| crop.boxes.as_str());
    let along = wiring.stages[edge.to].inputs.iter().filter_map(|input| match &input.source {
        Source::Stage { stage, output } if *stage == edge.from => Some(output.as_str()),
        Source::Stage { .. } | Source::Client(_) => None,
    });
    let mut named = condition.chain(boxes).chain(along);
    let spec = named.find_map(|name| info.signature.outputs.iter().find(|spec| spec.name == name));
    spec.map_or(0, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_type_are_read() {
        assert_eq!(numbers(DataType::Bool, &[0, 1]), [0.0, 1.0]);
        assert_eq!(numbers(DataType::Int8, &[0xff]), [-1.0]);
        assert_eq!(numbers(DataType::Uint16, &[1, 1]), [257.0]);
        assert_eq!(numbers(DataType::Fp16, &[0, 0x3c]), [1.0]);
        assert_eq!(numbers(DataType::Fp32, &1.5_f32.to_le_bytes()), [1.5]);
        assert_eq!(numbers(DataType::Int64, &(-3_i64).to_le_bytes()), [-3.0]);
        assert_eq!(numbers(DataType::Fp64, &[0, 1]), [0.0; 0], "no element");
    }

    #[test]
    fn a_row_is_cut_out_and_one_that_is_not_there_is_empty() {
        let spec = TensorSpec { name: "boxes".into(), data_type: DataType::Uint8, item_shape: vec![3, 2] };
        let data = Bytes::from_static(b"abcdef");
        assert_eq!((row(&spec, &data, 1), row(&spec, &data, 3)), (Bytes::from_static(b"cd"), Bytes::new()));
    }
}
