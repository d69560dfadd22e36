//! The frontend that a test plays.

use symphony_protocol::dispatch::{EndReason, RequestHeader, ToFrontend, ToLeader};
use symphony_transport::{LinkReceiver, LinkSender};
use symphony_types::{Nanos, RequestId};

use super::{FRONTEND, FRONTEND_BOOT, TOKEN, soon};

pub(crate) struct Frontend {
    pub(crate) sender: LinkSender<ToLeader>,
    pub(crate) receiver: LinkReceiver<ToFrontend>,
}

impl Frontend {
    pub(crate) fn announce(&self, requests: &[RequestHeader]) {
        self.sender.send(ToLeader::Announce { token: TOKEN, requests: requests.to_vec() }).unwrap();
    }

    pub(crate) fn redrive(&self, requests: &[RequestHeader]) {
        let requests = requests.iter().map(|&request| RequestHeader { attempt: 2, ..request }).collect();
        self.sender.send(ToLeader::Redrive { token: TOKEN, requests, last: true }).unwrap();
    }

    pub(crate) async fn next_end(&mut self) -> (u64, EndReason) {
        match soon("outcome", self.receiver.receive()).await.unwrap().message {
            ToFrontend::Ended { requests } => requests[0],
            other => panic!("{other:?} instead of an outcome"),
        }
    }

    pub(crate) async fn closed(&mut self) {
        soon("end of the link", async { while self.receiver.receive().await.is_ok() {} }).await;
    }
}

pub(crate) fn header(sequence: u64, model: u32) -> RequestHeader {
    RequestHeader { sequence, model, items: 1, budget: Nanos::from_millis(10_000).get(), attempt: 1, weight: 1000 }
}

pub(crate) fn id(sequence: u64) -> RequestId {
    RequestId { frontend: FRONTEND, boot: FRONTEND_BOOT, sequence }
}
