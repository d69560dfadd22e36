//! Calls of the system that a signal may end before anything was done.

use std::io;

/// Calls until no signal came between.
///
/// # Errors
/// As the call.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_nothing_and_every_other_error_does() {
        let mut calls = 0;
        let done = uninterrupted(|| {
            calls += 1;
            if calls < 3 { Err(io::ErrorKind::Interrupted.into()) } else { Ok(calls) }
        });
        assert_eq!(done.unwrap(), 3);
        let failed = uninterrupted(|| Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
