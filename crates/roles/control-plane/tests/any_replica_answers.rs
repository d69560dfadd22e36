//! Processes and operators may call any replica, and every replica gives the same answers.

use symphony_protocol::control as pb;
use symphony_protocol::view::View;
use symphony_types::{BackendId, BootId, Level};
use tonic::Code;

use crate::scene::{CLUSTER, Cluster, backend, leadership, model, patiently, steady};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn registrations_and_models_reach_every_watch_through_any_replica() {
    eprintln!("phase: three replicas elect a leader and register themselves");
    let cluster = Cluster::start(3, steady()).await;
    let leader = cluster.settled().await;
    let follower = cluster.other_than(&[leader]);
    let other = cluster.other_than(&[leader, follower]);

    eprintln!("phase: a backend registers at a follower, twice, and its sub-cluster is not led by the Raft leader");
    let client = cluster.client(follower).await;
    let register = || {
        let client = client.clone();
        async move { client.clone().register_backend(backend("b", 77, "s")).await }
    };
    let registered = patiently(register).await;
    assert_eq!((registered.backend, registered.gpus.len()), (1, 1));
    assert_eq!(patiently(register).await, registered, "repeating a registration is harmless");
    for id in [leader, follower, other] {
        let view = cluster.sees(id, "the sub-cluster led", |view| leadership(view, "s").is_some()).await;
        let (node, boot, token) = leadership(&view, "s").unwrap();
        assert_ne!(node, leader, "one crash should not cost an election and a sub-cluster");
        assert_eq!((boot, token), (node * 10, registered.token));
    }

    eprintln!("phase: watches are open at every replica; a model loaded at one shows in all, streamed");
    let mut watches = Vec::new();
    for id in [leader, follower, other] {
        let request = pb::WatchRequest { watcher: "test".into(), ..pb::WatchRequest::default() };
        let mut stream = cluster.client(id).await.watch(request).await.unwrap().into_inner();
        let first = stream.message().await.unwrap().unwrap();
        assert_eq!((first.cluster.as_str(), first.replica), (CLUSTER, id), "the first view comes at once");
        watches.push(stream);
    }
    let client = cluster.client(other).await;
    let loaded = patiently(async || {
        let request = pb::LoadModelRequest { spec: Some(model("m", "")), ..Default::default() };
        client.clone().load_model(request).await
    })
    .await;
    for mut stream in watches {
        let view = loop {
            let view = View::try_from(stream.message().await.unwrap().unwrap()).unwrap();
            if view.model_named("m").is_some() {
                break view;
            }
        };
        assert_eq!(view.model_named("m").unwrap().1.spec.subcluster, "s", "the only one there is");
        assert!(view.epoch.get() >= loaded.epoch);
    }

    eprintln!("phase: a linearizable read at a follower shows what was acknowledged before it began");
    for name in ["m1", "m2", "m3"] {
        let client = cluster.client(leader).await;
        patiently(async || {
            let request = pb::LoadModelRequest { spec: Some(model(name, "s")), ..Default::default() };
            client.clone().load_model(request).await
        })
        .await;
        let client = cluster.client(follower).await;
        let view = patiently(async || client.clone().get(pb::GetRequest { linearizable: true }).await).await;
        assert!(View::try_from(view).unwrap().model_named(name).is_some());
    }

    eprintln!("phase: the backend says that the model is loaded, then it is reported dead");
    let client = cluster.client(follower).await;
    let replica = pb::ModelReplica {
        backend: registered.backend,
        boot_id: 77,
        state: pb::ModelState::Ready.into(),
        error: String::new(),
    };
    let report = pb::ReportModelRequest { model: loaded.model, replica: Some(replica), load_ns: 0 };
    patiently(async || client.clone().report_model(report.clone()).await).await;
    let ready = |view: &View| view.model_named("m").is_some_and(|(_, m)| m.is_ready(view));
    cluster.all_see("the model ready", ready).await;
    let down = pb::ReportBackendDownRequest { backend: registered.backend, boot_id: 77 };
    patiently(async || client.clone().report_backend_down(down).await).await;
    cluster
        .all_see("the backend down, the model not ready", |view| {
            !view.backends[&BackendId::new(registered.backend)].up && !ready(view)
        })
        .await;

    eprintln!("phase: a frontend registers, a model is unloaded");
    let request = pb::RegisterFrontendRequest {
        name: "f".into(),
        boot_id: 5,
        data_addr: "127.0.0.1:1".into(),
        console_addr: "127.0.0.1:2".into(),
        level: Level::NEWEST.get().into(),
    };
    let frontend = patiently(async || client.clone().register_frontend(request.clone()).await).await.frontend;
    let unload = pb::UnloadModelRequest { name: "m".into(), ..Default::default() };
    patiently(async || client.clone().unload_model(unload.clone()).await).await;
    cluster
        .all_see("the frontend, and the model gone", |view| {
            view.model_named("m").is_none()
                && view.frontends.iter().any(|(id, f)| id.get() == frontend && f.boot == BootId::new(5))
        })
        .await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_cannot_be_is_refused_with_its_code_and_says_why() {
    let cluster = Cluster::start(1, steady()).await;
    cluster.settled().await;
    let mut client = cluster.client(1).await;
    client.register_backend(backend("b", 77, "s")).await.unwrap();
    client.load_model(pb::LoadModelRequest { spec: Some(model("m", "s")), ..Default::default() }).await.unwrap();

    let refused = |status: tonic::Status, code: Code, words: &str| {
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(words), "{status}");
    };
    let load = |change: fn(&mut pb::ModelSpec)| {
        let mut spec = model("other", "s");
        change(&mut spec);
        pb::LoadModelRequest { spec: Some(spec), ..Default::default() }
    };

    let status = client.register_backend(backend("", 77, "s")).await.unwrap_err();
    refused(status, Code::InvalidArgument, "name: 0 bytes; expected 1 to 128");
    let status = client.register_backend(backend("b2", 0, "s")).await.unwrap_err();
    refused(status, Code::InvalidArgument, "boot_id");
    let nowhere = pb::RegisterFrontendRequest {
        name: "f".into(),
        boot_id: 5,
        data_addr: "nowhere".into(),
        console_addr: "127.0.0.1:2".into(),
        level: Level::NEWEST.get().into(),
    };
    refused(client.register_frontend(nowhere).await.unwrap_err(), Code::InvalidArgument, "expected host:port");
    let status = client.load_model(pb::LoadModelRequest { spec: None, ..Default::default() }).await.unwrap_err();
    refused(status, Code::InvalidArgument, "spec: missing");
    let status = client.load_model(load(|m| m.profiles[0].latency_ns = vec![2, 1])).await.unwrap_err();
    refused(status, Code::InvalidArgument, "not monotone");
    let status = client.load_model(load(|m| m.inputs[0].data_type = "BYTES".into())).await.unwrap_err();
    refused(status, Code::InvalidArgument, "unknown data type");
    let status = client.load_model(load(|m| m.source = None)).await.unwrap_err();
    refused(status, Code::InvalidArgument, "source");
    let status = client.load_model(load(|m| m.profiles[0].gpu_kind = "h100".into())).await.unwrap_err();
    refused(status, Code::FailedPrecondition, "no profile for GPU kind `cpu`");
    let status = client.load_model(load(|m| m.subcluster = "elsewhere".into())).await.unwrap_err();
    refused(status, Code::NotFound, "no sub-cluster is named `elsewhere`");
    let status = client.load_model(load(|m| m.name = "m".into())).await.map(|_| "the same model again");
    assert_eq!(status.unwrap(), "the same model again");
    let other = load(|m| {
        m.name = "m".into();
        m.slo_ns += 1;
    });
    refused(client.load_model(other).await.unwrap_err(), Code::AlreadyExists, "another specification");
    let status =
        client.unload_model(pb::UnloadModelRequest { name: "absent".into(), ..Default::default() }).await.unwrap_err();
    refused(status, Code::NotFound, "no model is named `absent`");
    let status = client.report_model(pb::ReportModelRequest { model: 1, ..Default::default() }).await.unwrap_err();
    refused(status, Code::InvalidArgument, "replica: missing");
    let stale = pb::ReportBackendDownRequest { backend: 1, boot_id: 76 };
    refused(client.report_backend_down(stale).await.unwrap_err(), Code::FailedPrecondition, "boot-77");

    let forward =
        |cluster: &str, command: &[u8]| pb::ForwardRequest { cluster: cluster.into(), command: command.to_vec() };
    let status = client.forward(forward("another", b"")).await.unwrap_err();
    refused(status, Code::FailedPrecondition, "cluster `another` reached cluster `test`");
    let status = client.forward(forward(CLUSTER, b"rubbish")).await.unwrap_err();
    refused(status, Code::InvalidArgument, "expected a header");
    cluster.stop_all().await;
}
