//! The record of operators' commands, so that each is executed once; part of every replicated state that operators use.

use rkyv::api::high::HighSerializer;
use rkyv::rancor;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;
use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::OperationId;

use crate::hash::Fnv1a;
use crate::limits::OPERATIONS_KEPT;

/// An operation and its reply.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct KeptOperation<O> {
    /// Log index.
    pub index: u64,
    /// The id that its sender chose.
    pub id: OperationId,
    /// The operator.
    pub actor: String,
    /// Time of receipt, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Description of the command.
    pub what: String,
    /// The reply.
    pub outcome: O,
    /// Digest of actor and action, to tell a repetition from another command with the same id.
    pub digest: u64,
}

/// The result of looking up an operation's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known<'a, O> {
    /// The same operation, with its reply.
    Same(&'a O),
    /// Another operation, at that log index.
    Other {
        /// Its log index.
        index: u64,
    },
}

impl<O> KeptOperation<O> {
    /// Looks up an id, for an operation with that digest.
    pub fn known(kept: &[Self], id: OperationId, digest: u64) -> Option<Known<'_, O>> {
        let of_this_id = || kept.iter().filter(|kept| kept.id == id);
        match of_this_id().find(|kept| kept.digest == digest) {
            Some(same) => Some(Known::Same(&same.outcome)),
            None => of_this_id().next().map(|other| Known::Other { index: other.index }),
        }
    }

    /// Records an operation; if there are [`OPERATIONS_KEPT`], the oldest is forgotten.
    pub fn keep(self, kept: &mut Vec<Self>) {
        kept.push(self);
        let surplus = kept.len().saturating_sub(OPERATIONS_KEPT);
        kept.drain(..surplus);
    }
}

/// A digest of actor and action, independent of repetition and route: 64 bits of FNV-1a. It guards against mistakes,
/// such as a script with a constant id, not against operators who forge it.
///
/// # Panics
/// If the action cannot be encoded, which its validation rules out.
pub fn digest<A>(actor: &str, action: &A) -> u64
where
    A: for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, rancor::Error>>,
{
    let bytes = rkyv::to_bytes::<rancor::Error>(action).expect("an action that was validated can be written");
    Fnv1a::default().over(actor.as_bytes()).over(&bytes).get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(index: u64, id: u128, digest: u64) -> KeptOperation<u64> {
        let (actor, what) = (String::new(), String::new());
        KeptOperation { index, id: OperationId::new(id), actor, at_unix_ms: 0, what, outcome: index, digest }
    }

    #[test]
    fn a_repetition_is_told_from_another_command_and_the_oldest_is_forgotten() {
        let mut book = Vec::new();
        kept(1, 7, 70).keep(&mut book);
        kept(2, 7, 71).keep(&mut book);
        let known =
            |book: &[KeptOperation<u64>], id, digest| match KeptOperation::known(book, OperationId::new(id), digest) {
                Some(Known::Same(outcome)) => format!("same as {outcome}"),
                Some(Known::Other { index }) => format!("other than {index}"),
                None => "unknown".to_owned(),
            };
        assert_eq!([known(&book, 7, 70), known(&book, 7, 71)], ["same as 1", "same as 2"]);
        assert_eq!([known(&book, 7, 72), known(&book, 8, 70)], ["other than 1", "unknown"]);
        (3..).take(OPERATIONS_KEPT - 1).for_each(|index| kept(index, index.into(), 0).keep(&mut book));
        assert_eq!((book.len(), known(&book, 7, 70)), (OPERATIONS_KEPT, "other than 2".to_owned()));
        assert_ne!(digest("ann", &1_u64), digest("bob", &1_u64));
    }
}
