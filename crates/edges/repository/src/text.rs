//! The text of a `config.pbtxt`: protobuf's text format over the subset in `proto/repository/model_config.proto`.

use std::sync::LazyLock;

use miette::Diagnostic as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

/// Generated from `proto/repository/model_config.proto`.
pub(crate) mod wire {
    #![allow(missing_docs, unreachable_pub, missing_debug_implementations, clippy::all)]
    include!(concat!(env!("OUT_DIR"), "/repository.rs"));
}

/// The package of the subset: people know its messages by their own names.
const PACKAGE: &str = "repository.";

static MODEL_CONFIG: LazyLock<MessageDescriptor> = LazyLock::new(|| {
    let descriptors = include_bytes!(concat!(env!("OUT_DIR"), "/model_config.bin"));
    let pool = DescriptorPool::decode(descriptors.as_slice()).expect("the build wrote these descriptors");
    pool.get_message_by_name("repository.ModelConfig").expect("the subset has a ModelConfig")
});

/// Messages and lists within each other, at most: a configuration has five. The parser follows them with its stack,
/// also into messages that no field of ours can hold (`[domain/message] { … }`), and a stack that ends takes the
/// process with it.
const NESTING_MAX: usize = 32;

/// Fields of Triton's by which a model would be served differently than here, and what to do instead.
const NOT_SERVED: [(&str, &str); 1] = [(
    "sequence_batching",
    "every request stands by itself here: let the client send the state along, as an input, and take it from an output",
)];

/// Why a text is no model configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadText {
    /// From 1; 0 if the text ended too early.
    pub(crate) line: usize,
    pub(crate) problem: String,
}

/// Reads the text. A field that the subset does not have is refused by name.
pub(crate) fn read(text: &str) -> Result<wire::ModelConfig, BadText> {
    let text = with_colons(text)?;
    let parsed = DynamicMessage::parse_text_format(MODEL_CONFIG.clone(), &text).map_err(|error| {
        let offset = error.labels().and_then(|mut labels| labels.next()).map(|label| label.offset());
        // Bytes, not characters: an offset never splits a line break.
        let line = offset.map_or(0, |offset| 1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count());
        BadText { line, problem: words(&error.to_string()) }
    })?;
    parsed.transcode_to().map_err(|error| BadText { line: 0, problem: error.to_string() })
}

/// Adds a colon before each list of messages: most configurations are written as `input [ { … } ]`, which the format
/// allows, but the parser needs `input: [ { … } ]`. Lines stay the same. Refuses nesting deeper than [`NESTING_MAX`].
///
/// The parser stops at the first mismatched bracket, so counting brackets without their kinds is enough.
fn with_colons(text: &str) -> Result<String, BadText> {
    let mut with = String::with_capacity(text.len() + 16);
    let (mut quote, mut escaped, mut comment, mut after_name) = (None, false, false, false);
    let (mut line, mut depth) = (1, 0_usize);
    for character in text.chars() {
        line += usize::from(character == '\n');
        if comment {
            comment = character != '\n';
        } else if let Some(open) = quote {
            if !escaped && (character == open || character == '\n') {
                quote = None;
            }
            escaped = character == '\\' && !escaped;
        } else {
            match character {
                '#' => comment = true,
                '"' | '\'' => (quote, escaped) = (Some(character), false),
                '{' | '<' | '[' => {
                    depth += 1;
                    if depth > NESTING_MAX {
                        let problem = format!("more than {NESTING_MAX} messages and lists within each other");
                        return Err(BadText { line, problem });
                    }
                    if character == '[' && after_name {
                        with.push(':');
                    }
                }
                '}' | '>' | ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if !comment && !character.is_whitespace() {
                after_name = character.is_ascii_alphanumeric() || character == '_';
            }
        }
        with.push(character);
    }
    Ok(with)
}

/// The parser's message, with advice, or with the known fields if one is unknown.
fn words(problem: &str) -> String {
    let mut quoted = problem.split('\'').skip(1).step_by(2);
    let unknown = if problem.starts_with("field ") { quoted.next().zip(quoted.next()) } else { None };
    let instead = unknown.and_then(|(field, message)| {
        let of_models = message == MODEL_CONFIG.full_name();
        NOT_SERVED.iter().find(|&&(name, _)| of_models && name == field)
    });
    if let Some((field, instead)) = instead {
        return format!("field '{field}' cannot be served: {instead}");
    }
    let known = unknown.and_then(|(_, message)| {
        let message = MODEL_CONFIG.parent_pool().get_message_by_name(message)?;
        Some(message.fields().map(|field| field.name().to_owned()).collect::<Vec<_>>().join(", "))
    });
    let problem = problem.replace(PACKAGE, "");
    known.map_or(problem.clone(), |known| format!("{problem}; expected one of {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> (usize, String) {
        let BadText { line, problem } = read(text).unwrap_err();
        (line, problem)
    }

    #[test]
    fn unknown_fields_are_named_with_their_line_and_those_that_there_are() {
        let (line, problem) = refusal("name: \"m\"\n# a comment\nmetric_tags { key: \"a\" }\n");
        assert_eq!(line, 3);
        assert!(problem.contains("metric_tags") && problem.contains("ModelConfig"), "{problem}");
        assert!(problem.contains("expected one of name, platform") && !problem.contains(PACKAGE), "{problem}");
        let (line, problem) = refusal("input [\n {\n  name: \"x\"\n  optional: true } ]");
        assert_eq!(line, 4);
        assert!(
            problem.contains("optional") && problem.contains("name, data_type, format, dims, reshape"),
            "{problem}"
        );
    }

    #[test]
    fn what_is_served_otherwise_is_refused_with_what_to_do_instead() {
        let (_, problem) = refusal("sequence_batching { max_sequence_idle_microseconds: 5000000 }");
        assert!(problem.starts_with("field 'sequence_batching' cannot be served: every request stands"), "{problem}");
        let (_, problem) = refusal("input { sequence_batching { } }");
        assert!(problem.contains("expected one of name, data_type"), "elsewhere it is any unknown field: {problem}");
    }

    #[test]
    fn steps_of_an_ensemble_are_read_and_their_unknown_fields_are_not() {
        let steps = "step [ { model_name: \"a\" model_version: -1 input_map { key: \"x\" value: \"y\" } } ]";
        let read = read(&format!("platform: \"ensemble\"\nensemble_scheduling {{ {steps} }}")).unwrap();
        let ensemble = read.ensemble_scheduling.unwrap();
        let step = &ensemble.step[0];
        assert_eq!((step.model_name.as_str(), step.model_version, step.input_map.len()), ("a", -1, 1));
        let (line, problem) = refusal("ensemble_scheduling {\n step { model_namespace: \"n\" } }");
        assert!(line == 2 && problem.contains("expected one of model_name, model_version"), "{line}: {problem}");
    }

    #[test]
    fn lists_need_no_colon_and_strings_and_comments_stay_as_they_are() {
        let with_colons = |text| with_colons(text).unwrap();
        assert_eq!(with_colons("input [ {} ] dims: [1]"), "input : [ {} ] dims: [1]".replace(" : [", " :["));
        for same in ["# input [", "name: \"a [ \\\" b [\"", "name: 'x [' [", "dims: [ 1 ]", "x # y\n: [", "\"a\" ["] {
            assert_eq!(with_colons(same), same);
        }
        assert_eq!(with_colons("input # what comes in\n[ ]"), "input # what comes in\n:[ ]");
        assert_eq!(with_colons("name: \"open\n input ["), "name: \"open\n input :[");
    }

    #[test]
    fn values_of_the_wrong_type_and_unfinished_texts_are_refused() {
        assert_eq!(refusal("\nmax_batch_size: \"8\"").0, 2);
        assert!(refusal("max_batch_size: 99999999999").1.contains("out of range"));
        assert!(refusal("input { data_type: TYPE_FLOAT }").1.contains("TYPE_FLOAT"));
        assert!(refusal("name: \"a\" name: \"b\"").1.contains("name"));
        let (line, problem) = refusal("input {");
        assert_eq!(line, 0);
        assert!(problem.contains("end of input"), "{problem}");
        assert!(refusal("version_policy { latest {} all {} }").1.contains("policy_choice"));
    }

    #[test]
    fn nesting_without_end_is_refused_and_not_followed() {
        let openings =
            ["{", "<", "[", "input {", "[a.b/", "[a/repository.ModelConfig]{", "[a/repository.ModelInput]: <"];
        for opening in openings {
            assert!(read(&opening.repeat(200_000)).is_err(), "{opening}");
        }
        let (line, problem) = refusal(&"[a/repository.ModelConfig] {\n".repeat(NESTING_MAX + 1));
        assert_eq!((line, problem.as_str()), (NESTING_MAX + 1, "more than 32 messages and lists within each other"));
    }

    #[test]
    fn brackets_that_close_and_those_in_strings_and_comments_are_no_nesting() {
        let many = |text: &str| read(&text.repeat(10 * NESTING_MAX)).map(|_| ());
        assert_eq!(many("input { name: \"{[<\" } # {[<\n output [ { name: '\\'{' } ] version_policy < >"), refused());
        assert_eq!(many("input { name: \"{[<\" } # {[<\n output [ { name: '\\'{' } ]"), Ok(()));
    }

    /// The refusal of a second version policy: the whole text before it was read.
    fn refused() -> Result<(), BadText> {
        Err(BadText { line: 3, problem: "'version_policy' is already set".into() })
    }
}
