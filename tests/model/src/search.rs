//! Searching, and telling what was found.

use std::fmt;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use crate::model::Protocol;
use crate::{Broken, Scope};

/// What a search found.
#[derive(Debug)]
pub struct SearchResult {
    /// Different worlds looked at.
    pub worlds: usize,
    /// Steps on the longest way.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Whether everything within the scope was looked at.
    pub complete: bool,
    /// What was broken, and the steps to it.
    pub counterexample: Option<(Broken, Vec<String>)>,
    /// What should have been reached and was not.
    pub missed: Vec<&'static str>,
}

/// Looks at every world within the scope, nearest first; stops at the first counterexample, and after `steps_max`
/// steps.
#[must_use]
pub fn search(scope: Scope, threads: usize, steps_max: Option<usize>) -> SearchResult {
    let began = Instant::now();
    let mut builder = Protocol(scope).checker().threads(threads);
    builder = builder.finish_when(HasDiscoveries::AnyFailures);
    if let Some(max) = steps_max {
        builder = builder.target_state_count(max);
    }
    // The nearest counterexample reads best; where there is none, depth first needs less memory.
    let nearest = scope.mutation.is_some();
    if nearest {
        report(&scope, &builder.spawn_bfs().join(), began, steps_max)
    } else {
        report(&scope, &builder.spawn_dfs().join(), began, steps_max)
    }
}

fn report(scope: &Scope, checker: &impl Checker<Protocol>, began: Instant, steps_max: Option<usize>) -> SearchResult {
    let mut discoveries = checker.discoveries();
    let counterexample = discoveries.remove(Protocol::NOTHING_BROKEN).map(|path| {
        let broken = path.last_state().broken.expect("the property is that there is none");
        (broken, path.into_actions().iter().map(|action| format!("{action:?}")).collect())
    });
    let worlds = checker.unique_state_count();
    let complete = counterexample.is_none() && steps_max.is_none_or(|max| checker.state_count() < max);
    let expected = Protocol(*scope).properties();
    let missed = expected.iter().map(|property| property.name);
    let missed = missed.filter(|name| *name != Protocol::NOTHING_BROKEN && !discoveries.contains_key(name));
    let missed = if complete { missed.collect() } else { Vec::new() };
    SearchResult { worlds, depth: checker.max_depth(), took: began.elapsed(), complete, counterexample, missed }
}

impl fmt::Display for SearchResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extent = if self.complete { "all" } else { "not all" };
        writeln!(
            f,
            "{} worlds ({extent} within the scope), {} steps deep, {:.1} s",
            self.worlds,
            self.depth,
            self.took.as_secs_f64()
        )?;
        if let Some((broken, steps)) = &self.counterexample {
            writeln!(f, "broken: {broken}, after")?;
            for step in steps {
                writeln!(f, "  {step}")?;
            }
        }
        for name in &self.missed {
            writeln!(f, "never reached: {name}")?;
        }
        Ok(())
    }
}
