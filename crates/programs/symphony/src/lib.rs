//! `symphony`: one binary with every role and every tool as a subcommand.
//!
//! It is a library, so that a program of one's own can be the same binary with policies added: see [`main_with`] and
//! `examples/policy.rs`.

// What only a part that was left out uses.
#![cfg_attr(not(all(feature = "simulation", feature = "top")), allow(dead_code, unused_imports, unused_variables))]

mod backup_file;
mod cli;
#[cfg(test)]
mod cli_tests;
mod console;
mod contexts;
mod exit;
mod inspect;
#[cfg(not(all(feature = "simulation", feature = "top")))]
mod left_out;
mod local;
mod node;
mod provision;
mod suggestions;
mod tools;
mod top;

use std::process::ExitCode;

use clap::Parser;
use symphony_scheduler::PolicyRegistry;
use symphony_types::Duty;

use crate::cli::{Cli, Command};

/// Requests are hundreds of small allocations that one thread makes and another frees: the system's allocator took a
/// sixth of a frontend's time.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The exit code that a shell shows for a program ended by SIGPIPE.
pub(crate) const READER_GONE: i32 = 141;

/// The reader of our output may close the pipe (`symphony get events | head`): that ends this program like any other,
/// without a panic report.
fn end_with_the_reader() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let gone = |message: &String| message.starts_with("failed printing to") && message.contains("Broken pipe");
        if panic.payload().downcast_ref::<String>().is_some_and(gone) {
            std::process::exit(READER_GONE);
        }
        report(panic);
    }));
}

/// Runs the command line of this process, with the policies of the registry beside those that every program has: what
/// they are called is taken by `symphony sim --policy`, scenarios, `symphony replay`, `symphony compare --policy`,
/// `symphony plan fleet --evaluate --policy` and, where a scheduler of the cluster runs this program, `symphony
/// subcluster policy`.
pub fn main_with(policies: PolicyRegistry) -> ExitCode {
    end_with_the_reader();
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(&anyhow::anyhow!("cannot start the asynchronous runtime: {error}")),
    };
    // Schedulers watch their threads themselves.
    let watched = || tools::hung_policies::watched(&policies);
    let result = runtime.block_on(async {
        match cli.command {
            Command::Scheduler(args) => node::scheduler::run(&args, &policies).await,
            Command::Frontend(args) => node::frontend::run(&args).await,
            Command::Backend(args) => node::backend::run(args).await,
            Command::Federation(args) => node::federation_replica::run(&args).await,
            Command::Up(args) => local::up::run(&args).await,
            Command::Demo(args) => local::demo::run(&args).await,
            Command::Provision(args) => provision::run(&args).await,
            Command::Health(args) => tools::health::run(&args).await,
            Command::Certs(command) => tools::certs::run(command),
            Command::Keys(command) => tools::keys::run(command),
            Command::Context(command) => tools::context::run(&command),
            Command::Model(command) => tools::model::run(command).await,
            Command::Pipeline(command) => tools::pipeline::run(command).await,
            Command::Subcluster(command) => tools::subcluster::run(command).await,
            Command::Apply(args) => tools::apply::run(&args).await,
            Command::Get(args) => tools::get::run(&args).await,
            Command::Describe(args) => tools::describe::run(&args).await,
            Command::Top(args) => top::run(&args).await,
            Command::Drain(args) => tools::duty::drain(&args).await,
            Command::Cordon(args) => tools::duty::set(&args, Duty::Cordoned).await,
            Command::Uncordon(args) => tools::duty::set(&args, Duty::Serving).await,
            Command::Members(command) => tools::members::run(&command).await,
            Command::Backup(args) => tools::backup::run(&args).await,
            Command::Restore(args) => node::restore::run(&args).await,
            Command::Upgrade(command) => tools::upgrade::run(&command).await,
            Command::Plan(command) => tools::plan::run(&command, &watched()).await,
            Command::Explain(args) => tools::explain::run(&args).await,
            Command::Profile(args) => tools::profile::run(&args),
            Command::Load(args) => tools::load::run(&args).await,
            #[cfg(feature = "simulation")]
            Command::Sim(args) => tools::sim::run(&args, &watched()),
            #[cfg(feature = "simulation")]
            Command::Paper(args) => tools::paper::run(&args),
            Command::Replay(args) => tools::replay::run(&args, &watched()),
            Command::Tape(command) => tools::tape::run(&command),
            Command::Trace(command) => tools::trace::run(&command),
            #[cfg(feature = "simulation")]
            Command::Compare(args) => tools::compare::run(&args, &watched()),
            #[cfg(not(feature = "simulation"))]
            Command::Sim(_) | Command::Paper(_) | Command::Compare(_) => {
                Err(left_out::left_out("sim`, `paper` and `compare", "simulation"))
            }
            Command::Completions(args) => {
                tools::shell::completions(&args);
                Ok(())
            }
            Command::Man(args) => tools::shell::man(&args),
        }
    });
    // Blocking threads (a loading model, a running executor) must not delay the exit.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}
