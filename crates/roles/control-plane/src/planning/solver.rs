//! Runs the partitioner on a thread of its own. Whatever happens to that thread, the replica goes on.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_partitioner::{Arranged, Budget, arrange};
use tokio::task::JoinHandle;

use crate::planning::problem::EpochProblem;

/// How long after its deadline a search may still run before it is given up: it reads the clock only now and then.
const GRACE: Duration = Duration::from_secs(5);

/// Finds an arrangement within a time.
type Search = dyn Fn(&EpochProblem, Duration) -> Result<Arranged, String> + Send + Sync;

/// At most one search at a time.
pub(crate) struct Solver {
    search: Arc<Search>,
    grace: Duration,
    /// A search that was given up and still runs: it cannot be stopped from outside.
    lost: Option<JoinHandle<()>>,
}

impl Default for Solver {
    fn default() -> Self {
        Self { search: Arc::new(search), grace: GRACE, lost: None }
    }
}

impl fmt::Debug for Solver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Solver").field("lost", &self.lost.is_some()).finish_non_exhaustive()
    }
}

impl Solver {
    /// Searches for about this long.
    ///
    /// # Errors
    /// A text: there is no plan, the search crashed, or it did not end.
    pub(crate) async fn run(
        &mut self,
        posed: EpochProblem,
        within: Duration,
    ) -> Result<(EpochProblem, Arranged), String> {
        if self.lost.as_ref().is_some_and(|lost| !lost.is_finished()) {
            return Err("an earlier search has not ended yet".to_owned());
        }
        let search = Arc::clone(&self.search);
        let (found, finds) = tokio::sync::oneshot::channel();
        let searching = tokio::task::spawn_blocking(move || {
            let outcome = search(&posed, within);
            let _ = found.send((posed, outcome));
        });
        match tokio::time::timeout(within.saturating_add(self.grace), finds).await {
            Ok(Ok((posed, outcome))) => outcome.map(|arranged| (posed, arranged)),
            // The search ended without a result.
            Ok(Err(_)) => Err(match searching.await {
                Err(error) => format!("the solver ended early: {error}"),
                Ok(()) => "the solver ended early".to_owned(),
            }),
            Err(_) => {
                self.lost = Some(searching);
                Err(format!("the solver did not end within {} s", within.saturating_add(self.grace).as_secs_f64()))
            }
        }
    }
}

fn search(posed: &EpochProblem, within: Duration) -> Result<Arranged, String> {
    let give_up = Instant::now() + within;
    let should_stop = move || Instant::now() >= give_up;
    let budget = Budget { should_stop: Some(&should_stop), ..Budget::for_models(posed.problem.models.len()) };
    arrange(&posed.problem, &posed.units, &posed.in_force, &budget).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::planning::problem::pose;
    use crate::planning::problem::tests::{cluster, loaded, rates};
    use crate::planning::settings::EpochSettings;

    fn posed() -> EpochProblem {
        let mut state = cluster(&["left", "right"]);
        for name in ["a", "b", "c", "d"] {
            loaded(&mut state, name, "left");
        }
        pose(&state, &rates(&[100.0; 4]), &EpochSettings::default()).unwrap()
    }

    /// Limit for what must end: printing a panic message can take seconds on a busy machine.
    const SOON: Duration = Duration::from_secs(60);

    fn solver(search: impl Fn(&EpochProblem, Duration) -> Result<Arranged, String> + Send + Sync + 'static) -> Solver {
        Solver { search: Arc::new(search), grace: SOON, lost: None }
    }

    #[tokio::test]
    async fn a_search_that_is_cut_short_still_gives_a_plan_that_holds() {
        let (posed, arranged) = solver(search).run(posed(), Duration::ZERO).await.unwrap();
        assert!(arranged.plan.cut_short && posed.found(&arranged).is_ok());
    }

    #[tokio::test]
    async fn a_crash_is_no_plan_and_the_next_search_is_made() {
        let crashed = Arc::new(Mutex::new(false));
        let mut solver = solver(move |posed, within| {
            let first = !std::mem::replace(&mut *crashed.lock().unwrap(), true);
            assert!(!first, "planted");
            search(posed, within)
        });
        let error = solver.run(posed(), Duration::from_secs(1)).await.unwrap_err();
        assert!(error.contains("the solver ended early") && error.contains("panic"), "{error}");
        assert!(solver.run(posed(), Duration::from_secs(1)).await.is_ok());
    }

    #[tokio::test]
    async fn a_search_that_does_not_end_is_given_up_and_no_other_one_begins_beside_it() {
        let (go_on, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let mut solver = solver(move |posed, within| {
            let _ = wait.lock().unwrap().recv();
            search(posed, within)
        });
        solver.grace = Duration::from_millis(50);
        let error = solver.run(posed(), Duration::ZERO).await.unwrap_err();
        assert!(error.contains("did not end"), "{error}");
        let error = solver.run(posed(), Duration::ZERO).await.unwrap_err();
        assert!(error.contains("an earlier search"), "{error}");
        drop(go_on);
        while solver.lost.as_ref().is_some_and(|lost| !lost.is_finished()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        solver.grace = SOON;
        assert!(solver.run(posed(), Duration::from_secs(1)).await.is_ok());
    }
}
