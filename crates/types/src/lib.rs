//! The vocabulary of Symphony as plain values: time, ids, latency profiles, outcomes, invariants.
//!
//! Everything here is pure data. No code here reads a clock or allocates unexpectedly, and every quantity carries its
//! unit in its type or name.

mod cut;
mod duty;
mod family_profile;
mod gpu_class;
mod id;
mod invariant;
mod item_bounds;
mod level;
mod name;
mod operation_id;
mod outcome;
mod payload_delay;
mod plans;
mod profile;
mod tensor;
mod time;
mod transforms;
mod value;
mod versioned_name;

pub use cut::{CutDigest, MODEL_CUTS_MAX};
pub use duty::{Duty, Member};
pub use family_profile::{FamilyProfile, FamilyProfileError, SUFFIX_PROFILES_MAX, VARIANTS_MAX, VariantRows};
pub use gpu_class::{GPU_CLASSES_MAX, GpuClass, GpuClasses};
pub use id::{
    BackendId, BootId, Epoch, FrontendId, GpuId, ModelId, NoRequestId, NodeId, RequestId, SubclusterId, Token,
};
pub use invariant::Invariant;
pub use item_bounds::ITEM_BOUNDS;
pub use level::{Formats, Level};
pub use name::{NAME_BYTES_MAX, TENANTS_MAX, is_name, looks_like_an_id};
pub use operation_id::{NoOperationId, OperationId};
pub use outcome::{DropReason, FailReason, Outcome};
pub use payload_delay::{PAYLOAD_DELAY_FORGOTTEN_AFTER, PayloadDelay};
pub use plans::GPU_PLANS_MAX;
pub use profile::{LatencyProfile, LineFit, PROFILE_BATCH_MAX, ProfileError};
pub use tensor::{DataType, Signature, TENSOR_DIMENSIONS_MAX, TENSOR_ITEM_BYTES_MAX, TensorSpec, UnknownDataType};
pub use time::{Nanos, SLO_MAX, Time};
pub use transforms::{
    Colour, Filter, Finite, Fit, IMAGE_SIDE_MAX, ImageInput, LABEL_BYTES_MAX, LABELS_BYTES_MAX, Layout, NotFinite,
    Transforms, UnknownWord,
};
pub use value::RequestValue;
pub use versioned_name::{VersionedName, parse_version};
