//! The answer to a request, read from its message.

use std::time::Duration;

use symphony_protocol::inference as pb;
use symphony_protocol::inference::infer_parameter::ParameterChoice;
use symphony_protocol::parameters::{BATCH, EXECUTION, LATE, REQUEST_ID};

use crate::tensor::{ElementType, Tensor, TensorError};

/// The outputs of a request, and the frontend's data on its execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The request's name.
    pub id: String,
    /// Its outputs, in the order asked for or that of the model.
    pub outputs: Vec<Tensor>,
    /// Items of the whole batch it ran in, if the server reports it.
    pub batch: Option<u32>,
    /// Execution time of that batch, if the server reports it.
    pub execution: Option<Duration>,
    /// The id of the request for `symphony explain`, if the server sends it.
    pub request_id: Option<String>,
    /// It came after its deadline; only with [`Request::accept_late`](crate::Request::accept_late).
    pub late: bool,
}

/// Why an answer is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// There is no output of that name.
    #[error("there is no output `{asked}`; the answer has {got}")]
    NoOutput {
        /// The name asked for.
        asked: String,
        /// The names there are.
        got: String,
    },
    /// A tensor's bytes do not fit its shape and type.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// The message is not as the protocol has it.
    #[error("{0}")]
    Message(String),
}

impl Answer {
    /// The output of that name.
    ///
    /// # Errors
    /// If there is none.
    pub fn output(&self, name: &str) -> Result<&Tensor, BadAnswer> {
        self.outputs.iter().find(|output| output.name() == name).ok_or_else(|| BadAnswer::NoOutput {
            asked: name.to_owned(),
            got: self.outputs.iter().map(Tensor::name).collect::<Vec<_>>().join(", "),
        })
    }
}

/// Reads the answer to a request with raw inputs: its outputs are raw too. Panics on nothing that a server can send.
impl TryFrom<pb::ModelInferResponse> for Answer {
    type Error = BadAnswer;

    fn try_from(message: pb::ModelInferResponse) -> Result<Self, BadAnswer> {
        let choice = |name: &str| message.parameters.get(name).and_then(|p| p.parameter_choice.as_ref());
        let number = |name: &str| match choice(name) {
            Some(ParameterChoice::Int64Param(number)) => u64::try_from(*number).ok(),
            Some(ParameterChoice::Uint64Param(number)) => Some(*number),
            _ => None,
        };
        let batch = number(BATCH).and_then(|items| u32::try_from(items).ok());
        let execution = number(EXECUTION).map(Duration::from_micros);
        let late = matches!(choice(LATE), Some(ParameterChoice::BoolParam(true)));
        let request_id = match choice(REQUEST_ID) {
            Some(ParameterChoice::StringParam(id)) => Some(id.clone()),
            _ => None,
        };
        if message.outputs.len() != message.raw_output_contents.len() {
            let (outputs, raw) = (message.outputs.len(), message.raw_output_contents.len());
            return Err(BadAnswer::Message(format!("it has {outputs} outputs and the data of {raw}")));
        }
        let output = |(output, data): (pb::model_infer_response::InferOutputTensor, bytes::Bytes)| {
            let (name, datatype) = (output.name, output.datatype);
            let element = ElementType::named(&datatype)
                .ok_or_else(|| BadAnswer::Message(format!("output `{name}` has the unknown data type `{datatype}`")))?;
            let shape: Result<Vec<_>, _> = output.shape.iter().map(|&dim| u64::try_from(dim)).collect();
            let shape =
                shape.map_err(|_| BadAnswer::Message(format!("output `{name}` has the shape {:?}", output.shape)))?;
            Ok(Tensor::raw(name, element, &shape, data)?)
        };
        let outputs = message.outputs.into_iter().zip(message.raw_output_contents).map(output);
        Ok(Self {
            id: message.id,
            outputs: outputs.collect::<Result<_, BadAnswer>>()?,
            batch,
            execution,
            request_id,
            late,
        })
    }
}

#[cfg(test)]
mod tests {
    use pb::model_infer_response::InferOutputTensor;

    use super::*;

    fn output(datatype: &str, shape: &[i64]) -> InferOutputTensor {
        let (name, datatype) = ("y".to_owned(), datatype.to_owned());
        InferOutputTensor { name, datatype, shape: shape.to_vec(), ..InferOutputTensor::default() }
    }

    fn message(output: InferOutputTensor, data: &'static [u8]) -> pb::ModelInferResponse {
        let raw_output_contents = vec![bytes::Bytes::from_static(data)];
        pb::ModelInferResponse { outputs: vec![output], raw_output_contents, ..pb::ModelInferResponse::default() }
    }

    #[test]
    fn an_answer_is_read_with_what_the_server_says_of_it() {
        let mut message = message(output("INT16", &[1, 2]), &[1, 0, 2, 0]);
        for (name, choice) in [
            (BATCH, ParameterChoice::Int64Param(5)),
            (EXECUTION, ParameterChoice::Uint64Param(1500)),
            (REQUEST_ID, ParameterChoice::StringParam("f1/2/3".into())),
            (LATE, ParameterChoice::BoolParam(true)),
        ] {
            message.parameters.insert(name.into(), pb::InferParameter { parameter_choice: Some(choice) });
        }
        let answer = Answer::try_from(message).unwrap();
        assert_eq!(answer.output("y").unwrap().values::<i16>().unwrap(), [1, 2]);
        let metadata = (answer.batch, answer.execution, answer.request_id.as_deref(), answer.late);
        assert_eq!(metadata, (Some(5), Some(Duration::from_micros(1500)), Some("f1/2/3"), true));
        let missing = answer.output("z").unwrap_err().to_string();
        assert_eq!(missing, "there is no output `z`; the answer has y");
    }

    #[test]
    fn answers_that_do_not_fit_themselves_are_refused() {
        let whole = || message(output("INT16", &[1, 2]), &[1, 0, 2, 0]);
        assert!(Answer::try_from(whole()).is_ok());
        let refused = [
            message(output("INT16", &[1, 3]), &[1, 0, 2, 0]),
            message(output("INT16", &[-1, -2]), &[1, 0, 2, 0]),
            message(output("INT16", &[i64::MAX, i64::MAX]), &[]),
            message(output("INT17", &[1, 2]), &[1, 0, 2, 0]),
            message(output("BYTES", &[1]), &[9, 0, 0, 0, 1]),
            pb::ModelInferResponse { raw_output_contents: Vec::new(), ..whole() },
        ];
        for message in refused {
            let read = Answer::try_from(message.clone());
            assert!(read.is_err(), "{message:?} was read as {read:?}");
        }
    }
}
