//! Why a protobuf message is not a valid view or model.

use symphony_policy::PolicyError;
use symphony_types::{NoOperationId, ProfileError, RequestValue, UnknownDataType};

/// Why a protobuf message is not a valid view or model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ViewError {
    /// A required part is missing.
    #[error("{what} has no {field}")]
    Missing {
        /// The message.
        what: String,
        /// The field that is not set.
        field: &'static str,
    },
    /// A profile is not acceptable.
    #[error("model `{model}`, GPU kind `{kind}`: {source}")]
    Profile {
        /// Name of the model.
        model: String,
        /// The GPU kind.
        kind: String,
        /// The defect.
        source: ProfileError,
    },
    /// What frontends are to do with its inputs and outputs has no meaning.
    #[error("model `{model}`: transforms.{key}: {reason}")]
    Transforms {
        /// Name of the model.
        model: String,
        /// What has none.
        key: &'static str,
        /// The expected value.
        reason: String,
    },
    /// Its policy is not one that a cluster takes.
    #[error("model `{model}`: policy: {source}")]
    Policy {
        /// Name of the model.
        model: String,
        /// The defect.
        source: PolicyError,
    },
    /// What its requests are worth is out of bounds.
    #[error(
        "model `{model}`: value_thousandths is {got}; expected 0, or {} to {}",
        RequestValue::MIN.thousandths(),
        RequestValue::MAX.thousandths()
    )]
    Value {
        /// Name of the model.
        model: String,
        /// In thousandths.
        got: u32,
    },
    /// An emulated model has no trunk.
    #[error("model `{model}`: own_trunk: it is emulated; expected an ONNX model")]
    OwnTrunk {
        /// Name of the model.
        model: String,
    },
    /// A cut point is invalid.
    #[error("{what}: a cut point of {bytes} bytes; expected 16")]
    Cut {
        /// The model or message.
        what: String,
        /// Its length.
        bytes: usize,
    },
    /// A pipeline has a value that has no meaning.
    #[error("pipeline `{pipeline}`: {field}: {reason}")]
    Pipeline {
        /// Name of the pipeline.
        pipeline: String,
        /// Which value.
        field: &'static str,
        /// What was found and what was expected.
        reason: String,
    },
    /// An operation's id is invalid.
    #[error("operation at {index}: {source}")]
    Operation {
        /// Its place in the log.
        index: u64,
        /// The defect.
        source: NoOperationId,
    },
    /// A tensor's type is not known.
    #[error("model `{model}`, tensor `{tensor}`: {source}")]
    Tensor {
        /// Name of the model.
        model: String,
        /// Name of the tensor in the model's signature.
        tensor: String,
        /// The defect.
        source: UnknownDataType,
    },
}
