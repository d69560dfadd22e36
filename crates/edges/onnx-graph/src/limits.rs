//! How much of a model is read. What is more is refused by name, before memory is taken for it.

/// Bytes of a file: protobuf's own limit, and with it that of models whose weights are inside.
pub const MODEL_BYTES_MAX: usize = (1 << 31) - 1;

/// Nodes of all graphs, subgraphs and functions together. Exported transformers of a hundred layers have some 20 000.
pub const NODES_MAX: u64 = 1 << 16;

/// Initializers of all graphs together, dense and sparse. A node seldom has more than three.
pub const INITIALIZERS_MAX: u64 = 1 << 17;

/// Functions that a model brings along.
pub const FUNCTIONS_MAX: u64 = 1 << 10;

/// Graphs inside each other, the main one included. Each takes some stack wherever graphs are walked through.
pub const SUBGRAPH_DEPTH_MAX: u32 = 16;

/// Messages inside each other. prost gives up at 100; a graph in a graph is three deeper.
pub const MESSAGE_DEPTH_MAX: u32 = 64;

/// Bytes of a name. Exporters write the path of a module into it, a few hundred at most.
pub const NAME_BYTES_MAX: usize = 1 << 12;

/// What the decoded messages may take beside the file itself, at 2 KiB for a message, 512 bytes for a text and 8 for a
/// number: a file of empty messages or packed numbers grows many times when it is decoded. Weights in `raw_data` do not
/// count: they stay in the file's bytes. Lists may hold as much again in reserve.
pub const DECODED_BYTES_MAX: u64 = 2 << 30;

/// What a decoded message takes: no less than the largest, `AttributeProto` with its tensors.
pub(crate) const MESSAGE_BYTES: u64 = 1 << 11;

/// What a string or a byte string takes, apart from the text: as the name of a value it also has a place in each of
/// some six tables.
pub(crate) const TEXT_BYTES: u64 = 1 << 9;

/// What a number takes.
pub(crate) const NUMBER_BYTES: u64 = 8;

/// Cut points of a model that are kept in its profile: as many latencies are measured, and hashes carried.
pub const CUTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto};

    #[test]
    fn no_message_is_larger_than_what_counts_for_one() {
        let sizes = [
            size_of::<AttributeProto>(),
            size_of::<FunctionProto>(),
            size_of::<GraphProto>(),
            size_of::<ModelProto>(),
            size_of::<NodeProto>(),
            size_of::<SparseTensorProto>(),
        ];
        assert!(sizes.iter().all(|&size| size as u64 <= MESSAGE_BYTES), "{sizes:?}");
    }
}
