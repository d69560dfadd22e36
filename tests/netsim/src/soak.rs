//! Many seeds, each in a process of its own: what is random in a process is seeded once, when it begins.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use crate::plant::Plants;

/// How each seed is run.
#[derive(Clone, Debug)]
pub(crate) struct Each {
    /// Simulated seconds of trouble.
    pub(crate) trouble_s: u64,
    /// Twice, with the traces compared.
    pub(crate) twice: bool,
    pub(crate) plants: Plants,
}

/// A seed under way, with its trace, or its two.
struct Seed {
    number: u64,
    runs: Vec<Child>,
}

/// Runs seeds from `from` on and stops at the first one that breaks a promise.
pub(crate) fn soak(from: u64, count: Option<u64>, jobs: usize, each: Each) -> ExitCode {
    let Ok(dir) = tempfile::tempdir() else {
        eprintln!("no directory for traces");
        return ExitCode::from(3);
    };
    let mut next = from;
    let end = count.map_or(u64::MAX, |count| from.saturating_add(count));
    let mut kept = 0_u64;
    while next < end {
        let mut seeds = Vec::new();
        while seeds.len() < jobs.max(1) && next < end {
            let runs = (0..if each.twice { 2 } else { 1 }).map(|run| start(dir.path(), next, run, &each));
            match runs.collect::<std::io::Result<Vec<_>>>() {
                Ok(runs) => seeds.push(Seed { number: next, runs }),
                Err(error) => {
                    eprintln!("cannot start a simulation: {error}");
                    return ExitCode::from(3);
                }
            }
            next += 1;
        }
        let mut broken = None;
        for mut seed in seeds {
            if broken.is_some() {
                seed.runs.iter_mut().for_each(|run| drop(run.kill()));
            }
            match finish(dir.path(), seed) {
                Ok(()) => kept += 1,
                Err(reason) => broken = broken.or(Some(reason)),
            }
        }
        if let Some(reason) = broken {
            println!("{reason}");
            return ExitCode::FAILURE;
        }
        print!("\r{kept} seeds kept every promise");
        let _ = std::io::stdout().flush();
    }
    println!();
    ExitCode::SUCCESS
}

fn trace(dir: &Path, seed: u64, run: usize) -> std::path::PathBuf {
    dir.join(format!("{seed}-{run}.trace"))
}

fn start(dir: &Path, seed: u64, run: usize, each: &Each) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", "--seed", &seed.to_string(), "--trouble-s", &each.trouble_s.to_string(), "--trace"]);
    command.arg(trace(dir, seed, run));
    command.args(each.plants.arguments());
    command.stdout(Stdio::null()).spawn()
}

fn finish(dir: &Path, Seed { number, runs }: Seed) -> Result<(), String> {
    let count = runs.len();
    let mut codes = Vec::new();
    for mut run in runs {
        codes.push(run.wait().map_err(|error| error.to_string())?);
    }
    let traces: Vec<_> = (0..count).map(|run| std::fs::read(trace(dir, number, run)).unwrap_or_default()).collect();
    for run in 0..count {
        let _ = std::fs::remove_file(trace(dir, number, run));
    }
    if codes.iter().any(|code| !code.success()) {
        let text = String::from_utf8_lossy(&traces[0]);
        let lines: Vec<_> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(12)..].join("\n");
        return Err(format!("\nseed {number} ended with {}:\n{tail}", codes[0]));
    }
    if traces.iter().any(|trace| *trace != traces[0] || trace.is_empty()) {
        return Err(format!("\nseed {number} did not give the same bytes twice"));
    }
    Ok(())
}
