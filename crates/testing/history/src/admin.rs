//! What the control plane's API means, one call after the other.
//!
//! Parts: each model's name, each registered process's name, the epoch, and the log index. Attempts under one operation
//! id are one operation, at however many replicas. A client that tries again without an id after an error whose outcome
//! is open records two, the first one with an unknown end. Reads that do not claim to be linearizable do not belong
//! into a history.

use std::collections::BTreeMap;

use crate::specification::Specification;

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Serve a model.
    Load {
        /// The name under which it is loaded.
        name: String,
        /// A digest of the rest of its specification: another one under the same name is refused.
        spec: u64,
    },
    /// Serve it no longer.
    Unload {
        /// The name under which it was loaded.
        name: String,
    },
    /// A backend or a frontend registers.
    Register {
        /// Its name, with its kind.
        name: String,
        /// The boot that registers; boots are compared for equality only.
        boot: u64,
    },
    /// Read everything.
    Read,
}

/// What can be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The model is to be served.
    Loaded {
        /// Its id.
        model: u64,
        /// The epoch that held it first.
        epoch: u64,
    },
    /// Another model has the name.
    NameTaken,
    /// The model is not served any more.
    Unloaded {
        /// The epoch that holds it no more.
        epoch: u64,
    },
    /// There was no such model.
    NotLoaded,
    /// The process is registered.
    Registered {
        /// The id that it has been given.
        id: u64,
        /// Log index of its binding; 0 for a frontend, which has none.
        token: u64,
    },
    /// The process has begun a later boot.
    Stale,
    /// Refused for a reason that says nothing about the state kept here (limits, memory, malformed): nothing has
    /// changed.
    Refused,
    /// What a read showed.
    State(State),
}

/// What a read shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Log index of the last command applied.
    pub index: u64,
    /// Version of the plan.
    pub epoch: u64,
    /// Id of every model by name.
    pub models: BTreeMap<String, u64>,
    /// Id and boot of every registered process by name.
    pub processes: BTreeMap<String, (u64, u64)>,
    /// Every name that is asked about in the history: a read says of each whether it exists.
    pub asked: Vec<String>,
}

/// A part of the state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A model, by name.
    Model(String),
    /// A registered process, by name.
    Process(String),
    /// The version of the plan.
    Epoch,
    /// The log index.
    Index,
}

/// State of a part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Part {
    /// Nothing was ever here.
    #[default]
    Empty,
    /// A model that is served. Ids are none until an answer has them.
    Model {
        /// Its id.
        model: Option<u64>,
        /// Digest of its specification.
        spec: u64,
        /// The largest id that a model of this name is known to have had before.
        former: u64,
    },
    /// A model that was served.
    Gone {
        /// The largest id that it is known to have had.
        former: u64,
    },
    /// A process that has registered.
    Process {
        /// The id that it has been given.
        id: Option<u64>,
        /// The boot that registered last.
        boot: u64,
        /// The boot before.
        previous: Option<u64>,
        /// The largest token it is known to have had.
        token: u64,
    },
    /// A number that only grows.
    Number(u64),
}

/// The control plane's API.
#[derive(Clone, Copy, Debug)]
pub struct Admin;

impl Specification for Admin {
    type Call = Call;
    type Answer = Answer;
    type Key = Key;
    type State = Part;

    fn keys(call: &Call, answer: Option<&Answer>) -> Vec<Key> {
        match (call, answer) {
            (_, Some(Answer::Refused)) => Vec::new(),
            (Call::Load { name, .. }, Some(Answer::Loaded { .. }))
            | (Call::Unload { name }, Some(Answer::Unloaded { .. })) => vec![Key::Model(name.clone()), Key::Epoch],
            (Call::Load { name, .. } | Call::Unload { name }, _) => vec![Key::Model(name.clone())],
            (Call::Register { name, .. }, Some(Answer::Registered { .. })) => {
                vec![Key::Process(name.clone()), Key::Index]
            }
            (Call::Register { name, .. }, _) => vec![Key::Process(name.clone())],
            (Call::Read, Some(Answer::State(state))) => {
                let mut names: Vec<_> = state.asked.iter().chain(state.models.keys()).collect();
                names.sort_unstable();
                names.dedup();
                let models = names.into_iter().map(|name| Key::Model(name.clone()));
                let mut names: Vec<_> = state.asked.iter().chain(state.processes.keys()).collect();
                names.sort_unstable();
                names.dedup();
                let processes = names.into_iter().map(|name| Key::Process(name.clone()));
                models.chain(processes).chain([Key::Epoch, Key::Index]).collect()
            }
            // A read whose answer was not seen changes nothing.
            (Call::Read, _) => Vec::new(),
        }
    }

    fn apply(key: &Key, state: &Part, call: &Call, answer: Option<&Answer>) -> Option<Part> {
        match (key, call) {
            (Key::Model(_), Call::Load { spec, .. }) => load(state, *spec, answer),
            (Key::Model(_), Call::Unload { .. }) => unload(state, answer),
            (Key::Process(_), Call::Register { boot, .. }) => register(state, *boot, answer),
            (Key::Model(name), Call::Read) => match answer {
                Some(Answer::State(seen)) => see_model(state, seen.models.get(name).copied()),
                _ => None,
            },
            (Key::Process(name), Call::Read) => match answer {
                Some(Answer::State(seen)) => see_process(state, seen.processes.get(name).copied()),
                _ => None,
            },
            (Key::Epoch, _) => match answer {
                // A load that found the model there names the epoch that held it first, however long ago.
                Some(Answer::Loaded { epoch, .. }) => Some(Part::Number(number(state).max(*epoch))),
                Some(Answer::Unloaded { epoch }) => (*epoch > number(state)).then_some(Part::Number(*epoch)),
                Some(Answer::State(seen)) => (seen.epoch >= number(state)).then_some(Part::Number(seen.epoch)),
                _ => None,
            },
            (Key::Index, _) => match answer {
                Some(Answer::Registered { token, .. }) => Some(Part::Number(number(state).max(*token))),
                Some(Answer::State(seen)) => (seen.index >= number(state)).then_some(Part::Number(seen.index)),
                _ => None,
            },
            (Key::Model(_), Call::Register { .. }) | (Key::Process(_), Call::Load { .. } | Call::Unload { .. }) => None,
        }
    }
}

fn number(state: &Part) -> u64 {
    if let Part::Number(number) = state { *number } else { 0 }
}

fn former(state: &Part) -> u64 {
    if let Part::Gone { former } = state { *former } else { 0 }
}

fn load(state: &Part, requested: u64, answer: Option<&Answer>) -> Option<Part> {
    match (state, answer) {
        (Part::Model { spec, .. }, Some(Answer::NameTaken)) if *spec != requested => Some(state.clone()),
        (Part::Model { .. }, None) => Some(state.clone()),
        (Part::Model { spec, former, .. }, Some(Answer::Loaded { model, .. })) if *spec == requested => {
            known_or_new(state, *model).map(|model| Part::Model {
                model: Some(model),
                spec: requested,
                former: *former,
            })
        }
        (Part::Model { .. }, _) => None,
        (_, None) => Some(Part::Model { model: None, spec: requested, former: former(state) }),
        (_, Some(Answer::Loaded { model, .. })) => (*model > former(state)).then(|| Part::Model {
            model: Some(*model),
            spec: requested,
            former: former(state),
        }),
        (_, Some(_)) => None,
    }
}

/// An existing model has this id: it has been known to, or is now.
fn known_or_new(state: &Part, id: u64) -> Option<u64> {
    match state {
        Part::Model { model: Some(model), .. } => (*model == id).then_some(id),
        Part::Model { model: None, former, .. } => (id > *former).then_some(id),
        _ => None,
    }
}

fn unload(state: &Part, answer: Option<&Answer>) -> Option<Part> {
    match (state, answer) {
        (Part::Model { model, former, .. }, None | Some(Answer::Unloaded { .. })) => {
            Some(Part::Gone { former: model.unwrap_or(*former) })
        }
        (Part::Model { .. }, Some(_)) | (_, Some(Answer::Unloaded { .. })) => None,
        (_, None | Some(Answer::NotLoaded)) => Some(state.clone()),
        (_, Some(_)) => None,
    }
}

fn see_model(state: &Part, seen: Option<u64>) -> Option<Part> {
    match (state, seen) {
        (Part::Model { spec, former, .. }, Some(id)) => {
            known_or_new(state, id).map(|model| Part::Model { model: Some(model), spec: *spec, former: *former })
        }
        (Part::Model { .. }, None) | (_, Some(_)) => None,
        (_, None) => Some(state.clone()),
    }
}

fn register(state: &Part, named: u64, answer: Option<&Answer>) -> Option<Part> {
    let new = |id, previous, token| Some(Part::Process { id, boot: named, previous, token });
    match (state, answer) {
        (Part::Process { boot, previous, .. }, Some(Answer::Stale)) => {
            (*boot != named && *previous == Some(named)).then(|| state.clone())
        }
        (Part::Process { boot, previous, .. }, None) if *boot == named || *previous == Some(named) => {
            Some(state.clone())
        }
        (Part::Process { id, boot, token, .. }, None) => new(*id, Some(*boot), *token),
        (Part::Process { id, boot, previous, token }, Some(Answer::Registered { id: given, token: granted })) => {
            let same_id = id.is_none_or(|id| id == *given);
            // A boot that was declared down and registers again is bound again, so its token may grow.
            let grows = if *boot == named { granted >= token } else { granted > token || *granted == 0 };
            if !same_id || !grows || *boot != named && *previous == Some(named) {
                return None;
            }
            let previous = if *boot == named { *previous } else { Some(*boot) };
            new(Some(*given), previous, *granted)
        }
        (Part::Process { .. }, Some(_)) => None,
        (_, None) => new(None, None, 0),
        (_, Some(Answer::Registered { id, token })) => new(Some(*id), None, *token),
        (_, Some(_)) => None,
    }
}

fn see_process(state: &Part, seen: Option<(u64, u64)>) -> Option<Part> {
    match (state, seen) {
        (Part::Process { id, boot, previous, token }, Some((seen_id, seen_boot))) => {
            let same = *boot == seen_boot && id.is_none_or(|id| id == seen_id);
            same.then_some(Part::Process { id: Some(seen_id), boot: *boot, previous: *previous, token: *token })
        }
        (Part::Process { .. }, None) | (_, Some(_)) => None,
        (_, None) => Some(state.clone()),
    }
}
