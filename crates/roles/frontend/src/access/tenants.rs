//! The tenants of this frontend, as their file has them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use sha2::{Digest as _, Sha256};
use symphony_config::{CONFIG_BYTES_MAX, FrontendConfig, Right, TenantsFile};
use symphony_net::FileStamp;
use symphony_quotas::{TenantDemand, TenantShare};
use symphony_telemetry::{Page, PageCaller, PageGuard, PageRefusal, Registry};
use symphony_types::{Nanos, Time};

use crate::access::tenant::{Tenant, TenantCounts};
use crate::metrics;
use crate::oip::{AccessError, Caller, Credential, KnownBy, Shown};

/// How often the file is checked: a removed key is valid for no longer than this.
const RELOAD_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabels {
    tenant: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabels {
    /// Empty if it is not known who called.
    tenant: String,
    reason: &'static str,
}

/// The file that was read last, and whether it could be used.
#[derive(Debug, Default)]
struct LastRead {
    stamp: Option<FileStamp>,
    usable: bool,
}

/// The tenants by what they show.
#[derive(Debug, Default)]
struct Book {
    by_key: HashMap<[u8; 32], Arc<Tenant>>,
    by_certificate: HashMap<String, Arc<Tenant>>,
    by_name: BTreeMap<String, Arc<Tenant>>,
}

impl Book {
    fn find(&self, by: KnownBy) -> Option<Caller> {
        let tenant = match &by {
            KnownBy::Key(hash) => self.by_key.get(hash),
            KnownBy::Certificate(name) => self.by_certificate.get(&**name),
        };
        Some(Caller::tenant(Arc::clone(tenant?), by))
    }
}

/// The tenants. A file that cannot be used changes nothing.
pub struct Tenants {
    path: PathBuf,
    in_flight_max: usize,
    began: Instant,
    /// Frontends of the cluster, as far as known: a new quota is divided among them.
    frontends: AtomicU32,
    /// Whether quotas have been divided by that.
    begun: AtomicBool,
    book: RwLock<Arc<Book>>,
    last_read: Mutex<LastRead>,
    counts: Counts,
}

#[derive(Debug)]
struct Counts {
    items: Family<TenantLabels, Counter>,
    gpu_seconds: Family<TenantLabels, Counter<f64, std::sync::atomic::AtomicU64>>,
    refused: Family<RefusedLabels, Counter>,
    /// 1 if the file, as it is now, is what callers are known by, or else 0.
    file_ok: Gauge,
}

impl fmt::Debug for Tenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenants").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Tenants {
    /// Reads the file of this frontend, if it has one, and its metrics.
    ///
    /// # Errors
    /// If it cannot be read, or is not what was expected.
    pub fn open(config: &FrontendConfig, registry: &Registry) -> Result<Option<Arc<Self>>, String> {
        let Some(path) = &config.tenants else { return Ok(None) };
        let counts = Counts {
            items: registry.register(&metrics::TENANT_ITEMS, Family::default()),
            gpu_seconds: registry.register(&metrics::TENANT_GPU, Family::default()),
            refused: registry.register(&metrics::CALLERS_REFUSED, Family::default()),
            file_ok: registry.register(&metrics::TENANTS_FILE_OK, Gauge::default()),
        };
        let tenants = Arc::new(Self {
            path: path.clone(),
            // No tenant alone takes all places.
            in_flight_max: (config.requests_in_flight_max as usize).div_ceil(2),
            began: Instant::now(),
            frontends: AtomicU32::new(1),
            begun: AtomicBool::new(false),
            book: RwLock::default(),
            last_read: Mutex::default(),
            counts,
        });
        tenants.reload()?;
        registry.collect(Shares(Arc::clone(&tenants)));
        Ok(Some(tenants))
    }

    /// The time on the clock of the quotas.
    pub(crate) fn now(&self) -> Time {
        Time::ZERO + Nanos::from(self.began.elapsed())
    }

    fn book(&self) -> Arc<Book> {
        Arc::clone(&self.book.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the file again if it has changed; true if it had. It may block.
    ///
    /// # Errors
    /// If it cannot be used: then the former one stays. A malformed file is read again once it has changed; what could
    /// not be read, each time.
    pub fn reload(&self) -> Result<bool, String> {
        let mut last = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        let reloaded =
            self.reload_after(&mut last).map_err(|error| format!("frontend.tenants {}: {error}", self.path.display()));
        self.counts.file_ok.set(i64::from(reloaded.is_ok() && last.usable));
        reloaded
    }

    fn reload_after(&self, last: &mut LastRead) -> Result<bool, String> {
        let metadata = std::fs::metadata(&self.path).map_err(|error| error.to_string())?;
        if !metadata.is_file() {
            // A pipe would be waited for.
            return Err("is no file; expected one with [[tenant]]".to_owned());
        }
        let stamp = FileStamp::of(&metadata);
        if last.stamp == Some(stamp) {
            return Ok(false);
        }
        let text = read(&self.path).map_err(|error| error.to_string())?;
        let file = TenantsFile::parse(&text);
        *last = LastRead { stamp: Some(stamp), usable: file.is_ok() };
        self.follow(file.map_err(|error| error.to_string())?);
        Ok(true)
    }

    fn follow(&self, file: TenantsFile) {
        let (now, former, frontends) = (self.now(), self.book(), self.frontends.load(Ordering::Relaxed));
        let mut book = Book::default();
        for config in file.tenants {
            let before = former.by_name.get(&config.name).map(|before| &**before);
            let labels = TenantLabels { tenant: config.name.clone() };
            let counts = || TenantCounts {
                items: self.counts.items.get_or_create_owned(&labels),
                gpu_seconds: self.counts.gpu_seconds.get_or_create_owned(&labels),
            };
            let tenant = Arc::new(Tenant::new(now, config, self.in_flight_max, frontends, before, counts));
            for key in &tenant.config.keys {
                book.by_key.insert(key.0, Arc::clone(&tenant));
            }
            for name in &tenant.config.certificates {
                book.by_certificate.insert(name.clone(), Arc::clone(&tenant));
            }
            book.by_name.insert(tenant.config.name.clone(), tenant);
        }
        self.forget_series(&former, &book);
        *self.book.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(book);
    }

    /// The series of a removed tenant go with it, so that their number follows the file.
    fn forget_series(&self, former: &Book, book: &Book) {
        for tenant in former.by_name.keys().filter(|tenant| !book.by_name.contains_key(*tenant)) {
            let labels = TenantLabels { tenant: tenant.clone() };
            self.counts.items.remove(&labels);
            self.counts.gpu_seconds.remove(&labels);
            for reason in AccessError::REASONS.into_iter().chain(["quota", "tenant_busy"]) {
                self.counts.refused.remove(&RefusedLabels { tenant: tenant.clone(), reason });
            }
        }
    }

    /// Follows the file while it is polled.
    pub async fn keep_fresh(self: Arc<Self>) {
        let mut reported = None;
        loop {
            tokio::time::sleep(RELOAD_EVERY).await;
            let tenants = Arc::clone(&self);
            let reloaded = tokio::task::spawn_blocking(move || tenants.reload()).await;
            let failed = match reloaded.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(true) => {
                    tracing::info!(tenants = self.book().by_name.len(), "the file of tenants was read again");
                    None
                }
                Ok(false) => None,
                Err(error) => Some(error),
            };
            // Once, not every second.
            if let Some(error) = failed.as_ref().filter(|_| failed != reported) {
                tracing::warn!(error, "the changed file of tenants cannot be used; what was read before stays");
            }
            reported = failed;
        }
    }

    /// The caller, by the credentials that it shows.
    ///
    /// # Errors
    /// If it shows no credential, or an unknown one.
    pub(crate) fn caller(&self, shown: &Shown<'_>) -> Result<Caller, AccessError> {
        let credential = Credential::of(shown.headers);
        Ok(self.known(&credential, shown.certificate)?.showing(credential))
    }

    fn known(&self, credential: &Credential, certificate: &[String]) -> Result<Caller, AccessError> {
        let book = self.book();
        let found = match credential.token() {
            // Keys are as random as their hashes, so the time that this takes reveals neither.
            Some(key) => {
                let by = KnownBy::Key(Sha256::digest(key.as_bytes()).into());
                book.find(by).ok_or(AccessError::UnknownKey)
            }
            None => {
                let known = certificate.iter().find_map(|name| book.find(KnownBy::Certificate(name.as_str().into())));
                known.ok_or(if certificate.is_empty() { AccessError::NoKey } else { AccessError::UnknownCertificate })
            }
        };
        found.inspect_err(|error| self.refused("", error.error_status().reason))
    }

    /// The caller by the present file, if its credential still has one of these rights.
    ///
    /// # Errors
    /// If not, which is counted.
    pub(crate) fn reauthenticate(&self, caller: &Caller, rights: &'static [Right]) -> Result<Caller, AccessError> {
        let Some(by) = caller.known_by() else { return Ok(caller.clone()) };
        let unknown = match by {
            KnownBy::Key(_) => AccessError::UnknownKey,
            KnownBy::Certificate(_) => AccessError::UnknownCertificate,
        };
        let found = self.book().find(by.clone()).ok_or(unknown);
        let now = found.inspect_err(|error| self.refused("", error.error_status().reason))?;
        self.check(&now, rights)?;
        Ok(now)
    }

    /// Counts a caller that was refused.
    pub(crate) fn refused(&self, tenant: &str, reason: &'static str) {
        self.counts.refused.get_or_create_owned(&RefusedLabels { tenant: tenant.to_owned(), reason }).inc();
    }

    /// Shows status pages to callers with that right, the console to those with its own; `/metrics` to all, or to those
    /// with the right to status pages.
    pub fn page_guard(self: &Arc<Self>, metrics: bool) -> PageGuard {
        let tenants = Arc::clone(self);
        PageGuard::new(metrics, move |page| tenants.may_see(page))
    }

    fn may_see(&self, page: &PageCaller<'_>) -> Result<(), PageRefusal> {
        let certificate = page.connection.map_or(&[][..], |connection| connection.certificate.get());
        let rights: &'static [Right] = match page.page {
            Page::Metrics | Page::View => &[Right::Status],
            // Then the page can show what is missing.
            Page::Files => &[Right::Status, Right::Console],
            Page::Cluster => &[Right::Console],
        };
        // Browsers ask people for a name and a password: the key.
        let caller = self.known(&Credential::of_page(page.headers), certificate);
        caller.and_then(|caller| self.check(&caller, rights)).map_err(|error| {
            let status = error.error_status();
            PageRefusal { status: status.http, reason: status.reason, words: error.to_string() }
        })
    }

    /// Whether the caller has one of these rights.
    ///
    /// # Errors
    /// If not, which is counted.
    pub(crate) fn check(&self, caller: &Caller, rights: &'static [Right]) -> Result<(), AccessError> {
        caller.may(rights).inspect_err(|error| self.refused(caller.name(), error.error_status().reason))
    }

    /// What the tenants with quotas were asked for in the last `seconds`.
    pub(crate) fn demands(&self, seconds: f64) -> BTreeMap<String, TenantDemand> {
        let book = self.book();
        let demands = book.by_name.iter().filter_map(|(name, tenant)| Some((name.clone(), tenant.demand(seconds)?)));
        demands.collect()
    }

    /// What this frontend may give from now on.
    pub(crate) fn take_shares(&self, shares: impl IntoIterator<Item = (String, TenantShare)>) {
        let (now, book) = (self.now(), self.book());
        for (name, share) in shares {
            if let Some(tenant) = book.by_name.get(&name) {
                tenant.take_share(now, share);
            }
        }
    }

    /// The cluster has this many frontends. Until it gets its share, this one gives an equal part of each quota. Of
    /// several clusters the first one counts: a share may have come by then.
    pub(crate) fn begin_with(&self, frontends: u32) {
        if self.begun.swap(true, Ordering::Relaxed) {
            return;
        }
        self.frontends.store(frontends.max(1), Ordering::Relaxed);
        let part = |quota: Option<f64>| quota.map(|quota| quota / f64::from(frontends.max(1)));
        let equal = |tenant: &Tenant| TenantShare {
            items: part(tenant.config.items_per_s),
            gpu_seconds: part(tenant.config.gpu_seconds_per_s),
        };
        let book = self.book();
        self.take_shares(book.by_name.iter().map(|(name, tenant)| (name.clone(), equal(tenant))));
    }

    pub(crate) fn frontends_are(&self, frontends: u32) {
        self.frontends.store(frontends.max(1), Ordering::Relaxed);
    }
}

/// Reads a file of at most as many bytes as a configuration has.
fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// The parts of quotas that this frontend may give, read at each scrape.
#[derive(Debug)]
struct Shares(Arc<Tenants>);

impl Collector for Shares {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let name = &metrics::TENANT_SHARE;
        let mut family = encoder.encode_descriptor(name.bare(), name.help, None, MetricType::Gauge)?;
        for (tenant, of) in &self.0.book().by_name {
            for (quota, share) in ["items", "gpu_seconds"].into_iter().zip(of.shares()) {
                if let Some(share) = share {
                    let labels = [("tenant", tenant.as_str()), ("quota", quota)];
                    ConstGauge::new(share).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue};
    use symphony_config::KeyHash;

    use super::*;

    struct Scene {
        _dir: tempfile::TempDir,
        path: PathBuf,
        registry: Registry,
        tenants: Arc<Tenants>,
    }

    fn hash(key: &str) -> String {
        KeyHash(Sha256::digest(key).into()).to_string()
    }

    fn file(tenants: &[(&str, &str, &str)]) -> String {
        let line = |(name, key, more): &(&str, &str, &str)| {
            format!("[[tenant]]\nname = \"{name}\"\nkeys = [\"{}\"]\n{more}\n", hash(key))
        };
        tenants.iter().map(line).collect()
    }

    impl Scene {
        fn new(text: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("tenants.toml");
            std::fs::write(&path, text).unwrap();
            let config = FrontendConfig { tenants: Some(path.clone()), ..FrontendConfig::default() };
            let registry = Registry::new("frontend");
            let tenants = Tenants::open(&config, &registry).unwrap().unwrap();
            Self { _dir: dir, path, registry, tenants }
        }

        fn caller(&self, headers: &[(&'static str, &str)], certificate: &[&str]) -> Result<String, AccessError> {
            let header = |&(name, value): &(&'static str, &str)| (name.try_into().unwrap(), value.try_into().unwrap());
            let headers: HeaderMap = headers.iter().map(header).collect();
            let certificate: Vec<_> = certificate.iter().map(|name| (*name).to_owned()).collect();
            let shown = Shown { headers: &headers, certificate: &certificate };
            self.tenants.caller(&shown).map(|caller| caller.name().to_owned())
        }
    }

    #[test]
    fn a_caller_is_known_by_its_key_or_its_certificate() {
        let scene = Scene::new(&file(&[("a", "key-a", "certificates = [\"a.example\"]"), ("b", "key-b", "")]));
        let known = |name: &str| Ok(name.to_owned());
        assert_eq!(scene.caller(&[("authorization", "Bearer key-a")], &[]), known("a"));
        assert_eq!(scene.caller(&[("x-api-key", "key-b")], &[]), known("b"));
        assert_eq!(scene.caller(&[], &["somebody", "a.example"]), known("a"));
        assert_eq!(scene.caller(&[("x-api-key", "key-b")], &["a.example"]), known("b"), "a key goes first");
        assert_eq!(scene.caller(&[], &[]), Err(AccessError::NoKey));
        assert_eq!(
            scene.caller(&[("authorization", "Basic eDprZXktYQ==")], &[]),
            Err(AccessError::NoKey),
            "for pages only"
        );
        assert_eq!(scene.caller(&[("x-api-key", "key-c")], &["a.example"]), Err(AccessError::UnknownKey));
        assert_eq!(scene.caller(&[], &["c.example"]), Err(AccessError::UnknownCertificate));
        let text = scene.registry.encode();
        let series = "symphony_frontend_callers_refused_total{tenant=\"\",reason=\"no_key\"} 2";
        assert!(text.contains(series), "{text}");
    }

    #[test]
    fn a_changed_file_counts_and_one_that_cannot_be_used_changes_nothing() {
        let scene = Scene::new(&file(&[("a", "key-a", "items_per_s = 5"), ("b", "key-b", "")]));
        assert_eq!(scene.tenants.reload(), Ok(false));
        let knows = |key: &str| scene.caller(&[("x-api-key", key)], &[]).is_ok();
        std::fs::write(&scene.path, "[[tenant]]\nname = 1").unwrap();
        let refused = scene.tenants.reload().unwrap_err();
        assert!(refused.contains("tenants.toml: line 2: invalid type"), "{refused}");
        assert!(knows("key-a") && knows("key-b"));
        assert_eq!(scene.tenants.reload(), Ok(false), "it is said once");
        assert!(
            scene
                .registry
                .encode()
                .contains("symphony_frontend_tenant_quota_share_ratio{tenant=\"a\",quota=\"items\"} 1.0")
        );
        std::fs::write(&scene.path, file(&[("b", "key-b2", "")])).unwrap();
        assert_eq!(scene.tenants.reload(), Ok(true));
        assert!(!knows("key-a") && !knows("key-b") && knows("key-b2"));
        let text = scene.registry.encode();
        assert!(
            !text.contains("tenant=\"a\"") && text.contains("symphony_frontend_tenant_items_total{tenant=\"b\"}"),
            "{text}"
        );
        std::fs::remove_file(&scene.path).unwrap();
        assert!(scene.tenants.reload().is_err() && scene.tenants.reload().is_err() && knows("key-b2"));
    }

    #[test]
    fn who_was_known_once_is_so_as_long_as_the_file_says() {
        let text = |key: &str, more: &str| {
            let lines = format!("certificates = [\"a.example\"]\n{more}");
            file(&[("a", key, lines.as_str())])
        };
        let scene = Scene::new(&text("key-a", ""));
        let headers = HeaderMap::from_iter([("x-api-key".parse().unwrap(), HeaderValue::from_static("key-a"))]);
        let by_key = scene.tenants.caller(&Shown { headers: &headers, certificate: &[] }).unwrap();
        let certificate = ["a.example".to_owned()];
        let no_headers = HeaderMap::new();
        let shown = Shown { headers: &no_headers, certificate: &certificate };
        let by_certificate = scene.tenants.caller(&shown).unwrap();
        let still = |caller| scene.tenants.reauthenticate(caller, &[Right::Infer]).map(|now| now.weight().number());
        assert_eq!((still(&by_key), still(&by_certificate)), (Ok(1.0), Ok(1.0)));
        std::fs::write(&scene.path, text("key-b", "weight = 4")).unwrap();
        scene.tenants.reload().unwrap();
        assert_eq!((still(&by_key), still(&by_certificate)), (Err(AccessError::UnknownKey), Ok(4.0)));
        std::fs::write(&scene.path, text("key-a", "rights = [\"status\"]")).unwrap();
        scene.tenants.reload().unwrap();
        let no_right = Err(AccessError::NoRight(&[Right::Infer]));
        assert_eq!((still(&by_key), still(&by_certificate)), (no_right, no_right));
        std::fs::write(&scene.path, file(&[("b", "key-b", "")])).unwrap();
        scene.tenants.reload().unwrap();
        assert_eq!(still(&by_certificate), Err(AccessError::UnknownCertificate));
        assert!(
            scene.tenants.reauthenticate(&Caller::anonymous(), &[Right::Infer]).is_ok(),
            "where everybody is served"
        );
    }

    #[test]
    fn a_file_that_could_not_be_read_is_read_once_it_can_be_and_its_time_and_length_are_no_proof() {
        let scene = Scene::new(&file(&[("a", "key-a", "")]));
        let (knows, is_ok) = (
            |key: &str| scene.caller(&[("x-api-key", key)], &[]).is_ok(),
            |ok: u8| scene.registry.encode().contains(&format!("symphony_frontend_tenants_file_ok {ok}\n")),
        );
        assert!(is_ok(1));
        let (away, beside) = (scene.path.with_extension("away"), scene.path.with_extension("new"));
        // In its place something that cannot be read for now; then the same file again.
        std::fs::rename(&scene.path, &away).unwrap();
        std::fs::create_dir(&scene.path).unwrap();
        for _ in 0..2 {
            let refused = scene.tenants.reload().unwrap_err();
            assert!(refused.contains("is no file") && is_ok(0) && knows("key-a"), "{refused}");
        }
        std::fs::remove_dir(&scene.path).unwrap();
        std::fs::rename(&away, &scene.path).unwrap();
        assert!(scene.tenants.reload().is_ok() && is_ok(1));
        // Another key of the same length at the same time.
        let time = std::fs::metadata(&scene.path).unwrap().modified().unwrap();
        std::fs::write(&beside, file(&[("a", "key-b", "")])).unwrap();
        std::fs::File::options().write(true).open(&beside).unwrap().set_modified(time).unwrap();
        std::fs::rename(&beside, &scene.path).unwrap();
        assert_eq!(scene.tenants.reload(), Ok(true));
        assert!(!knows("key-a") && knows("key-b"));
        // An invalid file is logged once, and stays invalid.
        std::fs::write(&scene.path, "[[tenant]]").unwrap();
        assert!(scene.tenants.reload().is_err() && scene.tenants.reload() == Ok(false) && is_ok(0));
    }

    #[test]
    fn a_file_that_is_seen_before_it_may_be_read_is_read_later() {
        use std::os::unix::fs::PermissionsExt as _;
        let scene = Scene::new(&file(&[("a", "key-a", "")]));
        let beside = scene.path.with_extension("new");
        std::fs::write(&beside, file(&[("a", "key-b", "")])).unwrap();
        let rights = |mode| std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(mode)).unwrap();
        rights(0o000);
        if std::fs::File::open(&beside).is_ok() {
            // The superuser may read everything.
            return;
        }
        std::fs::rename(&beside, &scene.path).unwrap();
        assert!(scene.tenants.reload().is_err());
        std::fs::set_permissions(&scene.path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(scene.tenants.reload(), Ok(true));
        assert!(scene.caller(&[("x-api-key", "key-b")], &[]).is_ok());
    }

    #[test]
    fn pages_are_for_those_with_the_right_and_browsers_are_asked_for_a_key() {
        let console = ("c", "key-c", "rights = [\"console\"]");
        let scene = Scene::new(&file(&[("a", "key-a", ""), ("b", "key-b", "rights = [\"status\"]"), console]));
        let asks_for = |page, headers: &[(&'static str, &str)]| {
            let header = |&(name, value): &(&'static str, &str)| (name.try_into().unwrap(), value.try_into().unwrap());
            let headers: HeaderMap = headers.iter().map(header).collect();
            let caller = PageCaller { page, connection: None, headers: &headers };
            scene.tenants.may_see(&caller).map_err(|refused| refused.reason)
        };
        let asks = |headers: &[(&'static str, &str)]| asks_for(Page::View, headers);
        assert_eq!(asks(&[]), Err("no_key"));
        assert_eq!(asks(&[("authorization", "Bearer key-a")]), Err("no_right"));
        assert_eq!(asks(&[("authorization", "Bearer key-b")]), Ok(()));
        let no_right = Err("no_right");
        for (key, [metrics, view, files, cluster]) in [
            ("Bearer key-a", [no_right; 4]),
            ("Bearer key-b", [Ok(()), Ok(()), Ok(()), no_right]),
            ("Bearer key-c", [no_right, no_right, Ok(()), Ok(())]),
        ] {
            let pages = [Page::Metrics, Page::View, Page::Files, Page::Cluster];
            let answers = pages.map(|page| asks_for(page, &[("authorization", key)]));
            assert_eq!(answers, [metrics, view, files, cluster], "{key}");
        }
        // ann:key-b, :key-b, ann:key-d, and no base64.
        assert_eq!(asks(&[("authorization", "Basic YW5uOmtleS1i")]), Ok(()));
        assert_eq!(asks(&[("authorization", "Basic OmtleS1i")]), Ok(()));
        assert_eq!(asks(&[("authorization", "Basic YW5uOmtleS1k")]), Err("unknown_key"));
        assert_eq!(asks(&[("authorization", "Basic ###")]), Err("no_key"));
    }
}
