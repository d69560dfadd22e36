//! One request, and the message that carries it.

use std::time::Duration;

use symphony_protocol::inference as pb;
use symphony_protocol::inference::infer_parameter::ParameterChoice;
use symphony_protocol::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use symphony_protocol::parameters::{ACCEPT_LATE, CLASSIFICATION, EXCEED_SLO, TIMEOUT};

use crate::tensor::Tensor;

/// A request for one model: named inputs, and how it wants its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    model: String,
    id: Option<String>,
    inputs: Vec<Tensor>,
    outputs: Vec<Output>,
    within: Option<Duration>,
    exceed_slo: bool,
    accept_late: bool,
}

/// An output that is asked for.
#[derive(Clone, Debug, PartialEq)]
struct Output {
    name: String,
    /// This many of the likeliest classes, in place of the elements.
    classes: Option<u32>,
}

impl Request {
    /// A request for that model without inputs yet, for all of its outputs.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            id: None,
            inputs: Vec::new(),
            outputs: Vec::new(),
            within: None,
            exceed_slo: false,
            accept_late: false,
        }
    }

    /// With this input too.
    #[must_use]
    pub fn input(mut self, tensor: Tensor) -> Self {
        self.inputs.push(tensor);
        self
    }

    /// With this output; without any call of this kind all outputs come.
    #[must_use]
    pub fn output(mut self, name: impl Into<String>) -> Self {
        self.outputs.push(Output { name: name.into(), classes: None });
        self
    }

    /// With the `classes` likeliest classes of this output instead of its elements: byte strings `value:index:label`,
    /// or `value:index` if the model has no labels for it.
    #[must_use]
    pub fn classification(mut self, output: impl Into<String>, classes: u32) -> Self {
        self.outputs.push(Output { name: output.into(), classes: Some(classes) });
        self
    }

    /// Due within this time of the call of [`Client::infer`](crate::Client::infer). The model's SLO holds too, if it is
    /// shorter.
    #[must_use]
    pub const fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }

    /// The time of [`within`](Self::within) replaces the model's SLO, also if it is longer.
    #[must_use]
    pub const fn exceed_slo(mut self) -> Self {
        self.exceed_slo = true;
        self
    }

    /// An answer that comes after the deadline is delivered ([`Answer::late`](crate::Answer::late)) and no error.
    #[must_use]
    pub const fn accept_late(mut self) -> Self {
        self.accept_late = true;
        self
    }

    /// Under the caller's own name, which comes back with the answer; without it the client makes one. Frontends do not
    /// look at it: requests of one name are two requests.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The time it may take.
    pub(crate) const fn time(&self) -> Option<Duration> {
        self.within
    }

    /// Errors that the client finds without a frontend.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.model.is_empty() {
            return Some("the name of the model is empty".to_owned());
        }
        if self.exceed_slo && self.within.is_none() {
            return Some("exceed_slo without a time: say within which time the answer is wanted".to_owned());
        }
        let twice = self
            .inputs
            .iter()
            .enumerate()
            .find(|(index, input)| self.inputs[..*index].iter().any(|earlier| earlier.name() == input.name()));
        twice.map(|(_, input)| format!("input `{}` is given twice", input.name()))
    }

    /// The caller's own name for it, or `fresh`.
    pub(crate) fn take_id(&mut self, fresh: impl FnOnce() -> String) -> String {
        self.id.take().unwrap_or_else(fresh)
    }

    /// The message of one attempt, with the remaining time.
    pub(crate) fn message(&self, id: &str, left: Option<Duration>) -> pb::ModelInferRequest {
        let mut parameters = Vec::new();
        if let Some(left) = left {
            // At least 1, since 0 means "not stated".
            let micros = i64::try_from(left.as_micros()).unwrap_or(i64::MAX).max(1);
            parameters.push((TIMEOUT, ParameterChoice::Int64Param(micros)));
        }
        let flags = [(EXCEED_SLO, self.exceed_slo), (ACCEPT_LATE, self.accept_late)];
        parameters.extend(
            flags.into_iter().filter(|&(_, set)| set).map(|(name, _)| (name, ParameterChoice::BoolParam(true))),
        );
        let input = |tensor: &Tensor| InferInputTensor {
            name: tensor.name().to_owned(),
            datatype: tensor.element().name().to_owned(),
            shape: tensor.shape().iter().map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect(),
            ..InferInputTensor::default()
        };
        let output = |output: &Output| InferRequestedOutputTensor {
            name: output.name.clone(),
            parameters: output
                .classes
                .map(|classes| named(CLASSIFICATION, ParameterChoice::Int64Param(classes.into())))
                .into_iter()
                .collect(),
        };
        pb::ModelInferRequest {
            model_name: self.model.clone(),
            id: id.to_owned(),
            parameters: parameters.into_iter().map(|(name, choice)| named(name, choice)).collect(),
            inputs: self.inputs.iter().map(input).collect(),
            outputs: self.outputs.iter().map(output).collect(),
            raw_input_contents: self.inputs.iter().map(|tensor| tensor.data().clone()).collect(),
            ..pb::ModelInferRequest::default()
        }
    }
}

fn named(name: &str, choice: ParameterChoice) -> (String, pb::InferParameter) {
    (name.to_owned(), pb::InferParameter { parameter_choice: Some(choice) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_is_left_and_nothing_that_was_not_asked_for() {
        let request = Request::new("m").input(Tensor::new("x", &[1, 2], &[1_u8, 2]).unwrap());
        let message = request.message("7", None);
        assert!(message.parameters.is_empty() && message.outputs.is_empty());
        assert_eq!(
            (message.inputs[0].datatype.as_str(), message.inputs[0].shape.as_slice()),
            ("UINT8", [1, 2].as_slice())
        );
        assert_eq!((message.raw_input_contents.len(), message.id.as_str()), (1, "7"));

        let asks =
            request.within(Duration::from_millis(5)).exceed_slo().accept_late().classification("y", 3).output("z");
        assert_eq!(asks.problem(), None);
        let message = asks.message("7", Some(Duration::ZERO));
        let choice = |name: &str| message.parameters[name].parameter_choice.clone().unwrap();
        assert_eq!(choice("timeout"), ParameterChoice::Int64Param(1), "0 would mean: not stated");
        assert_eq!(choice("symphony_exceed_slo"), ParameterChoice::BoolParam(true));
        assert_eq!(choice("symphony_accept_late"), ParameterChoice::BoolParam(true));
        let classes = message.outputs[0].parameters["classification"].parameter_choice.clone().unwrap();
        assert_eq!((classes, message.outputs[1].parameters.len()), (ParameterChoice::Int64Param(3), 0));
    }

    #[test]
    fn what_can_not_be_right_is_told_without_asking() {
        let tensor = || Tensor::new("x", &[1], &[1_u8]).unwrap();
        assert!(Request::new("").problem().is_some());
        assert!(Request::new("m").exceed_slo().problem().is_some());
        let twice = Request::new("m").input(tensor()).input(tensor());
        assert_eq!(twice.problem().as_deref(), Some("input `x` is given twice"));
    }
}
