//! The checker against one that tries every order.

use proptest::prelude::*;
use symphony_history::{End, History, Limits, Operation, Specification, Verdict, check};

/// Two registers that are written, read, and compared and set.
#[derive(Clone, Copy, Debug)]
struct Registers;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Write(u8),
    Read,
    /// From, to.
    Swap(u8, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Value(u8),
    Done,
    Refused,
}

impl Specification for Registers {
    type Call = (u8, Call);
    type Answer = Answer;
    type Key = u8;
    type State = u8;

    fn keys(call: &(u8, Call), _: Option<&Answer>) -> Vec<u8> {
        vec![call.0]
    }

    fn apply(_: &u8, state: &u8, call: &(u8, Call), answer: Option<&Answer>) -> Option<u8> {
        let (after, expected) = match call.1 {
            Call::Write(value) => (value, Answer::Done),
            Call::Read => (*state, Answer::Value(*state)),
            Call::Swap(from, to) if from == *state => (to, Answer::Done),
            Call::Swap(..) => (*state, Answer::Refused),
        };
        answer.is_none_or(|answer| *answer == expected).then_some(after)
    }
}

type Operations = Vec<Operation<(u8, Call), Answer>>;

/// Whether some order of the operations on one register, with any of the unknown ones left out, keeps real time and the
/// specification.
fn some_order(operations: &Operations, state: u8, done: &mut Vec<bool>) -> bool {
    let owed = |(place, operation): (usize, &Operation<(u8, Call), Answer>)| {
        !done[place] && matches!(operation.end, End::Answered { .. })
    };
    if !operations.iter().enumerate().any(owed) {
        return true;
    }
    for next in 0..operations.len() {
        if done[next] {
            continue;
        }
        // Nothing that is still to come may have returned before this was called.
        let overtaken = operations.iter().enumerate().any(|(place, operation)| {
            let End::Answered { at, .. } = operation.end else { return false };
            !done[place] && place != next && at < operations[next].called_at
        });
        let answer = match &operations[next].end {
            End::Answered { answer, .. } => Some(answer),
            End::Unknown => None,
            End::Failed { .. } => continue,
        };
        if overtaken {
            continue;
        }
        if let Some(after) = Registers::apply(&0, &state, &operations[next].call, answer) {
            done[next] = true;
            let found = some_order(operations, after, done);
            done[next] = false;
            if found {
                return true;
            }
        }
    }
    false
}

fn operation() -> impl Strategy<Value = Operation<(u8, Call), Answer>> {
    let call = prop_oneof![
        (0..3_u8).prop_map(Call::Write),
        Just(Call::Read),
        (0..3_u8, 0..3_u8).prop_map(|(from, to)| Call::Swap(from, to)),
    ];
    (0..2_u8, call, 0..3_u8, any::<bool>(), 0..12_u64, 0..6_u64, 0..8_u8).prop_map(
        |(key, call, value, swapped, called_at, takes, end)| {
            let answer = match call {
                Call::Write(_) => Answer::Done,
                Call::Read => Answer::Value(value),
                Call::Swap(..) if swapped => Answer::Done,
                Call::Swap(..) => Answer::Refused,
            };
            let end = match end {
                0 => End::Failed { at: called_at + takes },
                1 | 2 => End::Unknown,
                _ => End::Answered { at: called_at + takes, answer },
            };
            Operation { process: 0, call: (key, call), called_at, end }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn both_checkers_say_the_same(operations in proptest::collection::vec(operation(), 0..7)) {
        let expected = (0..2).all(|key| {
            let part: Operations = operations.iter().filter(|operation| operation.call.0 == key).cloned().collect();
            some_order(&part, 0, &mut vec![false; part.len()])
        });
        let verdict = check::<Registers>(&History::new(operations).unwrap(), Limits::default());
        prop_assert_eq!(verdict == Verdict::Linearizable, expected, "{:?}", verdict);
        let decided = !matches!(verdict, Verdict::Undecided { .. });
        prop_assert!(decided);
    }
}

/// A long history of a correct register, told by its own clock, is judged in about as many steps as it has operations.
#[test]
fn a_long_history_is_judged_within_the_limit() {
    let mut value = 0;
    let mut operations = Vec::new();
    for number in 0..100_000_u64 {
        let (call, answer) = match number % 3 {
            0 => {
                value = (number % 200) as u8;
                (Call::Write(value), Answer::Done)
            }
            1 => (Call::Read, Answer::Value(value)),
            _ => (Call::Swap(value.wrapping_add(1), 0), Answer::Refused),
        };
        // Five clients overlap.
        let at = number * 10;
        let end = End::Answered { at: at + 45, answer };
        operations.push(Operation { process: number % 5, call: (0, call), called_at: at, end });
    }
    let verdict = check::<Registers>(&History::new(operations).unwrap(), Limits { steps_max: 2_000_000 });
    assert_eq!(verdict, Verdict::Linearizable);
}
