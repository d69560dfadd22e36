//! Lists, loads and unloads models of a repository for clients that may: one call at a time for each model, each
//! carried out to its end.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use symphony_repository::{
    ApplyError, LOAD_WITHIN, Next, Repository, RepositoryEntry, RepositoryError as Unusable, RepositoryModel,
    RepositoryPipeline, Rollout, apply, unload,
};
use symphony_telemetry::Registry;
use symphony_transport::{ControlClient, ControlError};
use tokio::sync::Semaphore;
use tonic::Code;

use crate::metrics;
use crate::oip::{Caller, IndexEntry, ModelState, RepositoryError};
use crate::repository::repository_listing::Listing;

/// Loads and unloads under way at a time.
const ROLLOUTS_MAX: usize = 16;
/// The folder is read at most this often, however many clients ask for the index.
const LISTED_EVERY: Duration = Duration::from_secs(1);
/// How long the folder, or one model in it, may take to be read before its caller gets an error: a few files, on a
/// mount that may be slow.
const READ_WITHIN: Duration = Duration::from_secs(20);
/// Models that are being read at a time. A mount that never answers holds a thread for each, also when its caller has
/// got an error.
const READS_MAX: usize = ROLLOUTS_MAX;
/// The line of the folder itself, if it cannot be read. No model has this name: none has a slash in its name.
const FOLDER_LINE: &str = "repository/";
/// The shortest token: fewer characters can be guessed over a network.
pub const TOKEN_BYTES_MIN: usize = 16;

/// A repository that clients of a frontend may have models loaded from.
#[derive(Debug)]
pub struct RepositoryAccess {
    repository: Repository,
    /// None if loading is not allowed.
    loader: Option<Loader>,
}

/// Loads models for callers, as an operator.
#[derive(Clone, Debug)]
struct Loader {
    control: ControlClient,
    /// The hash of the token that callers show; none where tenants have the right.
    token: Option<blake3::Hash>,
}

impl RepositoryAccess {
    /// A repository whose models are listed.
    #[must_use]
    pub const fn listing(repository: Repository) -> Self {
        Self { repository, loader: None }
    }

    /// Models are listed, and a caller that shows `token` may have them loaded and unloaded by `control`, as an
    /// operator. The token is as long as [`TOKEN_BYTES_MIN`]: callers check.
    #[must_use]
    pub fn loading(self, control: ControlClient, token: &str) -> Self {
        Self { loader: Some(Loader { control, token: Some(blake3::hash(token.as_bytes())) }), ..self }
    }

    /// The same for tenants with the right to load.
    #[must_use]
    pub fn loading_for_tenants(self, control: ControlClient) -> Self {
        Self { loader: Some(Loader { control, token: None }), ..self }
    }
}

/// Labels of a call's end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    call: &'static str,
    outcome: &'static str,
}

/// How a load or an unload ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CallEnded {
    /// The log index as of which the cluster is so; 0 if it was not asked.
    pub(crate) as_of: u64,
    pub(crate) result: Result<(), RepositoryError>,
}

#[derive(Debug)]
pub(crate) struct RepositoryService {
    access: Option<RepositoryAccess>,
    under_way: Arc<Mutex<BTreeSet<String>>>,
    reads: Arc<Semaphore>,
    listing: Listing,
    calls: Family<CallLabels, Counter>,
}

impl RepositoryService {
    pub(crate) fn new(access: Option<RepositoryAccess>, registry: &Registry) -> Self {
        let calls = registry.register(&metrics::REPOSITORY_CALLS, Family::default());
        let reads = Arc::new(Semaphore::new(READS_MAX));
        Self { access, under_way: Arc::default(), reads, listing: Listing::new(LISTED_EVERY), calls }
    }

    /// A line for each version that the repository would serve, and for each model that it cannot serve with the
    /// reason; one for the folder if it cannot be read, and none without a repository. What the cluster has is known
    /// without it.
    pub(crate) async fn listed(&self) -> Arc<Vec<IndexEntry>> {
        let Some(access) = &self.access else { return Arc::default() };
        let repository = access.repository.clone();
        let newest = self.listing.newest(move || list(&repository).map_err(|error| error.to_string()));
        let newest = tokio::time::timeout(READ_WITHIN, newest).await.unwrap_or_else(|_| {
            let error = not_read(READ_WITHIN);
            tracing::warn!(error, "the repository is not listed");
            Err(error)
        });
        newest.unwrap_or_else(|error| {
            let (name, state) = (FOLDER_LINE.to_owned(), ModelState::Unavailable(error));
            Arc::new(vec![IndexEntry { name, version: None, state }])
        })
    }

    /// Why models cannot be served names folders and quotes files, which may be links to others: it is for callers that
    /// may load.
    pub(crate) fn keep_reasons(&self, entries: &mut [IndexEntry], caller: &Caller) {
        if self.knows(caller) {
            return;
        }
        for entry in entries {
            if let ModelState::Unavailable(reason) = &mut entry.state {
                ModelState::KEPT.clone_into(reason);
            }
        }
    }

    /// Whether the caller has the right to load, or shows the token for it.
    fn knows(&self, caller: &Caller) -> bool {
        if caller.may_load() {
            return true;
        }
        let token = self.access.as_ref().and_then(|access| access.loader.as_ref()?.token);
        // Hashes are compared in constant time.
        token.zip(caller.token()).is_some_and(|(token, shown)| blake3::hash(shown.as_bytes()) == token)
    }

    /// Makes the cluster serve the model or pipeline of its folder.
    pub(crate) async fn load(&self, model: &str, caller: &Caller) -> CallEnded {
        let (name, reads) = (model.to_owned(), Arc::clone(&self.reads));
        let loaded = self.do_as_operator(model, caller, move |repository, control| async move {
            let read = read_within(READ_WITHIN, reads, move || repository.entry(&name)).await;
            match read.and_then(|entry| entry.map_err(unusable)) {
                Ok(RepositoryEntry::Model(model)) => CallEnded::of(serve_model(&control, &model).await),
                Ok(RepositoryEntry::Pipeline(pipeline)) => CallEnded::of(serve_pipeline(&control, &pipeline).await),
                Err(error) => CallEnded::before_it_was_asked(error),
            }
        });
        self.count("load", loaded.await)
    }

    /// Makes the cluster serve no version of the model, or no such pipeline, in the same way.
    pub(crate) async fn unload(&self, model: &str, caller: &Caller) -> CallEnded {
        let name = model.to_owned();
        let unloaded = self.do_as_operator(model, caller, |_, control| async move {
            CallEnded::of(unload(&control, &name, LOAD_WITHIN).await)
        });
        self.count("unload", unloaded.await)
    }

    /// Carries a task out for a caller who may ask for it; it goes on to its end although the caller may not wait for
    /// that.
    async fn do_as_operator<F>(
        &self,
        model: &str,
        caller: &Caller,
        task: impl FnOnce(Repository, ControlClient) -> F,
    ) -> CallEnded
    where
        F: Future<Output = CallEnded> + Send + 'static,
    {
        let (access, control, place) = match self.begin_task(model, caller) {
            Ok(begun) => begun,
            Err(error) => return CallEnded::before_it_was_asked(error),
        };
        let task = task(access.repository.clone(), control.clone());
        let ended = tokio::spawn(async move {
            let _place = place;
            task.await
        });
        let broken = |error: tokio::task::JoinError| RepositoryError::Failed(error.to_string());
        ended.await.unwrap_or_else(|error| CallEnded::before_it_was_asked(broken(error)))
    }

    /// What a caller's task needs, if it may be done.
    fn begin_task(
        &self,
        model: &str,
        caller: &Caller,
    ) -> Result<(&RepositoryAccess, &ControlClient, UnderWay), RepositoryError> {
        let advice = "use `symphony model load` and `symphony model unload`";
        let Some(access) = &self.access else {
            return Err(RepositoryError::Unsupported(format!("this frontend has no model repository; {advice}")));
        };
        let Some(Loader { control, .. }) = &access.loader else {
            return Err(RepositoryError::Unsupported(format!(
                "this frontend lists its repository only (loading is disabled: see frontend.repository); {advice}"
            )));
        };
        if !self.knows(caller) {
            return Err(RepositoryError::Unauthenticated);
        }
        Ok((access, control, UnderWay::begin(&self.under_way, model)?))
    }

    fn count(&self, call: &'static str, ended: CallEnded) -> CallEnded {
        let outcome = match &ended.result {
            Ok(()) => "done",
            Err(RepositoryError::Failed(_) | RepositoryError::Unavailable(_) | RepositoryError::NoGpu(_)) => "failed",
            Err(_) => "refused",
        };
        self.calls.get_or_create(&CallLabels { call, outcome }).inc();
        if let Err(error) = &ended.result {
            tracing::warn!(call, %error, "repository call not done");
        }
        ended
    }
}

impl CallEnded {
    const fn before_it_was_asked(error: RepositoryError) -> Self {
        Self { as_of: 0, result: Err(error) }
    }

    fn of(applied: Result<u64, ApplyError>) -> Self {
        match applied {
            Ok(as_of) => Self { as_of, result: Ok(()) },
            Err(ApplyError::Failed { reason, as_of }) => Self { as_of, result: Err(RepositoryError::Failed(reason)) },
            Err(error) => Self::before_it_was_asked(not_applied(&error)),
        }
    }
}

/// A model that is being loaded or unloaded.
struct UnderWay {
    all: Arc<Mutex<BTreeSet<String>>>,
    model: String,
}

impl UnderWay {
    fn begin(all: &Arc<Mutex<BTreeSet<String>>>, model: &str) -> Result<Self, RepositoryError> {
        let mut names = all.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= ROLLOUTS_MAX {
            let words = format!("{ROLLOUTS_MAX} models are being loaded or unloaded, as many as may be at a time");
            return Err(RepositoryError::Unavailable(words));
        }
        if !names.insert(model.to_owned()) {
            return Err(RepositoryError::Unavailable(format!("model `{model}` is being loaded or unloaded")));
        }
        Ok(Self { all: Arc::clone(all), model: model.to_owned() })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.model);
    }
}

async fn serve_model(control: &ControlClient, model: &RepositoryModel) -> Result<u64, ApplyError> {
    for note in &model.notes {
        tracing::info!(model = model.name, "{note}");
    }
    let log_waits = |next: &Next| {
        if let Next::Wait(Some((version, why))) = next {
            tracing::warn!(model = version, "waits: {why}");
        }
    };
    apply(control, Rollout::to(model), LOAD_WITHIN, log_waits).await
}

async fn serve_pipeline(control: &ControlClient, pipeline: &RepositoryPipeline) -> Result<u64, ApplyError> {
    for note in &pipeline.notes {
        tracing::info!(pipeline = pipeline.declaration.name, "{note}");
    }
    apply(control, Rollout::to_pipeline(&pipeline.declaration), LOAD_WITHIN, |_| {}).await
}

fn list(repository: &Repository) -> Result<Vec<IndexEntry>, Unusable> {
    let mut entries = Vec::new();
    for name in repository.names()? {
        let entry = |version, state| IndexEntry { name: name.clone(), version, state };
        match repository.entry(&name) {
            Ok(RepositoryEntry::Model(model)) => {
                entries.extend(model.versions.keys().map(|&version| entry(Some(version), ModelState::NotLoaded)));
            }
            Ok(RepositoryEntry::Pipeline(pipeline)) => {
                entries.push(entry(Some(pipeline.declaration.version), ModelState::NotLoaded));
            }
            Err(error) => entries.push(entry(None, ModelState::Unavailable(error.to_string()))),
        }
    }
    Ok(entries)
}

/// Reads from the repository, as long as its caller waits: the thread may wait longer.
async fn read_within<T: Send + 'static>(
    within: Duration,
    reads: Arc<Semaphore>,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RepositoryError> {
    let Ok(place) = reads.try_acquire_owned() else {
        let words = format!("{READS_MAX} models are being read from the repository, as many as may be at a time");
        return Err(RepositoryError::Unavailable(words));
    };
    let reading = tokio::task::spawn_blocking(move || {
        let _place = place;
        read()
    });
    let read = tokio::time::timeout(within, reading).await;
    let read = read.map_err(|_| RepositoryError::Unavailable(not_read(within)))?;
    read.map_err(|error| RepositoryError::Failed(error.to_string()))
}

fn not_read(within: Duration) -> String {
    let seconds = within.as_secs_f64();
    format!("the repository was not read within {seconds} s; see whether its folder answers")
}

fn unusable(error: Unusable) -> RepositoryError {
    match error {
        Unusable::NoModel { .. } => RepositoryError::UnknownModel(error.to_string()),
        _ => RepositoryError::InvalidRequest(error.to_string()),
    }
}

fn not_applied(error: &ApplyError) -> RepositoryError {
    let words = error.to_string();
    match error {
        ApplyError::Control(ControlError::Refused(status)) => match status.code() {
            Code::InvalidArgument | Code::FailedPrecondition | Code::AlreadyExists | Code::ResourceExhausted => {
                RepositoryError::InvalidRequest(words)
            }
            _ => RepositoryError::Failed(words),
        },
        ApplyError::Late { no_gpu: Some(_), .. } => RepositoryError::NoGpu(words),
        ApplyError::Control(_) | ApplyError::Late { .. } | ApplyError::Unready { .. } => {
            RepositoryError::Unavailable(words)
        }
        ApplyError::Failed { .. } => RepositoryError::Failed(words),
    }
}

/// Reads the token of a frontend's operators.
///
/// # Errors
/// If the file cannot be read, or holds less than [`TOKEN_BYTES_MIN`] characters.
pub fn read_token(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| format!("the token {} cannot be read: {error}", path.display()))?;
    let token = text.trim();
    if token.len() < TOKEN_BYTES_MIN {
        let (path, bytes) = (path.display(), token.len());
        return Err(format!(
            "the token in {path} has {bytes} characters; expected at least {TOKEN_BYTES_MIN}, at random"
        ));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use symphony_net::Net;
    use symphony_protocol::view::NoGpu;

    use super::*;
    use crate::oip::Credential;

    const TOKEN: &str = "0123456789abcdef";

    fn showing(token: &str) -> Caller {
        let value = format!("Bearer {token}").try_into().unwrap();
        let headers = HeaderMap::from_iter([(axum::http::header::AUTHORIZATION, value)]);
        Caller::anonymous().showing(Credential::of(&headers))
    }

    fn service(dir: &Path, loads: bool) -> RepositoryService {
        let access = RepositoryAccess::listing(Repository::open(dir).unwrap());
        let control = ControlClient::new(&Net::plaintext(), &["127.0.0.1:1".to_owned()]).unwrap();
        let access = if loads { access.loading(control, TOKEN) } else { access };
        RepositoryService::new(Some(access), &Registry::new("frontend"))
    }

    #[tokio::test]
    async fn only_who_shows_the_token_is_served() {
        let dir = tempfile::tempdir().unwrap();
        let service = service(dir.path(), true);
        for caller in [Caller::anonymous(), showing(""), showing("0123456789abcdeF"), showing(&TOKEN[1..])] {
            let refused = || CallEnded::before_it_was_asked(RepositoryError::Unauthenticated);
            assert_eq!(service.load("m", &caller).await, refused());
            assert_eq!(service.unload("m", &caller).await, refused());
        }
        let known = service.load("m", &showing(TOKEN)).await.result;
        assert!(matches!(known, Err(RepositoryError::UnknownModel(_))), "{known:?}");
        assert!(service.under_way.lock().unwrap().is_empty());
        let refused = CallLabels { call: "load", outcome: "refused" };
        assert_eq!(service.calls.get_or_create(&refused).get(), 5);
    }

    #[tokio::test]
    async fn without_a_token_file_or_a_repository_nobody_is() {
        let dir = tempfile::tempdir().unwrap();
        let no_repository = RepositoryService::new(None, &Registry::new("frontend"));
        for service in [service(dir.path(), false), no_repository] {
            let refused = service.load("m", &showing(TOKEN)).await.result.unwrap_err();
            assert!(matches!(refused, RepositoryError::Unsupported(_)), "{refused:?}");
            assert!(refused.to_string().contains("symphony model load"));
        }
    }

    #[test]
    fn a_pipeline_is_listed_and_no_broken_model() {
        let config = "platform: \"ensemble\" max_batch_size: 1
            input { name: \"IN\" data_type: TYPE_FP32 dims: [ 4 ] }
            output { name: \"OUT\" data_type: TYPE_FP32 dims: [ 4 ] }
            parameters { key: \"slo_ms\" value { string_value: \"50\" } }
            ensemble_scheduling { step { model_name: \"m\"
              input_map { key: \"x\" value: \"IN\" } output_map { key: \"y\" value: \"OUT\" } } }";
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("p")).unwrap();
        std::fs::write(dir.path().join("p/config.pbtxt"), config).unwrap();
        let listed = list(&Repository::open(dir.path()).unwrap()).unwrap();
        assert_eq!(listed, [IndexEntry { name: "p".into(), version: Some(1), state: ModelState::NotLoaded }]);
    }

    #[test]
    fn a_load_that_no_gpu_took_says_so_and_one_without_any_report_does_not() {
        let late = |no_gpu| not_applied(&ApplyError::Late { within: LOAD_WITHIN, no_gpu });
        let error = late(Some(("m@2".into(), NoGpu::AllDraining)));
        let words = "`m@2` waits: no GPU takes it: all its backends that are up are cordoned or draining";
        assert!(error.error_status().reason == "no_gpu" && error.to_string().contains(words), "{error}");
        let error = late(None);
        assert!(error.error_status().reason == "unavailable" && error.to_string().contains("has reported"), "{error}");
    }

    #[tokio::test]
    async fn a_model_is_loaded_by_one_caller_at_a_time() {
        let all = Arc::default();
        let first = UnderWay::begin(&all, "m").unwrap();
        assert!(matches!(UnderWay::begin(&all, "m"), Err(RepositoryError::Unavailable(_))));
        drop(first);
        let held: Vec<_> = (0..ROLLOUTS_MAX).map(|n| UnderWay::begin(&all, &n.to_string()).unwrap()).collect();
        let full = UnderWay::begin(&all, "m").err().unwrap();
        assert!(full.to_string().contains("as many as may be"), "{full}");
        drop(held);
        assert!(UnderWay::begin(&all, "m").is_ok());
    }

    #[tokio::test]
    async fn a_folder_that_never_answers_holds_so_many_threads_and_no_caller() {
        let reads = Arc::new(Semaphore::new(1));
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let within = Duration::from_millis(1);
        let late = read_within(within, Arc::clone(&reads), move || may_go_on.recv()).await.unwrap_err();
        assert!(late.to_string().contains("not read within 0.001 s"), "{late}");
        let full = read_within(within, Arc::clone(&reads), || panic!("there is no place")).await;
        assert!(full.err().unwrap().to_string().contains("as many as may be"));
        drop(go_on);
        let _free = reads.acquire().await.unwrap();
    }

    #[tokio::test]
    async fn models_that_cannot_be_read_are_listed_and_the_reason_is_for_those_who_may_load() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("broken")).unwrap();
        let secret = dir.path().join("token");
        std::fs::write(&secret, TOKEN).unwrap();
        // An attacker who may write into the repository only, and wants to read what the frontend can.
        let config = "backend: 'emulated' max_batch_size: 8 parameters { key: 'slo_ms' value { string_value: '50' } }";
        for (name, file, config) in [("thief", "profile.toml", Some(config)), ("thief2", "config.pbtxt", None)] {
            std::fs::create_dir_all(dir.path().join(name).join("1")).unwrap();
            if let Some(config) = config {
                std::fs::write(dir.path().join(name).join("config.pbtxt"), config).unwrap();
            }
            std::os::unix::fs::symlink(&secret, dir.path().join(name).join(file)).unwrap();
        }
        let service = service(dir.path(), true);
        let shown_to = async |caller| {
            let mut entries = service.listed().await.to_vec();
            service.keep_reasons(&mut entries, &caller);
            assert!(entries.iter().all(|entry| (entry.version, entry.state.label()) == (None, "UNAVAILABLE")));
            entries.iter().map(|entry| (entry.name.clone(), entry.state.reason().to_owned())).collect::<Vec<_>>()
        };
        let names = ["broken", "thief", "thief2"];
        let kept = names.map(|name| (name.to_owned(), ModelState::KEPT.to_owned()));
        assert_eq!(shown_to(Caller::anonymous()).await, kept);
        assert_eq!(shown_to(showing("another-long-token")).await, kept);
        let listed = shown_to(showing(TOKEN)).await;
        assert!(listed[0].1.contains("broken/config.pbtxt cannot be read"), "{listed:?}");
        assert!(listed[1].1.contains("thief/profile.toml`, line 1: ") && !listed[1].1.contains(TOKEN), "{listed:?}");
        assert!(listed[2].1.contains("thief2/config.pbtxt"), "{listed:?}");
    }

    #[tokio::test]
    async fn a_pipeline_of_the_repository_is_listed_as_models_are() {
        let dir = tempfile::tempdir().unwrap();
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/models/repository/canvas");
        std::fs::create_dir_all(dir.path().join("canvas/3")).unwrap();
        for file in ["config.pbtxt", "pipeline.toml"] {
            std::fs::copy(sample.join(file), dir.path().join("canvas").join(file)).unwrap();
        }
        let listed = service(dir.path(), true).listed().await;
        let entry = IndexEntry { name: "canvas".into(), version: Some(3), state: ModelState::NotLoaded };
        assert_eq!(*listed, [entry]);
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_read_is_one_line_and_the_reason_is_for_those_who_may_load() {
        let dir = tempfile::tempdir().unwrap();
        let service = service(dir.path(), true);
        drop(dir);
        let shown_to = async |caller| {
            let mut entries = service.listed().await.to_vec();
            service.keep_reasons(&mut entries, &caller);
            assert_eq!((entries.len(), entries[0].name.as_str()), (1, FOLDER_LINE));
            entries.remove(0).state
        };
        assert_eq!(shown_to(Caller::anonymous()).await, ModelState::Unavailable(ModelState::KEPT.to_owned()));
        let listed = shown_to(showing(TOKEN)).await;
        assert!(listed.reason().contains("cannot be read: No such file or directory"), "{listed:?}");
    }

    #[test]
    fn a_load_that_fails_says_as_of_when_it_has() {
        let failed = ApplyError::Failed { reason: "no such file".into(), as_of: 7 };
        let result = Err(RepositoryError::Failed("no such file".into()));
        assert_eq!(CallEnded::of(Err(failed)), CallEnded { as_of: 7, result });
    }

    #[test]
    fn a_token_is_read_without_its_line_break_and_has_a_least_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        assert!(read_token(&path).unwrap_err().contains("cannot be read"));
        std::fs::write(&path, "short\n").unwrap();
        assert!(read_token(&path).unwrap_err().contains("has 5 characters; expected at least 16"));
        std::fs::write(&path, format!("{TOKEN}\n")).unwrap();
        assert_eq!(read_token(&path).unwrap(), TOKEN);
    }
}
