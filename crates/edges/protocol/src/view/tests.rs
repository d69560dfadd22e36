//! Views over the wire, and which backends hold and serve which model.

use symphony_types::{
    BootId, CutDigest, DataType, Duty, GpuId, LatencyProfile, Nanos, OperationId, RequestValue, Signature, TensorSpec,
};

use super::*;
use crate::control as pb;
use crate::epoch_plan_view::{BackendMoveView, ModelMoveView, MoveCostView, PlanStatus};

fn model() -> ModelSpec {
    let latency = LatencyProfile::from_line(1.0, 5.0, 8).unwrap();
    let tensor = TensorSpec { name: "x".into(), data_type: DataType::Fp32, item_shape: vec![64] };
    ModelSpec {
        name: "digits".into(),
        subcluster: "cpu".into(),
        slo: Nanos::from_millis(50),
        source: ModelSource::Onnx("digits.onnx".into()),
        signature: Signature { inputs: vec![tensor.clone()], outputs: vec![tensor] },
        transforms: Default::default(),
        profiles: [("cpu".to_owned(), KindProfile { latency, static_memory_bytes: 1, dynamic_memory_bytes: 2 })].into(),
        policy: Default::default(),
        value: RequestValue::from_number(2.5).unwrap(),
    }
}

fn operation(index: u64, refusal: Option<String>) -> OperationView {
    let (id, actor) = (OperationId::new(u128::from(index) << 64), "operator/admin".to_owned());
    OperationView { index, id, actor, at_unix_ms: 1_700_000_000_000, what: "unload model digits".into(), refusal }
}

#[test]
fn a_view_survives_the_wire() {
    let boot = BootId::new(77);
    let gpu = GpuView { id: GpuId::new(4), kind: "cpu".into(), memory_bytes: 9, binding: Token::new(12) };
    let view = View {
        cluster: "test".into(),
        applied_index: 31,
        epoch: Epoch::new(3),
        level: Level::NEWEST,
        replica: NodeId::new(2),
        control_leader: Some(NodeId::new(1)),
        nodes: [(
            NodeId::new(1),
            NodeView {
                boot: Some(boot),
                up: true,
                control_addr: "c".into(),
                dispatch_addr: "d".into(),
                beat_addr: "e".into(),
                duty: Duty::Cordoned,
            },
        )]
        .into(),
        subclusters: [(
            SubclusterId::new(1),
            SubclusterView {
                name: "cpu".into(),
                leader: Some((NodeId::new(1), boot)),
                token: Token::new(10),
                standbys: vec![NodeId::new(2)],
                successor: Some(SuccessorView { node: NodeId::new(2), boot, since: 29 }),
                policy: Some(PolicyView { text: "nexus".into(), failed: Some("panicked on n1".into()) }),
                advice: Some(AdviceView {
                    reason: "idle".into(),
                    bad_rate: 0.0,
                    idle_fraction: 0.5,
                    busy_gpus: 1.75,
                    demand_gpus: Some(1.5),
                    kinds: vec![KindAdviceView {
                        kind: "cpu".into(),
                        target: 2,
                        release: vec![GpuId::new(7)],
                        price_per_hour: Some(0.5),
                    }],
                    slow: vec![
                        SlowGpuView { gpu: GpuId::new(4), slowdown: 2.0, failed: 3, quarantined_ms: Some(900) },
                        SlowGpuView { gpu: GpuId::new(5), slowdown: 1.0, failed: 0, quarantined_ms: None },
                    ],
                    drifts: vec![DriftView { model: ModelId::new(3), kind: "cpu".into(), factor: 1.5 }],
                    fleet: Some(FleetAdviceView {
                        budget_per_hour: 4.0,
                        chosen: Some(FleetChoiceView {
                            price_per_hour: 1.0,
                            bound_rps: 50.0,
                            needed_rps: 45.0,
                            rate_rps: 40.0,
                        }),
                        refused: "why".into(),
                    }),
                }),
                load: Some(LoadView {
                    token: Token::new(10),
                    age: Nanos::from_millis(300),
                    models: [(
                        ModelId::new(1),
                        ModelLoadView {
                            arrived_items: 9,
                            dropped: 1,
                            executed: 6,
                            failed: 2,
                            late: 3,
                            queued: 2,
                            request_items: vec![5, 2],
                        },
                    )]
                    .into(),
                    gpus: [(GpuId::new(4), GpuLoadView { busy: Nanos::from_millis(80), plans: 3 })].into(),
                    demand: Some(Nanos::from_millis(60)),
                }),
            },
        )]
        .into(),
        backends: [(
            BackendId::new(1),
            BackendView {
                name: "b".into(),
                boot,
                up: true,
                exec_addr: "e".into(),
                subcluster: SubclusterId::new(1),
                executor: "ort".into(),
                gpus: vec![gpu],
                duty: Duty::Draining,
                drained: true,
                moving: Some(BackendMoveView { to: SubclusterId::new(2), since: 28, preloads: true, retiring: None }),
                level: Some(Level::NEWEST),
            },
        )]
        .into(),
        frontends: [(
            FrontendId::new(1),
            FrontendView {
                name: "f".into(),
                boot,
                data_addr: "a".into(),
                console_addr: "b".into(),
                duty: Duty::Draining,
                drained: true,
                leaving: true,
                silent: Some(Nanos::from_millis(1500)),
                level: None,
            },
        )]
        .into(),
        models: [(
            ModelId::new(1),
            ModelView {
                spec: model(),
                subcluster: SubclusterId::new(1),
                moving: Some(ModelMoveView {
                    from: SubclusterId::new(2),
                    to: SubclusterId::new(1),
                    since: 27,
                    switched: Some(29),
                }),
                holders: [(BackendId::new(1), HolderView { boot, state: Err("no such file".into()) })].into(),
                trunk: Some(TrunkView { cuts: [3, 4].map(CutDigest::new).to_vec(), shared: Some(CutDigest::new(4)) }),
            },
        )]
        .into(),
        traffic: [(
            "digits".to_owned(),
            Traffic { weights: [(1, 19), (2, 1)].into(), shadow: Some(Shadow { version: 3, percent: 5 }) },
        )]
        .into(),
        pipelines: [("p@3".to_owned(), pipeline::tests::pipeline())].into(),
        events: vec![EventView { index: 31, at_unix_ms: 1_700_000_000_001, what: "model digits loaded".into() }],
        operations: vec![operation(30, None), operation(31, Some("no model is named `digits`".into()))],
        group: [(
            NodeId::new(1),
            GroupMemberView {
                control_addr: "c".into(),
                role: GroupRole::Learner,
                applied_index: 30,
                lag: 1,
                level: Some(Level::OLDEST),
                silent: Some(Nanos::from_millis(3)),
                stuck: Some(Nanos::from_millis(2500)),
            },
        )]
        .into(),
        removed_nodes: [NodeId::new(7)].into(),
        plans: vec![EpochPlanView {
            id: 27,
            status: PlanStatus::Proposed,
            cause: "rates changed".into(),
            summary: "imbalance 0.4 to 0.1".into(),
            moves: Vec::new(),
            cost: MoveCostView::default(),
            left_alone: Vec::new(),
            dropped: String::new(),
        }],
    };
    assert_eq!(View::try_from(pb::ClusterView::from(&view)), Ok(view.clone()));
    let backend = &view.backends[&BackendId::new(1)];
    assert_eq!(view.gpu_token(backend, &backend.gpus[0]), Token::new(12), "the binding is younger than the leader");
    assert!(!view.models[&ModelId::new(1)].is_ready(&view));
}

#[test]
fn a_profile_that_is_not_monotone_is_refused_by_name() {
    let mut spec = pb::ModelSpec::from(&model());
    spec.profiles[0].latency_ns[3] = 1;
    let error = ModelSpec::try_from(spec).unwrap_err().to_string();
    assert!(error.contains("model `digits`, GPU kind `cpu`") && error.contains("not monotone"), "{error}");
}

#[test]
fn a_backend_holds_what_its_sub_clusters_hold_and_a_model_is_ready_where_it_is_served() {
    let (here, there, elsewhere) = (SubclusterId::new(1), SubclusterId::new(2), SubclusterId::new(3));
    let boot = BootId::new(5);
    let backend = |subcluster| BackendView { boot, up: true, subcluster, ..BackendView::default() };
    let moving = |switched| Some(ModelMoveView { from: here, to: there, since: 7, switched });
    let ready = |backend| (BackendId::new(backend), HolderView { boot, state: Ok(()) });
    let spec = model();
    let model = |subcluster, moving| {
        let holders = [ready(2)].into();
        ModelView { spec: spec.clone(), subcluster, moving, holders, trunk: None }
    };
    let (loading, switched) = (model(here, moving(None)), model(there, moving(Some(9))));
    assert!(backend(here).is_to_hold(&loading) && backend(there).is_to_hold(&loading));
    assert!(backend(here).is_to_hold(&switched) && switched.is_served_by(here), "for what came before");
    assert!(!loading.is_served_by(there) && !backend(elsewhere).is_to_hold(&loading));
    let to = BackendMoveView { to: there, since: 8, preloads: true, retiring: None };
    let comes = BackendView { moving: Some(to), ..backend(elsewhere) };
    assert!(comes.is_to_hold(&loading));
    let loads_there = BackendView { moving: Some(BackendMoveView { preloads: false, ..to }), ..backend(elsewhere) };
    assert!(!loads_there.is_to_hold(&loading));

    let backends = [(BackendId::new(1), backend(here)), (BackendId::new(2), backend(there))].into();
    let view = View { backends, ..View::default() };
    assert!(!loading.is_ready(&view), "ready where it is not served yet");
    assert!(switched.is_ready(&view));
}

#[test]
fn a_model_whose_backends_are_all_gone_or_drained_is_not_called_loading() {
    let (subcluster, boot) = (SubclusterId::new(1), BootId::new(5));
    let holds = |state| [(BackendId::new(1), HolderView { boot, state })].into();
    let loaded = ModelView { spec: model(), subcluster, moving: None, holders: holds(Ok(())), trunk: None };
    let fresh = ModelView { holders: BTreeMap::new(), ..loaded.clone() };
    let failed = ModelView { holders: holds(Err("no such file".into())), ..loaded.clone() };
    let with = |backends: &[(bool, Duty)]| {
        let backend = |&(up, duty)| BackendView { boot, up, duty, subcluster, ..BackendView::default() };
        let backends = (1..).map(BackendId::new).zip(backends.iter().map(backend)).collect();
        View { backends, ..View::default() }
    };
    let (up, down) = ((true, Duty::Serving), (false, Duty::Serving));
    let (cordoned, draining) = ((true, Duty::Cordoned), (true, Duty::Draining));
    for (backends, of_loaded, of_fresh) in [
        (&[up][..], Readiness::Ready, Readiness::Loading),
        (&[down, up], Readiness::Loading, Readiness::Loading),
        (&[], Readiness::NoGpu(NoGpu::NoBackend), Readiness::NoGpu(NoGpu::NoBackend)),
        (&[down, down], Readiness::NoGpu(NoGpu::AllDown), Readiness::NoGpu(NoGpu::AllDown)),
        (&[draining, down], Readiness::NoGpu(NoGpu::AllDraining), Readiness::NoGpu(NoGpu::AllDraining)),
        (&[cordoned], Readiness::NoGpu(NoGpu::AllDraining), Readiness::NoGpu(NoGpu::AllDraining)),
    ] {
        let view = with(backends);
        assert_eq!(loaded.readiness(&view), of_loaded, "{backends:?}");
        assert_eq!(fresh.readiness(&view), of_fresh.clone(), "{backends:?}");
        // The load failed on the first backend, which counts while that one takes work.
        let of_failed = if backends.first() == Some(&up) { Readiness::Failed("no such file".into()) } else { of_fresh };
        assert_eq!(failed.readiness(&view), of_failed, "{backends:?}");
    }
}
