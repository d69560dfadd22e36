//! Leaders of the past and pretenders, against a real backend (docs/concepts/take-over.md).

use std::time::Duration;

use symphony_net::{Net, Role};
use symphony_protocol::dispatch::{RequestHeader, ToFrontend, ToLeader};
use symphony_protocol::execute::{Execute, FromBackend, PlannedRequest, Refusal, SealedGpu, ToBackend};
use symphony_tests::{Shape, emulated_model, phase, tell};
use symphony_transport::{LinkReceiver, LinkSender, connect_link};
use symphony_types::{
    BackendId, BootId, FailReason, FrontendId, GpuId, ModelId, NodeId, RequestId, SubclusterId, Token,
};

/// How long an answer over loopback may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// A process that claims to lead.
pub(crate) struct FakeLeader {
    send: LinkSender<ToBackend>,
    receive: LinkReceiver<FromBackend>,
    backend: BackendId,
    boot: BootId,
}

impl FakeLeader {
    pub(crate) async fn connect(net: &Net, exec: &str) -> Self {
        let backend = Role::Backend.into();
        let (send, mut receive) = connect_link::<ToBackend, FromBackend>(net, exec, &backend).await.unwrap();
        send.send(ToBackend::Hello { node: NodeId::new(2), boot: BootId::new(1) }).unwrap();
        let FromBackend::Welcome { backend, boot } = receive.receive().await.unwrap().message else {
            panic!("a backend begins with a welcome")
        };
        Self { send, receive, backend, boot }
    }

    /// The next answer; what the backend has measured or hosts is none.
    async fn next(&mut self) -> FromBackend {
        let answer = async {
            loop {
                match self.receive.receive().await.unwrap().message {
                    FromBackend::PayloadDelay { .. } | FromBackend::Hosts { .. } => {}
                    answer => return answer,
                }
            }
        };
        tokio::time::timeout(SOON, answer).await.expect("an answer in time")
    }

    pub(crate) async fn seal(&mut self, subcluster: SubclusterId, gpu: GpuId, token: Token) -> SealedGpu {
        self.send.send(ToBackend::Seal { subcluster, gpus: vec![(gpu, token)] }).unwrap();
        let FromBackend::Sealed { boot, mut gpus, .. } = self.next().await else { panic!("a seal is answered") };
        assert_eq!((boot, gpus.len()), (self.boot, 1));
        gpus.remove(0)
    }

    /// The answer to a plan that is not accepted.
    async fn refusal(&mut self, order: Execute) -> Refusal {
        let sent = (order.gpu, order.sequence, order.token, order.model);
        self.send.send(ToBackend::Execute(order)).unwrap();
        match self.next().await {
            FromBackend::Refused { gpu, sequence, token, model, refusal } => {
                assert_eq!((gpu, sequence, token, model), sent);
                refusal
            }
            other => panic!("the plan was not refused: {other:?}"),
        }
    }
}

#[test]
fn plans_of_old_leaders_and_pretenders_never_run() {
    tell("fencing", &Shape::emulated(&["default"]), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        let view = cluster.view().unwrap();
        let (backend, entry) = view.backends.first_key_value().unwrap();
        let gpu = &entry.gpus[0];
        let (token, older) = (view.gpu_token(entry, gpu), Token::new(view.gpu_token(entry, gpu).get() - 1));
        let newer = Token::new(view.applied_index + 1_000);
        let (&model, _) = view.models.first_key_value().unwrap();
        let order = |token, backend_boot, sequence, requests: Vec<PlannedRequest>| Execute {
            gpu: gpu.id,
            token,
            backend_boot,
            sequence,
            start_in: 0,
            latency: 6_000_000,
            model,
            requests,
        };
        let exec = cluster.address("backend-default", "exec");
        let net = cluster.net(Role::Scheduler, "2");

        cluster.block_on(async {
            let mut leader = FakeLeader::connect(&net, &exec).await;
            assert_eq!((leader.backend, leader.boot), (*backend, entry.boot));
            let boot = entry.boot;

            phase("an old token is fenced, whether in a plan or in a seal");
            assert_eq!(leader.refusal(order(older, boot, 1, vec![])).await, Refusal::Fenced { promised: token });
            assert_eq!(leader.seal(entry.subcluster, gpu.id, older).await.promised, token, "the promise stands");

            phase("the right token without a seal on this connection, and a token nobody sealed, are not enough");
            assert_eq!(leader.refusal(order(token, boot, 1, vec![])).await, Refusal::NeedSeal { promised: token });
            assert_eq!(leader.refusal(order(newer, boot, 1, vec![])).await, Refusal::NeedSeal { promised: token });

            phase("plans for another boot, another GPU");
            let former = BootId::new(boot.get() ^ 1);
            assert_eq!(leader.refusal(order(token, former, 1, vec![])).await, Refusal::WrongBoot { boot });
            let elsewhere = Execute { gpu: GpuId::new(9_999), ..order(token, boot, 1, vec![]) };
            assert_eq!(leader.refusal(elsewhere).await, Refusal::UnknownGpu);
        });
        phase("none of that disturbed the real leader");
        cluster.one_good_request("resnet").unwrap();

        phase("a seal with a newer token, as of a leader that the cluster has named since");
        let owner = RequestId { frontend: FrontendId::new(77), boot: BootId::new(7), sequence: 1 };
        let request = PlannedRequest { id: owner, items: 1, model: ModelId::default() };
        let _sealed = cluster.block_on(async {
            let mut newest = FakeLeader::connect(&net, &exec).await;
            let boot = entry.boot;
            assert_eq!(newest.seal(entry.subcluster, gpu.id, newer).await.promised, newer);
            let gap = newest.refusal(order(newer, boot, 2, vec![request])).await;
            assert_eq!(gap, Refusal::OutOfSequence { expected: 1 }, "a plan is missing");

            let mut old = FakeLeader::connect(&net, &exec).await;
            let fenced = Refusal::Fenced { promised: newer };
            assert_eq!(old.refusal(order(token, boot, 1, vec![request])).await, fenced, "the former leader's token");

            phase("its plan runs; the input of a request that nobody owns is lost, and that is said");
            newest.send.send(ToBackend::Execute(order(newer, boot, 1, vec![request]))).unwrap();
            let FromBackend::Done(done) = newest.next().await else { panic!("the plan was not done") };
            assert_eq!((done.gpu, done.token, done.sequence, done.model), (gpu.id, newer, 1, model));
            assert_eq!(done.failed, [(owner, FailReason::PayloadLost)]);

            phase("the same plan once more does not run twice");
            let again = newest.refusal(order(newer, boot, 1, vec![request])).await;
            assert_eq!(again, Refusal::OutOfSequence { expected: 2 });
            let unknown = Execute { model: ModelId::new(999), ..order(newer, boot, 2, vec![]) };
            assert_eq!(newest.refusal(unknown).await, Refusal::ModelNotReady);
            newest
        });

        phase("the GPU that was taken away is of no use to the real leader; a restart of the backend gives it back");
        cluster.kill("backend-default").unwrap();
        cluster.restart("backend-default").unwrap();
        cluster.wait_until_it_serves("resnet").unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.ended().unwrap(), None);
    });
}

#[test]
fn who_routes_by_another_token_is_turned_away() {
    // In plaintext any process may claim to be a frontend: only the token is checked.
    let shape = Shape::emulated(&["default"]).with("security.insecure_dev=true");
    tell("dispatch-token", &shape, |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        let view = cluster.view().unwrap();
        let (&subcluster, entry) = view.subclusters.first_key_value().unwrap();
        let (leader, _) = entry.leader.unwrap();

        let net = Net::plaintext();
        let hello = |token, subcluster| ToLeader::Hello {
            frontend: FrontendId::new(77),
            boot: BootId::new(7),
            subcluster,
            token,
        };
        let answer_of = |node: NodeId, first: ToLeader| {
            let dispatch = cluster.address(&format!("scheduler-{}", node.get()), "dispatch");
            cluster.block_on(async {
                let (send, mut receive) =
                    connect_link::<ToLeader, ToFrontend>(&net, &dispatch, &Role::Scheduler.into()).await.unwrap();
                send.send(first).unwrap();
                tokio::time::timeout(SOON, receive.receive())
                    .await
                    .expect("an answer in time")
                    .map(|frame| frame.message)
            })
        };
        let token = entry.token;
        phase("the leader welcomes its own token and no other (invariant C5)");
        assert_eq!(answer_of(leader, hello(token, subcluster)).unwrap(), ToFrontend::Welcome { token });
        for other in [Token::new(token.get() - 1), Token::new(token.get() + 100)] {
            assert_eq!(answer_of(leader, hello(other, subcluster)).unwrap(), ToFrontend::NotLeader { token });
        }
        let nowhere = answer_of(leader, hello(token, SubclusterId::new(99))).unwrap();
        assert_eq!(nowhere, ToFrontend::NotLeader { token: Token::default() });

        phase("a standby welcomes nobody");
        let standby = entry.standbys[0];
        assert!(matches!(answer_of(standby, hello(token, subcluster)).unwrap(), ToFrontend::NotLeader { .. }));

        phase("who does not begin with hello is cut off");
        let header = RequestHeader { sequence: 1, model: 1, items: 1, budget: 1_000_000, attempt: 1, weight: 1000 };
        assert!(answer_of(leader, ToLeader::Announce { token, requests: vec![header] }).is_err());
        cluster.one_good_request("resnet").unwrap();
    });
}
