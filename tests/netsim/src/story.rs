//! Troubles that are told and not drawn: a seed decides the rest.

use std::process::ExitCode;

use crate::plant::Plant;
use crate::simulation::Simulation;
use crate::{deaf_leader, stale_leader};

/// A story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Story {
    /// The leader of the control group hears no replica any more while entries wait.
    DeafLeader,
    /// The leader of a sub-cluster is replaced, does not know it, and seals again.
    StaleLeader,
}

/// Runs a seed and says how it went.
pub(crate) fn run(story: Story, seed: u64, plant: Option<Plant>) -> ExitCode {
    let mut simulation = Simulation::new(seed, plant);
    let (told, name) = match story {
        Story::DeafLeader => (deaf_leader::tell(&mut simulation), "deaf-leader"),
        Story::StaleLeader => (stale_leader::tell(&mut simulation), "stale-leader"),
    };
    match told {
        Ok(told) => {
            println!("seed {seed} kept: {told}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            let planted = plant.map(|plant| format!(" --plant {}", plant.name())).unwrap_or_default();
            print!("{}", simulation.cluster.trace.text());
            println!("seed {seed} BROKEN: {reason}");
            println!("reproduce: cargo run -p symphony-netsim -- story {name} --seed {seed}{planted}");
            ExitCode::FAILURE
        }
    }
}
