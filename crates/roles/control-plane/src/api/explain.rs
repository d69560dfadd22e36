//! The port to the flight recorders of this replica, and its answers as messages.

use std::sync::{Arc, OnceLock};

use symphony_explain::{Explanation, Question};
use symphony_protocol::control as pb;
use symphony_protocol::control::explain_request::Question as Asked;
use symphony_types::{BootId, FrontendId, ModelId, RequestId};
use tonic::Status;

/// A source of explanations. May block for milliseconds.
pub trait Remembers: std::fmt::Debug + Send + Sync + 'static {
    /// The matching records, in the order of the decisions.
    fn explain(&self, question: &Question) -> Vec<Explanation>;
}

/// Set once the dispatch runtime runs; that runtime in turn needs the control plane first.
pub(crate) type Memory = Arc<OnceLock<Arc<dyn Remembers>>>;

/// Answers a call from this replica's records.
pub(crate) async fn answer(memory: &Memory, request: pb::ExplainRequest) -> Result<pb::ExplainReply, Status> {
    let question = question(request)?;
    let Some(memory) = memory.get().cloned() else { return Ok(pb::ExplainReply::default()) };
    let explained = tokio::task::spawn_blocking(move || memory.explain(&question)).await;
    let explained = explained.map_err(|error| Status::internal(format!("explaining failed: {error}")))?;
    let explanations = explained.iter().map(message).collect::<Result<_, _>>()?;
    Ok(pb::ExplainReply { explanations })
}

fn question(request: pb::ExplainRequest) -> Result<Question, Status> {
    match request.question {
        Some(Asked::Request(pb::ExplainedRequest { frontend, boot_id, sequence })) => {
            let (frontend, boot) = (FrontendId::new(frontend), BootId::new(boot_id));
            Ok(Question::Request(RequestId { frontend, boot, sequence }))
        }
        Some(Asked::LastBatches(pb::LastBatches { model, count })) => {
            Ok(Question::Last { model: ModelId::new(model), count: count as usize })
        }
        None => Err(Status::invalid_argument("question: expected request or last_batches, got none")),
    }
}

fn message(explanation: &Explanation) -> Result<pb::Explanation, Status> {
    let json = serde_json::to_string(explanation).map_err(|error| Status::internal(error.to_string()))?;
    Ok(pb::Explanation { text: explanation.to_string(), json })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_replica_that_remembers_nothing_says_so_and_a_question_without_content_is_refused() {
        let memory = Memory::default();
        let last = Asked::LastBatches(pb::LastBatches { model: 1, count: 5 });
        let reply = answer(&memory, pb::ExplainRequest { question: Some(last) }).await.unwrap();
        assert!(reply.explanations.is_empty());
        let refused = answer(&memory, pb::ExplainRequest { question: None }).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    }
}
