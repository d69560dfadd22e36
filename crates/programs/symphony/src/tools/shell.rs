//! `symphony completions` and `man`: descriptions of the command line, for shells and for `man`.

use clap::CommandFactory as _;

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::exit::bad_input;

pub(crate) fn completions(args: &CompletionsArgs) {
    // Not onto standard output directly: the generator panics if it is closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "symphony", &mut script);
    print!("{}", String::from_utf8_lossy(&script));
}

pub(crate) fn man(args: &ManArgs) -> anyhow::Result<()> {
    let at = |error: std::io::Error| bad_input(format!("--dir {}: {error}", args.dir.display()));
    std::fs::create_dir_all(&args.dir).map_err(at)?;
    clap_mangen::generate_to(Cli::command(), &args.dir).map_err(at)?;
    println!("the manual pages are in {}", args.dir.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_manual_page_and_is_completed() {
        let dir = tempfile::tempdir().unwrap();
        man(&ManArgs { dir: dir.path().join("man1") }).unwrap();
        let page = |command: &str| {
            let path = dir.path().join(format!("man1/symphony-{command}.1"));
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let mut script = Vec::new();
        clap_complete::generate(clap_complete::Shell::Bash, &mut Cli::command(), "symphony", &mut script);
        let script = String::from_utf8(script).unwrap();
        for command in Cli::command().get_subcommands() {
            assert!(page(command.get_name()).contains(".TH"), "{}", command.get_name());
            assert!(script.contains(command.get_name()), "{}", command.get_name());
        }
        assert!(page("get").contains("SYMPHONY_CLUSTER"));
        assert!(page("model-load").contains("repository"));
    }
}
