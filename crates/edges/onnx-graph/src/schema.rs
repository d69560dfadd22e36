//! A file checked by the schema before it is decoded: nothing unknown, nothing twice, nothing too large.

use std::ops::Range;

use crate::error::Error;
use crate::limits::{
    DECODED_BYTES_MAX, FUNCTIONS_MAX, INITIALIZERS_MAX, MESSAGE_BYTES, MESSAGE_DEPTH_MAX, NAME_BYTES_MAX, NODES_MAX,
    NUMBER_BYTES, SUBGRAPH_DEPTH_MAX, TEXT_BYTES,
};
use crate::wire::{Field, Fields, NoField, Wire};

/// A message of the schema.
#[derive(Debug)]
struct Message {
    name: &'static str,
    fields: &'static [Known],
}

/// A field of the schema. Numbers are below 64: a word says which ones a message has.
#[derive(Debug)]
struct Known {
    number: u32,
    name: &'static str,
    repeated: bool,
    kind: Kind,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Varint,
    Fixed32,
    Fixed64,
    Text,
    Bytes,
    /// An index into [`MESSAGES`].
    Message(usize),
}

/// All messages of `proto/onnx/onnx.proto`.
static MESSAGES: &[Message] = include!(concat!(env!("OUT_DIR"), "/schema.rs"));

/// Texts that are no names: people's words, as long as they like.
const PROSE: [&str; 2] = ["doc_string", "value"];

/// Reads through the whole file.
pub(crate) fn check(bytes: &[u8]) -> Result<(), Error> {
    let model = MESSAGES.iter().position(|message| message.name == "ModelProto").unwrap_or_default();
    let mut check = Check { bytes, nodes: 0, initializers: 0, functions: 0, decoded_bytes: 0 };
    check.message(model, &(0..bytes.len()), Depth { messages: 0, graphs: 0 })
}

/// How deep a message lies.
#[derive(Clone, Copy, Debug)]
struct Depth {
    messages: u32,
    graphs: u32,
}

/// What has been read so far.
struct Check<'a> {
    bytes: &'a [u8],
    nodes: u64,
    initializers: u64,
    functions: u64,
    decoded_bytes: u64,
}

impl Check<'_> {
    fn message(&mut self, index: usize, range: &Range<usize>, mut depth: Depth) -> Result<(), Error> {
        let message = &MESSAGES[index];
        depth.messages += 1;
        depth.graphs += u32::from(message.name == "GraphProto");
        self.nodes += u64::from(message.name == "NodeProto");
        self.functions += u64::from(message.name == "FunctionProto");
        self.decoded_bytes += MESSAGE_BYTES;
        within("messages inside each other", depth.messages.into(), MESSAGE_DEPTH_MAX.into())?;
        within("graphs inside each other", depth.graphs.into(), SUBGRAPH_DEPTH_MAX.into())?;
        within("nodes", self.nodes, NODES_MAX)?;
        within("functions", self.functions, FUNCTIONS_MAX)?;
        let mut seen = 0_u64;
        for field in Fields::new(self.bytes, range) {
            let field = field.map_err(|NoField { at, problem }| malformed(message, at, problem))?;
            let Some(known) = message.fields.iter().find(|known| known.number == field.number) else {
                let (at, number) = (field.whole.start, field.number);
                return Err(Error::UnknownField { message: message.name, at, number });
            };
            let bit = 1_u64.checked_shl(known.number).unwrap_or_default();
            if !known.repeated && seen & bit != 0 {
                return Err(malformed(message, field.whole.start, &format!("{} stands twice", known.name)));
            }
            seen |= bit;
            self.field(message, known, &field, depth)?;
        }
        Ok(())
    }

    fn field(&mut self, message: &Message, known: &Known, field: &Field, depth: Depth) -> Result<(), Error> {
        let is_initializer = message.name == "GraphProto" && known.name.ends_with("initializer");
        self.initializers += u64::from(is_initializer);
        within("initializers", self.initializers, INITIALIZERS_MAX)?;
        let length = field.value.len() as u64;
        self.decoded_bytes += match (known.kind, field.wire) {
            (Kind::Varint, Wire::Varint) | (Kind::Fixed32, Wire::Fixed32) | (Kind::Fixed64, Wire::Fixed64) => {
                NUMBER_BYTES
            }
            (Kind::Text, Wire::Delimited) => {
                if !PROSE.contains(&known.name) {
                    within("bytes in a name", length, NAME_BYTES_MAX as u64)?;
                }
                TEXT_BYTES + length
            }
            (Kind::Bytes, Wire::Delimited) => TEXT_BYTES,
            (Kind::Message(index), Wire::Delimited) => {
                self.message(index, &field.value, depth)?;
                0
            }
            // Numbers that are packed: each varint has one byte without its upper bit.
            (Kind::Varint, Wire::Delimited) if known.repeated => {
                let numbers = self.bytes[field.value.clone()].iter().filter(|&&byte| byte < 0x80).count();
                NUMBER_BYTES * numbers as u64
            }
            (Kind::Fixed32, Wire::Delimited) if known.repeated => NUMBER_BYTES * (length / 4),
            (Kind::Fixed64, Wire::Delimited) if known.repeated => NUMBER_BYTES * (length / 8),
            (kind, wire) => {
                let problem = format!("{} is written as {wire:?}; expected {kind:?}", known.name);
                return Err(malformed(message, field.whole.start, &problem));
            }
        };
        within("bytes when it is decoded", self.decoded_bytes, DECODED_BYTES_MAX)
    }
}

fn within(what: &'static str, has: u64, max: u64) -> Result<(), Error> {
    if has > max { Err(Error::TooMuch { what, max }) } else { Ok(()) }
}

fn malformed(message: &Message, at: usize, problem: &str) -> Error {
    Error::Malformed { message: message.name, at, problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_whole_schema() {
        assert_eq!(MESSAGES.len(), 28);
        let numbers = MESSAGES.iter().flat_map(|message| message.fields).map(|known| known.number);
        assert!(numbers.clone().all(|number| number < 64));
        assert_eq!(numbers.count(), 134);
    }
}
