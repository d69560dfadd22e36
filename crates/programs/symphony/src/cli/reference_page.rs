//! docs/reference/cli.md lists the commands and their options as the program has them.
//! `cargo test -p symphony --lib -- --ignored write_the_page_of_commands` writes the lists.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory as _};

use super::Cli;

const PAGE: &str = "../../../docs/reference/cli.md";

/// The lists of the page, and the commands in each.
const LISTS: [(&str, &[&str]); 4] = [
    ("processes", &["scheduler", "frontend", "backend", "federation", "provision", "up", "demo", "health"]),
    ("models", &["profile", "model", "pipeline", "apply", "load"]),
    (
        "operating",
        &[
            "get",
            "describe",
            "top",
            "explain",
            "drain",
            "cordon",
            "uncordon",
            "members",
            "backup",
            "restore",
            "upgrade",
            "plan",
            "subcluster",
            "context",
            "certs",
            "keys",
            "completions",
            "man",
        ],
    ),
    ("trying", &["sim", "paper", "replay", "tape", "trace", "compare"]),
];

/// Options of many commands, which have a list of their own, and a command that has each.
const SHARED: [(&str, &str); 11] = [
    ("context", "get"),
    ("cluster", "get"),
    ("pki", "get"),
    ("identity", "get"),
    ("insecure-dev", "get"),
    ("output", "get"),
    ("federation", "get"),
    ("operation-id", "cordon"),
    ("key-file", "get"),
    ("public-ca", "get"),
    ("insecure-key", "get"),
];

/// The page as it is, and as it should be.
fn page() -> (String, String) {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).unwrap();
    let mut cli = Cli::command();
    cli.build();
    let shared = SHARED.map(|(name, command)| {
        cli.find_subcommand(command).unwrap().get_arguments().find(|option| option.get_long() == Some(name)).unwrap()
    });
    let mut expected = page.clone();
    for (name, commands) in LISTS {
        let mut list = String::from("| command | does | its own options |\n| --- | --- | --- |\n");
        for command in commands {
            let command = cli.find_subcommand(command).unwrap_or_else(|| panic!("no command {command}"));
            append(command, "", &shared, &mut list);
        }
        expected = between(&expected, name, &list);
    }
    let mut list = String::from("| option | meaning |\n| --- | --- |\n");
    for option in shared {
        let _ = writeln!(list, "| {} | {} |", shown(option), meaning(&option.get_help().unwrap().to_string()));
    }
    (page, between(&expected, "shared", &list))
}

/// The page with a new list between `<!-- NAME: … -->` and `<!-- end of NAME -->`.
fn between(page: &str, name: &str, list: &str) -> String {
    let (begin, rest) = page.split_once(&format!("<!-- {name}:")).unwrap_or_else(|| panic!("no place for {name}"));
    let (mark, rest) = rest.split_once("-->\n").unwrap();
    let (_, end) = rest.split_once(&format!("<!-- end of {name} -->")).unwrap();
    format!("{begin}<!-- {name}:{mark}-->\n{list}<!-- end of {name} -->{end}")
}

/// Appends a row for the command, if it does something itself, and those of its subcommands. An option is shared if it
/// has the same help.
fn append(command: &Command, above: &str, shared: &[&Arg], list: &mut String) {
    let name = format!("{above}{}", command.get_name());
    if !command.is_subcommand_required_set() {
        let mut usage = name.clone();
        let mut does = meaning(&command.get_about().unwrap().to_string());
        for argument in command.get_positionals() {
            let value = argument.get_value_names().unwrap()[0].replace('|', "\\|");
            let _ = write!(usage, " {}", place(argument, &value));
            let choices: Vec<_> = argument.get_possible_values().iter().map(|one| one.get_name().to_owned()).collect();
            if !choices.is_empty() {
                let _ = write!(does, " {value}: {}.", choices.join(", "));
            }
        }
        let options = command.get_arguments().filter(|option| !option.is_positional() && !option.is_hide_set());
        let own = options.filter(|own| {
            shared.iter().all(|one| (one.get_long(), one.get_help()) != (own.get_long(), own.get_help()))
        });
        let names = own.filter_map(Arg::get_long).filter(|name| !["help", "version"].contains(name));
        let own: Vec<_> = names.map(|name| format!("`--{name}`")).collect();
        let _ = writeln!(list, "| `{usage}` | {does} | {} |", own.join(" "));
    }
    for subcommand in command.get_subcommands().filter(|one| one.get_name() != "help" && !one.is_hide_set()) {
        append(subcommand, &format!("{name} "), shared, list);
    }
}

/// How a positional argument is written: what may be left out has brackets, as in `--help`.
fn place(argument: &Arg, value: &str) -> String {
    let many = if argument.get_num_args().is_some_and(|range| range.max_values() > 1) { "…" } else { "" };
    if argument.is_required_set() { format!("{value}{many}") } else { format!("[{value}{many}]") }
}

/// How the option is written, also as a variable.
fn shown(option: &Arg) -> String {
    let value = if option.get_action().takes_values() { option.get_value_names() } else { None };
    let value = value.map_or_else(String::new, |names| format!(" {}", names[0]));
    let variable = option.get_env().map(|name| format!(", `{}`", name.display())).unwrap_or_default();
    format!("`--{}{value}`{variable}", option.get_long().unwrap())
}

/// A help text as a cell of a table.
fn meaning(help: &str) -> String {
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    if words.ends_with(['.', '?', '!']) { words } else { words + "." }
}

#[test]
fn the_page_lists_every_command() {
    let listed: Vec<_> = LISTS.iter().flat_map(|(_, commands)| commands.iter().copied()).collect();
    let cli = Cli::command();
    for command in cli.get_subcommands().map(Command::get_name) {
        assert!(listed.contains(&command), "`{command}` is in no list of docs/reference/cli.md");
    }
    let (page, expected) = page();
    assert!(page == expected, "docs/reference/cli.md is stale; the first comment of this file says how it is written");
}

#[test]
fn what_may_be_left_out_has_brackets() {
    let mut cli = Cli::command();
    cli.build();
    let row = |command: &str| {
        let mut list = String::new();
        append(cli.find_subcommand(command).unwrap(), "", &[], &mut list);
        list
    };
    let (get, describe) = (row("get"), row("describe"));
    assert!(get.starts_with("| `get WHAT [NAME]` |"), "{get}");
    assert!(describe.starts_with("| `describe KIND NAME` |"), "{describe}");
}

/// Writes the lists of the page.
#[test]
#[ignore = "writes docs/reference/cli.md"]
fn write_the_page_of_commands() {
    fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE), page().1).unwrap();
}
