//! The parameters of a request: its deadline, and how it wants its answer.

use std::time::Instant;

use symphony_protocol::parameters::{ACCEPT_LATE, CLASSIFICATION, EXCEED_SLO, TIMEOUT};
pub(crate) use symphony_protocol::parameters::{BATCH, EXECUTION, LATE, REQUEST_ID, REQUEST_ID_HEADER};
use symphony_telemetry::{TRACEPARENT, TraceContext};
use symphony_types::{Nanos, RequestValue, parse_version};

use super::refusal_text::{invalid, shorten};
use super::shared_regions::Placement;
use super::{InferError, ModelInfo, Parameter, RequestedDeadline};

/// Header and metadata that name the version of the model where path or message do not.
pub(super) const VERSION_HEADER: &str = "x-model-version";

/// Header and metadata that state an SLO in milliseconds.
pub const SLO_HEADER: &str = "x-slo-ms";
/// Has in an error of a stream what the trailer `symphony-reason` has elsewhere: a stream has trailers at its end only.
pub(crate) const REASON: &str = "symphony_reason";
/// In an error of a stream: after how many milliseconds the same request may succeed, if it may.
pub(crate) const RETRY_AFTER: &str = "symphony_retry_after_ms";
/// Classes of one item that may be asked for: a client that wants more than a catalogue has should take the elements.
const CLASSES_MAX: u32 = 1024;

const BINARY_DATA_OUTPUT: &str = "binary_data_output";
const SEQUENCE_ID: &str = "sequence_id";
const SEQUENCE_START: &str = "sequence_start";
const SEQUENCE_END: &str = "sequence_end";
const PRIORITY: &str = "priority";
/// Asks for a mark on the last answer of a request, as Triton's clients of streams do.
const FINAL_RESPONSE_WANTED: &str = "triton_enable_empty_final_response";
/// Marks the last answer of a request.
pub(crate) const FINAL_RESPONSE: &str = "triton_final_response";
/// Lowest priority: its requests are worth a thousandth of those of the highest.
const PRIORITY_MAX: u32 = 1000;
/// Parameter of an output of a pipeline whose rows are any number: of which item and which rows of the stages before it
/// each row is.
pub(crate) const ROWS: &str = "symphony_rows";
/// Marks an answer of a pipeline that lacks rows.
pub(crate) const PARTIAL: &str = "symphony_partial";
/// What `symphony explain` knows a pipeline's stage requests as: the first ones.
pub(crate) const STAGES: &str = "symphony_stages";
/// Parameter of a tensor: bytes of its data behind the JSON.
pub(crate) const BINARY_DATA_SIZE: &str = "binary_data_size";
/// Parameter of a requested output: its data is to come behind the JSON.
pub(crate) const BINARY_DATA: &str = "binary_data";
/// Parameters of a tensor that is in shared memory: the name of a region, where in it the tensor begins, and its bytes.
pub(crate) const SHARED_MEMORY_REGION: &str = "shared_memory_region";
pub(crate) const SHARED_MEMORY_OFFSET: &str = "shared_memory_offset";
pub(crate) const SHARED_MEMORY_BYTE_SIZE: &str = "shared_memory_byte_size";

/// Parameters that a request may have.
const OF_REQUESTS: &[&str] = &[
    TIMEOUT,
    EXCEED_SLO,
    ACCEPT_LATE,
    BINARY_DATA_OUTPUT,
    PRIORITY,
    FINAL_RESPONSE_WANTED,
    SEQUENCE_ID,
    SEQUENCE_START,
    SEQUENCE_END,
];
/// Parameters that an input may have, and a requested output. Over gRPC binary data has its place in the protocol, but
/// clients of both protocols send its parameters all the same.
const OF_INPUTS: &[&str] = &[BINARY_DATA_SIZE, SHARED_MEMORY_REGION, SHARED_MEMORY_OFFSET, SHARED_MEMORY_BYTE_SIZE];
const OF_OUTPUTS: &[&str] =
    &[BINARY_DATA, CLASSIFICATION, SHARED_MEMORY_REGION, SHARED_MEMORY_OFFSET, SHARED_MEMORY_BYTE_SIZE];

/// Parameters of a request. Any other is refused, so that no client believes that it has an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestParameters {
    /// 1 is the highest; 0 is not stated, which is the same.
    priority: u32,
    /// The last answer is marked.
    pub(crate) says_final: bool,
    timeout: Option<Nanos>,
    exceed_slo: bool,
    pub(crate) late_answer: LateAnswer,
    /// Outputs without a parameter of their own are to come as binary data.
    pub(crate) binary_output: bool,
}

/// What becomes of an answer that came after its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LateAnswer {
    /// The client gets an error, as for a deadline that passed without an answer.
    #[default]
    Refuse,
    /// The client gets it, marked as late: it set the parameter `symphony_accept_late`.
    Deliver,
}

impl RequestParameters {
    pub(crate) fn parse<'a>(parameters: impl Iterator<Item = (&'a str, Parameter)>) -> Result<Self, InferError> {
        let mut parsed = Self::default();
        let mut unknown = Vec::new();
        for (name, value) in parameters {
            match name {
                TIMEOUT => parsed.timeout = timeout(&value)?,
                EXCEED_SLO => parsed.exceed_slo = boolean(name, &value)?,
                ACCEPT_LATE => {
                    parsed.late_answer = if boolean(name, &value)? { LateAnswer::Deliver } else { LateAnswer::Refuse };
                }
                BINARY_DATA_OUTPUT => parsed.binary_output = boolean(name, &value)?,
                SEQUENCE_ID => refuse_sequence(&value)?,
                SEQUENCE_START | SEQUENCE_END if boolean(name, &value)? => return Err(no_sequences()),
                SEQUENCE_START | SEQUENCE_END => {}
                PRIORITY => parsed.priority = priority(&value)?,
                FINAL_RESPONSE_WANTED => parsed.says_final = boolean(name, &value)?,
                _ => unknown.push(name),
            }
        }
        refuse_unknown("the request has", unknown, OF_REQUESTS)?;
        Ok(parsed)
    }

    /// Whether the model supports the request's parameters.
    ///
    /// # Errors
    /// If not.
    pub(crate) fn check_for(&self, model: &ModelInfo) -> Result<(), InferError> {
        if self.priority == 0 || model.sheds {
            return Ok(());
        }
        let words = "gives up requests by their deadlines alone (models with policy `auto`, or `shed = \"proportional\"` in \
                     another, shed by priority)";
        Err(invalid(format!(
            "parameter {PRIORITY} means nothing to model `{}`, which {words}; leave it out",
            model.name
        )))
    }

    /// The value of the request: the caller's weight, reduced by `priority`.
    pub(crate) fn weight(&self, caller: RequestValue) -> RequestValue {
        // Only less: every client would ask for more.
        let thousandths = caller.thousandths() / self.priority.max(1);
        RequestValue::from_thousandths(thousandths).unwrap_or(RequestValue::MIN)
    }

    /// The client's words about time, together with those in headers.
    pub(crate) fn deadline(&self, arrived: Instant, headers: CallHeaders) -> RequestedDeadline {
        RequestedDeadline {
            arrived,
            timeout: self.timeout,
            grpc: headers.grpc,
            slo: headers.slo,
            exceed_slo: self.exceed_slo,
        }
    }
}

/// Words about time, and the trace that a call belongs to, in HTTP headers or gRPC metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallHeaders {
    pub(crate) grpc: Option<Nanos>,
    pub(crate) slo: Option<Nanos>,
    /// The version that is meant where the call itself names none.
    pub(crate) version: Option<u64>,
    pub(crate) trace: Option<TraceContext>,
}

impl CallHeaders {
    pub(crate) fn parse(headers: &axum::http::HeaderMap) -> Result<Self, InferError> {
        let text = |name: &str| -> Result<Option<&str>, InferError> {
            let text = headers.get(name).map(axum::http::HeaderValue::to_str).transpose();
            text.map_err(|_| invalid(format!("header {name} is not text")))
        };
        Ok(Self {
            grpc: text("grpc-timeout")?.map(parse_grpc_timeout).transpose()?,
            slo: text(SLO_HEADER)?.map(parse_slo_ms).transpose()?,
            version: text(VERSION_HEADER)?.map(parse_version_header).transpose()?,
            trace: trace_of(headers),
        })
    }
}

fn parse_version_header(text: &str) -> Result<u64, InferError> {
    let expected = || invalid(format!("{VERSION_HEADER} is `{}`; expected a number from 1", shorten(text)));
    parse_version(text.trim()).ok_or_else(expected)
}

/// The trace that a call belongs to. An invalid one is ignored: no request is refused for its trace.
pub(crate) fn trace_of(headers: &axum::http::HeaderMap) -> Option<TraceContext> {
    headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()?.parse().ok())
}

/// Reads `x-slo-ms`: a positive number of milliseconds, with or without a fraction.
///
/// # Errors
///
/// Says what was expected.
pub fn parse_slo_ms(text: &str) -> Result<Nanos, InferError> {
    let millis = text.trim().parse::<f64>().ok().filter(|millis| millis.is_finite() && *millis > 0.0);
    millis.map(Nanos::from_millis_f64).ok_or_else(|| {
        invalid(format!("{SLO_HEADER} is `{}`; expected a positive number of milliseconds", shorten(text)))
    })
}

/// Reads `grpc-timeout`: one to eight digits and a unit of H, M, S, m, u, n.
///
/// # Errors
///
/// Says what was expected.
pub fn parse_grpc_timeout(text: &str) -> Result<Nanos, InferError> {
    const DIGITS_MAX: usize = 8;
    let parse = || {
        let (unit_at, unit) = text.char_indices().next_back()?;
        let digits = &text[..unit_at];
        if !(1..=DIGITS_MAX).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let nanos_per_unit = match unit {
            'H' => 3_600_000_000_000,
            'M' => 60_000_000_000,
            'S' => 1_000_000_000,
            'm' => 1_000_000,
            'u' => 1_000,
            'n' => 1,
            _ => return None,
        };
        Some(Nanos::new(nanos_per_unit).saturating_mul(digits.parse().ok()?))
    };
    parse().ok_or_else(|| {
        invalid(format!(
            "grpc-timeout is `{}`; expected 1 to {DIGITS_MAX} digits and a unit of H, M, S, m, u, n",
            shorten(text)
        ))
    })
}

// 0 stands for "not stated" in the clients that always send the parameter.
fn timeout(value: &Parameter) -> Result<Option<Nanos>, InferError> {
    let micros = match *value {
        Parameter::Int(micros) => u64::try_from(micros).ok(),
        Parameter::Uint(micros) => Some(micros),
        _ => None,
    };
    match micros {
        Some(0) => Ok(None),
        Some(micros) => Ok(Some(Nanos::from_micros(micros))),
        None => {
            Err(invalid(format!("parameter {TIMEOUT} is {}; expected a whole number of microseconds", show(value))))
        }
    }
}

fn boolean(name: &str, value: &Parameter) -> Result<bool, InferError> {
    match value {
        Parameter::Bool(value) => Ok(*value),
        other => Err(invalid(format!("parameter {name} is {}; expected true or false", show(other)))),
    }
}

// 0 stands for "not stated" in Triton's protocol.
fn priority(value: &Parameter) -> Result<u32, InferError> {
    let number = match *value {
        Parameter::Int(number) => u32::try_from(number).ok(),
        _ => None,
    };
    number.filter(|&number| number <= PRIORITY_MAX).ok_or_else(|| {
        let given = show(value);
        invalid(format!("parameter {PRIORITY} is {given}; expected 1, the highest, to {PRIORITY_MAX}, or 0 for none"))
    })
}

/// Refuses the parameters `unknown`, if there are any.
fn refuse_unknown(whose: &str, mut unknown: Vec<&str>, known: &[&str]) -> Result<(), InferError> {
    /// Names in a refusal; a request may have thousands.
    const NAMED_MAX: usize = 8;
    if unknown.is_empty() {
        return Ok(());
    }
    // Maps of clients have no order.
    unknown.sort_unstable();
    let more = unknown.len().saturating_sub(NAMED_MAX);
    let mut names: Vec<_> = unknown.iter().take(NAMED_MAX).map(|name| format!("`{}`", shorten(name))).collect();
    if more > 0 {
        names.push(format!("{more} more"));
    }
    let (names, known) = (names.join(", "), known.join(", "));
    Err(invalid(format!("{whose} parameters that mean nothing here: {names}; expected none but {known}")))
}

fn refuse_sequence(value: &Parameter) -> Result<(), InferError> {
    match value {
        Parameter::Int(0) | Parameter::Uint(0) => Ok(()),
        Parameter::Text(text) if text.is_empty() => Ok(()),
        _ => Err(no_sequences()),
    }
}

fn no_sequences() -> InferError {
    InferError::Unsupported("sequences are not supported: leave the parameter sequence_id away".into())
}

/// The parameters of a placement so far.
#[derive(Debug, Default)]
struct PlacementParameters {
    region: Option<String>,
    offset: Option<u64>,
    bytes: Option<u64>,
}

impl PlacementParameters {
    /// Takes a parameter, if it is one of a placement.
    fn take(&mut self, name: &str, value: &Parameter) -> Result<bool, InferError> {
        match (name, value) {
            (SHARED_MEMORY_REGION, Parameter::Text(region)) => self.region = Some(region.clone()),
            (SHARED_MEMORY_REGION, other) => {
                return Err(invalid(format!("parameter {name} is {}; expected the name of a region", show(other))));
            }
            (SHARED_MEMORY_OFFSET, value) => self.offset = Some(byte_count(name, value)?),
            (SHARED_MEMORY_BYTE_SIZE, value) => self.bytes = Some(byte_count(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn placement(self) -> Result<Option<Placement>, InferError> {
        match self {
            Self { region: None, offset: None, bytes: None } => Ok(None),
            Self { region: Some(region), offset, bytes: Some(bytes) } => {
                Ok(Some(Placement { region, offset: offset.unwrap_or(0), bytes }))
            }
            _ => Err(invalid(format!(
                "a tensor in shared memory needs both {SHARED_MEMORY_REGION} and {SHARED_MEMORY_BYTE_SIZE}"
            ))),
        }
    }
}

fn byte_count(name: &str, value: &Parameter) -> Result<u64, InferError> {
    let bytes = match *value {
        Parameter::Int(bytes) => u64::try_from(bytes).ok(),
        Parameter::Uint(bytes) => Some(bytes),
        _ => None,
    };
    bytes.ok_or_else(|| invalid(format!("parameter {name} is {}; expected a number of bytes", show(value))))
}

/// The parameters of one input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InputParameters {
    /// Bytes behind the JSON that belong to it, if it has any there.
    pub(crate) binary_bytes: Option<usize>,
    /// Where it is, if in shared memory.
    pub(crate) placed: Option<Placement>,
}

impl InputParameters {
    pub(crate) fn parse<'a>(
        input: &str,
        parameters: impl Iterator<Item = (&'a str, Parameter)>,
    ) -> Result<Self, InferError> {
        let (mut parsed, mut placement, mut unknown) = (Self::default(), PlacementParameters::default(), Vec::new());
        let of_this = |error: InferError| match error {
            InferError::InvalidRequest(why) => invalid(format!("input `{}`: {why}", shorten(input))),
            other => other,
        };
        for (name, value) in parameters {
            if name == BINARY_DATA_SIZE {
                let bytes = byte_count(name, &value).map_err(of_this)?;
                // More than memory has is more than a request has.
                parsed.binary_bytes = Some(usize::try_from(bytes).unwrap_or(usize::MAX));
            } else if !placement.take(name, &value).map_err(of_this)? {
                unknown.push(name);
            }
        }
        if !unknown.is_empty() {
            refuse_unknown(&format!("input `{}` has", shorten(input)), unknown, OF_INPUTS)?;
        }
        parsed.placed = placement.placement().map_err(of_this)?;
        Ok(parsed)
    }
}

/// The parameters of one output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutputParameters {
    /// Whether it is to come as binary data.
    pub(crate) binary: Option<bool>,
    /// The number of likeliest classes to return instead of its elements.
    pub(crate) classes: Option<u32>,
    /// Where it is to be written, if to shared memory.
    pub(crate) placed: Option<Placement>,
}

impl OutputParameters {
    pub(crate) fn parse<'a>(parameters: impl Iterator<Item = (&'a str, Parameter)>) -> Result<Self, InferError> {
        let (mut parsed, mut placement, mut unknown) = (Self::default(), PlacementParameters::default(), Vec::new());
        for (name, value) in parameters {
            match name {
                BINARY_DATA => parsed.binary = Some(boolean(name, &value)?),
                CLASSIFICATION => parsed.classes = classes(&value)?,
                _ if placement.take(name, &value)? => {}
                _ => unknown.push(name),
            }
        }
        refuse_unknown("a requested output has", unknown, OF_OUTPUTS)?;
        parsed.placed = placement.placement()?;
        if parsed.placed.is_some() && parsed.classes.is_some() {
            return Err(invalid(format!("{CLASSIFICATION} goes with no shared memory: ask for one of them")));
        }
        Ok(parsed)
    }
}

// 0 stands for "no classification" in the clients that always send the parameter.
fn classes(value: &Parameter) -> Result<Option<u32>, InferError> {
    let number = match *value {
        Parameter::Int(number) => u32::try_from(number).ok(),
        _ => None,
    };
    let refused = || {
        let given = show(value);
        invalid(format!("parameter {CLASSIFICATION} is {given}; expected a number of classes, {CLASSES_MAX} at most"))
    };
    let number = number.filter(|&classes| classes <= CLASSES_MAX);
    number.map(|classes| (classes > 0).then_some(classes)).ok_or_else(refused)
}

/// Whole microseconds, for parameters of an answer.
pub(crate) fn whole_micros(span: Nanos) -> i64 {
    const NANOS_PER_MICRO: u64 = 1_000;
    i64::try_from(span.get() / NANOS_PER_MICRO).unwrap_or(i64::MAX)
}

fn show(value: &Parameter) -> String {
    match value {
        Parameter::Bool(value) => value.to_string(),
        Parameter::Int(value) => value.to_string(),
        Parameter::Uint(value) => value.to_string(),
        Parameter::Double(value) => value.to_string(),
        Parameter::Text(text) => format!("`{}`", shorten(text)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_about_time_are_read_in_their_units() {
        assert_eq!(parse_slo_ms("12.5"), Ok(Nanos::from_micros(12_500)));
        assert_eq!(parse_grpc_timeout("100m"), Ok(Nanos::from_millis(100)));
        assert_eq!(parse_grpc_timeout("99999999H").map(Nanos::get), Ok(u64::MAX));
        assert_eq!(timeout(&Parameter::Int(1500)), Ok(Some(Nanos::from_micros(1500))));
        assert_eq!(timeout(&Parameter::Int(0)), Ok(None));
    }

    #[test]
    fn nonsense_about_time_is_refused() {
        for text in ["", "0", "-1", "NaN", "inf", "5ms", "1,5"] {
            assert!(parse_slo_ms(text).is_err(), "{text}");
        }
        for text in ["", "m", "123456789m", "1", "1.5S", "-1S", "1µ", "+1S"] {
            assert!(parse_grpc_timeout(text).is_err(), "{text}");
        }
        for value in [Parameter::Int(-1), Parameter::Bool(true), Parameter::Text("5".into()), Parameter::Double(5.0)] {
            assert!(timeout(&value).is_err(), "{value:?}");
        }
    }

    #[test]
    fn the_shortest_word_counts() {
        let parameters = [("timeout", Parameter::Int(30_000)), ("symphony_exceed_slo", Parameter::Bool(true))];
        let parsed = RequestParameters::parse(parameters.into_iter()).unwrap();
        let headers = CallHeaders {
            grpc: Some(Nanos::from_millis(20)),
            slo: Some(Nanos::from_millis(25)),
            version: None,
            trace: None,
        };
        let deadline = parsed.deadline(Instant::now(), headers);
        assert_eq!(deadline.shortest(), Some(Nanos::from_millis(20)));
        assert!(deadline.exceed_slo);
    }

    #[test]
    fn priorities_make_requests_worth_less_and_never_more() {
        let weight = |value: i64, of: f64| {
            let parsed = RequestParameters::parse([("priority", Parameter::Int(value))].into_iter()).unwrap();
            parsed.weight(RequestValue::from_number(of).unwrap()).number()
        };
        assert_eq!([0, 1, 2, 4, 1000].map(|priority| weight(priority, 4.0)), [4.0, 4.0, 2.0, 1.0, 0.004]);
        assert_eq!(weight(1000, 0.01), 0.001, "the least there is");
        for value in [Parameter::Int(-1), Parameter::Int(1001), Parameter::Text("1".into()), Parameter::Uint(u64::MAX)]
        {
            let refused = RequestParameters::parse([("priority", value)].into_iter()).unwrap_err().to_string();
            assert!(refused.contains("expected 1, the highest, to 1000"), "{refused}");
        }
    }

    #[test]
    fn what_means_nothing_here_is_refused_by_name() {
        let on = || Parameter::Bool(true);
        let request = RequestParameters::parse([("b", on()), ("timeout", Parameter::Int(1)), ("a", on())].into_iter());
        let refused = request.unwrap_err().to_string();
        assert!(refused.contains("mean nothing here: `a`, `b`; expected none but timeout, "), "{refused}");
        let many: Vec<_> = (0..5000).map(|number| number.to_string()).collect();
        let refused = RequestParameters::parse(many.iter().map(|name| (name.as_str(), on()))).unwrap_err().to_string();
        assert!(refused.contains("4992 more") && refused.len() < 1000, "{refused}");
        let refused = OutputParameters::parse([("colour", on())].into_iter()).unwrap_err().to_string();
        assert!(refused.contains("a requested output has parameters that mean nothing here: `colour`"), "{refused}");
        let input = [("colour", on()), ("binary_data_size", Parameter::Int(4))];
        let refused = InputParameters::parse("x", input.into_iter()).unwrap_err().to_string();
        assert!(refused.contains("input `x` has parameters that mean nothing here: `colour`"), "{refused}");
        let sequence = [("sequence_start", Parameter::Bool(false)), ("sequence_end", Parameter::Bool(true))];
        assert!(matches!(RequestParameters::parse(sequence.into_iter()), Err(InferError::Unsupported(_))));
    }

    #[test]
    fn a_tensor_in_shared_memory_has_a_region_and_bytes_and_perhaps_an_offset() {
        let region = || (SHARED_MEMORY_REGION, Parameter::Text("r".into()));
        let bytes = |bytes: i64| (SHARED_MEMORY_BYTE_SIZE, Parameter::Int(bytes));
        let offset = (SHARED_MEMORY_OFFSET, Parameter::Uint(u64::MAX));
        let input = |given: &[(&'static str, Parameter)]| {
            InputParameters::parse("x", given.iter().cloned()).map(|parsed| parsed.placed)
        };
        let placed = |offset: u64| Placement { region: "r".into(), offset, bytes: 8 };
        assert_eq!(input(&[region(), bytes(8)]), Ok(Some(placed(0))));
        assert_eq!(input(&[bytes(8), offset.clone(), region()]), Ok(Some(placed(u64::MAX))));
        assert_eq!(input(&[]), Ok(None));
        for given in [
            &[region()][..],
            &[bytes(8)],
            &[offset],
            &[region(), bytes(-1)],
            &[(SHARED_MEMORY_REGION, Parameter::Int(1)), bytes(8)],
        ] {
            let refused = input(given).unwrap_err().to_string();
            assert!(refused.starts_with("input `x`: "), "{refused}");
        }
        let both = [region(), bytes(8), (CLASSIFICATION, Parameter::Int(3))];
        let refused = OutputParameters::parse(both.into_iter()).unwrap_err().to_string();
        assert!(refused.contains("goes with no shared memory"), "{refused}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = parse_slo_ms(&text);
            let _ = parse_grpc_timeout(&text);
        }
    }
}
