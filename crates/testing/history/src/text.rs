//! Histories of the control plane's API as lines of text: one event per line, fields separated by single spaces.
//!
//! ```text
//! # time_ns process call|answer|fail operation what…
//! 1200 1 call 0 load resnet spec=7
//! 1900 2 call 1 read
//! 2100 1 answer 0 loaded model=1 epoch=3
//! 2400 2 answer 1 state index=9 epoch=3 models=resnet:1 processes=b1:1:77 asked=resnet,b1
//! ```
//!
//! An operation without an `answer` or `fail` line has an unknown end. In names, everything but letters, digits, `-`,
//! `_` and `.` is written `%` and two hexadecimal digits. The events are what Knossos and Porcupine call invoke, ok,
//! fail and (by absence) info, so a line-by-line translation feeds either.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::admin::{Answer, Call, State};
use crate::history::{End, History, HistoryError, Operation};

/// Why a text is no history.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A line makes no sense.
    #[error("line {line}: {reason}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The whole makes no sense.
    #[error(transparent)]
    History(#[from] HistoryError),
}

/// The history as text.
#[must_use]
pub fn write(history: &History<Call, Answer>) -> String {
    let mut events = Vec::new();
    for (number, operation) in history.operations().iter().enumerate() {
        let process = operation.process;
        let line = format!("{process} call {number} {}", call_text(&operation.call));
        events.push((operation.called_at, 0, line));
        match &operation.end {
            End::Answered { at, answer } => {
                events.push((*at, 1, format!("{process} answer {number} {}", answer_text(answer))));
            }
            End::Failed { at } => events.push((*at, 1, format!("{process} fail {number}"))),
            End::Unknown => {}
        }
    }
    events.sort_by_key(|(at, order, _)| (*at, *order));
    let mut text = String::from("# time_ns process call|answer|fail operation what\n");
    for (at, _, event) in events {
        let _ = writeln!(text, "{at} {event}");
    }
    text
}

/// Reads what [`write()`] wrote.
///
/// # Errors
/// Says which line is wrong, and how.
pub fn read(text: &str) -> Result<History<Call, Answer>, ParseError> {
    let mut operations: BTreeMap<u64, Operation<Call, Answer>> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |reason: String| ParseError::Line { line: number + 1, reason };
        event(line, &mut operations).map_err(wrong)?;
    }
    Ok(History::new(operations.into_values().collect())?)
}

fn event(line: &str, operations: &mut BTreeMap<u64, Operation<Call, Answer>>) -> Result<(), String> {
    let mut fields = line.split(' ');
    let mut field = |what: &str| fields.next().ok_or_else(|| format!("{what} is missing"));
    let at = whole(field("time")?)?;
    let process = whole(field("process")?)?;
    let kind = field("kind")?;
    let number = whole(field("operation")?)?;
    let rest: Vec<_> = fields.collect();
    if kind == "call" {
        let operation = Operation { process, call: parse_call(&rest)?, called_at: at, end: End::Unknown };
        return match operations.insert(number, operation) {
            None => Ok(()),
            Some(_) => Err(format!("operation {number} is called twice")),
        };
    }
    let operation = operations.get_mut(&number).ok_or_else(|| format!("operation {number} was never called"))?;
    if operation.end != End::Unknown {
        return Err(format!("operation {number} ends twice"));
    }
    operation.end = match kind {
        "answer" => End::Answered { at, answer: parse_answer(&rest)? },
        "fail" => End::Failed { at },
        other => return Err(format!("`{other}` is not call, answer or fail")),
    };
    Ok(())
}

fn call_text(call: &Call) -> String {
    match call {
        Call::Load { name, spec } => format!("load {} spec={spec}", escape(name)),
        Call::Unload { name } => format!("unload {}", escape(name)),
        Call::Register { name, boot } => format!("register {} boot={boot}", escape(name)),
        Call::Read => "read".to_owned(),
    }
}

fn parse_call(fields: &[&str]) -> Result<Call, String> {
    match fields {
        ["load", name, spec] => Ok(Call::Load { name: unescape(name)?, spec: named(spec, "spec")? }),
        ["unload", name] => Ok(Call::Unload { name: unescape(name)? }),
        ["register", name, boot] => Ok(Call::Register { name: unescape(name)?, boot: named(boot, "boot")? }),
        ["read"] => Ok(Call::Read),
        other => Err(format!("`{}` is no call", other.join(" "))),
    }
}

fn answer_text(answer: &Answer) -> String {
    match answer {
        Answer::Loaded { model, epoch } => format!("loaded model={model} epoch={epoch}"),
        Answer::NameTaken => "name-taken".to_owned(),
        Answer::Unloaded { epoch } => format!("unloaded epoch={epoch}"),
        Answer::NotLoaded => "not-loaded".to_owned(),
        Answer::Registered { id, token } => format!("registered id={id} token={token}"),
        Answer::Stale => "stale".to_owned(),
        Answer::Refused => "refused".to_owned(),
        Answer::State(state) => {
            let models: Vec<_> = state.models.iter().map(|(name, id)| format!("{}:{id}", escape(name))).collect();
            let processes = state.processes.iter().map(|(name, (id, boot))| format!("{}:{id}:{boot}", escape(name)));
            let names: Vec<_> = state.asked.iter().map(|name| escape(name)).collect();
            format!(
                "state index={} epoch={} models={} processes={} asked={}",
                state.index,
                state.epoch,
                models.join(","),
                processes.collect::<Vec<_>>().join(","),
                names.join(",")
            )
        }
    }
}

fn parse_answer(fields: &[&str]) -> Result<Answer, String> {
    match fields {
        ["loaded", model, epoch] => Ok(Answer::Loaded { model: named(model, "model")?, epoch: named(epoch, "epoch")? }),
        ["name-taken"] => Ok(Answer::NameTaken),
        ["unloaded", epoch] => Ok(Answer::Unloaded { epoch: named(epoch, "epoch")? }),
        ["not-loaded"] => Ok(Answer::NotLoaded),
        ["registered", id, token] => Ok(Answer::Registered { id: named(id, "id")?, token: named(token, "token")? }),
        ["stale"] => Ok(Answer::Stale),
        ["refused"] => Ok(Answer::Refused),
        ["state", index, epoch, models, processes, asked] => {
            let mut state = State { index: named(index, "index")?, epoch: named(epoch, "epoch")?, ..State::default() };
            for model in list(models, "models")? {
                let (name, id) = model.split_once(':').ok_or_else(|| format!("`{model}` is not name:id"))?;
                state.models.insert(unescape(name)?, whole(id)?);
            }
            for process in list(processes, "processes")? {
                let mut parts = process.split(':');
                let (Some(name), Some(id), Some(boot), None) = (parts.next(), parts.next(), parts.next(), parts.next())
                else {
                    return Err(format!("`{process}` is not name:id:boot"));
                };
                state.processes.insert(unescape(name)?, (whole(id)?, whole(boot)?));
            }
            state.asked = list(asked, "asked")?.map(unescape).collect::<Result<_, _>>()?;
            Ok(Answer::State(state))
        }
        other => Err(format!("`{}` is no answer", other.join(" "))),
    }
}

fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn value<'a>(field: &'a str, name: &str) -> Result<&'a str, String> {
    field.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')).ok_or_else(|| format!("`{field}` is not {name}=…"))
}

fn named(field: &str, name: &str) -> Result<u64, String> {
    whole(value(field, name)?)
}

fn list<'a>(field: &'a str, name: &str) -> Result<impl Iterator<Item = &'a str>, String> {
    Ok(value(field, name)?.split(',').filter(|item| !item.is_empty()))
}

fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            escaped.push(byte as char);
        } else {
            let _ = write!(escaped, "%{byte:02x}");
        }
    }
    escaped
}

fn unescape(text: &str) -> Result<String, String> {
    let wrong = || format!("`{text}` is no escaped name");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| (digit as char).to_digit(16)).ok_or_else(wrong);
        let (high, low) = (digit()?, digit()?);
        bytes.push((16 * high + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}
