//! Rows of CSV files of others, with the lines that messages name.

use csv::StringRecord;

/// What of a field a message repeats: files of others may be anything.
const SHOWN_CHARS_MAX: usize = 40;

/// Reads rows one by one.
pub(super) struct Rows<'a> {
    reader: csv::Reader<&'a [u8]>,
    record: StringRecord,
}

pub(super) struct Row<'r> {
    /// Its line in the file, from 1.
    pub(super) line: u64,
    record: &'r StringRecord,
}

impl<'a> Rows<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let mut builder = csv::ReaderBuilder::new();
        // Fields are counted by each format, which knows how to call them.
        let reader = builder.has_headers(false).flexible(true).trim(csv::Trim::All).from_reader(text.as_bytes());
        Self { reader, record: StringRecord::new() }
    }

    /// The next row; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Row<'_>>, String> {
        let read = self.reader.read_record(&mut self.record);
        let line = self.record.position().map_or(1, csv::Position::line);
        match read {
            Ok(true) => Ok(Some(Row { line, record: &self.record })),
            Ok(false) => Ok(None),
            Err(error) => Err(format!("line {line}: expected a row of a CSV file, got {error}")),
        }
    }
}

impl Row<'_> {
    /// The number of fields.
    pub(super) fn len(&self) -> usize {
        self.record.len()
    }

    /// A field; empty if there is none.
    pub(super) fn field(&self, column: usize) -> &str {
        self.record.get(column).unwrap_or_default()
    }

    /// Every field.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        self.record.iter()
    }

    /// The error of this row.
    pub(super) fn refuse<T>(&self, expected: &str, got: &str) -> Result<T, String> {
        Err(refusal(self.line, expected, got))
    }

    /// Checks the number of fields.
    pub(super) fn has_columns(&self, columns: &str) -> Result<(), String> {
        let expected = columns.split(',').count();
        if self.len() == expected {
            return Ok(());
        }
        self.refuse(&format!("the {expected} columns {columns}"), &format!("{} fields", self.len()))
    }

    /// A number of at least zero and at most `max`.
    pub(super) fn number(&self, column: usize, what: &str, max: f64) -> Result<f64, String> {
        match self.field(column).parse::<f64>() {
            Ok(number) if (0.0..=max).contains(&number) => Ok(number),
            _ => self.refuse(&format!("{what} from 0 to {max}"), self.field(column)),
        }
    }

    /// A count: a whole number of at least zero.
    pub(super) fn count(&self, column: usize, what: &str) -> Result<u64, String> {
        self.field(column).parse().or_else(|_| self.refuse(&format!("{what}, a whole number"), self.field(column)))
    }

    /// A name that is not empty.
    pub(super) fn name(&self, column: usize, what: &str) -> Result<&str, String> {
        match self.field(column) {
            "" => self.refuse(what, "nothing"),
            name => Ok(name),
        }
    }
}

/// `line N: expected X, got Y`, with as much of `got` as is worth reading.
pub(super) fn refusal(line: u64, expected: &str, got: &str) -> String {
    let shown: String = got.chars().take(SHOWN_CHARS_MAX).collect();
    let more = if shown.len() < got.len() { "…" } else { "" };
    format!("line {line}: expected {expected}, got `{shown}{more}`")
}
