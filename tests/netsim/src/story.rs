//! Scripted troubles; a seed decides the rest.

use std::process::ExitCode;

use crate::plant::Plants;
use crate::simulation::Simulation;
use crate::{
    cut_founding, deaf_leader, dripping_leader, hung_lead, lagging_survivor, policies_in_turn, rolled_back,
    stale_leader, wiped_founders,
};

/// A story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Story {
    /// Two replicas cannot reach each other at the first start.
    CutFounding,
    /// The leader of the control group hears no replica any more while entries wait.
    #[value(name = "deaf-leader")]
    Deaf,
    /// Messages of the control group's leader arrive later and later.
    #[value(name = "dripping-leader")]
    Dripping,
    /// The leader of a sub-cluster is replaced, does not know it, and seals again.
    #[value(name = "stale-leader")]
    Stale,
    /// The lead of a sub-cluster hangs, once in calm and once where its replica hears no other.
    HungLead,
    /// One policy after the other decides for a sub-cluster, the last one by breaking a rule.
    PoliciesInTurn,
    /// A replica comes back over a copy of its disk from between two of its boots, while another one is down.
    RolledBack,
    /// A replica comes back so, with a copy from its last boot.
    RolledBackBoot,
    /// Two of three replicas lose their disks while all are down.
    WipedFounders,
    /// One of three loses its disk, one was down from the beginning, and the third, which alone knows all, is down.
    LaggingSurvivor,
}

/// Runs a seed and reports the result.
pub(crate) fn run(story: Story, seed: u64, plants: Plants) -> ExitCode {
    let planted = plants.words();
    let mut simulation = Simulation::new(seed, plants);
    let (result, name) = match story {
        Story::CutFounding => (cut_founding::tell(&mut simulation, seed), "cut-founding"),
        Story::Deaf => (deaf_leader::tell(&mut simulation), "deaf-leader"),
        Story::Dripping => (dripping_leader::tell(&mut simulation), "dripping-leader"),
        Story::Stale => (stale_leader::tell(&mut simulation), "stale-leader"),
        Story::HungLead => (hung_lead::tell(&mut simulation), "hung-lead"),
        Story::PoliciesInTurn => (policies_in_turn::tell(&mut simulation), "policies-in-turn"),
        Story::RolledBack => (rolled_back::tell(&mut simulation, seed, rolled_back::Copy::BetweenBoots), "rolled-back"),
        Story::RolledBackBoot => {
            (rolled_back::tell(&mut simulation, seed, rolled_back::Copy::OfTheBoot), "rolled-back-boot")
        }
        Story::LaggingSurvivor => (lagging_survivor::tell(&mut simulation, seed), "lagging-survivor"),
        Story::WipedFounders => (wiped_founders::tell(&mut simulation, seed), "wiped-founders"),
    };
    match result {
        Ok(result) => {
            println!("seed {seed} kept: {result}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            print!("{}", simulation.cluster.trace.text());
            println!("seed {seed} BROKEN: {reason}");
            println!("reproduce: cargo run -p symphony-netsim -- story {name} --seed {seed}{planted}");
            ExitCode::FAILURE
        }
    }
}
