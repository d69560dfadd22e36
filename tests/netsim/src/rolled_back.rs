//! A replica comes back over an older copy of its disk, while the only replica besides the leader that knows what is
//! missing is down. Entries that those two acknowledged are then with the leader alone: if the replica votes, the
//! leader's death loses them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use symphony_control_plane::SimulatedDisk;

use crate::cluster::{HOSTS, VOTERS};
use crate::faults::Faults;
use crate::simulation::Simulation;

/// From when the copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    /// From between two boots: others name a boot that it does not know.
    BetweenBoots,
    /// From the last boot of the replica, as by a snapshot of the running machine: its leader knows what it
    /// acknowledged.
    OfTheBoot,
}

/// Entries that leader and replica agree on after the copy, some of them operators'.
const AGREED: u64 = 3;
/// How long that may take: the operators wait 2 s for each host that is not there, and most of what they ask changes
/// nothing.
const AGREED_WITHIN: Duration = Duration::from_secs(60);
/// The replica has ended within this time: it waits 300 ms for others at its start, and the leader sends heartbeats all
/// the time.
const ENDED_WITHIN: Duration = Duration::from_secs(1);
/// How long it and the returning replica have an opportunity to elect: several elections.
const OPPORTUNITY: Duration = Duration::from_secs(2);

pub(crate) fn tell(simulation: &mut Simulation, seed: u64, copy: Copy) -> Result<String, String> {
    simulation.until_it_serves(|_| {})?;
    let founders = &HOSTS[..VOTERS];
    let leader = simulation.cluster.leader().ok_or("nobody leads")?;
    let followers: Vec<_> = founders.iter().copied().filter(|&host| host != leader).collect();
    let order = usize::from(seed.is_multiple_of(2));
    let (victim, other) = (followers[order], followers[1 - order]);

    if copy == Copy::BetweenBoots {
        simulation.kill(victim)?;
    }
    let copied = Copied::of(simulation, victim)?;
    if copy == Copy::BetweenBoots {
        simulation.start(victim);
        simulation.until_it_serves(|_| {})?;
    }
    let leader = simulation.cluster.leader().filter(|&now| now == leader).ok_or("setup: another one leads now")?;
    simulation.kill(other)?;
    let (begun, index) = (simulation.sim.elapsed(), simulation.judge.last_index());
    while simulation.judge.last_index() < index + AGREED {
        simulation.step()?;
        if simulation.sim.elapsed() > begun + AGREED_WITHIN {
            return Err(format!(
                "I8: {leader} and {victim} agreed on fewer than {AGREED} entries in {AGREED_WITHIN:?}"
            ));
        }
    }

    simulation.kill(victim)?;
    copied.put_back(simulation, victim)?;
    simulation.start(victim);
    let restarted = simulation.sim.elapsed();
    let mut ended = None;
    while ended.is_none() && simulation.sim.elapsed() < restarted + ENDED_WITHIN {
        simulation.step()?;
        ended = simulation.cluster.replicas.borrow().get(victim).and_then(|hosted| hosted.ended.clone());
    }
    let took = simulation.sim.elapsed() - restarted;

    // Now only the disk of the leader has what was agreed, and it is gone for a while.
    simulation.kill(leader)?;
    simulation.start(other);
    simulation.pass(OPPORTUNITY)?;
    if let Some(upstart) = simulation.cluster.leader() {
        return Err(format!("forgotten: {upstart} leads, and {leader} alone has what was agreed"));
    }
    simulation.start(leader);
    let mut faults = Faults::new(simulation.cluster.clone(), seed, Duration::MAX);
    faults.replace(simulation.sim.elapsed(), &mut simulation.sim, true, Some(victim));
    let served = simulation.until_it_serves(|simulation| faults.clear_away(&mut simulation.sim))?;
    simulation.linearizable()?;
    match ended {
        Some(words) if words.contains("older copy of its disk") => Ok(format!(
            "ended after {} ms, served {} ms after the others were back",
            took.as_millis(),
            served.as_millis()
        )),
        ended => Err(format!("forgotten: {victim} did not end over a copy of its disk, but: {ended:?}")),
    }
}

/// What a disk held: the log, and the files beside it.
struct Copied {
    disk: SimulatedDisk,
    files: PathBuf,
}

impl Copied {
    fn of(simulation: &Simulation, host: &str) -> Result<Self, String> {
        let replicas = simulation.cluster.replicas.borrow();
        let hosted = replicas.get(host).ok_or("nobody lives there")?;
        let files = hosted.data_dir.with_extension("copy");
        copy(&hosted.data_dir, &files).map_err(|error| format!("{}: {error}", files.display()))?;
        simulation.cluster.trace.note_at(simulation.sim.elapsed(), format_args!("the disk of {host} is copied"));
        Ok(Self { disk: hosted.disk.copy(), files })
    }

    fn put_back(self, simulation: &Simulation, host: &str) -> Result<(), String> {
        let mut replicas = simulation.cluster.replicas.borrow_mut();
        let dir = replicas.get(host).ok_or("nobody lives there")?.data_dir.clone();
        let put = fs::remove_dir_all(&dir).and_then(|()| copy(&self.files, &dir));
        put.map_err(|error| format!("{}: {error}", dir.display()))?;
        replicas.put_back(host, self.disk);
        simulation
            .cluster
            .trace
            .note_at(simulation.sim.elapsed(), format_args!("{host} gets the copy of its disk back"));
        Ok(())
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
