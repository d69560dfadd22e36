//! What a service means when only one call happens at a time.

use std::fmt::Debug;
use std::hash::Hash;

/// A sequential specification, in parts that do not touch each other.
pub trait Specification {
    /// What is asked.
    type Call: Clone + Debug;
    /// The answer to a call.
    type Answer: Clone + Debug;
    /// Part of the service.
    type Key: Clone + Debug + Ord;
    /// State of one part; it begins with the default.
    type State: Clone + Debug + Default + Eq + Hash;

    /// The parts that an operation touches. A call that touches several counts as one operation on each, at the same
    /// time: that they are seen together is not checked. Without an answer, those that it may change.
    fn keys(call: &Self::Call, answer: Option<&Self::Answer>) -> Vec<Self::Key>;

    /// The state of a part after the operation; none if the operation cannot be answered so in this state. No answer
    /// means that any would do.
    fn apply(
        key: &Self::Key,
        state: &Self::State,
        call: &Self::Call,
        answer: Option<&Self::Answer>,
    ) -> Option<Self::State>;
}
