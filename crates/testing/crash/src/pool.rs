//! Verifiers at work: processes that look at disks, several at a time.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, anyhow};
use symphony_interposer::skip_syncs;

use crate::child::{log_to, program};
use crate::mark::Mark;
use crate::verifier::{PANICKED, Question};

/// A verifier process. One that dies is replaced, and its death is the answer.
#[derive(Debug)]
pub(crate) struct Verifier {
    log: PathBuf,
    process: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
}

impl Verifier {
    pub(crate) fn new(log: &Path) -> Self {
        Self { log: log.to_owned(), process: None }
    }

    pub(crate) fn verify(&mut self, question: &Question) -> Result<Mark> {
        if self.process.is_none() {
            let mut command = Command::new(program()?);
            command.arg("verifier").stdin(Stdio::piped()).stdout(Stdio::piped());
            log_to(&mut command, &self.log)?;
            skip_syncs(&mut command);
            let mut child = command.spawn().context("cannot start a verifier")?;
            let (stdin, stdout) = (child.stdin.take().context("stdin")?, child.stdout.take().context("stdout")?);
            self.process = Some((child, stdin, BufReader::new(stdout)));
        }
        let Some((_, input, answers)) = &mut self.process else { return Err(anyhow!("no verifier")) };
        let mut line = serde_json::to_vec(question)?;
        line.push(b'\n');
        let written = input.write_all(&line);
        let mut line = Vec::new();
        while written.is_ok() && answers.read_until(b'\n', &mut line)? > 0 {
            if let Some(mark) = Mark::parse(&line) {
                return Ok(mark);
            }
            line.clear();
        }
        let end = match self.process.take() {
            Some((mut child, ..)) => child.wait()?.to_string(),
            None => String::new(),
        };
        Ok(Mark::Refused(format!("{PANICKED}: the process that opened it ended with {end}")))
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        if let Some((mut child, input, _)) = self.process.take() {
            // It ends when no one asks any more.
            drop(input);
            let _ = child.wait();
        }
    }
}

/// A disk and what to make of the answer.
struct Job<T> {
    question: Question,
    tag: T,
}

/// Several verifiers behind one queue. Each directory is removed when it was looked at.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    jobs: Option<SyncSender<Job<T>>>,
    answers: Receiver<(T, Result<Mark>)>,
    threads: Vec<JoinHandle<()>>,
}

impl<T: Send + 'static> Pool<T> {
    pub(crate) fn start(size: usize, log: &Path) -> Self {
        let (jobs, queue) = mpsc::sync_channel::<Job<T>>(size);
        let (answer, answers) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        let threads = (0..size.max(1)).map(|_| {
            let (queue, answer, mut verifier) = (queue.clone(), answer.clone(), Verifier::new(log));
            std::thread::spawn(move || {
                loop {
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(Job { question, tag }) = job else { return };
                    let found = verifier.verify(&question);
                    // A directory that stays behind costs room, not truth.
                    let _ = fs::remove_dir_all(&question.dir);
                    if answer.send((tag, found)).is_err() {
                        return;
                    }
                }
            })
        });
        let threads = threads.collect();
        Self { jobs: Some(jobs), answers, threads }
    }

    /// Queues a disk; waits while all verifiers are busy.
    pub(crate) fn ask(&self, question: Question, tag: T) -> Result<()> {
        let jobs = self.jobs.as_ref().context("the pool is closed")?;
        jobs.send(Job { question, tag }).map_err(|_| anyhow!("all verifiers have ended"))
    }

    /// What was answered meanwhile.
    pub(crate) fn answered(&self) -> impl Iterator<Item = (T, Result<Mark>)> + '_ {
        self.answers.try_iter()
    }

    /// Waits for the rest.
    pub(crate) fn finish(mut self) -> Vec<(T, Result<Mark>)> {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has not answered; the count of answers shows it.
            let _ = thread.join();
        }
        self.answers.try_iter().collect()
    }
}
