//! The file of a frontend's transforms for a model's clients: pictures to inputs, outputs to labels.

use std::path::Path;

use symphony_executor::read_text;
use symphony_types::{Signature, Transforms};

use crate::RepositoryError;

/// The largest file of transforms: a model's labels take at most a quarter of it.
const TRANSFORMS_BYTES_MAX: u64 = 1 << 20;

/// Reads what frontends are to do for a model of that signature.
///
/// # Errors
/// If the file cannot be read, is no such text, or does not fit the signature.
pub fn read_transforms(path: &Path, signature: &Signature) -> Result<Transforms, RepositoryError> {
    let text = read_text(path, TRANSFORMS_BYTES_MAX);
    let text = text.map_err(|source| RepositoryError::Io { path: path.to_owned(), source })?;
    parse_transforms(path, &text, signature)
}

/// Parses the text of such a file; `path` is for error messages.
///
/// # Errors
/// As [`read_transforms`]. The error gives the line's number and not its text: readers of the error need not be
/// allowed to read the file.
pub fn parse_transforms(path: &Path, text: &str, signature: &Signature) -> Result<Transforms, RepositoryError> {
    let refuse = |line, problem| RepositoryError::Text { path: path.to_owned(), line, problem };
    let transforms: Transforms = toml::from_str(text).map_err(|error| {
        let before = text.bytes().take(error.span().map_or(0, |span| span.start));
        refuse(1 + before.filter(|&byte| byte == b'\n').count(), error.message().to_owned())
    })?;
    transforms.check(signature).map_err(|problem| refuse(0, problem))?;
    Ok(transforms)
}
