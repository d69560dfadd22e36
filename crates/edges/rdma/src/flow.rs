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
    /// If it was not sent so much.
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
    pub const fn came(&mut self) -> Result<(), FlowError> {
        if self.held + self.owed >= WINDOW {
            return Err(FlowError::Window);
        }
        self.held += 1;
        Ok(())
    }

    /// A received data segment is consumed, and its buffer can take another.
    pub const fn used_up(&mut self) {
        self.held -= 1;
        self.owed += 1;
    }

    /// Whether to send credits now, without other traffic.
    #[must_use]
    pub const fn should_tell(&self) -> bool {
        self.owed >= OWED_MAX
    }

    /// The credits that go with the next segment.
    pub const fn tell(&mut self) -> u32 {
        std::mem::replace(&mut self.owed, 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whoever_lies_is_found() {
        let mut flow = Flow::default();
        assert_eq!(flow.given_back(1), Err(FlowError::Credits { given: 1, out: 0 }));
        for _ in 0..WINDOW {
            assert_eq!(flow.came(), Ok(()));
        }
        assert_eq!(flow.came(), Err(FlowError::Window));
        flow.used_up();
        assert_eq!(flow.came(), Err(FlowError::Window), "it has not been told yet");
        assert_eq!(flow.tell(), 1);
        assert_eq!(flow.came(), Ok(()));
    }

    proptest! {
        /// Two ends that keep the rules: neither accuses the other, and neither waits for ever.
        #[test]
        fn two_honest_ends_never_stop(steps in prop::collection::vec((0_usize..2, 0_u8..4), 0..400)) {
            let mut ends = [Flow::default(), Flow::default()];
            // Each direction is in order: data or not, and credits.
            let mut wires: [VecDeque<(bool, u32)>; 2] = Default::default();
            let mut step = |ends: &mut [Flow; 2], at: usize, what: u8| {
                match what {
                    0 if ends[at].may_send() => {
                        ends[at].sent();
                        let credits = ends[at].tell();
                        wires[at].push_back((true, credits));
                    }
                    1 if ends[at].should_tell() => {
                        let credits = ends[at].tell();
                        wires[at].push_back((false, credits));
                    }
                    2 => if let Some((data, credits)) = wires[1 - at].pop_front() {
                        ends[at].given_back(credits)?;
                        if data {
                            ends[at].came()?;
                        }
                    }
                    3 if ends[at].held > 0 => ends[at].used_up(),
                    _ => {}
                }
                Ok::<_, FlowError>(())
            };
            for (at, what) in steps {
                prop_assert_eq!(step(&mut ends, at, what), Ok(()));
            }
            // Once everything has come, is used up and told, both may send.
            for _ in 0..4 * WINDOW {
                for (at, what) in [(0, 2), (1, 2), (0, 3), (1, 3), (0, 1), (1, 1)] {
                    prop_assert_eq!(step(&mut ends, at, what), Ok(()));
                }
            }
            prop_assert!(ends.iter().all(Flow::may_send), "{:?}", ends);
        }
    }
}
