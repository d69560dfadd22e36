//! The checks of the repository. `cargo xtask verify` runs everything CI runs and writes nothing; `fix`, `figures`
//! and `dashboards` write.

mod advisories;
mod comments;
mod configuration_keys;
mod crate_table;
mod dashboards;
mod figures;
mod file_names;
mod layers;
mod lengths;
mod licences;
mod links;
mod marked;
mod metadata;
mod old_words;
mod policy;
mod property_tests;
mod readmes;
mod rust_code;
mod sources;
mod step;
mod test_files;
mod titles;
mod unused_dependencies;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};

use crate::metadata::Metadata;
use crate::policy::Policy;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Keeps the repository in order", disable_help_subcommand = true)]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything CI runs: format, lints, checks, documentation, tests. Writes nothing.
    Verify,
    /// Run one of the checks, or all of them.
    Check {
        /// The check.
        #[arg(value_enum, default_value = "all")]
        what: What,
    },
    /// Run the property tests with other random inputs than those of `verify`, which are always the same.
    Random {
        /// The first seed; the clock's seconds by default.
        #[arg(long)]
        seed: Option<u64>,
        /// The number of seeds, one after another.
        #[arg(long, default_value_t = 10)]
        rounds: u64,
    },
    /// Write the tables of performance.md from docs/internals/figures, after taking in new results.
    Figures {
        /// Results of a benchmark: [{"what", "value", "machine", "commit", "date"}, …].
        #[arg(long, value_name = "FILE.json")]
        measured: Option<PathBuf>,
        /// Take what Criterion measured since the last commit (`make bench`), on the machine of this name.
        #[arg(long, value_name = "MACHINE")]
        criterion: Option<String>,
    },
    /// Write the dashboards of deploy/grafana from their description.
    Dashboards,
    /// Format, and apply what clippy can apply by itself.
    Fix,
}

/// A check of the repository itself; none of them builds anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Which crate may depend on which, and what the core never reaches.
    Dependencies,
    /// No clocks, threads, sockets or files in the core; no unsafe code outside the crates that may.
    Sources,
    /// Licences of all dependencies.
    Licences,
    /// Versions with published vulnerabilities, and accepted advisories.
    Advisories,
    /// Each crate has a README that explains it.
    Readmes,
    /// Relative links in Markdown lead somewhere.
    Links,
    /// architecture.md lists the present crates and unsafe code.
    CrateTable,
    /// configuration.md lists the present keys with their defaults.
    ConfigurationKeys,
    /// performance.md shows the present figures.
    Figures,
    /// The dashboards are what their description says.
    Dashboards,
    /// No package declares a dependency that it never uses.
    UnusedDependencies,
    /// Each file of tests is part of a test program, and each example is run.
    TestFiles,
    /// No two files of a package have the same name.
    FileNames,
    /// No comment is wider than the code may be.
    Comments,
    /// No old word where the glossary has another one.
    OldWords,
    /// README.md and decision records are short, and prose is wrapped.
    Lengths,
    /// Length of commit titles.
    Titles,
    /// All of these.
    All,
}

impl What {
    /// The checks of this selection.
    fn each(self) -> Vec<Self> {
        let all = [
            Self::Dependencies,
            Self::Sources,
            Self::Licences,
            Self::Advisories,
            Self::Readmes,
            Self::Links,
            Self::CrateTable,
            Self::ConfigurationKeys,
            Self::Figures,
            Self::Dashboards,
            Self::UnusedDependencies,
            Self::TestFiles,
            Self::FileNames,
            Self::Comments,
            Self::OldWords,
            Self::Lengths,
            Self::Titles,
        ];
        all.into_iter().filter(|&one| self == Self::All || self == one).collect()
    }

    /// The problems found.
    fn problems(self, metadata: &Metadata) -> Result<Vec<String>> {
        Ok(match self {
            Self::Dependencies => layers::problems(metadata),
            Self::Sources => sources::problems(metadata)?,
            Self::Licences => licences::problems(metadata, &Policy::read()?),
            Self::Advisories => advisories::problems(metadata, &Policy::read()?),
            Self::Readmes => readmes::problems(metadata)?,
            Self::Links => links::problems(root())?,
            Self::CrateTable => crate_table::problems(metadata, root())?,
            Self::ConfigurationKeys => configuration_keys::problems(root())?,
            Self::Figures => figures::problems(root())?,
            Self::Dashboards => dashboards::problems(root())?,
            Self::UnusedDependencies => unused_dependencies::problems(metadata)?,
            Self::TestFiles => test_files::problems(metadata)?,
            Self::FileNames => file_names::problems(metadata)?,
            Self::Comments => comments::problems(metadata)?,
            Self::OldWords => old_words::problems(metadata, root())?,
            Self::Lengths => lengths::problems(root())?,
            Self::Titles => titles::problems(root())?,
            Self::All => {
                let each = self.each().into_iter().map(|one| one.problems(metadata));
                each.collect::<Result<Vec<_>>>()?.concat()
            }
        })
    }
}

/// Runs checks and prints the problems; returns them.
pub(crate) fn check(what: What) -> Result<Vec<String>> {
    let metadata = Metadata::of_workspace()?;
    let mut all = Vec::new();
    for one in what.each() {
        let problems = one.problems(&metadata)?;
        let name = format!("{one:?}").to_lowercase();
        match problems.len() {
            0 => eprintln!("xtask: {name}: ok"),
            count => eprintln!("xtask: {name}: {count} problems\n  {}", problems.join("\n  ")),
        }
        all.extend(problems.into_iter().map(|problem| format!("{name}: {problem}")));
    }
    Ok(all)
}

/// The repository's root, three folders above this crate.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap_or(Path::new("."))
}

fn main() -> ExitCode {
    let done = match Args::parse().task {
        Task::Verify => verify::verify(),
        Task::Check { what } => check(what).map(|problems| problems.is_empty()),
        Task::Random { seed, rounds } => property_tests::search(seed, rounds),
        Task::Figures { measured, criterion } => {
            figures::write(root(), measured.as_deref(), criterion.as_deref()).map(|()| true)
        }
        Task::Dashboards => dashboards::write(root()).map(|()| true),
        Task::Fix => verify::fix(),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
