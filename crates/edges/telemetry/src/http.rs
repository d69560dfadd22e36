//! Metrics, health and the console over HTTP.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use axum::serve::{IncomingStream, Listener};
use symphony_net::{CallerLimits, HttpVersion, PublicConnection, PublicListener, PublicPort, PublicTls};
use symphony_types::RequestId;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::Registry;
use crate::console::{self, ConsoleAnswer, ConsoleQuestion};
use crate::exposition::Exposition;
use crate::page_guard::{Page, PageCaller, PageConnection, PageGuard, PageRefusal};
use crate::page_hosts::PageHosts;
use crate::refusals::PORT;

/// How long a stop waits for answers in progress. A scrape takes milliseconds; a client that sends half a request and
/// waits must not keep a process from ending.
const ANSWERED_WITHIN: Duration = Duration::from_millis(500);

/// Connections at a time: of some Prometheus servers, probes, and people with the console open. What a process has of
/// file descriptors and memory is for its work.
pub(crate) const CONNECTIONS_MAX: usize = 256;

/// The part of them from one address: a quarter, so that one host cannot keep the others out.
pub(crate) const CONNECTIONS_PER_ADDRESS_MAX: usize = CONNECTIONS_MAX / 4;

/// A connection without a request for this long is closed: longer than the usual scrape interval of at most a minute.
const IDLE_MAX: Duration = Duration::from_secs(75);

/// How long an answer of `/api/history` is good: consoles ask again each second.
const HISTORY_FRESH: Duration = Duration::from_secs(1);

/// Models whose history is given within that time. Each has some 100 KB, and requests that end wait while it is looked
/// up.
const HISTORIES_MAX: usize = 64;

/// The metrics port's callers.
struct Callers(PublicListener);

impl Callers {
    fn new(listener: TcpListener, tls: Option<Arc<PublicTls>>) -> Self {
        let limits = CallerLimits { total: CONNECTIONS_MAX, per_address: CONNECTIONS_PER_ADDRESS_MAX };
        let port = PublicPort { name: PORT, limits, http: HttpVersion::Http1, idle_max: Some(IDLE_MAX) };
        Self(PublicListener::new(listener, port).secured(tls))
    }
}

impl Listener for Callers {
    type Io = PublicConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (PublicConnection, SocketAddr) {
        self.0.accept().await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Connected<IncomingStream<'_, Callers>> for PageConnection {
    fn connect_info(stream: IncomingStream<'_, Callers>) -> Self {
        Self { addr: *stream.remote_addr(), certificate: stream.io().certificate_names() }
    }
}

type HistorySource = dyn Fn(Option<&str>) -> serde_json::Value + Send + Sync;
type KeptHistories = BTreeMap<Option<String>, (Instant, Bytes)>;

/// What `/api/history` answers. Answers are made one after another, and kept for a moment: however many ask, what
/// serves requests notices little of it.
struct History {
    source: Arc<HistorySource>,
    kept: tokio::sync::Mutex<KeptHistories>,
}

impl History {
    async fn answer(&self, model: Option<String>) -> Result<Bytes, PageRefusal> {
        let mut kept = self.kept.lock().await;
        kept.retain(|_, (at, _)| at.elapsed() < HISTORY_FRESH);
        if let Some((_, answer)) = kept.get(&model) {
            return Ok(answer.clone());
        }
        if model.is_some() && kept.len() >= HISTORIES_MAX {
            let words = format!("{HISTORIES_MAX} models were asked for in a second, which is the most: ask again");
            return Err(PageRefusal::unavailable(words));
        }
        let (source, requested) = (Arc::clone(&self.source), model.clone());
        let rendered = tokio::task::spawn_blocking(move || Bytes::from(source(requested.as_deref()).to_string())).await;
        let answer = rendered.map_err(|error| PageRefusal::unavailable(error.to_string()))?;
        kept.insert(model, (Instant::now(), answer.clone()));
        Ok(answer)
    }
}
type Explain = dyn Fn(RequestId) -> serde_json::Value + Send + Sync;
type Console = dyn Fn(ConsoleQuestion) -> ConsoleAnswer + Send + Sync;

/// What a process shows on its metrics port.
#[derive(Clone)]
pub struct Surface {
    registry: Registry,
    ready: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    view: Arc<dyn Fn() -> serde_json::Value + Send + Sync>,
    history: Option<Arc<History>>,
    explain: Option<Arc<Explain>>,
    console: Option<Arc<Console>>,
    guard: Option<PageGuard>,
    hosts: PageHosts,
    tls: Option<Arc<PublicTls>>,
}

impl Surface {
    /// A surface over these metrics, ready at once, with an empty view.
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self {
            registry,
            ready: Arc::new(|| Ok(())),
            view: Arc::new(|| serde_json::json!({})),
            history: None,
            explain: None,
            console: None,
            guard: None,
            hosts: PageHosts::default(),
            tls: None,
        }
    }

    /// Shows the status pages, `/api/…` and the console, only to callers that `guard` lets in.
    #[must_use]
    pub fn with_guard(mut self, guard: PageGuard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// The names by which browsers may ask for pages that need no key, beside IP addresses and `localhost`. Under TLS
    /// the certificate has the names.
    #[must_use]
    pub fn with_hosts(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.hosts = PageHosts::new(names);
        self
    }

    /// Serves over TLS, if there is any.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<Arc<PublicTls>>) -> Self {
        self.tls = tls;
        self
    }

    /// The condition of `/health/ready`: `Err` names what the process still waits for.
    #[must_use]
    pub fn with_readiness(mut self, ready: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.ready = Arc::new(ready);
        self
    }

    /// What `/api/view` answers; the crate's README describes its shape.
    #[must_use]
    pub fn with_view(mut self, view: impl Fn() -> serde_json::Value + Send + Sync + 'static) -> Self {
        self.view = Arc::new(view);
        self
    }

    /// What `/api/history` answers: all models in short, or the last hour of one.
    #[must_use]
    pub fn with_history(mut self, history: impl Fn(Option<&str>) -> serde_json::Value + Send + Sync + 'static) -> Self {
        self.history = Some(Arc::new(History { source: Arc::new(history), kept: tokio::sync::Mutex::default() }));
        self
    }

    /// What `/api/explain` answers of a request for a pipeline.
    #[must_use]
    pub fn with_explain(mut self, explain: impl Fn(RequestId) -> serde_json::Value + Send + Sync + 'static) -> Self {
        self.explain = Some(Arc::new(explain));
        self
    }

    /// The source of what the console asks about the whole cluster. Without it the console shows that this process
    /// knows of none.
    #[must_use]
    pub fn with_console(mut self, answer: impl Fn(ConsoleQuestion) -> ConsoleAnswer + Send + Sync + 'static) -> Self {
        self.console = Some(Arc::new(answer));
        self
    }
}

impl fmt::Debug for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surface").field("registry", &self.registry).finish_non_exhaustive()
    }
}

/// `/metrics`, `/health/live`, `/health/ready`, `/api/…` and the console at `/`.
pub fn router(surface: Surface) -> Router {
    let mut router = Router::new()
        .route("/metrics", get(metrics))
        .route("/health/live", get(async || "live\n"))
        .route("/health/ready", get(ready))
        .route("/api/view", get(view))
        .route("/api/history", get(history))
        .route("/api/explain", get(explain));
    for (path, content_type, content) in console::FILES {
        let file = move |State(surface): State<Surface>, request: Request| async move {
            match surface.check_caller(&request, Page::Files) {
                Ok(()) => console::file(content_type, content),
                Err(refused) => refused.into_response(),
            }
        };
        router = router.route(path, get(file));
    }
    for path in ["/api/console", "/api/console/model", "/api/console/gpus", "/api/console/explain"] {
        router = router.route(path, get(answer));
    }
    router.with_state(surface)
}

/// Serves [`router`] until `stop` completes, and what has begun by then for half a second more.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: TcpListener,
    surface: Surface,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (stop_sender, stopped) = oneshot::channel();
    let stop = async move {
        stop.await;
        // The receiver is gone only when nothing is served any more.
        let _ = stop_sender.send(());
    };
    let out_of_time = async {
        match stopped.await {
            Ok(()) => tokio::time::sleep(ANSWERED_WITHIN).await,
            Err(_) => std::future::pending().await,
        }
    };
    let callers = Callers::new(listener, surface.tls.clone());
    let pages = router(surface).into_make_service_with_connect_info::<PageConnection>();
    let serving = axum::serve(callers, pages);
    tokio::select! {
        ended = serving.with_graceful_shutdown(stop) => ended,
        () = out_of_time => Ok(()),
    }
}

impl Surface {
    /// An error if the caller may not see the page.
    fn check_caller(&self, request: &Request, page: Page) -> Result<(), PageRefusal> {
        let needs_key = self.guard.as_ref().is_some_and(|guard| guard.needs_key);
        // Scrapers have names for their targets.
        if page != Page::Metrics && !needs_key && self.tls.is_none() {
            self.hosts.check(request.uri(), request.headers())?;
        }
        let guards = |guard: &&PageGuard| guard.metrics || page != Page::Metrics;
        let Some(guard) = self.guard.as_ref().filter(guards) else { return Ok(()) };
        let connection = request.extensions().get::<ConnectInfo<PageConnection>>().map(|ConnectInfo(info)| info);
        guard.check(&PageCaller { page, connection, headers: request.headers() })
    }
}

async fn metrics(State(surface): State<Surface>, request: Request) -> Response {
    if let Err(refused) = surface.check_caller(&request, Page::Metrics) {
        return refused.into_response();
    }
    let accept = request.headers().get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let format = Exposition::wanted(&accept.collect::<Vec<_>>().join(","));
    let body = match format {
        Exposition::Protobuf => match surface.registry.encode_protobuf() {
            Ok(bytes) => Bytes::from(bytes),
            Err(error) => return (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        },
        Exposition::OpenMetrics => surface.registry.encode().into(),
        Exposition::Plain => surface.registry.encode_plain().into(),
    };
    ([(header::CONTENT_TYPE, format.content_type()), (header::VARY, "accept")], body).into_response()
}

async fn ready(State(surface): State<Surface>) -> Response {
    match (surface.ready)() {
        Ok(()) => "ready\n".into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")).into_response(),
    }
}

async fn view(State(surface): State<Surface>, request: Request) -> Response {
    if let Err(refused) = surface.check_caller(&request, Page::View) {
        return refused.into_response();
    }
    ([(header::CACHE_CONTROL, "no-store")], Json((surface.view)())).into_response()
}

async fn history(State(surface): State<Surface>, request: Request) -> Response {
    let source = surface.check_caller(&request, Page::Cluster).and_then(|()| {
        let model = console::optional(request.uri(), "model")?;
        let words = "only frontends count requests: this process has no history";
        let history = surface.history.as_ref().ok_or_else(|| PageRefusal::not_found(words.into()))?;
        Ok((history, model))
    });
    let page = match source {
        Ok((history, model)) => history.answer(model).await,
        Err(refused) => Err(refused),
    };
    page.map_or_else(IntoResponse::into_response, console::json)
}

async fn explain(State(surface): State<Surface>, request: Request) -> Response {
    let checked = surface.check_caller(&request, Page::Cluster).and_then(|()| {
        let words = "only frontends remember requests for pipelines";
        let explain = surface.explain.clone().ok_or_else(|| PageRefusal::not_found(words.into()))?;
        let id = console::argument(request.uri(), "request")?.parse::<RequestId>();
        Ok((explain, id.map_err(|error| PageRefusal::bad_request(error.to_string()))?))
    });
    let (explain, id) = match checked {
        Ok(checked) => checked,
        Err(refused) => return refused.into_response(),
    };
    // Beside the threads that serve.
    match tokio::task::spawn_blocking(move || Bytes::from(explain(id).to_string())).await {
        Ok(explanation) => console::json(explanation),
        Err(error) => PageRefusal::unavailable(error.to_string()).into_response(),
    }
}

async fn answer(State(surface): State<Surface>, request: Request) -> Response {
    let pending = surface.check_caller(&request, Page::Cluster).and_then(|()| {
        let words = "this process belongs to no cluster: open the console of a scheduler, frontend or backend of one";
        let console = surface.console.as_ref().ok_or_else(|| PageRefusal::not_found(words.into()))?;
        Ok(console(ConsoleQuestion::parse(request.uri())?))
    });
    let answered = match pending {
        Ok(answer) => answer.await,
        Err(refused) => Err(refused),
    };
    answered.map_or_else(IntoResponse::into_response, console::json)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn half_a_request_does_not_hold_up_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(serve(listener, Surface::new(Registry::new("test")), async {
            let _ = stopped.await;
        }));
        let mut caller = TcpStream::connect(addr).await.unwrap();
        caller.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n").await.unwrap();
        // The request is under way once another one, made later, has been answered.
        let mut other = TcpStream::connect(addr).await.unwrap();
        other.write_all(b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        other.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("live\n"), "{answer}");

        stop.send(()).unwrap();
        let ended = tokio::time::timeout(20 * ANSWERED_WITHIN, serving).await;
        ended.expect("the end waits for half a request").unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_scraper_gets_the_format_that_it_asks_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Surface::new(Registry::new("test")), std::future::pending()));
        for (accept, content_type, build) in [
            ("Accept: application/openmetrics-text\r\n", "application/openmetrics-text", "# TYPE symphony_build info"),
            ("Accept: text/plain\r\n", "text/plain; version=0.0.4", "# TYPE symphony_build_info gauge"),
            ("", "text/plain; version=0.0.4", "# TYPE symphony_build_info gauge"),
            (
                "Accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited\r\n",
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
                "symphony_build_info",
            ),
        ] {
            let mut caller = TcpStream::connect(addr).await.unwrap();
            let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}Connection: close\r\n\r\n");
            caller.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            caller.read_to_end(&mut answer).await.unwrap();
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.contains(&format!("content-type: {content_type}")), "{accept}: {answer}");
            assert!(answer.contains(build), "{accept}: {answer}");
            assert_eq!(answer.ends_with("# EOF\n"), accept.contains("openmetrics"), "{accept}");
        }
    }

    #[tokio::test]
    async fn a_history_is_told_anew_after_a_second_and_of_so_many_models_within_it() {
        let reads = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&reads);
        let source = move |model: Option<&str>| serde_json::json!([model, counter.fetch_add(1, Ordering::Relaxed)]);
        let history = History { source: Arc::new(source), kept: tokio::sync::Mutex::default() };
        for _ in 0..2 {
            assert_eq!(history.answer(None).await.as_deref(), Ok(b"[null,0]".as_slice()));
        }
        // The machine may be slow: these are kept for longer.
        for model in 0..HISTORIES_MAX {
            let later = Instant::now() + Duration::from_secs(60);
            history.kept.lock().await.insert(Some(model.to_string()), (later, Bytes::new()));
        }
        let refused = history.answer(Some("m".into())).await.unwrap_err();
        assert!(refused.words.contains("ask again"), "{}", refused.words);
        let long_ago = Instant::now().checked_sub(2 * HISTORY_FRESH).unwrap();
        for (at, _) in history.kept.lock().await.values_mut() {
            *at = long_ago;
        }
        assert_eq!(history.answer(Some("m".into())).await.as_deref(), Ok(br#"["m",1]"#.as_slice()));
        assert_eq!(history.answer(None).await.as_deref(), Ok(b"[null,2]".as_slice()));
        assert_eq!(reads.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn callers_that_are_too_many_are_closed_and_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Surface::new(Registry::new("test")), std::future::pending()));
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS_PER_ADDRESS_MAX {
            held.push(TcpStream::connect(addr).await.unwrap());
        }
        let mut one_more = TcpStream::connect(addr).await.unwrap();
        let closed = one_more.read_to_end(&mut Vec::new()).await;
        assert!(closed.map_or(true, |read| read == 0));

        let mut known = held.pop().unwrap();
        known.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        known.read_to_string(&mut answer).await.unwrap();
        let count = "symphony_connections_refused_total{port=\"metrics\",reason=\"too_many_from_there\"} 1";
        assert!(answer.contains(count), "{answer}");
    }
}
