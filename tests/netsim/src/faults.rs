//! The troubles of a run, drawn one after the other from its seed.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::Rng as _;
use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_protocol::control::Duty;
use symphony_types::NodeId;
use turmoil::Sim;

use crate::cluster::{Cluster, HOSTS, MEMBERS, VOTERS};
use crate::dispatch::faulty_policy::FAULTY;
use crate::hosted_replicas::GroupMembership;
use crate::operator::Job;

/// The policies that the operator sets for a sub-cluster, one or the other.
const POLICIES: [&str; 6] = ["nexus", "auto", "clockwork", "shepherd", "kairos", FAULTY];

/// Shortest and longest time between two troubles.
const BETWEEN_MS: std::ops::Range<u64> = 20..900;
/// Longest time that a host stays down.
const DOWN_MS_MAX: u64 = 1_500;
/// Longest time that a cut or a hold lasts.
const CUT_MS_MAX: u64 = 1_500;
/// Longest time that a replica is off duty.
const OFF_DUTY_MS_MAX: u64 = 2_500;
/// Largest delay of a message while the network is slow.
const SLOW_MS_MAX: u64 = 60;
/// Largest delay of a message otherwise.
pub(crate) const CALM_MS_MAX: u64 = 3;

/// What ends a trouble.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Remedy {
    Start(&'static str),
    Repair(Vec<&'static str>, Vec<&'static str>),
    Release(&'static str, &'static str),
    Quicken,
    OnDuty(NodeId),
}

/// Makes trouble.
pub(crate) struct Faults {
    cluster: Cluster,
    random: Xoshiro256PlusPlus,
    next: Duration,
    /// When what ends.
    remedies: BTreeMap<(Duration, u64), Remedy>,
    count: u64,
    down: Vec<&'static str>,
    /// Hosts that are held, by pair: they are neither cut nor held again.
    held: Vec<(&'static str, &'static str)>,
}

impl Faults {
    pub(crate) fn new(cluster: Cluster, seed: u64, quiet: Duration) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { cluster, random, next: quiet, remedies: BTreeMap::new(), count: 0, down: Vec::new(), held: Vec::new() }
    }

    /// Troubles so far.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Whether a host is down.
    pub(crate) fn is_down(&self, name: &str) -> bool {
        self.down.contains(&name)
    }

    /// What is due now.
    pub(crate) fn step(&mut self, now: Duration, sim: &mut Sim<'_>) {
        self.remedy(now, sim);
        self.clear_away(sim);
        if now >= self.next {
            self.trouble(now, sim);
            self.next = now + Duration::from_millis(self.random.random_range(BETWEEN_MS));
        }
    }

    /// Ends all faults; the operator is asked to put all processes on duty.
    pub(crate) fn heal(&mut self, now: Duration, sim: &mut Sim<'_>) {
        self.remedy(Duration::MAX, sim);
        self.cluster.hangs.borrow_mut().clear();
        let members: Vec<_> = self.cluster.replicas.borrow().members().map(|(_, hosted)| hosted.id).collect();
        let duties = members.into_iter().map(|of| Job::Duty { of, duty: Duty::Serving });
        self.cluster.jobs.borrow_mut().extend(duties);
        sim.set_max_message_latency(Duration::from_millis(CALM_MS_MAX));
        self.cluster.trace.note_at(now, "everything is healed");
    }

    fn remedy(&mut self, now: Duration, sim: &mut Sim<'_>) {
        while let Some(entry) = self.remedies.first_entry()
            && entry.key().0 <= now
        {
            let remedy = entry.remove();
            self.cluster.trace.note_at(sim.elapsed(), format_args!("remedy: {remedy:?}"));
            match remedy {
                Remedy::Start(name) => {
                    self.down.retain(|down| *down != name);
                    sim.bounce(name);
                }
                Remedy::Repair(one, other) => {
                    for &a in &one {
                        for &b in &other {
                            sim.repair(a, b);
                        }
                    }
                    self.cluster.links.reset(&one, &other);
                }
                Remedy::Release(one, other) => {
                    self.held.retain(|held| *held != (one, other));
                    sim.release(one, other);
                }
                Remedy::OnDuty(of) => self.cluster.jobs.borrow_mut().push_back(Job::Duty { of, duty: Duty::Serving }),
                Remedy::Quicken => sim.set_max_message_latency(Duration::from_millis(CALM_MS_MAX)),
            }
        }
    }

    fn end_later(&mut self, now: Duration, ms_max: u64, remedy: Remedy) {
        let after = Duration::from_millis(self.random.random_range(1..=ms_max));
        self.count += 1;
        self.remedies.insert((now + after, self.count), remedy);
    }

    fn one_of(&mut self, names: &[&'static str]) -> &'static str {
        names[self.random.random_range(0..names.len())]
    }

    /// Hosts of replicas.
    fn replicas(&self) -> Vec<&'static str> {
        self.cluster.replicas.borrow().members().map(|(host, _)| host).collect()
    }

    fn trouble(&mut self, now: Duration, sim: &mut Sim<'_>) {
        let note = |cluster: &Cluster, what: String| cluster.trace.note_at(now, format_args!("trouble: {what}"));
        let replicas = self.replicas();
        match self.random.random_range(0..14) {
            0 | 1 => {
                let name = self.one_of(&replicas);
                self.stop(now, sim, name);
            }
            2 => {
                let name = self.one_of(&MEMBERS);
                self.stop(now, sim, name);
            }
            3 => {
                // All at once: whatever was acknowledged must come back from the disks.
                for name in replicas {
                    self.stop(now, sim, name);
                }
            }
            4 => {
                // From the other replicas only, it can still give orders for a while.
                let lonely = self.one_of(&replicas);
                let wholly = self.random.random_range(0..2) == 0;
                let all = HOSTS.iter().chain(MEMBERS.iter().filter(|_| wholly));
                let others: Vec<_> = all.copied().filter(|&name| name != lonely).collect();
                note(
                    &self.cluster,
                    format!("{lonely} is cut off from {}", if wholly { "all" } else { "the replicas" }),
                );
                others.iter().for_each(|&other| sim.partition(lonely, other));
                self.end_later(now, CUT_MS_MAX, Remedy::Repair(vec![lonely], others));
            }
            5 => {
                let (one, other) = self.two_of(&replicas);
                // A hung replica may have to give up its leads while it reaches no Raft leader.
                let hangs = self.count.is_multiple_of(2);
                let too = if hangs { format!(", and the leads of {one} hang") } else { String::new() };
                note(&self.cluster, format!("{one} and {other} do not hear each other{too}"));
                if hangs {
                    self.cluster.hangs.borrow_mut().insert(one);
                }
                sim.partition(one, other);
                self.end_later(now, CUT_MS_MAX, Remedy::Repair(vec![one], vec![other]));
            }
            6 => {
                let (one, other) = self.two_of(&replicas);
                note(&self.cluster, format!("{other} does not hear {one}"));
                sim.partition_oneway(one, other);
                self.end_later(now, CUT_MS_MAX, Remedy::Repair(vec![one], vec![other]));
            }
            7 => {
                let (one, other) = self.two_of(&replicas);
                if !self.held.contains(&(one, other)) && !self.held.contains(&(other, one)) {
                    note(&self.cluster, format!("messages between {one} and {other} are held"));
                    self.held.push((one, other));
                    sim.hold(one, other);
                    self.end_later(now, CUT_MS_MAX, Remedy::Release(one, other));
                }
            }
            8 => {
                let most = self.random.random_range(CALM_MS_MAX..=SLOW_MS_MAX);
                note(&self.cluster, format!("messages take up to {most} ms, and a policy is set"));
                let policy = POLICIES[most as usize % POLICIES.len()];
                self.cluster.jobs.borrow_mut().push_back(Job::Policy { subcluster: "s-b1", policy });
                sim.set_max_message_latency(Duration::from_millis(most));
                self.end_later(now, CUT_MS_MAX, Remedy::Quicken);
            }
            9 => {
                // What it proposes still arrives, and with it what keeps the others loyal.
                let leader = self.cluster.leader().unwrap_or(replicas[0]);
                let others: Vec<_> = replicas.into_iter().filter(|&name| name != leader).collect();
                note(&self.cluster, format!("{leader}, which leads, hears no replica"));
                others.iter().for_each(|&other| sim.partition_oneway(other, leader));
                self.end_later(now, CUT_MS_MAX, Remedy::Repair(vec![leader], others));
            }
            10 | 11 => {
                let of = self.one_of(&replicas);
                let id = self.cluster.replicas.borrow().get(of).map(|hosted| hosted.id);
                let Some(of) = id else { return };
                let duty = if self.random.random_range(0..3) == 0 { Duty::Cordoned } else { Duty::Draining };
                note(&self.cluster, format!("{of} shall be {duty:?}"));
                self.cluster.jobs.borrow_mut().push_back(Job::Duty { of, duty });
                self.end_later(now, OFF_DUTY_MS_MAX, Remedy::OnDuty(of));
            }
            12 => self.wipe(now, sim),
            _ => self.change(now, sim),
        }
    }

    fn two_of(&mut self, names: &[&'static str]) -> (&'static str, &'static str) {
        let one = self.random.random_range(0..names.len());
        let other = (one + self.random.random_range(1..names.len())) % names.len();
        (names[one], names[other])
    }

    /// A change of the control group is in progress, or a removed replica still runs.
    fn is_changing(&self) -> bool {
        let changes = |job: &Job| matches!(job, Job::Change { .. });
        self.cluster.jobs.borrow().iter().any(changes) || self.cluster.replicas.borrow().leaving().next().is_some()
    }

    /// Has a replica come, go, or take another one's place.
    fn change(&mut self, now: Duration, sim: &mut Sim<'_>) {
        if self.is_changing() {
            return;
        }
        let replicas = self.replicas();
        let comes = replicas.len() == VOTERS || self.random.random_range(0..2) == 0;
        let goes = replicas.len() > VOTERS || self.random.random_range(0..2) == 0;
        let gone = goes.then(|| self.one_of(&replicas));
        self.replace(now, sim, comes, gone);
    }

    /// Adds a replica on a spare host, removes one, or both; the operator carries it out.
    pub(crate) fn replace(&mut self, now: Duration, sim: &mut Sim<'_>, comes: bool, goes: Option<&'static str>) {
        let mut replicas = self.cluster.replicas.borrow_mut();
        let spare = replicas.spare().filter(|_| comes);
        let add = spare.map(|host| (replicas.install(host), host));
        let remove = goes.and_then(|host| replicas.get(host).map(|hosted| (hosted.id, host)));
        if let Some(hosted) = goes.and_then(|host| replicas.get_mut(host)) {
            hosted.place = GroupMembership::Leaving;
        }
        drop(replicas);
        if add.is_none() && remove.is_none() {
            return;
        }
        self.count += 1;
        self.cluster.trace.note_at(now, format_args!("trouble: {add:?} comes, {remove:?} goes"));
        if let Some(host) = spare {
            sim.bounce(host);
        }
        self.cluster.jobs.borrow_mut().push_back(Job::Change { add, remove });
    }

    /// A replica loses its disk, and comes back under its old id as if nothing had happened. It has to find out; an
    /// operator puts another one in its place.
    fn wipe(&mut self, now: Duration, sim: &mut Sim<'_>) {
        let host = self.one_of(&self.replicas());
        if self.is_changing() || self.down.contains(&host) {
            return;
        }
        self.stop(now, sim, host);
        self.cluster.trace.note_at(now, format_args!("trouble: the disk of {host} is emptied"));
        self.cluster.replicas.borrow_mut().wipe(host);
        self.replace(now, sim, true, Some(host));
    }

    /// Lets go of replicas that were removed and have ended.
    pub(crate) fn clear_away(&self, sim: &mut Sim<'_>) {
        if self.cluster.jobs.borrow().iter().any(|job| matches!(job, Job::Change { .. })) {
            return;
        }
        let mut replicas = self.cluster.replicas.borrow_mut();
        let ended = |(host, hosted): (&'static str, &crate::hosted_replicas::HostedReplica)| {
            hosted.ended.is_some().then_some(host)
        };
        let gone: Vec<_> = replicas.leaving().filter_map(ended).filter(|host| !self.down.contains(host)).collect();
        gone.iter().for_each(|host| replicas.free_host(host));
        drop(replicas);
        for host in gone {
            sim.crash(host);
            sim.bounce(host);
        }
    }

    /// Ends a host, and has it start again later.
    fn stop(&mut self, now: Duration, sim: &mut Sim<'_>, name: &'static str) {
        if self.down.contains(&name) {
            return;
        }
        let power = self.random.random_range(0..2) == 0;
        let how = if power { "loses its power" } else { "is killed" };
        self.cluster.trace.note_at(now, format_args!("trouble: {name} {how}"));
        sim.crash(name);
        self.down.push(name);
        self.cluster.observed.borrow_mut().remove(name);
        if let Some(hosted) = self.cluster.replicas.borrow().get(name) {
            if power {
                hosted.disk.crash();
            } else {
                hosted.disk.kill();
            }
        }
        self.end_later(now, DOWN_MS_MAX, Remedy::Start(name));
    }
}
