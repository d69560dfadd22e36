//! Installs faults, knows whether they really were, and takes them back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use rand::Rng as _;
use rand::seq::IteratorRandom as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_protocol::view::{ModelView, View};
use symphony_testkit::wait_until_async;
use symphony_types::BootId;

use symphony_interposer::{Clock, EIO, Fault as Suffering, Operations, Rule};

use super::older_copy;
use super::{
    Burners, Change, ClockTrouble, Direction, DiskEffect, FaultSpec, HeldThread, LinkEffect, Mover, Peers, StopMode,
};
use crate::cluster::{Cluster, Process};
use crate::network::{OneWay, Troubles};
use crate::report::FaultState;
use crate::run_failure::chaos_failed;

/// How long a process may take to stop after SIGSTOP: until each of its threads has been seen by the scheduler.
const STOPPED_WITHIN: Duration = Duration::from_millis(200);
/// How much longer than planned burners run if they are not ended.
const BURNERS_EXTRA_S: u64 = 5;

/// Strikes, and knows what is in force.
#[derive(Debug)]
pub(crate) struct Injector {
    random: Xoshiro256PlusPlus,
    dir: PathBuf,
    /// Troubles of links in force, by number of their fault.
    links: BTreeMap<u32, Troubles>,
    strikes: u32,
}

/// A fault that was to happen.
#[derive(Debug)]
pub(crate) struct InjectedFault {
    pub(crate) kind: &'static str,
    pub(crate) victims: Vec<Process>,
    pub(crate) state: FaultState,
    /// Which of its variants, where there are several.
    pub(crate) how: Option<String>,
    /// Why it is not installed.
    pub(crate) why: Option<String>,
    /// Processes that ended, with their boot: they are back when another one is registered.
    pub(crate) ended: Vec<(Process, Option<BootId>)>,
    /// Names of the sub-clusters that it strikes, if these are not all that its victims lead or serve.
    pub(crate) subclusters: Option<Vec<String>>,
    /// The victims' boots when it struck.
    boots: Vec<(Process, Option<BootId>)>,
    end: End,
}

/// What ends a fault.
#[derive(Debug)]
enum End {
    Nothing,
    Start(Vec<Process>),
    Continue(Vec<Process>),
    LetGo(HeldThread),
    Mend {
        number: u32,
        touched_before: u64,
    },
    Rest(Burners),
    /// Disks of these processes, by the slot of the rule.
    Relieve(Vec<Process>, usize),
    SetRight(Vec<Process>, ClockTrouble),
    SendHome(Mover),
}

/// The slot of a disk's rule. One fault of a disk at a time: of two, the younger would be taken for the older.
const DISK_SLOT: usize = 0;

impl InjectedFault {
    fn new(kind: &'static str, victims: &[Process]) -> Self {
        let state = FaultState::Installed;
        Self {
            kind,
            victims: victims.to_vec(),
            state,
            how: None,
            why: None,
            ended: Vec::new(),
            subclusters: None,
            boots: Vec::new(),
            end: End::Nothing,
        }
    }

    /// It did not happen.
    fn skipped(mut self, why: impl ToString) -> Self {
        self.state = FaultState::Skipped;
        self.why = Some(why.to_string());
        self
    }

    fn unsure(&mut self, why: impl ToString) {
        if self.state == FaultState::Installed {
            self.state = FaultState::Indeterminate;
            self.why = Some(why.to_string());
        }
    }
}

/// The boot of a process as the view has it.
pub(crate) fn boot(view: &View, process: Process) -> Option<BootId> {
    let name = process.to_string();
    match process {
        Process::Replica(id) => view.nodes.iter().find(|(node, _)| node.get() == id)?.1.boot,
        Process::Backend(_) => view.backends.values().find(|b| b.name == name).map(|b| b.boot),
        Process::Frontend(_) => view.frontends.values().find(|f| f.name == name).map(|f| f.boot),
    }
}

/// Whether a backend has loaded what it is to hold, as an operator waits for before the next one is restarted.
fn holds_its_models(view: &View, process: Process) -> Result<(), String> {
    let name = process.to_string();
    let Some((id, backend)) = view.backends.iter().find(|(_, b)| b.name == name) else { return Ok(()) };
    let has = |model: &ModelView| model.holders.get(id).is_some_and(|r| r.boot == backend.boot && r.state.is_ok());
    match view.models.values().find(|model| backend.is_to_hold(model) && !has(model)) {
        Some(model) => Err(format!("{process} has not loaded {}", model.spec.name)),
        None => Ok(()),
    }
}

impl Injector {
    pub(crate) fn new(random: Xoshiro256PlusPlus, dir: PathBuf) -> Self {
        Self { random, dir, links: BTreeMap::new(), strikes: 0 }
    }

    /// The processes that a fault would hit now.
    pub(crate) fn victims(&mut self, fault: &FaultSpec, view: &View, cluster: &Cluster) -> Vec<Process> {
        let who = match fault {
            FaultSpec::Kill(f) | FaultSpec::Stop(f) | FaultSpec::Pause(f) | FaultSpec::Hang(f) => vec![f.who],
            FaultSpec::Isolate(f) => vec![f.who],
            FaultSpec::Trouble(f) => vec![f.who],
            FaultSpec::RestartEach(f) => f.who.clone(),
            FaultSpec::RollBack(f) | FaultSpec::Wipe(f) => vec![f.who],
            FaultSpec::Members(f) => vec![f.who],
            FaultSpec::Disk(f) => vec![f.who],
            FaultSpec::Clock(f) => vec![f.who],
            FaultSpec::Starve(_) => return cluster.processes.all().collect(),
            // Whatever moves, it moves between any of them.
            FaultSpec::Moves(_) => return cluster.processes.backends().collect(),
        };
        who.into_iter().flat_map(|who| who.resolve(view, &cluster.processes, &mut self.random)).collect()
    }

    /// Installs a fault. A fault that is impossible here is skipped, with the reason.
    ///
    /// # Errors
    /// If chaos itself fails, which the error's cause says, or the cluster does not do what the fault waits for.
    pub(crate) async fn strike(
        &mut self,
        fault: &FaultSpec,
        victims: &[Process],
        view: &View,
        cluster: &mut Cluster,
    ) -> Result<InjectedFault> {
        self.strikes += 1;
        let mut strike = InjectedFault::new(fault.kind(), victims);
        strike.boots = victims.iter().map(|process| (*process, boot(view, *process))).collect();
        if victims.is_empty() {
            return Ok(strike.skipped("no process has the role"));
        }
        let running: Vec<_> = victims.iter().copied().filter(|process| cluster.runs(*process)).collect();
        match fault {
            FaultSpec::Kill(_) | FaultSpec::Stop(_) | FaultSpec::Pause(_) | FaultSpec::Hang(_)
                if running.is_empty() =>
            {
                return Ok(strike.skipped("it does not run: another fault has ended it"));
            }
            FaultSpec::Kill(_) => {
                running.iter().try_for_each(|process| cluster.kill(*process))?;
                strike.ended = running.iter().map(|process| (*process, boot(view, *process))).collect();
                strike.end = End::Start(running);
            }
            FaultSpec::Stop(_) => {
                for process in &running {
                    cluster.stop(*process).await?;
                }
                strike.ended = running.iter().map(|process| (*process, boot(view, *process))).collect();
                strike.end = End::Start(running);
            }
            FaultSpec::Pause(_) => {
                for process in &running {
                    cluster.signal(*process, Signal::SIGSTOP)?;
                }
                for process in &running {
                    let pid = cluster.pid(*process)?;
                    let stopped = async || match state_of(pid)? {
                        'T' => Ok(()),
                        state => bail!("{process} is in state {state} after SIGSTOP"),
                    };
                    if let Err(why) = wait_until_async("a stop", STOPPED_WITHIN, stopped).await {
                        strike.unsure(format!("{why:#}"));
                    }
                }
                strike.end = End::Continue(running);
            }
            FaultSpec::Hang(_) => return self.hang(strike, running[0], view, cluster).await,
            FaultSpec::Isolate(f) => {
                let cut = OneWay { cut: true, effect: LinkEffect::default() };
                let inbound = match f.direction {
                    Direction::Either => self.random.random::<bool>(),
                    Direction::Both | Direction::Inbound => true,
                    Direction::Outbound => false,
                };
                let outbound = matches!(f.direction, Direction::Both) || !inbound;
                strike.how = Some(
                    match (inbound, outbound) {
                        (true, true) => "both ways",
                        (true, false) => "it receives nothing",
                        (false, _) => "its messages are lost",
                    }
                    .to_owned(),
                );
                return Ok(self.trouble(
                    strike,
                    &f.from,
                    view,
                    cluster,
                    [inbound, outbound].map(|on| on.then_some(cut)),
                ));
            }
            FaultSpec::Trouble(f) => {
                let trouble = Some(OneWay { cut: false, effect: f.effect });
                return Ok(self.trouble(strike, &f.from, view, cluster, [trouble; 2]));
            }
            FaultSpec::Starve(f) => {
                let seconds_max = f.for_ms / 1000 + BURNERS_EXTRA_S;
                let burners = Burners::start(f.per_core, seconds_max, &self.dir).map_err(chaos_failed)?;
                strike.end = End::Rest(burners);
            }
            FaultSpec::Disk(f) => {
                strike.how = Some(match f.effect {
                    DiskEffect::Stall => "it hangs".to_owned(),
                    DiskEffect::Full if f.room_kb > 0 => format!("it has room for {} KB more", f.room_kb),
                    DiskEffect::Full => "it is full".to_owned(),
                    DiskEffect::Fail => "it fails".to_owned(),
                });
                for process in &running {
                    let paths = format!("{}/*", cluster.data_dir(*process).display());
                    let rule = match f.effect {
                        DiskEffect::Stall => Rule::new(Operations::SYNC, paths, Suffering::Delay(None)),
                        DiskEffect::Full => {
                            Rule::new(Operations::WRITE, paths, Suffering::Fill { space_bytes: f.room_kb * 1024 })
                        }
                        DiskEffect::Fail => {
                            Rule::new(Operations::WRITE | Operations::SYNC, paths, Suffering::Fail(EIO))
                        }
                    };
                    cluster.control_of(*process)?.set(DISK_SLOT, &rule).map_err(chaos_failed)?;
                }
                strike.end = End::Relieve(running, DISK_SLOT);
            }
            FaultSpec::Clock(f) => {
                for process in &running {
                    bend(cluster, *process, f).map_err(chaos_failed)?;
                }
                strike.end = End::SetRight(running, f.clone());
            }
            FaultSpec::RestartEach(f) => {
                strike.how = Some(
                    match f.how {
                        StopMode::Told => "told to stop",
                        StopMode::Drained => "drained first",
                    }
                    .to_owned(),
                );
                for process in running {
                    let before = boot(&cluster.until_whole("the cluster before a restart").await?, process);
                    if f.how == StopMode::Drained {
                        cluster.drain(process).await?;
                    }
                    cluster.stop(process).await?;
                    cluster.start_again(process)?;
                    strike.ended.push((process, before));
                    let back = |view: &View| match boot(view, process) {
                        now if now == before => Err(format!("{process} has not registered again")),
                        _ => holds_its_models(view, process),
                    };
                    cluster.until(&format!("the return of {process}"), back).await?;
                    if f.how == StopMode::Drained {
                        cluster.uncordon(process).await?;
                    }
                }
            }
            FaultSpec::RollBack(f) | FaultSpec::Wipe(f) => {
                // The one chosen at the beginning may have gone by an earlier fault.
                let now = cluster.until_whole("the cluster before a disk is exchanged").await?;
                let Some(replica) = f.who.resolve(&now, &cluster.processes, &mut self.random).into_iter().next() else {
                    return Ok(strike.skipped("no process has the role"));
                };
                let lasts = Duration::from_millis(f.for_ms);
                let (after, forgotten) = if matches!(fault, FaultSpec::Wipe(_)) {
                    older_copy::wipe(cluster, replica, lasts).await?
                } else {
                    older_copy::put_back(cluster, replica, lasts).await?
                };
                strike.victims = vec![replica];
                strike.ended.push((replica, forgotten));
                strike.how = Some(format!("ended by itself after {} ms", after.as_millis()));
            }
            FaultSpec::Moves(f) => {
                let seed = self.random.random();
                strike.end = End::SendHome(Mover::start(cluster.replicas.clone(), &cluster.processes, &f.what, seed));
            }
            FaultSpec::Members(f) => {
                // The one chosen at the beginning may have gone by an earlier change.
                let now = cluster.until_whole("the cluster before a change of members").await?;
                let goes = match f.change {
                    Change::Add => None,
                    Change::Remove | Change::Replace => {
                        f.who.resolve(&now, &cluster.processes, &mut self.random).into_iter().next()
                    }
                };
                if goes.is_none() && f.change != Change::Add {
                    return Ok(strike.skipped("no process has the role"));
                }
                strike.how = Some(
                    match f.change {
                        Change::Add => "a new one comes",
                        Change::Remove => "it goes for good",
                        Change::Replace => "a new one takes its place",
                    }
                    .to_owned(),
                );
                let comes = cluster.change_members(f.change != Change::Remove, goes).await?;
                strike.victims = goes.into_iter().chain(comes).collect();
            }
        }
        Ok(strike)
    }

    /// Holds one of the threads with which a replica leads, drawn.
    async fn hang(
        &mut self,
        mut strike: InjectedFault,
        process: Process,
        view: &View,
        cluster: &mut Cluster,
    ) -> Result<InjectedFault> {
        let by_thread = match cluster.leads_by_thread(process).await {
            Ok(by_thread) => by_thread,
            Err(why) => return Ok(strike.skipped(format!("{why:#}"))),
        };
        let Some((thread, leads)) = by_thread.into_iter().choose(&mut self.random) else {
            return Ok(strike.skipped("it leads nothing any more"));
        };
        match HeldThread::hold(cluster.pid(process)?, &thread) {
            Ok(held) => strike.end = End::LetGo(held),
            Err(why) => return Ok(strike.skipped(format!("{why:#}"))),
        }
        let name = |id: &String| view.subclusters.iter().find(|(known, _)| known.to_string() == *id);
        let names: Vec<_> = leads.iter().filter_map(name).map(|(_, subcluster)| subcluster.name.clone()).collect();
        strike.how = Some(format!("{thread}, which decides for {}", names.join(", ")));
        strike.subclusters = Some(names);
        Ok(strike)
    }

    /// Troubles the links between the victims and their peers: inbound and outbound.
    fn trouble(
        &mut self,
        mut strike: InjectedFault,
        peers: &[Peers],
        view: &View,
        cluster: &mut Cluster,
        [inbound, outbound]: [Option<OneWay>; 2],
    ) -> InjectedFault {
        let mut troubles = Troubles::new();
        for &victim in &strike.victims {
            for peer in peers {
                let together = strike.victims.as_slice();
                let spared = |one: &Process| *peer == Peers::Everybody && together.contains(one);
                let peers = peer.resolve(victim, view, &cluster.processes, &mut self.random);
                for peer in peers.into_iter().filter(|one| !spared(one)) {
                    troubles.extend(inbound.map(|way| ((peer, victim), way)));
                    troubles.extend(outbound.map(|way| ((victim, peer), way)));
                }
            }
        }
        if troubles.is_empty() {
            return strike.skipped("there is no process at the other end");
        }
        let number = self.strikes;
        self.links.insert(number, troubles);
        let touched_before = cluster.network.touched();
        match touched_before.and_then(|before| self.apply(cluster).map(|()| before)) {
            Ok(touched_before) => strike.end = End::Mend { number, touched_before },
            Err(why) => {
                self.links.remove(&number);
                return strike.skipped(format!("{why:#}"));
            }
        }
        strike
    }

    /// Has the network be as all faults in force together want it: a cut wins, and of effects the youngest.
    fn apply(&self, cluster: &mut Cluster) -> Result<()> {
        let mut together = Troubles::new();
        for (ends, way) in self.links.values().flatten() {
            let all = together.entry(*ends).or_default();
            all.cut |= way.cut;
            if !way.effect.is_none() {
                all.effect = way.effect;
            }
        }
        cluster.network.set(&together)
    }

    /// Ends a fault.
    ///
    /// # Errors
    /// If chaos itself fails, which the error's cause says, or a victim has ended by itself.
    pub(crate) fn end(&mut self, strike: &mut InjectedFault, cluster: &mut Cluster) -> Result<()> {
        match std::mem::replace(&mut strike.end, End::Nothing) {
            End::Nothing => {}
            End::Start(processes) => {
                for process in processes {
                    if !cluster.runs(process) {
                        cluster.start_again(process)?;
                    }
                }
            }
            End::Continue(processes) => {
                for process in processes {
                    // A process that was killed meanwhile needs no waking.
                    if cluster.runs(process) {
                        cluster.signal(process, Signal::SIGCONT)?;
                    }
                }
            }
            End::LetGo(held) => {
                if let Err(why) = held.let_go() {
                    strike.unsure(format!("{why:#}"));
                }
            }
            End::Mend { number, touched_before } => {
                let touched = cluster.network.touched().map_err(chaos_failed)?;
                self.links.remove(&number);
                self.apply(cluster).map_err(chaos_failed)?;
                if touched <= touched_before {
                    strike.unsure("nothing was sent over the links meanwhile");
                }
            }
            End::Relieve(processes, slot) => {
                let mut struck = 0;
                for process in processes {
                    let control = cluster.control_of(process).map_err(chaos_failed)?;
                    struck += control.struck(slot).map_err(chaos_failed)?;
                    control.lift(slot).map_err(chaos_failed)?;
                    // A replica that cannot trust its disk ends itself; its supervisor starts it again.
                    if cluster.has_ended(process)? {
                        strike
                            .ended
                            .push((process, strike.boots.iter().find(|(p, _)| *p == process).and_then(|l| l.1)));
                        cluster.start_again(process)?;
                    }
                }
                if struck == 0 {
                    strike.unsure("nothing was written to the disk meanwhile");
                }
            }
            End::SetRight(processes, trouble) => {
                let back = ClockTrouble { jump_s: -trouble.jump_s, rate_percent: 0, ..trouble };
                for process in processes {
                    bend(cluster, process, &back).map_err(chaos_failed)?;
                }
            }
            End::SendHome(mover) => {
                let agreed = mover.send_home();
                strike.how = Some(format!("{agreed} moves"));
                if agreed == 0 {
                    strike.unsure("no move was agreed on");
                }
            }
            End::Rest(mut burners) => {
                if burners.turning().map_err(chaos_failed)? == 0 {
                    strike.unsure("the busy processes ended too soon");
                }
            }
        }
        Ok(())
    }
}

/// Sets a process's clocks. The process reads them all the time: what is set is what it sees.
fn bend(cluster: &mut Cluster, process: Process, trouble: &ClockTrouble) -> Result<()> {
    let control = cluster.control_of(process)?;
    control.jump(Duration::from_secs(trouble.jump_s.unsigned_abs()), trouble.jump_s < 0)?;
    control.set_rate(Clock::Monotonic, trouble.rate_percent * 10_000)?;
    Ok(())
}

/// The state of a process in one letter, as the kernel has it.
fn state_of(pid: u32) -> Result<char> {
    state_in(Path::new(&format!("/proc/{pid}/stat")))
}

/// The state of a process or thread, by its file.
pub(super) fn state_in(stat: &Path) -> Result<char> {
    let text = std::fs::read_to_string(stat).context("cannot see the state of a process")?;
    // After the name, which is in parentheses and may hold anything.
    let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.with_context(|| format!("{} has no state", stat.display()))
}
