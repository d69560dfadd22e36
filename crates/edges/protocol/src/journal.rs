//! The optional journal of a backend, from which a checker can verify which leaders it obeyed and what it ran: one
//! JSON object per line.
//!
//! Times are the machine's CLOCK_MONOTONIC in nanoseconds: comparable between processes on one machine, and
//! meaningless between machines.

use serde::{Deserialize, Serialize};

/// One line. Records are in the order of the events; only [`Record::Ran`] is written when a batch has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Record {
    /// A boot of the backend begins.
    Registered {
        /// When.
        at_ns: u64,
        /// Its id.
        backend: u32,
        /// Its boot id.
        boot: u64,
        /// Ids of its GPUs, as the control group numbers them.
        gpus: Vec<u32>,
        /// Its first promise: the log index of its registration.
        token: u64,
    },
    /// A leader asked for a promise. The requested and the resulting token are separate: a checker trusts the request.
    Sealed {
        /// When.
        at_ns: u64,
        /// Id of the GPU whose promise it is.
        gpu: u32,
        /// The replica that asked; 0 if it did not identify itself.
        node: u64,
        /// The requested token.
        token: u64,
        /// The promise from now on.
        promised: u64,
    },
    /// A plan was accepted.
    Accepted {
        /// When.
        at_ns: u64,
        /// Id of the GPU that is to run it.
        gpu: u32,
        /// The replica that sent it; 0 if it did not identify itself.
        node: u64,
        /// Under which token.
        token: u64,
        /// The plan's number since the seal.
        sequence: u64,
    },
    /// A batch ran.
    Ran {
        /// Id of the GPU that ran it.
        gpu: u32,
        /// Its plan's token.
        token: u64,
        /// Its plan's number since the seal.
        sequence: u64,
        /// From when.
        start_ns: u64,
        /// Until when.
        end_ns: u64,
        /// Its executed requests: frontend, its boot id, number.
        requests: Vec<(u32, u64, u64)>,
    },
    /// Records are missing from here on, because the file or the queue was full: their absence proves nothing.
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
