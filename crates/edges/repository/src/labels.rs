//! The file that names the classes of an output, as Triton has it: one label in each line.

use std::path::Path;

use symphony_executor::read_text;
use symphony_types::{LABEL_BYTES_MAX, LABELS_BYTES_MAX};

use crate::RepositoryError;

/// The largest label file: each label may end with two extra bytes.
const FILE_BYTES_MAX: u64 = 3 * LABELS_BYTES_MAX as u64;

/// The labels of an output, in the order of its elements.
///
/// # Errors
/// If the file cannot be read, or has a line that is no label.
pub(crate) fn read_labels(path: &Path) -> Result<Vec<String>, RepositoryError> {
    let text = read_text(path, FILE_BYTES_MAX);
    parse_labels(path, &text.map_err(|source| RepositoryError::Io { path: path.to_owned(), source })?)
}

/// Parses the text of a label file; `path` is for error messages.
///
/// # Errors
/// If a line is not a label. The error gives the line's number and not its text: readers of the error need not be
/// allowed to read the file.
pub fn parse_labels(path: &Path, text: &str) -> Result<Vec<String>, RepositoryError> {
    let label = |(line, label): (usize, &str)| {
        if label.len() <= LABEL_BYTES_MAX && !label.chars().any(char::is_control) {
            return Ok(label.to_owned());
        }
        let problem = format!("expected a label of at most {LABEL_BYTES_MAX} bytes without control characters");
        Err(RepositoryError::Text { path: path.to_owned(), line, problem })
    };
    (1..).zip(text.lines()).map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<String>, String> {
        parse_labels(Path::new("m/labels.txt"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn each_line_is_a_label_however_lines_end() {
        for text in ["cat\ngreat white shark\n", "cat\r\ngreat white shark\r\n", "cat\ngreat white shark"] {
            assert_eq!(parse(text).unwrap(), ["cat", "great white shark"]);
        }
        assert_eq!(parse("\n\nx\n").unwrap(), ["", "", "x"], "an element may be without a name");
        assert_eq!(parse(""), Ok(vec![]));
    }

    #[test]
    fn a_line_that_is_no_label_is_named_and_not_shown() {
        for line in ["secret\tof another file".to_owned(), "secret ".repeat(LABEL_BYTES_MAX)] {
            let error = parse(&format!("cat\n{line}\n")).unwrap_err();
            assert_eq!(error, "m/labels.txt, line 2: expected a label of at most 256 bytes without control characters");
        }
    }
}
