//! What a backend writes down, if it is asked to, so that somebody else can judge whom it obeyed and what it ran: one
//! JSON object per line.
//!
//! Times are the machine's CLOCK_MONOTONIC in nanoseconds, so journals of processes on one machine can be laid side by
//! side; between machines they mean nothing.

use serde::{Deserialize, Serialize};

/// One line. Records stand in the order in which they happened; only [`Record::Ran`] comes when a batch has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Record {
    /// A life of the backend begins.
    Registered {
        /// When.
        at_ns: u64,
        /// Its id.
        backend: u32,
        /// Its life.
        boot: u64,
        /// Its GPUs.
        gpus: Vec<u32>,
        /// What it promises at first: the log index of its registration.
        token: u64,
    },
    /// A leader asked for a promise. What it asked for and what it got are two things: a checker trusts the first.
    Sealed {
        /// When.
        at_ns: u64,
        /// The GPU.
        gpu: u32,
        /// The replica that asked; 0 if it did not say who it is.
        node: u64,
        /// What it asked for.
        token: u64,
        /// What is promised now.
        promised: u64,
    },
    /// A plan was accepted.
    Accepted {
        /// When.
        at_ns: u64,
        /// The GPU.
        gpu: u32,
        /// The replica that sent it; 0 if it did not say who it is.
        node: u64,
        /// Under which token.
        token: u64,
        /// The plan's number since the seal.
        sequence: u64,
    },
    /// A batch ran.
    Ran {
        /// The GPU.
        gpu: u32,
        /// Its plan's token.
        token: u64,
        /// Its plan's number since the seal.
        sequence: u64,
        /// From when.
        start_ns: u64,
        /// Until when.
        end_ns: u64,
        /// The requests in it that were executed: frontend, its life, number.
        requests: Vec<(u32, u64, u64)>,
    },
    /// Records from here on are missing, because the file or the queue before it was full: what follows proves nothing
    /// about what is not in it.
    Missed {
        /// How many, as far as known now.
        records: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_as_it_was_written() {
        let ran = Record::Ran {
            gpu: 3,
            token: 17,
            sequence: 1,
            start_ns: 5,
            end_ns: u64::MAX,
            requests: vec![(1, u64::MAX - 1, 9)],
        };
        let line = serde_json::to_string(&ran).unwrap();
        assert!(line.starts_with(r#"{"what":"ran","gpu":3,"#), "{line}");
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), ran);
    }
}
