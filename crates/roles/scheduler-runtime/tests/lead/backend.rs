//! The backend that a test plays.

use std::time::Duration;

use symphony_protocol::execute::{Done, Execute, FromBackend, SealedGpu, ToBackend};
use symphony_transport::{LinkReceiver, LinkSender};
use symphony_types::{GpuId, RequestId, Token};

use super::{BACKEND_BOOT, GPU, NODE, NODE_BOOT, SUBCLUSTER, soon};

pub(crate) struct Backend {
    pub(crate) sender: LinkSender<FromBackend>,
    pub(crate) receiver: LinkReceiver<ToBackend>,
}

impl Backend {
    pub(crate) async fn next(&mut self) -> ToBackend {
        soon("word of the leader", self.receiver.receive()).await.unwrap().message
    }

    pub(crate) async fn asked_to_seal(&mut self, token: Token) {
        assert_eq!(self.first_seal().await, [(GPU, token)]);
    }

    pub(crate) async fn asked_to_seal_again(&mut self, token: Token) {
        assert_eq!(self.seals().await, [(GPU, token)]);
    }

    pub(crate) async fn first_seal(&mut self) -> Vec<(GpuId, Token)> {
        assert!(matches!(self.next().await, ToBackend::Hello { node: NODE, boot: NODE_BOOT }));
        self.seals().await
    }

    pub(crate) async fn seals(&mut self) -> Vec<(GpuId, Token)> {
        let ToBackend::Seal { subcluster: SUBCLUSTER, gpus } = self.next().await else { panic!("no seal") };
        gpus
    }

    pub(crate) async fn says_nothing(&mut self) {
        let word = tokio::time::timeout(Duration::from_millis(50), self.receiver.receive()).await;
        assert!(word.is_err(), "{word:?}");
    }

    pub(crate) fn seal(&self, promised: Token, in_flight: Vec<RequestId>, finished: Vec<RequestId>) {
        let gpus = vec![SealedGpu { gpu: GPU, promised, free_in: 0, in_flight }];
        self.sender.send(FromBackend::Sealed { boot: BACKEND_BOOT, gpus, finished, plans: vec![] }).unwrap();
    }

    pub(crate) async fn plan(&mut self) -> Execute {
        match self.next().await {
            ToBackend::Execute(plan) => plan,
            other => panic!("{other:?} instead of a plan"),
        }
    }

    pub(crate) fn done(&self, plan: &Execute) {
        let Execute { gpu, token, sequence, model, latency, .. } = *plan;
        let done = Done { gpu, token, sequence, model, start_late: 0, latency, free_in: 0, failed: vec![] };
        self.sender.send(FromBackend::Done(done)).unwrap();
    }
}

pub(crate) fn sequences(plan: &Execute) -> Vec<u64> {
    plan.requests.iter().map(|r| r.id.sequence).collect()
}
