//! `symphony context`: the file of contexts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cli::{ContextCommand, ContextKey, ContextSetArgs, Output};
use crate::contexts::{Context, Contexts, FILE_VARIABLE, check_name, path};
use crate::exit::bad_input;
use crate::inspect::table;

const CONTEXT_VARIABLE: &str = "SYMPHONY_CONTEXT";
/// The variables that set what a context sets, too.
const VARIABLES: [&str; 8] = [
    CONTEXT_VARIABLE,
    "SYMPHONY_CLUSTER",
    "SYMPHONY_PKI",
    "SYMPHONY_IDENTITY",
    "SYMPHONY_INSECURE_DEV",
    "SYMPHONY_KEY_FILE",
    "SYMPHONY_PUBLIC_CA",
    "SYMPHONY_INSECURE_KEY",
];

pub(crate) fn run(command: &ContextCommand) -> anyhow::Result<()> {
    let path =
        path().ok_or_else(|| bad_input(format!("there is no HOME; name the file of contexts in {FILE_VARIABLE}")))?;
    let mut contexts = Contexts::read(&path)?;
    match command {
        ContextCommand::List { output } => return list(&contexts, *output),
        ContextCommand::Show { name, output } => return show(&contexts, name.as_deref(), &path, *output),
        // Others may be bad, or the current one not there: this is how that is mended.
        ContextCommand::Use { name } => {
            let _ = contexts.sound(name).map_err(bad_input)?;
            contexts.current = Some(name.clone());
        }
        ContextCommand::Set(args) => {
            set(&mut contexts, args)?;
            let _ = contexts.sound(&args.name).map_err(bad_input)?;
        }
        ContextCommand::Delete { name } => delete(&mut contexts, name)?,
    }
    contexts.write(&path)?;
    match command {
        ContextCommand::Set(args) => println!("context {} is set, in {}", args.name, path.display()),
        ContextCommand::Delete { name } => println!("context {name} is deleted"),
        _ => {}
    }
    match &contexts.current {
        Some(current) => {
            println!("the current context is {current}");
            let stronger = stronger(current, |name| std::env::var_os(name));
            if !stronger.is_empty() {
                eprintln!(
                    "warning: {} in the environment count more than the current context; --context {current} counts \
                     more than they do",
                    stronger.join(", ")
                );
            }
        }
        None => println!("there is no current context; `symphony context use` chooses one"),
    }
    Ok(())
}

/// The variables that would win over this context as the current one.
fn stronger(current: &str, variable: impl Fn(&str) -> Option<OsString>) -> Vec<&'static str> {
    let is_other = |name: &&str| match variable(name) {
        None => false,
        // An empty name is no context.
        Some(value) if *name == CONTEXT_VARIABLE => value != current,
        Some(value) => !value.is_empty(),
    };
    VARIABLES.into_iter().filter(is_other).collect()
}

fn list(contexts: &Contexts, output: Output) -> anyhow::Result<()> {
    let is_current = |name: &str| contexts.current.as_deref() == Some(name);
    match output {
        Output::Table => {
            let row = |(name, context): (&String, &Context)| {
                let mark = if is_current(name) { "*" } else { "" };
                let security = match (&context.pki, context.insecure_dev) {
                    (Some(pki), _) => pki.display().to_string(),
                    (None, true) => "plaintext".to_owned(),
                    (None, false) => String::new(),
                };
                let cluster = context.cluster.clone().unwrap_or_default();
                let reached = if context.schedulers.is_empty() { &context.federation } else { &context.schedulers };
                vec![mark.to_owned(), name.clone(), cluster, reached.join(","), security]
            };
            let rows: Vec<_> = contexts.contexts.iter().map(row).collect();
            table::print(&["CURRENT", "NAME", "CLUSTER", "ADDRESSES", "CERTIFICATES"], &rows);
        }
        Output::Json => {
            let one = |(name, context): (&String, &Context)| json!({ "name": name, "current": is_current(name), "context": context });
            let all: Vec<_> = contexts.contexts.iter().map(one).collect();
            println!("{}", serde_json::to_string_pretty(&all)?);
        }
    }
    Ok(())
}

fn show(contexts: &Contexts, name: Option<&str>, path: &Path, output: Output) -> anyhow::Result<()> {
    let name = name.or(contexts.current.as_deref());
    let name = name.ok_or_else(|| bad_input("there is no current context; name one, see `symphony context list`"))?;
    let context = contexts.find(name).map_err(bad_input)?;
    match output {
        Output::Table => print!("# {}\n[context.{name}]\n{}", path.display(), toml::to_string(context)?),
        Output::Json => println!("{}", serde_json::to_string_pretty(context)?),
    }
    Ok(())
}

fn set(contexts: &mut Contexts, args: &ContextSetArgs) -> anyhow::Result<()> {
    check_name(&args.name).map_err(bad_input)?;
    let is_first = contexts.contexts.is_empty();
    let context = contexts.contexts.entry(args.name.clone()).or_default();
    for key in &args.unset {
        unset(context, *key);
    }
    let replace = |value: &mut Vec<String>, given: &[String]| {
        if !given.is_empty() {
            *value = given.to_vec();
        }
    };
    replace(&mut context.schedulers, &args.schedulers);
    replace(&mut context.federation, &args.federation);
    let texts = [
        (&mut context.cluster, &args.cluster_name),
        (&mut context.frontend_grpc, &args.frontend_grpc),
        (&mut context.frontend_rest, &args.frontend_rest),
        (&mut context.identity, &args.identity),
    ];
    for (value, given) in texts {
        if given.is_some() {
            value.clone_from(given);
        }
    }
    let paths = [
        (&mut context.pki, &args.pki),
        (&mut context.key_file, &args.key_file),
        (&mut context.public_ca, &args.public_ca),
    ];
    for (value, given) in paths {
        // The folder of the caller is not that of the file.
        if let Some(given) = given {
            *value = Some(absolute(given)?);
        }
    }
    context.insecure_dev |= args.insecure_dev;
    if args.is_current || is_first {
        contexts.current = Some(args.name.clone());
    }
    Ok(())
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).map_err(|error| bad_input(format!("{}: {error}", path.display())))
}

fn unset(context: &mut Context, key: ContextKey) {
    match key {
        ContextKey::Cluster => context.cluster = None,
        ContextKey::Schedulers => context.schedulers.clear(),
        ContextKey::Federation => context.federation.clear(),
        ContextKey::FrontendGrpc => context.frontend_grpc = None,
        ContextKey::FrontendRest => context.frontend_rest = None,
        ContextKey::Pki => context.pki = None,
        ContextKey::Identity => context.identity = None,
        ContextKey::InsecureDev => context.insecure_dev = false,
        ContextKey::KeyFile => context.key_file = None,
        ContextKey::PublicCa => context.public_ca = None,
    }
}

fn delete(contexts: &mut Contexts, name: &str) -> anyhow::Result<()> {
    let _ = contexts.find(name).map_err(bad_input)?;
    contexts.contexts.remove(name);
    contexts.current.take_if(|current| current.as_str() == name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    /// The command that these words are, done to the contexts.
    fn done(contexts: &mut Contexts, words: &str) -> anyhow::Result<()> {
        let words = ["symphony", "context", "set"].into_iter().chain(words.split_whitespace());
        let Command::Context(ContextCommand::Set(args)) = Cli::try_parse_from(words)?.command else {
            panic!("another command")
        };
        set(contexts, &args)
    }

    #[test]
    fn what_is_not_given_stays_and_the_first_context_is_the_current_one() {
        let mut contexts = Contexts::default();
        done(&mut contexts, "blue --schedulers a:1,b:1 --pki pki --identity operator-ann").unwrap();
        done(&mut contexts, "green --schedulers c:1 --insecure-dev").unwrap();
        assert_eq!(contexts.current.as_deref(), Some("blue"));
        done(&mut contexts, "blue --schedulers d:1 --unset identity").unwrap();
        let blue = contexts.find("blue").unwrap();
        assert_eq!((blue.schedulers.as_slice(), &blue.identity), (&["d:1".to_owned()][..], &None));
        assert!(blue.pki.as_ref().is_some_and(|pki| pki.is_absolute() && pki.ends_with("pki")), "{blue:?}");
        done(&mut contexts, "green --use").unwrap();
        assert_eq!(contexts.current.as_deref(), Some("green"));
        assert!(done(&mut contexts, "Green").unwrap_err().to_string().contains("no name of a context"));
        delete(&mut contexts, "green").unwrap();
        assert_eq!((contexts.current.as_deref(), contexts.contexts.len()), (None, 1));
        assert!(delete(&mut contexts, "gren").unwrap_err().to_string().contains("no context is named `gren`"));
        done(&mut contexts, "blue --insecure-dev").unwrap();
        assert!(contexts.sound("blue").unwrap_err().contains("expected no pki"), "it is not written so");
    }

    #[test]
    fn variables_that_win_over_the_current_context_are_named() {
        let stronger = |variables: &[(&str, &str)]| {
            stronger("blue", |name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
            })
        };
        assert_eq!(stronger(&[]), [""; 0]);
        assert_eq!(stronger(&[("SYMPHONY_CONTEXT", "blue"), ("SYMPHONY_CLUSTER", "")]), [""; 0]);
        assert_eq!(stronger(&[("SYMPHONY_CONTEXT", "")]), ["SYMPHONY_CONTEXT"], "none is another one");
        let exported = [("SYMPHONY_KEY_FILE", "key"), ("SYMPHONY_CLUSTER", "h:1"), ("SYMPHONY_CONTEXT", "green")];
        assert_eq!(stronger(&exported), ["SYMPHONY_CONTEXT", "SYMPHONY_CLUSTER", "SYMPHONY_KEY_FILE"]);
    }
}
