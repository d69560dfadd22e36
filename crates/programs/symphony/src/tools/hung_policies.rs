//! A policy that a program added may compute for ever. In a cluster the watch over hung threads ends its lead; in tools
//! that run it here, this watch ends the process. No result depends on it: a run ends as it would without, or not at
//! all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use symphony_scheduler::{BoxedPolicy, ClusterActions, ClusterInput, ClusterPolicy, PolicyRegistry};
use symphony_types::Time;

use crate::exit::HUNG_POLICY;

/// A call of a policy that takes longer hangs. Decisions take microseconds, and a cluster gives one up after a fraction
/// of a second; so this is no verdict on slow ones.
const POLICY_CALL_MAX: Duration = Duration::from_secs(10);
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// Time is counted in checks, so that what the whole process was paused for counts against no policy.
const CHECKS_MAX: u128 = POLICY_CALL_MAX.as_millis() / CHECK_EVERY.as_millis();

/// The policies of the registry, with a thread that ends the process when a call of one hangs.
pub(crate) fn watched(policies: &PolicyRegistry) -> PolicyRegistry {
    if policies.names().next().is_none() {
        return policies.clone();
    }
    let built = Arc::new(Mutex::new(Vec::new()));
    let watched = Arc::clone(&built);
    let watching = std::thread::Builder::new().name("hung-policies".into()).spawn(move || {
        let hung = loop {
            std::thread::sleep(CHECK_EVERY);
            if let Some(hung) = find_hung(&watched) {
                break hung;
            }
        };
        eprintln!("symphony: {hung}");
        std::process::exit(HUNG_POLICY);
    });
    if let Err(error) = watching {
        eprintln!("symphony: policies that hang will not be found, since no thread can be started: {error}");
    }
    watched_by(policies, built)
}

fn watched_by(policies: &PolicyRegistry, built: Arc<Mutex<Vec<Watched>>>) -> PolicyRegistry {
    policies.wrapped(move |name, build| {
        let calls = Arc::new(Calls { policy: name.to_owned(), call: Mutex::default() });
        lock(&built).push(Watched { calls: Arc::downgrade(&calls), number: 0, checks: 0 });
        let policy = calls.during(Doing::Building, build)?;
        Ok(Box::new(WatchedPolicy { policy, calls }))
    })
}

/// What has hung, in words.
fn find_hung(built: &Mutex<Vec<Watched>>) -> Option<String> {
    let mut hung = None;
    lock(built).retain_mut(|watched| {
        let Some(calls) = watched.calls.upgrade() else { return false };
        let Call { number, doing } = *lock(&calls.call);
        let goes_on = doing != Doing::Nothing && number == watched.number;
        watched.checks = if goes_on { watched.checks + 1 } else { 0 };
        watched.number = number;
        if watched.checks >= CHECKS_MAX {
            hung = Some(format!(
                "policy `{}` hangs: {} has not returned for {} s (POLICY_CALL_MAX); it was call {number} of this \
                 policy, and what it was asked for has no result",
                calls.policy,
                doing.words(),
                POLICY_CALL_MAX.as_secs()
            ));
        }
        true
    });
    hung
}

/// Nothing panics half-way through a change.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A policy under watch, with what was seen at the last check.
struct Watched {
    calls: Weak<Calls>,
    number: u64,
    /// At how many checks that call was still going on, the first one not counted.
    checks: u128,
}

/// The call that a policy has not returned from.
#[derive(Clone, Copy, Default, PartialEq)]
enum Doing {
    #[default]
    Nothing,
    Building,
    Step {
        input: &'static str,
        now: Time,
    },
    Waiting,
}

impl Doing {
    fn words(self) -> String {
        match self {
            Self::Nothing => "nothing".to_owned(),
            Self::Building => "its constructor".to_owned(),
            Self::Step { input, now } => format!("`step` at input `{input}`, at {:.6} s,", now.as_secs_f64()),
            Self::Waiting => "`waiting`".to_owned(),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Call {
    number: u64,
    doing: Doing,
}

struct Calls {
    policy: String,
    call: Mutex<Call>,
}

impl Calls {
    fn during<T>(&self, doing: Doing, call: impl FnOnce() -> T) -> T {
        {
            let mut now = lock(&self.call);
            now.number += 1;
            now.doing = doing;
        }
        let _ends = Ends(self);
        call()
    }
}

/// The end of a call, also of one that panics.
struct Ends<'a>(&'a Calls);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        lock(&self.0.call).doing = Doing::Nothing;
    }
}

struct WatchedPolicy {
    policy: BoxedPolicy,
    calls: Arc<Calls>,
}

impl ClusterPolicy for WatchedPolicy {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        let doing = Doing::Step { input: input.label(), now };
        self.calls.during(doing, || self.policy.step(now, input, out));
    }

    fn waiting(&self) -> usize {
        self.calls.during(Doing::Waiting, || self.policy.waiting())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use symphony_scheduler::{ClusterFacts, GuardedPolicy};

    use super::*;

    /// A call goes on until the test ends.
    #[derive(Clone, Copy, PartialEq)]
    enum Hangs {
        Never,
        Building,
        Step,
        Waiting,
    }

    struct Hanging {
        hangs: Hangs,
        until_the_end: mpsc::Receiver<()>,
    }

    impl ClusterPolicy for Hanging {
        fn step(&mut self, _: Time, input: ClusterInput, _: &mut ClusterActions) {
            assert!(!matches!(input, ClusterInput::ModelGone(_)), "planted");
            if self.hangs == Hangs::Step {
                let _ = self.until_the_end.recv();
            }
        }

        fn waiting(&self) -> usize {
            if self.hangs == Hangs::Waiting {
                let _ = self.until_the_end.recv();
            }
            0
        }
    }

    /// The finding, within the limit of a call, for a policy that gets `input` and is then asked what waits.
    fn found(hangs: Hangs, input: ClusterInput) -> Option<String> {
        let (until_the_end, end) = mpsc::channel();
        let end = Mutex::new(Some(end));
        let policies = PolicyRegistry::new().with("mine", move |_, _| {
            let until_the_end = lock(&end).take().ok_or("it is built once")?;
            if hangs == Hangs::Building {
                let _ = until_the_end.recv();
            }
            Ok(Box::new(Hanging { hangs, until_the_end }))
        });
        let built = Arc::new(Mutex::new(Vec::new()));
        let policies = watched_by(&policies, Arc::clone(&built));
        let (tell_built, is_built) = mpsc::channel();
        let (tell_ended, has_ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let spec = policies.parse("mine").unwrap();
            let policy: Result<GuardedPolicy, _> = policies.build(&spec, &ClusterFacts::default());
            let mut policy = policy.unwrap();
            let _ = policy.step(Time::from_nanos(1_500_000_000), input, &mut ClusterActions::default());
            let _ = policy.waiting();
            tell_built.send(()).unwrap();
            let _ = has_ended.recv();
            drop(policy);
        });
        if hangs == Hangs::Never {
            is_built.recv().unwrap();
        } else {
            let is_in = |doing: Doing| match hangs {
                Hangs::Never => false,
                Hangs::Building => doing == Doing::Building,
                Hangs::Step => matches!(doing, Doing::Step { .. }),
                Hangs::Waiting => doing == Doing::Waiting,
            };
            let hangs_now = || {
                let calls = lock(&built).first().and_then(|watched: &Watched| watched.calls.upgrade());
                calls.is_some_and(|calls| is_in(lock(&calls.call).doing))
            };
            while !hangs_now() {
                std::thread::yield_now();
            }
        }
        // The first check sees the call, and counts nothing.
        let checks: Vec<_> = (0..=CHECKS_MAX).map(|_| find_hung(&built)).collect();
        drop((until_the_end, tell_ended));
        thread.join().unwrap();
        assert_eq!(find_hung(&built), None);
        assert!(lock(&built).is_empty(), "what was dropped is forgotten");
        let (last, before) = checks.split_last().unwrap();
        assert!(before.iter().all(Option::is_none), "too early: {before:?}");
        last.clone()
    }

    #[test]
    fn a_call_that_hangs_is_found_after_its_limit_and_named() {
        let cases = [
            (Hangs::Building, "its constructor has not returned for 10 s (POLICY_CALL_MAX); it was call 1 of"),
            (Hangs::Step, "`step` at input `wake`, at 1.500000 s, has not returned"),
            (Hangs::Waiting, "`waiting` has not returned"),
        ];
        for (hangs, words) in cases {
            let message = found(hangs, ClusterInput::Wake).unwrap();
            assert!(message.starts_with("policy `mine` hangs: ") && message.contains(words), "{message}");
        }
    }

    #[test]
    fn one_that_answers_or_panics_does_not_hang() {
        assert_eq!(found(Hangs::Never, ClusterInput::Wake), None);
        assert_eq!(found(Hangs::Never, ClusterInput::ModelGone(0)), None);
    }
}
