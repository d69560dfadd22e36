//! The history of what was asked of the control group, and the question whether it is linearizable (invariant I4).

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use symphony_history::admin::{Admin, Answer, Call};
use symphony_history::{End, Limits, Recorder, Verdict, check, text};

/// Takes down what all clients ask and hear.
pub(crate) type AdminRecorder = Arc<Recorder<Call, Answer>>;

/// A recorder whose clock begins at `began`.
pub(crate) fn recorder(began: Instant) -> AdminRecorder {
    Arc::new(Recorder::new(move || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)))
}

/// What became of the question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Story {
    pub(crate) operations: u64,
    /// Of which this many have an unknown end.
    pub(crate) open: u64,
    /// Why the answers tell no one story, if they do not.
    pub(crate) contradiction: Option<String>,
    /// Why it is not known, if it is not.
    pub(crate) undecided: Option<String>,
}

impl Story {
    /// Those of several groups, each of which tells its own.
    pub(crate) fn together(each: Vec<Self>) -> Self {
        let mut all = Self::default();
        for one in each {
            all.operations += one.operations;
            all.open += one.open;
            all.contradiction = all.contradiction.or(one.contradiction);
            all.undecided = all.undecided.or(one.undecided);
        }
        all
    }

    /// Judges a history, and keeps it in a file.
    ///
    /// # Errors
    /// If the recorder's clock ran backwards, or the file cannot be written.
    pub(crate) fn judge(recorder: &AdminRecorder, path: &Path) -> Result<Self> {
        let history = recorder.history()?;
        std::fs::write(path, text::write(&history)).with_context(|| format!("cannot write {}", path.display()))?;
        let operations = history.operations();
        let mut story = Self {
            operations: operations.len() as u64,
            open: operations.iter().filter(|one| one.end == End::Unknown).count() as u64,
            ..Self::default()
        };
        match check::<Admin>(&history, Limits::default()) {
            Verdict::Linearizable => {}
            Verdict::Undecided { key } => story.undecided = Some(format!("{key:?} takes too many steps")),
            Verdict::Violation(violation) => {
                let stuck = operations.get(violation.stuck_at);
                story.contradiction = Some(format!(
                    "{:?}: after {} operations in any order, no place is left for number {}: {stuck:?}",
                    violation.key,
                    violation.ordered.len(),
                    violation.stuck_at,
                ));
            }
        }
        Ok(story)
    }
}

#[cfg(test)]
mod tests {
    use symphony_history::admin::State;
    use symphony_testkit::Workspace;

    use super::*;

    fn story(told: impl FnOnce(&AdminRecorder)) -> Story {
        let workspace = Workspace::new("story").unwrap();
        let recorder = recorder(Instant::now());
        told(&recorder);
        Story::judge(&recorder, &workspace.file("history")).unwrap()
    }

    fn load(recorder: &AdminRecorder, name: &str) {
        let loading = recorder.call(1, Call::Load { name: name.into(), spec: 5 });
        recorder.answered(loading, Answer::Loaded { model: 1, epoch: 1 });
    }

    #[test]
    fn a_model_that_was_loaded_and_is_not_seen_is_a_contradiction() {
        let seen = |names: &[&str]| {
            let models = names.iter().map(|&name| (name.to_owned(), 1)).collect();
            let read = State { index: 9, epoch: 1, models, asked: vec!["a".into()], ..State::default() };
            Answer::State(read)
        };
        let told = |names: &'static [&'static str]| {
            story(|recorder| {
                load(recorder, "a");
                let reading = recorder.call(2, Call::Read);
                recorder.answered(reading, seen(names));
                recorder.call(2, Call::Unload { name: "a".into() });
            })
        };
        let good = told(&["a"]);
        assert_eq!((good.operations, good.open, good.contradiction, good.undecided), (3, 1, None, None));
        assert!(told(&[]).contradiction.is_some_and(|why| why.contains("Model(\"a\")")));
    }
}
