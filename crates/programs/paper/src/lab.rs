//! Runs experiments: on all cores, each search once.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use symphony_simulator::RunResult;
use symphony_sweep::{Progress, Run, Sweep};
use symphony_workload::Scenario;

use crate::setup::{Models, Network, Setup};
use crate::system::System;

/// The size of the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// As on the committed pages.
    Full,
    /// Short, with one seed, few points and those systems that the tests compare: shows that everything works, and
    /// roughly the results.
    Quick,
}

/// An experiment needs data of others, which are not part of the repository, and the caller named no folder.
#[derive(Debug)]
pub struct NoData {
    /// A file of that data.
    file: String,
}

impl fmt::Display for NoData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "--data: expected the folder with {}, measured by others and not part of the repository, got nothing",
            self.file
        )
    }
}

impl std::error::Error for NoData {}

/// The progress of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Searches and runs that have ended.
    pub done: usize,
    /// The number requested so far.
    pub of: usize,
    /// The last event.
    pub what: &'a str,
}

/// Runs the simulations of experiments. A search that several figures share runs once.
pub struct Lab<'a> {
    sweep: Sweep,
    size: Size,
    tell: &'a (dyn Fn(Step<'_>) + Sync),
    /// Goodputs by the text of the scenario, which contains everything a search depends on.
    found: Mutex<HashMap<String, f64>>,
    /// The folder with data of others.
    data: Option<PathBuf>,
}

impl<'a> Lab<'a> {
    /// With this many threads (all cores if `None`); `tell` is called for each event, on any thread.
    pub fn new(size: Size, threads: Option<usize>, tell: &'a (dyn Fn(Step<'_>) + Sync)) -> Self {
        Self { sweep: Sweep::new(threads), size, tell, found: Mutex::default(), data: None }
    }

    /// With the folder of data of others, for experiments that need them.
    #[must_use]
    pub fn with_data(self, data: Option<PathBuf>) -> Self {
        Self { data, ..self }
    }

    /// The text of a file of others' data.
    pub(crate) fn data_file(&self, name: &str) -> Result<String> {
        let Some(folder) = &self.data else { return Err(NoData { file: name.to_owned() }.into()) };
        let path = folder.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("--data: {}", path.display()))
    }

    /// Whether all experiments run short.
    pub(crate) fn quick(&self) -> bool {
        self.size == Size::Quick
    }

    /// Selects a value by size.
    pub(crate) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick() { quick } else { full }
    }

    /// The usual setup: Poisson, equal popularity, no network, zoo; seeds and durations by size.
    pub(crate) fn setup(&self, name: &str, gpus: u32, models: Vec<Models>) -> Setup {
        Setup {
            name: name.to_owned(),
            policy: r#""symphony""#.to_owned(),
            gpus,
            models,
            arrival: r#""poisson""#.to_owned(),
            popularity: r#""uniform""#.to_owned(),
            network: Network::default(),
            duration_s: self.pick(30.0, 5.0),
            seeds: self.pick(vec![1, 2, 3], vec![1]),
            trace: String::new(),
            more_of_gpus: String::new(),
            more: String::new(),
        }
    }

    /// The systems, among these, that this build has.
    pub(crate) fn known(&self, systems: &[System]) -> Vec<System> {
        systems.iter().copied().filter(|system| self.knows(system)).collect()
    }

    /// Whether this build has such a policy.
    pub(crate) fn knows(&self, system: &System) -> bool {
        self.setup("probe", 1, vec![Models::resnet50_like(1, 25.0)]).with_policy(system.policy).scenario().is_ok()
    }

    /// The goodput of each setup in requests per second.
    pub(crate) fn goodputs(&self, setups: &[Setup]) -> Result<Vec<f64>> {
        let key = |setup: &Setup| {
            // The name does not matter: figures that share a search name it differently.
            let unnamed = Setup { name: String::new(), ..setup.clone() };
            unnamed.to_toml() + &unnamed.trace
        };
        let keys: Vec<_> = setups.iter().map(key).collect();
        self.goodputs_by_key(&keys, |at| setups[at].scenario())
    }

    /// The goodput of each scenario in requests per second; its key contains everything that it depends on.
    pub(crate) fn goodputs_by_key(
        &self,
        keys: &[String],
        scenario: impl Fn(usize) -> Result<Scenario>,
    ) -> Result<Vec<f64>> {
        let mut open: Vec<(&String, Scenario)> = Vec::new();
        {
            let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            for (at, key) in keys.iter().enumerate() {
                if !found.contains_key(key) && !open.iter().any(|(other, _)| *other == key) {
                    open.push((key, scenario(at)?));
                }
            }
        }
        let (open_keys, scenarios): (Vec<_>, Vec<_>) = open.into_iter().unzip();
        let done = Mutex::new(0);
        let tell = |progress: Progress<'_>| {
            if let Progress::Found { scenario, goodput_rps } = progress {
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                *done += 1;
                let what = format!("{}, {}: {goodput_rps:.0} r/s", scenario.name, scenario.policy);
                (self.tell)(Step { done: *done, of: scenarios.len(), what: &what });
            }
        };
        let goodputs = self.sweep.goodputs(&scenarios, &tell)?;
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.extend(open_keys.into_iter().cloned().zip(goodputs));
        Ok(keys.iter().map(|key| found[key]).collect())
    }

    /// Runs each setup at a total rate with its first seed.
    pub(crate) fn runs(&self, setups: &[(Setup, f64)]) -> Result<Vec<RunResult>> {
        let scenarios = setups.iter().map(|(setup, _)| setup.scenario()).collect::<Result<Vec<_>>>()?;
        let runs: Vec<_> = scenarios
            .iter()
            .zip(setups)
            .map(|(scenario, &(_, rate_rps))| Run { scenario, seed: scenario.seeds[0], rate_rps })
            .collect();
        let done = Mutex::new(0);
        let tell = |progress: Progress<'_>| {
            if let Progress::Ran { scenario, .. } = progress {
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                *done += 1;
                (self.tell)(Step { done: *done, of: runs.len(), what: &scenario.name });
            }
        };
        Ok(self.sweep.runs(&runs, &tell)?)
    }

    /// Runs work that is not a run of a scenario, on all cores.
    pub(crate) fn map<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        self.sweep.map(items, work)
    }

    /// How long and with how many seeds a search runs, as text.
    pub(crate) fn words(&self) -> &'static str {
        self.pick("30 s after 2 s of warm-up, seeds 1 to 3, median", "quick: 3 to 5 s after 2 s of warm-up, seed 1")
    }
}
