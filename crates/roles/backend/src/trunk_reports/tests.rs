//! What is asked and reported of models that begin alike, with ONNX Runtime; the control port never answers.

use symphony_executor::load_runtime;
use symphony_net::Net;
use symphony_protocol::view::{HolderView, KindProfile, ModelView, TrunkView};
use symphony_testkit::needed;
use symphony_types::{BackendId, BootId, LatencyProfile, Nanos, RequestValue, SubclusterId, Token};
use symphony_zoo::{Architecture, Mlp};

use super::*;

const HOME: SubclusterId = SubclusterId::new(1);
const ME: BackendId = BackendId::new(1);
const BOOT: BootId = BootId::new(5);

fn identity() -> BackendIdentity {
    BackendIdentity { backend: ME, boot: BOOT, subcluster: HOME, gpus: vec![], token: Token::new(1) }
}

fn findings() -> Findings {
    Findings { identity: identity(), models: BTreeMap::new() }
}

/// A model that this boot has loaded.
fn model(source: ModelSource, trunk: Option<TrunkView>) -> ModelView {
    let latency = LatencyProfile::from_line(1.0, 1.0, 16).unwrap();
    let profile = KindProfile { latency, static_memory_bytes: 0, dynamic_memory_bytes: 0 };
    let spec = ModelSpec {
        name: "m".into(),
        subcluster: "s".into(),
        slo: Nanos::from_millis(50),
        source,
        signature: Default::default(),
        transforms: Default::default(),
        profiles: [("cpu".to_owned(), profile)].into(),
        policy: Default::default(),
        value: RequestValue::ONE,
    };
    let holders = [(ME, HolderView { boot: BOOT, state: Ok(()) })].into();
    ModelView { spec, subcluster: HOME, moving: None, holders, trunk }
}

fn view(models: impl IntoIterator<Item = ModelView>) -> View {
    let models = (1..).map(ModelId::new).zip(models).collect();
    View { models, level: Level::WITH_FAMILIES, ..View::default() }
}

fn trunk(cuts: &[u128], shared: Option<u128>) -> Option<TrunkView> {
    let cuts = cuts.iter().copied().map(CutDigest::new).collect();
    Some(TrunkView { cuts, shared: shared.map(CutDigest::new) })
}

fn next(findings: &Findings, view: &View) -> Option<(u32, Question)> {
    findings.next(view).map(|(model, _, question)| (model.get(), question))
}

#[test]
fn loaded_models_of_files_are_asked_once_and_compared_where_they_share() {
    let onnx = || ModelSource::Onnx("m.onnx".into());
    let other_boot = |mut model: ModelView| {
        model.holders.values_mut().for_each(|holder| holder.boot = BootId::new(4));
        model
    };
    let not_asked = [
        model(ModelSource::Emulated, None),
        model(ModelSource::OnnxUnshared("m.onnx".into()), None),
        other_boot(model(onnx(), None)),
    ];
    let mut findings = findings();
    let shown = |trunk| view(not_asked.iter().cloned().chain([model(onnx(), trunk)]));
    let (id, cuts) = (ModelId::new(4), [1, 2].map(CutDigest::new).to_vec());
    assert_eq!(next(&findings, &shown(None)), Some((4, Question::Cuts)));
    findings.answered(id, "m", Question::Cuts, Ok(cuts.clone()));
    assert_eq!(findings.due_reports(&shown(None)), [(id, cuts)]);
    assert_eq!(findings.due_reports(&shown(None)), [], "it is on its way");
    assert_eq!(next(&findings, &shown(trunk(&[1, 2], None))), None, "it shares nothing");

    let shares = shown(trunk(&[1, 2], Some(2)));
    let question = Question::SameInParts(CutDigest::new(2));
    assert_eq!(next(&findings, &shares), Some((4, question)));
    let mut differs = Findings { identity: identity(), models: findings.models.clone() };
    findings.answered(id, "m", question, Ok(vec![]));
    assert_eq!((next(&findings, &shares), findings.due_reports(&shares)), (None, vec![]));
    assert_eq!(next(&findings, &shown(trunk(&[1, 2], Some(9)))), None, "a cut that is none here");

    differs.answered(id, "m", question, Err("it differs".into()));
    assert_eq!(differs.due_reports(&shares), [(id, vec![CutDigest::new(1)])], "told at once");
    assert_eq!(next(&differs, &shares), None);
    assert_eq!(differs.due_reports(&view([])), []);
    assert!(differs.models.is_empty(), "it was unloaded");
}

#[tokio::test]
async fn heads_on_one_trunk_are_found_and_a_file_that_is_none_shares_nothing() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).unwrap();
    let shape = Mlp { width_in: 6, width: 16, hidden: 2, classes: 3 };
    for head in [1, 2] {
        write(&format!("{head}.onnx"), Architecture::mlp_head(shape, 1, head).unwrap().bytes());
    }
    write("none.onnx", b"no model");
    let (_ended, watched) = watch::channel(Arc::new(View::default()));
    let reports = TrunkReports {
        identity: identity(),
        kinds: vec!["cpu".into()],
        times: vec![Arc::default()],
        loading: Arc::new(Semaphore::new(1)),
        onnx: OnnxEngine { runtime, model_dir: dir.path().to_owned(), intra_threads: 1 },
        control: ControlClient::new(&Net::plaintext(), &["127.0.0.1:1".to_owned()]).unwrap(),
        view: watched,
    };
    let spec = |file: &str| model(ModelSource::Onnx(file.into()), None).spec;
    let [one, two] = ["1.onnx", "2.onnx"].map(spec);
    let (cuts, others) =
        (reports.answer(&one, Question::Cuts).await.unwrap(), reports.answer(&two, Question::Cuts).await.unwrap());
    let shared = *cuts.iter().rev().find(|cut| others.contains(cut)).expect("they share a trunk");
    assert_eq!(reports.answer(&one, Question::SameInParts(shared)).await, Ok(vec![]));
    let wrong = reports.answer(&one, Question::SameInParts(CutDigest::new(7))).await.unwrap_err();
    assert!(wrong.contains("does not begin with the trunk"), "{wrong}");
    let none = reports.answer(&spec("none.onnx"), Question::Cuts).await.unwrap_err();
    assert!(none.contains("cannot be taken apart"), "{none}");
    assert_eq!(reports.loading.available_permits(), 1);
}
