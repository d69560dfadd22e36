//! Many searches for goodput in parallel: a worker takes any trial that some search needs for sure, or may need next.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use symphony_simulator::{Error, Goodput, GoodputSearch, Trial, meets_slo};
use symphony_workload::Scenario;

use crate::progress::Progress;

/// One search and its running trials.
struct Search {
    steps: GoodputSearch,
    running: Vec<Trial>,
}

/// The state that the workers share.
struct Board {
    searches: Vec<Search>,
    /// Searches that have ended; the workers end after the last one.
    open: usize,
    failed: Option<(usize, Error)>,
}

impl Board {
    /// The trial that is most worth running: one that the earliest search needs for sure and that is not running yet,
    /// otherwise one that a search may need next.
    fn take(&mut self) -> Option<(usize, Trial)> {
        let open = || self.searches.iter().enumerate().filter(|(_, search)| search.steps.goodput_rps().is_none());
        let needed = |search: &Search| search.steps.needed().into_iter().find(|trial| !search.running.contains(trial));
        let sure = open().find_map(|(index, search)| Some((index, needed(search)?)));
        let guess = || open().find_map(|(index, search)| Some((index, search.steps.wanted(&search.running)?)));
        let (index, trial) = sure.or_else(guess)?;
        self.searches[index].running.push(trial);
        Some((index, trial))
    }

    /// Whether there is nothing left to wait for.
    fn over(&self) -> bool {
        self.open == 0 || self.failed.is_some()
    }
}

/// Ends the other workers if this one panics: the trial that they would wait for never ends.
struct Rescue<'a> {
    board: &'a Mutex<Board>,
    news: &'a Condvar,
}

impl Drop for Rescue<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.board.lock().unwrap_or_else(PoisonError::into_inner).open = 0;
            self.news.notify_all();
        }
    }
}

/// Carries out a search for each scenario.
pub(crate) fn find_all(
    scenarios: &[Scenario],
    searches: Vec<GoodputSearch>,
    threads: usize,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<Vec<Goodput>, Error> {
    let searches: Vec<_> = searches.into_iter().map(|steps| Search { steps, running: Vec::new() }).collect();
    let open = searches.iter().filter(|search| search.steps.goodput_rps().is_none()).count();
    let board = Mutex::new(Board { searches, open, failed: None });
    let news = Condvar::new();
    let lock = || -> MutexGuard<'_, Board> { board.lock().unwrap_or_else(PoisonError::into_inner) };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let _rescue = Rescue { board: &board, news: &news };
                let mut guard = lock();
                while !guard.over() {
                    let Some((index, trial)) = guard.take() else {
                        guard = news.wait(guard).unwrap_or_else(PoisonError::into_inner);
                        continue;
                    };
                    drop(guard);
                    let scenario = &scenarios[index];
                    let verdict = meets_slo(scenario, trial.seed, trial.rate_rps);
                    guard = lock();
                    guard.note(scenario, index, trial, verdict, progress);
                    news.notify_all();
                }
            });
        }
    });
    let board = board.into_inner().unwrap_or_else(PoisonError::into_inner);
    match board.failed {
        Some((_, error)) => Err(error),
        None => Ok(board.searches.iter().map(|search| search.steps.goodput().unwrap_or_default()).collect()),
    }
}

impl Board {
    fn note(
        &mut self,
        scenario: &Scenario,
        index: usize,
        trial: Trial,
        verdict: Result<symphony_simulator::Verdict, Error>,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) {
        let search = &mut self.searches[index];
        search.running.retain(|running| *running != trial);
        // A trial that ran ahead may end after its search.
        let ended_before = search.steps.goodput_rps().is_some();
        match verdict {
            Ok(verdict) => {
                let (passed, requests) = (verdict.passed, verdict.simulated_requests);
                search.steps.record(trial, passed);
                progress(Progress::Trial { scenario, trial, passed, requests });
                if let Some(goodput_rps) = search.steps.goodput_rps().filter(|_| !ended_before) {
                    self.open -= 1;
                    match Error::never_too_much(scenario, &search.steps) {
                        Some(error) => self.fail(index, error),
                        None => progress(Progress::Found { scenario, goodput_rps }),
                    }
                }
            }
            Err(error) => self.fail(index, error),
        }
    }

    /// Reports the error of the earliest scenario.
    fn fail(&mut self, index: usize, error: Error) {
        if self.failed.as_ref().is_none_or(|(earlier, _)| index < *earlier) {
            self.failed = Some((index, error));
        }
    }
}
