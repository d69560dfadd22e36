//! A pipeline as a cluster loads it: Triton's ensemble, and what Triton cannot say.

mod check;
mod declaration_limits;
mod declared;
mod split;
mod wiring;

pub use check::StageModel;
pub use declaration_limits::{DECLARATION_BYTES_MAX, DECLARED_NAME_BYTES_MAX, STAGE_TENSORS_MAX};
pub use declared::{
    BoxUnit, Crop, DeclaredCondition, DeclaredEdge, DeclaredStage, InputData, PipelineDeclaration, PipelineInput,
    PipelineOutput,
};
pub use split::CommittedSplit;
pub use wiring::{OutputWiring, Source, StageInput, StageWiring, WiredEdge, Wiring};
