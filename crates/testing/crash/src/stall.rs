//! The disk of the leader hangs: another replica has to lead, although none has died.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use symphony_consensus::Engine;
use symphony_interposer::{Control, Fault, Operations, Rule, attach};

use crate::child::{log_to, program};
use crate::replica::{News, now_ns};
use crate::report::{Lost, Report};

const REPLICAS: u64 = 3;
/// Without a new leader after this time there will be none.
const SOON: Duration = Duration::from_secs(20);
/// Commits before each stall, so that a gap differs from a start.
const WARM_UP: Duration = Duration::from_millis(700);
/// Commits after the new leader's first, so that a second gap is seen.
const AFTERWARDS: Duration = Duration::from_millis(1_000);

/// What to do.
#[derive(Debug, Clone)]
pub struct Stall {
    /// The engine that keeps the log.
    pub engine: Engine,
    /// How many stalls.
    pub cycles: u64,
    /// How long a write may take before a replica stops leading.
    pub disk_stall: Duration,
    /// Where to put files.
    pub work: PathBuf,
}

struct Process {
    child: Child,
    control: Control,
    pattern: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        // Ours, and not waited for yet.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Group {
    processes: BTreeMap<u64, Process>,
    news: Receiver<(u64, News)>,
    commits: Vec<(i64, u64)>,
    leads: BTreeMap<u64, bool>,
    follows: BTreeMap<u64, Option<u64>>,
}

impl Stall {
    /// Lets the disk of the leader hang, `cycles` times.
    ///
    /// # Errors
    /// The suite itself fails, or the group never gets a leader.
    pub fn run(&self) -> Result<Report> {
        fs::create_dir_all(&self.work)?;
        let mut report = Report::new("disk-stall", self.engine.name());
        let mut group = self.start()?;
        let (mut gaps_ms, mut replaced_ms) = (Vec::new(), Vec::new());
        for cycle in 0..self.cycles {
            let leader = group.wait("a leader that commits", |group| group.committing_leader())?;
            group.listen(WARM_UP)?;
            // The leader may have changed by itself meanwhile.
            let leader = group.committing_leader().unwrap_or(leader);
            let process = group.processes.get_mut(&leader).context("the leader is one of ours")?;
            let began_ns = now_ns();
            let rule = Rule::new(Operations::SYNC | Operations::WRITE, &process.pattern, Fault::Delay(None));
            process.control.set(0, &rule)?;
            let other = |group: &Group| {
                group.commits.iter().find(|(at, who)| *who != leader && *at > began_ns).map(|(at, _)| *at)
            };
            match group.wait("another leader", other) {
                Ok(first_ns) => replaced_ms.push(u64::try_from((first_ns - began_ns) / 1_000_000)?),
                Err(error) => {
                    report.cycles += 1;
                    let whence = format!("cycle {cycle}");
                    report.violated(&[Lost::new("leader", format!("{error}"))], &whence);
                    return Ok(report);
                }
            }
            group.listen(AFTERWARDS)?;
            gaps_ms.push(group.longest_gap_ms(began_ns));
            if group.processes[&leader].control.struck(0)? == 0 {
                report.violated(&[Lost::new("fault", "the disk never hung")], &format!("cycle {cycle}"));
            }
            report.cycles += 1;
            group.processes.get_mut(&leader).context("the leader is one of ours")?.control.lift(0)?;
            group.wait("the old leader to follow the new one", |group| {
                let known = group.follows.get(&leader).copied().flatten()?;
                (known != leader && !group.leads.get(&leader).copied().unwrap_or(true)).then_some(())
            })?;
        }
        report.acked = group.commits.len() as u64;
        for (what, mut times_ms) in [("commit gap ms", gaps_ms), ("another leader after ms", replaced_ms)] {
            times_ms.sort_unstable();
            for (name, share) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
                let at = ((times_ms.len() as f64 - 1.0) * share).round() as usize;
                report.add(format!("{what} {name}"), times_ms.get(at).copied().unwrap_or_default());
            }
        }
        Ok(report)
    }

    fn start(&self) -> Result<Group> {
        let addresses = free_addresses()?;
        let list: Vec<String> = addresses.iter().map(|(id, address)| format!("{id}={address}")).collect();
        let (sender, news) = mpsc::channel();
        let mut processes = BTreeMap::new();
        for id in addresses.keys().copied() {
            let dir = self.work.join(format!("replica-{id}"));
            fs::create_dir_all(&dir)?;
            let dir = dir.canonicalize()?;
            let control = Control::create(self.work.join(format!("control-{id}")))?;
            let mut command = Command::new(program()?);
            command.arg("replica").args(["--id", &id.to_string()]).arg("--dir").arg(&dir);
            command.args(["--engine", self.engine.name(), "--addresses", &list.join(",")]);
            command.args(["--disk-stall-ms", &self.disk_stall.as_millis().to_string()]);
            log_to(&mut command, &self.work.join(format!("replica-{id}.log")))?;
            attach(&mut command, &control);
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
            let output = BufReader::new(child.stdout.take().context("a replica has no standard output")?);
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in output.lines().map_while(Result::ok) {
                    let Ok(news) = serde_json::from_str(&line) else { continue };
                    if sender.send((id, news)).is_err() {
                        return;
                    }
                }
            });
            processes.insert(id, Process { child, control, pattern: format!("{}/*", dir.display()) });
        }
        Ok(Group { processes, news, commits: Vec::new(), leads: BTreeMap::new(), follows: BTreeMap::new() })
    }
}

impl Group {
    fn hear(&mut self, id: u64, news: &News) {
        match *news {
            News::Committed { at_ns } => self.commits.push((at_ns, id)),
            News::Follows { leader, leads } => {
                self.leads.insert(id, leads);
                self.follows.insert(id, leader);
            }
        }
    }

    /// Listens for `time`.
    fn listen(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            match self.news.recv_timeout(left) {
                Ok((id, news)) => self.hear(id, &news),
                Err(mpsc::RecvTimeoutError::Timeout) => return Ok(()),
                Err(mpsc::RecvTimeoutError::Disconnected) => bail!("all replicas have ended"),
            }
        }
        Ok(())
    }

    /// Listens until something holds.
    fn wait<T>(&mut self, what: &str, holds: impl Fn(&Self) -> Option<T>) -> Result<T> {
        let end = Instant::now() + SOON;
        loop {
            if let Some(found) = holds(self) {
                return Ok(found);
            }
            if Instant::now() > end {
                bail!("no {what} within {SOON:?}");
            }
            self.listen(Duration::from_millis(5))?;
            for (id, process) in &mut self.processes {
                if let Some(end) = process.child.try_wait()? {
                    bail!("replica {id} ended with {end}");
                }
            }
        }
    }

    /// The replica that says that it leads and was the last to commit.
    fn committing_leader(&self) -> Option<u64> {
        let (_, last) = self.commits.iter().max()?;
        self.leads.get(last).copied().unwrap_or_default().then_some(*last)
    }

    /// The longest time without a commit that ended after `since_ns`.
    fn longest_gap_ms(&self, since_ns: i64) -> u64 {
        let mut times: Vec<i64> = self.commits.iter().map(|(at, _)| *at).collect();
        times.sort_unstable();
        let gaps = times.windows(2).filter(|pair| pair[1] > since_ns).map(|pair| pair[1] - pair[0]);
        gaps.max().map_or(0, |gap| u64::try_from(gap / 1_000_000).unwrap_or_default())
    }
}

fn free_addresses() -> Result<BTreeMap<u64, SocketAddr>> {
    // All held at once, so that they differ; another process may still take one before its replica does.
    let listeners = (1..=REPLICAS).map(|id| Ok((id, TcpListener::bind("127.0.0.1:0")?)));
    let listeners = listeners.collect::<Result<Vec<_>>>()?;
    listeners.iter().map(|(id, listener)| Ok((*id, listener.local_addr()?))).collect()
}
