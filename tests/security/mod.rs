//! Which processes may talk to a cluster, and in which role.

mod callers;
mod shared_memory;

use std::sync::Arc;
use std::time::Duration;

use symphony_cluster_state::{Action, Command, Operation};
use symphony_net::{Authority, Credentials, Identity, Net, Role};
use symphony_protocol::control::control_client::ControlClient as ControlGrpc;
use symphony_protocol::control::{ForwardRequest, RegisterBackendRequest, RegisterFrontendRequest};
use symphony_protocol::execute::{FromBackend, ToBackend};
use symphony_tests::{Shape, emulated_model, phase, tell};
use symphony_transport::{ControlClient, ControlError, connect_link};
use symphony_types::{BootId, NodeId, OperationId};
use tonic::transport::Channel;

/// How long something may take over loopback on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// How long to wait for an answer that does not come.
const NEVER: Duration = Duration::from_secs(1);

/// The identity that a process claims when it registers.
#[derive(Clone, Copy)]
enum Claim {
    Backend(&'static str),
    Frontend(&'static str),
}

async fn claim(net: &Net, addrs: &[String], claim: Claim) -> Result<(), ControlError> {
    let control = ControlClient::new(net, addrs)?;
    let addr = || "127.0.0.1:1".to_owned();
    let (boot_id, data_addr, console_addr, level) = (77, addr(), addr(), control.newest_level());
    match claim {
        Claim::Backend(name) => {
            let (name, exec_addr) = (name.to_owned(), addr());
            let request =
                RegisterBackendRequest { name, boot_id, exec_addr, level, ..RegisterBackendRequest::default() };
            let call = |mut client: ControlGrpc<Channel>| {
                let request = request.clone();
                async move { client.register_backend(request).await }
            };
            control.call(SOON, call).await.map(drop)
        }
        Claim::Frontend(name) => {
            let request = RegisterFrontendRequest { name: name.to_owned(), boot_id, data_addr, console_addr, level };
            let call = |mut client: ControlGrpc<Channel>| {
                let request = request.clone();
                async move { client.register_frontend(request).await }
            };
            control.call(SOON, call).await.map(drop)
        }
    }
}

#[test]
fn roles_decide_and_strangers_are_turned_away() {
    tell("security", &Shape::emulated(&["default"]), |cluster| {
        let as_guest = |args: &[&str]| {
            let mut all = args.to_vec();
            all.extend(["--identity", "viewer-guest"]);
            cluster.cli(&all)
        };
        phase("a viewer looks and changes nothing");
        let _ = as_guest(&["get", "members"]).ended_with(0);
        let words = ["viewer guest", "LoadModel", "operator"];
        let _ = as_guest(&emulated_model("resnet", "default")).ended_with(2).complains(&words);
        assert!(cluster.view().unwrap().models.is_empty());

        phase("a node's certificate is no operator's");
        let backend = ["--identity", "backend-backend-default"];
        let unload: Vec<_> = ["model", "unload", "resnet"].into_iter().chain(backend).collect();
        let _ = cluster.cli(&unload).ended_with(2).complains(&["backend backend-default", "UnloadModel"]);

        phase("nor does it speak for another of its role");
        let backend = cluster.net(Role::Backend, "backend-default");
        let authority = Authority::open(&cluster.workspace.file("pki")).unwrap();
        let _ = authority.issue(&Identity::new("test", Role::Frontend, "other").unwrap(), 1).unwrap();
        let other = cluster.net(Role::Frontend, "other");
        let addrs = [cluster.address("scheduler-1", "control")];
        let denied = |net: &Net, request: Claim| {
            let answer = cluster.block_on(claim(net, &addrs, request));
            let words = answer.unwrap_err().to_string();
            assert!(words.contains("may not speak for"), "{words}");
        };
        denied(&backend, Claim::Backend("backend-9"));
        denied(&other, Claim::Frontend("frontend"));
        let itself = cluster.block_on(claim(&other, &addrs, Claim::Frontend("other")));
        assert!(itself.is_ok(), "the check itself works: {itself:?}");

        phase("plaintext, another authority, another cluster: none of them gets through");
        let control = [cluster.address("scheduler-1", "control")];
        let gets_through = |net: &Net, within| {
            cluster.block_on(async { ControlClient::new(net, &control).unwrap().get(false, within).await.is_ok() })
        };
        let stranger = |cluster_name: &str, authority: &Authority| {
            // A name of its own in each: what is another cluster's is not overwritten.
            let name = format!("mallory-of-{cluster_name}");
            let identity = Identity::new(cluster_name, Role::Operator, &name).unwrap();
            let issued = authority.issue(&identity, 1).unwrap();
            Net::secured(Arc::new(Credentials::load(issued.files).unwrap()))
        };
        assert!(gets_through(&stranger("test", &authority), SOON), "the check itself works");
        assert!(!gets_through(&stranger("other", &authority), NEVER), "another cluster");
        let foreign = Authority::create(&cluster.workspace.file("foreign"), "test").unwrap();
        assert!(!gets_through(&stranger("test", &foreign), NEVER), "another authority");
        assert!(!gets_through(&Net::plaintext(), NEVER), "no certificate");

        phase("a replica leads in its own name only");
        let exec = cluster.address("backend-default", "exec");
        let net = cluster.net(Role::Scheduler, "2");
        cluster.block_on(async {
            let backend = Role::Backend.into();
            let (send, mut receive) = connect_link::<ToBackend, FromBackend>(&net, &exec, &backend).await.unwrap();
            send.send(ToBackend::Hello { node: NodeId::new(1), boot: BootId::new(1) }).unwrap();
            // It may be accepted before it says which frontend it is.
            let cut = async { while receive.receive().await.is_ok() {} };
            tokio::time::timeout(SOON, cut).await.expect("the link is cut");
        });

        phase("who is not for a port does not get in: an operator at the execute port");
        let operator = cluster.net(Role::Operator, "admin");
        cluster.block_on(async {
            // The handshake may end on this side before the other has looked; the link ends then.
            if let Ok((_send, mut receive)) =
                connect_link::<ToBackend, FromBackend>(&operator, &exec, &Role::Backend.into()).await
            {
                let answer = tokio::time::timeout(SOON, receive.receive()).await.expect("the link is cut");
                assert!(answer.is_err(), "{answer:?}");
            }
        });

        phase("the log says who gave a command, by the certificate and by nothing else");
        let ann = Identity::new("test", Role::Operator, "ann").unwrap();
        let _ = authority.issue(&ann, 1).unwrap();
        let _ = cluster.cli(&["model", "unload", "nope", "--identity", "operator-ann"]).ended_with(2);
        let forged = Operation {
            id: OperationId::new(1),
            actor: "operator/root".into(),
            at_unix_ms: 0,
            avoid: None,
            action: Action::UnloadModel { name: "nope".into() },
        };
        let command = Command::Operate(forged).encode().unwrap();
        let operator = cluster.net(Role::Operator, "ann");
        let denied = cluster.block_on(async {
            let control = ControlClient::new(&operator, &control).unwrap();
            let request = ForwardRequest { cluster: "test".into(), command };
            control
                .call(SOON, |mut client| {
                    let request = request.clone();
                    async move { client.forward(request).await }
                })
                .await
        });
        let words = denied.unwrap_err().to_string();
        assert!(words.contains("operator ann") && words.contains("that is for scheduler"), "{words}");

        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        let operations: Vec<_> = cluster.view().unwrap().operations;
        let operations: Vec<_> =
            operations.iter().map(|o| (o.actor.as_str(), o.what.as_str(), o.refusal.is_some())).collect();
        let loaded = ("operator/admin", "load model resnet on sub-cluster default", false);
        assert_eq!(
            operations,
            [("operator/ann", "unload model nope", true), loaded],
            "and nothing of who was turned away"
        );
        cluster.wait_until_it_serves("resnet").unwrap();
        cluster.one_good_request("resnet").unwrap();
    });
}
