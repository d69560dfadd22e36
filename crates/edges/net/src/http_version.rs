//! Which HTTP a port speaks, and what a caller must send first: the opening of its connection.

use std::time::Duration;

/// How long after connecting a caller must have sent the head of its first request, or the preface of HTTP/2, which
/// clients send at once; with TLS the handshake counts, too, but for internal ports, which bound that by itself. Slow
/// connections take a second or two.
pub const OPENING_TIMEOUT: Duration = Duration::from_secs(10);

/// The beginning of an HTTP/2 connection.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The version of HTTP that a port speaks. Its callers send the opening within [`OPENING_TIMEOUT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// Opens with the head of a request, to its empty line.
    Http1,
    /// Opens with a preface, of which only the number of bytes is checked. Afterwards a channel may be idle.
    Http2,
}

/// How much of a connection's opening has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// This many bytes of the preface have arrived.
    Preface(usize),
    /// The position in a line end and an empty line; carriage returns are optional.
    Head { newlines: u8 },
}

impl Progress {
    pub(crate) const fn of(http: HttpVersion) -> Self {
        match http {
            HttpVersion::Http1 => Self::Head { newlines: 0 },
            HttpVersion::Http2 => Self::Preface(0),
        }
    }

    /// Whether the opening is complete with these bytes.
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
    fn the_opening_is_complete_with_the_empty_line_or_the_preface_however_they_are_cut() {
        for (http, text) in [
            (HttpVersion::Http1, &b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..]),
            (HttpVersion::Http1, b"GET / HTTP/1.1\nhost: x\n\n"),
            (HttpVersion::Http2, PREFACE),
        ] {
            let mut progress = Progress::of(http);
            let (last, before) = text.split_last().unwrap();
            assert!(!before.chunks(3).any(|bytes| progress.add(bytes)), "{http:?}");
            assert!(progress.add(&[*last]), "{http:?}");
            assert!(Progress::of(http).add(text));
        }
    }
}
