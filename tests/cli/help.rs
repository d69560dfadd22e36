//! Every command explains itself.

use symphony_testkit::Workspace;
use symphony_tests::{ProgramOutput, run};
use symphony_types::Level;

fn symphony(args: &[&str]) -> ProgramOutput {
    let workspace = Workspace::new("help").unwrap();
    run(workspace.path(), &[], args).unwrap()
}

/// The subcommands that a help text lists.
fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| line.starts_with(' ')).filter_map(|line| {
        // A deeper indentation continues the line before.
        line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?.split_whitespace().next()
    });
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_subcommand_has_help_and_usage_errors_end_with_2() {
    let help = symphony(&["--help"]).ended_with(0).out;
    let commands = subcommands(&help);
    let promised = [
        "demo",
        "up",
        "scheduler",
        "frontend",
        "backend",
        "federation",
        "model",
        "upgrade",
        "get",
        "explain",
        "profile",
        "load",
        "sim",
        "paper",
        "replay",
    ];
    for promised in promised {
        assert!(commands.iter().any(|c| c == promised), "{promised} is not among {commands:?}");
    }
    for command in &commands {
        let output = symphony(&[command, "--help"]).ended_with(0);
        assert!(output.out.contains("Usage: symphony"), "{}", output.out);
        for nested in subcommands(&output.out) {
            let output = symphony(&[command, &nested, "--help"]).ended_with(0);
            assert!(output.out.contains("Usage: symphony"), "{}", output.out);
        }
        let _ = symphony(&[command, "--no-such-option"]).ended_with(2).complains(&["--no-such-option"]);
    }
    let version = symphony(&["--version"]).ended_with(0).out;
    let (release, level) = (env!("CARGO_PKG_VERSION"), Level::NEWEST.get());
    assert_eq!(version.trim(), format!("symphony {release} (level {level})"));
    let _ = symphony(&[]).ended_with(2);
    let _ = symphony(&["conduct"]).ended_with(2).complains(&["conduct"]);
    let _ = symphony(&["get", "weather"]).ended_with(2).complains(&["weather", "models"]);
}
