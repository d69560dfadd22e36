//! Searches larger scopes than the tests have time for.

use std::process::ExitCode;

use clap::Parser;
use symphony_model::{Mutation, Scope, search};

/// Explores the take-over protocol within the bounds given; prints what it found. Exit code 1: a counterexample.
#[derive(Parser)]
#[command(name = "symphony-model")]
struct Arguments {
    /// Backends of one GPU each.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=symphony_model::BACKENDS as i64))]
    backends: u8,
    /// Requests of each boot of the frontend.
    #[arg(long, default_value_t = 2)]
    requests: u8,
    /// Schedulers declared down, rightly or not.
    #[arg(long, default_value_t = 1)]
    node_downs: u8,
    /// Schedulers that crash and are back at once.
    #[arg(long, default_value_t = 0)]
    node_restarts: u8,
    /// Backends declared down, rightly or not.
    #[arg(long, default_value_t = 0)]
    backend_downs: u8,
    /// Backends that crash and are back at once.
    #[arg(long, default_value_t = 0)]
    backend_restarts: u8,
    /// Frontends that crash and are back at once.
    #[arg(long, default_value_t = 0)]
    frontend_restarts: u8,
    /// Connections cut.
    #[arg(long, default_value_t = 0)]
    cuts: u8,
    /// Messages lost.
    #[arg(long, default_value_t = 0)]
    losses: u8,
    /// Messages doubled.
    #[arg(long, default_value_t = 0)]
    doubles: u8,
    /// Requests whose deadline passes before their answer.
    #[arg(long, default_value_t = 0)]
    deadlines: u8,
    /// Linearizable reads.
    #[arg(long, default_value_t = 0)]
    reads: u8,
    /// Messages of one connection may overtake each other.
    #[arg(long)]
    unordered: bool,
    /// Connections made in all.
    #[arg(long, default_value_t = 8)]
    connections_max: u8,
    /// A bug to plant.
    #[arg(long, value_enum)]
    mutation: Option<Mutation>,
    /// The largest number of steps.
    #[arg(long)]
    steps_max: Option<usize>,
    /// Threads that search.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let scope = Scope {
        backends: arguments.backends,
        requests: arguments.requests,
        node_downs: arguments.node_downs,
        node_restarts: arguments.node_restarts,
        backend_downs: arguments.backend_downs,
        backend_restarts: arguments.backend_restarts,
        frontend_restarts: arguments.frontend_restarts,
        cuts: arguments.cuts,
        losses: arguments.losses,
        doubles: arguments.doubles,
        deadlines: arguments.deadlines,
        reads: arguments.reads,
        unordered: arguments.unordered,
        connections_max: arguments.connections_max,
        mutation: arguments.mutation,
    };
    let found = search(scope, arguments.threads, arguments.steps_max);
    print!("{found}");
    if found.counterexample.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
