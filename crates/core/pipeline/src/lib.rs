//! Pipelines: models that feed each other, under one latency budget (the Nexus paper, sections 4.2 and 6.2).
//!
//! Pure: time is an argument, and nothing here does I/O.

mod condition;
mod declaration;
mod limits;
mod pipeline;
mod refused;
mod run;
mod shape;
mod split;
mod text;

pub use condition::{Comparison, Condition};
pub use declaration::{
    BoxUnit, CommittedSplit, Crop, DECLARATION_BYTES_MAX, DECLARED_NAME_BYTES_MAX, DeclaredCondition, DeclaredEdge,
    DeclaredStage, InputData, OutputWiring, PipelineDeclaration, PipelineInput, PipelineOutput, STAGE_TENSORS_MAX,
    Source, StageInput, StageModel, StageWiring, WiredEdge, Wiring,
};
pub use limits::{ASKS_MAX, EDGES_MAX, FAN_OUT_MAX, FAN_OUT_USUAL, GAMMA_MIN, STAGES_MAX, STEPS_MAX};
pub use pipeline::{Edge, EdgeSpec, Pipeline, PipelineSpec, Stage};
pub use refused::Refused;
pub use run::{Action, Ask, AskId, Event, Lost, PipelineRun, RunCheck, RunPlan, Violation};
pub use split::{
    BatchOption, Cost, Split, StageBudget, Unsplittable, even_split, options, split, split_options, spread,
    spread_takes,
};
pub use text::{EdgeKeys, PipelineError, PipelineExtras, PipelineFile, ReadProfile};
