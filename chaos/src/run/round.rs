//! One round: faults begin and end on time, and the cluster is given time to heal.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::Rng as _;
use rand::seq::index;
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_protocol::view::View;
use symphony_testkit::wait_until_async;
use symphony_types::{NodeId, SubclusterId, Token};

use crate::cluster::{Cluster, Process, Processes, whole};
use crate::fault::{Direction, FaultSpec, FaultTarget, InjectedFault, Injector, Peers, boot};
use crate::load::{Fate, Observation, Observations};
use crate::report::{Fault, FaultState};
use crate::run_failure::RunFailure;
use crate::scenario::Scenario;
use crate::views::Views;

/// How long every sub-cluster may take to answer a request after the last fault has ended.
const SERVING_WITHIN: Duration = Duration::from_secs(30);

/// How long leaders may take to move away from the leader of the control group: a calm of 5 s, and a move for each.
const APART_WITHIN: Duration = Duration::from_secs(10);

/// What rounds work with.
pub(super) struct Scene<'a> {
    pub(super) cluster: Cluster,
    pub(super) injector: Injector,
    pub(super) random: Xoshiro256PlusPlus,
    pub(super) views: &'a Views,
    pub(super) observations: Observations,
    pub(super) models: usize,
    /// Replicas whose views are watched.
    pub(super) followed: BTreeSet<Process>,
    /// One for each fault that struck a frontend, also of a round that an error ended.
    pub(super) frontends_struck: Vec<FrontendStruck>,
}

/// From a fault that strikes a frontend until the next round begins, if one does: so long clients may find the frontend
/// gone or draining.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrontendStruck {
    pub(crate) from: Instant,
    pub(crate) until: Option<Instant>,
}

impl FrontendStruck {
    /// Whether a request may have gone to a second frontend for it.
    pub(crate) fn explains(&self, one: &Observation) -> bool {
        let under_way = one.fate == Fate::Open || one.ended >= self.from;
        under_way && self.until.is_none_or(|until| one.sent < until)
    }
}

/// What happened in a round, and when.
#[derive(Clone, Debug)]
pub(crate) struct RoundRun {
    pub(crate) number: u32,
    pub(crate) faults: Vec<Fault>,
    pub(crate) victims: Vec<String>,
    /// The control group, from 0, that was to commit nothing because all of it was struck, if there are several.
    pub(crate) lost_group: Option<usize>,
    /// Replicas that led a sub-cluster, and were cut off from a quorum.
    pub(crate) cut_off: Vec<u64>,
    /// Those that ended.
    pub(crate) ended: Vec<Process>,
    /// Numbers of the models, from 0, whose sub-cluster was led or served by a victim, and of the pipeline if that of a
    /// stage was; and their sub-clusters' names.
    pub(crate) struck: Vec<usize>,
    pub(crate) struck_names: Vec<String>,
    pub(crate) struck_at: Instant,
    /// When the first fault began to end.
    pub(crate) relieved_at: Instant,
    pub(crate) healed_at: Instant,
    /// When all sub-clusters whose leader was struck were seen to have another one; and each of these, with its token.
    pub(crate) named_at: Option<Instant>,
    pub(crate) successors: Vec<(Instant, Token)>,
    /// When the last of the backends that were struck was seen to be down.
    pub(crate) down_at: Option<Instant>,
    pub(crate) serving_at: Option<Instant>,
    pub(crate) whole_at: Option<Instant>,
    /// What was missing when the cluster was last not whole.
    pub(crate) missing_last: Option<String>,
    /// Why the cluster did not come back, if it did not; no further round is run.
    pub(crate) run_failure: Option<RunFailure>,
}

/// What happens next in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    // At the same time, the end of one fault comes before the beginning of another.
    End(usize),
    Begin(usize),
}

impl RoundRun {
    /// A round in which nothing has happened yet but that its faults strike.
    pub(crate) fn new(number: u32, struck_at: Instant) -> Self {
        Self {
            number,
            faults: Vec::new(),
            victims: Vec::new(),
            lost_group: None,
            cut_off: Vec::new(),
            ended: Vec::new(),
            struck: Vec::new(),
            struck_names: Vec::new(),
            struck_at,
            relieved_at: struck_at,
            healed_at: struck_at,
            named_at: None,
            successors: Vec::new(),
            down_at: None,
            serving_at: None,
            whole_at: None,
            missing_last: None,
            run_failure: None,
        }
    }

    /// When the cluster was whole and served again, as far as it came to that.
    pub(crate) fn recovered_at(&self) -> Instant {
        self.whole_at.unwrap_or(self.healed_at).max(self.serving_at.unwrap_or(self.healed_at))
    }

    pub(crate) fn words(&self) -> String {
        let ms = |at: Option<Instant>, since: Instant| {
            at.map_or_else(|| "-".into(), |at| format!("{:.0} ms", (at - since).as_secs_f64() * 1e3))
        };
        let faults: Vec<_> = self
            .faults
            .iter()
            .map(|fault| match fault.state {
                FaultState::Installed => {
                    let how = fault.how.as_ref().map_or_else(String::new, |how| format!(" ({how})"));
                    format!("{} {}{how}", fault.kind, fault.who.join(", "))
                }
                state => format!("{} {state:?}", fault.kind),
            })
            .collect();
        format!(
            "{}; next leader after {}; after the end: serving {}, whole {}",
            faults.join("; "),
            ms(self.named_at, self.struck_at),
            ms(self.serving_at, self.healed_at),
            ms(self.whole_at, self.healed_at),
        )
    }
}

/// Whether no replica leads a sub-cluster and the control group.
fn leaders_apart(view: &View) -> Result<(), String> {
    let both = view.subclusters.values().find(|s| s.leader.map(|(node, _)| node) == view.control_leader);
    both.map_or(Ok(()), |s| Err(format!("{} is led by who leads the control group", s.name)))
}

/// The replicas that led a sub-cluster and lost the others to a partition, whichever side of it was struck.
fn cut_off(view: &View, processes: &Processes, faults: &[FaultSpec], strikes: &[InjectedFault]) -> Vec<u64> {
    let mut cut = BTreeSet::new();
    for (fault, strike) in faults.iter().zip(strikes).filter(|(_, s)| s.state == FaultState::Installed) {
        let FaultSpec::Isolate(isolation) = fault else { continue };
        let replicas: Vec<_> = processes.replicas().collect();
        let struck = replicas.iter().filter(|replica| strike.victims.contains(replica)).count();
        let from_replicas = isolation.from.iter().any(|peers| matches!(peers, Peers::Replicas | Peers::Everybody));
        if isolation.direction != Direction::Both || !from_replicas {
            continue;
        }
        let together = isolation.from.contains(&Peers::Everybody);
        let alone = |replica: &Process| match strike.victims.contains(replica) {
            // Who is struck is alone, or with those that the same cut leaves on its side.
            true => !together || 2 * struck <= replicas.len(),
            false => together && 2 * (replicas.len() - struck) <= replicas.len(),
        };
        cut.extend(replicas.iter().filter(|replica| alone(replica)).filter_map(|replica| match replica {
            Process::Replica(id) => Some(*id),
            Process::Backend(_) | Process::Frontend(_) => None,
        }));
    }
    let leads = |id: &u64| view.subclusters.values().any(|s| s.leader.is_some_and(|(node, _)| node.get() == *id));
    cut.into_iter().filter(leads).collect()
}

/// Numbers of the models whose sub-clusters the victims lead or serve, if a strike does not say which of them it
/// strikes.
fn struck(view: &View, processes: &Processes, strikes: &[InjectedFault]) -> Vec<usize> {
    let touched_by = |victims: &[Process], name: &String| {
        let led = view.subclusters.values().find(|s| s.name == *name).and_then(|s| s.leader);
        let leader = led.map(|(node, _)| Process::Replica(node.get()));
        victims.iter().any(|victim| Some(*victim) == leader || processes.subcluster_of(*victim) == *name)
            || victims.iter().any(|victim| matches!(victim, Process::Frontend(_)))
    };
    let touched = |name: &String| {
        strikes.iter().filter(|strike| strike.state != FaultState::Skipped).any(|strike| match &strike.subclusters {
            Some(names) => names.contains(name),
            None => touched_by(&strike.victims, name),
        })
    };
    processes.subclusters().iter().enumerate().filter(|(_, name)| touched(name)).map(|(number, _)| number).collect()
}

impl Scene<'_> {
    /// Which faults, and when each begins and ends.
    fn schedule(&mut self, scenario: &Scenario) -> (Vec<FaultSpec>, Vec<(Duration, Step)>) {
        let (round, all) = (&scenario.round, &scenario.fault);
        let picked: Vec<_> = match round.pick {
            None => all.clone(),
            Some(pick) => {
                let drawn = index::sample(&mut self.random, all.len(), (pick as usize).min(all.len()));
                drawn.into_iter().map(|number| all[number].clone()).collect()
            }
        };
        let mut steps = Vec::new();
        for (number, fault) in picked.iter().enumerate() {
            let (at_ms, for_ms) = fault.times_ms();
            let at_ms = if round.pick.is_some() { self.random.random_range(0..=round.spread_ms) } else { at_ms };
            steps.push((Duration::from_millis(at_ms), Step::Begin(number)));
            steps.push((Duration::from_millis(at_ms + for_ms), Step::End(number)));
        }
        steps.sort_unstable_by_key(|(at, step)| {
            (*at, matches!(step, Step::End(n) if begins_before(&picked, *n)), *step)
        });
        (picked, steps)
    }

    /// # Errors
    /// If the cluster is not whole before the round, or the harness fails.
    pub(super) async fn round(&mut self, scenario: &Scenario, number: u32) -> Result<RoundRun> {
        let (faults, steps) = self.schedule(scenario);
        let mut before = self.cluster.until_whole("a whole cluster before the round").await?;
        if scenario.round.apart {
            let apart = self.cluster.until("leaders that are apart", leaders_apart);
            if let Ok(view) = tokio::time::timeout(APART_WITHIN, apart).await {
                before = view?;
            }
        }
        let victims: Vec<_> = faults.iter().map(|fault| self.injector.victims(fault, &before, &self.cluster)).collect();
        let mut strikes: Vec<Option<InjectedFault>> = faults.iter().map(|_| None).collect();

        let (struck_at, mut relieved_at) = (Instant::now(), None);
        for earlier in &mut self.frontends_struck {
            earlier.until.get_or_insert(struck_at);
        }
        for (at, step) in steps {
            tokio::time::sleep_until((struck_at + at).into()).await;
            match step {
                Step::Begin(n) => {
                    let same = self.same_roles(&faults[n], &before, &victims[n]);
                    let from = Instant::now();
                    let strike = self.injector.strike(&faults[n], &victims[n], &before, &mut self.cluster).await;
                    let skipped = matches!(&strike, Ok(strike) if strike.state == FaultState::Skipped);
                    if !skipped && victims[n].iter().any(|victim| matches!(victim, Process::Frontend(_))) {
                        self.frontends_struck.push(FrontendStruck { from, until: None });
                    }
                    let mut strike = strike?;
                    if matches!(faults[n], FaultSpec::Members(_) | FaultSpec::RollBack(_) | FaultSpec::Wipe(_)) {
                        self.follow_new_replicas();
                    }
                    if !same && strike.state == FaultState::Installed {
                        strike.state = FaultState::Indeterminate;
                        strike.why = Some("it had lost the role it was chosen for, or was about to".into());
                    }
                    strikes[n] = Some(strike);
                }
                Step::End(n) => {
                    relieved_at.get_or_insert_with(Instant::now);
                    if let Some(strike) = &mut strikes[n] {
                        self.injector.end(strike, &mut self.cluster)?;
                    }
                }
            }
        }
        let healed_at = Instant::now();

        let strikes: Vec<_> = strikes.into_iter().flatten().collect();
        let victims: Vec<_> =
            strikes.iter().filter(|s| s.state != FaultState::Skipped).flat_map(|s| s.victims.clone()).collect();
        let mut struck = struck(&before, &self.cluster.processes, &strikes);
        let names = self.cluster.processes.subclusters();
        // Its stages are in the first two, and it comes behind the model of the last one.
        if scenario.pipeline.is_some() && struck.iter().any(|&model| model < 2) {
            struck.push(names.len());
        }
        let mut round = RoundRun {
            faults: strikes.iter().map(|strike| fault_of(strike, number)).collect(),
            cut_off: cut_off(&before, &self.cluster.processes, &faults, &strikes),
            ended: strikes.iter().flat_map(|s| s.ended.iter().map(|(process, _)| *process)).collect(),
            struck_names: struck.iter().filter_map(|&n| names.get(n).cloned()).collect(),
            struck,
            relieved_at: relieved_at.unwrap_or(healed_at),
            healed_at,
            victims: victims.iter().map(ToString::to_string).collect(),
            ..RoundRun::new(number, struck_at)
        };
        self.heal(&mut round, &strikes).await;
        let led_by_victims = before.subclusters.iter().filter(|(_, s)| round.struck_names.contains(&s.name));
        let led_by_victims = led_by_victims.filter_map(|(&id, s)| Some((id, s.leader?.0, s.token)));
        let old: Vec<_> =
            led_by_victims.filter(|(_, node, _)| victims.contains(&Process::Replica(node.get()))).collect();
        round.successors = self.successors(&old);
        round.named_at = round.successors.iter().map(|(at, _)| *at).max();
        round.down_at = self.down_at(&victims, struck_at);
        tokio::time::sleep_until((struck_at + Duration::from_millis(scenario.round.watch_ms)).into()).await;
        Ok(round)
    }

    /// Watches the views of replicas that came.
    fn follow_new_replicas(&mut self) {
        for (replica, client) in self.cluster.replicas.all() {
            if self.followed.insert(replica) {
                self.views.follow(replica, &client);
            }
        }
    }

    /// When each of the sub-clusters that were struck, and led by a victim, was first seen to be led by another, and
    /// under which token; none if one of them was not.
    fn successors(&self, led: &[(SubclusterId, NodeId, Token)]) -> Vec<(Instant, Token)> {
        let seen = self.views.seen();
        let named: Option<Vec<_>> = led.iter().map(|&(id, node, token)| seen.successor(id, (node, token))).collect();
        named.unwrap_or_default()
    }

    /// When the last of the backends among the victims was first seen to be down; none if there are none, or one never
    /// was.
    fn down_at(&self, victims: &[Process], since: Instant) -> Option<Instant> {
        let seen = self.views.seen();
        let backends = victims.iter().filter(|victim| matches!(victim, Process::Backend(_)));
        let down: Option<Vec<_>> = backends.map(|backend| seen.down(&backend.to_string(), since)).collect();
        down?.into_iter().max()
    }

    /// Waits until everything is as it was.
    async fn heal(&mut self, round: &mut RoundRun, strikes: &[InjectedFault]) {
        let ended: Vec<_> = strikes.iter().flat_map(|strike| strike.ended.clone()).collect();
        let back = |view: &View| match ended.iter().find(|(process, before)| boot(view, *process) == *before) {
            Some((process, _)) => Err(format!("{process} has not registered again")),
            None => Ok(()),
        };
        let (observations, models, healed_at) = (self.observations.clone(), self.models, round.healed_at);
        let serving = wait_until_async("an answer of every sub-cluster", SERVING_WITHIN, || async {
            let first = (0..models).map(|model| observations.first_good(model, healed_at)).collect::<Option<Vec<_>>>();
            first
                .and_then(|first| first.into_iter().max())
                .ok_or_else(|| anyhow::anyhow!("one of them answers nothing in time"))
        });
        let (processes, missing) = (self.cluster.processes.clone(), RefCell::new(None));
        let note = |what: String| *missing.borrow_mut() = Some(what);
        let all_there = |view: &View| whole(view, &processes);
        let returned = async {
            self.cluster.until_noting("the return of who was ended", back, note).await?;
            self.cluster.until_noting("a whole cluster after the faults", all_there, note).await?;
            Ok::<_, anyhow::Error>(Instant::now())
        };
        let (serving, returned) = tokio::join!(serving, returned);
        match serving {
            Ok(at) => round.serving_at = Some(at),
            Err(error) => round.run_failure = Some(RunFailure::of(format_args!("round {}", round.number), &error)),
        }
        match returned {
            Ok(at) => round.whole_at = Some(at),
            Err(error) => round.run_failure = Some(RunFailure::of(format_args!("round {}", round.number), &error)),
        }
        round.missing_last = missing.into_inner();
    }

    /// Whether the victims of a fault that goes by roles still have them, as far as any replica knows.
    fn same_roles(&self, fault: &FaultSpec, before: &View, victims: &[Process]) -> bool {
        let who = match fault {
            FaultSpec::Kill(f) | FaultSpec::Stop(f) | FaultSpec::Pause(f) | FaultSpec::Hang(f) => f.who,
            FaultSpec::Isolate(f) => f.who,
            FaultSpec::Trouble(f) => f.who,
            FaultSpec::Disk(f) => f.who,
            FaultSpec::Clock(f) => f.who,
            FaultSpec::Starve(_)
            | FaultSpec::RestartEach(_)
            | FaultSpec::Members(_)
            | FaultSpec::RollBack(_)
            | FaultSpec::Wipe(_)
            | FaultSpec::Moves(_) => {
                return true;
            }
        };
        let now = self.views.newest();
        let is = |node: NodeId| victims.contains(&Process::Replica(node.get()));
        match who {
            FaultTarget::RaftLeader => now.control_leader.is_some_and(is),
            FaultTarget::SubclusterLeader => before
                .subclusters
                .iter()
                .filter(|(_, s)| s.leader.is_some_and(|(node, _)| is(node)))
                .all(|(id, s)| now.subclusters.get(id).is_some_and(|now| now.token == s.token)),
            _ => true,
        }
    }
}

/// Whether a fault has no length: then its end belongs behind its own beginning.
fn begins_before(faults: &[FaultSpec], number: usize) -> bool {
    faults.get(number).is_some_and(|fault| fault.times_ms().1 == 0)
}

fn fault_of(strike: &InjectedFault, round: u32) -> Fault {
    Fault {
        kind: strike.kind,
        state: strike.state,
        who: strike.victims.iter().map(ToString::to_string).collect(),
        round,
        how: strike.how.clone(),
        why: strike.why.clone(),
    }
}
