//! Converts an encoded picture to the item of a model's input, as declared in [`symphony_types::ImageInput`].
//!
//! ```text
//! bytes ─ inspect: format, size, limits ─▶ decode ─▶ crop, resize ─▶ (v · scale − mean) / deviation ─▶ layout, type
//! ```

mod error;
mod format;
mod header;
mod jpeg;
mod limits;
mod pipeline;
mod tensor_writer;

pub use error::ImageError;
pub use format::Format;
pub use header::{Header, inspect};
pub use limits::{IMAGE_BYTES_MAX, ImageLimits, PIXELS_MAX_DEFAULT, SIDE_MAX};
pub use pipeline::Pipeline;
