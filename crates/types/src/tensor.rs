//! The shapes of a model's inputs and outputs, in the terms of the Open Inference Protocol v2.

use std::fmt;
use std::str::FromStr;

use rkyv::{Archive, Deserialize, Serialize};

/// Dimensions of a tensor, without the one that counts items.
pub const TENSOR_DIMENSIONS_MAX: usize = 8;
/// Bytes of one item of a tensor: larger than any image or sequence that is served one by one, and small enough that a
/// batch of [`PROFILE_BATCH_MAX`](crate::PROFILE_BATCH_MAX) of them can still be counted in a `usize`.
pub const TENSOR_ITEM_BYTES_MAX: usize = 1 << 30;

/// The fixed-width element types of the Open Inference Protocol v2.
///
/// `BYTES` is left out on purpose: no executor here takes strings, so no model can have such a tensor.
#[allow(missing_docs)] // The names are the protocol's own.
#[derive(
    Archive, Serialize, Deserialize, serde::Serialize, serde::Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash,
)]
#[rkyv(derive(Clone, Copy, Debug))]
#[serde(rename_all = "UPPERCASE")]
pub enum DataType {
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    Fp16,
    Fp32,
    Fp64,
}

/// A name that is not a [`DataType`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown data type `{0}`; expected one of BOOL, UINT8–64, INT8–64, FP16, FP32, FP64")]
pub struct UnknownDataType(pub String);

impl DataType {
    /// Every data type.
    pub const ALL: [Self; 12] = [
        Self::Bool,
        Self::Uint8,
        Self::Uint16,
        Self::Uint32,
        Self::Uint64,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Fp16,
        Self::Fp32,
        Self::Fp64,
    ];

    /// Bytes of one element.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => 1,
            Self::Uint16 | Self::Int16 | Self::Fp16 => 2,
            Self::Uint32 | Self::Int32 | Self::Fp32 => 4,
            Self::Uint64 | Self::Int64 | Self::Fp64 => 8,
        }
    }

    /// The protocol's name of the type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::Uint8 => "UINT8",
            Self::Uint16 => "UINT16",
            Self::Uint32 => "UINT32",
            Self::Uint64 => "UINT64",
            Self::Int8 => "INT8",
            Self::Int16 => "INT16",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
            Self::Fp16 => "FP16",
            Self::Fp32 => "FP32",
            Self::Fp64 => "FP64",
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DataType {
    type Err = UnknownDataType;
    fn from_str(name: &str) -> Result<Self, UnknownDataType> {
        Self::ALL.into_iter().find(|t| t.name() == name).ok_or_else(|| UnknownDataType(name.to_owned()))
    }
}

/// One input or output. The first dimension counts items and is left out.
#[derive(Archive, Serialize, Deserialize, serde::Serialize, serde::Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
#[rkyv(derive(Debug))]
pub struct TensorSpec {
    /// The tensor's name in the model.
    pub name: String,
    /// Element type.
    pub data_type: DataType,
    /// Dimensions of one item, without the batch dimension; all positive.
    pub item_shape: Vec<u32>,
}

impl TensorSpec {
    /// Bytes that one item takes, elements without gaps.
    #[must_use]
    pub fn item_bytes(&self) -> usize {
        self.item_shape.iter().map(|&d| d as usize).product::<usize>() * self.data_type.size_bytes()
    }
}

/// The inputs and outputs of a model.
#[derive(
    Archive, Serialize, Deserialize, serde::Serialize, serde::Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash,
)]
#[rkyv(derive(Debug))]
pub struct Signature {
    /// Inputs, in the model's order.
    pub inputs: Vec<TensorSpec>,
    /// Outputs, in the model's order.
    pub outputs: Vec<TensorSpec>,
}

impl Signature {
    /// Bytes of all inputs of one item.
    #[must_use]
    pub fn input_item_bytes(&self) -> usize {
        self.inputs.iter().map(TensorSpec::item_bytes).sum()
    }

    /// Bytes of all outputs of one item.
    #[must_use]
    pub fn output_item_bytes(&self) -> usize {
        self.outputs.iter().map(TensorSpec::item_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_data_types_round_trip() {
        for data_type in DataType::ALL {
            assert_eq!(data_type.name().parse(), Ok(data_type));
        }
        assert_eq!("BYTES".parse::<DataType>(), Err(UnknownDataType("BYTES".into())));
    }

    #[test]
    fn bytes_of_an_item_follow_shape_and_type() {
        let spec = TensorSpec { name: "x".into(), data_type: DataType::Fp32, item_shape: vec![8, 8] };
        assert_eq!(spec.item_bytes(), 256);
        let scalar = TensorSpec { name: "x".into(), data_type: DataType::Int64, item_shape: vec![] };
        assert_eq!(scalar.item_bytes(), 8);
    }
}
