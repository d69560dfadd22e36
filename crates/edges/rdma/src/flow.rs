//! Flow control of a stream: a data segment is sent only if the peer has a buffer for it. A pure value.

/// Data segments that one end may have in flight or unread at the peer.
pub(crate) const WINDOW: u32 = 16;
/// After this many consumed segments the credits are returned without waiting for other traffic: half of the window.
const OWED_MAX: u32 = WINDOW / 2;

/// Why the peer is no longer trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// It returns more credits than it was sent segments.
    #[error("{given} credits came back; {out} segments are out")]
    Credits {
        /// What it gives.
        given: u32,
        /// What was sent and not given back.
        out: u32,
    },
    /// It sends more than it may.
    #[error("more than {WINDOW} segments came unasked")]
    Window,
}

/// The credits of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Sent, and not credited back.
    out: u32,
    /// Received, and not consumed.
    held: u32,
    /// Consumed, and not credited back.
    owed: u32,
}

impl Flow {
    /// Whether a data segment may be sent.
    #[must_use]
    pub const fn may_send(&self) -> bool {
        self.out < WINDOW
    }

    /// A data segment is sent.
    pub const fn sent(&mut self) {
        self.out += 1;
    }

    /// The peer returns credits.
    ///
    /// # Errors
    /// If more is given back than was sent.
    pub const fn given_back(&mut self, credits: u32) -> Result<(), FlowError> {
        if credits > self.out {
            return Err(FlowError::Credits { given: credits, out: self.out });
        }
        self.out -= credits;
        Ok(())
    }

    /// A data segment arrived.
    ///
    /// # Errors
    /// If it exceeds the window.
    pub const fn received(&mut self) -> Result<(), FlowError> {
        if self.held + self.owed >= WINDOW {
            return Err(FlowError::Window);
        }
        self.held += 1;
        Ok(())
    }

    /// A received data segment is consumed, and its buffer can take another.
    pub const fn consumed(&mut self) {
        self.held -= 1;
        self.owed += 1;
    }

    /// Whether to send credits now, without other traffic.
    #[must_use]
    pub const fn owes_credits(&self) -> bool {
        self.owed >= OWED_MAX
    }

    /// The credits that go with the next segment.
    pub const fn take_owed(&mut self) -> u32 {
        std::mem::replace(&mut self.owed, 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_end_that_counts_wrong_is_found() {
        let mut flow = Flow::default();
        assert_eq!(flow.given_back(1), Err(FlowError::Credits { given: 1, out: 0 }));
        for _ in 0..WINDOW {
            assert_eq!(flow.received(), Ok(()));
        }
        assert_eq!(flow.received(), Err(FlowError::Window));
        flow.consumed();
        assert_eq!(flow.received(), Err(FlowError::Window), "the peer has not got the credit yet");
        assert_eq!(flow.take_owed(), 1);
        assert_eq!(flow.received(), Ok(()));
    }

    proptest! {
        /// Two ends that keep the rules: neither finds a fault in the other, and neither waits for ever.
        #[test]
        fn two_honest_ends_never_stop(steps in prop::collection::vec((0_usize..2, 0_u8..4), 0..400)) {
            let mut ends = [Flow::default(), Flow::default()];
            // Each direction is in order: data or not, and credits.
            let mut wires: [VecDeque<(bool, u32)>; 2] = Default::default();
            let mut step = |ends: &mut [Flow; 2], at: usize, what: u8| {
                match what {
                    0 if ends[at].may_send() => {
                        ends[at].sent();
                        let credits = ends[at].take_owed();
                        wires[at].push_back((true, credits));
                    }
                    1 if ends[at].owes_credits() => {
                        let credits = ends[at].take_owed();
                        wires[at].push_back((false, credits));
                    }
                    2 => if let Some((data, credits)) = wires[1 - at].pop_front() {
                        ends[at].given_back(credits)?;
                        if data {
                            ends[at].received()?;
                        }
                    }
                    3 if ends[at].held > 0 => ends[at].consumed(),
                    _ => {}
                }
                Ok::<_, FlowError>(())
            };
            for (at, what) in steps {
                prop_assert_eq!(step(&mut ends, at, what), Ok(()));
            }
            // Once everything has arrived, is consumed and credited, both may send.
            for _ in 0..4 * WINDOW {
                for (at, what) in [(0, 2), (1, 2), (0, 3), (1, 3), (0, 1), (1, 1)] {
                    prop_assert_eq!(step(&mut ends, at, what), Ok(()));
                }
            }
            prop_assert!(ends.iter().all(Flow::may_send), "{:?}", ends);
        }
    }
}
