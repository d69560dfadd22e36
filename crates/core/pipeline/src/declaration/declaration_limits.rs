//! What bounds a declaration.

/// Tensors that a stage takes, and that it gives; and the inputs and outputs of a pipeline: as many as of a model.
pub const STAGE_TENSORS_MAX: usize = 64;

/// Pictures that a request brings: frontends decode one for each item.
pub(super) const PICTURES_MAX: usize = 1;

/// Bytes of a name of a pipeline, a model or a tensor: as many as a cluster allows models.
pub const DECLARED_NAME_BYTES_MAX: usize = 128;

/// Bytes of a declaration as [`PipelineDeclaration::weight_bytes`](super::PipelineDeclaration::weight_bytes) counts
/// them: 32 stages with four tensors of 128 bytes each, twice.
pub const DECLARATION_BYTES_MAX: usize = 64 << 10;
