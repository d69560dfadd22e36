//! A client without an answer repeats its request at any replica; the operation is done once, and remembered with its
//! actor.

use symphony_cluster_state::{Action, Command, Operation};
use symphony_protocol::control as pb;
use symphony_protocol::view::{OperationView, View};
use symphony_types::OperationId;
use tonic::Code;

use crate::scene::{Cluster, backend, model, patiently, steady};

fn id(number: u128) -> String {
    OperationId::new(number).to_string()
}

async fn load(cluster: &Cluster, at: u64, operation: u128, name: &str) -> pb::LoadModelReply {
    let client = cluster.client(at).await;
    let request = pb::LoadModelRequest { spec: Some(model(name, "s")), operation_id: id(operation) };
    patiently(async || client.clone().load_model(request.clone()).await).await
}

async fn unload(cluster: &Cluster, at: u64, operation: u128, name: &str) -> pb::UnloadModelReply {
    let client = cluster.client(at).await;
    let request = pb::UnloadModelRequest { name: name.into(), operation_id: id(operation) };
    patiently(async || client.clone().unload_model(request.clone()).await).await
}

/// The cluster by a linearizable read.
async fn read_view(cluster: &Cluster, at: u64) -> View {
    let client = cluster.client(at).await;
    let view = patiently(async || client.clone().get(pb::GetRequest { linearizable: true }).await).await;
    View::try_from(view).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_dies_with_the_answer_and_who_asks_again_gets_it() {
    let mut cluster = Cluster::start(3, steady()).await;
    let leader = cluster.settled().await;
    let client = cluster.client(leader).await;
    patiently(async || client.clone().register_backend(backend("b", 77, "s")).await).await;
    let first = load(&cluster, leader, 1, "m").await;

    eprintln!("phase: an unload is agreed on, and leader {leader} dies before anybody hears of it");
    let action = Action::UnloadModel { name: "m".into() };
    let (at_unix_ms, actor) = (0, "insecure".to_owned());
    let unheard = Operation { id: OperationId::new(2), actor, at_unix_ms, avoid: None, action };
    let index = cluster.running[&leader].propose(&Command::Operate(unheard)).await.unwrap().index;
    cluster.stop(leader).await;
    let (one, other) = (cluster.other_than(&[]), cluster.other_than(&[cluster.other_than(&[])]));
    let unloaded = unload(&cluster, one, 2, "m").await;

    eprintln!("phase: somebody else loads the model again; the unload, asked for once more elsewhere, leaves it alone");
    let second = load(&cluster, other, 3, "m").await;
    assert!(second.model > first.model && second.epoch > unloaded.epoch);
    assert_eq!(unload(&cluster, other, 2, "m").await, unloaded);
    assert_eq!(load(&cluster, one, 1, "m").await, first, "nor does the first load count again");
    let view = read_view(&cluster, one).await;
    assert_eq!(view.model_named("m").map(|(id, _)| id.get()), Some(second.model));
    let operations: Vec<_> = view.operations.iter().map(|o| (o.id.get(), o.what.as_str())).collect();
    assert_eq!(
        operations,
        [(1, "load model m on sub-cluster s"), (2, "unload model m"), (3, "load model m on sub-cluster s")]
    );
    assert_eq!(view.operations[1].index, index);

    eprintln!("phase: the old leader is back, and dies again while unloads are under way");
    cluster.restart(leader, leader * 10 + 1).await;
    let leader = cluster.settled().await;
    let at = cluster.other_than(&[leader]);
    for operation in 10..18 {
        load(&cluster, at, 100 + operation, &format!("m{operation}")).await;
    }
    let client = cluster.client(at).await;
    let unloads = (10..18).map(async |operation| {
        let request = pb::UnloadModelRequest { name: format!("m{operation}"), operation_id: id(operation) };
        // Fails if the repeated operation is answered with "no such model".
        patiently(async || client.clone().unload_model(request.clone()).await).await
    });
    tokio::join!(futures::future::join_all(unloads), cluster.stop(leader));
    let view = read_view(&cluster, at).await;
    assert_eq!(view.models.len(), 1);
    assert!(view.operations.iter().all(|operation| operation.refusal.is_none()), "{:?}", view.operations);
    assert_eq!(view.operations.len(), 3 + 16, "each once");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_id_is_made_for_who_sends_none_and_one_that_is_taken_or_none_is_refused() {
    let cluster = Cluster::start(1, steady()).await;
    cluster.settled().await;
    let mut client = cluster.client(1).await;
    client.register_backend(backend("b", 77, "s")).await.unwrap();

    let duty = |duty, operation_id: String| pb::SetDutyRequest {
        member: Some(pb::Member { id: Some(pb::member::Id::Backend(1)) }),
        duty,
        operation_id,
    };
    client.set_duty(duty(1, id(7))).await.unwrap();
    let reused = client.set_duty(duty(0, id(7))).await.unwrap_err();
    assert_eq!(reused.code(), Code::InvalidArgument);
    assert!(reused.message().contains("stands for another command"), "{reused}");
    client.set_duty(duty(0, String::new())).await.unwrap();
    let status = client.set_duty(duty(0, "7".into())).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("operation_id: `7` is no operation id"), "{status}");
    let request = pb::UnloadModelRequest { name: "absent".into(), ..Default::default() };
    client.unload_model(request).await.unwrap_err();

    let view = read_view(&cluster, 1).await;
    let shown = |operation: &OperationView| {
        let refusal = operation.refusal.as_deref().unwrap_or("done").split(' ').next().map(str::to_owned);
        (operation.id.get(), operation.actor.clone(), operation.what.clone(), refusal.unwrap())
    };
    let made = |count: u128| 10 << 64 | count;
    let expected = [
        (7, "make backend b1 cordoned", "done"),
        (7, "make backend b1 serving", "operation"),
        (made(1), "make backend b1 serving", "done"),
        (made(2), "unload model absent", "no"),
    ];
    let expected = expected.map(|(id, what, outcome)| (id, "insecure".to_owned(), what.to_owned(), outcome.to_owned()));
    assert_eq!(view.operations.iter().map(shown).collect::<Vec<_>>(), expected);
    let stale = View::try_from(client.get(pb::GetRequest { linearizable: false }).await.unwrap().into_inner()).unwrap();
    assert_eq!(stale.operations, view.operations);
    cluster.stop_all().await;
}
