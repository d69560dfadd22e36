//! No option is accepted and then ignored; a command's requirements are in its usage.

use clap::{CommandFactory as _, Parser as _};

use crate::cli::{Cli, Command, MembersCommand, PlanCommand};

/// Why these words are not a valid command line; the program's name is left out.
#[track_caller]
fn refused(words: &str) -> String {
    match Cli::try_parse_from(["symphony"].into_iter().chain(words.split_whitespace())) {
        Err(error) => error.to_string(),
        Ok(cli) => panic!("`{words}` is taken: {cli:?}"),
    }
}

#[test]
fn options_that_would_be_ignored_are_refused_by_name() {
    // (words, the option that has no effect there)
    let mistakes = [
        ("up --clusters 2 --autoscale 1..4", "--autoscale"),
        ("up --clusters 2 --with-models", "--with-models"),
        ("up --clusters 2 --repository models", "--repository"),
        ("plan move --model m --to pool --federation", "--federation"),
        ("plan move --model m --to pool --to-cluster dev-2", "--to"),
        ("plan move --backend b --to-cluster dev-2", "--to-cluster"),
        ("plan move --model m --to-cluster dev-2 --propose", "--propose"),
        ("explain f1/1/1 --last 3", "--last"),
        ("backup --show b --to c", "--to"),
        ("backup --show b --stale", "--stale"),
        ("backup --show b --federation", "--federation"),
        ("model load m --repository models --to-cluster dev-2", "--to-cluster"),
        ("model load m --repository models --wanted-rps 5", "--wanted-rps"),
        ("model load m --repository models --subcluster pool", "--subcluster"),
        ("model load m --repository models --policy auto", "--policy"),
        ("model load m --repository models --value 2", "--value"),
        ("model load m --repository models --beta-ms 2", "--beta-ms"),
        ("model load m --repository models --gpu-kind a100", "--gpu-kind"),
        ("model load m --profile p.toml --slo-ms 5 --beta-ms 2", "--beta-ms"),
        ("load --trace t.csv --model m=5", "--model"),
        ("load --trace t.csv --arrival uniform", "--arrival"),
        ("trace convert --from arrivals a.csv -o b.csv --map a=b --models m --only-mapped", "--only-mapped"),
    ];
    for (words, option) in mistakes {
        let message = refused(words);
        assert!(message.contains("cannot be used with") && message.contains(option), "{words}: {message}");
    }
}

#[test]
fn noise_is_a_number_within_its_limit() {
    for command in ["backend", "up", "demo"] {
        for wrong in ["-0.1", "NaN", "inf", "2.01", "much"] {
            let message = refused(&format!("{command} --noise {wrong}"));
            assert!(message.contains("--noise") && message.contains("expected 0 to 2"), "{command}: {message}");
        }
        Cli::try_parse_from(["symphony", command, "--noise", "2"]).unwrap();
    }
}

#[test]
fn the_usage_of_a_move_and_of_a_load_can_be_followed() {
    let mut cli = Cli::command();
    for (path, lines) in [(["plan", "move"], 2), (["model", "load"], 3)] {
        let command = path.iter().fold(&mut cli, |command, name| command.find_subcommand_mut(name).unwrap());
        let usage = command.render_usage().to_string();
        let usages: Vec<_> = usage.lines().map(|line| line.trim_start_matches("Usage:").trim()).collect();
        assert_eq!(usages.len(), lines, "{usage}");
        for line in usages {
            // One of what may be repeated, and nothing of what is optional.
            let needed = line.split(" [").next().unwrap();
            let needed = needed.replace(" | --backend <NAME>>...", "").replace(">>...", ">");
            let needed = needed.replace("<--model", "--model").replace("<MS>", "100");
            if let Err(error) = Cli::try_parse_from(needed.split_whitespace()) {
                panic!("`{needed}` of the usage `{line}`: {error}");
            }
        }
    }
}

#[test]
fn a_move_may_name_several_models_and_backends() {
    let words = ["symphony", "plan", "move", "--model", "a", "--model", "b", "--backend", "c", "--to", "pool"];
    let Command::Plan(PlanCommand::Move(args)) = Cli::try_parse_from(words).unwrap().command else { panic!("a move") };
    assert_eq!((args.models, args.backends), (vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()]));
}

#[test]
fn replicas_are_called_as_tables_and_logs_call_them() {
    for words in ["members replace n2 --with n4 --control h:1", "members replace 2 --with scheduler-4 --control h:1"] {
        let cli = Cli::try_parse_from(["symphony"].into_iter().chain(words.split_whitespace())).unwrap();
        let Command::Members(MembersCommand::Replace(args)) = cli.command else { panic!("another command") };
        assert_eq!((args.id, args.with), (2, 4), "{words}");
    }
    for id in ["0", "n0", "b4", "four", "-1"] {
        assert!(refused(&format!("members add --control h:1 -- {id}")).contains("as 2 or n2"), "{id}");
    }
}
