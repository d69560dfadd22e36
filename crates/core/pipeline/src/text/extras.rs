//! `pipeline.toml`, beside the `config.pbtxt` of an ensemble: what Triton cannot say. Unknown keys are errors.

use serde::Deserialize;
use symphony_types::{Finite, Nanos, RequestValue, SLO_MAX};

use super::edge_keys::{EdgeKeys, of_edge};
use super::pipeline_file::{PipelineError, checked_value, text_error};
use crate::declaration::{BoxUnit, Crop, DeclaredCondition, DeclaredEdge};
use crate::limits::{EDGES_MAX, FAN_OUT_MAX};
use crate::pipeline::EdgeSpec;
use crate::refused::Refused;

/// The keys of a pipeline beside its steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PipelineExtras {
    /// Its latency budget.
    pub slo: Option<Nanos>,
    /// What a request is worth.
    pub value: Option<RequestValue>,
    /// Whether a request is answered without what was lost.
    pub partial: bool,
    /// Edges that do more than carry a whole result.
    pub edges: Vec<DeclaredEdge>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExtrasText {
    slo_ms: Option<f64>,
    value: Option<f64>,
    #[serde(default)]
    partial: bool,
    #[serde(default)]
    edge: Vec<EdgeText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EdgeText {
    from: String,
    to: String,
    gamma: Option<f64>,
    for_each: Option<String>,
    #[serde(rename = "where")]
    condition: Option<String>,
    most: Option<u32>,
    crop: Option<String>,
    crop_unit: Option<String>,
}

impl PipelineExtras {
    /// Reads the `text` of `file`.
    ///
    /// # Errors
    /// If anything is unknown or invalid; the message names file, key and what was expected.
    /// [`PipelineDeclaration::validate`](crate::PipelineDeclaration::validate) checks whether its stages exist.
    pub fn parse(file: &str, text: &str) -> Result<Self, PipelineError> {
        let parsed: ExtrasText = toml::from_str(text).map_err(|error| text_error(file, &error))?;
        checked(parsed).map_err(|refused| PipelineError::Value { file: file.to_owned(), refused })
    }
}

fn checked(text: ExtrasText) -> Result<PipelineExtras, Refused> {
    let slo = match text.slo_ms {
        None => None,
        Some(ms) => match Nanos::from_millis_f64(ms) {
            slo if slo > Nanos::ZERO && slo <= SLO_MAX => Some(slo),
            _ => {
                let expected = format!("a number above 0, at most {}", SLO_MAX.as_millis_f64());
                return Err(Refused::new("slo_ms", expected, ms));
            }
        },
    };
    let value = text.value.map(checked_value).transpose()?;
    if text.edge.len() > EDGES_MAX {
        return Err(Refused::new("edge", format!("at most {EDGES_MAX} edges"), text.edge.len()));
    }
    let edges = text.edge.into_iter().enumerate().map(|(at, edge)| checked_edge(at, edge));
    Ok(PipelineExtras { slo, value, partial: text.partial, edges: edges.collect::<Result<_, _>>()? })
}

fn checked_edge(at: usize, text: EdgeText) -> Result<DeclaredEdge, Refused> {
    let key = |name: &str| format!("edge.{at}.{name}");
    let keys = EdgeKeys {
        from: &text.from,
        to: &text.to,
        gamma: text.gamma,
        for_each: text.for_each.as_deref(),
        condition: text.condition.as_deref(),
        most: text.most,
    };
    let EdgeSpec { per_row: for_each, condition, gamma, .. } =
        keys.checked().map_err(|refused| of_edge(at, refused))?;
    let finite = Finite::try_from(gamma).ok().filter(|_| gamma > 0.0 && gamma <= f64::from(FAN_OUT_MAX));
    let gamma =
        finite.ok_or_else(|| Refused::new(key("gamma"), format!("a number above 0, at most {FAN_OUT_MAX}"), gamma))?;
    let unit = match (text.crop_unit.as_deref(), &text.crop) {
        (None, _) => BoxUnit::default(),
        (Some(word), None) => {
            return Err(Refused::new(key("crop_unit"), "`crop` beside it", format!("\"{word}\" alone")));
        }
        (Some(word), Some(_)) => BoxUnit::of_word(word)
            .ok_or_else(|| Refused::new(key("crop_unit"), "\"share\" or \"pixel\"", format!("\"{word}\"")))?,
    };
    Ok(DeclaredEdge {
        from: text.from,
        to: text.to,
        gamma,
        for_each,
        condition: condition.as_ref().map(DeclaredCondition::from),
        most: text.most,
        crop: text.crop.map(|boxes| Crop { boxes, unit }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
slo_ms = 200.0
value = 2.5
partial = true
[[edge]]
from = "detect"
to = "recognise"
for_each = "row"
where = "scores > 0.5"
crop = "boxes"
crop_unit = "pixel"
most = 16
gamma = 4.0
"#;

    #[test]
    fn a_file_is_read_and_an_empty_one_says_nothing() {
        let extras = PipelineExtras::parse("p", WHOLE).unwrap();
        assert_eq!((extras.slo, extras.partial), (Some(Nanos::from_millis(200)), true));
        assert_eq!(extras.value, RequestValue::from_number(2.5));
        let [edge] = &extras.edges[..] else { panic!("{extras:?}") };
        assert_eq!((edge.gamma.get(), edge.for_each, edge.most), (4.0, true, Some(16)));
        assert_eq!(edge.condition.as_ref().unwrap().to_string(), "scores > 0.5");
        assert_eq!(edge.crop, Some(Crop { boxes: "boxes".into(), unit: BoxUnit::Pixel }));
        assert_eq!(PipelineExtras::parse("p", ""), Ok(PipelineExtras::default()));
    }

    #[test]
    fn mistakes_are_named_by_file_and_key_with_what_was_expected() {
        for (from, to, words) in [
            ("slo_ms = 200.0", "slo = 1", "unknown field `slo`"),
            ("slo_ms = 200.0", "slo_ms = nan", "key `slo_ms`: expected a number above 0"),
            ("slo_ms = 200.0", "slo_ms = 1e9", "key `slo_ms`: expected a number above 0, at most 3600000, got 1"),
            ("value = 2.5", "value = 0.0", "key `value`: expected a number from 0.001 to 1000, got 0"),
            ("\"row\"", "\"box\"", "key `edge.0.for_each`: expected \"row\", got \"box\""),
            ("scores > 0.5", "scores", "key `edge.0.where`: expected an output, one of"),
            ("\"pixel\"", "\"inch\"", "key `edge.0.crop_unit`: expected \"share\" or \"pixel\", got \"inch\""),
            ("crop = \"boxes\"", "", "key `edge.0.crop_unit`: expected `crop` beside it"),
            ("gamma = 4.0", "gamma = inf", "key `edge.0.gamma`: expected a number above 0, at most 1024, got inf"),
            ("to = \"recognise\"", "", "missing field `to`"),
        ] {
            assert!(WHOLE.contains(from), "{from}");
            let error = PipelineExtras::parse("p.toml", &WHOLE.replace(from, to)).unwrap_err().to_string();
            assert!(error.starts_with("p.toml: ") && error.contains(words), "{error}");
        }
    }
}
