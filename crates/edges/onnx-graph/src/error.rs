//! Why a model is refused.

use crate::limits::MODEL_BYTES_MAX;

/// Why a model cannot be read or cut. The model itself may still run: it is only not shared or taken apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// More than [`MODEL_BYTES_MAX`].
    #[error("the model has {bytes} bytes; expected at most {max}, with its weights inside", max = MODEL_BYTES_MAX)]
    TooLong {
        /// The size of the model.
        bytes: usize,
    },
    /// Something exceeds one of the limits of this crate.
    #[error("the model has more than {max} {what}")]
    TooMuch {
        /// What it has too much of.
        what: &'static str,
        /// The limit.
        max: u64,
    },
    /// Not protobuf, or not by ONNX's schema.
    #[error("{message} at byte {at}: {problem}")]
    Malformed {
        /// The message that holds it.
        message: &'static str,
        /// Where, in bytes from the beginning of the file.
        at: usize,
        /// What is wrong.
        problem: String,
    },
    /// A field that the schema does not have, of a newer ONNX or a vendor. A part without it might compute something
    /// else, and two values that differ in it would look equal.
    #[error("{message} at byte {at}: unknown field {number}; it may change what the model computes")]
    UnknownField {
        /// The message that holds it.
        message: &'static str,
        /// Where, in bytes from the beginning of the file.
        at: usize,
        /// The number of the field.
        number: u32,
    },
    /// prost cannot decode it.
    #[error("the model cannot be decoded: {0}")]
    Undecodable(String),
    /// A file without a graph.
    #[error("the model has no graph")]
    NoGraph,
    /// Two values of one graph have the same name.
    #[error("graph `{graph}` makes `{name}` twice; expected a name for each value")]
    NameTwice {
        /// The graph's name.
        graph: String,
        /// The value's name.
        name: String,
    },
    /// A node uses what only a later one makes: the nodes are not sorted, or they go in a circle.
    #[error("{user} uses `{name}`, which is made later; expected sorted nodes without a circle")]
    Unsorted {
        /// The node, in words.
        user: String,
        /// The value's name.
        name: String,
    },
    /// Nothing makes a value that is used.
    #[error("{user} uses `{name}`, which no input, initializer or node makes")]
    Undefined {
        /// The node or output, in words.
        user: String,
        /// The value's name.
        name: String,
    },
    /// Weights in a file beside the model.
    #[error("the weights of tensor `{tensor}` lie in another file; expected them inside the model")]
    External {
        /// The tensor's name.
        tensor: String,
    },
    /// A tensor whose elements do not fit its shape and type.
    #[error("tensor `{tensor}` {problem}")]
    Tensor {
        /// The tensor's name.
        tensor: String,
        /// What is wrong.
        problem: String,
    },
    /// A function stands twice.
    #[error("the model defines the function `{name}` twice")]
    FunctionTwice {
        /// Domain, name and overload.
        name: String,
    },
    /// A part is to end at a value that is no cut point.
    #[error("`{value}` is no cut point of the model; expected a value that every path passes")]
    NotACut {
        /// The value's name.
        value: String,
    },
    /// A part begins where it ends, or behind it.
    #[error("a part from `{from}` to `{to}` is empty; expected the second cut point behind the first")]
    Backward {
        /// Where it begins.
        from: String,
        /// Where it ends.
        to: String,
    },
    /// A part begins at a value whose type the model does not state.
    #[error("the model does not say the type of `{value}`; give the one that the trunk's session has")]
    TypeUnknown {
        /// The value's name.
        value: String,
    },
}
