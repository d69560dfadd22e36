//! One command of a longer run.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};

/// A cargo command, printed as it is run, with the time that it took.
pub(crate) struct Step<'a> {
    pub(crate) name: &'a str,
    pub(crate) args: &'a [&'a str],
    pub(crate) env: &'a [(&'a str, &'a str)],
}

impl Step<'_> {
    /// Runs it; returns whether it succeeded.
    pub(crate) fn run(&self) -> Result<bool> {
        let began = Instant::now();
        let status = self.command().status().with_context(|| format!("cannot start step {}", self.name))?;
        self.took(began);
        Ok(status.success())
    }

    /// Runs it, passes its output through, and keeps the lines that `wanted` selects.
    pub(crate) fn run_and_pick(&self, wanted: fn(&str) -> bool) -> Result<(bool, Vec<String>)> {
        let began = Instant::now();
        let mut child = self
            .command()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start step {}", self.name))?;
        let (send, lines) = mpsc::channel::<String>();
        let out: Box<dyn Read + Send> = Box::new(child.stdout.take().context("its output is not there")?);
        let err: Box<dyn Read + Send> = Box::new(child.stderr.take().context("its errors are not there")?);
        for pipe in [out, err] {
            let send = send.clone();
            thread::spawn(move || {
                for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                    if send.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let mut picked = Vec::new();
        for line in lines {
            eprintln!("{line}");
            if wanted(&line) {
                picked.push(line);
            }
        }
        let well = child.wait()?.success();
        self.took(began);
        Ok((well, picked))
    }

    fn took(&self, began: Instant) {
        eprintln!("xtask: {} took {} s", self.name, began.elapsed().as_secs());
    }

    fn command(&self) -> Command {
        eprintln!("xtask: {}: cargo {}", self.name, self.args.join(" "));
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(self.args).envs(self.env.iter().copied());
        command
    }
}
