//! Errors of pictures.

use crate::SIDE_MAX;

/// Why a picture is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Too many bytes.
    #[error("it has {bytes} bytes; expected at most {bytes_max}")]
    TooLarge {
        /// There are.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Neither JPEG nor PNG, by its first bytes.
    #[error("its first bytes are neither those of a JPEG nor of a PNG file")]
    UnknownFormat,
    /// The header cannot be read.
    #[error("its header is not that of a {format} file: {reason}")]
    BadHeader {
        /// The format that its first bytes suggest.
        format: &'static str,
        /// The decoder's message.
        reason: String,
    },
    /// More pixels than are decoded.
    #[error(
        "its header says {width} × {height} pixels; expected 1 to {pixels_max} in all, and at most {SIDE_MAX} a side"
    )]
    TooManyPixels {
        /// In a row.
        width: u32,
        /// Rows.
        height: u32,
        /// The limit.
        pixels_max: u64,
    },
    /// The header was right, the rest is not.
    #[error("it cannot be decoded: {0}")]
    Undecodable(String),
}
