//! What a caller of a public port has to send first, and how much of it has arrived.

use std::time::Duration;

/// How long after connecting a caller must have sent the head of its first request, or the preface of HTTP/2, which
/// clients send at once; with TLS the handshake counts, too. Slow connections take a second or two.
pub const FIRST_WORDS_WITHIN: Duration = Duration::from_secs(10);

/// The beginning of an HTTP/2 connection.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a caller has to send within [`FIRST_WORDS_WITHIN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstWords {
    /// The head of a request of HTTP/1, to its empty line.
    Head,
    /// The number of bytes in HTTP/2's preface. Afterwards a channel may be idle.
    Preface,
}

/// Progress of a caller's required beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// This many bytes of the preface have arrived.
    Preface(usize),
    /// The position in a line end and an empty line; carriage returns are optional.
    Head { newlines: u8 },
}

impl Progress {
    pub(crate) const fn of(words: FirstWords) -> Self {
        match words {
            FirstWords::Head => Self::Head { newlines: 0 },
            FirstWords::Preface => Self::Preface(0),
        }
    }

    /// Whether the beginning is complete with these bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> bool {
        match self {
            // The protocol validates the bytes later.
            Self::Preface(seen) => {
                *seen += bytes.len();
                *seen >= PREFACE.len()
            }
            Self::Head { newlines } => bytes.iter().any(|byte| {
                match byte {
                    b'\n' => *newlines += 1,
                    b'\r' => {}
                    _ => *newlines = 0,
                }
                *newlines == 2
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_words_are_complete_with_the_empty_line_or_the_preface_however_they_are_cut() {
        for (words, text) in [
            (FirstWords::Head, &b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..]),
            (FirstWords::Head, b"GET / HTTP/1.1\nhost: x\n\n"),
            (FirstWords::Preface, PREFACE),
        ] {
            let mut progress = Progress::of(words);
            let (last, before) = text.split_last().unwrap();
            assert!(!before.chunks(3).any(|bytes| progress.add(bytes)), "{words:?}");
            assert!(progress.add(&[*last]), "{words:?}");
            assert!(Progress::of(words).add(text));
        }
    }
}
