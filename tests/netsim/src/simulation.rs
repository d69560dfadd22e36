//! A simulated cluster: hosts, network, time, and the judge that looks every millisecond.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use rand_for_mad_turmoil::SeedableRng as _;
use rand_for_mad_turmoil::rngs::StdRng;
use symphony_history::admin::{Admin, Answer, Call};
use symphony_history::{Limits, Verdict, check, text};

use crate::admin::{self, History};
use crate::cluster::{ADMINS, Cluster, HOSTS, MEMBERS};
use crate::faults::CALM_MS_MAX;
use crate::judge::Judge;
use crate::plant::Plants;
use crate::{member, operator, replica};

/// Within this time after everything has healed, the cluster serves. Held-down replicas stay away for up to 10 s
/// (`registrar.rs`), as long as replicas that did not get ready for a lead are shunned (`lead_balancer.rs`), and an
/// operator who removes one waits as long for it to hand over.
const SERVES_WITHIN: Duration = Duration::from_secs(30);
/// Longest barrier of a disk.
const BARRIER_MAX: Duration = Duration::from_millis(8);
/// Room for messages on a connection: simulated TCP drops what does not fit.
const TCP_CAPACITY: usize = 4096;

/// Everything that a seed decides.
pub(crate) struct Simulation {
    pub(crate) cluster: Cluster,
    pub(crate) sim: turmoil::Sim<'static>,
    pub(crate) judge: Judge,
    pub(crate) history: Rc<History>,
    _clocks: mad_turmoil::time::SimClocksGuard,
    dir: PathBuf,
}

impl Drop for Simulation {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Simulation {
    /// A cluster that starts. Once in a process.
    pub(crate) fn new(seed: u64, plants: Plants) -> Self {
        // From here on all randomness of the process comes from the seed: of hash maps, of the runtime, of elections.
        mad_turmoil::rand::set_rng(StdRng::seed_from_u64(seed));
        let clocks = mad_turmoil::time::SimClocksGuard::init();
        plants.apply();
        // Named by the process: a random name would be the same in every process of this seed, and each attempt at
        // another one would draw from the seed's numbers.
        let dir = std::env::temp_dir().join(format!("symphony-netsim-{}", std::process::id()));
        let cluster = Cluster::new(seed, dir.clone(), BARRIER_MAX, plants);
        let mut sim = turmoil::Builder::new()
            .rng_seed(seed)
            .enable_random_order()
            .tick_duration(Duration::from_millis(1))
            .min_message_latency(Duration::from_micros(50))
            .max_message_latency(Duration::from_millis(CALM_MS_MAX))
            .tcp_capacity(TCP_CAPACITY)
            .simulation_duration(Duration::MAX)
            .build();
        for name in HOSTS {
            let cluster = cluster.clone();
            sim.host(name, move || replica::live(cluster.clone(), name));
        }
        let [backend, other, frontend] = MEMBERS;
        for name in [backend, other] {
            let cluster = cluster.clone();
            sim.host(name, move || member::live_as_backend(cluster.clone(), name));
        }
        let host = cluster.clone();
        sim.host(frontend, move || member::live_as_frontend(host.clone(), frontend));
        let history = Rc::new(History::new(|| {
            u64::try_from(turmoil::sim_elapsed().unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
        }));
        for (number, name) in ADMINS.into_iter().enumerate() {
            let (cluster, history) = (cluster.clone(), Rc::clone(&history));
            let seed = seed.wrapping_mul(1009).wrapping_add(number as u64);
            sim.host(name, move || admin::live(cluster.clone(), name, seed, Rc::clone(&history)));
        }
        let host = cluster.clone();
        sim.host("op", move || operator::live(host.clone(), "op", seed.wrapping_mul(2003)));
        Self { cluster, sim, judge: Judge::default(), history, _clocks: clocks, dir }
    }

    /// A millisecond, and a look at everything.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        self.sim.step().map_err(|error| format!("a process ended: {error}"))?;
        self.judge.check(self.sim.elapsed(), &self.cluster)
    }

    /// Ends the process of a replica, but not its machine.
    pub(crate) fn kill(&mut self, host: &'static str) -> Result<(), String> {
        self.cluster.trace.note_at(self.sim.elapsed(), format_args!("{host} is killed"));
        self.sim.crash(host);
        self.cluster.observed.borrow_mut().remove(host);
        if let Some(hosted) = self.cluster.replicas.borrow().get(host) {
            hosted.disk.kill();
        }
        // For a moment no process runs there: the judge sees that the boot has ended.
        self.step()
    }

    /// Starts a replica that was killed.
    pub(crate) fn start(&mut self, host: &'static str) {
        self.sim.bounce(host);
    }

    /// The operators' calls and answers, if they can have happened one after the other (I4).
    pub(crate) fn linearizable(&self) -> Result<symphony_history::History<Call, Answer>, String> {
        let history = self.history.history().map_err(|error| error.to_string())?;
        match check::<Admin>(&history, Limits::default()) {
            Verdict::Linearizable => Ok(history),
            verdict => Err(format!("I4: {verdict:?}\n{}", text::write(&history))),
        }
    }

    /// Lets this time pass.
    pub(crate) fn pass(&mut self, time: Duration) -> Result<(), String> {
        let end = self.sim.elapsed() + time;
        while self.sim.elapsed() < end {
            self.step()?;
        }
        Ok(())
    }

    /// Until the cluster serves as it should when nothing is wrong; how long that took.
    pub(crate) fn until_it_serves(&mut self, meanwhile: impl FnMut(&mut Self)) -> Result<Duration, String> {
        self.until_it_serves_within(SERVES_WITHIN, meanwhile)
    }

    /// The same, where it may not take as long.
    pub(crate) fn until_it_serves_within(
        &mut self,
        within: Duration,
        mut meanwhile: impl FnMut(&mut Self),
    ) -> Result<Duration, String> {
        let begun = self.sim.elapsed();
        loop {
            self.step()?;
            meanwhile(self);
            match self.judge.serves(&self.cluster) {
                Ok(()) => break,
                Err(reason) if self.sim.elapsed() > begun + within => {
                    return Err(format!("I8: {} s after everything healed, {reason}", within.as_secs()));
                }
                Err(_) => {}
            }
        }
        self.cluster.trace.note_at(self.sim.elapsed(), "the cluster serves");
        Ok(self.sim.elapsed() - begun)
    }
}
