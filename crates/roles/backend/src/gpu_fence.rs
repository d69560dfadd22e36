//! The fence of one GPU: which plans it accepts (docs/concepts/take-over.md; invariants C1 and C7).

use symphony_protocol::execute::Refusal;
use symphony_types::{BootId, Token};

/// A connection of a leader, numbered in the order of arrival.
pub type Connection = u64;

/// The promise of a GPU. A pure value: safety depends on these comparisons, and on no clock or lease. The model of the
/// take-over (`tests/model`) explores this very type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GpuFence {
    boot: BootId,
    promised: Token,
    /// The connection that sealed last; plans on any other are older than that seal.
    sealed_by: Option<Connection>,
    next_sequence: u64,
    queued: u32,
    queued_max: u32,
}

impl GpuFence {
    /// A fence for this boot of the backend. `promised` is the log index of its registration: earlier leaders are
    /// fenced from the start.
    #[must_use]
    pub const fn new(boot: BootId, promised: Token, queued_max: u32) -> Self {
        Self { boot, promised, sealed_by: None, next_sequence: 1, queued: 0, queued_max }
    }

    /// Promises the token if it is not below the standing promise, and returns the promise. Repeating a seal changes
    /// nothing: plans accepted in between have had their turn and must not run twice.
    pub fn seal(&mut self, by: Connection, token: Token) -> Token {
        if token >= self.promised && (token, Some(by)) != (self.promised, self.sealed_by) {
            self.promised = token;
            self.sealed_by = Some(by);
            self.next_sequence = 1;
        }
        self.promised
    }

    /// Accepts or refuses a plan; a refusal changes nothing.
    ///
    /// # Errors
    /// What the plan does not match: the boot id, the promise, the sequence, or the room in the queue.
    pub fn accept(&mut self, by: Connection, token: Token, boot: BootId, sequence: u64) -> Result<(), Refusal> {
        if boot != self.boot {
            return Err(Refusal::WrongBoot { boot: self.boot });
        }
        if token < self.promised {
            return Err(Refusal::Fenced { promised: self.promised });
        }
        if token > self.promised || self.sealed_by != Some(by) {
            return Err(Refusal::NeedSeal { promised: self.promised });
        }
        if sequence != self.next_sequence {
            return Err(Refusal::OutOfSequence { expected: self.next_sequence });
        }
        if self.queued >= self.queued_max {
            return Err(Refusal::QueueFull);
        }
        self.next_sequence += 1;
        self.queued += 1;
        Ok(())
    }

    /// Whether a leader that has sealed comes again over another connection.
    pub(crate) fn is_reconnect(&self, by: Connection, token: Token) -> bool {
        token == self.promised && self.sealed_by.is_some_and(|before| before != by)
    }

    /// The connection whose plans are accepted.
    pub(crate) const fn sealed_by(&self) -> Option<Connection> {
        self.sealed_by
    }

    /// A plan has ended.
    pub const fn finished(&mut self) {
        self.queued = self.queued.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOOT: BootId = BootId::new(7);

    fn fence() -> GpuFence {
        GpuFence::new(BOOT, Token::new(10), 2)
    }

    #[test]
    fn a_leader_comes_again_if_it_has_sealed_over_another_connection_under_the_same_token() {
        let token = Token::new(10);
        let mut fence = GpuFence::new(BOOT, token, 2);
        assert!(!fence.is_reconnect(1, token), "nobody has sealed yet");
        fence.seal(1, token);
        assert!(!fence.is_reconnect(1, token) && fence.is_reconnect(2, token));
        assert!(!fence.is_reconnect(2, Token::new(11)), "another lead, which is not held up");
    }

    #[test]
    fn a_sealed_leader_runs_plans_in_sequence_up_to_the_limit() {
        let mut fence = fence();
        let token = Token::new(11);
        assert_eq!(fence.accept(1, token, BOOT, 1), Err(Refusal::NeedSeal { promised: Token::new(10) }));
        assert_eq!(fence.seal(1, token), token);
        assert_eq!(fence.accept(1, token, BOOT, 1), Ok(()));
        assert_eq!(fence.accept(1, token, BOOT, 1), Err(Refusal::OutOfSequence { expected: 2 }), "sent twice");
        assert_eq!(fence.accept(1, token, BOOT, 3), Err(Refusal::OutOfSequence { expected: 2 }), "one is missing");
        assert_eq!(fence.accept(1, token, BOOT, 2), Ok(()));
        assert_eq!(fence.accept(1, token, BOOT, 3), Err(Refusal::QueueFull));
        fence.finished();
        assert_eq!(fence.accept(1, token, BOOT, 3), Ok(()));
    }

    #[test]
    fn an_old_leader_is_fenced_from_the_moment_of_the_seal() {
        let mut fence = fence();
        fence.seal(1, Token::new(11));
        assert_eq!(fence.seal(2, Token::new(20)), Token::new(20));
        assert_eq!(fence.accept(1, Token::new(11), BOOT, 1), Err(Refusal::Fenced { promised: Token::new(20) }));
        assert_eq!(fence.seal(1, Token::new(11)), Token::new(20), "its seal is refused by the answer");
        assert_eq!(fence.accept(2, Token::new(20), BOOT, 1), Ok(()));
    }

    #[test]
    fn a_restarted_backend_refuses_plans_meant_for_its_former_boot() {
        let mut fence = fence();
        fence.seal(1, Token::new(11));
        let former = BootId::new(6);
        assert_eq!(fence.accept(1, Token::new(11), former, 1), Err(Refusal::WrongBoot { boot: BOOT }));
    }

    #[test]
    fn a_plan_on_a_connection_from_before_the_last_seal_is_refused() {
        let mut fence = fence();
        fence.seal(1, Token::new(11));
        fence.accept(1, Token::new(11), BOOT, 1).unwrap();
        fence.seal(2, Token::new(11));
        assert_eq!(
            fence.accept(1, Token::new(11), BOOT, 2),
            Err(Refusal::NeedSeal { promised: Token::new(11) }),
            "it was sent before the leader came again and started to count anew"
        );
        assert_eq!(fence.accept(2, Token::new(11), BOOT, 1), Ok(()));
    }

    #[test]
    fn a_seal_that_comes_twice_does_not_let_a_plan_run_twice() {
        let mut fence = fence();
        let token = Token::new(11);
        fence.seal(1, token);
        fence.accept(1, token, BOOT, 1).unwrap();
        assert_eq!(fence.seal(1, token), token);
        assert_eq!(fence.accept(1, token, BOOT, 1), Err(Refusal::OutOfSequence { expected: 2 }));
    }

    proptest! {
        /// C1 and C7: promises only grow, and no plan below the promise is ever accepted.
        #[test]
        fn promises_only_grow_and_bind(steps in proptest::collection::vec((any::<bool>(), 0_u64..4, 0_u64..30, 1_u64..5), 0..100)) {
            let mut fence = fence();
            for (seal, by, token, sequence) in steps {
                let before = fence.promised;
                if seal {
                    fence.seal(by, Token::new(token));
                } else if fence.accept(by, Token::new(token), BOOT, sequence).is_ok() {
                    prop_assert_eq!(Token::new(token), before);
                    prop_assert_eq!(fence.sealed_by, Some(by));
                    fence.finished();
                }
                prop_assert!(fence.promised >= before);
            }
        }
    }
}
