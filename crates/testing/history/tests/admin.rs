//! Histories of the admin API that are as they should be, and ones that no correct cluster gives. Each bad one is what
//! a known kind of bug looks like from outside.

use symphony_history::admin::{Admin, Answer, Call, Key, State};
use symphony_history::{End, History, Limits, Operation, Verdict, check, text};

type Line = (u64, u64, Call, Option<Answer>);

fn history(lines: Vec<Line>) -> History<Call, Answer> {
    let operations = lines.into_iter().enumerate().map(|(process, (called_at, at, call, answer))| Operation {
        process: process as u64,
        call,
        called_at,
        end: answer.map_or(End::Unknown, |answer| End::Answered { at, answer }),
    });
    let history = History::new(operations.collect()).unwrap();
    // What is judged is what can be kept.
    assert_eq!(text::read(&text::write(&history)).unwrap(), history);
    history
}

fn verdict(lines: Vec<Line>) -> Verdict<Key> {
    check::<Admin>(&history(lines), Limits::default())
}

#[track_caller]
fn good(lines: Vec<Line>) {
    assert_eq!(verdict(lines), Verdict::Linearizable);
}

#[track_caller]
fn bad(lines: Vec<Line>, key: &Key) {
    match verdict(lines) {
        Verdict::Violation(violation) => assert_eq!(violation.key, *key),
        other => panic!("{other:?}"),
    }
}

fn load(spec: u64) -> Call {
    Call::Load { name: "m".into(), spec }
}

fn unload() -> Call {
    Call::Unload { name: "m".into() }
}

fn register(boot: u64) -> Call {
    Call::Register { name: "b".into(), boot }
}

const fn loaded(model: u64, epoch: u64) -> Option<Answer> {
    Some(Answer::Loaded { model, epoch })
}

const fn unloaded(epoch: u64) -> Option<Answer> {
    Some(Answer::Unloaded { epoch })
}

const fn registered(id: u64, token: u64) -> Option<Answer> {
    Some(Answer::Registered { id, token })
}

/// A read of index, epoch, the model `m` and the backend `b`.
fn state(index: u64, epoch: u64, model: Option<u64>, backend: Option<(u64, u64)>) -> Option<Answer> {
    Some(Answer::State(State {
        index,
        epoch,
        models: model.map(|id| ("m".to_owned(), id)).into_iter().collect(),
        processes: backend.map(|seen| ("b".to_owned(), seen)).into_iter().collect(),
        asked: vec!["m".into(), "b".into()],
    }))
}

fn model() -> Key {
    Key::Model("m".into())
}

fn process() -> Key {
    Key::Process("b".into())
}

#[test]
fn one_after_the_other() {
    good(vec![
        (0, 1, Call::Read, state(1, 0, None, None)),
        (2, 3, load(7), loaded(1, 1)),
        (4, 5, load(7), loaded(1, 1)),
        (6, 7, load(8), Some(Answer::NameTaken)),
        (8, 9, Call::Read, state(3, 1, Some(1), None)),
        (10, 11, unload(), unloaded(2)),
        (12, 13, unload(), Some(Answer::NotLoaded)),
        (14, 15, load(7), loaded(2, 3)),
        (16, 17, register(10), registered(1, 8)),
        (18, 19, register(11), registered(1, 9)),
        (20, 21, register(10), Some(Answer::Stale)),
        (22, 23, Call::Read, state(9, 5, Some(2), Some((1, 11)))),
    ]);
}

#[test]
fn what_overlaps_may_be_seen_or_not() {
    for seen in [None, Some(1)] {
        good(vec![(0, 10, load(7), loaded(1, 1)), (5, 6, Call::Read, state(1, 1, seen, None))]);
    }
    // Seen by the first reader and by the second.
    good(vec![
        (0, 100, load(7), loaded(1, 1)),
        (5, 6, Call::Read, state(1, 1, None, None)),
        (7, 8, Call::Read, state(2, 1, Some(1), None)),
    ]);
}

#[test]
fn an_unknown_end_may_be_any_and_at_any_time() {
    for seen in [None, Some(1)] {
        good(vec![(0, 0, load(7), None), (5, 6, Call::Read, state(1, 1, seen, None))]);
    }
    // It happens long after its caller gave up, once.
    good(vec![
        (0, 0, load(7), None),
        (5, 6, Call::Read, state(1, 1, None, None)),
        (7, 8, Call::Read, state(2, 1, Some(1), None)),
        (9, 10, Call::Read, state(3, 1, Some(1), None)),
    ]);
    // An unload without an answer.
    good(vec![(0, 1, load(7), loaded(1, 1)), (2, 0, unload(), None), (3, 4, load(7), loaded(2, 3))]);
}

#[test]
fn bad_1_a_stale_read_after_an_answered_write() {
    bad(vec![(0, 1, load(7), loaded(1, 1)), (2, 3, Call::Read, state(1, 1, None, None))], &model());
}

#[test]
fn bad_2_two_reads_that_go_back_in_time() {
    let lines = vec![
        (0, 100, load(7), loaded(1, 1)),
        (5, 6, Call::Read, state(1, 1, Some(1), None)),
        (7, 8, Call::Read, state(1, 1, None, None)),
    ];
    bad(lines, &model());
}

#[test]
fn bad_3_an_acknowledged_write_that_is_lost() {
    let lines = vec![
        (0, 1, load(7), loaded(1, 1)),
        (2, 3, Call::Read, state(2, 1, Some(1), None)),
        (4, 5, unload(), Some(Answer::NotLoaded)),
    ];
    bad(lines, &model());
}

#[test]
fn bad_4_one_unload_answered_twice() {
    let lines = vec![(0, 1, load(7), loaded(1, 1)), (2, 10, unload(), unloaded(2)), (3, 9, unload(), unloaded(3))];
    bad(lines, &model());
}

#[test]
fn bad_5_an_id_given_to_two_models() {
    let lines = vec![(0, 1, load(7), loaded(1, 1)), (2, 3, unload(), unloaded(2)), (4, 5, load(7), loaded(1, 3))];
    bad(lines, &model());
}

#[test]
fn bad_6_an_epoch_that_is_given_twice() {
    let lines = vec![
        (0, 1, load(7), loaded(1, 1)),
        (2, 3, unload(), unloaded(2)),
        (4, 5, load(7), loaded(2, 3)),
        (6, 7, unload(), unloaded(3)),
    ];
    bad(lines, &Key::Epoch);
}

#[test]
fn bad_7_an_epoch_that_falls_between_two_reads() {
    let lines = vec![(0, 1, Call::Read, state(5, 4, None, None)), (2, 3, Call::Read, state(6, 3, None, None))];
    bad(lines, &Key::Epoch);
}

#[test]
fn bad_8_an_index_that_falls_behind_an_acknowledged_registration() {
    let lines = vec![(0, 1, register(10), registered(1, 8)), (2, 3, Call::Read, state(7, 1, None, Some((1, 10))))];
    bad(lines, &Key::Index);
}

#[test]
fn bad_9_a_new_boot_without_a_larger_token() {
    let lines = vec![(0, 1, register(10), registered(1, 8)), (2, 3, register(11), registered(1, 8))];
    bad(lines, &process());
}

#[test]
fn bad_10_a_former_boot_that_registers_again() {
    let lines = vec![
        (0, 1, register(10), registered(1, 8)),
        (2, 3, register(11), registered(1, 9)),
        (4, 5, register(10), registered(1, 10)),
    ];
    bad(lines, &process());
}

#[test]
fn bad_11_a_backend_with_two_ids() {
    let lines = vec![(0, 1, register(10), registered(1, 8)), (2, 3, register(11), registered(2, 9))];
    bad(lines, &process());
}

#[test]
fn bad_12_two_models_under_one_name() {
    let lines = vec![(0, 1, load(7), loaded(1, 1)), (2, 3, load(8), loaded(2, 2))];
    bad(lines, &model());
}

#[test]
fn bad_13_an_unknown_write_that_happens_and_is_undone() {
    let lines = vec![
        (0, 0, load(7), None),
        (1, 2, Call::Read, state(2, 1, Some(1), None)),
        (3, 4, Call::Read, state(3, 1, None, None)),
    ];
    bad(lines, &model());
}

#[test]
fn bad_14_a_value_from_nowhere() {
    bad(vec![(0, 1, Call::Read, state(1, 1, Some(1), None))], &model());
}

#[test]
fn bad_15_a_failed_write_that_is_seen() {
    let operations = vec![
        Operation { process: 1, call: load(7), called_at: 0, end: End::Failed { at: 1 } },
        Operation {
            process: 1,
            call: Call::Read,
            called_at: 2,
            end: End::Answered { at: 3, answer: state(2, 1, Some(1), None).unwrap() },
        },
    ];
    let verdict = check::<Admin>(&History::new(operations).unwrap(), Limits::default());
    assert!(matches!(verdict, Verdict::Violation(violation) if violation.key == model()));
}

#[test]
fn a_violation_says_where() {
    let lines = vec![
        (0, 1, load(7), loaded(1, 1)),
        (2, 3, unload(), unloaded(2)),
        (4, 5, Call::Read, state(3, 2, Some(1), None)),
    ];
    let Verdict::Violation(violation) = verdict(lines) else { panic!("it is bad") };
    assert_eq!((violation.ordered, violation.stuck_at), (vec![0, 1], 2));
}

#[test]
fn a_search_that_would_take_too_long_says_so() {
    let lines = (0..40).map(|n| (n, 100, load(n), None)).chain([(50, 51, Call::Read, state(1, 1, Some(1), None))]);
    let history = history(lines.collect());
    let verdict = check::<Admin>(&history, Limits { steps_max: 10 });
    assert_eq!(verdict, Verdict::Undecided { key: model() });
}

#[test]
fn names_survive_the_text_and_nonsense_is_refused() {
    let odd = "a b%\n=:,ü";
    let lines = vec![
        (0, 1, Call::Load { name: odd.into(), spec: 1 }, loaded(1, 1)),
        (2, 3, Call::Register { name: odd.into(), boot: 1 }, registered(1, 5)),
        (
            4,
            5,
            Call::Read,
            Some(Answer::State(State {
                index: 5,
                epoch: 1,
                models: [(odd.to_owned(), 1)].into(),
                processes: [(odd.to_owned(), (1, 1))].into(),
                asked: vec![odd.into()],
            })),
        ),
    ];
    good(lines);
    for (text, reason) in [
        ("1 1 call 0", "line 1: `` is no call"),
        ("1 1 call 0 read\n1 1 call 0 read", "line 2: operation 0 is called twice"),
        ("1 1 answer 0 stale", "line 1: operation 0 was never called"),
        ("1 1 call 0 read\n2 1 fail 0\n3 1 fail 0", "operation 0 ends twice"),
        ("x 1 call 0 read", "line 1: `x` is no number"),
        ("1 1 call 0 load %zz spec=1", "is no escaped name"),
        ("5 1 call 0 read\n2 1 fail 0", "before its call"),
    ] {
        if text.ends_with("fail 0") && text.matches("fail").count() == 2 {
            // A failure is an end: the second one is refused.
            assert!(text::read(text).unwrap_err().to_string().contains(reason));
            continue;
        }
        let error = text::read(text).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
